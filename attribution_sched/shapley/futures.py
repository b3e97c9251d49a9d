"""Shapley values where every background state is a future of its own, with a full coalition of its own too.

Futures differ by more than coalitions do, so many of them with few coalitions each tell most. In every future the
players come in a few orders and in their reverses, a player's value is what it adds as it comes, and the spread between
futures, orders included, is the error. Values and base add up to the full coalition in each, and whoever changes
nothing has exactly nothing, which a regression does not promise. Few players: all coalitions in every future.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.shapley.estimate import Estimate
from attribution_sched.shapley.exact import all_coalitions, shapley_of_table
from attribution_sched.shapley.orders import both_ways
from attribution_sched.stats.interval import standard_error
from attribution_sched.types import BoolArray, FloatArray, IntArray

_ORDERS = 21

Value = Callable[[BoolArray, IntArray], FloatArray]
"""Values (n, k, C) of coalitions (n, d) in futures (k,)."""


def estimate_futures(
    value: Value, players: Sequence[str], outputs: Sequence[str], futures: int, *, exact: bool, pairs: int = 1,
    seed: int = 0,
) -> Estimate:  # fmt: skip
    """Mean Shapley values over futures.

    Args:
        value: Values of coalitions in futures; asked for several coalitions in one future, or one in several.
        players: Names of the d players; there may be none.
        outputs: Names of the C outputs.
        futures: How many to play.
        exact: Whether to value all coalitions in every future.
        pairs: Orders, each with its reverse, that the players come in otherwise.
        seed: Of the orders.

    Returns:
        The values; of one future the errors are infinite.
    """
    for field, given in (("futures", futures), ("pairs", pairs)):
        if given < 1:
            raise ExplanationError(problem(field, given, "must be >= 1", "Ask for one or more"))
    d = len(players)
    if exact or d < 2:
        table = value(all_coalitions(d), np.arange(futures)).swapaxes(0, 1)
        empty, full, values, evaluations = table[:, 0], table[:, -1], shapley_of_table(table), futures << d
    else:
        empty, full, values, evaluations = _by_orders(value, d, len(outputs), futures, pairs, seed)
    base_error, error, full_error = (
        standard_error(each) if futures > 1 else np.full(each.shape[1:], np.inf) for each in (empty, values, full)
    )
    return Estimate(
        tuple(players), tuple(outputs), values.mean(axis=0), error, empty.mean(axis=0), base_error, full.mean(axis=0),
        evaluations, "exact" if exact else "permutation", futures, seed, freedom=max(1.0, futures - 1.0),
        full_error=full_error,
    )  # fmt: skip


def _by_orders(
    value: Value, d: int, outputs: int, futures: int, pairs: int, seed: int
) -> tuple[FloatArray, FloatArray, FloatArray, int]:
    """Values of the empty and the full coalition (F, C), of the players (F, d, C), and what was valued."""
    drawn = [np.random.default_rng([seed, _ORDERS, f]) for f in range(futures)]
    orders = both_ways(np.stack([[rng.permutation(d) for _ in range(pairs)] for rng in drawn]))
    orders = orders.reshape(futures, 2 * pairs, d)
    # Entry j of an order's path: the code of the first j that come.
    paths = np.concatenate([np.zeros((*orders.shape[:2], 1), dtype=np.int64), np.cumsum(1 << orders, axis=2)], axis=2)
    table = np.empty((futures, 1 << d, outputs))
    met = np.zeros((futures, 1 << d), dtype=bool)
    np.put_along_axis(met, paths.reshape(futures, -1), True, axis=1)
    masks, asked = all_coalitions(d), np.flatnonzero(met.any(axis=0))
    if len(asked) <= futures:
        for code in asked:
            where = np.flatnonzero(met[:, code])
            table[where, code] = value(masks[code][None], where)[0]
    else:
        for f in range(futures):
            table[f, met[f]] = value(masks[met[f]], np.array([f]))[:, 0]
    values, rows = np.zeros((futures, d, outputs)), np.arange(futures)[:, None]
    for way in range(2 * pairs):
        values[rows, orders[:, way]] += np.diff(table[rows, paths[:, way]], axis=1) / (2 * pairs)
    return table[:, 0], table[:, -1], values, int(met.sum())
