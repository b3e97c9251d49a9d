"""The one protocol every scheduler satisfies, ours or anybody's."""

from __future__ import annotations

from typing import Protocol

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
