"""Pipelines over several domains: which orders of domains to try, where to cut, which layouts; all as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations, product

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MAX_PP,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    SEGMENT_FIELDS,
    STOP,
    TP,
    Plan,
    PlanBatch,
)
from attribution_sched.cluster.reward import value
from attribution_sched.planning.candidates import chain_batch
from attribution_sched.planning.instance import Instance, half_precision, tp_indices
from attribution_sched.types import FloatArray, IntArray

BEAM = 4
"""Unfinished chains kept for every finished one."""

ORDERS = 24
"""Most orders of domains that are priced for each number of domains, the best connected ones."""

MIXED_SEGMENTS = 2
"""Domains of different GPU types may differ in tp in chains of at most so many segments."""


def proportional_cuts(speeds: Sequence[float] | FloatArray, n_layers: int) -> IntArray:
    """One past the last layer of every part, layers dealt in proportion to speed and at least one to each.

    Layers are counted, not weighed by their work.

    Args:
        speeds: Shape ``(..., parts)``, positive.
        n_layers: Layers to deal, at least one per part.
    """
    each = np.asarray(speeds, dtype=np.float64)
    parts = each.shape[-1]
    ideal = n_layers * np.cumsum(each, axis=-1) / each.sum(axis=-1, keepdims=True)
    at = np.arange(parts)
    # Less its own index every stop lies in 1..n-parts+1 and must not fall: then no part is empty.
    stops: IntArray = np.clip(np.rint(ideal).astype(np.int64) - at, 1, n_layers - parts + 1)
    stops = np.maximum.accumulate(stops, axis=-1) + at
    stops[..., -1] = n_layers
    return stops


def uniform_cuts(parts: int, n_layers: int) -> IntArray:
    """One past the last layer of every part, layers dealt evenly."""
    return proportional_cuts(np.ones(parts), n_layers)


def all_orders(domains: Sequence[int] | IntArray, segments: int) -> IntArray:
    """List every ordered choice of so many domains, shape ``(n, segments)``."""
    orders = list(permutations([int(d) for d in domains], segments))
    return np.array(orders, dtype=np.int64).reshape(-1, segments)


def connected_orders(instance: Instance, segments: int, limit: int) -> IntArray:
    """List ordered choices of open domains, all if they are few, else the best connected.

    Chains grow by one domain at a time; of all that are found only those whose slowest hop is fastest stay, a few
    times ``limit`` on the way and ``limit`` in the end.
    """
    opened = instance.open_domains
    chains = opened[:, None]
    # A hop is used both ways: activations forth, gradients back.
    both_ways = np.minimum(instance.bandwidth_gbps, instance.bandwidth_gbps.T)
    narrowest = np.full(len(opened), np.inf)
    for length in range(2, segments + 1):
        hop = both_ways[chains[:, -1]][:, opened]
        hop = np.where((chains[:, :, None] == opened).any(axis=1), -np.inf, hop)
        reach = np.minimum(narrowest[:, None], hop)
        most = limit if length == segments else BEAM * limit
        count = min(most, int(np.isfinite(reach).sum()))
        best = np.argsort(-reach, axis=None, kind="stable")[:count]
        chain, added = np.unravel_index(best, reach.shape)
        chains = np.column_stack([chains[chain], opened[added]])
        narrowest = reach[chain, added]
    return chains


@lru_cache(maxsize=1024)
def _options(
    microbatches: tuple[int, ...], largest: int, segments: int, mixed: bool
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Choices that are the same for every order: microbatch, dp, halvings of pp (each ``(m,)``) and tp ``(m, s)``."""
    degrees = list(product(TP_DEGREES, repeat=segments)) if mixed else [(tp,) * segments for tp in TP_DEGREES]
    powers = [2**i for i in range(largest.bit_length())]
    rows = [
        (micro, dp, halved, *tps)
        for micro in dict.fromkeys(microbatches)
        for dp in powers
        if micro % dp == 0
        for tps in degrees
        for halved in (0, 1)
    ]
    table = np.array(rows, dtype=np.int64)
    table.setflags(write=False)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3:]


def chain_plans(instance: Instance, orders: IntArray, *, even: bool = False) -> PlanBatch:
    """Build one-replica plans over ordered domains.

    All segments of a plan share dp; tp is shared too unless GPU types differ. Each segment gets as many pipeline
    stages as its room allows, or half of that.

    Args:
        instance: What to place.
        orders: Domains of each chain in order, shape ``(n, s)``.
        even: Deal layers evenly instead of in proportion to each segment's speed.
    """
    n, s = orders.shape
    n_layers = instance.n_layers
    empty = np.empty((0, max(1, s), len(SEGMENT_FIELDS)), dtype=np.int64)
    if n == 0 or s > n_layers:
        return chain_batch(empty)
    mixed = len(instance.cost.cluster.gpus) > 1 and s <= MIXED_SEGMENTS
    micro, dp, halved, tp = _options(instance.microbatches, int(instance.free_devices.max(initial=1)), s, mixed)
    room, node = instance.free_devices[orders][:, None, :], instance.nodes[orders][:, None, :]
    whole = room // (dp[:, None] * tp)
    stages = np.minimum(_power_below(np.maximum(1, whole)), MAX_PP)
    valid = ((whole >= 1) & (tp <= node)).all(axis=-1) & ((halved == 0) | (stages > 1).any(axis=-1))
    order_at, option_at = np.nonzero(valid)
    if order_at.size == 0:
        return chain_batch(empty)
    stages = np.maximum(1, stages[order_at, option_at] >> halved[option_at, None])
    domains, tps, dps = orders[order_at], tp[option_at], dp[option_at, None]
    precision = half_precision(instance, orders)[order_at, None]
    if even:
        stops = np.broadcast_to(uniform_cuts(s, n_layers), domains.shape)
    else:
        seconds = instance.seconds_per_sample()[precision, domains, tp_indices(tps)]
        stops = proportional_cuts(dps * stages / seconds, n_layers)
    rows = np.zeros((len(domains), s, len(SEGMENT_FIELDS)), dtype=np.int64)
    rows[:, :, DOMAIN] = domains
    rows[:, :, STOP] = stops
    rows[:, 1:, FIRST] = stops[:, :-1]
    rows[:, :, DP] = dps
    rows[:, :, TP] = tps
    rows[:, :, PP] = np.minimum(stages, _power_below(stops - rows[:, :, FIRST]))
    rows[:, :, PRECISION] = precision
    rows[:, :, MICROBATCH] = micro[option_at, None]
    rows[:, :, MICROBATCHES] = instance.batch_size // micro[option_at, None]
    return chain_batch(rows)


def _power_below(counts: IntArray) -> IntArray:
    """Largest power of two that is at most each count."""
    return np.left_shift(1, np.frexp(counts)[1].astype(np.int64) - 1)


def best_by_domains(view: Decision, kind_index: int | None = None) -> list[Plan]:
    """The best cut over every set of two or more free domains that holds a model, highest R first.

    A snapshot ranks them by R now, but sets differ in what it cannot see: two regions with cheap traffic between them
    are slow and leave two others free, all four are fast and leave nobody room. So each set has a plan of its own.

    Args:
        view: The decision.
        kind_index: Kind of task; the decision's own by default.
    """
    instance, best = Instance.of(view, kind_index), dict[frozenset[int], tuple[float, Plan]]()
    for segments in range(2, min(view.max_segments, len(instance.open_domains)) + 1):
        batch = chain_plans(instance, connected_orders(instance, segments, ORDERS))
        if len(batch) == 0:
            continue
        reward = value(view, batch, kind_index).reward
        for row in np.argsort(-reward, kind="stable").tolist():
            if not np.isfinite(reward[row]):
                break
            over = frozenset(batch.segments[row, :segments, DOMAIN].tolist())
            if over not in best:
                best[over] = float(reward[row]), batch.plan(row)
    return [plan for _, plan in sorted(best.values(), key=lambda each: -each[0])]
