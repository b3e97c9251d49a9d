"""Values the rows of a plan in chunks, for one decision or many, and refuses values nobody could explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.shapley.game import BatchGame
from attribution_sched.types import BoolArray, FloatArray, IntArray

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
