"""Splits by rule: the static uniform split that the method's founding text names, and the speed-proportional one.

The first is the straw man every gain is quoted against; the second is what an engineer would really do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import DP, MICROBATCH, PP, TP, Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.errors import PlanError, problem
from attribution_sched.planning.candidates import best_of, join
from attribution_sched.planning.domain_orders import (
    all_orders,
    chain_plans,
    connected_orders,
    proportional_cuts,
    uniform_cuts,
)
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.segment_table import first_twins, plans_inside, single_domain_plans
from attribution_sched.rivals.exact_policy import best_move

__all__ = ["SpeedProportional", "SplitResult", "StaticUniform", "best_splits", "proportional_cuts", "uniform_cuts"]


class StaticUniform:
    """Layers dealt evenly over all domains with room, in index order; fixed when placed, never moved.

    A plan may use ``max_segments`` domains; where more have room the ones with most do it. The layout is the
    baseline's: largest microbatch, tp = pp = 1, as much data parallelism as room and microbatch allow. Where that
    runs out of memory, all layouts of the same even split are priced and the best by reward is taken; where none
    fits, the domain with least room is left out and the rest share the layers, down to one domain. If that does not
    fit either, the task waits.
    """

    name = "static-uniform"

    def decide(self, view: Decision) -> Plan | None:
        """Split the task evenly, or let it wait; a running task stays where it is."""
        if view.replanning:
            return None
        instance = Instance.of(view)
        # Most room first, lower index on a tie.
        ranked = sorted((int(d) for d in instance.open_domains), key=lambda d: -int(instance.free_devices[d]))
        for parts in range(min(view.max_segments, len(ranked), instance.n_layers), 0, -1):
            domains = sorted(ranked[:parts])
            if parts == 1:
                batch = single_domain_plans(view, domains=domains)
            else:
                batch = chain_plans(instance, np.array([domains], dtype=np.int64), even=True)
            plan = best_of(view, _baseline_layout(batch)) or best_of(view, batch)
            if plan is not None:
                return plan
        return None


def _baseline_layout(batch: PlanBatch) -> PlanBatch:
    """Keep the plan with the largest microbatch, tp = pp = 1 and most data parallelism, if there is one."""
    rows = batch.segments
    plain = ((rows[:, :, TP] == 1) & (rows[:, :, PP] == 1)).all(axis=1)
    chosen = np.flatnonzero(plain & (rows[:, 0, MICROBATCH] == rows[:, 0, MICROBATCH].max(initial=0)))
    chosen = chosen[np.argsort(-rows[chosen, 0, DP], kind="stable")][:1]
    return PlanBatch(rows[chosen], batch.counts[chosen], batch.schedules[chosen])


ORDERS, WIDE_ORDERS, MANY_DOMAINS = 24, 8, 8
"""Most orders tried for each number of domains; fewer in clusters of many domains, where pricing a plan is dearer."""


class SpeedProportional:
    """Every subset and order of domains, cut in proportion to speed; the best plan by reward.

    One batched call prices all layouts inside one domain and, for every order of up to ``max_segments`` domains
    with room, all layouts of a pipeline whose layers are dealt in proportion to the segments' speed. Where orders
    are many only the best connected are tried. A running task is moved when what it earns more over its remaining
    work exceeds what moving costs.
    """

    name = "speed-proportional"

    def decide(self, view: Decision) -> Plan | None:
        """Take the best plan, wait if none fits, stay if moving does not pay."""
        batch = self.candidates(view)
        if len(batch) == 0:
            return None
        found = value(view, batch)
        if view.replanning:
            return best_move(view, batch, found)
        best = int(np.argmax(found.reward))
        return batch.plan(best) if np.isfinite(found.reward[best]) else None

    def candidates(self, view: Decision) -> PlanBatch:
        """List all plans that are weighed."""
        instance = Instance.of(view)
        limit = ORDERS if len(instance.free_devices) <= MANY_DOMAINS else WIDE_ORDERS
        batches = [plans_inside(instance, first_twins(instance))]
        batches += [
            chain_plans(instance, connected_orders(instance, segments, limit))
            for segments in range(2, min(view.max_segments, len(instance.open_domains)) + 1)
        ]
        return join(batches)


@dataclass(frozen=True)
class SplitResult:
    """The best plan of one splitting rule.

    Attributes:
        plan: The plan; None if none fits memory.
        step_s: Its step time; infinite without a plan.
        tried: Plans priced.
    """

    plan: Plan | None
    step_s: float
    tried: int


def best_splits(
    instance: Instance,
) -> dict[str, SplitResult]:
    """Find the best even and the best speed-proportional split by step time, over all subsets and orders of domains.

    Returns:
        ``{"even": …, "proportional": …}``.
    """
    if not instance.open_domains.size:
        given, rule = instance.free_devices.tolist(), "no domain has a free device"
        raise PlanError(problem("free_devices", given, rule, "Free some devices"))
    most = instance.max_segments
    results = {}
    for name, even in (("even", True), ("proportional", False)):
        best = SplitResult(None, float("inf"), 0)
        for segments in range(1, min(most, len(instance.open_domains)) + 1):
            if segments == 1:
                batch = plans_inside(instance, instance.open_domains)
            else:
                batch = chain_plans(instance, all_orders(instance.open_domains, segments), even=even)
            best = _faster(instance, batch, best)
        results[name] = best
    return results


def _faster(instance: Instance, batch: PlanBatch, best: SplitResult) -> SplitResult:
    """Keep the faster of the best so far and the best of a batch."""
    tried = best.tried + len(batch)
    if len(batch) == 0:
        return best
    priced = instance.score(batch)
    step_s = np.where(priced.fits, priced.step_s, np.inf)
    at = int(np.argmin(step_s))
    if step_s[at] < best.step_s:
        return SplitResult(batch.plan(at), float(step_s[at]), tried)
    return replace(best, tried=tried)
