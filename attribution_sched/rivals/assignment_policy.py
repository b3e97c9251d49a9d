"""Scheduling by optimisation: all waiting tasks are assigned to the free devices of the domains at once.

A decision becomes one problem of ``assignment``. Its pools are the domains with their free devices; its columns
are (domain, size): the best plan by reward that fits so many devices of one domain, sizes in powers of two. With one
size per domain this is the plain model of one resource per task; several let tasks be squeezed when many wait.

    u_ij = (R_ij − w_eff · waiting_r_eff) · weight_i

sets what plan j earns task i against waiting: R_ij is the view's reward, paid per interval of the baseline's work, and
waiting_r_eff the R_eff of an interval in the queue. r_ij is the number of devices. The weight is 1/W_i, with W_i the
intervals that the baseline would need for the steps left, as in Smith's rule for the least weighted completion time:
devices of a short task are free again soon. Running tasks are not moved. A task that has no plan inside one domain gets
the best speed-proportional pipeline over the fewest domains that hold it, from the devices the assignment leaves
free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP, Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.planning.instance import Instance, usable_devices
from attribution_sched.planning.segment_table import first_twins, plans_inside, twins
from attribution_sched.rivals.assignment import NONE, Assignment, Solution
from attribution_sched.rivals.assignment_solvers import Smoothing, solve_dual_smoothing, solve_milp
from attribution_sched.scheduler.rules import fewest_domains
from attribution_sched.types import BoolArray, FloatArray, IntArray, Task

WAITING_R_EFF = -1.0
"""R_eff credited to a task that waits: what a world sets by default."""

LEAST_WORK_S = 1.0
"""Work that a task is taken to have at least, so that a ratio stays finite."""

NODES = 1000
"""Nodes, not seconds: the same queue is placed alike on a busy machine."""

QUICK = Smoothing(stages=5, steps=20, rounds=50)
"""Effort of one decision: queues are short, and a decision should take milliseconds."""


@dataclass(frozen=True)
class Offers:
    """What a kind of task can be given inside single domains.

    Attributes:
        batch: Plans.
        plan: Row in ``batch`` of the best plan of each column, shape ``(M,)``; −1 where none fits.
        reward: Its reward, shape ``(M,)``; −∞ where none fits.
        devices: Devices it holds, shape ``(M,)``.
    """

    batch: PlanBatch
    plan: IntArray
    reward: FloatArray
    devices: IntArray


def sizes_within(free_devices: IntArray) -> tuple[IntArray, IntArray]:
    """Columns of a decision, shapes ``(M,)``: the domain and the most devices, every power of two it has room for.

    Args:
        free_devices: Free devices per domain, shape ``(K,)``.
    """
    pairs = [
        (domain, 2**i) for domain, room in enumerate(free_devices.tolist()) for i in range(max(0, room).bit_length())
    ]
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def offers(view: Decision, kind_index: int, domains: IntArray, sizes: IntArray) -> Offers:
    """Find the best plan of one kind of task for every (domain, size)."""
    instance = Instance.of(view, kind_index)
    # Domains of the same hardware with as many free devices share one twin's plans.
    twin_of, alike = twins(instance), first_twins(instance)
    priced = {int(twin_of[domain]): domain for domain in alike}
    batch = plans_inside(instance, alike)
    held = batch.segments[:, 0, DP] * batch.segments[:, 0, TP] * batch.segments[:, 0, PP]
    reward = value(view, batch, kind_index).reward if len(batch) else np.empty(0)
    plan, worth, devices = np.full(len(domains), NONE), np.full(len(domains), -np.inf), np.zeros_like(domains)
    known: dict[tuple[int, int], int] = {}
    for j, (domain, size) in enumerate(zip(domains.tolist(), sizes.tolist(), strict=True)):
        twin = priced[int(twin_of[domain])]
        if (twin, size) not in known:
            known[twin, size] = _best_within(reward, held, (batch.segments[:, 0, DOMAIN] == twin) & (held <= size))
        best = known[twin, size]
        if best != NONE:
            plan[j], worth[j], devices[j] = best, reward[best], held[best]
    return Offers(batch, plan, worth, devices)


def _best_within(reward: FloatArray, held: IntArray, within: BoolArray) -> int:
    """Row of the best plan among some; of equally good ones that which holds fewest devices; −1 if none fits."""
    rows = np.flatnonzero(within & np.isfinite(reward))
    return int(rows[np.lexsort((held[rows], -reward[rows]))[0]]) if len(rows) else NONE


class _Optimiser:
    """What both policies share: the problem of a decision, and plans from its solution."""

    def __init__(self) -> None:
        self._last: tuple[object, dict[int, Plan]] | None = None

    def solve(self, programme: Assignment) -> Solution:
        """Solve the problem of a decision."""
        raise NotImplementedError

    def reset(self, seed: int) -> None:
        """Forget the last decision."""
        self._last = None

    def select(self, view: Decision) -> int:
        """Choose the first waiting task that the solution places; the pending one if it places none."""
        planned = self.plans(view)
        return next((task.slot for task in view.queue if task.slot in planned), view.slot)

    def decide(self, view: Decision) -> Plan | None:
        """Give the pending task its place in the joint solution; let it wait if it has none."""
        return None if view.replanning else self.plans(view).get(view.slot)

    def plans(self, view: Decision) -> dict[int, Plan]:
        """Plans of all waiting tasks that the joint solution places, by slot."""
        # Choosing the task and placing it are two questions about the same moment.
        free, links = view.free_devices.tobytes(), view.bandwidth_gbps.tobytes()
        moment = (view.cost, view.reward, view.time_s, view.queue, free, links)
        if self._last is None or self._last[0] != moment:
            self._last = (moment, self._solve(view))
        return self._last[1]

    def _solve(self, view: Decision) -> dict[int, Plan]:
        free_devices = usable_devices(view)
        domains, sizes = sizes_within(free_devices)
        if not view.queue or not len(domains):
            return {}
        found = {kind: offers(view, kind, domains, sizes) for kind in dict.fromkeys(t.kind_index for t in view.queue)}
        programme = self.programme(view, found, free_devices, domains)
        choice = self.solve(programme).choice
        planned = {}
        for task, j in zip(view.queue, choice.tolist(), strict=True):
            if j != NONE:
                offer = found[task.kind_index]
                planned[task.slot] = _moved(offer.batch.plan(int(offer.plan[j])), int(domains[j]))
        left = view.free_devices - programme.load(choice).astype(np.int64)
        homeless = [task for task in view.queue if not np.isfinite(found[task.kind_index].reward).any()]
        return planned | self._pipelines(view, homeless, left)

    def programme(
        self, view: Decision, found: dict[int, Offers], free_devices: IntArray, domains: IntArray
    ) -> Assignment:
        """Write the assignment problem of a decision; rows are in the order of the queue."""
        rows = [self._earned(view, task, found[task.kind_index].reward) for task in view.queue]
        demand = np.array([found[task.kind_index].devices for task in view.queue], dtype=np.float64)
        return Assignment(np.array(rows), demand, free_devices.astype(np.float64), domains)

    def _earned(self, view: Decision, task: Task, reward: FloatArray) -> FloatArray:
        """What plans of some reward are worth to a task over waiting."""
        work_s = max(LEAST_WORK_S, task.steps_left * float(view.base_step_s[task.kind_index]))
        earned: FloatArray = (reward - view.reward.w_eff * WAITING_R_EFF) * (view.reward.interval_s / work_s)
        return earned

    def _pipelines(self, view: Decision, homeless: list[Task], left: IntArray) -> dict[int, Plan]:
        """Cut tasks that no domain holds alone over several, most urgent and oldest first, while there is room."""
        planned: dict[int, Plan] = {}
        hopeless: set[int] = set()
        for task in sorted(homeless, key=lambda task: -task.priority):
            if view.max_segments < 2 or task.kind_index in hopeless:
                continue
            plan = fewest_domains(replace(view, free_devices=left), task.kind_index)
            waiting = view.reward.w_eff * WAITING_R_EFF
            if plan is None or value(view, PlanBatch.of([plan]), task.kind_index).reward[0] <= waiting:
                hopeless.add(task.kind_index)
                continue
            planned[task.slot] = plan
            left = left.copy()
            for segment in plan.segments:
                left[segment.domain] -= segment.device_count
        return planned


def _moved(plan: Plan, domain: int) -> Plan:
    """The same plan inside another domain (one with the same hardware)."""
    (replica,) = plan.replicas
    (segment,) = replica.segments
    return replace(plan, replicas=(replace(replica, segments=(replace(segment, domain=domain),)),))


class IntegerProgramme(_Optimiser):
    """Joint placement of the queue by mixed-integer programming (HiGHS)."""

    name = "integer-programme"

    def solve(self, programme: Assignment) -> Solution:
        """Look at so many nodes; the best choice met by then is used."""
        return solve_milp(programme, math.inf, nodes=NODES)


class DualSmoothing(_Optimiser):
    """Joint placement of the queue by dual smoothing."""

    name = "dual-smoothing"

    def solve(self, programme: Assignment) -> Solution:
        """Go as far as a decision has time for."""
        return solve_dual_smoothing(programme, QUICK)
