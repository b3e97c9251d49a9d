"""A decision as a table of what else could have been done, and one sentence with the binding reason.

Differences are told twice: by the cost model for a nominal task of the kind (the plan alone, per step or for all steps
left), and as the fork plays them (everybody, with intervals; :mod:`~attribution_sched.explain.played`). What does not
fit says which number is missing. The one change that would have made an alternative win is tried before it is told: the
whole deployed policy decides anew on the changed decision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np

from attribution_sched.cluster.cost import JOULES_PER_KWH
from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import price, worth
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.explain.brought import FUTURES as DRIVER_FUTURES
from attribution_sched.explain.brought import Brought, brought
from attribution_sched.explain.digits import number
from attribution_sched.explain.played import FUTURES, HOURS, Played, play_choices
from attribution_sched.explain.players import FORECAST
from attribution_sched.explain.preference import devices_needed, redecided
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.room import best_inside, best_over, cut_elsewhere, empty_cluster
from attribution_sched.explain.when import span_words
from attribution_sched.explain.wording import KEEP, WAIT
from attribution_sched.planning.candidates import as_carried_out
from attribution_sched.planning.domain_orders import best_by_domains
from attribution_sched.planning.power_caps import levels_of, with_cap
from attribution_sched.scheduler.policy import Policy
from attribution_sched.words.say import Phrase, counted

SECONDS_PER_H = 3600.0

GBPS = 0
"""Row of the links of a decision: bandwidth now."""

SLOWER = (0.5, 0.2)
"""Factors on a link that a plan crosses, tried one after the other."""

LEAST_DELAY_S = 60.0
"""A delay shorter than this is no reason."""

LEAST_CARBON_G, LEAST_CARBON_SHARE = 10.0, 0.01
"""A difference of accounted carbon is told if it is at least so many grams, and so much of what the task emits."""


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
        domains: Names of the domains it is about; none if it is about none in particular.
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
    domains: tuple[str, ...] = ()

    def why_not(self, task: str, what: str, lang: str = "en") -> str:
        """The row as an answer to why a task is not there: what is missing, what it would be worth, what wins.

        Args:
            task: Its id.
            what: The domain or the plan that was asked about.
            lang: Language of words.
        """
        from attribution_sched.explain.table_words import why_not

        return why_not(self, task, what, lang)


@dataclass(frozen=True)
class DecisionTable:
    """What could have been done at a decision.

    Attributes:
        decision: Its id.
        sentence: The binding reason, in at most 25 words.
        rows: What was done first, then the alternatives.
        brought: What was done against the best other choice, and by whose being there; None if that was not asked for.
        carbon_g: Accounted carbon of what was done, for the steps left; None if nothing was.
    """

    decision: str
    sentence: str
    rows: tuple[Alternative, ...]
    brought: Brought | None = None
    carbon_g: float | None = None

    def say(self, lang: str = "en") -> str:
        """The sentence and the table, as plain text."""
        from attribution_sched.explain.table_words import as_text

        return as_text(self, lang)

    def __str__(self) -> str:
        """The same in English."""
        return self.say()

    @property
    def clearness(self) -> float:
        """How far what was done stands apart from the best other choice, in half intervals; 0 if none was played."""
        others = [row.played.reward for row in self.rows if not row.chosen and row.played is not None]
        if not others:
            return 0.0
        best = max(others, key=lambda span: span.mean)
        return abs(best.mean) / max((best.high - best.low) / 2.0, 1e-12)

    @property
    def carbon(self) -> str:
        """What was done against the alternative whose accounted carbon differs most, in words; empty if by a trifle.

        For the same steps, by the location-based average intensity of each grid.
        """
        priced = [(row, row.carbon_g) for row in self.rows if not row.chosen and row.carbon_g is not None]
        if not priced or not self.carbon_g:
            return ""
        row, grams = max(priced, key=lambda each: abs(each[1]))
        if abs(grams) < max(LEAST_CARBON_G, LEAST_CARBON_SHARE * self.carbon_g):
            return ""
        message, kg = "table.carbon_less" if grams > 0 else "table.carbon_more", number(abs(grams) / 1e3)
        return Phrase(message, what=row.what, kg=kg, own=number(self.carbon_g / 1e3))


def decision_table(
    policy: Policy,
    decided: Decided,
    *,
    futures: int = FUTURES,
    hours: float = HOURS,
    seed: int = 0,
    drivers: bool | int = False,
    asked: Mapping[int, int] | None = None,
) -> DecisionTable:
    """Say what else could have been done, and why it was not.

    Args:
        policy: Who decided; it is asked again a few times.
        decided: The decision.
        futures: Futures in which every choice is played; 0 plays none.
        hours: How far.
        seed: Of the futures.
        drivers: Whether to share out what was brought over the best other choice, or in how many futures.
        asked: Domain → devices of one more alternative, told as the last row.
    """
    view, own = decided.view, decided.plan
    names = [domain.name for domain in view.cost.cluster.domains]
    listed = [_Choice(_words(own, names, view), own), *_others(view, own, names)]
    listed += [] if asked is None else [_asked_for(view, own, names, asked)]
    known = _priced(view, [one.plan for one in listed])
    if own is None and view.current_plan is not None:
        # What stays is what runs already.
        known[0] = _priced(view, [view.current_plan])[0]
    # What does not fit cannot be played.
    able = [i for i, one in enumerate(listed) if not one.missing]
    played: dict[int, Played | None] = {}
    if futures:
        choices = [listed[i].plan for i in able]
        played = dict(
            zip(able, play_choices(policy, view, choices, futures=futures, hours=hours, seed=seed), strict=True)
        )
    wins = _winning_changes(policy, decided, listed[1:], names, asked or {})
    rows = []
    for i, (one, numbers) in enumerate(zip(listed, known, strict=True)):
        differences = _less(numbers, known[0]) if i else {}
        over = tuple(names[k] for k in sorted(one.over))
        change = wins.get(ASKED if asked is not None and one is listed[-1] else one.over, "") if i else ""
        done = i == 0 or (asked is not None and own is not None and one.plan is own)
        rows.append(
            Alternative(one.what, done, one.missing, **differences, change=change, played=played.get(i), domains=over)
        )
    others = {i: one.reward.mean for i, one in played.items() if one is not None}
    gain = None
    if drivers and others:
        best = max(others, key=lambda i: others[i])
        gain = brought(
            policy, view, own, listed[best].plan, against=listed[best].what, hours=hours, seed=seed,
            futures=DRIVER_FUTURES if drivers is True else int(drivers),
        )  # fmt: skip
    grams = None if known[0] is None else known[0]["carbon_g"]
    return DecisionTable(decided.id, _sentence(decided, rows, names), tuple(rows), gain, grams)


ASKED = frozenset({-1})
"""Stands for the alternative that was asked for by its devices, where changes with which it wins are looked up."""

PART = re.compile(r"\s*(.+?)\s*[x×]\s*(\d{1,6})\s*")
"""``domain x8``: so many devices of a domain."""


def read_plan(text: str, names: Sequence[str]) -> dict[int, int]:
    """``a x8`` or ``a x8 + b x8`` as domain → devices; a domain by itself has 0, which is whatever is best there.

    Raises:
        SettingsError: If there is no such domain, or it is no plan.
    """
    if text in names:
        return {names.index(text): 0}
    found: dict[int, int] = {}
    for part in text.replace("→", "+").split("+"):
        matched = PART.fullmatch(part)
        name = part.strip() if matched is None else matched[1]
        if name not in names:
            raise SettingsError(problem("domain", name, "does not exist", nearest(name, names)))
        if matched is None or int(matched[2]) < 1 or names.index(name) in found:
            fix = f"Write {name} x8, or {name} x8 + {next((o for o in names if o != name), name)} x8"
            raise SettingsError(problem("plan", text, "must name each domain once, with its devices", fix))
        found[names.index(name)] = int(matched[2])
    return found


def _asked_for(view: Decision, own: Plan | None, names: Sequence[str], asked: Mapping[int, int]) -> _Choice:
    """An alternative by its devices: the best plan on them, or what they lack."""
    what = Phrase("list.segments", parts=tuple(f"{names[k]} ×{n}" for k, n in asked.items()))
    over, total = frozenset(asked), sum(asked.values())

    def best(there: Decision) -> Plan | None:
        most = np.zeros_like(np.asarray(view.free_devices))
        for k, n in asked.items():
            most[k] = min(n, int(there.free_devices[k]))
        there = replace(there, free_devices=most)
        if len(asked) == 1:
            return best_inside(there, next(iter(over)), least=total, most=total)
        return best_over(there, over, least=total, most=total)

    plan = best(view)
    if plan is not None:
        same = own is not None and (devices_needed(own, len(names)) == devices_needed(plan, len(names))).all()
        return _Choice(what, own if same else plan, "", over)
    if best(empty_cluster(view)) is None:
        return _Choice(what, None, Phrase("why_not.invalid"), over)
    lacks = [
        Phrase("table.needs_in", domain=names[k], need=n, free=int(view.free_devices[k]))
        for k, n in asked.items() if n > int(view.free_devices[k])
    ]  # fmt: skip
    return _Choice(what, None, Phrase("list.together", parts=tuple(lacks)), over)


MOST_CUTS = 3
"""Other sets of domains that a model is cut over in the table, the best first."""


@dataclass(frozen=True)
class _Choice:
    """A row before anything was priced or played: the choice in words, its plan, what it lacks, and where it runs."""

    what: str
    plan: Plan | None
    missing: str = ""
    over: frozenset[int] = frozenset()


def _others(view: Decision, own: Plan | None, names: Sequence[str]) -> list[_Choice]:
    """What else could be done: elsewhere, on fewer or more devices, cut over others or elsewhere, or nothing."""
    # What stays is compared with being anywhere else.
    home = view.current_plan if own is None and view.replanning else own
    mine = frozenset() if home is None else frozenset(home.domains)
    listed: list[_Choice] = []
    small: list[int] = []
    for k, name in enumerate(names):
        if mine == {k}:
            continue
        plan = best_inside(view, k)
        if plan is not None:
            listed.append(_Choice(name, plan, "", frozenset({k})))
        elif (need := least_devices(view, k)) is not None:
            free = int(view.free_devices[k])
            listed.append(
                _Choice(
                    name, None, Phrase("table.needs", need=counted("count.devices", need), free=free), frozenset({k})
                )
            )
        else:
            small.append(k)
    if own is not None:
        devices = sum(segment.device_count for segment in own.segments)
        for least, most in ((1, devices - 1), (devices + 1, None)):
            if most == 0:
                continue
            if len(mine) == 1:
                (at,) = mine
                plan = best_inside(view, at, least=least, most=most)
            else:
                plan = best_over(view, mine, least=least, most=most)
            if plan is not None:
                listed.append(_Choice(_words(plan, names, view), plan, "", mine))
        listed += _other_caps(view, own, mine)
        elsewhere = cut_elsewhere(view, own)
        if elsewhere is not None:
            first = elsewhere.segments[0].stop
            what = Phrase("table.cut_at", plan=_words(elsewhere, names, view), layer=first)
            listed.append(_Choice(what, elsewhere, "", mine))
    across = [plan for plan in best_by_domains(view) if frozenset(plan.domains) != mine] if len(names) > 1 else []
    # Where a domain holds the model by itself, cutting is one alternative; where none does, whom to cut it over is all.
    shown = across[: MOST_CUTS if small else 1]
    listed += [_Choice(_words(plan, names, view), plan, "", frozenset(plan.domains)) for plan in shown]
    if len(small) == len(names) and own is None and not across and not view.replanning:
        listed += _lacking_together(view, names)
    if small:
        alone = Phrase("table.alone", domains=tuple(names[k] for k in small))
        if len(small) == len(names):
            alone = Phrase("table.any_alone")
        over = frozenset(small) if len(small) == 1 else frozenset()
        listed.append(_Choice(alone, None, Phrase("table.too_small"), over))
    if own is not None:
        listed.append(_Choice(_words(None, names, view), None))
    return listed


def _other_caps(view: Decision, own: Plan, mine: frozenset[int]) -> list[_Choice]:
    """The plan without its caps, and under the next lower one, where the cluster has cap levels."""
    level, levels = max(segment.cap for segment in own.segments), levels_of(view)
    listed = [_Choice(Phrase("table.no_cap"), with_cap(own, 0), "", mine)] if level else []
    if level < levels:
        watts = sorted({round(view.cost.cluster.cap_w(segment.domain, level + 1)) for segment in own.segments})
        words = Phrase("table.cap", watts="–".join(str(each) for each in watts))
        listed.append(_Choice(words, with_cap(own, level + 1), "", mine))
    return listed


def _lacking_together(view: Decision, names: Sequence[str]) -> list[_Choice]:
    """The best sets of domains for a model that no domain holds and that has no room now: what each lacks."""
    listed = []
    for plan in best_by_domains(empty_cluster(view))[:MOST_CUTS]:
        need = devices_needed(plan, len(names))
        lacks = [
            Phrase("table.needs_in", domain=names[k], need=int(need[k]), free=int(view.free_devices[k]))
            for k in np.flatnonzero(need > np.asarray(view.free_devices)).tolist()
        ]
        what, over = _words(plan, names, view), frozenset(plan.domains)
        listed.append(_Choice(what, None, Phrase("list.together", parts=tuple(lacks)), over))
    return listed


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


def _with_link(decided: Decided, ends: tuple[int, int], factor: float) -> Decisions:
    """What was seen, with the link between two domains faster or slower both ways, now and as forecast."""
    whole = {field.name: np.array(getattr(decided.seen, field.name)) for field in fields(Decisions)}
    i, j = ends
    for row in (GBPS, FORECAST):
        for here, there in ((i, j), (j, i)):
            whole["links"][0, row, here, there] *= factor
    return Decisions(**whole)


def _winning_changes(
    policy: Policy, decided: Decided, listed: Sequence[_Choice], names: Sequence[str], asked: Mapping[int, int]
) -> dict[frozenset[int], str]:
    """For sets of domains the first single change with which the policy goes there, in words; each was tried."""
    view, found = decided.view, dict[frozenset[int], str]()
    taken = devices_needed(decided.plan, len(names))
    mine = frozenset(np.flatnonzero(taken).tolist())
    wanted = {one.over for one in listed if one.over and one.over != mine}
    tries: list[dict[int, int]] = []
    for domains in wanted:
        for domain in domains if len(domains) == 1 else ():
            free, total = int(view.free_devices[domain]), int(view.cost.domains.rows.devices[domain])
            need = least_devices(view, domain) if free < total else None
            if need is not None:
                tries += [{domain: size} for size in dict.fromkeys((need, total)) if size > free]
    tries += [{int(k): int(taken[k]) - 1} for k in np.flatnonzero(taken)]
    rooms = view.cost.domains.rows.devices
    tries += [{k: n} for k, n in asked.items() if n != view.free_devices[k] and n <= rooms[k]]
    devices = np.array([asked.get(k, 0) for k in range(len(names))])

    def note(plan: Plan | None, words: Phrase) -> None:
        if plan is not None and frozenset(plan.domains) in wanted:
            found.setdefault(frozenset(plan.domains), words)
        if asked and plan is not None and (devices_needed(plan, len(names)) == devices).all():
            found.setdefault(ASKED, words)

    for free_devices in tries:
        changed, seen = with_free(decided, free_devices)
        ((where, count),) = free_devices.items()
        before = int(view.free_devices[where])
        words = Phrase("table.change", domain=names[where], before=before, after=count)
        note(redecided(policy, changed, seen)[0], words)
    if decided.plan is not None and len(mine) > 1 and wanted - found.keys():
        for first, second in pairwise(decided.plan.domains):
            now = float(decided.seen.links[0, GBPS, first, second])
            for factor in SLOWER:
                plan = redecided(policy, view, _with_link(decided, (first, second), factor))[0]
                link = f"{names[first]}–{names[second]}"
                note(plan, Phrase("table.change_link", link=link, before=number(now, 2), after=number(factor * now, 2)))
    return found


def _sentence(decided: Decided, rows: Sequence[Alternative], names: Sequence[str]) -> str:
    """The binding reason in at most 25 words: what is missing, or what the best other choice would have brought."""
    view, plan = decided.view, decided.plan
    task: str = view.kind.model.name
    if view.task is not None and view.task.id:
        task = Phrase("sentence.task", model=task, id=view.task.id)
    free = np.asarray(view.free_devices)
    others = [row for row in rows[1:] if not row.missing]
    elsewhere = [row for row in others if row.what not in (WAIT, KEEP)]
    if plan is None:
        if view.replanning:
            if len(names) == 1:
                return Phrase("sentence.keeps_one", task=task)
            return Phrase("sentence.keeps", task=task, verdict=_verdict(elsewhere))
        if elsewhere:
            best = next((row for row in elsewhere if row.domains), elsewhere[0])
            return Phrase("sentence.waits_choice", task=task, domain=best.what, verdict=_verdict(elsewhere))
        needs = [need for k in range(len(names)) if (need := least_devices(view, k)) is not None]
        if not needs:
            return Phrase("sentence.waits_span", task=task, free=counted("count.devices", int(free.sum())))
        most = int(np.argmax(free))
        least = counted("count.devices", min(needs))
        return Phrase("sentence.waits_room", task=task, need=least, free=int(free[most]), domain=names[most])
    domains = tuple(dict.fromkeys(names[k] for k in plan.domains))
    devices = sum(segment.device_count for segment in plan.segments)
    if len(domains) > 1:
        return Phrase(
            "sentence.cut", task=task, devices=devices, domains=domains, verdict=_verdict(elsewhere or others)
        )
    away = [row for row in elsewhere if row.domains != domains]
    if len(names) > 1 and not away:
        waiting = next((row.played for row in others if row.what == WAIT), None)
        if waiting is not None and waiting.start_s >= LEAST_DELAY_S:
            delay = span_words(waiting.start_s)
            return Phrase("sentence.only_delay", task=task, domain=domains[0], devices=devices, delay=delay)
        return Phrase("sentence.only", task=task, domain=domains[0], free=int(free[plan.domains[0]]), devices=devices)
    return Phrase("sentence.preferred", task=task, domain=domains[0], devices=devices, verdict=_verdict(away or others))


def _verdict(others: Sequence[Alternative]) -> Phrase:
    """The best other choice that has room, and what it would have brought."""
    if not others:
        return Phrase("sentence.nothing_else")
    played = [(row, row.played) for row in others if row.played is not None]
    if not played:
        return Phrase("sentence.unplayed", what=_doing(others[0]))
    row, found = max(played, key=lambda each: each[1].reward.mean)
    if not found.reward.certain:
        return Phrase("sentence.level", what=_doing(row))
    message = "sentence.less" if found.reward.mean < 0.0 else "sentence.more"
    return Phrase(message, what=_doing(row), reward=number(abs(found.reward.mean), 2))


def _doing(row: Alternative) -> str:
    """A row as what is done, where a sentence goes on with "would"."""
    if row.what in (WAIT, KEEP):
        return Phrase("sentence.waiting" if row.what == WAIT else "sentence.staying")
    return row.what
