"""What players read in many decisions, put into words only when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from attribution_sched.cluster.decision import Decisions
from attribution_sched.explain.findings import Player
from attribution_sched.explain.players import Lineup, Usual, in_joules

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector


class Readings:
    """Readings of the players of a line-up in D decisions.

    Args:
        cast: The players.
        usual: What is usual of them.
        seen: The decisions.
        vectors: Attribution of the task of each.
    """

    def __init__(
        self, cast: Lineup, usual: Usual, seen: Decisions, vectors: Sequence[AttributionVector | None] = ()
    ) -> None:
        self.cast, self.usual, self.seen, self.vectors = cast, usual, seen, vectors

    @cached_property
    def columns(self) -> list[list[list[Any]]]:
        """Per player its columns, each with one entry per decision, read once for all of them."""
        return self.cast.read(self.seen)

    def of(self, row: int) -> LazyPlayers:
        """The players of one decision."""
        return LazyPlayers(self, row)


class LazyPlayers(Sequence[Player]):
    """The players of one of many decisions; like a tuple of them, made when it is first looked at.

    Args:
        readings: Of all decisions.
        row: Which decision.
    """

    def __init__(self, readings: Readings, row: int) -> None:
        self.names = readings.cast.names
        self._readings = readings
        self._row = row

    @cached_property
    def _made(self) -> tuple[Player, ...]:
        told = self._readings
        return in_joules(
            told.cast.told(told.columns, self._row, told.usual), told.vectors[self._row] if told.vectors else None
        )

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Player]:
        return iter(self._made)

    @overload
    def __getitem__(self, at: int) -> Player: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Player, ...]: ...
    def __getitem__(self, at: int | slice) -> Player | tuple[Player, ...]:
        return self._made[at]

    def __eq__(self, other: object) -> bool:
        return self._made == tuple(other) if isinstance(other, (tuple, LazyPlayers)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._made)

    def __repr__(self) -> str:
        return repr(self._made)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and stored as the tuple it stands for."""
        return tuple, (self._made,)
