"""What is explained: a function of which players are present, with the absent ones taken from a background state.

Array axes used throughout this folder: ``n`` rows to be valued, ``d`` players, ``C`` outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.types import BoolArray, FloatArray, IntArray


class Game(Protocol):
    """One decision as a game of its inputs."""

    @property
    def players(self) -> tuple[str, ...]:
        """Names of the d players."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the C outputs, all valued by one call."""

    @property
    def n_background(self) -> int:
        """Number of distinct background states; 1 if the game averages over its background by itself."""

    def __call__(self, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Value coalitions.

        Args:
            coalitions: (n, d) who is present.
            background: (n,) number of the state that the absent players of each row are taken from.

        Returns:
            Values (n, C). The value of the full coalition must not depend on the background state.
        """


class BatchGame(Protocol):
    """Several decisions with the same players, outputs and background, valued in one call."""

    @property
    def players(self) -> tuple[str, ...]:
        """Names of the d players."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the C outputs."""

    @property
    def n_background(self) -> int:
        """Number of distinct background states; 1 if the game averages over its background by itself."""

    @property
    def n_decisions(self) -> int:
        """Number of decisions."""

    def __call__(self, coalitions: BoolArray, background: IntArray, decision: IntArray) -> FloatArray:
        """Value coalitions (n, d) of the decisions (n,) with background states (n,); returns (n, C)."""


@dataclass(frozen=True)
class FunctionGame:
    """A game given by a plain function of the coalitions.

    Attributes:
        function: Takes coalitions (n, d), returns values (n, C), or (n,) for a single output.
        players: Names of the players.
        outputs: Names of the outputs.
    """

    function: Callable[[BoolArray], NDArray[np.floating]]
    players: tuple[str, ...]
    outputs: tuple[str, ...] = ("value",)
    n_background: int = 1

    def __call__(self, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Value coalitions; the background is the function's own business."""
        values = np.asarray(self.function(coalitions), dtype=np.float64)
        return values[:, None] if values.ndim == 1 else values


@dataclass(frozen=True)
class SingleGame:
    """One decision as a batch of one."""

    game: Game

    @property
    def players(self) -> tuple[str, ...]:
        """Names of the players."""
        return self.game.players

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.game.outputs

    @property
    def n_background(self) -> int:
        """Number of background states."""
        return self.game.n_background

    @property
    def n_decisions(self) -> int:
        """Always one."""
        return 1

    def __call__(self, coalitions: BoolArray, background: IntArray, decision: IntArray) -> FloatArray:
        """Value coalitions of the one decision."""
        return self.game(coalitions, background)


class StackedGame:
    """Separate games played as one batch, for games that cannot value several decisions in one call."""

    def __init__(self, games: Sequence[Game]) -> None:
        if not games:
            raise ExplanationError(problem("games", [], "at least one decision is needed", "Pass a game per decision."))
        first = games[0]
        for i, game in enumerate(games):
            for field in ("players", "outputs", "n_background"):
                if getattr(game, field) != getattr(first, field):
                    rule = f"must equal that of the first game, {getattr(first, field)!r}"
                    fix = "Explain decisions with other players, outputs or background in a call of their own."
                    raise ExplanationError(problem(f"games[{i}].{field}", getattr(game, field), rule, fix))
        self.games = tuple(games)
        self.players = first.players
        self.outputs = first.outputs
        self.n_background = first.n_background
        self.n_decisions = len(self.games)

    def __call__(self, coalitions: BoolArray, background: IntArray, decision: IntArray) -> FloatArray:
        """Value the rows of each decision by its own game."""
        values = np.empty((len(coalitions), len(self.outputs)))
        for i in np.unique(decision):
            rows = decision == i
            values[rows] = self.games[i](coalitions[rows], background[rows])
        return values


def check_game(game: BatchGame) -> None:
    """Refuse a game without players, outputs, background or decisions, or with names that are not unique."""
    for field, names in (("players", game.players), ("outputs", game.outputs)):
        if not names:
            raise ExplanationError(problem(field, names, "at least one is needed", f"Name the {field} of the game."))
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            raise ExplanationError(problem(field, double, "each name must be unique", "Rename the repeated ones."))
    if game.n_background < 1:
        fix = "Pass at least one background state; a hundred or more make the intervals meaningful."
        raise ExplanationError(problem("background", game.n_background, "at least one state is needed", fix))
    if game.n_decisions < 1:
        raise ExplanationError(problem("decisions", game.n_decisions, "at least one is needed", "Pass a decision."))
