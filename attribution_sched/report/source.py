"""What a report reads of a system; the system itself lies above this room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from attribution_sched.cluster.live import SimulatedCluster
    from attribution_sched.cluster.world import Reward, World
    from attribution_sched.config import Settings
    from attribution_sched.explain.decision_table import DecisionTable
    from attribution_sched.explain.explanation import Explanation
    from attribution_sched.journal import Journal
    from attribution_sched.scheduler.policy import Policy

Progress = Callable[[str, int, int], None]
"""Called when a step begins: its name, its number from 0 on, and how many steps there are."""

STEPS: tuple[str, ...] = ("journal", "targets", "explanations", "traffic", "bill", "rivals", "pictures", "file")
"""The steps by name, in order."""


class Source(Protocol):
    """A system."""

    journal: Journal
    settings: Settings
    policy: Policy
    world: World
    reward: Reward
    cluster: SimulatedCluster
    seed: int
    domains: tuple[str, ...]

    @property
    def now_s(self) -> float:
        """The cluster's clock."""
        ...

    def explain(self, decision: str, **given: Any) -> Explanation:
        """Say why a decision was made."""
        ...

    def alternatives(self, decision: str, *, drivers: bool = False) -> DecisionTable:
        """What else could have been done at a decision."""
        ...
