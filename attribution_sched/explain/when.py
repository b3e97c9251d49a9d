"""When a waiting task starts and ends: an interval, from copies of the cluster played on under drawn futures.

Every future tells one start and one end. If the futures are drawn as the real one is, the real start is one more of
them, so that an interval between the k-th smallest and the k-th largest of F holds it with probability
1 − 2k / (F + 1). A future in which the task had not started when its copy stopped counts as later than all that was
played.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.fork import fork, slot_of, within_arrivals
from attribution_sched.errors import SettingsError, TaskError, problem
from attribution_sched.explain.digits import number
from attribution_sched.scheduler.policy import Foresight, Policy, go_on_as
from attribution_sched.types import FloatArray
from attribution_sched.words.say import Phrase

LEVEL = 0.8
"""Of the intervals, by default."""

FUTURES = 59
"""With the sixth smallest and the sixth largest of so many, an interval holds one more of them with probability 0.8."""

FEWER_FUTURES = 19
"""The same with the second of so many: for policies that are asked in every copy, far slower than the compiled rule."""

MOST_ARRIVALS, FEWER_ARRIVALS = 1000.0, 60.0
"""Copies are played no further than so many tasks are expected to come; fewer by policies that are asked."""

HORIZONS_H = (6.0, 24.0, 96.0)
"""Copies are played so far, and further only while the end of an interval lies beyond; by slow policies one less."""


@dataclass(frozen=True)
class Interval:
    """Where a time lies, as seconds on the cluster's clock; infinite is beyond what was played.

    Attributes:
        low_s: It is not earlier than this.
        middle_s: As often earlier as later.
        high_s: It is not later than this.
    """

    low_s: float
    middle_s: float
    high_s: float

    def __contains__(self, time_s: float) -> bool:
        return self.low_s <= time_s <= self.high_s


@dataclass(frozen=True)
class When:
    """When a waiting task starts and ends.

    Attributes:
        task: Its id.
        now_s: When this was asked, on the cluster's clock.
        start: When it starts.
        finish: When it ends.
        level: Of both intervals.
        futures: How many were played.
        until_s: How far.
        unstarted: Futures in which it had not started by then.
        follower: Who decided in them.
        decisions: Decisions that were followed.
        seed: Of the futures.
    """

    task: str
    now_s: float
    start: Interval
    finish: Interval
    level: float
    futures: int
    until_s: float
    unstarted: int
    follower: str
    decisions: int
    seed: int

    @property
    def sentence(self) -> Phrase:
        """It in one sentence."""
        values = {
            "task": self.task, "level": f"{100.0 * self.level:.0f}", "futures": self.futures,
            "follower": who_goes_on(self.follower), "horizon": _after(self.until_s, self.now_s),
        }  # fmt: skip
        if math.isinf(self.start.low_s):
            return Phrase("when.never", **values)
        if math.isinf(self.start.high_s):
            return Phrase("when.open", **values, low=_at(self.start.low_s - self.now_s), unstarted=self.unstarted)
        values |= {"start": self._range(self.start), "middle": _after(self.start.middle_s, self.now_s)}
        if math.isinf(self.finish.high_s):
            return Phrase("when.start", **values)
        return Phrase("when.both", **values, end=self._range(self.finish))

    def _range(self, times: Interval) -> Phrase:
        """From when to when, told once where both read the same; what is next is told as a limit."""
        low, high = _after(times.low_s, self.now_s), _after(times.high_s, self.now_s)
        if low == high:
            return _at(times.high_s - self.now_s)
        if times.low_s - self.now_s < AT_ONCE_S:
            return Phrase("when.within", time=high)
        return Phrase("when.between", low=low, high=high)

    def say(self, lang: str = "en") -> str:
        """It in a language."""
        return self.sentence.say(lang)


def when_starts(
    policy: Policy,
    view: Decision,
    *,
    futures: int | None = None,
    level: float = LEVEL,
    seed: int = 0,
    hours: float | None = None,
) -> When:
    """Say when the task of a decision starts and ends.

    Args:
        policy: Who decides; a copy of it, if it remembers.
        view: The decision about the waiting task; it must carry its moment.
        futures: How many to play; by default as many as the policy's speed allows.
        level: Of the intervals.
        seed: Of the futures.
        hours: How far to play; by default as far as it takes, at most four days.

    Raises:
        SettingsError: If there are too few futures for the level.
        TaskError: If the task is not among those that the policy looks at.
    """
    return all_start(policy, view, (view.slot,), futures=futures, level=level, seed=seed, hours=hours)[0]


def all_start(
    policy: Policy,
    view: Decision,
    slots: Sequence[int],
    *,
    futures: int | None = None,
    level: float = LEVEL,
    seed: int = 0,
    hours: float | None = None,
) -> list[When]:
    """Say when several waiting tasks start and end, all from the same futures; see :func:`when_starts`.

    Each task's answer is the one that it gets alone.

    Args:
        policy: As for :func:`when_starts`.
        view: A decision of the moment; the task it is about plays no part.
        slots: The tasks.
        futures: As for :func:`when_starts`.
        level: As for :func:`when_starts`.
        seed: As for :func:`when_starts`.
        hours: As for :func:`when_starts`.
    """
    quick = isinstance(policy, Foresight)
    futures = (FUTURES if quick else FEWER_FUTURES) if futures is None else futures
    _check(futures, level)
    moment = view.moment
    for slot in slots:
        if moment is None or slot not in moment.tasks:
            name = view.task.id if view.task is not None else str(slot)
            rule = "is held, or behind the window of tasks that the policy looks at, which futures do not play"
            raise TaskError(
                problem("task", name, rule, "Ask when it is among the first; System.why says how many are before")
            )
    if moment is None or not slots:
        return []
    follower, beliefs = go_on_as(policy, view)
    told: dict[int, When] = {}
    open_still = list(slots)
    horizons_h = HORIZONS_H[: None if quick else -1] if hours is None else (hours,)
    for horizon_h in horizons_h:
        if hours is None:
            horizon_h = within_arrivals(moment, horizon_h, MOST_ARRIVALS if quick else FEWER_ARRIVALS)
        found = fork(moment, (), futures, horizon_h, follower, seed, beliefs=beliefs)
        for slot in open_still:
            at = found.tasks.index(slot_of(moment, slot))
            start, finish = found.ledger[0, :, at, 0], found.ledger[0, :, at, 1]
            told[slot] = When(
                moment.tasks[slot].id or str(slot), moment.now_s, interval(start, level), interval(finish, level),
                level, futures, found.until_s, int(np.isnan(start).sum()), getattr(follower, "name", policy.name),
                found.decisions, seed,
            )  # fmt: skip
        open_still = [slot for slot in open_still if not math.isfinite(told[slot].finish.high_s)]
        cut_short = hours is None and horizon_h not in horizons_h
        if not open_still or found.until_s >= moment.ends_s or cut_short:
            break
    return [told[slot] for slot in slots]


def interval(times_s: FloatArray, level: float) -> Interval:
    """The interval that holds one more draw of the same kind with this probability; NaN is later than all."""
    ordered = np.sort(np.where(np.isnan(times_s), math.inf, times_s))
    tail = (1.0 - level) / 2.0
    return Interval(*(_between(ordered, share) for share in (tail, 0.5, 1.0 - tail)))


def _between(ordered: FloatArray, share: float) -> float:
    """What one more draw is below with this probability: place ``share·(F + 1)``, between its two neighbours."""
    place = share * (len(ordered) + 1) - 1.0
    below = int(np.clip(math.floor(place + 1e-9), 0, len(ordered) - 1))
    part = min(1.0, max(0.0, place - below))
    if part < 1e-9 or below + 1 >= len(ordered):
        return float(ordered[below])
    low, high = float(ordered[below]), float(ordered[below + 1])
    return high if math.isinf(high) else low + part * (high - low)


def _check(futures: int, level: float) -> None:
    if not 0.0 < level < 1.0:
        raise SettingsError(problem("level", level, "must lie between 0 and 1", f"Use {LEVEL}"))
    least = math.ceil(2.0 / (1.0 - level) - 1e-9) - 1
    if isinstance(futures, bool) or not isinstance(futures, int) or futures < least:
        rule = f"must be an integer >= {least} for an interval of {100 * level:g} %"
        raise SettingsError(problem("futures", futures, rule, f"Use {max(FUTURES, least)}"))


def _after(time_s: float, now_s: float) -> Phrase:
    """A time from now, in the largest unit that counts."""
    return span_words(max(0.0, time_s - now_s))


def _at(seconds: float) -> Phrase:
    """A time from now at which something happens."""
    return Phrase("when.at_once") if seconds < AT_ONCE_S else Phrase("when.at", time=span_words(seconds))


def who_goes_on(follower: str) -> Phrase:
    """Who decides in copies, in words: Hi-PPO's compiled agents are not all of Hi-PPO."""
    return Phrase("follower.agents") if follower == "hi-ppo" else Phrase("follower.policy", name=follower)


AT_ONCE_S = 60.0
"""A shorter time is told as no time: the next event of a future is not known to the second."""


def span_words(seconds: float) -> Phrase:
    """A span of time in the largest unit that counts."""
    if seconds < AT_ONCE_S:
        return Phrase("when.now")
    unit, length_s = ("hour", 3600.0) if seconds >= 1.5 * 3600.0 else ("minute", 60.0)
    return Phrase("when.span", value=number(seconds / length_s, 2), unit=Phrase("time_unit", variant=unit))
