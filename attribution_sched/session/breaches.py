"""What a task asked for and did not get: each breach in words, because a wish that is passed over must be heard of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.types import IntArray, Outcome, Task

if TYPE_CHECKING:
    from attribution_sched.session.cluster import SimulatedCluster

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
