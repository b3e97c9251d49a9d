"""Who answers for what is shared: cost games between tenants, each with its characteristic function.

*Peak capacity.* Tenants hold d_i(t) devices at time t. A group S alone would have had to own

    v(S) = max over t of Σ_{i∈S} d_i(t)

devices. v is a maximum of additive functions: subadditive, and its core is never empty (whoever pays by the devices it
holds at the common peak is in it).

*Co-location.* Each tenant i needs a_i alone, and two that share devices cost each other e_ij:

    v(S) = Σ_{i∈S} a_i + Σ_{i<j∈S} e_ij     ⇒     φ_i = a_i + ½ Σ_j e_ij

*Congestion.* v(S) is how long S's own tasks would have waited had only S submitted; nobody has a closed form of it, so
it is any function from masks to values, and beyond what can be enumerated :mod:`attribution_sched.shapley` samples it.

Up to :data:`EXACT_LIMIT` players every coalition of the peak game is valued. Beyond, random orders of the players are
drawn in pairs of an order and its reverse, and the spread over independent batches of them gives the interval. Of an
order it looks at some beginnings, their sizes spread evenly over 0 … n, and asks at each what *every* player adds to it
or takes from it, which costs a peak hardly more than its value: a thousand shares from a coalition where an estimator
of any game gets one number. With sizes uniform on 0 … n that mean is the Shapley value, for

    (1/(n+1)) · ((n−s)/n + (s+1)/n) = 1/n     is the weight of coalitions of s others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attribution_sched.errors import SettingsError, problem
from attribution_sched.kernels import kernel
from attribution_sched.shapley.exact import all_coalitions, shapley_of_table
from attribution_sched.shapley.explain import estimate
from attribution_sched.shapley.game import FunctionGame
from attribution_sched.shapley.orders import both_ways
from attribution_sched.stats.interval import half_width, standard_error
from attribution_sched.types import BoolArray, FloatArray, IntArray

EXACT_LIMIT = 22
"""Players up to which all coalitions are valued: four million of them."""

BATCHES = 16
"""Independent batches of sampled orders, for the interval."""

ORDERS = 32_768
"""Orders drawn by default beyond the exact limit."""

BEGINNINGS = 8
"""Beginnings of an order at which every player of the peak game is looked at; more of fewer orders tell less."""

TOLERANCE = 1e-9
"""Relative excess below which a coalition does not object: rounding."""


@dataclass(frozen=True, eq=False)
class CostShares:
    """Shapley values of a cost game.

    Attributes:
        values: Share of each player, shape ``(n,)``; they add up to ``total``.
        total: Cost of all players together.
        half_width: Half of the 95 % interval of each share, shape ``(n,)``; zeros if exact.
        exact: Whether every coalition was valued.
        evaluations: Coalitions valued, or orders drawn.
        in_core: Whether no group would pay less by itself; None if that was not looked at.
        excess: What the group with the best reason to leave pays beyond its own cost; None as above.
        objectors: That group, shape ``(n,)``; None as above.
    """

    values: FloatArray
    total: float
    half_width: FloatArray
    exact: bool
    evaluations: int
    in_core: bool | None = None
    excess: float | None = None
    objectors: BoolArray | None = None


def peak_capacity(
    profile: FloatArray, *, orders: int = ORDERS, seed: int = 0, exact_limit: int = EXACT_LIMIT
) -> CostShares:
    """Shapley values of the peak-capacity game.

    Args:
        profile: Devices each player holds over time, shape ``(n, T)``.
        orders: Orders to draw beyond the exact limit.
        seed: Of the orders.
        exact_limit: Players up to which all coalitions are valued.

    Raises:
        SettingsError: If a profile is negative or not finite, or the orders are too few.
    """
    profile = np.asarray(profile, dtype=np.float64)
    if profile.ndim != 2 or not np.isfinite(profile).all() or (profile < 0).any():
        rule = "must be devices held over time, finite and not negative, shape (players, times)"
        raise SettingsError(problem("profile", profile.shape, rule, "Use Usage.held"))
    players = len(profile)
    if players == 0 or profile.shape[1] == 0:
        return CostShares(np.zeros(players), 0.0, np.zeros(players), True, 1, True, 0.0, np.zeros(players, dtype=bool))
    moments = _undominated(profile)
    if players <= min(exact_limit, EXACT_LIMIT):
        return from_table(_peak_table(moments))
    return _sampled_peaks(moments, orders, seed)


def co_location(alone: FloatArray, extra: FloatArray) -> FloatArray:
    """Shapley values of the co-location game, exact for any number of players.

    Args:
        alone: a_i, shape ``(n,)``.
        extra: e_ij, what i and j cost each other together, symmetric with a zero diagonal, shape ``(n, n)``.

    Raises:
        SettingsError: If ``extra`` is not symmetric, or somebody costs itself something.
    """
    if not np.allclose(extra, extra.T) or np.diag(extra).any():
        rule = "must be symmetric with zeros on the diagonal"
        raise SettingsError(problem("extra", extra.shape, rule, "Write what a pair costs into both places"))
    return np.asarray(alone + extra.sum(axis=1) / 2.0)


def congestion(
    players: int, value: Callable[[BoolArray], FloatArray], *, evaluations: int, seed: int = 0
) -> CostShares:
    """Shapley values of a game that has no closed form.

    Args:
        players: How many.
        value: Cost of each coalition by itself: masks ``(m, n)`` to costs ``(m,)``.
        evaluations: Coalitions to ask for; all of them if there are no more.
        seed: Of those that are drawn.

    Raises:
        ExplanationError: If the evaluations are too few for an estimate.
    """
    if 2**players <= evaluations:
        return from_table(np.asarray(value(all_coalitions(players)), dtype=np.float64))
    game = FunctionGame(value, tuple(str(player) for player in range(players)))
    found = estimate(game, method="kernel", budget_rows=evaluations, seed=seed)
    reach = half_width(found.standard_error[:, 0], found.freedom)
    return CostShares(found.values[:, 0], float(found.full[0]), reach, False, found.evaluations)


def from_table(values: FloatArray) -> CostShares:
    """Shapley values and core of a game by the costs of all its coalitions.

    Args:
        values: Shape ``(2^n,)``, in the order of the coalitions' codes. The first is 0.
    """
    shares = shapley_of_table(values[:, None])[:, 0]
    paid = np.zeros(1)
    for share in shares:
        paid = np.concatenate([paid, paid + share])
    gap = paid - values
    worst = int(np.argmax(gap))
    total = float(values[-1])
    in_core = bool(gap[worst] <= TOLERANCE * max(1.0, abs(total)))
    objectors = all_coalitions(len(shares), worst, worst + 1)[0]
    return CostShares(shares, total, np.zeros(len(shares)), True, len(values), in_core, float(gap[worst]), objectors)


def _undominated(profile: FloatArray) -> FloatArray:
    """Moments at which some group may have its peak, shape ``(n, m)``: none where all hold less than at another.

    Moments are looked at from the busiest on, so that few suffice to rule out most others.
    """
    moments = np.unique(profile.T, axis=0)
    moments = moments[np.argsort(-moments.sum(axis=1), kind="stable")]
    undominated: list[FloatArray] = []
    while len(moments):
        first, moments = moments[0], moments[1:]
        undominated.append(first)
        moments = moments[(moments > first).any(axis=1)]
    return np.array(undominated).T


def _peak_table(moments: FloatArray) -> FloatArray:
    """Peak of every coalition, shape ``(2^n,)``; the players' halves are summed once and met pairwise."""
    players, count = moments.shape
    sums = []
    for half in (moments[: players // 2], moments[players // 2 :]):
        table = np.zeros((1, count))
        for row in half:
            table = np.concatenate([table, table + row])
        sums.append(table)
    peak = np.zeros((len(sums[1]), len(sums[0])))
    _meet(sums[1], np.ascontiguousarray(sums[0].T), peak)
    return peak.ravel()


@kernel
def _meet(high: FloatArray, low: FloatArray, peak: FloatArray) -> None:
    """Write the largest sum over all moments of each pair of half coalitions.

    Args:
        high: Devices of each coalition of the second half, shape ``(H, m)``.
        low: Devices of each coalition of the first half, moments first, shape ``(m, L)``.
        peak: Out, shape ``(H, L)``. Its row stays in the cache while the moments pass over it.
    """
    for h in range(high.shape[0]):
        for at in range(high.shape[1]):
            more = high[h, at]
            for j in range(low.shape[1]):
                peak[h, j] = max(peak[h, j], more + low[at, j])


@kernel(allocates=True)
def _every_marginal(
    moments: FloatArray, most: FloatArray, order: IntArray, sizes: IntArray, sums: FloatArray
) -> None:  # fmt: skip
    """Add what every player adds to, or takes from, the first players of an order.

    Args:
        moments: Devices, shape ``(n, m)``.
        most: Largest of each player, shape ``(n,)``.
        order: Of the players, shape ``(n,)``.
        sizes: How many of the first are looked at, ascending, shape ``(b,)``.
        sums: Out, shape ``(n,)``.
    """
    players, count = moments.shape
    held, inside = np.zeros(count), np.zeros(players, dtype=np.bool_)
    at = 0
    for size in sizes:
        while at < size:
            row = moments[order[at]]
            for t in range(count):
                held[t] += row[t]
            inside[order[at]] = True
            at += 1
        # From the busiest moment on: a few decide for who holds little.
        by = np.argsort(-held)
        peak = held[by[0]]
        for i in range(players):
            row = moments[i]
            if inside[i]:
                best = -1.0
                for j in range(count):
                    t = by[j]
                    if held[t] <= best:
                        break
                    best = max(best, held[t] - row[t])
                sums[i] += peak - best
            else:
                best = peak
                for j in range(count):
                    t = by[j]
                    if held[t] + most[i] <= best:
                        break
                    best = max(best, held[t] + row[t])
                sums[i] += best - peak


def _sampled_peaks(moments: FloatArray, orders: int, seed: int) -> CostShares:
    """Shapley values of the peak game by sampled coalitions; see the module."""
    unit = 2 * BATCHES
    if orders < unit or orders % unit:
        rule = f"must be a multiple of {unit}: {BATCHES} batches of an order and its reverse"
        raise SettingsError(problem("orders", orders, rule, f"Use {max(1, round(orders / unit)) * unit}"))
    players = len(moments)
    rng, most, total = np.random.default_rng(seed), moments.max(axis=1), float(moments.sum(axis=0).max())
    moments = np.ascontiguousarray(moments)
    looks = min(BEGINNINGS, players + 1)
    means = np.zeros((BATCHES, players))
    for batch in range(BATCHES):
        for _ in range(orders // unit):
            order, begin = rng.permutation(players), rng.random()
            sizes = ((np.arange(looks) + begin) / looks * (players + 1)).astype(np.int64)
            # Complements of the beginnings of an order are beginnings of its reverse.
            for way, first in zip(both_ways(order), (sizes, np.sort(players - sizes)), strict=True):
                _every_marginal(moments, most, way, first, means[batch])
    means *= BATCHES / (orders * looks)
    values, reach = means.mean(axis=0), half_width(standard_error(means), BATCHES - 1.0)
    # They must add up: what is left over goes where it is least certain, which is the nearest by their variances.
    weight = reach**2 if reach.any() else np.ones(players)
    values = values + (total - values.sum()) * weight / weight.sum()
    return CostShares(values, total, reach, False, orders)
