"""The Banzhaf value under its own name: what independent coin flips estimate, and why it is not used to explain.

``beta_i = 2^-(d-1) sum_S [v(S + i) - v(S)]``: every coalition of the others counts the same, so nearly all weight lies
on those of middle size. The values do not add up to ``v(all) - v(none)``. Flipping a fair coin for each input,
multiplying the state by the mask and averaging the marginals is an estimate of it with a baseline of all zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.shapley.exact import MAX_PLAYERS, all_coalitions
from attribution_sched.shapley.game import BatchGame, Evaluator, Game, StackedGame, check_game
from attribution_sched.shapley.orders import state_sequence
from attribution_sched.stats.interval import half_width
from attribution_sched.types import FloatArray

_ONE = np.zeros(1, dtype=np.int64)
_COINS = 4
_BLOCK_ROWS = 1 << 18


@dataclass(frozen=True)
class Banzhaf:
    """Banzhaf values of one decision.

    Attributes:
        players: Names of the d players.
        outputs: Names of the C outputs.
        values: (d, C) Banzhaf values.
        standard_error: (d, C) standard errors of the sampled masks; zero if exact.
        base: (C,) mean value of the empty coalition over the background.
        full: (C,) value of the full coalition.
        rows: Rows valued.
        method: "exact" or "sampled".
        seed: Seed of the masks.
    """

    players: tuple[str, ...]
    outputs: tuple[str, ...]
    values: FloatArray
    standard_error: FloatArray
    base: FloatArray
    full: FloatArray
    rows: int
    method: Literal["exact", "sampled"]
    seed: int

    def efficiency_gap(self) -> FloatArray:
        """What the values miss of ``full - base``, (C,). It is no error of sampling: the exact values have it too."""
        return np.asarray(self.full - self.base - self.values.sum(axis=0))

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends (d, C) of the confidence interval of each value."""
        half = half_width(self.standard_error, inf, level)
        return self.values - half, self.values + half


def banzhaf(game: Game, *, method: str = "sampled", masks: int = 1000, seed: int = 0, chunk: int = 4096) -> Banzhaf:
    """Banzhaf values by enumeration, or by coin flips.

    Args:
        game: The decision. For the zero baseline, a game whose only background state is zero.
        method: ``exact`` or ``sampled``.
        masks: Number of masks to flip; each costs one row and one per player.
        seed: Seed of the masks.
        chunk: Most rows per call of the game.
    """
    if method not in ("exact", "sampled"):
        raise ExplanationError(problem("method", method, "unknown", nearest(method, ("exact", "sampled"))))
    if masks < 2:
        raise ExplanationError(problem("masks", masks, "at least two carry an error", "Ask for a thousand."))
    batch: BatchGame = StackedGame([game])
    check_game(batch)
    evaluate = Evaluator(batch, chunk)
    full = evaluate.full(_ONE)[0]
    states = np.arange(game.n_background)
    empty = np.zeros((len(states), len(game.players)), dtype=bool)
    base = evaluate.plan(empty, states, _ONE)[0].mean(axis=0)
    values, error = _enumerate(evaluate) if method == "exact" else _flip(evaluate, masks, seed)
    named: Literal["exact", "sampled"] = "exact" if method == "exact" else "sampled"
    return Banzhaf(game.players, game.outputs, values, error, base, full, evaluate.rows, named, seed)


def _enumerate(evaluate: Evaluator) -> tuple[FloatArray, FloatArray]:
    game = evaluate.game
    d = len(game.players)
    if d > MAX_PLAYERS:
        fix = "Group the players, or use method='sampled'."
        raise ExplanationError(problem("players", d, f"exact needs at most {MAX_PLAYERS}", fix))
    total = np.zeros((d, len(game.outputs)))
    step = min(1 << d, _BLOCK_ROWS)
    for state in range(game.n_background):
        for start in range(0, 1 << d, step):
            block = all_coalitions(d, start, start + step)
            table = evaluate.plan(block, np.full(step, state), _ONE)[0]
            total += np.where(block, 1.0, -1.0).T @ table
    return total / (game.n_background * 2.0 ** (d - 1)), np.zeros_like(total)


def _flip(evaluate: Evaluator, masks: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Flip a coin for each player, then turn each player over once: both sides of its marginal from d + 1 rows."""
    game = evaluate.game
    d = len(game.players)
    flips = np.random.default_rng([seed, _COINS]).random((masks, d)) < 0.5
    states = state_sequence(game.n_background, masks, seed)
    turned = flips[:, None, :] ^ np.concatenate([np.zeros((1, d), dtype=bool), np.eye(d, dtype=bool)])
    rows = evaluate.plan(turned.reshape(-1, d), np.repeat(states, d + 1), _ONE)[0]
    table = rows.reshape(masks, d + 1, -1)
    marginal = np.where(flips[:, :, None], 1.0, -1.0) * (table[:, :1] - table[:, 1:])
    return marginal.mean(axis=0), marginal.std(axis=0, ddof=1) / np.sqrt(masks)
