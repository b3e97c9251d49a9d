"""Every plan a small cluster can run, and which of them a task with foresight could ever want.

A plan is left out only if another one with the same layers in the same domains, in the same order, serves at least
as well at every tick: moving to and from both costs the same, so a course may use the other in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product

import numba
import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import BYTES_PER_GBIT, JOULES_PER_KWH, DomainArrays, share_batch
from attribution_sched.cluster.engine.engine import INT8, Engine
from attribution_sched.cluster.engine.state import K_BASE_COST, K_BASE_STEP
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.memory import state_bytes_per_parameter
from attribution_sched.cluster.plan import DOMAIN, FIRST, PRECISION, REPLICA, SEGMENT_FIELDS, STOP, PlanBatch
from attribution_sched.cluster.reward import GRAMS_PER_KG, r_cost, r_eff, samples, total
from attribution_sched.errors import PlanError, problem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MAX_PLANS = 500_000
"""Most plans that are listed; beyond, an instance is not small."""

_CHUNK = 50_000
"""Pairs of plan and tick priced in one call: a call holds a matrix of links for each."""


@dataclass(frozen=True)
class Prices:
    """What plans are worth to one task at every tick; P plans, T ticks.

    Attributes:
        speed: Steps per second, 0 where a plan does not fit memory, shape ``(P, T)``.
        reward: Reward R, shape ``(P, T)``.
        extras: The part of R that is not R_eff: ``w_util·R_util − w_cost·R_cost``, shape ``(P, T)``.
    """

    speed: FloatArray
    reward: FloatArray
    extras: FloatArray


def all_plans(engine: Engine, kind_index: int, max_plans: int = MAX_PLANS) -> PlanBatch:
    """List every plan of a task kind that an empty cluster accepts, memory and power aside.

    Of number formats that are equal in every respect on a device, one is listed.

    Raises:
        PlanError: If there are more than ``max_plans``.
    """
    world = engine.world
    kind, n = world.kinds[kind_index], len(world.kinds[kind_index].model)
    levels = sorted(set(kind.microbatches))
    options = [_options(engine, kind_index, k) for k in range(len(world.cluster))]
    parts: list[IntArray] = []
    total = 0
    for shape in _shapes(len(world.cluster), n, world.max_segments):
        for micros in product(levels, repeat=shape[-1][3] + 1):
            lists = [
                rows[(micros[r] % rows[:, 0] == 0) & (rows[:, 2] <= stop - first)]
                for domain, first, stop, r in shape
                for rows in [options[domain]]
            ]
            count = int(np.prod([len(rows) for rows in lists]))
            total += count
            if total > max_plans:
                rule = f"a plan for every layout, cut and order makes more than {max_plans:,}"
                fix = "Use fewer layers, domains or devices, or raise max_plans"
                raise PlanError(problem(f"plans of {kind.model.name}", total, rule, fix))
            if count:
                parts.append(_product(shape, micros, lists, world.max_segments))
    rows = np.concatenate(parts) if parts else np.zeros((0, world.max_segments, len(SEGMENT_FIELDS)), dtype=np.int64)
    counts = (rows[:, :, STOP] > 0).sum(axis=1)
    _share_all(engine.cost.tables, engine.cost.domains, kind_index, float(kind.batch_size), rows, counts)
    return PlanBatch(rows, counts, np.zeros(len(rows), dtype=np.int64))


def price_plans(
    engine: Engine, kind_index: int, factors: FloatArray, batch: PlanBatch, bandwidth: FloatArray
) -> Prices:
    """Price plans for a task alone in the cluster, as the engine does.

    Args:
        engine: Of the world.
        kind_index: Kind of the task.
        factors: Its latent demand factors, shape ``(3,)``.
        batch: P plans.
        bandwidth: Bytes per second at T ticks, shape ``(T, K, K)``.
    """
    shape = (len(batch), len(bandwidth))
    columns = {name: np.empty(shape) for name in ("step_s", "utilisation", "usd")}
    fits = np.empty(shape, dtype=np.bool_)
    spans = batch.counts > 1
    # A plan inside one domain does not feel the network.
    for chosen, ticks in ((np.flatnonzero(~spans), 1), (np.flatnonzero(spans), len(bandwidth))):
        for part in np.array_split(chosen, max(1, -(-chosen.size * ticks // _CHUNK))):
            if part.size:
                _price_part(engine, kind_index, factors, batch, bandwidth[:ticks], part, columns, fits)
    reward, kinds = engine.world.reward, engine.arrays.kinds[kind_index]
    base_s, base_usd = float(kinds[K_BASE_STEP]), float(kinds[K_BASE_COST])
    cost, util = r_cost(columns["usd"], base_usd), columns["utilisation"]
    extras = total(np.zeros(shape), util, cost, 0.0, reward.w_util, reward.w_cost)
    both = total(r_eff(columns["step_s"], base_s), util, cost, reward.w_eff, reward.w_util, reward.w_cost)
    return Prices(np.where(fits, 1.0 / columns["step_s"], 0.0), np.where(fits, both, -np.inf), extras)


def placements(engine: Engine, kind_index: int, batch: PlanBatch) -> tuple[IntArray, FloatArray]:
    """Group plans between which moving differs, and say what a move sends.

    Returns:
        Group of every plan, shape ``(P,)``, and bytes a move from group g to h sends, shape ``(G, G, K, K)``.
    """
    kind = engine.world.kinds[kind_index]
    each = np.array(
        [state_bytes_per_parameter(float(q.element_bytes), kind.training, 0, 1.0) for q in PRECISIONS]
    )  # fmt: skip
    used = np.arange(batch.segments.shape[1]) < batch.counts[:, None]
    key = np.concatenate([batch.segments[:, :, [DOMAIN, FIRST, STOP]], each[batch.segments[:, :, [PRECISION]]]], axis=2)
    key = np.where(used[:, :, None], key, -1.0).reshape(len(batch), -1)
    _, first, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    k, n = len(engine.world.cluster), len(kind.model)
    source, needed = np.zeros((len(first), n, k)), np.zeros((len(first), n, k))
    for g, plan in enumerate(first):
        for domain, start, stop in batch.segments[plan, : batch.counts[plan]][:, [DOMAIN, FIRST, STOP]][::-1]:
            # Written from the last segment to the first: a copy comes from the first that has it.
            source[g, start:stop] = np.eye(k)[domain]
        for row in batch.segments[plan, : batch.counts[plan]]:
            needed[g, row[FIRST] : row[STOP], row[DOMAIN]] = each[row[PRECISION]]
    missing = kind.model.column("params")[None, :, None] * (needed == 0.0)
    return group.reshape(-1).astype(np.int64), np.einsum("gli,glj,hlj->ghij", source, missing, needed, optimize=True)


def worth_having(prices: Prices, group: IntArray, base_s: float, idle: float) -> BoolArray:
    """Say which plans no other plan of their group can stand in for, shape ``(P,)``.

    A plan can stand in for a slower one if at every tick it loses no more per second against the best reward, or if
    working as much in less time and standing idle for the rest loses no more. Where no plan may stand idle, pass an
    infinite ``idle``.

    Args:
        prices: Of the plans; where columns are extremes and not ticks, see :func:`extremes_worth_having`.
        group: Their groups.
        base_s: Step time of the baseline, over the length of an interval.
        idle: What a second of standing idle costs.
    """
    best = float(np.max(prices.reward, initial=0.0))
    loss = np.where(prices.speed > 0.0, (best - np.maximum(prices.reward, -1e300)) * base_s * prices.speed, np.inf)
    kept: BoolArray = _undominated(
        prices.speed, prices.speed, loss, loss, prices.extras, prices.extras, group, np.isfinite(idle)
    )
    return kept


def extremes_worth_having(low: Prices, high: Prices, group: IntArray, base_s: float) -> BoolArray:
    """The same from two columns only: prices with every link at its worst and at its best over the episode."""
    best = float(np.max(high.reward, initial=0.0))
    worst = np.where(low.speed > 0.0, (best - np.maximum(low.reward, -1e300)) * base_s * high.speed, np.inf)
    least = np.where(low.speed > 0.0, (best - np.maximum(high.reward, -1e300)) * base_s * low.speed, np.inf)
    kept: BoolArray = _undominated(low.speed, high.speed, least, worst, low.extras, high.extras, group, True)
    return kept


def ways_to_work(speed: FloatArray, loss: FloatArray, group: IntArray, idle: float) -> tuple[FloatArray, FloatArray]:
    """Speed and loss per second of the plans of every group that no mixture of its plans and idling beats.

    Args:
        speed: Steps per second, shape ``(P, T)``.
        loss: Utility lost per second, shape ``(P, T)``.
        group: Groups of the plans, numbered from 0.
        idle: Utility lost per second of standing idle.

    Returns:
        Both of shape ``(G, O, T)``; the loss is infinite where a group has fewer ways.
    """
    groups, ticks = int(group.max()) + 1, speed.shape[1]
    found: list[list[list[tuple[float, float]]]] = [[[] for _ in range(ticks)] for _ in range(groups)]
    for g in range(groups):
        own = group == g
        for t in range(ticks):
            points = sorted(
                {(0.0, idle), *zip(speed[own, t].tolist(), loss[own, t].tolist(), strict=True)},
                key=lambda w: (-w[0], w[1]),
            )
            hull = found[g][t]
            for v, lost in points:
                if hull and lost >= hull[-1][1]:
                    continue
                while len(hull) >= 2:
                    (v0, l0), (v1, l1) = hull[-2:]
                    if (l0 - l1) * (v0 - v) > (l0 - lost) * (v0 - v1):
                        break
                    hull.pop()
                hull.append((v, lost))
    width = max(len(hull) for row in found for hull in row)
    speeds, losses = np.zeros((groups, width, ticks)), np.full((groups, width, ticks), np.inf)
    for g in range(groups):
        for t in range(ticks):
            for o, (v, lost) in enumerate(found[g][t]):
                speeds[g, o, t], losses[g, o, t] = v, lost
    return speeds, losses


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _undominated(
    slow: FloatArray, fast: FloatArray, least: FloatArray, most: FloatArray, low: FloatArray, high: FloatArray,
    group: IntArray, idle: bool,
) -> BoolArray:  # fmt: skip
    """Plans that fit and that nobody in their group replaces; figures come as lower and upper ends, shape (P, T)."""
    kept = np.ones(group.size, dtype=np.bool_)
    order = np.argsort(group)
    begin = 0
    while begin < order.size:
        end = begin
        while end < order.size and group[order[end]] == group[order[begin]]:
            end += 1
        for i in range(begin, end):
            b = order[i]
            kept[b] = fast[b].min() > 0.0
            for j in range(begin, end if kept[b] else begin):
                a = order[j]
                # Later plans of the group have not been looked at: they count unless they do not fit.
                if a == b or not kept[a] or not slow[a].min() > 0.0:
                    continue
                replaces = True
                for t in range(slow.shape[1]):
                    as_good = most[a, t] <= least[b, t] or (idle and low[a, t] >= high[b, t])
                    if slow[a, t] < fast[b, t] or not as_good:
                        replaces = False
                        break
                if replaces:
                    kept[b] = False
                    break
        begin = end
    return kept


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _share_all(
    tables: CostTables, domains: DomainArrays, model: int, batch: float, rows: IntArray, counts: IntArray
) -> None:
    for p in range(counts.size):
        share_batch(tables, domains, model, batch, rows[p], counts[p], rows[p, counts[p] - 1, REPLICA] + 1)


def _options(engine: Engine, kind_index: int, domain: int) -> IntArray:
    """Layouts and formats of a segment in a domain, shape ``(O, 4)``: dp, tp, pp, precision."""
    training = engine.world.kinds[kind_index].training
    arrays, tables = engine.arrays.domains, engine.cost.tables
    times = tables.times_s[kind_index, int(arrays.rows[domain].gpu)]
    heat = engine.cost.power_law.precision_factor
    formats: list[int] = []
    for q, precision in enumerate(PRECISIONS):
        if not arrays.peak_flops[domain, q] > 0.0 or (training and q == INT8):
            continue
        twins = [
            f for f in formats
            if PRECISIONS[f].element_bytes == precision.element_bytes and heat[f] == heat[q]
            and np.array_equal(times[f], times[q], equal_nan=True)
        ]  # fmt: skip
        if not twins:
            formats.append(q)
    layouts = engine.layouts[engine.layouts[:, 3] == 0][:, :3]
    room = int(arrays.rows[domain].devices)
    rows = [(*map(int, layout), q) for q in formats for layout in layouts if int(np.prod(layout)) <= room]
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _shapes(domains: int, layers: int, most: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Yield every placement: segments as (domain, first, stop, replica)."""
    for length in range(1, most + 1):
        for closes in product((False, True), repeat=length - 1):
            sizes = np.diff([0, *(i + 1 for i, last in enumerate(closes) if last), length])
            cuts = [list(combinations(range(1, layers), int(size) - 1)) for size in sizes]
            for order in permutations(range(domains), length):
                for chosen in product(*cuts):
                    edges = [
                        (first, stop, r)
                        for r, inner in enumerate(chosen)
                        for first, stop in zip((0, *inner), (*inner, layers), strict=True)
                    ]
                    yield [(d, *edge) for d, edge in zip(order, edges, strict=True)]


def _product(
    shape: list[tuple[int, int, int, int]], micros: tuple[int, ...], lists: list[IntArray], width: int
) -> IntArray:
    """Rows of all plans of one placement and one choice of microbatches, shape ``(n, width, 11)``."""
    picks = np.meshgrid(*(np.arange(len(rows)) for rows in lists), indexing="ij")
    rows = np.zeros((picks[0].size, width, len(SEGMENT_FIELDS)), dtype=np.int64)
    for p, ((domain, first, stop, replica), listed, pick) in enumerate(zip(shape, lists, picks, strict=True)):
        rows[:, p, [DOMAIN, FIRST, STOP]] = (domain, first, stop)
        rows[:, p, 3:7] = listed[pick.reshape(-1)]
        rows[:, p, 7], rows[:, p, 8] = replica, micros[replica]
    return rows


def _price_part(
    engine: Engine, kind_index: int, factors: FloatArray, batch: PlanBatch, bandwidth: FloatArray, part: IntArray,
    columns: dict[str, FloatArray], fits: BoolArray,
) -> None:  # fmt: skip
    """Price some plans at all given ticks and write the figures into the columns; one tick stands for all."""
    ticks = len(bandwidth)
    chosen = PlanBatch(
        *(np.repeat(rows[part], ticks, axis=0) for rows in (batch.segments, batch.counts, batch.schedules))
    )
    found = engine.cost.score(
        chosen,
        kind_index,
        bandwidth_gbps=np.tile(bandwidth / BYTES_PER_GBIT, (part.size, 1, 1)),
        factors=(float(factors[0]), float(factors[1]), float(factors[2])),
        breakdown=False,
    )
    reward = engine.world.reward
    norm = engine.world.kinds[kind_index].batch_size / samples(chosen)
    usd = (
        found.bill_usd
        + reward.energy_usd_per_kwh / JOULES_PER_KWH * found.energy_j
        + reward.carbon_usd_per_kg / GRAMS_PER_KG * found.carbon_g
    )
    shape = (part.size, ticks)
    columns["step_s"][part] = (found.step_s * norm).reshape(shape)
    columns["utilisation"][part] = found.utilisation.reshape(shape)
    columns["usd"][part] = (usd * norm).reshape(shape)
    fits[part] = found.fits.reshape(shape)
