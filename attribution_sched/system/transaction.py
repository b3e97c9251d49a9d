"""What a call has begun and not finished, so that the next call finishes it.

An exception, or Ctrl-C, may end a call between what is recorded and what is done. Nothing is decided anew then: the
journal says what was decided, and the next call does it, see ``System.call``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from attribution_sched.system.operations import Operation

if TYPE_CHECKING:
    from attribution_sched.cluster.live import TaskInstance
    from attribution_sched.journal import TaskRecord
    from attribution_sched.system.ring import Turn


@dataclass(frozen=True, eq=False)
class Entry:
    """A task that is handed in.

    Attributes:
        record: What the journal keeps of it.
        made: What the cluster takes.
    """

    record: TaskRecord
    made: TaskInstance


@dataclass(frozen=True)
class Reshaping:
    """Weights of policy or reward that change; what of it is recorded counts."""


class Transaction:
    """One piece of work at a time, and whether the cluster was left while it moved.

    Attributes:
        work: What is under way; None between two pieces.
        moving: Whether the cluster was on its way between two states: how far it came, nobody knows.
    """

    def __init__(self) -> None:
        self.work: Turn | Entry | Operation | Reshaping | None = None
        self.moving = False

    @property
    def whole(self) -> bool:
        """Whether nothing is left to finish."""
        return self.work is None and not self.moving

    def moves(self) -> Moves:
        """For the time in which the cluster moves: ``with transaction.moves(): …``."""
        return Moves(self)


class Moves:
    """Marks the cluster as moving, and as still again only if nothing was raised meanwhile."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> None:
        self._transaction.moving = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._transaction.moving = False
