"""The one protocol every scheduler satisfies, ours or anybody's."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.view import DecisionView


class Policy(Protocol):
    """Decides where and how a task runs."""

    @property
    def name(self) -> str:
        """Short name for tables and logs."""
        ...

    def decide(self, view: DecisionView) -> Plan | None:
        """Return a plan; None leaves a waiting task in the queue and a running one where it is."""
        ...


@runtime_checkable
class QueueOrder(Protocol):
    """A policy that also chooses which waiting task is placed first."""

    def select(self, view: DecisionView) -> int:
        """Return the slot of a task of ``view.queue``; asked only when a waiting task is to be placed."""
        ...


@runtime_checkable
class Episodic(Protocol):
    """A policy that remembers, and must be told when an episode begins."""

    def reset(self, seed: int) -> None:
        """Forget the last episode; ``seed`` feeds the policy's own random choices."""
        ...
