"""Scheduling by optimisation: all waiting tasks are assigned to the free devices of the domains at once.

A decision becomes one problem of ``assignment``. Its pools are the domains with their free devices; its columns
are (domain, size): the best plan by reward that fits so many devices of one domain, sizes in powers of two. With one
size per domain this is the plain model of one resource per task; several let tasks be squeezed when many wait.

    u_ij = (R_ij − w_eff · waiting_r_eff) · weight_i

sets what plan j earns task i against waiting: R_ij is the view's reward, paid per interval of the baseline's work, and
waiting_r_eff the R_eff of an interval in the queue. r_ij is the number of devices. The weight says how work counts,
with W_i the intervals that the baseline would need for the steps left: ``work`` (W_i: what the whole task earns),
``rate`` (1: what it earns per interval) or ``ratio`` (1/W_i: per interval and unit of work, as in Smith's rule for the
least weighted completion time; devices of a short task are free again soon). Running tasks are not moved. A task that
has no plan inside one domain gets the best speed-proportional pipeline over the fewest domains that hold it, from
the devices the assignment leaves free.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP, Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.planning.instance import Instance, usable_devices
from attribution_sched.planning.segment_table import first_twins, plans_inside, twins
from attribution_sched.rivals.assignment import NONE, Assignment, Solution
from attribution_sched.rivals.assignment_solvers import Smoothing, check_limits, solve_dual_smoothing, solve_milp
from attribution_sched.scheduler.rules import fewest_domains
from attribution_sched.types import BoolArray, FloatArray, IntArray, Task

WAITING_R_EFF = -1.0
"""R_eff credited to a task that waits: what a world sets by default."""

WEIGHTS = {"work": 1.0, "rate": 0.0, "ratio": -1.0}
"""Ways to weigh a task, as the exponent of its work."""

LEAST_WORK_S = 1.0
"""Work that a task is taken to have at least, so that a ratio stays finite."""

NODES = 1000
"""Nodes, not seconds: the same queue is placed alike on a busy machine."""

QUICK = Smoothing(stages=5, steps=20, rounds=200)
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


def sizes_within(free_devices: IntArray, all_sizes: bool) -> tuple[IntArray, IntArray]:
    """Columns of a decision: the domain and the most devices of each, shapes ``(M,)``.

    Args:
        free_devices: Free devices per domain, shape ``(K,)``.
        all_sizes: Every power of two that a domain has room for, or only one column with all its room.
    """
    pairs = [
        (domain, size)
        for domain, room in enumerate(int(r) for r in free_devices)
        if room > 0
        for size in ([2**i for i in range(room.bit_length())] if all_sizes else [room])
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

    def __init__(
        self, solver: Callable[[Assignment], Solution], weight: str, waiting_r_eff: float, all_sizes: bool
    ) -> None:
        if weight not in WEIGHTS:
            raise SettingsError(
                problem("weight", weight, "is not a known way to weigh a task", nearest(weight, WEIGHTS))
            )
        if not np.isfinite(waiting_r_eff):
            raise SettingsError(problem("waiting_r_eff", waiting_r_eff, "must be finite", "Use the world's, say -1"))
        self._solver = solver
        self._exponent = WEIGHTS[weight]
        self.waiting_r_eff = waiting_r_eff
        self.all_sizes = all_sizes
        self._last: tuple[object, dict[int, Plan]] | None = None

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
        domains, sizes = sizes_within(free_devices, self.all_sizes)
        if not view.queue or not len(domains):
            return {}
        found = {kind: offers(view, kind, domains, sizes) for kind in dict.fromkeys(t.kind_index for t in view.queue)}
        programme = self.programme(view, found, free_devices, domains)
        choice = self._solver(programme).choice
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
        weight = (work_s / view.reward.interval_s) ** self._exponent
        earned: FloatArray = (reward - view.reward.w_eff * self.waiting_r_eff) * weight
        return earned

    def _pipelines(self, view: Decision, homeless: list[Task], left: IntArray) -> dict[int, Plan]:
        """Cut tasks that no domain holds alone over several, most urgent and oldest first, while there is room."""
        planned: dict[int, Plan] = {}
        hopeless: set[int] = set()
        for task in sorted(homeless, key=lambda task: -task.priority):
            if view.max_segments < 2 or task.kind_index in hopeless:
                continue
            plan = fewest_domains(replace(view, free_devices=left), task.kind_index)
            waiting = view.reward.w_eff * self.waiting_r_eff
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
    """Joint placement of the queue by mixed-integer programming (HiGHS).

    Args:
        nodes: Nodes of the search that a decision may look at; the best choice found by then is used.
        relative_gap: Gap at which HiGHS may stop.
        weight: How a task's work counts: ``ratio``, ``rate`` or ``work``.
        waiting_r_eff: R_eff of a task that waits.
        all_sizes: Offer plans of every size in a domain; False offers each domain's best plan only.
    """

    name = "integer-programme"

    def __init__(
        self,
        nodes: int = NODES,
        relative_gap: float = 1e-4,
        weight: str = "ratio",
        waiting_r_eff: float = WAITING_R_EFF,
        all_sizes: bool = True,
    ) -> None:
        check_limits(math.inf, relative_gap, nodes)

        def solve(given: Assignment) -> Solution:
            return solve_milp(given, math.inf, relative_gap, nodes)

        super().__init__(solve, weight, waiting_r_eff, all_sizes)


class DualSmoothing(_Optimiser):
    """Joint placement of the queue by dual smoothing.

    Args:
        smoothing: How far to go per decision.
        weight: How a task's work counts: ``ratio``, ``rate`` or ``work``.
        waiting_r_eff: R_eff of a task that waits.
        all_sizes: Offer plans of every size in a domain; False offers each domain's best plan only.
    """

    name = "dual-smoothing"

    def __init__(
        self,
        smoothing: Smoothing = QUICK,
        weight: str = "ratio",
        waiting_r_eff: float = WAITING_R_EFF,
        all_sizes: bool = True,
    ) -> None:
        super().__init__(lambda given: solve_dual_smoothing(given, smoothing), weight, waiting_r_eff, all_sizes)
