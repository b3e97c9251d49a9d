"""Two tasks on one device: what a policy may believe of a pair, and what every policy that pairs has in common.

Per hour a task that waits earns −1 of R_eff, one that runs at speed ``s`` of its speed alone earns ``s − 1``. Putting a
waiting task beside a running one gains ``s_own + s_other`` and loses 1: it pays when the two together do more than one
would, whatever devices they have. That is the rule here; what policies differ in is what they believe of ``s``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Protocol, runtime_checkable

import numpy as np

from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import CoRunners, Decision, Neighbour
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.interference import (
    PCIE_BYTES_PER_S,
    measured_jobs,
    resource_constants,
    slowdown,
)
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.scheduler.rules import first_with_room
from attribution_sched.types import Attributor, FloatArray, IntArray, Task

_AT = {name: i for i, name in enumerate(COUNTER_NAMES)}
_OPERATORS = [_AT[name] for name in ("conv", "fc", "attention")]


TYPICAL = 0.65
"""Speed of a task beside another before any was seen: the mean of measured pairs, one number for all."""

LIKENESS, SPEED_VARIANCE, SEEN_VARIANCE = 2.0, 0.05, 0.005
"""Length in logarithms over which profiles are alike; variance of speeds by each term; of a speed that was seen."""


class PairBelief(Protocol):
    """What is believed of two tasks on one device before they are put there."""

    def speeds(self, own: Task, other: Task) -> tuple[float, float]:
        """Speed of each beside the other, over its speed alone; 0 and 0 where they are not to be paired."""
        ...


class LawBelief:
    """The law of interference on demands read off the counters; nothing of the model is known.

    Compute is the time operators take, memory the time DRAM works, the input path what comes over the bus, and the host
    has the time in which the device does nothing.
    """

    def speeds(self, own: Task, other: Task) -> tuple[float, float]:
        """Speeds by the law; without counters of both nothing is believed."""
        if not own.counters.size or not other.counters.size:
            return 0.0, 0.0
        mine, theirs = demands_of(own.counters), demands_of(other.counters)
        return 1.0 / float(slowdown(mine, theirs)), 1.0 / float(slowdown(theirs, mine))


@runtime_checkable
class ProfileBelief(Protocol):
    """A belief that needs of tasks only a few numbers, so that copies of a cluster can be played by it."""

    def profile(self, task: Task) -> FloatArray:
        """What it reads of a task, shape ``(p,)``."""
        ...

    def speeds_among(self, profiles: FloatArray) -> FloatArray:
        """Speed of each of some tasks ``(T, p)`` beside each other one, shape ``(T, T)``."""
        ...


class ReferenceBelief:
    """The measured table, by the reference job whose counters and pace are nearest (as Gavel's estimator does).

    It knows the table of pairs; so it says what a scheduler can do that has measured its jobs before.
    """

    def speeds(self, own: Task, other: Task) -> tuple[float, float]:
        """Speeds of the two reference jobs beside each other; not to be paired where nobody measured them."""
        if not own.counters.size or not other.counters.size:
            return 0.0, 0.0
        table = measured_jobs().pair_speed
        a, b = nearest_job(own), nearest_job(other)
        found = float(table[a, b]), float(table[b, a])
        return found if np.isfinite(found).all() else (0.0, 0.0)

    def profile(self, task: Task) -> FloatArray:
        """Its reference job."""
        return np.array([float(nearest_job(task)) if task.counters.size else -1.0])

    def speeds_among(self, profiles: FloatArray) -> FloatArray:
        """The table's."""
        return among(measured_jobs().pair_speed, profiles)


class TrialBelief:
    """What pairs of this cluster were seen to do, carried over to tasks like them; no table, no model's name.

    A Gaussian process of the speed of one task beside another, with features z of each (:class:`VectorProfile`, or
    :func:`counter_profile`)::

        cov = v · (k(z, z′) + k(w, w′) + k(z, z′)·k(w, w′)),   k = exp(−|z − z′|² / 2ℓ²)

    The first term is how much a task is hurt, the second how much its neighbour hurts, the third the two together.
    Before anything is seen every pair is believed to run at :data:`TYPICAL` each; so partners are tried.

    Args:
        profile: What is read of a task; by default counters and pace, of whoever is told no attributions.
        most: Pairs that are remembered, the latest.
    """

    def __init__(self, profile: Callable[[Task], FloatArray] | None = None, most: int = 96) -> None:
        self.profile = profile if profile is not None else counter_profile
        self.most = most
        self.forget()

    def forget(self) -> None:
        """As if no pair had been seen."""
        self._seen: dict[bytes, tuple[FloatArray, FloatArray, tuple[float, float]]] = {}
        self._features: FloatArray = np.zeros((0, 2, 0))
        self._weights: FloatArray = np.zeros(0)

    def learn(self, view: Decision) -> bool:
        """Take note of the pairs that run; says whether there were new ones."""
        new = False
        for pair in view.co_runners:
            if not pair.task.counters.size or not pair.other.counters.size:
                continue
            mine, theirs = self.profile(pair.task), self.profile(pair.other)
            key = mine.tobytes() + theirs.tobytes()
            if key not in self._seen:
                self._seen[key] = (mine, theirs, pair.speeds)
                new = True
        if new:
            for key in list(self._seen)[: -self.most]:
                del self._seen[key]
            self._fit()
        return new

    def memory(self) -> dict[str, FloatArray]:
        """What was seen: profiles ``(n, 2, p)`` and speeds ``(n, 2)``."""
        seen = list(self._seen.values())
        if not seen:
            return {}
        return {"profiles": np.array([[a, b] for a, b, _ in seen]), "speeds": np.array([s for _, _, s in seen])}

    def recall(self, memory: Mapping[str, FloatArray]) -> None:
        """Remember what was seen; pairs that were kept by another profile are no pairs of this one, and learnt anew."""
        self.forget()
        profiles = memory.get("profiles", np.zeros((0, 2, 0)))
        if profiles.size and profiles.shape[2] != self.profile(Task(counters=_typical(), samples_per_s=1.0)).size:
            return
        for (a, b), speeds in zip(profiles, memory.get("speeds", ()), strict=True):
            self._seen[a.tobytes() + b.tobytes()] = (a, b, (float(speeds[0]), float(speeds[1])))
        if self._seen:
            self._fit()

    def speeds(self, own: Task, other: Task) -> tuple[float, float]:
        """Speed of each beside the other, as far as pairs like them were seen."""
        if not own.counters.size or not other.counters.size:
            return 0.0, 0.0
        mine, theirs = self.profile(own), self.profile(other)
        if not self._weights.size:
            return TYPICAL, TYPICAL
        asked = np.array([[mine, theirs], [theirs, mine]])
        found = np.clip(TYPICAL + _pair_kernel(asked, self._features) @ self._weights, 0.05, 1.0)
        return float(found[0]), float(found[1])

    def speeds_among(self, profiles: FloatArray) -> FloatArray:
        """Speed of each of n tasks with profiles ``(n, p)`` beside each of the others, shape ``(n, n)``."""
        if not self._weights.size:
            return np.full((len(profiles), len(profiles)), TYPICAL)
        # The kernel is a product, so n profiles against those seen are enough for all n² pairs.
        own, beside = (_likeness(profiles, self._features[:, role]) for role in (0, 1))
        found = (own @ self._weights)[:, None] + (beside @ self._weights)[None] + (own * self._weights) @ beside.T
        return np.asarray(np.clip(TYPICAL + SPEED_VARIANCE * found, 0.05, 1.0))

    def _fit(self) -> None:
        rows = list(self._seen.values())
        self._features = np.array([both for a, b, _ in rows for both in ((a, b), (b, a))])
        seen = np.array([speed for _, _, s in rows for speed in s])
        covariance = _pair_kernel(self._features, self._features) + SEEN_VARIANCE * np.eye(len(seen))
        self._weights = np.asarray(np.linalg.solve(covariance, seen - TYPICAL), dtype=np.float64)


def counter_profile(task: Task) -> FloatArray:
    """Raw counters and pace: their logarithms, a factor of e counting as one; shape ``(13,)``."""
    read = np.append(task.counters, task.samples_per_s)
    found: FloatArray = np.log(np.maximum(read, 1e-3 * np.append(_typical(), 1.0)))
    return found


class VectorProfile:
    """The attribution vector without its bound, and the logarithm of the pace; shape ``(8,)``.

        profile = (1.5 artanh a_1, …, 1.5 artanh a_7, ln samples/s),    a = tanh(φ / spread) the vector policies read

    φ is what each part adds to the logarithm of the task's power, in units of its usual size
    (:mod:`~attribution_sched.attribution.schema`). The bound is right for weights that learn from the vector, wrong for
    telling who harms whom: most jobs are near its ends, where tasks that differ twofold in a rate look alike.

    A task that nobody has attributed is read from its counters, by the reader's own attributor; what even that cannot
    tell (a counter that is NaN) counts as usual.

    Args:
        attributions: Counters ``(n, 12)`` → vectors ``(n, 7)``, as the tasks' own are in.
    """

    def __init__(self, attributions: Attributor) -> None:
        self.attributions = attributions

    def __deepcopy__(self, _: dict[int, object]) -> VectorProfile:
        """It never changes, and who it belongs to is not to be copied with it."""
        return self

    def __call__(self, task: Task) -> FloatArray:
        """What is read of a task."""
        state = None if task.attribution is None else task.attribution.state
        if state is None:
            state = self.attributions(np.asarray(task.counters, dtype=np.float64)[None])[0]
        # In single precision, as vectors are kept: a task read from counters is the same task that carries its vector.
        vector = np.nan_to_num(np.asarray(state, dtype=np.float32).astype(np.float64), nan=0.0)
        unbounded = np.arctanh(np.clip(vector, -_EDGE, _EDGE))
        return np.append(STRETCH * unbounded, np.log(max(task.samples_per_s, LEAST_PACE)))


STRETCH = 1.5
"""A part of its usual size, in the unit of the pace's logarithm. Of 1, 1.25, 1.5 and 2 the best on six days (seeds
4700000 on), where none was clearly better than another."""

_EDGE = 1.0 - 2.0**-24
"""The largest number below one in single precision, which vectors are kept in."""

LEAST_PACE = 1e-3
"""Samples per second below which two paces are the same; a task that nobody timed has this one."""


def _likeness(one: FloatArray, other: FloatArray) -> FloatArray:
    """How alike profiles ``(n, p)`` and ``(m, p)`` are, shape ``(n, m)``."""
    gap = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None] - 2.0 * one @ other.T
    return np.asarray(np.exp(-np.maximum(gap, 0.0) / (2.0 * LIKENESS**2)))


def _pair_kernel(one: FloatArray, other: FloatArray) -> FloatArray:
    """Covariance of speeds of ordered pairs with profiles ``(n, 2, p)`` and ``(m, 2, p)``, shape ``(n, m)``."""
    gap = ((one[:, None] - other[None]) ** 2).sum(axis=3)
    own, beside = np.moveaxis(np.exp(-gap / (2.0 * LIKENESS**2)), 2, 0)
    found: FloatArray = SPEED_VARIANCE * (own + beside + own * beside)
    return found


@cache
def _typical() -> FloatArray:
    """Mean of each counter over the measured jobs: below a thousandth of it two readings are the same."""
    found: FloatArray = measured_jobs().counters.mean(axis=0)
    return found


def demands_of(counters: FloatArray) -> FloatArray:
    """Demands on host, compute, memory and input path as counters tell them, shape ``(4,)``."""
    _, gain, _ = resource_constants()
    shares = np.array([
        1.0 - min(1.0, counters[_AT["sm_active"]]), counters[_OPERATORS].sum(), counters[_AT["dram_active"]],
        counters[_AT["pcie_bandwidth"]] / PCIE_BYTES_PER_S,
    ])  # fmt: skip
    found: FloatArray = np.clip(gain * shares, 0.0, 1.0)
    return found


@cache
def _references() -> FloatArray:
    return np.log(np.maximum(measured_jobs().counters, 1e-6))


def among(table: FloatArray, profiles: FloatArray) -> FloatArray:
    """Entries of a table of jobs for tasks that are told by their rows ``(T, 1)``; 0 where nothing is known."""
    rows = profiles[:, 0].astype(np.int64)
    found = np.where((rows[:, None] >= 0) & (rows[None] >= 0), table[np.ix_(rows, rows)], 0.0)
    return np.nan_to_num(found)


def nearest_job(task: Task) -> int:
    """Row of the measured job whose counters are nearest to a task's, by the logarithms of what is not zero."""
    read = np.log(np.maximum(task.counters, 1e-6))
    return int(np.argmin(np.minimum(np.abs(_references() - read), 3.0).sum(axis=1)))


def can_join(view: Decision, task: Task, neighbour: Neighbour) -> bool:
    """Whether a neighbour may have devices and memory enough; a look that costs little."""
    asked = view.kinds[task.kind_index].measured_devices
    return asked <= neighbour.devices and task.memory_bytes <= neighbour.memory_free_bytes


def plan_beside(view: Decision, kind_index: int, task: Task | None, neighbour: Neighbour) -> Plan | None:
    """The best plan of a task on the devices that a neighbour has for itself; None if it does not fit there."""
    devices = np.zeros(len(view.free_devices), dtype=np.int64)
    devices[neighbour.domain] = neighbour.devices
    there = replace(view, free_devices=devices)
    plan = first_with_room(there, kind_index, [neighbour.domain])
    if plan is None:
        return None
    if view.kinds[kind_index].opaque:
        needed = 0.0 if task is None else task.memory_bytes
    else:
        needed = float(view.cost.score(PlanBatch.of([plan]), kind_index, breakdown=False).segment("memory_bytes")[0, 0])
    return replace(plan, beside=neighbour.slot) if needed <= neighbour.memory_free_bytes else None


class Packing:
    """Alone while devices are free, shortest believed work first; beside the best neighbour when none is.

    Args:
        belief: What is believed of pairs.
        least_work: Work of a pair, over one task's, from which it is put together.
    """

    name = "packing"
    pairs, plays_copies = True, False

    def __init__(self, belief: PairBelief | None = None, least_work: float = 1.05) -> None:
        self.belief = belief if belief is not None else LawBelief()
        self.least_work = least_work
        self._known: dict[tuple[int, ...], tuple[Task, Task, float]] = {}
        self._nothing: tuple[float, bytes, int] | None = None
        self._asked: set[tuple[float, int, int]] = set()
        self._refused: set[bytes] = set()

    def reset(self, seed: int) -> None:
        """Forget the last episode; the seed decides nothing."""
        self._known.clear()
        self._refused.clear()
        self._asked.clear()
        self._nothing = None
        if isinstance(self.belief, TrialBelief):
            self.belief.forget()

    def select(self, view: Decision) -> int:
        """The first task, by believed work, that fits by itself; else the first that has a neighbour."""
        self.learn(view)
        moment = (view.time_s, view.free_devices.tobytes(), len(view.neighbours))
        if moment == self._nothing:
            return view.slot
        ordered = sorted(view.queue, key=lambda task: (task.steps_left, task.number))
        fits: dict[int, bool] = {}
        for task in ordered:
            if task.kind_index not in fits:
                plan = first_with_room(view, task.kind_index, range(len(view.free_devices)))
                fits[task.kind_index] = plan is not None
            if fits[task.kind_index]:
                return task.slot
        for task in ordered:
            if self.choose(view, task) is not None:
                return task.slot
        self._nothing = moment
        return view.slot

    def decide(self, view: Decision) -> Plan | None:
        """By itself, beside the neighbour believed best, or wait; a running task stays, unless it can stop sharing."""
        self.learn(view)
        if view.replanning:
            return self.separate(view)
        if self._nothing == (view.time_s, view.free_devices.tobytes(), len(view.neighbours)):
            return None
        plan = first_with_room(view, view.kind_index, range(len(view.free_devices)))
        if plan is not None or view.task is None:
            return plan
        plan = self.choose(view, view.task)
        while plan is not None and plan.beside is not None and self._was_refused(view, plan.beside):
            plan = self.choose(view, view.task)
        return plan

    def _was_refused(self, view: Decision, beside: int) -> bool:
        """Whether the cluster was asked for this very pair at this moment: it is asked again only if it refused."""
        asked = (view.time_s, view.slot, beside)
        if asked not in self._asked:
            self._asked = {each for each in self._asked if each[0] == view.time_s} | {asked}
            return False
        # Memory that two tasks take together is not all told by what each took alone.
        self.refuse(view.counters, view.beside(beside).task.counters)
        self._asked.discard(asked)
        return True

    def refuse(self, own: FloatArray, other: FloatArray) -> None:
        """The cluster would not have two tasks on one device; told by their counters, not by records that pass away."""
        self._refused.add(own.tobytes() + other.tobytes())

    def refused(self, task: Task, neighbour: Neighbour) -> bool:
        """Whether the cluster would not have these two on one device."""
        if not self._refused:
            return False
        return task.counters.tobytes() + neighbour.task.counters.tobytes() in self._refused

    def refusals(self) -> FloatArray:
        """Counters of both of every pair that was refused, shape ``(n, 24)``; of tasks that have been measured."""
        whole = 2 * len(COUNTER_NAMES) * np.dtype(np.float64).itemsize
        return np.array([np.frombuffer(each) for each in sorted(self._refused) if len(each) == whole], dtype=np.float64)

    def recall_refusals(self, counters: FloatArray) -> None:
        """Know what :meth:`refusals` told."""
        self._refused = {row.tobytes() for row in np.asarray(counters, dtype=np.float64)}

    def separate(self, view: Decision) -> Plan | None:
        """Devices of its own for a task that shares its devices, where nobody waits for them and the move pays."""
        own = [pair for pair in view.co_runners if view.counters is pair.task.counters]
        own += [seen_from_other(pair) for pair in view.co_runners if view.counters is pair.other.counters]
        if not own or view.queue:
            return None
        late_s = view.steps_left * view.base_step_s[view.kind_index] * (1.0 / own[0].speeds[0] - 1.0)
        if late_s < 2.0 * view.restart_s:
            return None
        return first_with_room(view, view.kind_index, range(len(view.free_devices)))

    def learn(self, view: Decision) -> None:
        """Let a belief that learns see the pairs that run; what was believed before is then asked anew."""
        if isinstance(self.belief, TrialBelief) and self.belief.learn(view):
            self._known.clear()

    def choose(self, view: Decision, task: Task) -> Plan | None:
        """The plan beside the neighbour with which most work is believed to be done."""
        for _, neighbour in sorted(self.offers(view, task), key=lambda offer: -offer[0]):
            plan = plan_beside(view, task.kind_index, task, neighbour)
            if plan is not None:
                return plan
        return None

    def offers(self, view: Decision, task: Task) -> Iterator[tuple[float, Neighbour]]:
        """Believed work of a pair and the neighbour, for every one worth it that has devices and memory enough."""
        for neighbour in view.neighbours:
            if can_join(view, task, neighbour) and not self.refused(task, neighbour):
                work = self.work(task, neighbour.task)
                if work >= self.least_work:
                    yield work, neighbour

    def work(self, own: Task, other: Task) -> float:
        """Believed work of a pair; asked of the belief once for the same readings."""
        key = *_reading(own), *_reading(other)
        found = self._known.get(key)
        # In a copy of this policy the records are copies, and others may have the ids.
        if found is None or not (_same_reading(found[0], own) and _same_reading(found[1], other)):
            found = self._known[key] = (own, other, sum(self.belief.speeds(own, other)))
        return found[2]


def _reading(task: Task) -> tuple[int, int]:
    """What a belief may read of a task, by identity: records of the same task share it."""
    return id(task.counters), id(task.attribution)


def _same_reading(one: Task, other: Task) -> bool:
    return one.counters is other.counters and one.attribution is other.attribution


def seen_from_other(pair: CoRunners) -> CoRunners:
    """The same pair, told from the other side."""
    return CoRunners(pair.other, pair.task, pair.speeds[::-1])


class PairLearner(Packing):
    """Packs by what this cluster's own pairs were seen to do; nothing is known before."""

    name = "pair-learner"

    def __init__(self) -> None:
        super().__init__(TrialBelief())


class PairTables:
    """What is believed of pairs, as copies of a cluster are played by it; see :class:`~.fork.PairTable`.

    Args:
        belief: What pairs of this cluster were seen to do.
        law: Tasks that may come, as the beliefs' pool lists them.
        memory_bytes: Of a device.
    """

    def __init__(self, belief: ProfileBelief, law: Sequence[Task], memory_bytes: float) -> None:
        self.belief, self.memory_bytes = belief, memory_bytes
        self._law_profiles = np.array([belief.profile(task) for task in law])
        self._law_jobs = np.array([_job_row(task) for task in law])
        self._running: dict[tuple[int, int], tuple[float, float]] = {}
        self._known: tuple[tuple[tuple[int, int], ...], FloatArray, FloatArray, Sequence[Task]] | None = None

    def see(self, view: Decision) -> PairTables:
        """Take the pairs that run as fast as they are measured to."""
        self._running = {
            (id(pair.task.counters), id(pair.other.counters)): pair.speeds
            for one in view.co_runners for pair in (one, seen_from_other(one))
        }  # fmt: skip
        return self

    def of(self, tasks: Sequence[Task], coming: IntArray) -> tuple[FloatArray, FloatArray]:
        """Speeds ``(T, T)`` and job rows ``(T, 6)``; 0 where two tasks do not fit a device together."""
        key = tuple(_reading(task) for task in tasks)
        if self._known is None or self._known[0] != key:
            own = np.array([self.belief.profile(task) for task in tasks]).reshape(-1, self._law_profiles.shape[1])
            # The tasks are kept with it, so that nobody else has their ids.
            self._known = key, own, np.array([_job_row(task) for task in tasks]).reshape(-1, 6), tuple(tasks)
        jobs = np.concatenate([self._known[2], self._law_jobs[coming]])
        speeds = self.belief.speeds_among(np.concatenate([self._known[1], self._law_profiles[coming]]))
        held = jobs[:, st.J_MEMORY]
        speeds[held[:, None] + held[None] > self.memory_bytes] = 0.0
        for i, (one, _) in enumerate(key):
            for j, (other, _) in enumerate(key) if self._running else ():
                if (one, other) in self._running:
                    speeds[i, j] = self._running[one, other][0]
        return speeds, jobs


def _job_row(task: Task) -> FloatArray:
    """A task as the engine knows measured jobs: demands as its counters tell, memory, share that a device works."""
    if not task.counters.size:
        return np.array([0.0, 1.0, 1.0, 0.0, np.inf, 1.0])
    busy = float(np.clip(task.counters[[_AT["sm_active"], _AT["dram_active"]]].max(), 0.05, 1.0))
    return np.array([*demands_of(task.counters), task.memory_bytes, busy])
