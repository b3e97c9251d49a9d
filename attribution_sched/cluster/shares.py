"""How replicas share a batch: in proportion to their speed, the cluster's own rule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost_arrays import DomainArrays
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
)
from attribution_sched.cluster.stage_kernel import tp_index
from attribution_sched.kernels import kernel

IntArray = NDArray[np.int64]


@kernel
def segment_pace_s(tables: CostTables, domains: DomainArrays, model: int, row: IntArray) -> float:
    """Forward seconds per sample of a segment, divided over its ranks and stages."""
    times = tables.times_s[model, domains.rows[row[DOMAIN]].gpu, row[PRECISION], tp_index(row[TP])]
    a, z = row[FIRST], row[STOP]
    return float((times[0, z] - times[0, a] + times[1, z] - times[1, a]) / (row[DP] * row[PP]))


@kernel(allocates=True)
def share_batch(
    tables: CostTables, domains: DomainArrays, model: int, batch: float, rows: IntArray, count: int, replicas: int
) -> None:
    """Give every replica microbatches in proportion to its speed (its slowest segment's).

    Args:
        tables: Layer cost tables.
        domains: The cluster.
        model: Row of the tables.
        batch: Samples per step.
        rows: The plan's segments, shape ``(P, 10)``; the column of microbatches is written.
        count: Segments in use.
        replicas: Replicas of the plan.
    """
    speed = np.zeros(max(1, replicas))
    for r in range(replicas):
        slowest = 0.0
        for p in range(count):
            if rows[p, REPLICA] == r:
                slowest = max(slowest, segment_pace_s(tables, domains, model, rows[p]))
        speed[r] = 1.0 / slowest
    total = speed.sum()
    for p in range(count):
        share = speed[rows[p, REPLICA]] / total
        rows[p, MICROBATCHES] = max(1, round(batch * share / rows[p, MICROBATCH]))
