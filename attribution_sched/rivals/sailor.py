"""A single-level search in the manner of Sailor (Strati et al., SOSP 2025).

Our own re-implementation of the published idea on our plan record, cost tables and links, not the authors' code:
layers are split evenly over pipeline stages; a dynamic programme assigns stages to regions, which it visits in one
heuristic order by bandwidth; tensor parallelism is the smallest that fits memory; data parallelism is lowered from
its maximum until the estimate gets worse; plans are ranked by the blocking estimate of the step (``blocking.py``).
Cut points are never searched, and one stage never spans regions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import MAX_PP, Plan, PlanBatch, Replica, Segment
from attribution_sched.planning.blocking import Even, best_stages, blocking_s
from attribution_sched.planning.instance import Instance, half_precision
from attribution_sched.planning.segment_table import Pricing
from attribution_sched.types import IntArray

REGIONS = 8
"""Regions with room that the search looks at, best connected first."""


@dataclass(frozen=True)
class PricedPlan:
    """A plan and the step time its planner expects, not what the cost model says of it."""

    plan: Plan
    step_s: float


class Sailor:
    """Sailor's search, run when a task is placed and whenever the free devices have changed since.

    A running task is re-planned at a re-planning event if the devices it could use are not those of its last
    planning; it moves if the planner's own estimate of the step improves. What moving costs is not weighed.
    """

    name = "sailor"

    def __init__(self) -> None:
        self._planned: dict[int, tuple[int, ...]] = {}

    def reset(self, seed: int) -> None:
        """Forget which devices were free when tasks were planned."""
        self._planned.clear()

    def decide(self, view: Decision) -> Plan | None:
        """Search again if resources have changed; wait if nothing fits, stay if nothing improves."""
        instance = Instance.of(view)
        free = tuple(int(n) for n in instance.free_devices)
        if view.replanning and self._planned.get(view.slot) == free:
            return None
        self._planned[view.slot] = free
        found = search(instance)
        if found is None or not view.replanning or view.current_plan is None:
            return None if found is None else found.plan
        # Both by the same rule: the search deals layers over all stages, a plan only says what each region holds.
        now_s, then_s = (estimate_s(instance, plan) for plan in (view.current_plan, found.plan))
        return found.plan if then_s < now_s else None


def search(instance: Instance) -> PricedPlan | None:
    """Find the plan of best estimate; None if nothing fits.

    Args:
        instance: What to place.
    """
    order = region_order(instance)
    if order.size == 0:
        return None
    precision = int(half_precision(instance, order))
    found: list[PricedPlan] = []
    for micro in dict.fromkeys(instance.microbatches):
        previous = np.inf
        dp = 1 << (int(instance.free_devices.max()).bit_length() - 1)
        while dp >= 1:
            if micro % dp == 0:
                best = _best_depth(instance, order, dp, micro, precision)
                if best is not None:
                    found.append(best)
                    # Fewer ranks will not help once they have hurt.
                    if best.step_s > previous:
                        break
                    previous = best.step_s
            dp //= 2
    if not found:
        return None
    # The cost model cuts a segment into stages of equal work, not of equal length, so memory may come out fuller.
    priced = instance.score(PlanBatch.of([estimate.plan for estimate in found]))
    fitting = [estimate for estimate, fits in zip(found, priced.fits, strict=True) if fits]
    return min(fitting, key=lambda estimate: estimate.step_s, default=None)


def region_order(instance: Instance) -> IntArray:
    """Regions with room in visiting order: from the best connected one, always along the widest link."""
    links = np.minimum(instance.bandwidth_gbps, instance.bandwidth_gbps.T).copy()
    np.fill_diagonal(links, 0.0)
    left = [int(d) for d in instance.open_domains]
    if not left:
        return np.empty(0, dtype=np.int64)
    order = [max(left, key=lambda d: float(links[d, left].sum()))]
    left.remove(order[0])
    while left and len(order) < REGIONS:
        order.append(max(left, key=lambda d: float(links[order[-1], d])))
        left.remove(order[-1])
    return np.array(order, dtype=np.int64)


def estimate_s(instance: Instance, plan: Plan) -> float:
    """Estimate the step of any plan by the blocking formula; its slowest replica counts."""
    cost = _pricing(instance)
    slowest = 0.0
    for replica in plan.replicas:
        rows = [
            (s.domain, s.first + (s.stop - s.first) * p // s.pp, s.first + (s.stop - s.first) * (p + 1) // s.pp, s.dp,
             s.tp, s.precision.index)
            for s in replica.segments
            for p in range(s.pp)
        ]  # fmt: skip
        stages = np.array(rows, dtype=np.int64)
        took = blocking_s(cost, stages, replica.microbatch, replica.microbatches)
        slowest = max(slowest, float(took))
    return slowest


def _best_depth(instance: Instance, order: IntArray, dp: int, micro: int, precision: int) -> PricedPlan | None:
    """Try every number of stages at one (microbatch, dp)."""
    n_layers, m = instance.n_layers, instance.batch_size // micro
    segments = min(instance.max_segments, order.size)
    deepest = min(n_layers, MAX_PP * segments, int(instance.free_devices[order].sum()) // dp)
    cost = _pricing(instance)
    rows = np.zeros((segments, 5), dtype=np.int64)
    best = None
    for n_stages in range(1, deepest + 1):
        task = Even(n_layers, n_stages, dp, precision, micro, m)
        took, used = best_stages(cost, task, order, instance.free_devices, rows)
        if used and (best is None or took < best.step_s):
            chain = tuple(
                Segment(domain, first, stop, dp, tp, pp, PRECISIONS[precision])
                for domain, first, stop, tp, pp in rows[:used].tolist()
            )
            best = PricedPlan(Plan((Replica(chain, micro, m),)), float(took))
    return best


def _pricing(instance: Instance) -> Pricing:
    bandwidth = instance.bandwidth_gbps * BYTES_PER_GBIT
    return Pricing.of(instance.cost, instance.model, bandwidth, instance.latency_s)
