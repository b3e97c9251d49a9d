"""A policy that remembers its decisions, so that they can be explained and serve as background."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from attribution_sched.cluster.decision import Decision, Decisions, from_view, own_first
from attribution_sched.cluster.plan import Plan
from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.scheduler.policy import Appraiser, Episodic, Policy, QueueOrder

MOST = 4000
"""Decisions that are remembered by default."""


@dataclass(frozen=True, eq=False)
class Decided:
    """One decision that was taken.

    Attributes:
        id: Its identifier.
        view: What there was to decide.
        plan: What was decided; None waits, or stays.
        seen: The decision as the policy saw it, its task as candidate 0.
        source: Who had the last word, as the journal has it; empty if nobody noted it.
    """

    id: str
    view: Decision
    plan: Plan | None
    seen: Decisions
    source: str = ""


def perceived(policy: Policy, view: Decision) -> Decisions:
    """A decision as a policy sees it, its task as candidate 0.

    Args:
        policy: Whose eyes; one that cannot say what it sees is taken to see the view.
        view: The decision; attributions are those it carries.
    """
    if isinstance(policy, Appraiser):
        return own_first(policy.perceive(view), view.slot)
    return own_first(from_view(view), view.slot)


def noted(policy: Policy) -> str:
    """Who had the last word in a policy's last decision, as it says itself; empty if it does not."""
    return str(getattr(getattr(policy, "last", None), "source", ""))


class Watch:
    """Stands in the place of a policy, lets it decide, and remembers.

    Args:
        policy: Who decides.
        most: How many decisions to remember; the oldest are forgotten first.
        placed_only: Whether to pass over decisions to wait or to stay.
    """

    def __init__(self, policy: Policy, most: int = MOST, *, placed_only: bool = False) -> None:
        if most < 1:
            raise ExplanationError(problem("most", most, "must be >= 1", "Remember at least one decision"))
        self.policy = policy
        self.most = most
        self.placed_only = placed_only
        self._kept: OrderedDict[str, Decided] = OrderedDict()
        self._count = 0
        self._episode = 0

    @property
    def name(self) -> str:
        """The policy's own name."""
        return self.policy.name

    def reset(self, seed: int) -> None:
        """A new episode begins; what was remembered stays."""
        self._episode = seed
        if isinstance(self.policy, Episodic):
            self.policy.reset(seed)

    def select(self, view: Decision) -> int:
        """The policy's choice of the next task; the one that is up if it does not choose."""
        return self.policy.select(view) if isinstance(self.policy, QueueOrder) else view.slot

    def decide(self, view: Decision) -> Plan | None:
        """The policy's decision, remembered."""
        plan = self.policy.decide(view)
        if plan is not None or not self.placed_only:
            name = f"{self._episode}-{self._count}"
            self._kept[name] = Decided(name, view, plan, perceived(self.policy, view), noted(self.policy))
            if len(self._kept) > self.most:
                self._kept.popitem(last=False)
        self._count += 1
        return plan

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Decided]:
        return iter(self._kept.values())

    def __getitem__(self, decision: str) -> Decided:
        if decision not in self._kept:
            hint = nearest(str(decision), list(self._kept)[-20:]) if self._kept else "Let it decide first"
            raise ExplanationError(problem("decision", decision, f"is not among the last {len(self)}", hint))
        return self._kept[decision]
