"""Prices of a few plans in many situations: each with links of its own and, if wanted, a task of its own."""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.cost import (
    BILL_USD,
    BYTES_PER_GBIT,
    CARBON_G,
    ENERGY_J,
    SEGMENT_SIZE,
    STEP_S,
    UTILISATION,
    Scratch,
    Workload,
    make_scratch,
    plan_cost,
)
from attribution_sched.cluster.plan import DOMAIN, MAX_PP, MICROBATCHES, PlanBatch
from attribution_sched.cluster.reward import samples
from attribution_sched.kernels import kernel
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.types import FloatArray, IntArray

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
    segment_out = np.zeros((segments.shape[1], SEGMENT_SIZE))
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
