"""Pairwise Shapley interactions: how much more two players are worth together than apart.

``I_ij = sum_S |S|! (d-|S|-2)! / (d-1)! [v(S+i+j) - v(S+i) - v(S+j) + v(S)]`` over coalitions S of the others. Zero for
players whose effects simply add; positive where one needs the other, negative where one replaces the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np

from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.shapley.budget import STANDARD_ROWS
from attribution_sched.shapley.estimate import Reading, StateMeans, StateSums, error_of_mean
from attribution_sched.shapley.exact import MAX_PLAYERS, all_coalitions, shapley_of_table
from attribution_sched.shapley.game import Evaluator, Game, Progress, StackedGame, check_game, follow
from attribution_sched.shapley.orders import state_sequence
from attribution_sched.types import FloatArray, IntArray

_ONE = np.zeros(1, dtype=np.int64)
_CUTS = 5
_ROUND_ROWS = 1 << 18
# Rows of one difference: none, i, j, both; and what they count.
_CORNERS = np.array([[False, False], [True, False], [False, True], [True, True]])
_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])


@dataclass(frozen=True)
class Interactions:
    """Interactions of P pairs of players.

    Attributes:
        pairs: Names of the two of each pair.
        outputs: Names of the C outputs.
        values: (P, C) interactions.
        standard_error: (P, C) their standard errors.
        evaluations: Rows valued.
        exact: Whether every coalition was valued.
        background: Distinct background states used.
        seed: Seed of the coalitions.
        freedom: Degrees of freedom behind the standard errors.
    """

    pairs: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    values: FloatArray
    standard_error: FloatArray
    evaluations: int
    exact: bool
    background: int
    seed: int
    freedom: float


def interactions(
    game: Game,
    players: Sequence[str] | None = None,
    *,
    budget_rows: int = STANDARD_ROWS,
    seed: int = 0,
    chunk: int = 4096,
    progress: bool | Progress | None = None,
    background: str = "sample",
) -> Interactions:
    """Interactions of all pairs among the chosen players, exact if all coalitions fit the budget.

    Args:
        game: The decision.
        players: The players to look at, all if not given; the others take part as before.
        budget_rows: Most rows to value.
        seed: Seed of coalitions and background states.
        chunk: Most rows per call of the game.
        progress: True for a bar, or a function of the rows done and the most rows there may be.
        background: ``sample`` or ``population``, as for :func:`~attribution_sched.shapley.explain.estimate`.
    """
    batch = StackedGame([game])
    check_game(batch)
    chosen = tuple(game.players if players is None else players)
    for name in chosen:
        if name not in game.players:
            raise ExplanationError(problem("players", name, "no such player", nearest(name, game.players)))
    if len(set(chosen)) < max(2, len(chosen)):
        fix = "Name two or more different players."
        raise ExplanationError(problem("players", list(chosen), "an interaction needs two different ones", fix))
    place = [game.players.index(name) for name in chosen]
    pairs: IntArray = np.array(list(combinations(place, 2)))
    reading: Reading = "population" if background == "population" else "sample"
    with follow(progress) as report:
        evaluate = Evaluator(batch, chunk, report)
        evaluate.total = budget_rows
        exact = len(game.players) <= MAX_PLAYERS and game.n_background << len(game.players) <= budget_rows
        means = _enumerate(evaluate, pairs) if exact else _sample(evaluate, pairs, budget_rows, seed)
    error, freedom = error_of_mean(means, game.n_background, reading)
    return Interactions(
        tuple(combinations(chosen, 2)), game.outputs, means.values[0].mean(axis=0), error[0], evaluate.rows, exact,
        means.values.shape[1], seed, freedom,
    )  # fmt: skip


def _enumerate(evaluate: Evaluator, pairs: IntArray) -> StateMeans:
    """What i is worth in the game of what j adds: its Shapley value among the players beside j."""
    d, states = len(evaluate.game.players), evaluate.game.n_background
    coalitions, background = np.tile(all_coalitions(d), (states, 1)), np.repeat(np.arange(states), 1 << d)
    table = evaluate.plan(coalitions, background, _ONE).reshape(states, 1 << d, -1)
    found = np.empty((1, states, len(pairs), table.shape[-1]))
    for j in np.unique(pairs[:, 1]):
        split = table.reshape(states, -1, 2, 1 << j, table.shape[-1])
        added = shapley_of_table((split[:, :, 1] - split[:, :, 0]).reshape(states, 1 << (d - 1), -1))
        own = pairs[:, 1] == j
        found[0][:, own] = added[:, pairs[own, 0] - (pairs[own, 0] > j)]
    return StateMeans(found, np.zeros((1, *found.shape[2:])), inf)


def _sample(evaluate: Evaluator, pairs: IntArray, budget_rows: int, seed: int) -> StateMeans:
    """Cut a random order of the others anywhere: the players before the cut, then those after it, are the coalition."""
    game = evaluate.game
    d, count = len(game.players), len(pairs)
    rows = 8 * count
    draws = budget_rows // rows
    if draws < 2:
        rule = f"{count} pairs need at least {2 * rows:,} rows"
        fix = "Raise the budget or name fewer players."
        raise ExplanationError(problem("budget_rows", budget_rows, rule, fix))
    states = state_sequence(game.n_background, draws, seed)
    first_use = np.argsort(states[: game.n_background]) if draws > game.n_background else None
    slots = np.arange(draws) if first_use is None else first_use[states]
    sums = StateSums((1, min(draws, game.n_background), count, len(game.outputs)))
    pair = np.arange(count)
    step = max(1, _ROUND_ROWS // rows)
    for start in range(0, draws, step):
        part = slice(start, min(start + step, draws))
        k = part.stop - part.start
        rng = np.random.default_rng([seed, _CUTS, start])
        keys = rng.random((k, count, d))
        # The pair itself ranks last, so that the others hold ranks 0 … d-3.
        keys[:, pair[:, None], pairs] = 2.0
        rank = np.argsort(np.argsort(keys, axis=2), axis=2)
        cut = rng.integers(0, d - 1, (k, count, 1))
        before = rank < cut
        after = ~before
        corners = np.repeat(np.stack([before, after], axis=2)[:, :, :, None], 4, axis=3)
        for side in (0, 1):
            corners[:, pair, :, :, pairs[:, side]] = _CORNERS[:, side]
        values = evaluate.plan(corners.reshape(-1, d), np.repeat(states[part], rows), _ONE)
        table = values.reshape(1, k, count, 2, 4, -1)
        difference = np.einsum("nkpaqc,q->nkpc", table, _SIGNS) / 2.0
        sums.add(difference, np.zeros((1, k, len(game.outputs))), slots[part])
    return sums.means()[0]
