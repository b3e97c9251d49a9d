"""Exact Shapley values by enumeration of all coalitions.

    φ_j = Σ_S w(|S|) · [v(S + j) − v(S)],    w(s) = s! (d−s−1)! / d! = 1 / (d · C(d−1, s))    over S without j

Coalitions are numbered by a code, of which bit j says whether player j is present.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np

from attribution_sched.shapley.game import Evaluator
from attribution_sched.types import BoolArray, FloatArray, IntArray

MAX_PLAYERS = 20
"""Enumeration doubles with every player; beyond this even one background state is a million rows."""

_BLOCK_ROWS = 1 << 18


def all_coalitions(d: int, start: int = 0, stop: int | None = None) -> BoolArray:
    """Coalitions (n, d) in the order of their codes, from ``start`` to before ``stop``; all 2^d by default."""
    codes = np.arange(start, 1 << d if stop is None else stop)
    return np.asarray((codes[:, None] >> np.arange(d)) & 1, dtype=np.bool_)


def codes_of(coalitions: BoolArray) -> IntArray:
    """Codes (...) of coalitions (..., d)."""
    return np.asarray(coalitions @ (1 << np.arange(coalitions.shape[-1])))


def shapley_weights(d: int) -> FloatArray:
    """Weight (d,) of a coalition of 0 … d-1 others, for a player among d."""
    return np.array([1.0 / (d * comb(d - 1, s)) for s in range(d)])


@lru_cache(maxsize=16)
def shapley_matrix(d: int) -> FloatArray:
    """Matrix (2^d, d) that turns the values of all coalitions into Shapley values: one product for many rows."""
    masks, weights = all_coalitions(d), shapley_weights(d)
    size = masks.sum(axis=1)
    gain, loss = np.append(0.0, weights), np.append(weights, 0.0)
    matrix: FloatArray = np.where(masks, gain[size][:, None], -loss[size][:, None])
    matrix.setflags(write=False)
    return matrix


def shapley_of_table(table: FloatArray) -> FloatArray:
    """Shapley values (..., d, C) from the values (..., 2^d, C) of all coalitions in the order of their codes.

    They are sums of weighted differences, so whoever changes nothing has exactly nothing.
    """
    lead, d, outputs = table.shape[:-2], table.shape[-2].bit_length() - 1, table.shape[-1]
    values = np.empty((*lead, d, outputs))
    for j in range(d):
        split = table.reshape(*lead, 1 << (d - 1 - j), 2, 1 << j, outputs)
        gain = (split[..., 1, :, :] - split[..., 0, :, :]).reshape(*lead, -1, outputs)
        values[..., j, :] = np.einsum("s,...sc->...c", _weights_by_code(d), gain)
    return values


@lru_cache(maxsize=4)
def _weights_by_code(d: int) -> FloatArray:
    """Weight (2^(d-1),) of each coalition of the others, in the order of their codes."""
    size = np.zeros(1, dtype=np.int64)
    for _ in range(d - 1):
        size = np.concatenate([size, size + 1])
    return np.asarray(shapley_weights(d)[size])


def exact_states(evaluate: Evaluator, decisions: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Value all coalitions with every background state.

    Returns:
        Shapley values (m, B, d, C) and value of the empty coalition (m, B, C) by background state, and the value of
        the full coalition (m, C).
    """
    game = evaluate.game
    d, n_states, m, outputs = len(game.players), game.n_background, len(decisions), len(game.outputs)
    values = np.empty((m, n_states, d, outputs))
    empty = np.empty((m, n_states, outputs))
    full = evaluate.full(decisions)
    # As many states at once as fit a block, so that small games still make large calls.
    at_once = max(1, _BLOCK_ROWS // (m << d))
    for first in range(0, n_states, at_once):
        states = np.arange(first, min(first + at_once, n_states))
        table = np.empty((m, len(states), 1 << d, outputs))
        step = max(1, _BLOCK_ROWS // (m * len(states)))
        for start in range(0, 1 << d, step):
            stop = min(start + step, 1 << d)
            block = all_coalitions(d, start, stop)
            rows = evaluate.plan(np.tile(block, (len(states), 1)), np.repeat(states, stop - start), decisions)
            table[:, :, start:stop] = rows.reshape(m, len(states), stop - start, outputs)
        table[:, :, -1] = full[:, None]
        empty[:, first : first + len(states)] = table[:, :, 0]
        values[:, first : first + len(states)] = shapley_of_table(table)
    return values, empty, full
