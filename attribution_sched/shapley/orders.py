"""Antithetic permutation walks, each with a background state of its own.

A walk adds the players one by one in a random order, then in the reverse order, both starting from the same background
state; a player's value is the mean of its two steps. Every walk adds up to ``v(all) - v(none)`` of its state. Walks go
through all background states before any state is used again: a fresh state tells more than a second walk on an old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from attribution_sched.types import BoolArray, FloatArray, IntArray

_BLOCK = 64
_SHUFFLED = 4096
_ORDERS, _STATES = 1, 2


@dataclass(frozen=True)
class WalkPlan:
    """Walks of which the game values ``rows_per_walk(d)`` rows each: none, d - 1 forwards, d - 1 backwards.

    Attributes:
        rank: (k, d) place of each player in the order of each walk.
        slots: (k,) number of each walk's background state in the order of first use.
        coalitions: (k * rows, d) what has to be valued.
        background: (k * rows,) the state of each row.
    """

    rank: IntArray
    slots: IntArray
    coalitions: BoolArray
    background: IntArray


def rows_per_walk(d: int) -> int:
    """Rows of an antithetic walk; the full coalition is valued once for all walks."""
    return 2 * d - 1


def state_sequence(n_background: int, stop: int, seed: int) -> IntArray:
    """The first ``stop`` background states: one random order of all of them after the other."""
    if n_background == 1:
        return np.zeros(stop, dtype=np.int64)
    # Small backgrounds need many orders: a few thousand states are shuffled with one generator.
    at_once = max(1, _SHUFFLED // n_background)
    blocks = -(-stop // (at_once * n_background))
    orders = np.tile(np.arange(n_background), (at_once, 1))
    draws = [np.random.default_rng([seed, _STATES, b]).permuted(orders, axis=1) for b in range(blocks)]
    return np.concatenate(draws).ravel()[:stop]


def both_ways(orders: IntArray) -> IntArray:
    """Orders (..., d) of the players, each followed by its reverse, (..., 2, d)."""
    return np.stack([orders, orders[..., ::-1]], axis=-2)


@lru_cache(maxsize=8)
def walk_plan(d: int, n_background: int, start: int, stop: int, seed: int) -> WalkPlan:
    """Walks ``start`` to ``stop`` of the endless sequence that the seed stands for."""
    blocks = range(start // _BLOCK, -(-stop // _BLOCK))
    draws = [np.random.default_rng([seed, _ORDERS, d, b]).random((_BLOCK, d)) for b in blocks]
    first = start - blocks[0] * _BLOCK
    keys = np.concatenate(draws)[first : first + stop - start]
    rank = np.argsort(np.argsort(keys, axis=1), axis=1)
    size = np.arange(1, d)[:, None]
    forwards = rank[:, None, :] < size
    backwards = rank[:, None, :] >= d - size
    empty = np.zeros((len(rank), 1, d), dtype=bool)
    coalitions = np.concatenate([empty, forwards, backwards], axis=1).reshape(-1, d)
    sequence = state_sequence(n_background, stop, seed)
    states = sequence[start:]
    first_use = np.argsort(sequence[:n_background]) if stop > n_background else None
    slots = np.arange(start, stop) if first_use is None else first_use[states]
    plan = WalkPlan(rank, slots, coalitions, np.repeat(states, rows_per_walk(d)))
    for array in (plan.rank, plan.slots, plan.coalitions, plan.background):
        array.setflags(write=False)
    return plan


def walk_values(plan: WalkPlan, values: FloatArray, full: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Turn the values of a plan's rows into the players' values of each walk.

    Args:
        plan: The walks.
        values: (m, k * rows, C) values of the plan's rows for m decisions.
        full: (m, C) value of the full coalition.

    Returns:
        (m, k, d, C) values of the players by walk and (m, k, C) value of the empty coalition.
    """
    k, d = plan.rank.shape
    m, _, c = values.shape
    chain = values.reshape(m, k, rows_per_walk(d), c)
    empty = chain[:, :, 0]
    rank = plan.rank[None, :, :, None]
    last = np.broadcast_to(full[:, None, None], (m, k, 1, c))
    total = np.zeros((m, k, d, c))
    for inside, place in ((chain[:, :, 1:d], rank), (chain[:, :, d:], d - 1 - rank)):
        steps = np.diff(np.concatenate([chain[:, :, :1], inside, last], axis=2), axis=2)
        total += np.take_along_axis(steps, place, axis=2)
    return 0.5 * total, empty
