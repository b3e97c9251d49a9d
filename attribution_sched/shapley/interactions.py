"""Pairwise Shapley interactions: how much more two players are worth together than apart.

``I_ij = sum_S |S|! (d-|S|-2)! / (d-1)! [v(S+i+j) - v(S+i) - v(S+j) + v(S)]`` over coalitions S of the others. Zero for
players whose effects simply add; positive where one needs the other, negative where one replaces the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import Literal

import numpy as np

from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.shapley.budget import STANDARD_ROWS
from attribution_sched.shapley.estimate import Reading, StateMeans, StateSums, error_of_mean
from attribution_sched.shapley.exact import MAX_PLAYERS, all_coalitions, shapley_weights
from attribution_sched.shapley.game import Evaluator, Game, Progress, StackedGame, check_game, follow
from attribution_sched.shapley.orders import state_sequence
from attribution_sched.stats.interval import LEVEL, half_width
from attribution_sched.types import FloatArray, IntArray

_ONE = np.zeros(1, dtype=np.int64)
_CUTS = 5
_ROUND_ROWS = 1 << 18
# Rows of one difference: none, i, j, both; and what they count.
_CORNERS = np.array([[False, False], [True, False], [False, True], [True, True]])
_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])


@dataclass(frozen=True)
class Interactions:
    """Interactions of the pairs of m players.

    Attributes:
        players: Names of the m players looked at.
        outputs: Names of the C outputs.
        values: (m, m, C) symmetric, zero on the diagonal.
        standard_error: (m, m, C) their standard errors.
        evaluations: Rows valued.
        method: "exact" or "sampled".
        background: Distinct background states used.
        seed: Seed of the coalitions.
        freedom: Degrees of freedom behind the standard errors.
    """

    players: tuple[str, ...]
    outputs: tuple[str, ...]
    values: FloatArray
    standard_error: FloatArray
    evaluations: int
    method: Literal["exact", "sampled"]
    background: int
    seed: int
    freedom: float = inf

    def interval(self, level: float = LEVEL) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends (m, m, C) of the confidence interval of each interaction."""
        half = half_width(self.standard_error, self.freedom, level)
        return self.values - half, self.values + half


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
        everything = game.n_background << len(game.players)
        if len(game.players) <= MAX_PLAYERS and everything <= budget_rows:
            means, method = _enumerate(evaluate, pairs), "exact"
        else:
            means, method = _sample(evaluate, pairs, budget_rows, seed), "sampled"
    error, freedom = error_of_mean(means, game.n_background, reading)
    values, spread = np.zeros((2, len(chosen), len(chosen), len(game.outputs)))
    for number, (i, j) in enumerate(combinations(range(len(chosen)), 2)):
        values[i, j] = values[j, i] = means.values[0].mean(axis=0)[number]
        spread[i, j] = spread[j, i] = error[0, number]
    return Interactions(
        players=chosen,
        outputs=game.outputs,
        values=values,
        standard_error=spread,
        evaluations=evaluate.rows,
        method="exact" if method == "exact" else "sampled",
        background=means.values.shape[1],
        seed=seed,
        freedom=freedom,
    )


def _enumerate(evaluate: Evaluator, pairs: IntArray) -> StateMeans:
    game = evaluate.game
    d = len(game.players)
    masks = all_coalitions(d)
    size = masks.sum(axis=1)
    found = np.empty((1, game.n_background, len(pairs), len(game.outputs)))
    for state in range(game.n_background):
        table = evaluate.plan(masks, np.full(1 << d, state), _ONE)[0]
        for number, (i, j) in enumerate(pairs):
            without = np.flatnonzero(~masks[:, i] & ~masks[:, j])
            # A pair that comes together is one of d - 1 players.
            weight = shapley_weights(d - 1)[size[without]]
            both = table[without | 1 << i | 1 << j] + table[without]
            found[0, state, number] = weight @ (both - table[without | 1 << i] - table[without | 1 << j])
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
