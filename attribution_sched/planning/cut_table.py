"""The best cut of a model that no domain holds, over every set of domains with all or half of their devices.

Who plays copies of a cluster on has no time for a search. It looks up here what the search would about come to: a cut
for whatever is free, at the links' base bandwidth.
"""

from __future__ import annotations

import hashlib
from itertools import product
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.decision import encode_rows
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP, layout_table
from attribution_sched.cluster.reward import priced_terms, samples, total_of
from attribution_sched.cluster.world import World
from attribution_sched.kernels import by_reference
from attribution_sched.planning.domain_orders import ORDERS, all_orders, chain_plans, connected_orders
from attribution_sched.planning.instance import Instance
from attribution_sched.types import BoolArray, FloatArray, IntArray

KEPT = 4
"""Tables that are not made again."""

MOST_PATTERNS = 96
"""Sets of domains, each with all or half of its devices, that are looked at for a kind of task."""


@by_reference
class CutTable(NamedTuple):
    """Cuts by kind of task; n kinds, at most M cuts of each, K domains, P segments.

    Attributes:
        counts: Cuts of each kind, shape ``(n_kinds,)``; none for kinds that one domain holds.
        action: The cuts as actions of the engine, shape ``(n_kinds, M, P, 5)``.
        needs: Devices of each domain that a cut takes, shape ``(n_kinds, M, K)``.
        worth: R of the cut, shape ``(n_kinds, M)``.
        held: Devices times step time over the baseline's, shape ``(n_kinds, M)``: what others that wait pay for it.
    """

    counts: IntArray
    action: IntArray
    needs: IntArray
    worth: FloatArray
    held: FloatArray


def no_cuts(world: World) -> CutTable:
    """Nothing is looked up."""
    n, k = len(world.kinds), len(world.cluster)
    return CutTable(
        np.zeros(n, dtype=np.int64), np.zeros((n, 1, world.max_segments, 5), dtype=np.int64),
        np.zeros((n, 1, k), dtype=np.int64), np.zeros((n, 1)), np.zeros((n, 1)),
    )  # fmt: skip


def cut_table(world: World, spanning: BoolArray, base_step_s: FloatArray, base_cost_usd: FloatArray) -> CutTable:
    """Cuts of the kinds that no domain of a world holds.

    Args:
        world: The cluster and its kinds of tasks.
        spanning: Which kinds need several domains, shape ``(n_kinds,)``.
        base_step_s: Step time of their baselines, shape ``(n_kinds,)``.
        base_cost_usd: Cost of a step of their baselines, shape ``(n_kinds,)``.
    """
    if not spanning.any():
        return no_cuts(world)
    cluster = world.cluster
    cost = CostModel(cluster, [kind.model for kind in world.kinds], [kind.training for kind in world.kinds])
    key = _digest(world, cost, spanning, base_step_s, base_cost_usd)
    if key in _MADE:
        return _MADE[key]
    found: list[list[tuple[IntArray, IntArray, float, float]]] = []
    for k in range(len(world.kinds)):
        listed = _cuts(world, cost, k, float(base_step_s[k]), float(base_cost_usd[k])) if spanning[k] else []
        found.append(listed)
    most = max(1, *(len(listed) for listed in found))
    n, domains = len(world.kinds), len(cluster)
    table = CutTable(
        np.array([len(listed) for listed in found], dtype=np.int64),
        np.zeros((n, most, world.max_segments, 5), dtype=np.int64), np.zeros((n, most, domains), dtype=np.int64),
        np.zeros((n, most)), np.zeros((n, most)),
    )  # fmt: skip
    for k, listed in enumerate(found):
        for m, (action, needs, worth, held) in enumerate(listed):
            table.action[k, m], table.needs[k, m], table.worth[k, m], table.held[k, m] = action, needs, worth, held
    for old in list(_MADE)[: max(0, len(_MADE) + 1 - KEPT)]:
        del _MADE[old]
    _MADE[key] = table
    return table


_MADE: dict[bytes, CutTable] = {}


def _digest(world: World, cost: CostModel, *arrays: FloatArray | BoolArray) -> bytes:
    """The same for worlds whose cuts are the same."""
    kinds = [(kind.batch_size, kind.microbatches, kind.training) for kind in world.kinds]
    told = world.reward, world.max_segments, world.share_limit, cost.runtime, cost.power_law, kinds
    found, wan = hashlib.blake2b(repr(told).encode()), world.cluster.wan
    for array in (*cost.domains, *cost.tables, wan.bandwidth_gbps, wan.latency_s, *arrays):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.digest()


def _cuts(
    world: World, cost: CostModel, k: int, base_s: float, base_usd: float
) -> list[tuple[IntArray, IntArray, float, float]]:
    kind, wan, reward = world.kinds[k], world.cluster.wan, world.reward
    devices = np.array([domain.devices for domain in world.cluster.domains], dtype=np.int64)
    whole = Instance(
        cost, k, kind.batch_size, kind.microbatches, devices, wan.bandwidth_gbps, wan.latency_s, world.max_segments
    )
    weights = np.array([reward.w_eff, reward.w_util, reward.w_cost])
    layouts = layout_table(world.cluster, world.share_limit > 1)
    sets = dict.fromkeys(
        tuple(sorted(order))
        for segments in range(2, min(world.max_segments, len(devices)) + 1)
        for order in connected_orders(whole, segments, ORDERS).tolist()
    )
    # Whole domains first: where there are too many patterns, those of parts of domains are left out.
    patterns = sorted(
        ((over, shares) for over in sets for shares in product((1, 2), repeat=len(over))),
        key=lambda pattern: pattern[1].count(2),
    )
    best: dict[bytes, tuple[IntArray, IntArray, float, float]] = {}
    for over, shares in patterns[:MOST_PATTERNS]:
        free = np.zeros_like(devices)
        free[list(over)] = devices[list(over)] // np.array(shares)
        there = Instance(
            cost, k, kind.batch_size, kind.microbatches, free, wan.bandwidth_gbps, wan.latency_s, world.max_segments
        )
        batch = chain_plans(there, all_orders(over, len(over))[:ORDERS])
        if len(batch) == 0:
            continue
        priced = there.score(batch)
        norm = kind.batch_size / samples(batch)
        terms = priced_terms(
            reward, base_s, base_usd, norm * priced.step_s, priced.utilisation, norm * priced.bill_usd,
            norm * priced.energy_j, norm * priced.carbon_g,
        )  # fmt: skip
        worth = np.where(priced.fits, total_of(terms, weights), -np.inf)
        row = int(np.argmax(worth))
        if not np.isfinite(worth[row]):
            continue
        rows = batch.segments[row, : batch.counts[row]]
        needs = np.zeros_like(devices)
        np.add.at(needs, rows[:, DOMAIN], rows[:, DP] * rows[:, TP] * rows[:, PP])
        held = float(needs.sum() * norm[row] * priced.step_s[row] / base_s)
        known = best.get(needs.tobytes())
        if known is None or known[2] < worth[row]:
            best[needs.tobytes()] = encode_rows(world, layouts, batch.plan(row), k), needs, float(worth[row]), held
    return list(best.values())
