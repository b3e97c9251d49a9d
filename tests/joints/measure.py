"""What the joint tests share: recorded moments of a cluster, and attributions that are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from attribution_sched.attribution.attributor import TaskAttributor
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.live import PolicyAnswer, PolicyCall, SimulatedCluster
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import World
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.policy import Policy
from attribution_sched.types import Float32Array, Outcome

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector

NO_DEADLINE_S = 1e9
"""Joints are measured with time to think: a slow machine must not decide otherwise."""


def moments(
    world: World, attributor: TaskAttributor | None, policy: Policy, count: int, seed: int = 0, per_day: int = 60
) -> Iterator[tuple[Decision, PolicyAnswer, Outcome]]:
    """Decisions of a policy as they come: what there was to decide, what it said and what came of it.

    Args:
        world: Where.
        attributor: Who attributes the tasks.
        policy: Who decides.
        count: How many.
        seed: Of the first day; more days follow until there are enough.
        per_day: Decisions taken of each.
    """
    while count > 0:
        attribute = None if attributor is None else attributor.vector
        cluster, call = SimulatedCluster(world, seed, attribute=attribute), PolicyCall()
        if hasattr(policy, "reset"):
            policy.reset(0)
        for _ in range(min(count, per_day)):
            if not cluster.advance():
                break
            seen = cluster.pending()
            asked = call.ask(policy, cluster)
            yield seen, asked, cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
            call.note(asked)
            count -= 1
        seed += 1


def cut(decision: Decision, change: Callable[[Float32Array], Float32Array]) -> Decision:
    """The same moment with other attributions: what every policy reads, changed."""

    def other(vector: AttributionVector | None) -> AttributionVector | None:
        return None if vector is None else vector.with_state(change(vector.state))

    queue = tuple(replace(task, attribution=other(task.attribution)) for task in decision.queue)
    return replace(decision, attribution=other(decision.attribution), queue=queue)


def chosen(policy: HiPpo, decision: Decision) -> tuple[int, Plan | None]:
    """Task and plan of a policy at one moment, nothing remembered of others."""
    policy.reset(0)
    found = policy.coordinate(decision)
    return found.slot, found.plan
