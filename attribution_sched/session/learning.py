"""Learning on: weights that decide get better, are kept beside the journal, and are found again on resuming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.world import World
from attribution_sched.errors import JournalError, SettingsError, problem
from attribution_sched.journal import EventRecord, Journal
from attribution_sched.scheduler.policy import Policy

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
    from attribution_sched.scheduler.hi_ppo.policy import HiPpo

EVENT = "learnt"
"""Kind of the journal's event for weights that were taken over."""


@dataclass(frozen=True, eq=False)
class Learnt:
    """What came of learning on.

    Attributes:
        improved: Whether other weights decide from now on.
        return_before: Mean held-out return of the weights that decided.
        return_after: Mean held-out return of the weights that decide now.
        decisions: Decisions learnt from.
        weights: Where the new weights are; None if nothing changed, or the journal is in memory.
        policy: Who decides now.
    """

    improved: bool
    return_before: float
    return_after: float
    decisions: int
    weights: Path | None
    policy: Policy


def learn(policy: Policy, world: World, decisions: int, journal: Journal, given: Mapping[str, Any]) -> Learnt:
    """Let Hi-PPO learn on in a world; see :func:`attribution_sched.training.continue_learning`.

    Raises:
        SettingsError: If the policy is not Hi-PPO, or a number is out of range.
    """
    from attribution_sched.scheduler.hi_ppo.policy import HiPpo
    from attribution_sched.training import continue_learning

    if not isinstance(policy, HiPpo):
        rule = "does not learn"
        raise SettingsError(problem("policy", policy.name, rule, "Make the system with policy='hi-ppo'"))
    found = continue_learning(policy.network, world, decisions, **given)
    if not found.improved:
        return Learnt(False, found.before.mean, found.after.mean, found.decisions, None, policy)
    count, weights = journal.count(), None
    if journal.path is not None:
        from attribution_sched.scheduler.hi_ppo.checkpoint import save

        weights = journal.path.with_name(f"{journal.path.name}.learnt-{count}.safetensors")
        save(weights, found.network, {"started_from": "a running system", "decisions": found.decisions})
    facts = {
        "after_decisions": count, "decisions": found.decisions, "weights": weights and weights.name,
        "return_before": found.before.mean, "return_after": found.after.mean,
    }  # fmt: skip
    journal.record_event(EventRecord(EVENT, facts))
    better = with_network(policy, found.network)
    return Learnt(True, found.before.mean, found.after.mean, found.decisions, weights, better)


def with_network(policy: HiPpo, network: HiPpoNetwork) -> HiPpo:
    """The same policy with other weights."""
    from attribution_sched.scheduler.hi_ppo.policy import HiPpo

    return HiPpo(
        network=network, attributor=policy.attributor, search=policy.search, widen=policy.widen, predict=policy.predict,
        wishes=policy.wishes, deadline_s=policy.deadline_s, fallback=policy.fallback, clock=policy.clock,
    )  # fmt: skip


class Lessons:
    """Weights that were taken over in the course of a journal, in order.

    Args:
        journal: The journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._folder = None if journal.path is None else journal.path.parent
        self._events = [event for event in journal.events() if event.kind == EVENT]

    def due(self, decisions: int, policy: Policy) -> Policy | None:
        """The policy that took over before the decision of this number and after the last one asked about.

        Raises:
            JournalError: If its weights are gone.
        """
        if not self._events or self._events[0].details["after_decisions"] > decisions:
            return None
        from attribution_sched.scheduler.hi_ppo.checkpoint import load
        from attribution_sched.scheduler.hi_ppo.policy import HiPpo

        found: Policy | None = None
        while self._events and self._events[0].details["after_decisions"] <= decisions:
            name = self._events.pop(0).details["weights"]
            path = None if self._folder is None or name is None else self._folder / name
            if path is None or not path.is_file() or not isinstance(policy, HiPpo):
                rule = "the weights that decided from there on are not beside the journal"
                raise JournalError(problem("weights", name, rule, "Put the file back where the journal is"))
            found = with_network(policy, load(path))
        return found
