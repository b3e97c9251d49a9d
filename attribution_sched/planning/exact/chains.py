"""Exact search over single pipelines: every order of domains, cut and layout whose bound beats the best plan known.

Plans are built from the last layer backwards, so that what is in flight, and with it memory, is known when a segment
is placed. A branch is left as soon as its bound (``bounds.py``) cannot beat the best plan found; what remains is priced
by the cost kernel itself. Nothing is merged or dropped on other grounds, so the result is the optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.cost import (
    BILL_USD,
    CARBON_G,
    ENERGY_J,
    MEMORY_RATIO,
    PLAN_COLUMNS,
    SEGMENT_SIZE,
    STEP_S,
    UTILISATION,
    Scratch,
    plan_cost,
    segment_pace_s,
)
from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, MICROBATCHES, PP, PRECISION, REPLICA, STOP, TP
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.exact.bounds import Floors, bottleneck
from attribution_sched.planning.exact.profiles import (
    BUSY_S,
    FIRST_END_S,
    FIRST_FORWARD_S,
    MAX_TAIL,
    SLOWEST_S,
    WORK_S,
)
from attribution_sched.planning.segment_table import Pricing
from attribution_sched.types import FloatArray, IntArray

G_TIME, G_UTILISATION, G_DOLLAR, G_JOULE, G_GRAM, G_CROWDING, G_CAP = range(7)
"""Positions in the array form of an ``Objective``."""

Z, R, STAGES, BILL, BUSY, SENDS, FORWARD, DEVICES, PACE, SLOWEST = range(10)
"""Numbers of a tail: bottleneck, round trip, stages, bill, compute time, what its first interface sends onward, its
first forward pass, devices; as a replica also the pace of its slowest segment and its slowest stage."""


@by_reference
class Space(NamedTuple):
    """The plans to choose from, for one microbatch size.

    Attributes:
        options: Layouts, shape ``(O, 4)``.
        choices: Layouts to try for every segment on a group of domains: how many, then which, shape
            ``(G, N + 1, N + 1, 1 + most)``.
        groups: Row of ``choices`` for each domain, shape ``(K,)``; −1 where nothing is free.
        classes: Hardware class of each domain, shape ``(K,)``.
        profiles: Shape ``(C, O, N + 1, N + 1, 10)``.
        floors: What remains to be placed takes at the least.
        micro: Samples of a microbatch.
        microbatches: Microbatches of a step.
        max_segments: Most domains in use.
    """

    options: IntArray
    choices: IntArray
    groups: IntArray
    classes: IntArray
    profiles: FloatArray
    floors: Floors
    micro: int
    microbatches: int
    max_segments: int


@by_reference
class Listing(NamedTuple):
    """The pipelines that may be a replica of a better plan, and what such a plan takes at the least.

    Attributes:
        wanted: Whether a search lists pipelines; else it prices them.
        batch: Samples per step.
        sync_s: Averaging all gradients over one link; a replica of s segments has s domains to do it.
        wait_s: Latency of doing so.
        sync_usd: Bill of doing so.
        least_norm: Ratio of the batch to the samples that replicas come to when shares are rounded.
        rival_speed: Most samples per second of forward work any other set of domains reaches without domain k,
            shape ``(K,)``.
        rows: Pipelines, shape ``(capacity, P, 11)``.
        counts: Segments of each, shape ``(capacity,)``.
        slowest: Seconds per microbatch of each one's slowest stage, shape ``(capacity,)``.
    """

    wanted: bool
    batch: float
    sync_s: float
    wait_s: float
    sync_usd: float
    least_norm: float
    rival_speed: FloatArray
    rows: IntArray
    counts: IntArray
    slowest: FloatArray


@kernel(inline="always")
def hop(pricing: Pricing, k: int, after: int, volume: float, m: int) -> tuple[float, float, float]:
    """Sending a microbatch from one domain to the next, its gradient back, and the bill of all of them."""
    prices, back = pricing.domains.price_usd_per_byte, 0.0
    there, usd = pricing.latency[k, after] + volume / pricing.bandwidth[k, after], m * volume * prices[k, after]
    if pricing.workload.training:
        back = pricing.latency[after, k] + volume / pricing.bandwidth[after, k]
        usd += m * volume * prices[after, k]
    return there, back, usd


@kernel
def write_segment(
    row: IntArray, domain: int, first: int, stop: int, layout: IntArray, micro: int, microbatches: int
) -> None:
    """Write a segment of a single pipeline."""
    row[DOMAIN], row[FIRST], row[STOP] = domain, first, stop
    row[DP], row[TP], row[PP], row[PRECISION] = layout[0], layout[1], layout[2], layout[3]
    row[REPLICA], row[MICROBATCH], row[MICROBATCHES] = 0, micro, microbatches


@kernel(allocates=True)
def price(pricing: Pricing, scratch: Scratch, goal: FloatArray, rows: IntArray, count: int, norm: float) -> float:
    """Value J of a plan; infinite if it does not fit memory or costs more than the cap."""
    plan_out, segment_out = np.zeros(len(PLAN_COLUMNS)), np.zeros((count, SEGMENT_SIZE))
    plan_cost(
        pricing.domains, pricing.runtime, pricing.power_law, pricing.tables, pricing.workload, pricing.bandwidth,
        pricing.latency, rows, count, 0, np.ones(count), False, scratch, plan_out, segment_out,
        np.zeros(pricing.bandwidth.shape),
    )  # fmt: skip
    if not plan_out[MEMORY_RATIO] <= 1.0 or plan_out[BILL_USD] * norm > goal[G_CAP]:
        return float(np.inf)
    devices = 0
    for p in range(count):
        devices += rows[p, DP] * rows[p, TP] * rows[p, PP]
    return float(
        norm
        * (
            goal[G_TIME] * plan_out[STEP_S] * (1.0 + goal[G_CROWDING] * devices)
            + goal[G_DOLLAR] * plan_out[BILL_USD]
            + goal[G_JOULE] * plan_out[ENERGY_J]
            + goal[G_GRAM] * plan_out[CARBON_G]
        )
        - goal[G_UTILISATION] * plan_out[UTILISATION]
    )


@kernel(allocates=True)
def least_objective(
    goal: FloatArray, step_s: float, busy_s: float, placed: int, more: int, bill_usd: float, devices: float
) -> float:
    """Bound on J from bounds on time and bill, and the compute time of the segments placed so far."""
    share = 1.0
    if goal[G_UTILISATION] > 0.0 and step_s > 0.0:
        share = min(1.0, (busy_s / step_s + more) / (placed + more))
    held = 1.0 + goal[G_CROWDING] * devices
    return float(goal[G_TIME] * step_s * held - goal[G_UTILISATION] * share + goal[G_DOLLAR] * bill_usd)


@kernel(allocates=True)
def search_chains(
    pricing: Pricing,
    space: Space,
    goal: FloatArray,
    best: float,
    budget: int,
    rows: IntArray,
    scratch: Scratch,
    listing: Listing,
    at: int,
) -> tuple[float, int, int, bool, int]:
    """Search all pipelines of one microbatch size for the best, or list those that may be a replica.

    Args:
        pricing: Prices plans.
        space: The plans to choose from; for a list, profiles are made for one microbatch in flight.
        goal: Objective as an array.
        best: Value to beat.
        budget: Segments to try before giving up.
        rows: Output, shape ``(P, 11)``: the best plan, if one better than ``best`` was found.
        scratch: Buffers of the cost kernel.
        listing: Where to write replicas, if they are wanted.
        at: Where to begin writing.

    Returns:
        Best value, segments tried, plans priced, whether the search is complete, and where writing ended.
    """
    tables, training, model = pricing.tables, pricing.workload.training, pricing.workload.model
    k_count, floors = space.groups.shape[0], space.floors
    depth_max, m, micro = space.max_segments, space.microbatches, space.micro
    # Per depth: the segment chosen, and the label of the tail that begins with it.
    domain = np.full(depth_max, -1, dtype=np.int64)
    option = np.full(depth_max, -1, dtype=np.int64)
    start = np.zeros(depth_max + 1, dtype=np.int64)
    cursor = np.zeros((depth_max + 1, 3), dtype=np.int64)  # domain, option, first layer
    label = np.zeros((depth_max + 1, 10))
    used = np.zeros(k_count, dtype=np.bool_)
    trial = np.zeros((depth_max, rows.shape[1]), dtype=np.int64)
    row = np.zeros(rows.shape[1], dtype=np.int64)
    tried, priced, depth = 0, 0, 0
    start[0] = tables.n_layers[model]
    cursor[0, 2] = 0 if depth_max == 1 else start[0] - 1
    while depth >= 0:
        # The tail placed so far begins at layer ``end``; find the next segment to put before it.
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
            return best, tried, priced, False, at
        segment, layout = space.profiles[space.classes[k], o, i, end], space.options[o]
        tail, head = label[depth], label[depth + 1]
        if segment[MAX_TAIL] < (0.0 if listing.wanted else tail[STAGES]):
            continue
        there, back, bill = 0.0, 0.0, 0.0
        if depth > 0:
            volume = micro * (4.0 if layout[3] == 0 else 2.0) * tables.boundary[model, end]
            there, back, bill = hop(pricing, k, domain[depth - 1], volume, m)
        bill += tail[BILL]
        round_s = segment[WORK_S] + there + tail[R] + back
        busy = tail[BUSY] + m * segment[BUSY_S]
        devices = tail[DEVICES] + layout[0] * layout[1] * layout[2]
        if listing.wanted:
            write_segment(row, k, i, end, layout, micro, 1)
            head[PACE] = max(tail[PACE], segment_pace_s(tables, pricing.domains, model, row))
            head[SLOWEST] = max(tail[SLOWEST], segment[SLOWEST_S])
            # A replica gets its share of the batch by speed; what stands against it at most leaves it at the least
            # this.
            rivals = listing.rival_speed[k]
            for d in range(depth):
                rivals = min(rivals, listing.rival_speed[domain[d]])
            share = 1.0 / (1.0 + rivals * head[PACE])
            fewest = max(1, int(np.floor(listing.batch * share / micro - 0.5)))
            bound = bottleneck(segment, fewest, training, tail[Z], tail[R], tail[STAGES], there, back)
            sync = listing.sync_s / (depth + 1 if i == 0 else depth_max) + listing.wait_s
            least = goal[G_TIME] * (bound + sync) + goal[G_DOLLAR] * listing.sync_usd
            least = listing.least_norm * least - goal[G_UTILISATION]
        else:
            bound = bottleneck(segment, m, training, tail[Z], tail[R], tail[STAGES], there, back)
            if depth > 0 and tail[SENDS] > 0.0:
                bound = max(bound, segment[WORK_S] + there + tail[FORWARD] + m * (back + tail[SENDS]))
            more = depth_max - depth - 1
            step, later = bound + segment[FIRST_END_S], bill
            if i > 0:
                step = max(bound + floors.work_s[i], m * floors.share_s[i] / more)
                step = max(step, round_s + floors.work_s[i] + floors.links_s[k, i] + (m - 1) * floors.link_s[k, i])
                later = bill + m * floors.bill_usd[k, i]
            if later > goal[G_CAP]:
                continue
            further = 1 if i > 0 else 0
            least = least_objective(goal, step, busy, depth + 1, more * further, later, devices + further)
        if not least < best:
            continue
        domain[depth], option[depth] = k, o
        if i > 0:
            used[k] = True
            head[Z], head[R], head[STAGES], head[BILL] = bound, round_s, tail[STAGES] + layout[2], bill
            # Where a segment has several stages, the first sends onward inside its domain.
            head[BUSY], head[SENDS] = busy, there if layout[2] == 1 else 0.0
            head[FORWARD], head[DEVICES] = segment[FIRST_FORWARD_S], devices
            depth += 1
            start[depth] = i
            cursor[depth, 0] = 0
            cursor[depth, 1] = 0
            cursor[depth, 2] = 0 if depth + 1 >= depth_max else i - 1
            continue
        if listing.wanted and at >= listing.rows.shape[0]:
            return best, tried, priced, False, at
        plan = listing.rows[at] if listing.wanted else trial
        for p in range(depth + 1):
            level = depth - p
            first = 0 if p == 0 else start[level + 1]
            write_segment(
                plan[p], domain[level], first, start[level], space.options[option[level]], micro,
                1 if listing.wanted else m,
            )  # fmt: skip
        if listing.wanted:
            listing.counts[at], listing.slowest[at] = depth + 1, head[SLOWEST]
            at += 1
            continue
        priced += 1
        value = price(pricing, scratch, goal, trial, depth + 1, 1.0)
        if value < best:
            best = value
            rows[:, :] = 0
            rows[: depth + 1] = trial[: depth + 1]
    return best, tried, priced, True, at
