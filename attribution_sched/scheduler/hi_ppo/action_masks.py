"""What may come next in a plan that is being written: masks of the choices, and what the rule asks of them.

Every choice that a mask allows can be completed: beside the memory of the segment itself, a mask asks whether the
layers before it still fit into the domains that are left, taken greedily by how far back each reaches. That is
sufficient, not necessary: a plan that only another order of filling completes is not offered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.cost import share_batch
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    PP,
    PRECISION,
    REPLICA,
    SEGMENT_FIELDS,
    STOP,
    TP,
    PlanBatch,
)
from attribution_sched.cluster.world import BATCH_LEVELS
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.memory_feasibility import FORMATS, STAGE_CHOICES, PlannerTables, fill, holds
from attribution_sched.types import BoolArray, Float32Array, FloatArray, IntArray

# ------ Plans being written, from the last layer backwards: what is open, what is written, and how a segment is added


D_DOMAIN, D_FIRST, D_STOP, D_LAYOUT, D_FORMAT, D_LEVEL, D_REPLICA = range(7)
"""Columns of ``PartialPlans.rows``."""

OPEN, DONE, DEAD = 0, 1, 2
"""A draft is being written, finished, or cannot be finished."""

DOMAIN_CHOICE = 4
C_ROOM, C_PART, C_HOLDS, C_WORTH = range(DOMAIN_CHOICE)
"""A domain: its free devices (the power of two below them) over all it has, the part of the layers that it can take,
whether these are all that are left, and the best of what its layouts add to R, times 4."""

LAYOUT_CHOICE = 4
L_TIME, L_SIZE, L_USE, L_WORTH = range(LAYOUT_CHOICE)
"""A layout: half the logarithm of its time over the baseline's, a quarter of that of its devices (to base 2), its
utilisation, and by how much it adds less to R than the best layout, times 8."""


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
        devices: Devices used so far, shape ``(R,)``.
        rows: Segments in the order of writing, shape ``(R, P, 7)``.
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
    devices: IntArray
    rows: IntArray
    wishes: FloatArray


def open_partial_plans(t: PlannerTables, kind: IntArray, free: IntArray, wishes: FloatArray) -> PartialPlans:
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
        devices=np.zeros(r, dtype=np.int64),
        rows=np.zeros((r, t.max_segments, 7), dtype=np.int64),
        wishes=np.ascontiguousarray(wishes, dtype=np.float64),
    )


@kernel(allocates=True)
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


@kernel
def _segments(t: PlannerTables, d: PartialPlans, r: int, rows: IntArray) -> None:
    """Write the segments of a finished draft in the order of its layers, replica by replica."""
    at = 0
    begin = 0
    while begin < d.written[r]:
        end = begin
        while end < d.written[r] and d.rows[r, end, D_REPLICA] == d.rows[r, begin, D_REPLICA]:
            end += 1
        for source in range(end - 1, begin - 1, -1):
            segment = d.rows[r, source]
            layout = t.layouts[segment[D_LAYOUT]]
            row = rows[at]
            row[DOMAIN] = segment[D_DOMAIN]
            row[FIRST] = segment[D_FIRST]
            row[STOP] = segment[D_STOP]
            row[DP] = layout[0]
            row[TP] = layout[1]
            row[PP] = layout[2]
            row[PRECISION] = segment[D_FORMAT]
            row[REPLICA] = segment[D_REPLICA]
            row[MICROBATCH] = t.micro[d.kind[r], segment[D_LEVEL]]
            at += 1
        begin = end
    share_batch(t.cost, t.domains, d.kind[r], t.batch[d.kind[r]], rows, d.written[r], d.replica[r])


@kernel
def _write_plans(t: PlannerTables, d: PartialPlans, segments: IntArray, counts: IntArray) -> None:
    for r in range(counts.size):
        if d.status[r] == DONE and d.written[r] > 0:
            _segments(t, d, r, segments[r])
            counts[r] = d.written[r]


def finished_plans(t: PlannerTables, d: PartialPlans) -> PlanBatch:
    """All drafts as plans; unfinished ones do nothing."""
    n = len(d.kind)
    segments, counts = np.zeros((n, t.max_segments, len(SEGMENT_FIELDS)), dtype=np.int64), np.zeros(n, dtype=np.int64)
    _write_plans(t, d, segments, counts)
    return PlanBatch(segments, counts, np.zeros(n, dtype=np.int64))


# ------ What may come next


LARGEST = 8.0
"""Logarithms of ratios stay within this."""

WORTHWHILE = 1.05
"""Layouts, formats and microbatches that take longer than another of no more devices by this factor are offered only if
they are worth as much as the best of as many devices."""


@kernel
def log2_floor(devices: int) -> int:
    """Exponent of the largest power of two that does not exceed a number of devices; −1 for none."""
    room = -1
    while devices > 0:
        devices >>= 1
        room += 1
    return room


@kernel
def bounded_log(value: float) -> float:
    """Logarithm of a ratio that stays within bounds."""
    if not value > 3.4e-4:
        return -LARGEST
    return float(min(LARGEST, np.log(value)))


@kernel(allocates=True)
def can_complete(
    t: PlannerTables, kind: int, free: IntArray, taken: BoolArray, stop: int, after: int, level: int, left: int
) -> bool:
    """Whether layers ``[0, stop)`` fit into at most ``left`` of the other domains, the farthest reaching first."""
    chosen = np.full(left, -1, dtype=np.int64)
    done = 0
    found = stop == 0
    while stop > 0 and done < left:
        best, best_first, best_depth = -1, stop, 0
        for k in range(free.size):
            if taken[k] or free[k] == 0:
                continue
            room, c = log2_floor(free[k]), t.domain_class[k]
            if best >= 0 and room == log2_floor(free[best]) and c == t.domain_class[best]:
                continue
            if not t.filled[kind, c, after, stop]:
                fill(t, kind, c, after, stop)
            for depth in range(STAGE_CHOICES):
                first = t.best[kind, c, after, stop, room, level, depth]
                if first < best_first:
                    best, best_first, best_depth = k, first, depth
        if best < 0:
            break
        taken[best] = True
        chosen[done] = best
        done += 1
        stop = best_first
        after += 2**best_depth
        found = stop == 0
    for i in range(done):
        taken[chosen[i]] = False
    return found


@kernel
def domain_allowed(t: PlannerTables, d: PartialPlans, r: int, k: int, taken: BoolArray) -> bool:
    """Whether a segment of a partial plan may begin in a domain."""
    kind, stop, after = d.kind[r], d.stop[r], d.after[r]
    room, c = log2_floor(d.free[r, k]), t.domain_class[k]
    left = t.max_segments - d.written[r] - 1
    if not t.filled[kind, c, after, stop]:
        fill(t, kind, c, after, stop)
    taken[k] = True
    allowed = False
    for v in range(BATCH_LEVELS):
        if allowed or (d.level[r] >= 0 and d.level[r] != v):
            continue
        for depth in range(STAGE_CHOICES):
            first = t.best[kind, c, after, stop, room, v, depth]
            if first == stop:
                continue
            if first == 0 or (left > 0 and can_complete(t, kind, d.free[r], taken, first, after + 2**depth, v, left)):
                allowed = True
                break
    taken[k] = False
    return allowed


@kernel(allocates=True)
def can_begin(t: PlannerTables, d: PartialPlans, r: int) -> bool:
    """Whether any plan can be completed from here."""
    taken = d.used[r].copy()
    found = False
    for k in range(d.free.shape[1]):
        if not found and d.free[r, k] > 0 and not taken[k]:
            found = domain_allowed(t, d, r, k, taken)
    return found


@kernel
def fastest_inside(t: PlannerTables, kind: int, k: int, free: int, after: int, first: int, stop: int) -> float:
    """Least seconds of a whole model in a domain among layouts that hold the layers."""
    c = t.domain_class[k]
    if not t.filled[kind, c, after, stop]:
        fill(t, kind, c, after, stop)
    least = np.inf
    for lay in range(t.sizes.size):
        if t.sizes[lay] > free:
            continue
        for q in range(FORMATS):
            if not t.formats[kind, c, q]:
                continue
            for v in range(BATCH_LEVELS):
                if t.reach[kind, c, after, stop, lay, q, v] > first:
                    continue
                least = min(least, t.whole_s[kind, c, lay, q, v])
    return float(least)


@kernel
def _worth(t: PlannerTables, d: PartialPlans, r: int, c: int, lay: int, q: int, v: int, work: float) -> float:
    """Estimate what a layout adds to R beyond a constant: utilisation less time, devices others wait for included."""
    kind = d.kind[r]
    time = t.whole_s[kind, c, lay, q, v] * work / t.base_step_s[kind]
    crowded = 1.0 + d.wishes[r, 2] * t.sizes[lay]
    return float(d.wishes[r, 1] * t.whole_use[kind, c, lay, q, v] - d.wishes[r, 0] * time * crowded)


@kernel
def worthiest(t: PlannerTables, d: PartialPlans, r: int, k: int, first: int, work: float) -> float:
    """Best of what the layouts of a domain add to R."""
    kind, stop, after, c = d.kind[r], d.stop[r], d.after[r], t.domain_class[k]
    best = -np.inf
    if first == stop:
        return best
    for lay in range(t.sizes.size):
        if t.sizes[lay] > d.free[r, k]:
            continue
        for q in range(FORMATS):
            for v in range(BATCH_LEVELS):
                if t.formats[kind, c, q] and t.reach[kind, c, after, stop, lay, q, v] <= first:
                    best = max(best, _worth(t, d, r, c, lay, q, v, work))
    return best


@kernel(allocates=True)
def domain_choices(t: PlannerTables, d: PartialPlans, rows: IntArray, mask: BoolArray, out: Float32Array) -> None:
    """Describe where the next segment may go; the last column ends the plan.

    Args:
        t: Tables.
        d: PartialPlans.
        rows: PartialPlans to describe, shape ``(n,)``.
        mask: Output, shape ``(n, K + 1)``.
        out: Output, shape ``(n, K, DOMAIN_CHOICE)``.
    """
    domains = d.free.shape[1]
    for i in range(rows.size):
        r = rows[i]
        kind, stop, after = d.kind[r], d.stop[r], d.after[r]
        n = t.cost.n_layers[kind]
        flops = t.cost.sizes[kind, 8]
        fresh = stop == n
        mask[i, domains] = fresh and d.written[r] > 0
        may_go_on = d.written[r] < t.max_segments
        taken = d.used[r].copy()
        for k in range(domains):
            mask[i, k] = False
            row = out[i, k]
            row[:] = 0.0
            if not may_go_on or taken[k] or d.free[r, k] == 0:
                continue
            mask[i, k] = domain_allowed(t, d, r, k, taken)
            c, room = t.domain_class[k], log2_floor(d.free[r, k])
            first = stop
            for v in range(BATCH_LEVELS):
                if d.level[r] < 0 or d.level[r] == v:
                    for depth in range(STAGE_CHOICES):
                        first = min(first, t.best[kind, c, after, stop, room, v, depth])
            row[C_ROOM] = 2.0**room / t.domains.rows[k].devices
            row[C_PART] = (stop - first) / n
            row[C_HOLDS] = 1.0 if first == 0 else 0.0
            row[C_WORTH] = max(-4.0, min(4.0, 4.0 * worthiest(t, d, r, k, first, flops[stop] / flops[n])))


@kernel(allocates=True)
def cut_choices(t: PlannerTables, d: PartialPlans, rows: IntArray, domain: IntArray, mask: BoolArray) -> None:
    """Say with which layer a segment in the chosen domain may begin.

    Args:
        t: Tables.
        d: PartialPlans.
        rows: PartialPlans that are asked about, shape ``(n,)``.
        domain: The chosen domain of each, shape ``(n,)``.
        mask: Output, shape ``(n, N)``.
    """
    for i in range(rows.size):
        r, k = rows[i], domain[i]
        kind, stop, after = d.kind[r], d.stop[r], d.after[r]
        c, room = t.domain_class[k], log2_floor(d.free[r, k])
        left = t.max_segments - d.written[r] - 1
        mask[i, :] = False
        taken = d.used[r].copy()
        taken[k] = True
        if not t.filled[kind, c, after, stop]:
            fill(t, kind, c, after, stop)
        for v in range(BATCH_LEVELS):
            if d.level[r] >= 0 and d.level[r] != v:
                continue
            for depth in range(STAGE_CHOICES):
                stages = 2**depth
                first = int(t.best[kind, c, after, stop, room, v, depth])
                if first == stop:
                    continue
                # The last layer before which the rest still fits; fewer open layers fit if more do.
                low, high = 0, stop - stages if left > 0 else 0
                while low < high:
                    half = (low + high + 1) // 2
                    if can_complete(t, kind, d.free[r], taken, half, after + stages, v, left):
                        low = half
                    else:
                        high = half - 1
                for at in range(first, min(low, stop - stages) + 1):
                    mask[i, at] = True


@kernel(allocates=True)
def segment_choices(
    t: PlannerTables,
    d: PartialPlans,
    rows: IntArray,
    domain: IntArray,
    first: IntArray,
    allowed: BoolArray,
    layouts: Float32Array,
    worth: Float32Array,
) -> None:
    """Say which layouts, formats and microbatch levels a segment may have, and what they are worth.

    Args:
        t: Tables.
        d: PartialPlans.
        rows: PartialPlans, shape ``(n,)``.
        domain: Their domains, shape ``(n,)``.
        first: First layer of the segments, shape ``(n,)``.
        allowed: Output, shape ``(n, L, 4 formats, 4 levels)``.
        layouts: Output, shape ``(n, L, LAYOUT_CHOICE)``.
        worth: Output, what the choice adds to R beyond a constant, estimated, shape ``(n, L, 4, 4)``.
    """
    for i in range(rows.size):
        r, k, at = rows[i], domain[i], first[i]
        kind, stop, after = d.kind[r], d.stop[r], d.after[r]
        n = t.cost.n_layers[kind]
        flops = t.cost.sizes[kind, 8]
        work = (flops[stop] - flops[at]) / flops[n]
        base = t.base_step_s[kind]
        c = t.domain_class[k]
        left = t.max_segments - d.written[r] - 1
        taken = d.used[r].copy()
        taken[k] = True
        if not t.filled[kind, c, after, stop]:
            fill(t, kind, c, after, stop)
        allowed[i] = False
        layouts[i] = 0.0
        completes = np.full((STAGE_CHOICES, BATCH_LEVELS), -1, dtype=np.int64)
        worth[i] = -LARGEST
        worthiest = -np.inf
        offered = np.zeros(t.sizes.size, dtype=np.bool_)
        least = np.full(t.best.shape[4], np.inf)
        most = np.full(t.best.shape[4], -np.inf)
        for lay in range(t.sizes.size):
            pp = t.layouts[lay, 2]
            if t.sizes[lay] > d.free[r, k] or pp > stop - at:
                continue
            depth = log2_floor(pp)
            for q in range(FORMATS):
                for v in range(BATCH_LEVELS):
                    if d.level[r] >= 0 and d.level[r] != v:
                        continue
                    whole = t.whole_s[kind, c, lay, q, v]
                    if not np.isfinite(whole) or t.reach[kind, c, after, stop, lay, q, v] > at:
                        continue
                    if completes[depth, v] < 0:
                        rest = at == 0 or (
                            left > 0 and can_complete(t, kind, d.free[r], taken, at, after + pp, v, left)
                        )
                        completes[depth, v] = 1 if rest else 0
                    if completes[depth, v] == 1:
                        allowed[i, lay, q, v] = True
                        size = log2_floor(t.sizes[lay])
                        least[size] = min(least[size], whole)
                        worth[i, lay, q, v] = max(-LARGEST, _worth(t, d, r, c, lay, q, v, work))
                        most[size] = max(most[size], worth[i, lay, q, v])
        # What takes clearly longer than another choice of no more devices and is worth less is not offered.
        for size in range(1, least.size):
            least[size] = min(least[size], least[size - 1])
        for lay in range(t.sizes.size):
            own, best, use = np.inf, -np.inf, 0.0
            for q in range(FORMATS):
                for v in range(BATCH_LEVELS):
                    if not allowed[i, lay, q, v]:
                        continue
                    whole = t.whole_s[kind, c, lay, q, v]
                    size = log2_floor(t.sizes[lay])
                    if whole > WORTHWHILE * least[size] and worth[i, lay, q, v] < most[size] - 0.01:
                        allowed[i, lay, q, v] = False
                        continue
                    best = max(best, worth[i, lay, q, v])
                    use = max(use, t.whole_use[kind, c, lay, q, v])
                    own = min(own, whole)
            if np.isfinite(own):
                row = layouts[i, lay]
                row[L_TIME] = bounded_log(own * work / base) / 2.0
                row[L_SIZE] = np.log2(t.sizes[lay]) / 4.0
                row[L_USE] = use
                row[L_WORTH] = best
                worthiest = max(worthiest, best)
                offered[lay] = True
        for lay in range(t.sizes.size):
            if offered[lay]:
                layouts[i, lay, L_WORTH] = max(-4.0, 8.0 * (layouts[i, lay, L_WORTH] - worthiest))
