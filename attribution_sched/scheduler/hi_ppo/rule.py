"""The rule that Hi-PPO's agents begin at, as a policy of its own: what they learnt is the difference to it.

:class:`~attribution_sched.scheduler.hi_ppo.decode.ShortestFirst` answers every question that the agents would be
asked; what may be chosen, what attributions say of a task's time and the search that settles details are Hi-PPO's.
Where a task cannot gain by waiting, Hi-PPO searches around what its agents propose, the rule around its own plan.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.scheduler.hi_ppo.candidates import ComparedActor, RuleActor
from attribution_sched.scheduler.hi_ppo.coordinator import Coordination, HiPpo
from attribution_sched.scheduler.hi_ppo.decode import Actor, Decoded, Planner, ShortestFirst, decode
from attribution_sched.scheduler.hi_ppo.features import State
from attribution_sched.scheduler.thinking import Think, Thinker
from attribution_sched.types import Attributor, FloatArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.cluster.fork import Beliefs, Follower


class _MustAct(ShortestFirst):
    """The rule about a task that has to be placed now: the first candidate that fits, if the rule would rather wait."""

    def task(self, state: State) -> IntArray:
        """A candidate; one past the last only where none fits."""
        found, nothing = super().task(state), state.mask.shape[1] - 1
        first = state.mask[:, :-1].argmax(axis=1)
        idle = (found == nothing) & state.mask[:, :-1].any(axis=1)
        return np.asarray(np.where(idle, first, found), dtype=np.int64)


class _RuleInCharge(HiPpo):
    """Hi-PPO's coordination with the rule in the agents' place. No deadline: a decision must not hang on a clock."""

    def __init__(self, attributor: Attributor | None, search: bool, think: Think | bool) -> None:
        super().__init__(attributor=attributor, search=search, think=think, deadline_s=np.inf)
        # The rule itself knows no partners: what it gains by them is the fork's.
        self.pairs = self.think is not None

    def _actor(self, view: Decision, planner: Planner, decisions: Decisions) -> ComparedActor:
        return RuleActor()

    def _decode(self, view: Decision, planner: Planner, decisions: Decisions, timings: dict[str, float]) -> Decoded:
        return decode(planner, decisions, ShortestFirst() if self.waits else _MustAct(), timings, self.clock)

    def _decode_each(self, views: Sequence[Decision], planner: Planner, decisions: Decisions) -> Decoded:
        return self._decode(views[0], planner, decisions, {"upper": 0.0, "lower": 0.0})

    def _must_act(self, view: Decision, planner: Planner, chosen: Decisions) -> Actor:
        return _MustAct()

    def thinker(self) -> Thinker:
        """Whose copies the rule plays on: nothing that was learnt takes part."""
        if self._thinker is None:
            self._thinker = Thinker(self.think or Think(), self.attributions)
        return self._thinker


class Rule:
    """Shortest task first, each where and as it is worth most by itself; details searched as Hi-PPO does.

    It has nothing to learn and no probabilities to explain: it is asked like any function of a decision.

    Args:
        attributor: How counters become attributions where a decision does not carry them, and what attributions mean;
            as Hi-PPO has learnt it by default.
        search: Whether a search settles details of a plan, and places tasks that waiting would not help.
        think: How much its choice is compared with others in copies of the cluster; see :class:`RuleFork`.
    """

    name = "rule"

    def __init__(
        self, attributor: Attributor | None = None, *, search: bool = True, think: Think | bool = False
    ) -> None:
        self._coordinator = _RuleInCharge(attributor, search, think)
        self.pairs = self._coordinator.pairs

    @property
    def last(self) -> Coordination | None:
        """How the last decision came about."""
        return self._coordinator.last

    def reset(self, seed: int) -> None:
        """Forget the last episode; the seed decides nothing."""
        self._coordinator.reset(seed)

    def select(self, view: Decision) -> int:
        """Choose which waiting task goes first."""
        return self._coordinator.select(view)

    def decide(self, view: Decision) -> Plan | None:
        """Place, defer, move or keep the task of the view."""
        return self._coordinator.decide(view)

    def branch(self) -> Rule:
        """Another that decides on from here."""
        other = copy.copy(self)
        other._coordinator = self._coordinator.branch()
        return other

    def foresight(self, view: Decision) -> tuple[Follower, Beliefs]:
        """Itself, compiled, with what it believes of tasks."""
        return self._coordinator.foresight(view)

    def attributions(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` of counters ``(n, 12)``, as it reads them."""
        return self._coordinator.attributions(counters)

    def memory(self) -> dict[str, FloatArray]:
        """What the forecast of the links has learnt of them."""
        return self._coordinator.memory()

    def recall(self, memory: Mapping[str, FloatArray]) -> None:
        """Remember what was learnt of the links."""
        self._coordinator.recall(memory)


class RuleFork(Rule):
    """The rule with time to think: its choice and single changes of it are compared in copies of the cluster.

    What a policy that has learnt gains over this one was learnt; the rest is the fork's.

    Args:
        attributor: As for :class:`Rule`.
        search: As for :class:`Rule`.
        think: How much.
    """

    name = "rule+fork"

    def __init__(
        self, attributor: Attributor | None = None, *, search: bool = True, think: Think | None = None
    ) -> None:
        super().__init__(attributor, search=search, think=think or True)
