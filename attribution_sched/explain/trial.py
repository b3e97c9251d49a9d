"""One instant of a cluster with something changed: would the task start now?

Nothing is estimated. A copy of the cluster (:mod:`~attribution_sched.cluster.fork`) is changed, and the policy itself
decides in it, task after task as it would in the cluster, until nothing more happens at this instant. So whoever waits
too and goes first has gone first, and what the policy thinks over it has thought over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.decision import Decision, Moment
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.fork import FACTORS, Belief, Follower, Remove, fork
from attribution_sched.cluster.plan import Plan
from attribution_sched.errors import SettingsError, problem
from attribution_sched.explain.preference import devices_needed
from attribution_sched.scheduler.policy import Foresight, Policy, QueueOrder, decides_now, pairs, plays_copies
from attribution_sched.types import FloatArray, IntArray, Task

POOL_COLUMNS = st.POOL_COLUMNS

INSTANT_H = 1e-6
"""Copies are played so far: long enough for all decisions of this instant, and for nothing else."""


@dataclass(frozen=True)
class Instant:
    """What happens at this instant in a copy.

    Attributes:
        starts: Whether the task in question starts.
        others: Slots of the other waiting tasks that start before it does.
    """

    starts: bool
    others: tuple[int, ...]


class Bounded:
    """A policy within what tasks may use, as a system asks it: with its weights, on at most the devices asked for.

    Args:
        policy: Who decides.
        view: The decision about the task in question.
        allowed: Devices per domain that this task may use, shape ``(K,)``; all by default.
        looks_ahead: Whether the policy may play copies of what it is shown, where it does so.
    """

    def __init__(
        self, policy: Policy, view: Decision, allowed: IntArray | None = None, *, looks_ahead: bool = True
    ) -> None:
        self.policy, self.view, self.allowed, self.looks_ahead = policy, view, allowed, looks_ahead

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    @property
    def pairs(self) -> bool:
        """The policy's."""
        return pairs(self.policy)

    @property
    def plays_copies(self) -> bool:
        """The policy's, where it may."""
        return self.looks_ahead and plays_copies(self.policy)

    def select(self, view: Decision) -> int:
        """The policy's choice of the next task; the one that is up if it does not choose."""
        return self.policy.select(self._seen(view)) if isinstance(self.policy, QueueOrder) else view.slot

    def decide(self, view: Decision) -> Plan | None:
        """The policy's plan; a plan over several domains that sums up to too much is asked for once more, in one."""
        view = self._seen(view)
        most = None if view.task is None or view.replanning else view.task.devices
        free = np.array(view.free_devices)
        if self.allowed is not None and view.slot == self.view.slot:
            free = np.minimum(free, self.allowed)
        free = free if most is None else np.minimum(free, most)
        for attempt in range(2):
            if attempt:
                free = np.where(np.arange(len(free)) == int(np.argmax(free)), free, 0)
            plan = self.policy.decide(replace(view, free_devices=free))
            if plan is None or most is None or devices_needed(plan, len(free)).sum() <= most:
                return plan
        return None

    def _seen(self, view: Decision) -> Decision:
        """What the policy is shown: it may look as far ahead as in the cluster, though a copy ends now."""
        moment, own = view.moment, self.view.moment
        if moment is not None and own is not None:
            moment = replace(moment, law=own.law, ends_s=own.ends_s) if self.looks_ahead else None
        return replace(view, reward=self.view.reward, moment=moment, backlog=self.view.backlog)


class Passing(Bounded):
    """The same policy where whoever would start before the task in question is gone instead, one after the other."""

    def __init__(self, policy: Policy, view: Decision, allowed: IntArray | None, *, looks_ahead: bool) -> None:
        super().__init__(policy, view, allowed, looks_ahead=looks_ahead)
        self.passed: list[int] = []

    def decide(self, view: Decision) -> Plan | None:
        """The policy's plan for the task in question; None for everybody else, who is gone if it has one."""
        if view.slot in self.passed:
            return None
        plan = super().decide(view)
        if plan is None or view.replanning or view.slot == self.view.slot:
            return plan
        self.passed.append(view.slot)
        return None

    def _seen(self, view: Decision) -> Decision:
        seen = super()._seen(view)
        return replace(seen, queue=tuple(each for each in seen.queue if each.slot not in self.passed))


class Trial:
    """Tries changes of a moment, and counts.

    Args:
        policy: Who decides; a copy of it, if it remembers.
        view: The decision about the task in question; it must carry its moment.
        allowed: Devices per domain that the task may use, shape ``(K,)``; all by default.

    Raises:
        SettingsError: If the decision does not carry its moment.
    """

    def __init__(self, policy: Policy, view: Decision, allowed: IntArray | None = None) -> None:
        if view.moment is None:
            fix = "Take decisions from a cluster"
            raise SettingsError(problem("decision.moment", None, "is needed to try changes", fix))
        self.view, self.moment, self.count = view, _offered(view.moment), 0
        self._whole = decides_now(Bounded(policy, view, allowed), self.moment, view.slot)
        # Who compares futures before every decision is asked without that first, and with it only where it counts.
        self._quick = self._whole
        if isinstance(policy, Foresight):
            self._quick = decides_now(Bounded(policy, view, allowed, looks_ahead=False), self.moment, view.slot)
        self._beliefs = _Nominal()
        self._policy, self._allowed = policy, allowed

    @property
    def waiting(self) -> tuple[int, ...]:
        """Slots of the other tasks that wait."""
        status = self.moment.state.slots[0, :, st.STATUS]
        return tuple(slot for slot in self.moment.tasks if status[slot] == st.QUEUED and slot != self.view.slot)

    def without(self, gone: Collection[int | str]) -> Instant:
        """What happens if tasks, waiting or running, are not there; a first look where the policy looks ahead."""
        return self._play(self.moment, gone, self._quick)

    def passing(self, gone: Collection[int | str]) -> tuple[int, ...]:
        """Who would start before the task, one gone after the other, if these are not there: one play for a queue."""
        looks_ahead = not isinstance(self._policy, Foresight)
        policy = Passing(self._policy, self.view, self._allowed, looks_ahead=looks_ahead)
        self._play(self.moment, gone, decides_now(policy, self.moment))
        return tuple(policy.passed)

    def starts_without(self, gone: Collection[int | str]) -> bool:
        """Whether the task starts if these are not there, by the whole policy."""
        return self._play(self.moment, gone, self._whole).starts

    @property
    def looks_ahead(self) -> bool:
        """Whether the whole policy is more than what a first look asks."""
        return self._whole is not self._quick

    def asking(self, task: Task) -> bool:
        """Whether the task starts if it is withdrawn and handed in anew like this, last in the queue."""
        slot, state = self.view.slot, self.moment.state
        slots, tasks, pool = state.slots.copy(), state.tasks.copy(), self.moment.arrays.pool.copy()
        slots[0, slot, st.SERIAL] = slots[0, :, st.SERIAL].max() + 1
        tasks[0, slot, st.ARRIVAL], tasks[0, slot, st.LEFT] = self.moment.now_s, task.steps
        pool[slot, st.P_KIND], pool[slot, st.P_STEPS] = task.kind_index, task.steps
        anew = task.at(slot, task.steps, 0.0)
        moment = replace(
            self.moment, tasks={**self.moment.tasks, slot: anew}, arrays=self.moment.arrays._replace(pool=pool),
            state=state._replace(slots=slots, tasks=tasks),
        )  # fmt: skip
        followers = (self._quick, self._whole) if self.looks_ahead else (self._whole,)
        return all(self._play(moment, (), follower).starts for follower in followers)

    def _play(self, moment: Moment, gone: Collection[int | str], follower: Follower) -> Instant:
        self.count += 1
        changes = [Remove(*_first(gone))] if gone else []
        found = fork(moment, changes, 1, INSTANT_H, follower, 0, beliefs=self._beliefs)
        starts = found.ledger[-1, 0, :, 0]
        now = {slot for row, slot in enumerate(found.tasks) if np.isfinite(starts[row])}
        return Instant(self.view.slot in now, tuple(slot for slot in self.waiting if slot in now))


def _offered(moment: Moment) -> Moment:
    """The moment with everybody who waits asked about now, whoever was asked about last."""
    state = moment.state
    tasks, event = state.tasks.copy(), state.event.copy()
    tasks[0, state.slots[0, :, st.STATUS] == st.QUEUED, st.OFFERED] = moment.now_s
    event[0, st.EVENT] = st.NO_EVENT
    return replace(moment, state=state._replace(tasks=tasks, event=event))


def _first(tasks: Collection[int | str]) -> tuple[int | str, tuple[int | str, ...]]:
    first, *others = tasks
    return first, tuple(others)


class _Nominal:
    """Every task as its kind says: at one instant nobody learns what it really demands."""

    pool: FloatArray = np.zeros((1, POOL_COLUMNS))
    pool_believed: FloatArray = np.zeros((1, FACTORS))

    def of(self, tasks: Sequence[Task]) -> Belief:
        """Nothing beyond the kind."""
        n = len(tasks)
        return Belief(np.zeros((n, FACTORS)), np.zeros((n, FACTORS, FACTORS)), np.zeros(n))
