"""Calling a policy: which task, which plan; the same for live decisions, rehearsals and warm-ups.

What a task asked for (devices, priority, deadline, what others reserved) is checked here too: a plan beyond it is not
carried out, and a wish that is passed over is said in words.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import Reward
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.kernels import clock
from attribution_sched.live_cluster import SimulatedCluster
from attribution_sched.scheduler.policy import Episodic, Policy, QueueOrder
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.types import IntArray, Outcome, Task

# --- What tasks asked for ---

MOST_NAMED = 3
"""Tasks that a breach names; the others are counted."""


def devices_of(plan: Plan, domains: int) -> IntArray:
    """Devices that a plan uses per domain, shape ``(K,)``."""
    used = np.zeros(domains, dtype=np.int64)
    for segment in plan.segments:
        used[segment.domain] += segment.device_count
    return used


def beyond_limits(cluster: SimulatedCluster, seen: Decision, plan: Plan | None) -> str:
    """Why a plan uses devices that its task may not have; empty if it does not."""
    task = seen.task
    if plan is None or task is None or (task.devices is None and not cluster.reservations):
        return ""
    used = devices_of(plan, len(seen.free_devices))
    if task.devices is not None and used.sum() > task.devices:
        return f"the plan uses {used.sum()} devices, the task asked for at most {task.devices}"
    reserved = cluster.reserved_devices(task.tenant) if cluster.reservations else np.zeros_like(used)
    for at in np.flatnonzero((used > seen.free_devices) & (reserved > 0)).tolist():
        name = cluster.world.cluster.domains[at].name
        return f"the plan uses {used[at]} devices of {name}, {reserved[at]} are reserved for others"
    return ""


def within_one_domain(seen: Decision) -> IntArray:
    """Free devices with those of one domain only, the one with most: no plan in it can sum up to more."""
    only = np.zeros_like(seen.free_devices)
    at = int(np.argmax(seen.free_devices))
    only[at] = seen.free_devices[at]
    return only


def more_urgent(cluster: SimulatedCluster, seen: Decision, asked_before: frozenset[int]) -> tuple[str, ...]:
    """Tasks that are more urgent than the one to be placed, and wait.

    Args:
        cluster: Where.
        seen: The decision.
        asked_before: Slots of tasks that were asked about at this moment and left waiting.
    """
    if seen.replanning or seen.task is None:
        return ()
    own = seen.task.priority
    above = [task for task in seen.queue if task.priority > own]
    passed = [task for task in above if task.slot not in asked_before]
    left = [task for task in above if task.slot in asked_before]
    behind = cluster.backlog.most_urgent() if cluster.backlog else None
    told = []
    if passed:
        told.append(f"placed before {_named(passed)}, more urgent than priority {own}")
    if left:
        told.append(f"placed while {_named(left)}, more urgent than priority {own}, was asked about and left waiting")
    if behind is not None and behind.task.priority > own:
        told.append(f"placed before {_named([behind.task])} behind the window, more urgent than priority {own}")
    return tuple(told)


def expected_late(task: Task, steps_left: float, now_s: float, effect: Outcome) -> tuple[str, ...]:
    """Whether a task that runs will have finished in time, as things are now."""
    if task.deadline_s is None or effect.step_s <= 0.0:
        return ()
    late_s = now_s + effect.move_s + steps_left * effect.step_s - task.deadline_s
    if late_s <= 1e-9 * max(1.0, abs(task.deadline_s)):
        return ()
    return (f"expected to finish {late_s:.0f} s after its deadline",)


def _named(tasks: list[Task]) -> str:
    listed = [f"{task.id} (priority {task.priority})" for task in tasks[:MOST_NAMED]]
    return ", ".join(listed) + (f" and {len(tasks) - MOST_NAMED} more" if len(tasks) > MOST_NAMED else "")


# --- The call ---


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
class PolicyAnswer:
    """What a policy said.

    Attributes:
        view: The decision, with the task it chose.
        plan: Its plan; None waits, or stays.
        seconds: How long it took.
        idle: Whether nothing ran when it was asked.
        instead: Whose plan it is and why, if it is not the policy's own.
        breaches: What tasks asked for and this decision passes over, in words.
        refused: Why the policy's plan is not carried out; empty if it is.
    """

    view: Decision
    plan: Plan | None
    seconds: float
    idle: bool = False
    instead: str = ""
    breaches: tuple[str, ...] = ()
    refused: str = ""


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


class PolicyCall:
    """Asks for one decision after the other, and not twice at one moment for a task that was left waiting.

    A learnt policy can meet a queue that it was never taught, and let all of it wait while nothing runs, for ever. If
    it names a ``fallback``, that one is asked then.
    """

    def __init__(self) -> None:
        self.state = Moment()
        self.failure: Exception | None = None
        """What the policy last raised: whoever catches an error knows by it whose it is."""

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.failure = error
            raise

    def ask(
        self, policy: Policy, cluster: SimulatedCluster, reward: Reward | None = None, seen: Decision | None = None
    ) -> PolicyAnswer:
        """Let a policy choose task and plan of the pending decision.

        Args:
            policy: Who decides.
            cluster: Where.
            reward: Weights in force, if they are not the world's.
            seen: The pending decision, if it was looked at already.

        Raises:
            Exception: Whatever the policy raises, or what says that its answer is no plan; it is :attr:`failure` then.
        """
        seen = weighted(cluster.pending(), reward) if seen is None else seen
        self._at(seen.time_s)
        began = clock()
        spent = 0.0
        if not seen.replanning and len(seen.queue) > 1 and isinstance(policy, QueueOrder):
            with self._noticing():
                chosen = policy.select(seen)
            spent = clock() - began
            if chosen not in self.state.deferred:
                cluster.choose(chosen)
                seen = weighted(cluster.pending(), reward)
            began = clock()
        with self._noticing():
            plan, refused = _plan_of(policy, cluster, seen)
        spent += clock() - began
        idle = cluster.running == 0
        other: Any = getattr(policy, "fallback", None)
        instead = ""
        if (
            plan is None
            and idle
            and self.state.idle_waits >= len(seen.queue)
            and callable(getattr(other, "decide", None))
        ):
            fallback: Policy = other
            with self._noticing():
                plan, refused = _plan_of(fallback, cluster, seen)
            spent = clock() - began
            instead = f"fallback:{fallback.name} (all tasks were left waiting, none runs)"
        elif refused:
            instead = f"{'keeps' if seen.replanning else 'waits'} (refused: {refused})"
        breaches = () if plan is None else more_urgent(cluster, seen, self.state.deferred)
        return PolicyAnswer(seen, plan, spent, idle, instead, breaches, refused)

    def encode(self, cluster: SimulatedCluster, asked: PolicyAnswer) -> IntArray:
        """A plan as the cluster is told it.

        Raises:
            PlanError: If the cluster has no words for it; it is :attr:`failure` then.
        """
        with self._noticing():
            return cluster.encode(asked.plan, asked.view.kind_index)

    def note(self, asked: PolicyAnswer, number: int | None = None) -> None:
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


def _plan_of(policy: Policy, cluster: SimulatedCluster, seen: Decision) -> tuple[Plan | None, str]:
    """A policy's plan within what its task may use, and why there is none if there is none for that reason.

    Per domain a policy sees no more free devices than it may use. A plan over several domains can still sum up to more
    than the task asked for: it is asked once more, about one domain.
    """
    wide, plan, refused = seen, None, ""
    for attempt in range(2):
        answer: Any = policy.decide(seen)
        if answer is not None and not isinstance(answer, Plan):
            rule = f"{policy.name} must decide on a Plan or None"
            raise SettingsError(problem("plan", answer, rule, "Return a Plan, or None to wait"))
        plan, beyond = answer, beyond_limits(cluster, wide, answer)
        if not beyond:
            return plan, refused if plan is None else ""
        refused = beyond
        if attempt == 0:
            seen = replace(seen, free_devices=within_one_domain(seen))
    return None, refused


def with_weights(reward: Reward, weights: tuple[float, float, float] | None) -> Reward:
    """A reward with other weights of its three terms; None leaves them."""
    if weights is None:
        return reward
    w_eff, w_util, w_cost = weights
    return replace(reward, w_eff=w_eff, w_util=w_util, w_cost=w_cost)


def weighted(view: Decision, reward: Reward | None) -> Decision:
    """A view with the weights in force."""
    return view if reward is None or reward == view.reward else replace(view, reward=reward)
