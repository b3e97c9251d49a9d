"""Batches of plans: put together, as the cluster would carry them out, whether it would, and the best of one.

How the cluster shares a batch between replicas is its own rule. Whether a plan is valid is
:mod:`attribution_sched.cluster.plan`'s; here that is asked of a decision, and then what only a priced plan tells:
memory and power.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attribution_sched.cluster import validity as rules
from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import ANYBODY, MICROBATCHES, Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.cluster.validity import Limits, limits_of
from attribution_sched.errors import PlanError
from attribution_sched.types import IntArray


def chain_batch(rows: IntArray) -> PlanBatch:
    """Wrap rows of one-replica plans, shape ``(n_plans, s, 11)``."""
    n, s = rows.shape[:2]
    return PlanBatch(rows, np.full(n, s, dtype=np.int64), np.zeros(n, dtype=np.int64))


def join(batches: Sequence[PlanBatch]) -> PlanBatch:
    """Put batches of plans of any width together."""
    wide = max(batch.segments.shape[1] for batch in batches)
    rows = [np.pad(b.segments, ((0, 0), (0, wide - b.segments.shape[1]), (0, 0))) for b in batches]
    return PlanBatch(
        np.concatenate(rows),
        np.concatenate([b.counts for b in batches]),
        np.concatenate([b.schedules for b in batches]),
    )


def best_of(view: Decision, batch: PlanBatch, kind_index: int | None = None) -> Plan | None:
    """Pick the plan of highest reward; None if none fits memory."""
    if len(batch) == 0:
        return None
    reward = value(view, batch, kind_index).reward
    best = int(np.argmax(reward))
    return batch.plan(best) if np.isfinite(reward[best]) else None


def as_carried_out(cost: CostModel, model: int, batch_size: int, plan: Plan) -> Plan:
    """Write the microbatch counts into a plan that the cluster would run it with."""
    batch = PlanBatch.of([plan])
    batch.segments[:, :, MICROBATCHES] = cost.microbatch_counts(model, batch_size, batch)
    return batch.plan(0)


def limits_at(view: Decision) -> Limits:
    """Limits that the cluster itself holds plans of a decision to, memory and power apart.

    It offers every domain the layouts of its widest node, so a plan may spread tensor ranks over narrower ones.
    """
    widest = max(domain.node_devices for domain in view.cost.cluster.domains)
    return limits_of(
        view.cost,
        view.kind_index,
        np.asarray(view.free_devices),
        node_devices=np.full(len(view.free_devices), widest),
        microbatches=view.kind.microbatches,
        max_segments=view.max_segments,
    )


def shared_devices(view: Decision, beside: int) -> IntArray:
    """Devices per domain that a plan beside a neighbour may use, shape ``(K,)``; beside anybody, empty ones too."""
    counts = (
        np.array(view.free_devices, dtype=np.int64) if beside == ANYBODY else np.zeros(len(view.free_devices), np.int64)
    )
    for neighbour in view.neighbours:
        if beside in (neighbour.slot, ANYBODY):
            counts[neighbour.domain] += neighbour.devices
    return counts


def taken(batch: PlanBatch, rows: IntArray) -> PlanBatch:
    """Some plans of a batch."""
    return PlanBatch(batch.segments[rows], batch.counts[rows], batch.schedules[rows])


def feasible(view: Decision, plan: Plan) -> str | None:
    """Say why the cluster would refuse a plan at this decision, or None if it would not.

    Power is judged by what the plan's own devices and the idle rest draw at least: other tasks are not in the view.
    """
    try:
        plan.check(len(view.kind.model), len(view.cost.cluster))
    except PlanError as error:
        return str(error)
    limits = limits_at(view)
    if plan.beside is not None:
        limits = limits._replace(devices=shared_devices(view, plan.beside))
    code, at = rules.fault(limits, PlanBatch.of([plan]))
    if code == rules.VALID and plan.beside is None:
        return _over_limits(view, as_carried_out(view.cost, view.kind_index, view.kind.batch_size, plan))
    if code == rules.VALID:
        # What two tasks leave of memory and power, the cluster knows when it has put them together.
        return None
    segment = plan.segments[at]
    domain, free = view.cost.cluster.domains[segment.domain], int(limits.devices[segment.domain])
    microbatches = [replica.microbatch for replica in plan.replicas for _ in replica.segments]
    reasons = {
        rules.SEGMENTS: f"{len(plan.segments)} segments, this world allows {view.max_segments}",
        rules.MICROBATCH_SIZE: f"microbatch {microbatches[at]} is not one of {view.kind.microbatches}",
        rules.DEVICES: f"{segment.device_count} devices wanted in {domain.name}, {free} are free",
        rules.FORMAT: f"{domain.gpu.name} has no hardware for {segment.precision.value}",
    }
    for layout in (rules.LAYOUT, rules.NODE):
        reasons[layout] = f"layout {(segment.dp, segment.tp, segment.pp)} is not in the table of layouts"
    return reasons.get(code, rules.REFUSALS[code])


def _over_limits(view: Decision, plan: Plan) -> str | None:
    priced = view.cost.score(
        plan, view.kind_index, bandwidth_gbps=view.bandwidth_gbps, latency_s=view.latency_s, breakdown=False
    )
    if not priced.fits[0]:
        return f"memory: the fullest device would hold {float(priced.memory_ratio[0]):.2f} times its memory"
    busy, watts = priced.segment("busy_s")[0] / priced.step_s[0], priced.segment("power_w")[0]
    for s, segment in enumerate(plan.segments):
        domain = view.cost.cluster.domains[segment.domain]
        idle_w = domain.gpu.idle_w
        least_w = domain.devices * idle_w + segment.device_count * (watts[s] - idle_w) * min(1.0, busy[s])
        if domain.power_budget_w is not None and least_w > domain.power_budget_w:
            return f"power: {domain.name} would draw {least_w:.0f} W of a budget of {domain.power_budget_w:.0f} W"
    return None
