"""Batches of plans: put together, the best of one, and how the cluster would share a batch between replicas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.cost_kernel import DomainArrays, share_batch
from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.plan import (
    MICROBATCHES,
    REPLICA,
    Plan,
    PlanBatch,
)
from attribution_sched.cluster.reward import value
from attribution_sched.kernels import kernel
from attribution_sched.planning.instance import IntArray


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


def best_of(view: DecisionView, batch: PlanBatch, kind_index: int | None = None) -> Plan | None:
    """Pick the plan of highest reward; None if none fits memory."""
    if len(batch) == 0:
        return None
    reward = value(view, batch, kind_index).reward
    best = int(np.argmax(reward))
    return batch.plan(best) if np.isfinite(reward[best]) else None


@kernel(allocates=True)
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
