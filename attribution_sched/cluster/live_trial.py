"""The live cluster once more, with something changed: does a task start before time passes?

What ``why`` says is tried here last: a copy of the cluster itself, not of what a decision shows of it, in which the
deployed policy is asked as the system asks it. Quotas, share rules, the queue behind the window, what the policy
remembers of the links and what it has put off at this very moment are all as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import replace

from attribution_sched.cluster.live import PolicyCall, SimulatedCluster, TaskInstance
from attribution_sched.cluster.world import Reward
from attribution_sched.scheduler.policy import Branching, Policy
from attribution_sched.types import Task

INSTANT_S = 1e-6
"""Less than this passes between decisions of one instant."""


def copied(cluster: SimulatedCluster) -> SimulatedCluster:
    """A live cluster once more; what never changes is shared, among it every task: a long queue costs little."""
    shared = (
        cluster.world, cluster.engine.world, cluster.engine.cost, cluster.attribute,
        *cluster.backlog, *cluster.residents.values(), *cluster.held.values(),
    )  # fmt: skip
    other: SimulatedCluster = copy.deepcopy(cluster, {id(each): each for each in shared})
    return other


def starts_at_once(
    cluster: SimulatedCluster, policy: Policy, call: PolicyCall, reward: Reward | None, task: str
) -> bool:
    """Ask a policy as the system does until time would pass; whether a task runs by then."""
    until_s = cluster.now_s + INSTANT_S
    while cluster.advance(until_s) and cluster.now_s <= until_s:
        asked = call.ask(policy, cluster, reward)
        cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
        call.note(asked)
        if cluster.place_of(task) == "running":
            return True
    return cluster.place_of(task) == "running"


class LiveTrial:
    """Tries changes of a live cluster, and counts.

    Args:
        cluster: The live one; it is only copied.
        policy: A copy of the policy, with what it remembers; see :func:`~attribution_sched.scheduler.policy.twin`.
        call: How far the system has asked at this moment.
        reward: Weights in force.
        task: Whose start is in question.
    """

    def __init__(
        self, cluster: SimulatedCluster, policy: Policy, call: PolicyCall, reward: Reward | None, task: str
    ) -> None:
        self._before, self._state, self._reward, self._task = copied(cluster), call.state, reward, task
        self._policy = policy
        self.count = 0

    def starts_without(self, gone: Collection[str]) -> bool:
        """Whether the task starts at once if these, waiting or running, are not there."""
        cluster = copied(self._before)
        for name in gone:
            if cluster.place_of(name) == "running":
                cluster.stop(name)
            else:
                cluster.take_out(name)
        return self._starts(cluster, self._task)

    def asking(self, task: Task) -> bool:
        """Whether the task starts at once if it is withdrawn and handed in anew with this request."""
        cluster = copied(self._before)
        waiting = cluster.take_out(self._task)
        # Whole steps, as they are handed in; an opaque job of another size is of another kind.
        steps = max(1, round(task.steps))
        changed = replace(waiting.task, kind_index=task.kind_index, devices=task.devices, steps=steps)
        name = f"{self._task} anew"
        return cluster.hand_in(TaskInstance(changed, waiting.demands), name) and self._starts(cluster, name)

    def _starts(self, cluster: SimulatedCluster, task: str) -> bool:
        self.count += 1
        call = PolicyCall()
        call.state = self._state
        # One trial must not teach the next, and all that the policy remembers is part of what it would do: also pairs
        # that the cluster refused a moment ago, which no journal keeps.
        own = self._policy.branch() if isinstance(self._policy, Branching) else copy.deepcopy(self._policy)
        return starts_at_once(cluster, own, call, self._reward, task)
