"""Thinking before acting: the leading choices of a policy, compared by the fork of the very cluster.

    π'(a|s) ∝ exp(logit(a) + β·q̂(a)),   q̂ = 0 where nothing was thought

q̂ is what a choice was worth over the policy's own in paired futures. The best of a dozen noisy numbers is better than
it deserves, so futures are spent in two parts: all choices meet a few, and the best of them meet others, fresh ones, by
which alone they are judged. What is left of the luck of winning is shrunk away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.decision_batch import Decisions
from attribution_sched.cluster.fork import Choose, Fork, Wait, fork
from attribution_sched.cluster.futures import Beliefs
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.reward import total_of
from attribution_sched.cluster.world import World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.hi_ppo.candidates import OWN, TRIED, Actor, Deviating, distinct
from attribution_sched.scheduler.hi_ppo.walk import Planner, walk
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.types import Attributor, FloatArray, Task


@dataclass(frozen=True)
class Think:
    """How much thinking a decision gets, in copies and futures; never in seconds.

    Attributes:
        screen: Futures that every choice meets at first.
        keep: Choices beside the own one that go on.
        confirm: Fresh futures that these meet, and are judged by.
        hours: How far copies are played.
        least: A choice replaces the policy's own only if it is better by so many standard errors.
        changes: Most other choices that are tried.
        end_value: How much of what unfinished tasks can expect beyond the horizon counts.
    """

    screen: int = 6
    keep: int = 3
    confirm: int = 16
    hours: float = 6.0
    least: float = 1.0
    changes: int = 11
    end_value: float = 1.0

    def __post_init__(self) -> None:
        for name in ("screen", "keep", "changes"):
            if getattr(self, name) < 1:
                raise SettingsError(problem(f"think.{name}", getattr(self, name), "must be >= 1", "Use Think()"))
        if self.confirm < 2:
            raise SettingsError(problem("think.confirm", self.confirm, "must be >= 2", "Use 16"))
        if not (self.hours > 0.0 and self.least >= 0.0):
            given = (self.hours, self.least)
            raise SettingsError(problem("think", given, "hours must be > 0 and least >= 0", "Use Think()"))


@dataclass(frozen=True, eq=False)
class Thought:
    """What came of thinking about one decision; choice 0 is the policy's own.

    Attributes:
        slots: The task of each choice.
        plans: Its plan; None waits, or keeps a running task as it is.
        gain: R over the own choice, mean over the futures it met, shape ``(n,)``.
        error: Standard error of that, shape ``(n,)``.
        shrunk: The gain that is to be expected, shape ``(n,)``.
        met: Futures each choice met, shape ``(n,)``.
        chosen: Which one acts.
        decisions: Decisions that were followed.
    """

    slots: tuple[int, ...]
    plans: tuple[Plan | None, ...]
    gain: FloatArray
    error: FloatArray
    shrunk: FloatArray
    met: FloatArray
    chosen: int
    decisions: int


class Thinker:
    """Compares choices in copies of the decision's own cluster; tables and beliefs are made once per cluster.

    Args:
        think: How much.
        attributor: Counters → attributions, as the decisions' own vectors are in.
        reads: Names of the senses beliefs may use, of ``attributions`` and ``pace``.
    """

    def __init__(
        self, think: Think, attributor: Attributor, *, reads: tuple[str, ...] = ("attributions", "pace")
    ) -> None:
        self.think, self.attributor, self.reads = think, attributor, reads
        self._followers: WeakKeyDictionary[Planner, RuleFollower] = WeakKeyDictionary()
        self._beliefs: list[tuple[World, Beliefs]] = []

    def candidates(
        self, actor: Actor, planner: Planner, decisions: Decisions, slot: int, plan: Plan | None
    ) -> list[tuple[int, Plan | None]]:
        """Task and plan of the own choice, then of single changes of what the actor would do; none twice."""
        many = min(len(TRIED), self.think.changes + 1)
        change = TRIED[:many]
        rows = np.zeros(many, dtype=np.int64)
        # Which of the others a change takes: fixed, so that the same decision always offers the same.
        pick: FloatArray = (0.5 + np.arange(many, dtype=np.float64) * 0.618) % 1.0
        tried = Deviating(actor, change, pick)
        found = walk(planner, decisions.take(rows), tried)
        kept = distinct(found, (change == OWN) | tried.made, many)
        listed: list[tuple[int, Plan | None]] = [(slot, plan)]
        own = int(decisions.slot[0, 0])
        for r in np.flatnonzero(kept).tolist():
            task = int(found.trace.task[r])
            nothing = task == decisions.kind.shape[1]
            one = (own, None) if nothing else (int(decisions.slot[0, task]), found.batch.plan(r))
            if one not in listed and not (one[1] is None and plan is None):
                listed.append(one)
        return listed

    def compare(
        self, view: Decision, planner: Planner, listed: Sequence[tuple[int, Plan | None]], seed: int
    ) -> Thought:
        """Say what each of some choices is worth over the first one.

        Args:
            view: The decision; it must carry its moment.
            planner: Tables of its cluster.
            listed: Slot and plan of each choice, the policy's own first.
            seed: Of the futures.
        """
        n, think = len(listed), self.think
        weights = np.array([view.reward.w_eff, view.reward.w_util, view.reward.w_cost])
        paired = [np.zeros(0)] * n
        alive, followed, first = list(range(n)), 0, 0
        for futures in (think.screen, think.confirm):
            found = self._fork(view, planner, [listed[i] for i in alive], futures, seed, first)
            followed, first = followed + found.decisions, first + futures
            worth = total_of(found.totals[..., 2:5] + think.end_value * found.ends, weights)[1:]
            refused = found.codes[1:].min(axis=1) < 0
            for at, i in enumerate(alive):
                # Judged by the last futures only: those it was picked by have flattered it.
                paired[i] = np.where(refused[at], -np.inf, worth[at] - worth[0])
            best = sorted(alive[1:], key=lambda i: -float(paired[i].mean()))[: think.keep]
            # The own choice stays: the others are measured by it.
            alive = [0, *sorted(i for i in best if paired[i].mean() > 0.0)]
            if len(alive) == 1:
                break
        return _judge(listed, paired, alive, think.least, followed)

    def _fork(
        self, view: Decision, planner: Planner, listed: Sequence[tuple[int, Plan | None]], futures: int, seed: int,
        first: int,
    ) -> Fork:  # fmt: skip
        moment = view.moment
        if moment is None:
            fix = "Take decisions from a cluster, or decide without thinking"
            raise SettingsError(problem("decision.moment", None, "is needed to play copies on", fix))
        changes = [Choose(slot, plan) if plan is not None or view.replanning else Wait() for slot, plan in listed]
        known = {task.slot: task for task in view.queue}
        if view.task is not None:
            known[view.slot] = _with_attribution(view)
        return fork(
            moment, changes, futures, self.think.hours, self.follower(planner, moment.world), seed,
            beliefs=self.beliefs(moment.world, planner), tasks=known, first=first,
        )  # fmt: skip

    def follower(self, planner: Planner, world: World) -> RuleFollower:
        """The compiled rule of a cluster."""
        if planner not in self._followers:
            self._followers[planner] = RuleFollower(planner, world)
        return self._followers[planner]

    def beliefs(self, world: World, planner: Planner) -> Beliefs:
        """What is believed of the tasks of a world."""
        for known, beliefs in self._beliefs:
            if known is world or (known.kinds == world.kinds and known.idiosyncrasy == world.idiosyncrasy):
                return beliefs
        made = AttributionBeliefs(
            world, self.attributor, planner.paces, pace="pace" in self.reads, attributions="attributions" in self.reads
        )
        self._beliefs = [(world, made), *self._beliefs[:3]]
        return made


def decision_seed(view: Decision, seed: int = 0) -> int:
    """A seed of the decision's own: the same moment is thought about in the same futures, whatever came before."""
    key = repr((seed, view.time_s, view.slot, [(task.slot, task.number) for task in view.queue])).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest(), "big")


def _with_attribution(view: Decision) -> Task:
    task = view.task
    assert task is not None
    if task.attribution is view.attribution:
        return task
    same = object.__new__(Task)
    same.__dict__.update(task.__dict__)
    same.__dict__.update(attribution=view.attribution)
    return same


def _judge(
    listed: Sequence[tuple[int, Plan | None]],
    paired: Sequence[FloatArray],
    able: Sequence[int],
    least: float,
    followed: int,
) -> Thought:
    """Shrink gains by how noisy they are, and keep the own choice unless another is clearly better."""
    n = len(listed)
    gain = np.array([values.mean() for values in paired])
    error, shrunk = np.zeros(n), np.zeros(n)
    for i in range(1, n):
        if len(paired[i]) > 1 and np.isfinite(gain[i]):
            error[i] = paired[i].std(ddof=1) / np.sqrt(len(paired[i]))
            # James and Stein: of a gain whose square is hardly above its noise, little is to be expected again.
            shrunk[i] = gain[i] * max(0.0, 1.0 - error[i] ** 2 / gain[i] ** 2) if gain[i] != 0.0 else 0.0
    wins = [i for i in able if i > 0 and np.isfinite(gain[i]) and gain[i] > least * error[i] and shrunk[i] > 0.0]
    chosen = max(wins, key=lambda i: float(shrunk[i]), default=0)
    met = np.array([len(values) for values in paired])
    slots, plans = tuple(slot for slot, _ in listed), tuple(plan for _, plan in listed)
    return Thought(slots, plans, gain, error, shrunk, met, chosen, followed)
