"""Asking a policy: which task, which plan; the same for live decisions, rehearsals and warm-ups."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import Reward
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.kernels import clock
from attribution_sched.scheduler.policy import Episodic, Policy, QueueOrder
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.session.cluster import SimulatedCluster


class FunctionPolicy:
    """A plain function of the view in the place of a policy.

    Args:
        function: Returns a plan, or None to let the task wait (or stay).
    """

    def __init__(self, function: Callable[[Decision], Plan | None]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def decide(self, view: Decision) -> Plan | None:
        """What the function says."""
        return self.function(view)


def as_policy(given: Any) -> Policy:
    """A policy from its name, from itself or from a function.

    Raises:
        SettingsError: If it is none of these.
    """
    if isinstance(given, str):
        if given not in POLICIES:
            raise SettingsError(problem("policy", given, "is not a known policy", nearest(given, POLICIES)))
        return make_policy(given)
    if not isinstance(given, type):
        if callable(getattr(given, "decide", None)) and isinstance(getattr(given, "name", None), str):
            policy: Policy = given
            return policy
        if callable(given):
            return FunctionPolicy(given)
    rule = "must be the name of a policy, a policy, or a function from the view to a plan"
    raise SettingsError(problem("policy", given, rule, f"For example {'hi-ppo'!r}; known: {', '.join(POLICIES)}"))


def twin(policy: Policy) -> Policy:
    """A copy that can be asked without the original noticing, as at the start of an episode."""
    if isinstance(policy, FunctionPolicy):
        return policy
    try:
        other = copy.deepcopy(policy)
    except Exception:  # What a foreign policy holds (a socket, a handle) may refuse to be copied deeply.
        other = copy.copy(policy)
    if isinstance(other, Episodic):
        other.reset(0)
    return other


@dataclass(frozen=True, eq=False)
class Asked:
    """What a policy said.

    Attributes:
        view: The decision, with the task it chose.
        plan: Its plan; None waits, or stays.
        seconds: How long it took.
        idle: Whether nothing ran when it was asked.
        instead: Whose plan it is and why, if it is not the policy's own.
    """

    view: Decision
    plan: Plan | None
    seconds: float
    idle: bool = False
    instead: str = ""


class Moment(NamedTuple):
    """What is remembered from one question to the next.

    Attributes:
        deferred: Slots of the tasks that were left waiting at this moment.
        time_s: The moment.
        idle_waits: Tasks left waiting in a row while nothing ran.
        noted: Number of the last decision that is counted here.
    """

    deferred: frozenset[int] = frozenset()
    time_s: float = -1.0
    idle_waits: int = 0
    noted: int = -1


class Asking:
    """Asks for one decision after the other, and not twice at one moment for a task that was left waiting.

    A learnt policy can meet a queue that it was never taught, and let all of it wait while nothing runs, for ever. If
    it names a ``fallback``, that one is asked then.
    """

    def __init__(self) -> None:
        self.state = Moment()

    def ask(
        self, policy: Policy, cluster: SimulatedCluster, reward: Reward | None = None, seen: Decision | None = None
    ) -> Asked:
        """Let a policy choose task and plan of the pending decision.

        Args:
            policy: Who decides.
            cluster: Where.
            reward: Weights in force, if they are not the world's.
            seen: The pending decision, if it was looked at already.
        """
        seen = weighted(cluster.pending(), reward) if seen is None else seen
        self._at(seen.time_s)
        began = clock()
        spent = 0.0
        if not seen.replanning and len(seen.queue) > 1 and isinstance(policy, QueueOrder):
            chosen = policy.select(seen)
            spent = clock() - began
            if chosen not in self.state.deferred:
                cluster.choose(chosen)
                seen = weighted(cluster.pending(), reward)
            began = clock()
        plan: Any = policy.decide(seen)
        spent += clock() - began
        if plan is not None and not isinstance(plan, Plan):
            rule = f"{policy.name} must decide on a Plan or None"
            raise SettingsError(problem("plan", plan, rule, "Return a Plan, or None to wait"))
        idle = cluster.running == 0
        other: Any = getattr(policy, "fallback", None)
        if (
            plan is None
            and idle
            and self.state.idle_waits >= len(seen.queue)
            and callable(getattr(other, "decide", None))
        ):
            fallback: Policy = other
            plan = fallback.decide(seen)
            spent = clock() - began
            return Asked(seen, plan, spent, idle, f"fallback:{fallback.name} (all tasks were left waiting, none runs)")
        return Asked(seen, plan, spent, idle)

    def note(self, asked: Asked, number: int | None = None) -> None:
        """Remember that a decision was taken.

        Args:
            asked: The decision.
            number: Its number: told twice of one, as after an interrupt, it is remembered once.
        """
        state = self.state
        if number is not None and number <= state.noted:
            return
        self._at(asked.view.time_s)
        deferred = self.state.deferred
        waits = asked.plan is None and not asked.view.replanning
        # In one assignment: an interrupt finds it noted or not noted, never half.
        self.state = Moment(
            deferred | {asked.view.slot} if waits else deferred,
            asked.view.time_s,
            state.idle_waits + 1 if waits and asked.idle else 0,
            state.noted if number is None else number,
        )

    def _at(self, time_s: float) -> None:
        if time_s != self.state.time_s:
            self.state = self.state._replace(deferred=frozenset(), time_s=time_s)


def with_weights(reward: Reward, weights: tuple[float, float, float] | None) -> Reward:
    """A reward with other weights of its three terms; None leaves them."""
    if weights is None:
        return reward
    w_eff, w_util, w_cost = weights
    return replace(reward, w_eff=w_eff, w_util=w_util, w_cost=w_cost)


def weighted(view: Decision, reward: Reward | None) -> Decision:
    """A view with the weights in force."""
    return view if reward is None or reward == view.reward else replace(view, reward=reward)
