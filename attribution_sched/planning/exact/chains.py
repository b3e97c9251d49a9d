"""Exact search over single pipelines: every order of domains, cut and layout whose bound beats the best plan known.

Plans are built from the last layer backwards, so that what is in flight, and with it memory, is known when a segment
is placed. A branch is left as soon as its bound (``bounds.py``) cannot beat the best plan found; what remains is priced
by the cost kernel itself. Nothing is merged or dropped on other grounds, so the result is the optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import (
    BILL_USD,
    CARBON_G,
    ENERGY_J,
    MEMORY_RATIO,
    SEGMENT_SIZE,
    STEP_S,
    UTILISATION,
    DomainArrays,
    PowerArrays,
    RuntimeArrays,
    Scratch,
    Workload,
    plan_cost,
)
from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, MICROBATCHES, PP, PRECISION, REPLICA, STOP, TP
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.exact.bounds import Floors, bottleneck
from attribution_sched.planning.exact.profiles import BUSY_S, FIRST_END_S, FIRST_FORWARD_S, MAX_TAIL, WORK_S
from attribution_sched.types import FloatArray, IntArray

G_TIME, G_UTILISATION, G_DOLLAR, G_JOULE, G_GRAM, G_CROWDING, G_CAP = range(7)
"""Positions in the array form of an ``Objective``."""


@by_reference
class Pricing(NamedTuple):
    """What the cost kernel needs to price a plan."""

    domains: DomainArrays
    runtime: RuntimeArrays
    power_law: PowerArrays
    tables: CostTables
    workload: Workload
    bandwidth: FloatArray
    latency: FloatArray


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


@kernel(allocates=True)
def objective_of(goal: FloatArray, plan_out: FloatArray, norm: float, devices: int) -> float:
    """Value J of a priced plan; infinite if it does not fit memory or costs more than the cap."""
    if not plan_out[MEMORY_RATIO] <= 1.0 or plan_out[BILL_USD] * norm > goal[G_CAP]:
        return float(np.inf)
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
) -> tuple[float, int, int, bool]:
    """Search all pipelines of one microbatch size.

    Args:
        pricing: Prices plans.
        space: The plans to choose from.
        goal: Objective as an array.
        best: Value to beat.
        budget: Segments to try before giving up.
        rows: Output, shape ``(P, 11)``: the best plan, if one better than ``best`` was found.
        scratch: Buffers of the cost kernel.

    Returns:
        Best value, segments tried, plans priced, and whether the search is complete.
    """
    tables, training = pricing.tables, pricing.workload.training
    n_layers = tables.n_layers[pricing.workload.model]
    boundary = tables.boundary[pricing.workload.model]
    prices = pricing.domains.price_usd_per_byte
    k_count = space.groups.shape[0]
    depth_max, m, micro = space.max_segments, space.microbatches, space.micro
    floors = space.floors
    # Per depth: the segment chosen, and the label of the tail that begins with it.
    domain = np.full(depth_max, -1, dtype=np.int64)
    option = np.full(depth_max, -1, dtype=np.int64)
    start = np.zeros(depth_max + 1, dtype=np.int64)
    cursor_k = np.zeros(depth_max + 1, dtype=np.int64)
    cursor_o = np.zeros(depth_max + 1, dtype=np.int64)
    cursor_i = np.zeros(depth_max + 1, dtype=np.int64)
    label = np.zeros((depth_max + 1, 8))  # Z, R, stages, bill, busy, onward send, first forward, devices
    used = np.zeros(k_count, dtype=np.bool_)
    trial = np.zeros((depth_max, rows.shape[1]), dtype=np.int64)
    plan_out = np.zeros(10)
    segment_out = np.zeros((depth_max, SEGMENT_SIZE))
    traffic = np.zeros((k_count, k_count))
    slowdown = np.ones(depth_max)
    tried, priced = 0, 0
    depth = 0
    start[0] = n_layers
    cursor_i[0] = 0 if depth_max == 1 else n_layers - 1
    while depth >= 0:
        # The tail placed so far begins at layer ``end``; find the next segment to put before it.
        end = start[depth]
        k, i = cursor_k[depth], cursor_i[depth]
        if k >= k_count:
            depth -= 1
            if depth >= 0:
                used[domain[depth]] = False
            continue
        if used[k] or space.groups[k] < 0 or i < 0:
            cursor_k[depth] += 1
            cursor_i[depth] = 0 if depth + 1 >= depth_max else end - 1
            cursor_o[depth] = 0
            continue
        listed = space.choices[space.groups[k], i, end]
        cursor_o[depth] += 1
        if cursor_o[depth] > listed[0]:
            cursor_i[depth] -= 1
            cursor_o[depth] = 0
            continue
        o = listed[cursor_o[depth]]
        tried += 1
        if tried > budget:
            return best, tried, priced, False
        segment = space.profiles[space.classes[k], o, i, end]
        tail = label[depth]
        if segment[MAX_TAIL] < tail[2]:
            continue
        there, back, bill, onward = 0.0, 0.0, tail[3], 0.0
        if depth > 0:
            after = domain[depth - 1]
            volume = micro * (4.0 if space.options[o, 3] == 0 else 2.0) * boundary[end]
            there = pricing.latency[k, after] + volume / pricing.bandwidth[k, after]
            bill += m * volume * prices[k, after]
            if training:
                back = pricing.latency[after, k] + volume / pricing.bandwidth[after, k]
                bill += m * volume * prices[after, k]
            onward = there
        if bill > goal[G_CAP]:
            continue
        bound = bottleneck(segment, m, training, tail[0], tail[1], tail[2], there, back)
        if depth > 0 and tail[5] > 0.0:
            bound = max(bound, segment[WORK_S] + there + tail[6] + m * (back + tail[5]))
        round_s = segment[WORK_S] + there + tail[1] + back
        busy = tail[4] + m * segment[BUSY_S]
        devices = tail[7] + space.options[o, 0] * space.options[o, 1] * space.options[o, 2]
        if i == 0:
            least = least_objective(goal, bound + segment[FIRST_END_S], busy, depth + 1, 0, bill, devices)
        else:
            more = depth_max - depth - 1
            step = max(bound + floors.work_s[i], m * floors.share_s[i] / more)
            step = max(step, round_s + floors.work_s[i] + floors.links_s[k, i] + (m - 1) * floors.link_s[k, i])
            least = least_objective(goal, step, busy, depth + 1, more, bill + m * floors.bill_usd[k, i], devices + 1)
            if bill + m * floors.bill_usd[k, i] > goal[G_CAP]:
                continue
        if not least < best:
            continue
        domain[depth] = k
        option[depth] = o
        if i > 0:
            used[k] = True
            nxt = label[depth + 1]
            nxt[0] = bound
            nxt[1] = round_s
            nxt[2] = tail[2] + space.options[o, 2]
            nxt[3] = bill
            nxt[4] = busy
            # Where a segment has several stages, the first sends onward inside its domain.
            nxt[5] = onward if space.options[o, 2] == 1 else 0.0
            nxt[6] = segment[FIRST_FORWARD_S]
            nxt[7] = devices
            depth += 1
            start[depth] = i
            cursor_k[depth] = 0
            cursor_o[depth] = 0
            cursor_i[depth] = 0 if depth + 1 >= depth_max else i - 1
            continue
        for p in range(depth + 1):
            level = depth - p
            row = trial[p]
            row[DOMAIN] = domain[level]
            row[FIRST] = 0 if p == 0 else start[level + 1]
            row[STOP] = start[level]
            row[DP] = space.options[option[level], 0]
            row[TP] = space.options[option[level], 1]
            row[PP] = space.options[option[level], 2]
            row[PRECISION] = space.options[option[level], 3]
            row[REPLICA] = 0
            row[MICROBATCH] = micro
            row[MICROBATCHES] = m
        traffic[:, :] = 0.0
        plan_cost(
            pricing.domains, pricing.runtime, pricing.power_law, tables, pricing.workload, pricing.bandwidth,
            pricing.latency, trial, depth + 1, 0, slowdown, False, scratch, plan_out, segment_out, traffic,
        )  # fmt: skip
        priced += 1
        value = objective_of(goal, plan_out, 1.0, int(devices))
        if value < best:
            best = value
            rows[:, :] = 0
            rows[: depth + 1] = trial[: depth + 1]
    return best, tried, priced, True
