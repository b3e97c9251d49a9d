"""Weights a policy learnt while its system ran, kept beside the journal and found again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.world import World
from attribution_sched.errors import JournalError, SettingsError, problem
from attribution_sched.journal import EventRecord, Journal
from attribution_sched.scheduler.policy import Policy
from attribution_sched.system import arguments

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.checkpoint import Weights
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

LEARNT = "learnt"
"""Kind of the journal's event for weights that were taken over."""

ORIGINAL = ""
"""Name of the weights a system began with."""


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


def learn(
    policy: Policy, world: World, decisions: int, journal: Journal, versions: Versions, options: Mapping[str, Any]
) -> Learnt:
    """Let Hi-PPO learn on in a world; see :func:`attribution_sched.scheduler.hi_ppo.online_learning.learn_on`.

    Raises:
        SettingsError: If the policy is not Hi-PPO, or a number is out of range.
    """
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
    from attribution_sched.scheduler.hi_ppo.online_learning import learn_on

    if not isinstance(policy, HiPpo):
        rule = "does not learn"
        raise SettingsError(problem("policy", policy.name, rule, "Make the system with policy='hi-ppo'"))
    arguments.known_options("train", learn_on, options)
    arguments.counted("decisions", decisions, least=1)
    arguments.seed_of(options.get("seed", 0))
    learnt = learn_on(policy.learnt, world, decisions, **options)
    if not learnt.improved:
        return Learnt(False, learnt.before, learnt.after, learnt.decisions, None, policy)
    name, weights = versions.new_name(), None
    if journal.path is not None:
        from attribution_sched.scheduler.hi_ppo.checkpoint import save

        weights = journal.path.with_name(name)
        save(weights, learnt.weights, {"started_from": "a running system", "decisions": learnt.decisions})
    better = with_weights(policy, learnt.weights)
    facts = {"decisions": learnt.decisions, "return_before": learnt.before, "return_after": learnt.after}
    versions.take_over(name, better, facts)
    return Learnt(True, learnt.before, learnt.after, learnt.decisions, weights, better)


def with_weights(policy: HiPpo, weights: Weights) -> HiPpo:
    """The same policy with other weights."""
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

    return HiPpo(
        weights, attributor=policy.attributor, search=policy.search, widen=policy.widen, predict=policy.predict,
        wishes=policy.wishes, think=policy.think or False, deadline_s=policy.deadline_s, fallback=policy.fallback,
        clock=policy.clock,
    )  # fmt: skip


class Versions:
    """The weights a system decides by in its course, by name: those it began with, and those it learnt.

    Args:
        journal: Where a change of weights is recorded.
        original: Who decided at first.
    """

    def __init__(self, journal: Journal, original: Policy) -> None:
        self.current = self.anchored = ORIGINAL
        self._journal = journal
        self._events = [event for event in journal.events() if event.kind == LEARNT]
        self._taken_over = [(event.details["after_decisions"], event.details["weights"]) for event in self._events]
        self._learnt = sum(event.details["weights"] != ORIGINAL for event in self._events)
        self._kept: dict[str, Policy] = {ORIGINAL: original}

    def new_name(self) -> str:
        """A name for weights that are about to take over; it is also that of their file."""
        path = self._journal.path
        return f"{'' if path is None else path.name + '.'}learnt-{self._learnt}.safetensors"

    def take_over(self, name: str, policy: Policy, facts: Mapping[str, Any]) -> None:
        """Record that other weights decide from now on."""
        event = {"after_decisions": self._journal.count(), "weights": name, **facts}
        self._journal.record_event(EventRecord(LEARNT, event))
        self._taken_over.append((self._journal.count(), name))
        self._learnt += name not in self._kept
        self._kept[name] = policy
        self.current = name
        if self._journal.path is not None:
            # The others are read again should they ever be asked for.
            self._kept = {each: kept for each, kept in self._kept.items() if each in self._needed()}

    def anchor(self) -> None:
        """Remember who decides now as the last one known to be good."""
        self.anchored = self.current

    def restore(self) -> Policy | None:
        """Let the last one known to be good decide again; None if it does already."""
        if self.current == self.anchored:
            return None
        policy = self.policy(self.anchored)
        self.take_over(self.anchored, policy, {"restored": True})
        return policy

    def due(self, decisions: int) -> Policy | None:
        """The policy that took over before the decision of this number and after the last one asked about.

        Raises:
            JournalError: If its weights are gone.
        """
        policy: Policy | None = None
        while self._events and self._events[0].details["after_decisions"] <= decisions:
            name = self._events.pop(0).details["weights"]
            policy = self._kept[name] = self.policy(name)
            self.current = name
        return policy

    def at(self, number: int) -> str:
        """Name of the weights that took the decision of this number."""
        return next((name for count, name in reversed(self._taken_over) if count <= number), ORIGINAL)

    def _needed(self) -> set[str]:
        return {ORIGINAL, self.current, self.anchored}

    def policy(self, name: str) -> Policy:
        """Who decides by the weights of a name.

        Raises:
            JournalError: If they are gone.
        """
        if name in self._kept:
            return self._kept[name]
        from attribution_sched.scheduler.hi_ppo.checkpoint import load
        from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

        original, path = self._kept[ORIGINAL], self._journal.path
        if path is None or not path.with_name(name).is_file() or not isinstance(original, HiPpo):
            rule = "the weights that decided from there on are not beside the journal"
            raise JournalError(problem("weights", name, rule, "Put the file back where the journal is"))
        return with_weights(original, load(path.with_name(name)))
