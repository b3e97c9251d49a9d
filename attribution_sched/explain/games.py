"""Decisions as games: who is present keeps the decision's numbers, who is absent has a background state's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision_arrays import Decisions
from attribution_sched.explain.background import Background
from attribution_sched.explain.lineup import Lineup
from attribution_sched.explain.situations import Blender, stacked
from attribution_sched.explain.targets import AppraisedComponents, ManyComponents, Target
from attribution_sched.scheduler.policy import BatchAppraiser

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
    """

    players: tuple[str, ...]
    seats: IntArray
    n_players: int
    blend: Blender
    target: Target

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
        everybody[:, self.seats] = coalitions
        situations = self.blend(everybody, background, np.zeros(len(coalitions), dtype=np.int64))
        return self.target(situations, everybody, background)


@dataclass(frozen=True, eq=False)
class ManyDecisions:
    """Decisions with the same players and background as one batch of games.

    Attributes:
        games: Their games.
        blend: Puts situations of all of them together.
        target: What is asked of them.
    """

    games: tuple[DecisionGame, ...]
    blend: Blender
    target: ManyComponents

    @property
    def players(self) -> tuple[str, ...]:
        """Names of the players."""
        return self.games[0].players

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.games[0].outputs

    @property
    def n_background(self) -> int:
        """Number of background states."""
        return self.games[0].n_background

    @property
    def n_decisions(self) -> int:
        """Number of decisions."""
        return len(self.games)

    def __call__(self, coalitions: BoolArray, background: IntArray, decision: IntArray) -> FloatArray:
        """Outputs of coalitions of the players in the games; everybody else is present."""
        everybody = np.ones((len(coalitions), self.games[0].n_players), dtype=np.bool_)
        everybody[:, self.games[0].seats] = coalitions
        return self.target(self.blend(everybody, background, decision), decision)


def together(
    games: Sequence[DecisionGame], seen: Sequence[Decisions], background: Background, cast: Lineup
) -> ManyDecisions | list[DecisionGame]:
    """Decisions as one batch if the policy can judge them together, else game by game."""
    targets = [game.target for game in games if isinstance(game.target, AppraisedComponents)]
    if len(targets) < len(games) or not isinstance(targets[0].policy, BatchAppraiser):
        return list(games)
    blend = Blender.of(stacked(list(seen)), background.states, cast.owners)
    return ManyDecisions(tuple(games), blend.only(games[0].seats), ManyComponents(tuple(targets)))
