"""A decision as a table of what else could have been done, and one sentence with the binding reason.

Differences are told twice: by the cost model for a nominal task of the kind (the plan alone, per step or for all steps
left), and as the fork plays them (everybody, with intervals; :mod:`~attribution_sched.explain.played`). What does not
fit says which number is missing. The one change that would have made an alternative win is tried before it is told: the
whole deployed policy decides anew on the changed decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from attribution_sched.cluster.cost import JOULES_PER_KWH
from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import price, worth
from attribution_sched.explain.brought import Brought, brought
from attribution_sched.explain.digits import number
from attribution_sched.explain.played import FUTURES, HOURS, Played, play_choices
from attribution_sched.explain.preference import devices_needed, redecided
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.room import best_across, best_inside, empty_cluster
from attribution_sched.explain.words import Phrase, counted, in_language, say
from attribution_sched.planning.candidates import as_carried_out
from attribution_sched.scheduler.policy import Policy

SECONDS_PER_H = 3600.0


@dataclass(frozen=True)
class Alternative:
    """One row: what could have been done instead.

    Attributes:
        what: The choice in a few words.
        chosen: Whether it is what was done.
        missing: What it lacks to fit, in words; empty if it fits.
        r_eff: Its R_eff less that of what was done; None where either has no plan.
        r_util: The same of R_util.
        r_cost: The same of R_cost.
        reward: The same of R.
        hours: Hours for the steps left, less those of what was done.
        kwh: Energy for the steps left, less that of what was done.
        usd: Traffic between domains for the steps left, less that of what was done.
        carbon_g: Carbon for the steps left, less that of what was done.
        change: The one change with which the policy does it, tried; empty if none was found.
        played: What it would have brought over what was done, everybody included; None where it cannot be played.
    """

    what: str
    chosen: bool = False
    missing: str = ""
    r_eff: float | None = None
    r_util: float | None = None
    r_cost: float | None = None
    reward: float | None = None
    hours: float | None = None
    kwh: float | None = None
    usd: float | None = None
    carbon_g: float | None = None
    change: str = ""
    played: Played | None = None

    def why_not(self, task: str, domain: str, lang: str = "en") -> str:
        """The row as an answer to why a task is not in a domain: what is missing, what it would be worth, what wins."""
        told = [in_language(self.missing, lang)] if self.missing else []
        if self.chosen:
            told.append(say("why_not.done", lang))
        if self.reward is not None:
            terms = (self.reward, self.r_eff or 0.0, self.r_util or 0.0, self.r_cost or 0.0)
            total, eff, util, cost = (number(value, 2, signed=True) for value in terms)
            told.append(say("why_not.worth", lang, reward=total, eff=eff, util=util, cost=cost))
        if self.change:
            told.append(say("table.wins", lang, change=self.change))
        return say("why_not", lang, task=task, domain=domain, parts=tuple(told))


@dataclass(frozen=True)
class DecisionTable:
    """What could have been done at a decision.

    Attributes:
        decision: Its id.
        sentence: The binding reason, in at most 25 words.
        rows: What was done first, then the alternatives.
        brought: What was done against the best other choice, and by whose being there; None if that was not asked for.
    """

    decision: str
    sentence: str
    rows: tuple[Alternative, ...]
    brought: Brought | None = None

    @property
    def carbon(self) -> str:
        """What was done against the alternative whose accounted carbon differs most, in words; empty below a gram.

        For the same steps, by the location-based average intensity of each grid.
        """
        priced = [(row, row.carbon_g) for row in self.rows if not row.chosen and row.carbon_g is not None]
        if not priced:
            return ""
        row, grams = max(priced, key=lambda each: abs(each[1]))
        if abs(grams) < 1.0:
            return ""
        return Phrase(f"table.carbon_{'less' if grams > 0 else 'more'}", what=row.what, kg=number(abs(grams) / 1e3))


def decision_table(
    policy: Policy,
    decided: Decided,
    *,
    futures: int = FUTURES,
    hours: float = HOURS,
    seed: int = 0,
    drivers: bool = False,
) -> DecisionTable:
    """Say what else could have been done, and why it was not.

    Args:
        policy: Who decided; it is asked again a few times.
        decided: The decision.
        futures: Futures in which every choice is played; 0 plays none.
        hours: How far.
        seed: Of the futures.
        drivers: Whether to share out what was brought over the best other choice.
    """
    view, own = decided.view, decided.plan
    names = [domain.name for domain in view.cost.cluster.domains]
    listed: list[tuple[str, Plan | None, str, int | None]] = [(_words(own, names, view), own, "", None)]
    inside = {k: best_inside(view, k) for k in range(len(names))}
    mine = set() if own is None else set(own.domains)
    for k, plan in inside.items():
        if mine != {k}:
            listed.append((names[k], plan, "" if plan is not None else _missing(view, k), k))
    if own is not None and len(mine) == 1:
        (at,) = mine
        devices = sum(segment.device_count for segment in own.segments)
        for least, most in ((1, devices - 1), (devices + 1, None)):
            plan = best_inside(view, at, least=least, most=most) if devices > 1 or most is None else None
            if plan is not None:
                listed.append((_words(plan, names, view), plan, "", None))
    across = best_across(view) if len(names) > 1 else None
    if across is not None and (own is None or set(across.domains) != mine):
        listed.append((_words(across, names, view), across, "", None))
    if own is not None:
        listed.append((_words(None, names, view), None, "", None))
    known = _priced(view, [plan for _, plan, _, _ in listed])
    if own is None and view.current_plan is not None:
        # What stays is what runs already.
        known[0] = _priced(view, [view.current_plan])[0]
    # What does not fit cannot be played.
    able = [i for i, (_, _, missing, _) in enumerate(listed) if not missing]
    played: dict[int, Played | None] = {}
    if futures:
        choices = [listed[i][1] for i in able]
        played = dict(
            zip(able, play_choices(policy, view, choices, futures=futures, hours=hours, seed=seed), strict=True)
        )
    rows = []
    for i, ((what, _, missing, domain), numbers) in enumerate(zip(listed, known, strict=True)):
        differences = _less(numbers, known[0]) if i else {}
        change = "" if domain is None else _winning_change(policy, decided, domain, names)
        rows.append(Alternative(what, i == 0, missing, **differences, change=change, played=played.get(i)))
    others = {i: one.reward.mean for i, one in played.items() if one is not None}
    gain = None
    if drivers and others:
        best = max(others, key=lambda i: others[i])
        gain = brought(policy, view, own, listed[best][1], against=listed[best][0], hours=hours, seed=seed)
    return DecisionTable(decided.id, _sentence(decided, rows, inside, names), tuple(rows), gain)


def _words(plan: Plan | None, names: Sequence[str], view: Decision) -> str:
    if plan is None:
        return Phrase("plan.keep" if view.replanning else "plan.wait")
    parts = tuple(f"{names[segment.domain]} ×{segment.device_count}" for segment in plan.segments)
    return Phrase("list.segments", parts=parts)


def least_devices(view: Decision, domain: int) -> int | None:
    """Fewest devices of a domain that hold the task, if the domain were empty; None if it never does."""
    empty = empty_cluster(view)
    total = int(empty.free_devices[domain])
    size = 1
    while size <= total:
        if best_inside(empty, domain, least=size, most=size) is not None:
            return size
        size *= 2
    return None


def _missing(view: Decision, domain: int) -> str:
    need, free = least_devices(view, domain), int(view.free_devices[domain])
    if need is None:
        return Phrase("table.too_small")
    return Phrase("table.needs", need=need, free=free)


def _priced(view: Decision, plans: Sequence[Plan | None]) -> list[dict[str, float] | None]:
    acting = [as_carried_out(view.cost, view.kind_index, view.kind.batch_size, p) for p in plans if p is not None]
    if not acting:
        return [None for _ in plans]
    batch = PlanBatch.of(acting, view.max_segments)
    costs = price(view, batch)
    values = worth(view, batch, costs, view.kind_index)
    steps = view.steps_left
    found = [
        {
            "r_eff": float(values.r_eff[i]), "r_util": float(values.r_util[i]), "r_cost": float(values.r_cost[i]),
            "reward": float(values.reward[i]), "hours": steps * float(values.step_s[i]) / SECONDS_PER_H,
            "kwh": steps * float(costs.energy_j[i]) / JOULES_PER_KWH, "usd": steps * float(values.bill_usd[i]),
            "carbon_g": steps * float(costs.carbon_g[i]),
        }
        for i in range(len(acting))
    ]  # fmt: skip
    each = iter(found)
    return [None if plan is None else next(each) for plan in plans]


def _less(numbers: dict[str, float] | None, own: dict[str, float] | None) -> dict[str, float]:
    if numbers is None or own is None:
        return {}
    return {name: value - own[name] for name, value in numbers.items()}


def with_free(decided: Decided, free: dict[int, int]) -> tuple[Decision, Decisions]:
    """A decision with other numbers of free devices in some domains."""
    view = decided.view
    whole = {field.name: np.array(getattr(decided.seen, field.name)) for field in fields(Decisions)}
    devices = np.array(view.free_devices)
    for domain, count in free.items():
        devices[domain] = count
        whole["free"][0, domain] = count
    return replace(view, free_devices=devices), Decisions(**whole)


def _winning_change(policy: Policy, decided: Decided, domain: int, names: Sequence[str]) -> str:
    """The first single change of free devices with which the policy goes to a domain, in words."""
    view = decided.view
    total = int(view.cost.domains.rows.devices[domain])
    tries: list[dict[int, int]] = []
    need = least_devices(view, domain)
    if need is not None and int(view.free_devices[domain]) < total:
        tries += [{domain: size} for size in dict.fromkeys((need, total)) if size > int(view.free_devices[domain])]
    if decided.plan is not None:
        taken = devices_needed(decided.plan, len(names))
        tries += [{int(k): int(taken[k]) - 1} for k in np.flatnonzero(taken) if k != domain]
    for free in tries:
        changed, seen = with_free(decided, free)
        plan = redecided(policy, changed, seen)[0]
        if plan is not None and domain in plan.domains:
            ((where, count),) = free.items()
            before = int(view.free_devices[where])
            return Phrase("table.change", domain=names[where], before=before, after=count)
    return ""


def _sentence(
    decided: Decided, rows: Sequence[Alternative], inside: dict[int, Plan | None], names: Sequence[str]
) -> str:
    """The binding reason in at most 25 words: what is missing, or what the best other choice would have brought."""
    view, plan = decided.view, decided.plan
    task, free = view.kind.model.name, np.asarray(view.free_devices)
    rooms = [k for k, found in inside.items() if found is not None]
    if plan is None:
        if view.replanning:
            return Phrase("sentence.keeps", task=task, verdict=_verdict(rows[1:]))
        if not rooms:
            needs = [need for k in range(len(names)) if (need := least_devices(view, k)) is not None]
            if not needs:
                return Phrase("sentence.waits_span", task=task, free=counted("devices", int(free.sum())))
            most = int(np.argmax(free))
            least = counted("devices", min(needs))
            return Phrase("sentence.waits_room", task=task, need=least, free=int(free[most]), domain=names[most])
        return Phrase("sentence.waits_choice", task=task, domain=names[rooms[0]], verdict=_verdict(rows[1:]))
    domains = tuple(dict.fromkeys(names[k] for k in plan.domains))
    devices = sum(segment.device_count for segment in plan.segments)
    acting = [row for row in rows[1:] if not isinstance(row.what, Phrase) or row.what.message != "plan.wait"]
    if len(domains) > 1:
        return Phrase("sentence.cut", task=task, devices=devices, domains=domains, verdict=_verdict(acting))
    if len(rooms) == 1:
        return Phrase("sentence.only", task=task, domain=domains[0], free=int(free[plan.domains[0]]), devices=devices)
    return Phrase("sentence.preferred", task=task, domain=domains[0], devices=devices, verdict=_verdict(acting))


def _verdict(others: Sequence[Alternative]) -> Phrase:
    """The best other choice that has room, and what it would have brought."""
    able = [row for row in others if not row.missing]
    if not able:
        return Phrase("sentence.nothing_else")
    played = [(row, row.played) for row in able if row.played is not None]
    if not played:
        return Phrase("sentence.unplayed", what=able[0].what)
    row, found = max(played, key=lambda each: each[1].reward.mean)
    if not found.reward.certain:
        return Phrase("sentence.level", what=row.what)
    kind = "less" if found.reward.mean < 0.0 else "more"
    return Phrase(f"sentence.{kind}", what=row.what, reward=number(abs(found.reward.mean), 2))
