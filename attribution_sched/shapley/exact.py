"""Exact Shapley values by enumeration of all coalitions over the whole background."""

from __future__ import annotations

from math import comb

import numpy as np

from attribution_sched.shapley.coalitions import shapley_matrix
from attribution_sched.shapley.evaluate import Evaluator
from attribution_sched.types import BoolArray, FloatArray, IntArray

MAX_PLAYERS = 20
"""Enumeration doubles with every player; beyond this even one background state is a million rows."""

_DENSE_PLAYERS = 10
_BLOCK_ROWS = 1 << 18


def coalition_block(start: int, stop: int, d: int) -> BoolArray:
    """Coalitions with codes ``start`` to ``stop``; bit j of the code says whether player j is present."""
    return ((np.arange(start, stop)[:, None] >> np.arange(d)) & 1).astype(bool)


def shapley_of_table(table: FloatArray, d: int) -> FloatArray:
    """Shapley values (..., d, C) from the values (..., 2^d, C) of all coalitions in code order."""
    if d <= _DENSE_PLAYERS:
        return np.asarray(np.einsum("sd,...sc->...dc", shapley_matrix(d), table, optimize=True))
    size = np.zeros(1, dtype=np.int64)
    for _ in range(d - 1):
        size = np.concatenate([size, size + 1])
    weight = np.array([1.0 / (d * comb(d - 1, s)) for s in range(d)])[size]
    lead, outputs = table.shape[:-2], table.shape[-1]
    values = np.empty((*lead, d, outputs))
    for j in range(d):
        split = table.reshape(*lead, 1 << (d - 1 - j), 2, 1 << j, outputs)
        gain = (split[..., 1, :, :] - split[..., 0, :, :]).reshape(*lead, -1, outputs)
        values[..., j, :] = np.einsum("s,...sc->...c", weight, gain)
    return values


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
            block = coalition_block(start, stop, d)
            rows = evaluate.plan(np.tile(block, (len(states), 1)), np.repeat(states, stop - start), decisions)
            table[:, :, start:stop] = rows.reshape(m, len(states), stop - start, outputs)
        table[:, :, -1] = full[:, None]
        empty[:, first : first + len(states)] = table[:, :, 0]
        values[:, first : first + len(states)] = shapley_of_table(table, d)
    return values, empty, full
