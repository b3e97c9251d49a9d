"""What a finished draft is: a plan, an action of the engine, and numbers that describe it to the critic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.cost import (
    BILL_USD,
    BYTES_PER_GBIT,
    CARBON_G,
    ENERGY_J,
    STEP_S,
    UTILISATION,
    Scratch,
    Workload,
    make_scratch,
    plan_cost,
    share_batch,
)
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
    SEGMENT_FIELDS,
    STOP,
    TP,
    PlanBatch,
)
from attribution_sched.cluster.reward import r_cost_kernel, r_eff_kernel, samples, samples_kernel
from attribution_sched.kernels import kernel
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.scheduler.hi_ppo.action_masks import (
    D_DOMAIN,
    D_FIRST,
    D_FORMAT,
    D_LAYOUT,
    D_LEVEL,
    D_REPLICA,
    D_STOP,
    DONE,
    PartialPlans,
)
from attribution_sched.types import Float32Array, FloatArray, IntArray

PLAN_NAMES: tuple[str, ...] = (
    "does_nothing", "r_eff", "r_util", "r_cost", "time", "segments", "replicas", "devices", "device_time", "gain",
)  # fmt: skip
"""A plan as the critic sees it: its nominal reward terms, its size, and what it gains over the plan in force."""

PLAN_FEATURES = len(PLAN_NAMES)
(
    F_NOTHING, F_EFF, F_UTIL, F_COST, F_TIME, F_SEGMENTS, F_REPLICAS, F_DEVICES, F_DEVICE_TIME, F_GAIN,
) = range(PLAN_FEATURES)  # fmt: skip

BUSY_S = 0
"""Column of the cost kernel's result for segments."""


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


@kernel(allocates=True)
def _price(
    t: PlannerTables, d: PartialPlans, rows: IntArray, step_s: FloatArray, scratch: Scratch, segments: IntArray,
    out: Float32Array, traffic: FloatArray, busy_s: FloatArray,
) -> None:  # fmt: skip
    k = d.free.shape[1]
    devices = 0
    for domain in range(k):
        devices += t.domains.rows[domain].devices
    plan_out = np.zeros(10)
    segment_out = np.zeros((t.max_segments, 7))
    ones = np.ones(t.max_segments)
    for i in range(rows.size):
        r = rows[i]
        out[i] = 0.0
        if d.status[r] != DONE or d.written[r] == 0:
            out[i, F_NOTHING] = 1.0
            continue
        kind = d.kind[r]
        _segments(t, d, r, segments[i])
        workload = Workload(kind, t.training[kind], 1.0, 1.0, 1.0)
        plan_cost(
            t.domains, t.runtime, t.power_law, t.cost, workload, d.links[r, 0] * BYTES_PER_GBIT, d.links[r, 1],
            segments[i], d.written[r], 0, ones, False, scratch, plan_out, segment_out, traffic[i],
        )  # fmt: skip
        norm = t.batch[kind] / samples_kernel(segments[i], d.written[r])
        step = plan_out[STEP_S] * norm
        base = t.base_step_s[kind]
        out[i, F_EFF] = max(-4.0, r_eff_kernel(step, base))
        out[i, F_UTIL] = plan_out[UTILISATION]
        out[i, F_COST] = min(4.0, r_cost_kernel(plan_out[BILL_USD] * norm, t.base_cost_usd[kind]))
        out[i, F_TIME] = max(-4.0, min(4.0, np.log(step / base))) / 2.0
        out[i, F_SEGMENTS] = d.written[r] / t.max_segments
        out[i, F_REPLICAS] = d.replica[r] / t.max_segments
        out[i, F_DEVICES] = d.devices[r] / devices
        out[i, F_DEVICE_TIME] = max(-4.0, min(4.0, np.log(step / base * d.devices[r]))) / 4.0
        for a in range(k):
            for b in range(k):
                traffic[i, a, b] *= norm
        for p in range(d.written[r]):
            busy_s[i, p] = segment_out[p, BUSY_S] * norm
        if step_s[r] > 0.0:
            out[i, F_GAIN] = max(-2.0, min(2.0, np.log(step_s[r] / step)))


class PlanLoads(NamedTuple):
    """What plans ask of links and domains per step; constraints are about these.

    Attributes:
        traffic_bytes: Bytes from domain to domain, shape ``(n, K, K)``.
        busy_s: Compute time of the segments, shape ``(n, P)``, 0 where there is none.
    """

    traffic_bytes: FloatArray
    busy_s: FloatArray


def describe_plans(
    t: PlannerTables, d: PartialPlans, rows: IntArray, step_s: FloatArray
) -> tuple[Float32Array, PlanBatch, PlanLoads]:
    """Describe finished drafts, ``(n, PLAN_FEATURES)``, and give them as plans; unfinished ones do nothing.

    Args:
        t: Tables.
        d: PartialPlans.
        rows: PartialPlans to describe, shape ``(n,)``.
        step_s: Measured step time of the plan in force of every draft, 0 if there is none, shape ``(R,)``.
    """
    segments = np.zeros((len(rows), t.max_segments, len(SEGMENT_FIELDS)), dtype=np.int64)
    out = np.zeros((len(rows), PLAN_FEATURES), dtype=np.float32)
    most = int((t.batch / t.micro[:, 0]).max()) + 1
    k = d.free.shape[1]
    loads = PlanLoads(np.zeros((len(rows), k, k)), np.zeros((len(rows), t.max_segments)))
    _price(t, d, rows, step_s, make_scratch(t.max_segments * MAX_PP, most), segments, out, *loads)
    counts = np.where(d.status[rows] == DONE, d.written[rows], 0)
    return out, PlanBatch(segments, counts, np.zeros(len(rows), dtype=np.int64)), loads


def engine_actions(t: PlannerTables, d: PartialPlans, segments: IntArray, layout_rows: IntArray) -> IntArray:
    """Engine actions ``(R, P, 5)`` of all drafts; one that is not finished ends at once.

    Args:
        t: Tables.
        d: PartialPlans.
        segments: Their segments in order, shape ``(R, P, 11)``.
        layout_rows: Row of every layout in the engine's table, shape ``(L,)``.
    """
    k = d.free.shape[1]
    actions = np.zeros((len(d.kind), t.max_segments, 5), dtype=np.int64)
    used = (np.arange(t.max_segments) < d.written[:, None]) & (d.status == DONE)[:, None]
    actions[:, :, 0] = np.where(used, segments[:, :, DOMAIN], k)
    at = np.nonzero(used)
    rows = segments[at]
    layout = (rows[:, None, [DP, TP, PP]] == t.layouts).all(axis=2).argmax(axis=1)
    level = (t.micro[d.kind[at[0]]] == rows[:, MICROBATCH, None]).argmax(axis=1)
    actions[at[0], at[1], 1:] = np.column_stack([rows[:, STOP], layout_rows[layout], rows[:, PRECISION], level])
    return actions


# ------ Prices of a few plans in many situations: each with links of its own and, if wanted, a task of its own

PRICES: tuple[int, ...] = (STEP_S, UTILISATION, BILL_USD, ENERGY_J, CARBON_G)
P_STEP_S, P_UTILISATION, P_BILL_USD, P_ENERGY_J, P_CARBON_G = range(len(PRICES))
"""Columns of a price, per global batch except the utilisation."""


@kernel(allocates=True)
def _reprice(
    t: PlannerTables, kinds: IntArray, segments: IntArray, counts: IntArray, schedules: IntArray, norms: FloatArray,
    owner: IntArray, links: FloatArray, factors: FloatArray, scratch: Scratch, out: FloatArray,
) -> None:  # fmt: skip
    k = links.shape[2]
    plan_out = np.zeros(10)
    segment_out = np.zeros((segments.shape[1], 7))
    traffic = np.zeros((k, k))
    ones = np.ones(segments.shape[1])
    bandwidth = np.zeros((k, k))
    before = -1
    for i in range(owner.size):
        p = owner[i]
        own = factors[i if factors.shape[0] > 1 else 0]
        if before >= 0 and owner[before] == p and counts[p] == 1:
            # A plan inside one domain does not feel links.
            known = factors[before if factors.shape[0] > 1 else 0]
            if own[0] == known[0] and own[1] == known[1] and own[2] == known[2]:
                out[i] = out[before]
                continue
        before = i
        at = i if links.shape[0] > 1 else 0
        bandwidth[:, :] = links[at, 0] * BYTES_PER_GBIT
        traffic[:, :] = 0.0
        workload = Workload(kinds[p], t.training[kinds[p]], own[0], own[1], own[2])
        plan_cost(
            t.domains, t.runtime, t.power_law, t.cost, workload, bandwidth, links[at, 1], segments[p], counts[p],
            schedules[p], ones, False, scratch, plan_out, segment_out, traffic,
        )  # fmt: skip
        out[i, P_STEP_S] = plan_out[STEP_S] * norms[p]
        out[i, P_UTILISATION] = plan_out[UTILISATION]
        out[i, P_BILL_USD] = plan_out[BILL_USD] * norms[p]
        out[i, P_ENERGY_J] = plan_out[ENERGY_J] * norms[p]
        out[i, P_CARBON_G] = plan_out[CARBON_G] * norms[p]


def reprice_each(
    t: PlannerTables, kinds: IntArray, batch: PlanBatch, owner: IntArray, links: FloatArray, factors: FloatArray
) -> FloatArray:
    """Price one plan in each situation, shape ``(n, 5)``, columns ``P_STEP_S`` to ``P_CARBON_G``.

    Args:
        t: Tables of the cluster.
        kinds: Kind of task of every plan, shape ``(plans,)``.
        batch: The plans, with microbatches as the cluster shares them out.
        owner: Plan to price in each situation, shape ``(n,)``.
        links: Gb/s and seconds (and what else) per situation, shape ``(n, ≥ 2, K, K)``, or of one for all.
        factors: Multipliers on compute, memory and host time, shape ``(n, 3)``, or ``(1, 3)`` for the same everywhere.
    """
    out = np.zeros((len(owner), len(PRICES)))
    scratch = make_scratch(t.max_segments * MAX_PP, max(1, int(batch.segments[:, :, MICROBATCHES].max(initial=1))))
    norms = t.batch[kinds] / samples(batch)
    _reprice(
        t, kinds, batch.segments, batch.counts, batch.schedules, norms, owner, np.ascontiguousarray(links),
        np.ascontiguousarray(factors), scratch, out,
    )  # fmt: skip
    return out


def reprice(t: PlannerTables, kind: int, batch: PlanBatch, links: FloatArray, factors: FloatArray) -> FloatArray:
    """Price every plan in every situation, shape ``(n, plans, 5)``; see :func:`reprice_each`.

    A plan feels its task's demands and the links between its own domains; situations that are alike in these are priced
    once.
    """
    n, plans = max(len(links), len(factors)), len(batch)
    kinds = np.full(plans, kind, dtype=np.int64)
    out = np.zeros((n, plans, len(PRICES)))
    for p in range(plans):
        felt = np.unique(batch.segments[p, : batch.counts[p], DOMAIN])
        rows = factors if len(felt) == 1 or len(links) == 1 else np.column_stack([
            np.broadcast_to(factors, (n, factors.shape[1])), links[:, :2][:, :, felt][:, :, :, felt].reshape(n, -1)
        ])  # fmt: skip
        first, which = _distinct(rows)
        owner = np.full(len(first), p, dtype=np.int64)
        some = [each[first] if len(each) > 1 else each for each in (links, factors)]
        out[:, p] = reprice_each(t, kinds, batch, owner, *some)[which]
    return out


def _distinct(rows: FloatArray) -> tuple[IntArray, IntArray]:
    """First of each distinct row, and which of these every row is, shape ``(n,)``."""
    keys = rows @ np.random.default_rng(0).random(rows.shape[1])
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    if (rows[first[which]] != rows).any():
        # Two rows with one key: as good as never.
        _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, which.ravel()
