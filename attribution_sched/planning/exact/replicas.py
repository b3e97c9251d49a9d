"""Exact search over plans that replicate the model across domains and average gradients over the network.

Pipelines that could be a replica are listed first, each with a bound on the step of any plan it is part of; then every
set of disjoint pipelines is priced whose bounds beat the best plan known. Between clouds, gradients are so large
against links that for most tasks the list is empty.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.cost import SEGMENT_SIZE, Scratch, plan_cost, segment_pace_s, share_batch
from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, MICROBATCHES, PP, PRECISION, REPLICA, STOP, TP
from attribution_sched.kernels import kernel
from attribution_sched.planning.exact.bounds import bottleneck
from attribution_sched.planning.exact.chains import (
    G_DOLLAR,
    G_TIME,
    G_UTILISATION,
    Pricing,
    Space,
    objective_of,
)
from attribution_sched.planning.exact.profiles import MAX_TAIL, SLOWEST_S, WORK_S
from attribution_sched.types import FloatArray, IntArray


@kernel(allocates=True)
def list_chains(
    pricing: Pricing,
    space: Space,
    goal: FloatArray,
    best: float,
    batch: float,
    sync_s: float,
    wait_s: float,
    sync_usd: float,
    least_norm: float,
    rival_speed: FloatArray,
    rows: IntArray,
    counts: IntArray,
    slowest: FloatArray,
    at: int,
    budget: int,
) -> tuple[int, int, bool]:
    """List the pipelines of one microbatch size that may be a replica of a better plan.

    Args:
        pricing: Prices plans.
        space: The plans to choose from; profiles are made for one microbatch in flight.
        goal: Objective as an array.
        best: Value to beat.
        batch: Samples per step.
        sync_s: Least time of averaging all gradients over one link; a replica of s segments has s domains to do it.
        wait_s: Least latency of doing so.
        sync_usd: Least bill of doing so.
        least_norm: Least ratio of the batch to the samples that replicas come to when shares are rounded.
        rival_speed: Most samples per second of forward work any other set of domains reaches without domain k,
            shape ``(K,)``.
        rows: Output, shape ``(capacity, P, 11)``.
        counts: Output: segments of each pipeline, shape ``(capacity,)``.
        slowest: Output: seconds per microbatch of each pipeline's slowest stage, shape ``(capacity,)``.
        at: Where to begin writing.
        budget: Segments to try before giving up.

    Returns:
        Where writing ended, segments tried, and whether the list is complete.
    """
    tables, training = pricing.tables, pricing.workload.training
    model = pricing.workload.model
    n_layers = tables.n_layers[model]
    boundary = tables.boundary[model]
    k_count = space.groups.shape[0]
    depth_max, micro = space.max_segments - 1, space.micro
    domain = np.full(depth_max, -1, dtype=np.int64)
    option = np.full(depth_max, -1, dtype=np.int64)
    start = np.zeros(depth_max + 1, dtype=np.int64)
    cursor = np.zeros((depth_max + 1, 3), dtype=np.int64)  # domain, option, first layer
    label = np.zeros((depth_max + 1, 5))  # Z, R, stages, pace, slowest stage
    used = np.zeros(k_count, dtype=np.bool_)
    row = np.zeros(rows.shape[2], dtype=np.int64)
    tried, depth = 0, 0
    start[0] = n_layers
    cursor[0, 2] = 0 if depth_max == 1 else n_layers - 1
    while depth >= 0:
        end = start[depth]
        k, i = cursor[depth, 0], cursor[depth, 2]
        if k >= k_count:
            depth -= 1
            if depth >= 0:
                used[domain[depth]] = False
            continue
        if used[k] or space.groups[k] < 0 or i < 0:
            cursor[depth, 0] += 1
            cursor[depth, 1] = 0
            cursor[depth, 2] = 0 if depth + 1 >= depth_max else end - 1
            continue
        listed = space.choices[space.groups[k], i, end]
        cursor[depth, 1] += 1
        if cursor[depth, 1] > listed[0]:
            cursor[depth, 1] = 0
            cursor[depth, 2] -= 1
            continue
        o = listed[cursor[depth, 1]]
        tried += 1
        if tried > budget:
            return at, tried, False
        segment = space.profiles[space.classes[k], o, i, end]
        tail = label[depth]
        if segment[MAX_TAIL] < 0.0:
            continue
        there, back = 0.0, 0.0
        if depth > 0:
            after = domain[depth - 1]
            volume = micro * (4.0 if space.options[o, 3] == 0 else 2.0) * boundary[end]
            there = pricing.latency[k, after] + volume / pricing.bandwidth[k, after]
            if training:
                back = pricing.latency[after, k] + volume / pricing.bandwidth[after, k]
        row[DOMAIN] = k
        row[FIRST] = i
        row[STOP] = end
        row[DP] = space.options[o, 0]
        row[TP] = space.options[o, 1]
        row[PP] = space.options[o, 2]
        row[PRECISION] = space.options[o, 3]
        pace = max(tail[3], segment_pace_s(tables, pricing.domains, model, row))
        # A replica gets its share of the batch by speed; what stands against it at most leaves it at the least this.
        rivals = rival_speed[k]
        for d in range(depth):
            rivals = min(rivals, rival_speed[domain[d]])
        share = 1.0 / (1.0 + rivals * pace)
        fewest = max(1, int(np.floor(batch * share / micro - 0.5)))
        bound = bottleneck(segment, fewest, training, tail[0], tail[1], tail[2], there, back)
        segments = depth + 1 if i == 0 else depth_max
        sync = sync_s / segments + wait_s
        least = least_norm * (goal[G_TIME] * (bound + sync) + goal[G_DOLLAR] * sync_usd)
        if not least - goal[G_UTILISATION] < best:
            continue
        domain[depth] = k
        option[depth] = o
        nxt = label[depth + 1]
        nxt[0] = bound
        nxt[1] = segment[WORK_S] + there + tail[1] + back
        nxt[2] = tail[2] + space.options[o, 2]
        nxt[3] = pace
        nxt[4] = max(tail[4], segment[SLOWEST_S])
        if i > 0:
            used[k] = True
            depth += 1
            start[depth] = i
            cursor[depth, 0] = 0
            cursor[depth, 1] = 0
            cursor[depth, 2] = 0 if depth + 1 >= depth_max else i - 1
            continue
        if at >= rows.shape[0]:
            return at, tried, False
        for p in range(depth + 1):
            level = depth - p
            chosen = space.options[option[level]]
            target = rows[at, p]
            target[DOMAIN] = domain[level]
            target[FIRST] = 0 if p == 0 else start[level + 1]
            target[STOP] = start[level]
            target[DP] = chosen[0]
            target[TP] = chosen[1]
            target[PP] = chosen[2]
            target[PRECISION] = chosen[3]
            target[MICROBATCH] = micro
            target[MICROBATCHES] = 1
        counts[at] = depth + 1
        slowest[at] = nxt[4]
        at += 1
    return at, tried, True


@kernel(allocates=True)
def combine(
    pricing: Pricing,
    goal: FloatArray,
    best: float,
    batch: float,
    sync_s: float,
    wait_s: float,
    sync_usd: float,
    max_segments: int,
    chains: IntArray,
    counts: IntArray,
    slowest: FloatArray,
    found: int,
    budget: int,
    rows: IntArray,
    scratch: Scratch,
) -> tuple[float, int, int, bool]:
    """Price every set of disjoint pipelines that may beat the best plan; arguments as above.

    Replicas form a ring, so the one with the lowest-numbered domain may come first.

    Returns:
        Best value, sets tried, plans priced, and whether the search is complete.
    """
    k_count = pricing.bandwidth.shape[0]
    masks = np.zeros(found, dtype=np.int64)
    lowest = np.zeros(found, dtype=np.int64)
    for c in range(found):
        lowest[c] = k_count
        for p in range(counts[c]):
            masks[c] |= 1 << chains[c, p, DOMAIN]
            lowest[c] = min(lowest[c], chains[c, p, DOMAIN])
    picked = np.zeros(max_segments + 1, dtype=np.int64)
    cursor = np.zeros(max_segments + 1, dtype=np.int64)
    mask = np.zeros(max_segments + 1, dtype=np.int64)
    size = np.zeros(max_segments + 1, dtype=np.int64)
    trial = np.zeros((max_segments, chains.shape[2]), dtype=np.int64)
    plan_out = np.zeros(10)
    segment_out = np.zeros((max_segments, SEGMENT_SIZE))
    traffic = np.zeros((k_count, k_count))
    slowdown = np.ones(max_segments)
    tried, priced, depth = 0, 0, 0
    while depth >= 0:
        c = cursor[depth]
        if c >= found:
            depth -= 1
            continue
        cursor[depth] += 1
        tried += 1
        if tried > budget:
            return best, tried, priced, False
        if size[depth] + counts[c] > max_segments or masks[c] & mask[depth] != 0:
            continue
        if depth > 0 and lowest[c] < lowest[picked[0]]:
            continue
        picked[depth] = c
        mask[depth + 1] = mask[depth] | masks[c]
        size[depth + 1] = size[depth] + counts[c]
        if depth > 0:
            total = 0
            for r in range(depth + 1):
                for p in range(counts[picked[r]]):
                    trial[total] = chains[picked[r], p]
                    trial[total, REPLICA] = r
                    total += 1
            share_batch(pricing.tables, pricing.domains, pricing.workload.model, batch, trial, total, depth + 1)
            samples, longest, at, fewest = 0.0, 0.0, 0, max_segments
            for r in range(depth + 1):
                longest = max(longest, trial[at, MICROBATCHES] * slowest[picked[r]])
                samples += trial[at, MICROBATCHES] * trial[at, MICROBATCH]
                at += counts[picked[r]]
                fewest = min(fewest, counts[picked[r]])
            norm = batch / samples
            step = norm * (longest + sync_s / fewest + wait_s)
            if goal[G_TIME] * step - goal[G_UTILISATION] + goal[G_DOLLAR] * norm * sync_usd < best:
                traffic[:, :] = 0.0
                plan_cost(
                    pricing.domains, pricing.runtime, pricing.power_law, pricing.tables, pricing.workload,
                    pricing.bandwidth, pricing.latency, trial, total, 0, slowdown, False, scratch, plan_out,
                    segment_out, traffic,
                )  # fmt: skip
                priced += 1
                devices = 0
                for p in range(total):
                    devices += trial[p, DP] * trial[p, TP] * trial[p, PP]
                value = objective_of(goal, plan_out, norm, devices)
                if value < best:
                    best = value
                    rows[:, :] = 0
                    rows[:total] = trial[:total]
        if size[depth + 1] < max_segments:
            depth += 1
            cursor[depth] = 0
    return best, tried, priced, True
