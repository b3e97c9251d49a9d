"""Whether a plan would be carried out at a decision.

The rules are those of :mod:`attribution_sched.cluster.validity`; here they are asked of a decision, and then what only
a priced plan tells: memory and power.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster import validity as rules
from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.validity import Limits, limits_of, validity
from attribution_sched.errors import PlanError
from attribution_sched.planning.candidates import as_carried_out
from attribution_sched.types import BoolArray, IntArray


def limits_at(view: DecisionView) -> Limits:
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


def runnable(view: DecisionView, batch: PlanBatch) -> BoolArray:
    """Whether the cluster would run plans on empty devices: they are well formed and fit memory; shape ``(n,)``."""
    limits = limits_of(view.cost, view.kind_index, from_table=False)._replace(trained=False)
    valid: BoolArray = validity(limits, batch.segments, batch.counts) == rules.VALID
    at = np.flatnonzero(valid)
    if len(at):
        valid[at] = view.cost.score(taken(batch, at), view.kind_index, breakdown=False).fits
    return valid


def taken(batch: PlanBatch, rows: IntArray) -> PlanBatch:
    """Some plans of a batch."""
    return PlanBatch(batch.segments[rows], batch.counts[rows], batch.schedules[rows])


def feasible(view: DecisionView, plan: Plan) -> str | None:
    """Say why the cluster would refuse a plan at this decision, or None if it would not.

    Power is judged by what the plan's own devices and the idle rest draw at least: other tasks are not in the view.
    """
    try:
        plan.check(len(view.kind.model), len(view.cost.cluster))
    except PlanError as error:
        return str(error)
    code, at = rules.fault(limits_at(view), PlanBatch.of([plan]))
    if code == rules.VALID:
        return _over_limits(view, as_carried_out(view.cost, view.kind_index, view.kind.batch_size, plan))
    segment = plan.segments[at]
    domain, free = view.cost.cluster.domains[segment.domain], int(view.free_devices[segment.domain])
    microbatches = [replica.microbatch for replica in plan.replicas for _ in replica.segments]
    said = {
        rules.SEGMENTS: f"{len(plan.segments)} segments, this world allows {view.max_segments}",
        rules.MICROBATCH_SIZE: f"microbatch {microbatches[at]} is not one of {view.kind.microbatches}",
        rules.DEVICES: f"{segment.device_count} devices wanted in {domain.name}, {free} are free",
        rules.FORMAT: f"{domain.gpu.name} has no hardware for {segment.precision.value}",
    }
    for layout in (rules.LAYOUT, rules.NODE):
        said[layout] = f"layout {(segment.dp, segment.tp, segment.pp)} is not in the table of layouts"
    return said.get(code, rules.REFUSALS[code])


def _over_limits(view: DecisionView, plan: Plan) -> str | None:
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
