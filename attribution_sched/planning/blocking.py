"""The blocking estimate of a pipeline's step, and a dynamic programme over stages that minimises it; compiled.

With M microbatches and stages whose communication is never hidden::

    T = (M − 1)·max(comp + comm) + Σ comp + Σ comm + max(update + sync)

A hop between stages is charged to the stage behind it, both ways. Layers are dealt evenly over all stages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.memory import in_flight
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.segment_table import (
    BACKWARD_S,
    END_S,
    FIXED_BYTES,
    FORWARD_S,
    HELD_BYTES,
    STAGE_COLUMNS,
    Pricing,
    write_stage,
)
from attribution_sched.types import FloatArray, IntArray

_TP = np.array(TP_DEGREES, dtype=np.int64)

SUM_S, SLOWEST_S, LAST_S, ESTIMATE_S = range(4)
"""Columns of a partial pipeline: Σ(comp + comm), max(comp + comm), max(update + sync), and T from these."""


@by_reference
class Even(NamedTuple):
    """A pipeline whose layers are dealt evenly over its stages.

    Attributes:
        layers: Layers of the model.
        stages: Stages of the pipeline.
        dp: Data-parallel ranks of every stage.
        precision: Row on the precision axis.
        micro: Samples of a microbatch.
        m: Microbatches of a step.
    """

    layers: int
    stages: int
    dp: int
    precision: int
    micro: int
    m: int


@kernel(allocates=True)
def _write_stage(
    cost: Pricing, domain: int, a: int, z: int, dp: int, tp: int, precision: int, micro: int, m: int, out: FloatArray
) -> None:
    write_stage(
        cost.domains, cost.runtime, cost.power_law, cost.tables, cost.workload, domain, a, z, dp, tp, precision, micro,
        m, out,
    )  # fmt: skip


@kernel(allocates=True)
def hop_s(
    cost: Pricing, i: int, j: int, layer: int, dp: int, precision: int,
    micro: int,
) -> float:  # fmt: skip
    """Seconds of handing a microbatch from domain i to domain j before a layer, and its gradients back."""
    element = 4.0 if precision == 0 else 2.0
    volume = micro * element * cost.tables.boundary[cost.workload.model, layer]
    if i == j:
        once = cost.domains.rows[i].fabric_latency_s + volume / dp / cost.domains.rows[i].fabric_bytes_per_s
        return float(2.0 * once if cost.workload.training else once)
    total = cost.latency[i, j] + volume / cost.bandwidth[i, j]
    if cost.workload.training:
        total += cost.latency[j, i] + volume / cost.bandwidth[j, i]
    return float(total)


@kernel(allocates=True)
def blocking_s(cost: Pricing, stages: IntArray, micro: int, m: int) -> float:
    """Estimate the step of a pipeline.

    Args:
        cost: The cost model.
        stages: Rows of domain, first layer, one past the last, dp, tp, precision; shape ``(stages, 6)``.
        micro: Samples of a microbatch.
        m: Microbatches of a step.
    """
    row = np.zeros(len(STAGE_COLUMNS))
    total = 0.0
    slowest = 0.0
    tail = 0.0
    for s in range(stages.shape[0]):
        domain, a, z, dp, tp, precision = stages[s]
        _write_stage(cost, domain, a, z, dp, tp, precision, micro, m, row)
        seconds = row[FORWARD_S] + row[BACKWARD_S]
        if s > 0:
            seconds += hop_s(cost, stages[s - 1, 0], domain, a, dp, precision, micro)
        total += seconds
        slowest = max(slowest, seconds)
        tail = max(tail, row[END_S])
    return (m - 1) * slowest + total + tail


@kernel(allocates=True)
def _stage_table(cost: Pricing, task: Even, order: IntArray, free_devices: IntArray) -> FloatArray:
    """What every stage takes in every region at every degree; infinite where it does not fit.

    Returns:
        ``STAGE_COLUMNS``, shape ``(regions, 4 tp degrees, stages, 6)``.
    """
    found = np.full((order.size, _TP.size, task.stages, len(STAGE_COLUMNS)), np.inf)
    for r in range(order.size):
        here = cost.domains.rows[order[r]]
        for t in range(_TP.size):
            if _TP[t] > here.node_devices or task.dp * _TP[t] > free_devices[order[r]]:
                break
            for s in range(task.stages):
                first, stop = task.layers * s // task.stages, task.layers * (s + 1) // task.stages
                row = found[r, t, s]
                _write_stage(cost, order[r], first, stop, task.dp, _TP[t], task.precision, task.micro, task.m, row)
                held = in_flight(0, task.stages, s, task.m)
                if row[FIXED_BYTES] + held * row[HELD_BYTES] > here.memory_bytes:
                    row[FORWARD_S] = np.inf
    return found


@kernel(allocates=True)
def _run_degree(table: FloatArray, start: int, count: int) -> int:
    """Row of the smallest degree that fits all stages of a run in a region; −1 if none does."""
    for t in range(_TP.size):
        fits = True
        for s in range(start, start + count):
            fits = fits and table[t, s, FORWARD_S] < np.inf
        if fits:
            return t
    return -1


@kernel(allocates=True)
def _extend(
    cost: Pricing, task: Even, table: FloatArray, so_far: FloatArray,
    before: int, domain: int, start: int, count: int, out: FloatArray,
) -> None:  # fmt: skip
    """Add a run of stages in one region to a partial pipeline: sum, slowest, tail and estimate."""
    out[:] = so_far
    for s in range(start, start + count):
        took = table[s, FORWARD_S] + table[s, BACKWARD_S]
        if s > 0:
            source = before if s == start else domain
            first = task.layers * s // task.stages
            took += hop_s(cost, source, domain, first, task.dp, task.precision, task.micro)
        out[SUM_S] += took
        out[SLOWEST_S] = max(out[SLOWEST_S], took)
        out[LAST_S] = max(out[LAST_S], table[s, END_S])
    out[ESTIMATE_S] = (task.m - 1) * out[SLOWEST_S] + out[SUM_S] + out[LAST_S]


@kernel(allocates=True)
def best_stages(
    cost: Pricing, task: Even, order: IntArray, free_devices: IntArray,
    chosen: IntArray,
) -> tuple[float, int]:  # fmt: skip
    """Assign an even pipeline's stages to regions, first to last, regions in the given order.

    A region takes 1, 2, 4 or 8 consecutive stages, all with the smallest tensor-parallel degree that fits memory.
    Of all ways to place the first stages that end in the same region only the one with the best estimate so far is
    kept, which is fast and not exact.

    Args:
        cost: The cost model.
        task: The pipeline.
        order: Regions in the order in which the pipeline may visit them.
        free_devices: Free devices per domain.
        chosen: Output rows of domain, first layer, one past the last, tp, pp; shape ``(most segments, 5)``.

    Returns:
        The estimate (infinite if nothing fits) and the number of rows written.
    """
    regions, most = order.size, chosen.shape[0]
    table = _stage_table(cost, task, order, free_devices)
    # State: stages placed, region of the last one (0 stands for none), segments so far.
    best = np.full((task.stages + 1, regions + 1, most + 1, 4), np.inf)
    origin = np.zeros((task.stages + 1, regions + 1, most + 1, 3), dtype=np.int64)
    best[0, 0, 0] = 0.0
    longer = np.zeros(4)
    for placed in range(task.stages):
        for last in range(regions + 1):
            for used in range(most):
                if not best[placed, last, used, ESTIMATE_S] < np.inf:
                    continue
                for r in range(last, regions):
                    for power in range(4):
                        count = 1 << power
                        if placed + count > task.stages:
                            break
                        t = _run_degree(table[r], placed, count)
                        if t < 0 or _TP[t] * task.dp * count > free_devices[order[r]]:
                            break
                        _extend(
                            cost, task, table[r, t], best[placed, last, used],
                            order[max(0, last - 1)], order[r], placed, count, longer,
                        )  # fmt: skip
                        if longer[ESTIMATE_S] < best[placed + count, r + 1, used + 1, ESTIMATE_S]:
                            best[placed + count, r + 1, used + 1] = longer
                            back = origin[placed + count, r + 1, used + 1]
                            back[0], back[1], back[2] = placed, last, _TP[t]
    at, segments, best_s = 0, 0, np.inf
    for last in range(1, regions + 1):
        for used in range(1, most + 1):
            if best[task.stages, last, used, ESTIMATE_S] < best_s:
                at, segments, best_s = last, used, best[task.stages, last, used, ESTIMATE_S]
    placed = task.stages
    for used in range(segments, 0, -1):
        start, before, tp = origin[placed, at, used]
        out = chosen[used - 1]
        out[0], out[3], out[4] = order[at - 1], tp, placed - start
        out[1], out[2] = task.layers * start // task.stages, task.layers * placed // task.stages
        placed, at = start, before
    return best_s, segments
