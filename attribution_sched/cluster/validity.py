"""Whether a plan can be carried out: the only refusals, for records, batches, planners, the engine and explanations.

The rules are compiled: :func:`column_fault` (does a row point outside the model, the cluster or the cost tables, so
that a kernel that follows it would read beyond an array), :func:`order_fault` (does a segment go on where the one
before it ends) and :func:`segment_fault` (is a segment allowed where it is). :func:`validity` asks them of a batch of
plans, :func:`fault` of one, ``engine.decode`` of an action; all speak in the same codes.

Whether a plan would be carried out at a decision, where it must be priced for its memory and power, is asked in
:mod:`attribution_sched.planning.candidates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.gpus import PRECISIONS, Precision
from attribution_sched.cluster.plan import (
    CAP,
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
)
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.types import BoolArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.cluster.cost import CostModel
    from attribution_sched.cluster.plan import PlanBatch

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

INT8 = Precision.INT8.index
"""Its place among the formats."""

_WIDEST_TP = TP_DEGREES[-1]

_FORMATS = len(PRECISIONS)


@by_reference
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
        caps: Cap levels to choose from, the domain's own among them.
    """

    n_layers: int
    devices: IntArray
    node_devices: IntArray
    formats: BoolArray
    microbatches: IntArray
    trained: bool = False
    from_table: bool = True
    max_segments: int = ANY
    caps: int = 1


def form_only(n_layers: int, n_domains: int) -> Limits:
    """Limits of a plan as a form: any hardware, any layout."""
    most = np.full(n_domains, ANY)
    formats = np.ones((n_domains, _FORMATS), dtype=np.bool_)
    return Limits(n_layers, most, most, formats, np.empty(0, dtype=np.int64), from_table=False, caps=ANY)


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
        n_layers=int(cost.tables.n_layers[model]),
        devices=np.array(rows.devices if devices is None else devices, dtype=np.int64),
        node_devices=np.array(nodes, dtype=np.int64),
        formats=np.ascontiguousarray(hardware_formats(cost) if formats is None else formats),
        microbatches=np.array(microbatches, dtype=np.int64),
        trained=bool(cost.training[model]),
        from_table=from_table,
        max_segments=max_segments,
        caps=cost.domains.caps_w.shape[1],
    )


def hardware_formats(cost: CostModel) -> BoolArray:
    """Formats that every domain's devices have, shape ``(K, 4)``."""
    peak = cost.domains.peak_flops
    found: BoolArray = np.isfinite(peak) & (peak > 0.0)
    return found


@kernel
def column_fault(row: IntArray, n_layers: int, n_domains: int, n_caps: int) -> int:
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
    if row[CAP] < 0 or row[CAP] >= n_caps:
        return CAP
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
def order_fault(
    rows: IntArray, count: int, domain: int, at: int, stop: int, n_layers: int, micro: int, int8_trained: bool
) -> int:
    """Code of what is wrong with a segment after those before it.

    Args:
        rows: Segments of the plan.
        count: Segments before it.
        domain: Where it is.
        at: Layer that it has to begin with; 0 begins a replica.
        stop: Layer after its last.
        n_layers: Layers of the model.
        micro: Samples of its microbatch; the same for all of a replica.
        int8_trained: Whether it trains in INT8.
    """
    if stop <= at or stop > n_layers:
        return UNCOVERED
    for before in range(count):
        if rows[before, DOMAIN] == domain:
            return TWICE
    if int8_trained:
        return TRAINED_INT8
    if at > 0 and rows[count - 1, MICROBATCH] != micro:
        return UNEVEN_BATCH
    return VALID


@kernel
def end_fault(at: int) -> int:
    """Code of what is wrong with a plan whose last segment stops before layer ``at``; 0 for the end of a replica."""
    return UNCOVERED if at > 0 else VALID


@kernel
def _plan_fault(limits: Limits, rows: IntArray, count: int) -> tuple[int, int]:
    """Code of the first thing wrong with a plan, and the segment it is wrong with."""
    if count > limits.max_segments:
        return SEGMENTS, count - 1
    at, replica = 0, 0
    for s in range(count):
        row = rows[s]
        column = column_fault(row, limits.n_layers, limits.devices.size, limits.caps)
        # Numbers of microbatches are shared out when a plan is carried out; a plan may wait for them.
        if column >= 0 and column != MICROBATCHES:
            if column == STOP:
                return UNCOVERED, s
            return (STAGES, s) if column == PP and row[PP] > 0 else (OUTSIDE, s)
        if row[REPLICA] != replica or row[FIRST] != at:
            return UNCOVERED, s
        domain, precision, micro = row[DOMAIN], row[PRECISION], row[MICROBATCH]
        int8_trained = limits.trained and precision == INT8
        code = order_fault(rows, s, domain, at, row[STOP], limits.n_layers, micro, int8_trained)
        if code == VALID:
            code = segment_fault(
                row[STOP] - row[FIRST], row[DP], row[TP], row[PP], micro, limits.devices[domain],
                limits.node_devices[domain], limits.formats[domain, precision], limits.from_table,
            )  # fmt: skip
        if code != VALID:
            return code, s
        offered = limits.microbatches.size == 0
        for size in limits.microbatches:
            offered |= size == micro
        if not offered:
            return MICROBATCH_SIZE, s
        at = row[STOP]
        if at == limits.n_layers:
            at = 0
            replica += 1
    code = end_fault(max(at, 1 - count))
    return code, max(0, count - 1) if code != VALID else 0


@kernel(allocates=True)
def _validity(limits: Limits, rows: IntArray, counts: IntArray) -> IntArray:
    codes = np.zeros(counts.size, dtype=np.int64)
    for n in range(counts.size):
        codes[n] = _plan_fault(limits, rows[n], counts[n])[0]
    return codes


@kernel
def _outside(rows: IntArray, counts: IntArray, n_layers: int, n_domains: int, n_caps: int) -> tuple[int, int, int]:
    for n in range(counts.size):
        replica = 0
        for s in range(counts[n]):
            column = column_fault(rows[n, s], n_layers, n_domains, n_caps)
            following = rows[n, s, REPLICA] - replica
            if column < 0 and (following < 0 or following > (1 if s > 0 else 0)):
                column = REPLICA
            if column >= 0:
                return n, s, column
            replica = rows[n, s, REPLICA]
    return -1, -1, -1


def validity(limits: Limits, rows: IntArray, counts: IntArray) -> IntArray:
    """Codes of plans ``(n, P, 11)`` with so many rows in use, shape ``(n,)``: ``VALID`` or a key of ``REFUSALS``."""
    found: IntArray = _validity(
        limits, np.ascontiguousarray(rows, dtype=np.int64), np.asarray(counts, dtype=np.int64)
    )  # fmt: skip
    return found


def fault(limits: Limits, batch: PlanBatch) -> tuple[int, int]:
    """Code of the first thing wrong with the only plan of a batch, and the segment it is wrong with."""
    code, segment = _plan_fault(limits, batch.segments[0], int(batch.counts[0]))
    return int(code), int(segment)


def outside(batch: PlanBatch, n_layers: int, n_domains: int, n_caps: int) -> tuple[int, int, int]:
    """Plan, segment and column of the first number that points outside its table; −1 for all three if none does."""
    rows = np.ascontiguousarray(batch.segments, dtype=np.int64)
    plan, segment, column = _outside(rows, np.asarray(batch.counts, dtype=np.int64), n_layers, n_domains, n_caps)
    return int(plan), int(segment), int(column)
