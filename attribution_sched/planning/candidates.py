"""Plans worth looking at: every layout inside one domain, how the cluster shares a batch, why a plan is refused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES, CostTables
from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.cost_arrays import DomainArrays
from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.layouts import MAX_PP
from attribution_sched.cluster.plan import (
    DOMAIN,
    MICROBATCHES,
    REPLICA,
    SEGMENT_FIELDS,
    Plan,
    PlanBatch,
)
from attribution_sched.cluster.reward import value
from attribution_sched.cluster.shares import share_batch
from attribution_sched.kernels import kernel
from attribution_sched.planning.instance import Instance, IntArray, inside_precisions


@lru_cache(maxsize=256)
def layouts_within(devices: int, node: int) -> tuple[tuple[int, int, int], ...]:
    """All (dp, tp, pp) in powers of two that use at most ``devices``."""
    powers = [2**i for i in range(devices.bit_length())]
    return tuple(
        (dp, tp, pp)
        for tp in TP_DEGREES
        for pp in powers
        for dp in powers
        if dp * tp * pp <= devices and tp <= node and pp <= MAX_PP
    )


@lru_cache(maxsize=4096)
def _inside(
    devices: int, node: int, n_layers: int, microbatches: tuple[int, ...], batch: int, precisions: tuple[int, ...]
) -> IntArray:
    """Rows of all plans in a domain of so many free devices, domain left 0, shape ``(n, 10)``."""
    rows = [
        (0, 0, n_layers, dp, tp, pp, precision, 0, micro, batch // micro)
        for precision in precisions
        for micro in dict.fromkeys(microbatches)
        for dp, tp, pp in layouts_within(devices, node)
        if micro % dp == 0 and pp <= n_layers
    ]
    found = np.array(rows, dtype=np.int64).reshape(-1, len(SEGMENT_FIELDS))
    found.setflags(write=False)
    return found


def plans_inside(instance: Instance, domains: Sequence[int] | IntArray) -> PlanBatch:
    """List every plan of an instance that stays inside one of the given domains."""
    nodes = instance.nodes
    parts = []
    for domain in domains:
        part = _inside(
            int(instance.free_devices[domain]), int(nodes[domain]), instance.n_layers, instance.microbatches,
            instance.batch_size, inside_precisions(instance, int(domain)),
        ).copy()  # fmt: skip
        part[:, DOMAIN] = domain
        parts.append(part)
    rows = np.concatenate(parts) if parts else np.empty((0, len(SEGMENT_FIELDS)), dtype=np.int64)
    return chain_batch(rows[:, None, :])


def single_domain_plans(
    view: DecisionView, kind_index: int | None = None, domains: Sequence[int] | None = None
) -> PlanBatch:
    """List every plan inside one domain: all layouts of its free devices, all microbatch levels.

    Training takes the domain's 16-bit format, inference every format the hardware has.

    Args:
        view: The decision.
        kind_index: Another kind of task than the pending one.
        domains: Only these; all by default.
    """
    instance = Instance.of(view, kind_index)
    return plans_inside(instance, range(len(instance.free_devices)) if domains is None else domains)


def chain_batch(rows: IntArray) -> PlanBatch:
    """Wrap rows of one-replica plans, shape ``(n_plans, s, 10)``."""
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


def first_twins(instance: Instance) -> list[int]:
    """Open domains without those that are worth the same as one of lower index."""
    twins = instance.twins()
    return [int(d) for d in instance.open_domains if (twins[:d] != twins[d]).all()]


def best_of(view: DecisionView, batch: PlanBatch, kind_index: int | None = None) -> Plan | None:
    """Pick the plan of highest reward; None if none fits memory."""
    if len(batch) == 0:
        return None
    reward = value(view, batch, kind_index).reward
    best = int(np.argmax(reward))
    return batch.plan(best) if np.isfinite(reward[best]) else None


@kernel
def _share_all(
    tables: CostTables, domains: DomainArrays, model: int, batch_size: float, rows: IntArray, counts: IntArray
) -> None:
    for p in range(counts.size):
        share_batch(tables, domains, model, batch_size, rows[p], counts[p], rows[p, counts[p] - 1, REPLICA] + 1)


def microbatch_counts(cost: CostModel, model: int, batch_size: int, batch: PlanBatch) -> IntArray:
    """Microbatches that the cluster would give every segment's replica, shape ``(n_plans, P)``; 0 where unused."""
    rows = np.array(batch.segments, order="C")
    rows[:, :, MICROBATCHES] = 0
    _share_all(cost.tables, cost.domains, model, float(batch_size), rows, batch.counts)
    counts: IntArray = rows[:, :, MICROBATCHES]
    return counts


def as_carried_out(cost: CostModel, model: int, batch_size: int, plan: Plan) -> Plan:
    """Write the microbatch counts into a plan that the cluster would run it with."""
    batch = PlanBatch.of([plan])
    batch.segments[:, :, MICROBATCHES] = microbatch_counts(cost, model, batch_size, batch)
    return batch.plan(0)
