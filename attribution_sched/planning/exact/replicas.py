"""Exact search over plans that replicate the model across domains and average gradients over the network.

Pipelines that could be a replica are listed first, each with a bound on the step of any plan it is part of; then every
set of disjoint pipelines is priced whose bounds beat the best plan known. Between clouds, gradients are so large
against links that for most tasks the list is empty.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.cost import Scratch, share_batch
from attribution_sched.cluster.plan import DOMAIN, MICROBATCH, MICROBATCHES, REPLICA
from attribution_sched.kernels import kernel
from attribution_sched.planning.exact.chains import G_DOLLAR, G_TIME, G_UTILISATION, Listing, price
from attribution_sched.planning.segment_table import Pricing
from attribution_sched.types import FloatArray, IntArray


@kernel(allocates=True)
def combine(
    pricing: Pricing,
    goal: FloatArray,
    best: float,
    listing: Listing,
    found: int,
    budget: int,
    rows: IntArray,
    scratch: Scratch,
) -> tuple[float, int, int, bool]:
    """Price every set of disjoint pipelines that may beat the best plan.

    Replicas form a ring, so the one with the lowest-numbered domain may come first.

    Args:
        pricing: Prices plans.
        goal: Objective as an array.
        best: Value to beat.
        listing: The pipelines.
        found: How many there are.
        budget: Sets to try before giving up.
        rows: Output, shape ``(P, 11)``: the best plan, if one better than ``best`` was found.
        scratch: Buffers of the cost kernel.

    Returns:
        Best value, sets tried, plans priced, and whether the search is complete.
    """
    chains, counts, slowest, batch = listing.rows, listing.counts, listing.slowest, listing.batch
    max_segments = rows.shape[0]
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
            step = norm * (longest + listing.sync_s / fewest + listing.wait_s)
            if goal[G_TIME] * step - goal[G_UTILISATION] + goal[G_DOLLAR] * norm * listing.sync_usd < best:
                priced += 1
                value = price(pricing, scratch, goal, trial, total, norm)
                if value < best:
                    best = value
                    rows[:, :] = 0
                    rows[:total] = trial[:total]
        if size[depth + 1] < max_segments:
            depth += 1
            cursor[depth] = 0
    return best, tried, priced, True
