"""Plans being written, from the last layer backwards: what is open, what is written, and how a segment is added."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.memory_feasibility import PlannerTables, holds

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

D_DOMAIN, D_FIRST, D_STOP, D_LAYOUT, D_FORMAT, D_LEVEL, D_REPLICA = range(7)
"""Columns of ``PartialPlans.rows``."""

OPEN, DONE, DEAD = 0, 1, 2
"""A draft is being written, finished, or cannot be finished."""

DOMAIN_CHOICE = 16
CUT_CHOICE = 9
LAYOUT_CHOICE = 13
FORMAT_CHOICE = 7
LEVEL_CHOICE = 5
DRAFT_FEATURES = 8
"""Numbers that describe one choice of each kind, and the draft itself."""


@by_reference
class PartialPlans(NamedTuple):
    """R unfinished plans, each of some decision.

    Attributes:
        kind: Kind of task, shape ``(R,)``.
        free: Devices it may use, shape ``(R, K)``.
        used: Domains it already uses, shape ``(R, K)``.
        stop: One past the last layer that is still open, shape ``(R,)``.
        after: Stages of the replica behind it, shape ``(R,)``.
        level: Microbatch level of the replica, −1 while open, shape ``(R,)``.
        written: Segments written, shape ``(R,)``.
        replica: Number of the replica being written, shape ``(R,)``.
        status: ``OPEN``, ``DONE`` or ``DEAD``, shape ``(R,)``.
        slowest: Longest segment so far, over the baseline's step, shape ``(R,)``.
        devices: Devices used so far, shape ``(R,)``.
        rows: Segments in the order of writing, shape ``(R, P, 7)``.
        links: Gb/s, seconds, USD per GB and forecast Gb/s, shape ``(R, 4, K, K)``.
        held: Domains of the plan in force, shape ``(R, K)``.
        wishes: w_eff, w_util, and what holding a device costs others as a share of the time, shape ``(R, 3)``.
    """

    kind: IntArray
    free: IntArray
    used: BoolArray
    stop: IntArray
    after: IntArray
    level: IntArray
    written: IntArray
    replica: IntArray
    status: IntArray
    slowest: FloatArray
    devices: IntArray
    rows: IntArray
    links: FloatArray
    held: BoolArray
    wishes: FloatArray


def open_partial_plans(
    t: PlannerTables, kind: IntArray, free: IntArray, links: FloatArray, held: BoolArray, wishes: FloatArray
) -> PartialPlans:
    """Begin a plan for every row."""
    r, k = free.shape
    return PartialPlans(
        kind=np.ascontiguousarray(kind, dtype=np.int64),
        free=np.ascontiguousarray(free, dtype=np.int64),
        used=np.zeros((r, k), dtype=np.bool_),
        stop=t.cost.n_layers[kind].astype(np.int64),
        after=np.zeros(r, dtype=np.int64),
        level=np.full(r, -1, dtype=np.int64),
        written=np.zeros(r, dtype=np.int64),
        replica=np.zeros(r, dtype=np.int64),
        status=np.zeros(r, dtype=np.int64),
        slowest=np.zeros(r),
        devices=np.zeros(r, dtype=np.int64),
        rows=np.zeros((r, t.max_segments, 7), dtype=np.int64),
        links=np.ascontiguousarray(links, dtype=np.float64),
        held=np.ascontiguousarray(held, dtype=np.bool_),
        wishes=np.ascontiguousarray(wishes, dtype=np.float64),
    )


@kernel(allocates=True, shared=True)
def write_segments(
    t: PlannerTables,
    d: PartialPlans,
    rows: IntArray,
    domain: IntArray,
    first: IntArray,
    layout: IntArray,
    precision: IntArray,
    level: IntArray,
) -> None:
    """Add a chosen segment to each draft; one whose memory or rest does not work out after all is dead."""
    cuts = np.zeros(16, dtype=np.int64)
    for i in range(rows.size):
        r, k, at, lay, q, v = rows[i], domain[i], first[i], layout[i], precision[i], level[i]
        kind = d.kind[r]
        n = t.cost.n_layers[kind]
        c = t.domain_class[k]
        if not holds(t, kind, c, lay, q, v, at, d.stop[r], d.after[r], cuts):
            d.status[r] = DEAD
            continue
        # One by one: from a tuple numba makes an array first, with words for shapes that cannot be wrong here.
        row = d.rows[r, d.written[r]]
        row[0], row[1], row[2], row[3], row[4], row[5], row[6] = k, at, d.stop[r], lay, q, v, d.replica[r]
        flops = t.cost.sizes[kind, 8]
        work = (flops[d.stop[r]] - flops[at]) / flops[n]
        d.slowest[r] = max(d.slowest[r], t.whole_s[kind, c, lay, q, v] * work / t.base_step_s[kind])
        d.devices[r] += t.sizes[lay]
        d.used[r, k] = True
        d.written[r] += 1
        d.stop[r] = at
        d.after[r] += t.layouts[lay, 2]
        d.level[r] = v
        if at == 0:
            d.stop[r] = n
            d.after[r] = 0
            d.level[r] = -1
            d.replica[r] += 1


def draft_features(t: PlannerTables, d: PartialPlans, rows: IntArray) -> Float32Array:
    """Describe the drafts themselves, shape ``(n, DRAFT_FEATURES)``."""
    kind, count = d.kind[rows], d.written[rows]
    n = t.cost.n_layers[kind]
    flops = t.cost.sizes[kind, 8]
    index = np.arange(len(rows))
    slowest = np.log(np.maximum(d.slowest[rows], 1e-3))
    total = np.asarray(t.domains.rows.devices).sum()
    return np.column_stack([
        count / t.max_segments, d.stop[rows] == n, flops[index, d.stop[rows]] / flops[index, n],
        np.where(count > 0, slowest, 0.0) / 2.0, d.after[rows] / 8.0, d.replica[rows] / 2.0,
        d.devices[rows] / total, d.level[rows] >= 0,
    ]).astype(np.float32)  # fmt: skip
