"""What if: one thing changed in copies of the cluster, all played on under the same futures, told in absolute units.

    Δ = what happens in the changed copy − what happens in the unchanged one, future by future

Both copies of a future meet the same arrivals, links, failures and demands, so what is common to them cancels. With
nothing changed every difference is zero, to the bit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision, Moment
from attribution_sched.cluster.fork import (
    Add,
    Change,
    Devices,
    Follow,
    Fork,
    Link,
    Lose,
    Price,
    Remove,
    fork,
    within_arrivals,
)
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.explain.digits import number
from attribution_sched.explain.when import AT_ONCE_S, span_words, who_goes_on
from attribution_sched.scheduler.policy import Foresight, Policy, go_on_as, twin
from attribution_sched.stats.interval import mean_interval
from attribution_sched.types import FloatArray, Task
from attribution_sched.words.say import Phrase, say

FUTURES, HOURS = 32, 24.0
MOST_ARRIVALS, FEWER_ARRIVALS = 1000.0, 30.0
"""No further than so many tasks are expected to come; fewer where a policy has to be asked in every copy."""

LEAST_SHARE = 0.01
"""A wait, or a time to the end, that changes by less than this part of itself stands in the table only."""

REWARD = "reward"
QUANTITIES: tuple[tuple[str, str], ...] = (
    ("wait", "h"), ("completion", "h"), ("finished", ""), ("energy", "kWh"), ("bill", "USD"), ("carbon", "kg"),
    (REWARD, ""), ("r_eff", ""), ("r_util", ""), ("r_cost", ""),
)  # fmt: skip
"""Told, with units: mean wait and time to the end per task, tasks finished, energy, traffic bill, carbon, R."""


@dataclass(frozen=True)
class Effect:
    """One quantity with and without the change, means over futures.

    Attributes:
        quantity: Name, one of :data:`QUANTITIES`.
        unit: Its unit.
        without: Unchanged.
        changed: With the change.
        delta: Difference, paired by future.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    quantity: str
    unit: str
    without: float
    changed: float
    delta: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0.0 or self.high < 0.0

    @property
    def trifling(self) -> bool:
        """Whether it is a time that changes too little to be said."""
        return self.unit == "h" and abs(self.delta) < LEAST_SHARE * max(abs(self.without), abs(self.changed))


@dataclass(frozen=True)
class Shift:
    """What the change does to one task that is here now.

    Attributes:
        task: Its id.
        start_s: Mean seconds by which it starts later; negative is earlier. What had not started counts to the horizon.
        finish_s: The same of its end.
        share: Share of futures in which its start or end differs at all.
    """

    task: str
    start_s: float
    finish_s: float
    share: float

    @property
    def words(self) -> Phrase:
        """It in words."""
        spans = (("what_if.shift.start", self.start_s), ("what_if.shift.end", self.finish_s))
        parts = tuple(
            Phrase(message, variant="later" if by_s > 0.0 else "sooner", span=span_words(abs(by_s)))
            for message, by_s in spans
            if abs(by_s) >= AT_ONCE_S
        )
        parts = parts or (Phrase("what_if.shift.even"),)
        return Phrase("what_if.shift", task=self.task, parts=parts, share=f"{100.0 * self.share:.0f} %")


@dataclass(frozen=True)
class WhatIf:
    """What a change would do.

    Attributes:
        change: It in words.
        effects: In absolute units, in the order of :data:`QUANTITIES`.
        shifts: Tasks present whose course differs, those moved most first.
        futures: How many were played.
        hours: How far.
        follower: Who decided in them.
        decisions: Decisions that were followed.
        seed: Of the futures.
        repriced: Whether R is counted at other prices with the change, so that its difference is not what it does.
        same: Whether everything in the changed copies is as in the unchanged ones, to the bit.
    """

    change: Phrase
    effects: tuple[Effect, ...]
    shifts: tuple[Shift, ...]
    futures: int
    hours: float
    follower: str
    decisions: int
    seed: int
    repriced: bool = False
    same: bool = False

    def __getitem__(self, quantity: str) -> Effect:
        for effect in self.effects:
            if effect.quantity == quantity:
                return effect
        names = [name for name, _ in QUANTITIES]
        raise SettingsError(problem("quantity", quantity, "is not told", nearest(quantity, names)))

    def say(self, lang: str = "en") -> str:
        """It in one sentence: what is certain, in absolute units; or that nothing is; R where it can be compared."""
        untold = (REWARD,) if self.repriced else ()
        certain = [
            effect
            for effect in self.effects
            if effect.certain and not (effect.quantity.startswith("r_") or effect.quantity in untold or effect.trifling)
        ]
        values = {
            "change": self.change, "futures": self.futures, "hours": number(self.hours, 2),
            "follower": who_goes_on(self.follower),
        }  # fmt: skip
        more = say("what_if.repriced", lang) if self.repriced else ""
        if self.same and not self.repriced:
            return say("what_if.same", lang, decisions=self.decisions, **values)
        if not certain:
            return say("what_if.uncertain", lang, **values) + more
        parts = tuple(
            Phrase(
                "what_if.part",
                quantity=Phrase("what_if.quantity", variant=each.quantity),
                delta=number(each.delta, 2, signed=True),
                unit=f" {each.unit}" if each.unit else "",
                low=number(each.low, 2, signed=True),
                high=number(each.high, 2, signed=True),
            )
            for each in certain[:4]
        )
        return say("what_if", lang, parts=parts, **values) + more

    def say_shifts(self, lang: str = "en", most: int = 5) -> str:
        """Which of the tasks that are here now start or end otherwise, those moved most first; empty if none does."""
        if not self.shifts:
            return ""
        parts = tuple(shift.words for shift in self.shifts[:most])
        more = len(self.shifts) - len(parts)
        return say("what_if.shifts_more" if more else "what_if.shifts", lang, parts=parts, more=more)


def what_if(
    policy: Policy,
    view: Decision,
    changes: Sequence[tuple[Phrase, Change]],
    *,
    futures: int = FUTURES,
    hours: float | None = None,
    seed: int = 0,
) -> list[WhatIf]:
    """Play changes against no change, each by itself.

    Args:
        policy: Who decides; a copy of it, if it remembers.
        view: Any decision of the moment; it must carry it.
        changes: In words and as the fork takes them.
        futures: How many to play; at least two.
        hours: How far; by default a day, or less where many tasks come or the policy has to be asked in every copy.
        seed: Of the futures.

    Raises:
        SettingsError: If there are too few futures, or a change does not go with the cluster.
    """
    if isinstance(futures, bool) or not isinstance(futures, int) or futures < 2:
        raise SettingsError(problem("futures", futures, "must be an integer >= 2", f"Use {FUTURES}"))
    moment = _moment(view)
    follower, beliefs = go_on_as(policy, view)
    if hours is None:
        asked = not isinstance(policy, Foresight) or any(isinstance(change, Follow) for _, change in changes)
        hours = within_arrivals(moment, HOURS, FEWER_ARRIVALS if asked else MOST_ARRIVALS)
    # Nothing changed is played too, in copies of its own.
    changes = changes or [(Phrase("what_if.unchanged"), Follow(follower))]
    found = fork(moment, [change for _, change in changes], futures, hours, follower, seed, beliefs=beliefs)
    name = getattr(follower, "name", policy.name)
    whose = [getattr(made.follower, "name", name) if isinstance(made, Follow) else name for _, made in changes]
    told = [_told(found, at, words, whose[at - 1]) for at, (words, _) in enumerate(changes, start=1)]
    return [replace(each, repriced=isinstance(made, Price)) for each, (_, made) in zip(told, changes, strict=True)]


def _told(found: Fork, copy: int, words: Phrase, follower: str) -> WhatIf:
    columns = _columns(found)
    effects = []
    for name, unit in QUANTITIES:
        values = columns[name]
        apart = values[copy] - values[0]
        by = mean_interval(apart)
        effects.append(
            Effect(name, unit, float(values[0].mean()), float(values[copy].mean()), by.mean, by.low, by.high)
        )
    return WhatIf(
        words, tuple(effects), _shifts(found, copy), found.totals.shape[1], (found.until_s - found.began_s) / 3600.0,
        follower, found.decisions, found.seed, same=_same(found, copy),
    )  # fmt: skip


def _same(found: Fork, copy: int) -> bool:
    """Whether a copy is as the unchanged one in every number that is kept of it."""
    kept = (found.ledger, found.totals, found.ends, found.waited_s, found.stayed_s, found.finished, found.met)
    return all(np.array_equal(each[copy], each[0], equal_nan=True) for each in kept)


def _columns(found: Fork) -> dict[str, FloatArray]:
    """Every quantity per copy and future, shape ``(C + 1, F)``."""
    met = np.maximum(1, found.met)
    terms = found.totals[..., 2:5] + found.ends
    return {
        "wait": found.waited_s / met / 3600.0,
        "completion": found.stayed_s / met / 3600.0,
        "finished": found.finished.astype(np.float64),
        "energy": found.totals[..., 5] / 3.6e6,
        "bill": found.totals[..., 6],
        "carbon": found.totals[..., 7] / 1e3,
        "reward": found.returns,
        "r_eff": terms[..., 0],
        "r_util": terms[..., 1],
        "r_cost": terms[..., 2],
    }


def _shifts(found: Fork, copy: int) -> tuple[Shift, ...]:
    start, finish = found.of("start_s"), found.of("finish_s")
    moved = (start[copy] != start[0]) | (finish[copy] != finish[0])
    shifts = [
        Shift(name, float((start[copy] - start[0])[:, t].mean()), float((finish[copy] - finish[0])[:, t].mean()), share)
        for t, name in enumerate(found.names)
        if found.tasks[t] >= 0 and (share := float(moved[:, t].mean())) > 0.0
    ]
    return tuple(sorted(shifts, key=lambda each: -abs(each.finish_s)))


# Changes in the words of a person ------------------------------------------------------------------------------------


CHANGES = ("link", "add", "drop", "without", "policy", "carbon-price", "energy-price")


def read_change(text: str) -> dict[str, Any]:
    """A change in one line, as the command line has its options: ``drop munich``, ``link a-b x2``, ``policy sjf``.

    Returns:
        It as :meth:`attribution_sched.system.system.System.what_if` takes it.

    Raises:
        SettingsError: If it is none.
    """
    name, *rest = text.split() or [""]
    wanted = 2 if name == "link" else 1
    if name not in CHANGES or len(rest) != wanted:
        rule = f"must be one of {', '.join(CHANGES)}, and what of it"
        raise SettingsError(
            problem("change", text, rule, "Write drop DOMAIN, add 8@DOMAIN, link A-B x2, or policy sjf")
        )
    if name == "link":
        return {"link": (rest[0], rest[1])}
    if not name.endswith("-price"):
        return {name: rest[0]}
    try:
        return {name.replace("-", "_"): float(rest[0])}
    except ValueError:
        raise SettingsError(problem(name, rest[0], "must be a number", "Use 50")) from None


def link_and_factor(given: Any) -> tuple[str, str | float]:
    """What was given for a link, if it is one: ``("a-b", "x2")``.

    Raises:
        SettingsError: If it is something else.
    """
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str):
        return given[0], given[1]
    raise SettingsError(problem("link", given, "must be two domains and a factor", 'Write ("a-b", "x2")'))


def link(view: Decision, ends: str, factor: str | float) -> tuple[Phrase, Change]:
    """``a-b`` and ``x2``: the link between two domains carries another bandwidth."""
    names = _domains(view)
    pairs = [(a, b) for a in names for b in names if a != b and ends == f"{a}-{b}"]
    if len(names) < 2:
        rule = "this cluster has one domain, so that there are no links"
        raise SettingsError(problem("link", ends, rule, f"Ask about {names[0]} with add or drop"))
    if len(pairs) != 1:
        listed = [f"{a}-{b}" for at, a in enumerate(names) for b in names[at + 1 :]]
        raise SettingsError(problem("link", ends, "must name two domains with a dash between", nearest(ends, listed)))
    text = str(factor).strip().lower().lstrip("x×")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        raise SettingsError(problem("link factor", factor, "must be x and a number > 0", "Write x2, or x0.5"))
    a, b = pairs[0]
    words = Phrase("what_if.change.link", link=ends, factor=number(value))
    return words, Link(names.index(a), names.index(b), value)


def devices(view: Decision, what: str) -> tuple[Phrase, Change]:
    """``8xH100@munich`` or ``8@munich``: a domain has more devices of its own type; ``-8@munich`` fewer."""
    found = re.fullmatch(r"\s*([+-]?\d{1,6})(?:[x×]([^@]+))?@(.+?)\s*", what) if isinstance(what, str) else None
    if found is None:
        raise SettingsError(
            problem("devices", what, "is not COUNT[xTYPE]@DOMAIN", "Write 8xA100-80GB@DOMAIN, or 8@DOMAIN")
        )
    count, kind, name = int(found[1]), found[2], found[3]
    index = _index(view, name)
    domain = view.cost.cluster.domains[index]
    if kind is not None and kind.lower() != domain.gpu.name.lower():
        rule = f"must be the type that {name} has, {domain.gpu.name}: a domain has one"
        fix = f"Write {count}x{domain.gpu.name}@{name}, or add a domain to the preset and compare two runs"
        raise SettingsError(problem("devices", what, rule, fix))
    if count == 0:
        raise SettingsError(problem("devices", what, "changes nothing", "Write how many more, or fewer"))
    values = {"count": f"{count:+d}".replace("-", "−"), "gpu": domain.gpu.name, "domain": name}
    words = Phrase("what_if.change.devices", **values)
    if domain.power_budget_w is not None and count > 0:
        # More devices that share the same power may do less.
        words = Phrase("what_if.change.devices_budget", watts=number(domain.power_budget_w), **values)
    return words, Devices(index, count)


def lose(view: Decision, domain: str) -> tuple[Phrase, Change]:
    """A domain is gone."""
    return Phrase("what_if.change.lose", domain=domain), Lose(_index(view, domain))


def price(*, carbon_usd_per_kg: float | None = None, energy_usd_per_kwh: float | None = None) -> tuple[Phrase, Change]:
    """Another price of carbon or of energy inside R_cost, in the units of a preset's ``reward``."""
    name, value = ("carbon", carbon_usd_per_kg) if energy_usd_per_kwh is None else ("energy", energy_usd_per_kwh)
    if value is None or not (math.isfinite(value) and value >= 0.0):
        raise SettingsError(problem(f"{name} price", value, "must be finite and >= 0", "Use 0.1"))
    message = "what_if.change.carbon" if name == "carbon" else "what_if.change.energy"
    words = Phrase(message, price=number(value))
    return words, Price(energy_usd_per_kwh=energy_usd_per_kwh, carbon_usd_per_kg=carbon_usd_per_kg)


def other_policy(view: Decision, policy: Policy, own: Policy) -> tuple[Phrase, Change]:
    """Another policy decides, in place of the one that does."""
    follower, _ = go_on_as(twin(policy), view)
    before = getattr(go_on_as(own, view)[0], "name", own.name)
    return Phrase("what_if.change.policy", policy=policy.name, own=who_goes_on(before)), Follow(follower)


def one_more(task: Task) -> tuple[Phrase, Change]:
    """One more task is handed in."""
    return Phrase("what_if.change.task", task=task.id or task.model), Add(task)


def without(task: str) -> tuple[Phrase, Change]:
    """A task is not there."""
    return Phrase("what_if.change.without", task=task), Remove(task)


def _domains(view: Decision) -> list[str]:
    return [domain.name for domain in view.cost.cluster.domains]


def _index(view: Decision, name: str) -> int:
    names = _domains(view)
    if name not in names:
        raise SettingsError(problem("domain", name, "does not exist", nearest(name, names)))
    return names.index(name)


def _moment(view: Decision) -> Moment:
    if view.moment is None:
        fix = "Take decisions from a cluster"
        raise SettingsError(problem("decision.moment", None, "is needed to play copies on", fix))
    return view.moment
