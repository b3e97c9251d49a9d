"""Which earlier decisions made a task late, or a day expensive: each replaced by its runner-up, the day played again.

    blame(d) = E[start of the task | as decided] − E[start | the runner-up instead],   the same futures for both

At every earlier decision the cluster is copied; in one copy what was decided is done, in the others what else fitted:
elsewhere, on half the devices, cut over domains, or the task left waiting so that others may go. The *runner-up* is the
other choice of highest R. Who comes, and when, is as recorded: the day is over. How fast tasks run and links move is
drawn from what was known at the decision, so that a number has an interval, and nobody is blamed for what only
hindsight tells. Decisions after the replaced one are the policy's own.

Each decision is replaced by itself: effects of several together are not in the numbers. What they leave of the wait is
told beside them: with all of these decisions as their runners-up the task would, as far as they add up, still wait so
long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.cost import JOULES_PER_KWH
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.fork import Choose, fork
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.reward import total_of
from attribution_sched.errors import SettingsError, problem
from attribution_sched.explain.digits import number
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.room import best_across, best_inside
from attribution_sched.scheduler.policy import Policy, go_on_as
from attribution_sched.stats.interval import MeanInterval, mean_interval
from attribution_sched.types import Task
from attribution_sched.words.say import Phrase, in_language, say

FUTURES = 16
"""Futures of every decision."""

LEAST_H, MOST_H, AFTER_H = 1.0, 48.0, 6.0
"""How far copies are played: to the task's start and some hours beyond it, within these limits."""

LEAST = 1e-9
"""Smaller effects are rounding."""


@dataclass(frozen=True)
class Blamed:
    """One earlier decision against its runner-up; positive where the decision was the worse of the two.

    Attributes:
        decision: Its id.
        task: The task it was about.
        time_s: When, on the cluster's clock.
        what: What was decided, in words.
        instead: The runner-up, in words.
        hours: By how much later the task asked about starts; None where the whole day is asked about.
        reward: R of all tasks that the runner-up would have brought beyond the decision.
        kwh: Energy that the decision took beyond the runner-up's.
        usd: Traffic bill that it ran up beyond the runner-up's.
        runner_up: The runner-up itself; None waits, or keeps.
    """

    decision: str
    task: str
    time_s: float
    what: str
    instead: str
    hours: MeanInterval | None
    reward: MeanInterval
    kwh: MeanInterval
    usd: MeanInterval
    runner_up: Plan | None = None

    @property
    def span(self) -> MeanInterval:
        """The number that was asked for."""
        return self.reward if self.hours is None else self.hours

    def say(self, lang: str = "en") -> str:
        """It in words."""
        span, unit = self.span, "blame.reward" if self.hours is None else "blame.hours"
        half = (span.high - span.low) / 2.0
        what, instead = in_language(self.what, lang), in_language(self.instead, lang)
        amount = say(unit, lang, value=number(span.mean, 2, signed=True), half=number(half, 2))
        return say("blame.entry", lang, decision=self.decision, task=self.task, what=what, instead=instead, by=amount)


@dataclass(frozen=True)
class Blame:
    """Earlier decisions by what they did to a task's start, or to a day's R.

    Attributes:
        task: The task; empty where the day was asked about.
        waited_h: How long it waited, or has waited so far; 0 for a day.
        started: Whether it has started.
        entries: The decisions, the worst first.
        single: Decisions at which nothing else fitted.
        left_out: Earlier decisions that were not looked at, the oldest.
        futures: How many were played at each.
    """

    task: str
    waited_h: float
    started: bool
    entries: tuple[Blamed, ...]
    single: int
    left_out: int
    futures: int

    @property
    def total(self) -> float:
        """All entries together: hours of a task's wait, or R of a day."""
        return sum(entry.span.mean for entry in self.entries)

    @property
    def left_h(self) -> float:
        """What of a wait no single decision accounts for; below 0 where they overlap."""
        return self.waited_h - self.total if self.task else 0.0

    @property
    def certain(self) -> tuple[Blamed, ...]:
        """Entries whose interval is above 0."""
        return tuple(entry for entry in self.entries if entry.span.low > LEAST)

    def say(self, lang: str = "en", most: int = 5) -> str:
        """The whole in words: one line a decision, then what they add up to and what is left."""
        counts = {"count": len(self.entries), "single": self.single, "left_out": self.left_out}
        head = "blame.head" if self.task else "blame.day"
        lines = [say(head, lang, task=self.task, waited=number(self.waited_h, 2), **counts)]
        lines += [entry.say(lang) for entry in self.certain[:most]] or [say("blame.nobody", lang)]
        if self.task:
            numbers = {"total": number(self.total, 2, signed=True), "left": number(self.left_h, 2, signed=True)}
            lines.append(say("blame.left", lang, **numbers))
        else:
            lines.append(say("blame.sum", lang, total=number(self.total, 2, signed=True)))
        return "\n".join(lines)


def _words(plan: Plan | None, view: Decision) -> str:
    if plan is None:
        return Phrase("plan.keep" if view.replanning else "plan.wait")
    names = [domain.name for domain in view.cost.cluster.domains]
    return Phrase("list.segments", parts=tuple(f"{names[s.domain]} ×{s.device_count}" for s in plan.segments))


def other_choices(view: Decision, own: Plan | None) -> list[Plan | None]:
    """What else fits: the best plan of each other domain, on half the devices, cut over domains, or nothing."""
    mine = frozenset() if own is None else frozenset(own.domains)
    free = np.flatnonzero(np.asarray(view.free_devices) > 0).tolist()
    found: list[Plan | None] = [best_inside(view, k) for k in free if mine != {k}]
    if own is not None:
        devices = sum(segment.device_count for segment in own.segments)
        if len(mine) == 1 and devices > 1:
            found.append(best_inside(view, next(iter(mine)), most=devices // 2))
    if view.max_segments > 1 and len(mine) != 1:
        found.append(best_across(view))
    plans: list[Plan | None] = [plan for plan in found if plan is not None and plan != own]
    return plans if own is None else [*plans, None]


def blame_of(
    policy: Policy, decided: Decided, asked: str, coming: Sequence[Task], hours: float, *, futures: int, seed: int
) -> Blamed | None:
    """One decision against its runner-up; None where nothing else fitted.

    Args:
        policy: Who decided, and goes on deciding.
        decided: The decision.
        asked: Id of the task whose start counts; empty for R.
        coming: Tasks that came after it.
        hours: How far to play.
        futures: How many to play.
        seed: Of the futures.
    """
    view, own = decided.view, decided.plan
    moment = view.moment
    others = other_choices(view, own)
    if not others or moment is None or view.slot not in moment.tasks:
        return None
    follower, beliefs = go_on_as(policy, view, quick=True)
    here = {task.id for task in moment.tasks.values()}
    later = [task for task in coming if task.id not in here and task.arrived_s >= moment.now_s]
    changes = [Choose(view.slot, plan) for plan in (own, *others)]
    found = fork(moment, changes, futures, hours, follower, seed, beliefs=beliefs, coming=later)
    able = [copy for copy in range(2, len(changes) + 1) if found.codes[copy].min() >= 0]
    if found.codes[1].min() < 0 or not able:
        return None
    weights = np.array([view.reward.w_eff, view.reward.w_util, view.reward.w_cost])
    worth = total_of(found.totals[..., 2:5] + found.ends, weights)
    best = max(able, key=lambda copy: float(worth[copy].mean()))

    start: MeanInterval | None = None
    if asked:
        if asked not in found.names:
            return None
        starts = found.of("start_s")[..., found.names.index(asked)]
        start = mean_interval((starts[1] - starts[best]) / 3600.0)
    return Blamed(
        decision=decided.id,
        task=moment.tasks[view.slot].id,
        time_s=view.time_s,
        what=_words(own, view),
        instead=_words(others[best - 2], view),
        hours=start,
        reward=mean_interval(worth[best] - worth[1]),
        kwh=mean_interval((found.totals[1, :, 5] - found.totals[best, :, 5]) / JOULES_PER_KWH),
        usd=mean_interval(found.totals[1, :, 6] - found.totals[best, :, 6]),
        runner_up=others[best - 2],
    )


def check(hours: float, most: int, futures: int) -> None:
    """Refuse numbers that nothing can be asked with.

    Raises:
        SettingsError: If one is.
    """
    if not (np.isfinite(hours) and hours > 0.0):
        raise SettingsError(problem("hours", hours, "must be finite and > 0", "Use hours=12"))
    for name, value, least, usual in (("most", most, 1, 40), ("futures", futures, 2, FUTURES)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SettingsError(problem(name, value, f"must be a whole number >= {least}", f"Use {name}={usual}"))


def within(hours: float) -> float:
    """Hours to play, within limits."""
    return max(LEAST_H, min(MOST_H, hours))


def shown(entries: Sequence[Blamed]) -> tuple[Blamed, ...]:
    """The worst first; those that differ in nothing left out."""
    moved = [each for each in entries if abs(each.span.mean) > LEAST]
    return tuple(sorted(moved, key=lambda each: -each.span.mean))
