"""What decisions of one kind are compared with, worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decisions
from attribution_sched.explain.background import Background
from attribution_sched.explain.players import Lineup, Usual

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Alike:
    """Background, players and their usual readings for decisions of one kind.

    Attributes:
        background: The states to compare with.
        cast: The players.
        usual: What is usual of them.
        extremes: Least and largest value of every number in the background, by field.
    """

    background: Background
    cast: Lineup
    usual: Usual
    extremes: dict[str, tuple[NDArray[Any], NDArray[Any]]]

    @classmethod
    def of(cls, background: Background, cast: Lineup) -> Alike:
        """Read what is usual off the background."""
        states = background.states
        extremes = {
            name: (getattr(states, name).min(axis=0), getattr(states, name).max(axis=0)) for name in cast.owners
        }
        return cls(background, cast, cast.usual(states), extremes)

    def differing(self, seen: Decisions) -> BoolArray:
        """Players with a number that some background state has otherwise, by decision, shape ``(D, P)``.

        The others cannot have a share.
        """
        differs = np.zeros((len(seen), len(self.cast.names)), dtype=np.bool_)
        for field, owner in self.cast.owners.items():
            own, (least, most) = getattr(seen, field), self.extremes[field]
            moved = ((least != own) | (most != own)).reshape(len(seen), -1)
            flat = owner.reshape(-1)
            row, at = np.nonzero(moved & (flat >= 0))
            differs[row, flat[at]] = True
        return differs
