"""Decisions as games: who is present keeps the decision's numbers, who is absent has a background state's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.explain.explanation import whole_degrees
from attribution_sched.explain.findings import Interaction
from attribution_sched.explain.masked_states import Blender
from attribution_sched.explain.targets import Target
from attribution_sched.shapley.game import Game
from attribution_sched.shapley.interactions import interactions
from attribution_sched.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class DecisionGame:
    """A decision as a game: who is present keeps the decision's numbers, who is absent has a background state's.

    Attributes:
        players: Names of the players that can make a difference.
        seats: Where these stand among all players of the line-up, shape ``(d,)``.
        n_players: Number of all players.
        blend: Puts situations together.
        target: What is asked of them.
        fused: Where those stand that are the last player together; it has no seat of its own. None without one.
    """

    players: tuple[str, ...]
    seats: IntArray
    n_players: int
    blend: Blender
    target: Target
    fused: IntArray | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.target.outputs

    @property
    def n_background(self) -> int:
        """Number of background states."""
        return len(self.blend.background)

    def __call__(self, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Outputs of coalitions of the players in the game; everybody else is present."""
        everybody = np.ones((len(coalitions), self.n_players), dtype=np.bool_)
        everybody[:, self.seats] = coalitions[:, : len(self.seats)]
        if self.fused is not None:
            everybody[:, self.fused] = coalitions[:, -1:]
        situations = self.blend(everybody, background, np.zeros(len(coalitions), dtype=np.int64))
        return self.target(situations, everybody, background)


# ------ Interactions of a game as findings


def strongest_pairs(
    game: Game, players: Sequence[str] | None, *, rows: int, seed: int, reading: str
) -> tuple[Interaction, ...]:
    """All pairs among some players (or all), per output, the strongest first.

    Args:
        game: The decision.
        players: Whose pairs; None for all.
        rows: Most situations to evaluate.
        seed: Of the sampling.
        reading: What the background stands for, ``sample`` or ``population``.
    """
    found = interactions(game, players, budget_rows=rows, seed=seed, background=reading)
    degrees = whole_degrees(found.freedom)
    listed = [
        Interaction(*pair, output, float(found.values[p, c]), float(found.standard_error[p, c]), degrees)
        for p, pair in enumerate(found.pairs)
        for c, output in enumerate(found.outputs)
    ]
    return tuple(sorted(listed, key=lambda pair: -abs(pair.value)))
