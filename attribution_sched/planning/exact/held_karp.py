"""Held–Karp over domains: the least bound any pipeline can have, and the pipelines that come near it.

A tail of the pipeline is known by the set of its domains, the first of them and its first layer; of tails that agree in
these and in their number of stages only those are kept that no other beats in round trip, bottleneck (and bill): the
Pareto labels of ``bounds.py``. So orders of the same domains are merged, and work grows as 2^K instead of K!. The
least bound over complete pipelines is a bound on the optimum; the labels found are priced by the recurrence.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.kernels import kernel
from attribution_sched.planning.exact.bounds import bottleneck
from attribution_sched.planning.exact.chains import G_CAP, G_DOLLAR, G_TIME, Space, hop, write_segment
from attribution_sched.planning.exact.profiles import FIRST_END_S, FIRST_FORWARD_S, MAX_TAIL, SLOWEST_S, WORK_S
from attribution_sched.planning.segment_table import Pricing
from attribution_sched.types import FloatArray, IntArray

Z, R, SENDS, BILL = range(4)
"""Numbers of a label: bottleneck, round trip, what its first interface sends onward (after one forward pass), bill."""

STAGES, PARENT, L_DOMAIN, L_FIRST, L_OPTION, NEXT = range(6)


@kernel(allocates=True)
def _insert(
    heads: IntArray,
    state: int,
    label: FloatArray,
    stages: int,
    numbers: FloatArray,
    links: IntArray,
    with_bill: bool,
    slack: float,
    width: int,
) -> bool:
    """Say whether a label is worth keeping in a state; labels it beats are unlinked."""
    before = -1
    better = 0
    at = heads[state]
    while at >= 0:
        following = links[at, NEXT]
        if links[at, STAGES] == stages:
            other = numbers[at]
            beaten, beats = True, True
            for c in range(4 if with_bill else 3):
                margin = slack if c < BILL else 1.0
                beaten = beaten and other[c] <= margin * label[c]
                beats = beats and label[c] <= other[c]
            if beaten:
                return False
            if beats:
                if before < 0:
                    heads[state] = following
                else:
                    links[before, NEXT] = following
                at = following
                continue
        if numbers[at, Z] <= label[Z]:
            better += 1
        before = at
        at = following
    return better < width


@kernel(allocates=True)
def held_karp(
    pricing: Pricing,
    space: Space,
    goal: FloatArray,
    best: float,
    tolerance: float,
    stride: int,
    width: int,
    ids: IntArray,
    masks: IntArray,
    ranks: IntArray,
    numbers: FloatArray,
    links: IntArray,
    rows: IntArray,
    counts: IntArray,
    bounds: FloatArray,
) -> tuple[float, int, int, bool]:
    """Run the dynamic programme for one microbatch size; utilisation is left out of the objective.

    Args:
        pricing: Links, tables and the task.
        space: The plans to choose from.
        goal: Objective as an array.
        best: Value of the best plan known; labels that cannot beat it are left out.
        tolerance: A label is dropped if another is at most this share worse; every segment may add as much to the
            distance between the least bound and the one returned.
        stride: Cuts are tried before every ``stride``-th layer; above 1 the bound holds for such cuts only.
        width: Labels kept per state; with fewer than there are, the bound is none.
        ids: The domains that may be used; sets are bit masks over positions in it.
        masks: Sets of domains with at most ``max_segments`` members, smallest first.
        ranks: Row of each set in ``masks``.
        numbers: Buffer, shape ``(labels, 4)``.
        links: Buffer, shape ``(labels, 6)``.
        rows: Output: plans of the complete labels with the least bounds, shape ``(most, P, 11)``.
        counts: Output: their segments, shape ``(most,)``.
        bounds: Output: their bounds, shape ``(most,)``; infinite where unused.

    Returns:
        Least bound over all complete pipelines (at most ``best``), complete pipelines written, labels made, and
        whether the buffers sufficed.
    """
    tables, training = pricing.tables, pricing.workload.training
    model = pricing.workload.model
    n_layers = tables.n_layers[model]
    boundary = tables.boundary[model]
    k_count, m, micro = ids.shape[0], space.microbatches, space.micro
    floors = space.floors
    with_bill = goal[G_DOLLAR] > 0.0 or goal[G_CAP] < np.inf
    heads = np.full(masks.shape[0] * k_count * (n_layers + 1), -1, dtype=np.int64)
    label = np.zeros(4)
    slack = 1.0 + tolerance
    made, written = 0, 0
    least_bound = best
    worst = 0
    bounds[:] = np.inf
    for rank in range(-1, masks.shape[0]):
        mask = 0 if rank < 0 else masks[rank]
        placed = 0
        for k in range(k_count):
            placed += (mask >> k) & 1
        if placed >= space.max_segments:
            continue
        more = space.max_segments - placed - 1
        for first in range(k_count if rank >= 0 else 1):
            if rank >= 0 and (mask >> first) & 1 == 0:
                continue
            after = ids[first]
            for end in range(1, n_layers + 1) if rank >= 0 else range(n_layers, n_layers + 1):
                parent = heads[(rank * k_count + first) * (n_layers + 1) + end] if rank >= 0 else -2
                while parent != -1:
                    tail_z, tail_r, tail_sends, tail_bill, tail_stages = 0.0, 0.0, 0.0, 0.0, 0
                    if parent >= 0:
                        tail_z, tail_r, tail_sends, tail_bill = numbers[parent]
                        tail_stages = links[parent, STAGES]
                    for position in range(k_count):
                        if (mask >> position) & 1 == 1:
                            continue
                        k = ids[position]
                        target = ranks[mask | (1 << position)]
                        for i in range((end - 1) // stride * stride if more > 0 else 0, -1, -stride):
                            listed = space.choices[space.groups[k], i, end]
                            for c in range(1, listed[0] + 1):
                                o = listed[c]
                                segment = space.profiles[space.classes[k], o, i, end]
                                if segment[MAX_TAIL] < tail_stages:
                                    continue
                                there, back, bill = 0.0, 0.0, 0.0
                                if rank >= 0:
                                    volume = micro * (4.0 if space.options[o, 3] == 0 else 2.0) * boundary[end]
                                    there, back, bill = hop(pricing, k, after, volume, m)
                                bill += tail_bill
                                # Most tails are too slow by a glance.
                                glance = max(m * segment[SLOWEST_S], tail_z + segment[WORK_S] + there + back)
                                if not goal[G_TIME] * (glance + floors.work_s[i]) + goal[G_DOLLAR] * bill < best:
                                    continue
                                bound = bottleneck(
                                    segment, m, training, tail_z, tail_r, float(tail_stages), there, back
                                )
                                if tail_sends > 0.0:
                                    bound = max(bound, segment[WORK_S] + there + m * back + tail_sends)
                                round_s = segment[WORK_S] + there + tail_r + back
                                step, later = bound + segment[FIRST_END_S], bill
                                if i > 0:
                                    step = max(bound + floors.work_s[i], m * floors.share_s[i] / more)
                                    wait = floors.links_s[k, i] + (m - 1) * floors.link_s[k, i]
                                    step = max(step, round_s + floors.work_s[i] + wait)
                                    later = bill + m * floors.bill_usd[k, i]
                                value = goal[G_TIME] * step + goal[G_DOLLAR] * later
                                if later > goal[G_CAP] or not value < best:
                                    continue
                                if i == 0:
                                    least_bound = min(least_bound, value)
                                    if written >= rows.shape[0] and not value < bounds[worst]:
                                        continue
                                    at = written if written < rows.shape[0] else worst
                                    if written < rows.shape[0]:
                                        written += 1
                                    _write(space, links, parent, k, o, end, micro, m, rows[at])
                                    counts[at] = placed + 1
                                    bounds[at] = value
                                    if written == rows.shape[0]:
                                        worst = int(np.argmax(bounds))
                                    continue
                                label[Z] = bound
                                label[R] = round_s
                                # Where a segment has several stages, the first sends onward inside its domain.
                                onward = m * there if space.options[o, 2] == 1 else 0.0
                                label[SENDS] = segment[FIRST_FORWARD_S] + onward if onward > 0.0 else 0.0
                                label[BILL] = bill
                                state = (target * k_count + position) * (n_layers + 1) + i
                                stages = tail_stages + space.options[o, 2]
                                if not _insert(heads, state, label, stages, numbers, links, with_bill, slack, width):
                                    continue
                                if made >= numbers.shape[0]:
                                    return least_bound, written, made, False
                                numbers[made] = label
                                links[made, STAGES] = stages
                                links[made, PARENT] = parent
                                links[made, L_DOMAIN] = k
                                links[made, L_FIRST] = i
                                links[made, L_OPTION] = o
                                links[made, NEXT] = heads[state]
                                heads[state] = made
                                made += 1
                    parent = links[parent, NEXT] if parent >= 0 else -1
    return least_bound, written, made, True


@kernel(allocates=True)
def _write(
    space: Space, links: IntArray, parent: int, domain: int, option: int, stop: int, micro: int, m: int, plan: IntArray
) -> None:
    """Write out the pipeline that begins with a segment and goes on with the tail of a label."""
    plan[:, :] = 0
    first, p = 0, 0
    while True:
        write_segment(plan[p], domain, first, stop, space.options[option], micro, m)
        if parent < 0:
            return
        domain = links[parent, L_DOMAIN]
        option = links[parent, L_OPTION]
        first = links[parent, L_FIRST]
        parent = links[parent, PARENT]
        stop = links[parent, L_FIRST] if parent >= 0 else space.choices.shape[1] - 1
        p += 1
