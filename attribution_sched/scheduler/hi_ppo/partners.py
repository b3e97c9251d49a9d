"""The lower agent's partner: whether a task gets devices of its own or goes beside another, and beside whom.

    a_low = alone | beside j,    work(i, j) = s_ij + s_ji,    s_ij the speed of i beside j over its speed alone

What is believed of speeds is what pairs of this very cluster were seen to do, carried over to tasks whose attribution
vector and pace are like theirs (:class:`~attribution_sched.scheduler.pairing.TrialBelief`,
:class:`~attribution_sched.scheduler.pairing.VectorProfile`): no table of pairs, no model's name. Without thinking a
measured job goes beside another only where no devices are free, and only if the pair is believed to do more work than
one; thinking compares partners with each other, with devices of the task's own and with waiting. Tasks whose model is
known share by thinking only: what they do to each other follows in copies from what they are believed to demand.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.fork import law_pool
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import World
from attribution_sched.scheduler.pairing import (
    Packing,
    PairTables,
    ProfileBelief,
    TrialBelief,
    VectorProfile,
    plan_beside,
)
from attribution_sched.types import Attributor, Task

WORK_ODDS = 20.0
"""Log-odds per unit of a pair's work, as for a unit of a step's share of R."""

TASKS, NEIGHBOURS = 3, 3
"""Waiting tasks, and neighbours of each, that thinking compares."""


class Partners(Packing):
    """Who goes beside whom in one cluster.

    Args:
        attributions: Counters ``(n, 12)`` → vectors ``(n, 7)``, for tasks that carry none.
    """

    def __init__(self, attributions: Attributor) -> None:
        super().__init__(TrialBelief(VectorProfile(attributions)))
        self._refusals: dict[tuple[float, int, int], float] = {}
        self._tables: list[tuple[World, PairTables]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Partners:
        """The same beliefs; tables of a world are made again by whoever asks, the same ones."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, [] if name == "_tables" else copy.deepcopy(value, memo))
        return other

    @staticmethod
    def apply(view: Decision) -> bool:
        """Whether tasks of a decision may share devices, and pairs of them be seen to."""
        return bool(view.neighbours or view.co_runners)

    @staticmethod
    def leaves_room(view: Decision, plan: Plan) -> bool:
        """Whether devices of its own for a task leave room for the largest request.

        A measured job runs as fast as it can on the devices it asked for: with nobody else in the queue there is
        nothing to compare that with.
        """
        if plan.beside is not None:
            return False
        left = np.array(view.free_devices)
        for segment in plan.segments:
            left[segment.domain] -= segment.device_count
        return bool(left.max() >= max(kind.measured_devices for kind in view.kinds))

    @staticmethod
    def shares(view: Decision) -> bool:
        """Whether the running task that is decided on has a co-runner."""
        pairs = view.co_runners if view.replanning else ()
        return any(view.counters is task.counters for pair in pairs for task in (pair.task, pair.other))

    def propose(self, view: Decision) -> tuple[int, Plan] | None:
        """The shortest waiting task that has a neighbour worth it, and its plan there; of measured jobs only."""
        if not view.kind.opaque:
            return None
        for task in sorted(view.queue, key=lambda each: (each.steps_left, each.number)):
            found = self.listed(view, task, 1)
            if found:
                return task.slot, found[0][1]
        return None

    def listed(self, view: Decision, task: Task, most: int) -> list[tuple[float, Plan]]:
        """A task's best neighbours: log-odds among them and its plan beside each, best first."""
        if task.devices is not None and task.devices < view.kinds[task.kind_index].measured_devices:
            return []
        offers = sorted(self.offers(view, task), key=lambda offer: -offer[0])
        plans = []
        for work, neighbour in offers:
            plan = plan_beside(view, task.kind_index, task, neighbour)
            if plan is None or (task.devices is not None and sum(s.device_count for s in plan.segments) > task.devices):
                continue
            if not self._refused_now(view, task, neighbour.slot):
                plans.append((WORK_ODDS * work, plan))
            if len(plans) == most:
                break
        top = np.logaddexp.reduce([odds for odds, _ in plans]) if plans else 0.0
        return [(float(odds - top), plan) for odds, plan in plans]

    def options(self, view: Decision, first: int) -> list[tuple[int, float, Plan]]:
        """What thinking compares: slot, log-odds and plan of partners of a task and of the shortest others."""

        def order(task: Task) -> tuple[bool, float, int]:
            step_s = 1.0 if view.kind.opaque else float(view.base_step_s[task.kind_index])
            return task.slot != first, task.steps_left * step_s, task.number

        waiting = sorted(view.queue, key=order)[:TASKS]
        return [(task.slot, odds, plan) for task in waiting for odds, plan in self.listed(view, task, NEIGHBOURS)]

    def _refused_now(self, view: Decision, task: Task, beside: int) -> bool:
        """Whether the cluster refused the two a moment ago: memory of a pair is not all told by each."""
        before = self._refusals.get((view.time_s, task.slot, beside))
        if before is None or before == _refusals(view):
            return False
        self.refuse(task.counters, view.beside(beside).task.counters)
        return True

    def asked(self, view: Decision, slot: int, plan: Plan) -> None:
        """A pair is asked for."""
        if plan.beside is not None:
            kept = {key: count for key, count in self._refusals.items() if key[0] == view.time_s}
            self._refusals = {**kept, (view.time_s, slot, plan.beside): _refusals(view)}

    def reset(self, seed: int) -> None:
        """Forget the last episode; the seed decides nothing."""
        super().reset(seed)
        self._refusals = {}

    def table(self, view: Decision, world: World) -> PairTables | None:
        """What is believed of pairs of measured jobs, for copies; None where others share, or nobody."""
        if not (self.apply(view) and view.kind.opaque) or not isinstance(self.belief, ProfileBelief):
            return None
        for known, table in self._tables:
            if known is world:
                return table.see(view)
        pool = law_pool(world)
        law = [pool.task(row, world.kinds) for row in range(len(pool))]
        table = PairTables(self.belief, law, min(domain.gpu.memory_bytes for domain in world.cluster.domains))
        self._tables = [(world, table), *self._tables[:3]]
        return table.see(view)


def _refusals(view: Decision) -> float:
    """Plans that the cluster has refused so far."""
    return -1.0 if view.moment is None else float(view.moment.state.totals[0, st.REJECTED])
