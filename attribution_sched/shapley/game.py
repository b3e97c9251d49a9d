"""What is explained: a function of which players are present, and how its rows are valued.

Absent players are taken from a background state. Rows go to the game in chunks, for one decision or many, and values
that nobody could explain are refused.

Array axes used throughout this folder: ``n`` rows to be valued, ``d`` players, ``C`` outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.types import BoolArray, FloatArray, IntArray


class Roster(Protocol):
    """Who plays a game, for what, against what."""

    @property
    def players(self) -> tuple[str, ...]:
        """Names of the d players."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the C outputs, all valued by one call."""

    @property
    def n_background(self) -> int:
        """Number of distinct background states; 1 if the game averages over its background by itself."""


class Game(Roster, Protocol):
    """One decision as a game of its inputs."""

    def __call__(self, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Value coalitions.

        Args:
            coalitions: (n, d) who is present.
            background: (n,) number of the state that the absent players of each row are taken from.

        Returns:
            Values (n, C). The value of the full coalition must not depend on the background state.
        """


class BatchGame(Roster, Protocol):
    """Several decisions with the same players, outputs and background, valued in one call."""

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
        if self.n_decisions == 1:
            return self.games[0](coalitions, background)
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


Progress = Callable[[int, int | None], None]
"""Called with the rows valued so far and the most that may be valued, None if only the clock limits them."""


class Evaluator:
    """Calls the game with at most ``chunk`` rows at a time.

    Attributes:
        rows: Rows valued so far.
        total: The most rows that may be valued, for the progress report.
    """

    def __init__(self, game: BatchGame, chunk: int, progress: Progress | None = None) -> None:
        self.game = game
        self.chunk = chunk
        self.rows = 0
        self.total: int | None = None
        self._progress = progress

    def plan(self, coalitions: BoolArray, background: IntArray, decisions: IntArray) -> FloatArray:
        """Value every row of one plan for each of the decisions.

        Args:
            coalitions: (n, d) coalitions of the plan.
            background: (n,) background state of each row.
            decisions: (m,) numbers of the decisions.

        Returns:
            Values (m, n, C), float64 and finite.
        """
        n, wanted = len(coalitions), len(decisions) * len(coalitions)
        values = np.empty((wanted, len(self.game.outputs)))
        for start in range(0, wanted, self.chunk):
            stop = min(start + self.chunk, wanted)
            first, last = start // n, (stop - 1) // n
            if first == last:
                rows = slice(start - first * n, stop - first * n)
                chosen, states = coalitions[rows], background[rows]
                whose = np.full(stop - start, decisions[first])
            else:
                place = np.arange(start, stop)
                within = place % n
                chosen, states, whose = coalitions[within], background[within], decisions[place // n]
            values[start:stop] = self._checked(chosen, states, whose)
            self.rows += stop - start
            if self._progress is not None:
                self._progress(self.rows, self.total)
        return values.reshape(len(decisions), n, -1)

    def full(self, decisions: IntArray) -> FloatArray:
        """Value the full coalition of each decision, (m, C)."""
        coalition = np.ones((1, len(self.game.players)), dtype=bool)
        return self.plan(coalition, np.zeros(1, dtype=np.int64), decisions)[:, 0]

    def _checked(self, coalitions: BoolArray, background: IntArray, decision: IntArray) -> FloatArray:
        values = np.asarray(self.game(coalitions, background, decision))
        shape = (len(coalitions), len(self.game.outputs))
        if values.shape != shape:
            rule = f"the game must return one row per coalition and one column per output, {shape}"
            raise ExplanationError(problem("shape of the values", values.shape, rule, "Correct the game."))
        if not np.isfinite(values).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
            present = [name for name, here in zip(self.game.players, coalitions[row], strict=True) if here]
            where = f"decision {decision[row]}, background state {background[row]}"
            rule = f"every value must be finite; {where}, players present: {', '.join(present) or 'none'}"
            fix = "Look at what the policy or simulator returns for that mixed state; no value is guessed for it."
            field = f"value of {self.game.outputs[column]!r}"
            raise ExplanationError(problem(field, float(values[row, column]), rule, fix))
        return values


@contextmanager
def follow(progress: bool | Progress | None) -> Iterator[Progress | None]:
    """Turn the user's wish for progress into a callback; True shows a bar that leaves nothing behind."""
    if progress is None or progress is False:
        yield None
        return
    if progress is not True:
        yield progress
        return
    from rich.progress import Progress as Bar

    with Bar(transient=True) as bar:
        task = bar.add_task("Shapley values", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
