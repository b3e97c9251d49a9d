"""Decisions as games: who is present keeps the decision's numbers, who is absent has a background state's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.explain.masked_states import Blender
from attribution_sched.explain.targets import Target

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


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
