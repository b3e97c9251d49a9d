"""Whether a plan can be carried out: one rule book for records, batches, planners and explanations.

The rules stand in two compiled functions: :func:`column_fault` (does a row point outside the model, the cluster or the
cost tables, so that a kernel that follows it would read beyond an array) and :func:`segment_fault` (is a segment
allowed where it is). :func:`validity` asks them of a batch of plans, :func:`fault` of one; both speak in the codes that
the engine refuses actions with.

It stands in ``cluster`` because the records themselves ask. Whether a plan would be carried out at a decision, where it
must be priced for its memory and power, is asked in :mod:`attribution_sched.planning.candidates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.gpus import PRECISIONS, Precision
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MAX_PP,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
    PlanBatch,
)
from attribution_sched.kernels import kernel
from attribution_sched.types import BoolArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.cluster.cost import CostModel


VALID = 0
"""Nothing is wrong."""

UNCOVERED, TWICE, DEVICES, FORMAT, INDIVISIBLE, MEMORY, POWER, STAGES, TRAINED_INT8, UNEVEN_BATCH = range(-1, -11, -1)
OUTSIDE, LAYOUT, NODE, SEGMENTS, MICROBATCH_SIZE = range(-11, -16, -1)
"""Codes of refusals; the words are below."""

REFUSALS = {
    UNCOVERED: "the segments do not cover the model in order",
    TWICE: "a domain is used twice",
    DEVICES: "not enough devices are free",
    FORMAT: "the GPU has no hardware for the precision",
    INDIVISIBLE: "dp does not divide the microbatch",
    MEMORY: "a device runs out of memory",
    POWER: "the domain exceeds its power budget",
    STAGES: "more pipeline stages than layers",
    TRAINED_INT8: "INT8 is for inference only",
    UNEVEN_BATCH: "the batch level differs inside a replica",
    OUTSIDE: "a number points outside the model, the cluster or the cost tables",
    LAYOUT: "the layout is not in the table of layouts",
    NODE: "tensor parallelism reaches beyond a node",
    SEGMENTS: "more segments than this world allows",
    MICROBATCH_SIZE: "the microbatch is not one of the task's",
}
"""Why a plan is refused. The engine can name the first ten: what comes after cannot be said in its actions."""

ANY = np.iinfo(np.int64).max
"""A limit that limits nothing."""

_INT8 = Precision.INT8.index
_WIDEST_TP = TP_DEGREES[-1]
_FORMATS = len(PRECISIONS)


class Limits(NamedTuple):
    """What plans of one task are held to.

    Attributes:
        n_layers: Layers of the model.
        devices: Devices that may be used, shape ``(K,)``.
        node_devices: Most tensor-parallel ranks, shape ``(K,)``.
        formats: Formats that may be used, shape ``(K, 4)``.
        microbatches: Microbatch sizes to choose from; empty for any.
        trained: Whether INT8 is out.
        from_table: Whether layouts must be powers of two with at most ``MAX_PP`` stages.
        max_segments: Most segments.
    """

    n_layers: int
    devices: IntArray
    node_devices: IntArray
    formats: BoolArray
    microbatches: IntArray
    trained: bool = False
    from_table: bool = True
    max_segments: int = ANY


def form_only(n_layers: int, n_domains: int) -> Limits:
    """Limits of a plan as a form: any hardware, any layout."""
    most = np.full(n_domains, ANY)
    formats = np.ones((n_domains, _FORMATS), dtype=np.bool_)
    return Limits(n_layers, most, most, formats, np.empty(0, dtype=np.int64), from_table=False)


def limits_of(
    cost: CostModel,
    model: int,
    devices: IntArray | None = None,
    *,
    formats: BoolArray | None = None,
    node_devices: IntArray | None = None,
    microbatches: tuple[int, ...] = (),
    from_table: bool = True,
    max_segments: int = ANY,
) -> Limits:
    """Limits of a task on a cluster.

    Args:
        cost: The cluster and its models.
        model: Row of the task in the cost model.
        devices: Devices that may be used, shape ``(K,)``; all by default.
        formats: Formats that may be used, shape ``(K, 4)``; all the hardware has by default.
        node_devices: Most tensor-parallel ranks, shape ``(K,)``; those of a node by default.
        microbatches: Microbatch sizes to choose from; any by default.
        from_table: Whether layouts must be in the table of layouts.
        max_segments: Most segments.
    """
    rows = cost.domains.rows
    nodes = rows.node_devices if node_devices is None else node_devices
    return Limits(
        n_layers=len(cost.models[model]),
        devices=np.array(rows.devices if devices is None else devices, dtype=np.int64),
        node_devices=np.array(nodes, dtype=np.int64),
        formats=np.ascontiguousarray(hardware_formats(cost) if formats is None else formats),
        microbatches=np.array(microbatches, dtype=np.int64),
        trained=bool(cost.training[model]),
        from_table=from_table,
        max_segments=max_segments,
    )


def hardware_formats(cost: CostModel) -> BoolArray:
    """Formats that every domain's devices have, shape ``(K, 4)``."""
    peak = cost.domains.peak_flops
    found: BoolArray = np.isfinite(peak) & (peak > 0.0)
    return found


@kernel
def column_fault(row: IntArray, n_layers: int, n_domains: int) -> int:
    """Column of a segment row that points outside its table, −1 if none does."""
    if row[DOMAIN] < 0 or row[DOMAIN] >= n_domains:
        return DOMAIN
    if row[FIRST] < 0 or row[STOP] <= row[FIRST] or row[STOP] > n_layers:
        return STOP
    if row[DP] < 1:
        return DP
    if row[TP] < 1 or row[TP] > _WIDEST_TP or row[TP] & (row[TP] - 1) != 0:
        return TP
    if row[PP] < 1 or row[PP] > row[STOP] - row[FIRST]:
        return PP
    if row[PRECISION] < 0 or row[PRECISION] >= _FORMATS:
        return PRECISION
    if row[MICROBATCH] < 1:
        return MICROBATCH
    if row[MICROBATCHES] < 1:
        return MICROBATCHES
    return -1


@kernel
def segment_fault(
    layers: int, dp: int, tp: int, pp: int, micro: int, devices: int, node: int, known: bool, from_table: bool
) -> int:
    """Code of what is wrong with one segment in its domain; numbers only, so that kernels may ask for every plan.

    Args:
        layers: Layers of the segment.
        dp: Data-parallel ranks.
        tp: Tensor-parallel ranks.
        pp: Pipeline stages.
        micro: Samples of a microbatch.
        devices: Devices that may be used in the domain.
        node: Most tensor-parallel ranks there.
        known: Whether the domain may use the segment's format.
        from_table: Whether the layout must be in the table of layouts.
    """
    if layers < 1:
        return UNCOVERED
    if pp > layers:
        return STAGES
    if not known:
        return FORMAT
    if micro % dp != 0:
        return INDIVISIBLE
    if from_table and (
        dp & (dp - 1) != 0 or tp & (tp - 1) != 0 or pp & (pp - 1) != 0 or pp > MAX_PP or tp > _WIDEST_TP
    ):
        return LAYOUT
    if tp > node:
        return NODE
    if dp * tp * pp > devices:
        return DEVICES
    return VALID


@kernel
def _plan_fault(limits: Limits, rows: IntArray, count: int) -> tuple[int, int]:
    """Code of the first thing wrong with a plan, and the segment it is wrong with."""
    if count > limits.max_segments:
        return SEGMENTS, count - 1
    at, replica, micro = 0, 0, 0
    for s in range(count):
        row = rows[s]
        column = column_fault(row, limits.n_layers, limits.devices.size)
        # Numbers of microbatches are shared out when a plan is carried out; a plan may wait for them.
        if column >= 0 and column != MICROBATCHES:
            if column == STOP:
                return UNCOVERED, s
            return (STAGES, s) if column == PP and row[PP] > 0 else (OUTSIDE, s)
        if row[REPLICA] != replica or row[FIRST] != at:
            return UNCOVERED, s
        domain, precision = row[DOMAIN], row[PRECISION]
        if limits.trained and precision == _INT8:
            return TRAINED_INT8, s
        code = segment_fault(
            row[STOP] - row[FIRST], row[DP], row[TP], row[PP], row[MICROBATCH], limits.devices[domain],
            limits.node_devices[domain], limits.formats[domain, precision], limits.from_table,
        )  # fmt: skip
        if code != VALID:
            return code, s
        if at > 0 and row[MICROBATCH] != micro:
            return UNEVEN_BATCH, s
        micro = row[MICROBATCH]
        offered = limits.microbatches.size == 0
        for size in limits.microbatches:
            offered |= size == micro
        if not offered:
            return MICROBATCH_SIZE, s
        for before in range(s):
            if rows[before, DOMAIN] == domain:
                return TWICE, s
        at = row[STOP]
        if at == limits.n_layers:
            at = 0
            replica += 1
    return (UNCOVERED, count - 1) if at > 0 or count == 0 else (VALID, 0)


@kernel(allocates=True)
def _validity(limits: Limits, rows: IntArray, counts: IntArray) -> IntArray:
    codes = np.zeros(counts.size, dtype=np.int64)
    for n in range(counts.size):
        codes[n] = _plan_fault(limits, rows[n], counts[n])[0]
    return codes


@kernel
def _outside(rows: IntArray, counts: IntArray, n_layers: int, n_domains: int) -> tuple[int, int, int]:
    for n in range(counts.size):
        replica = 0
        for s in range(counts[n]):
            column = column_fault(rows[n, s], n_layers, n_domains)
            following = rows[n, s, REPLICA] - replica
            if column < 0 and (following < 0 or following > (1 if s > 0 else 0)):
                column = REPLICA
            if column >= 0:
                return n, s, column
            replica = rows[n, s, REPLICA]
    return -1, -1, -1


def validity(limits: Limits, rows: IntArray, counts: IntArray) -> IntArray:
    """Codes of plans ``(n, P, 10)`` with so many rows in use, shape ``(n,)``: ``VALID`` or a key of ``REFUSALS``."""
    found: IntArray = _validity(
        limits, np.ascontiguousarray(rows, dtype=np.int64), np.asarray(counts, dtype=np.int64)
    )  # fmt: skip
    return found


def fault(limits: Limits, batch: PlanBatch) -> tuple[int, int]:
    """Code of the first thing wrong with the only plan of a batch, and the segment it is wrong with."""
    code, segment = _plan_fault(limits, batch.segments[0], int(batch.counts[0]))
    return int(code), int(segment)


def outside(batch: PlanBatch, n_layers: int, n_domains: int) -> tuple[int, int, int]:
    """Plan, segment and column of the first number that points outside its table; −1 for all three if none does."""
    rows = np.ascontiguousarray(batch.segments, dtype=np.int64)
    plan, segment, column = _outside(rows, np.asarray(batch.counts, dtype=np.int64), n_layers, n_domains)
    return int(plan), int(segment), int(column)
