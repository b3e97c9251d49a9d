"""What explanations ask of a live cluster: decisions of a warm-up, and the moment as a decision about any task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.decision import view as view_of
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.live import PolicyCall, SimulatedCluster, devices_of
from attribution_sched.cluster.world import Attribute, World
from attribution_sched.errors import TaskError, nearest, problem
from attribution_sched.explain.background import LEAST_ALIKE
from attribution_sched.explain.recorder import Decided, perceived
from attribution_sched.explain.why import Holder, put_up
from attribution_sched.scheduler.policy import Policy
from attribution_sched.types import IntArray

WARM_UP = 160
"""Decisions of a warm-up at most."""


def warm_up(world: World, attribute: Attribute | None, policy: Policy, seed: int) -> list[Decided]:
    """Decisions of a policy on another day of the same world; nothing of it is kept but these.

    Args:
        world: Where.
        attribute: Who attributes the tasks, as those of the decisions to explain were.
        policy: Who decides.
        seed: Of the day.
    """
    call = PolicyCall()
    cluster = SimulatedCluster(world, seed, attribute=attribute)
    taken: list[Decided] = []
    placements = 0
    while len(taken) < WARM_UP and placements < 3 * LEAST_ALIKE and cluster.advance():
        asked = call.ask(policy, cluster)
        name = f"warm-up {len(taken)}"
        taken.append(Decided(name, asked.view, asked.plan, perceived(policy, asked.view)))
        placements += not asked.view.replanning
        cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
        call.note(asked)
    return taken


def moment_of(cluster: SimulatedCluster, name: str) -> tuple[Decision, Sequence[Holder], IntArray, int]:
    """The moment as a decision about a task that does not run, whether one is pending or not.

    Args:
        cluster: Where.
        name: The task.

    Returns:
        The decision, with all devices that are free; who runs where; devices of the free ones that are not reserved for
        others, shape ``(K,)``; and how many tasks are before it if the policy does not look at it yet.

    Raises:
        TaskError: If there is no such task, or it runs already.
    """
    place = cluster.place_of(name)
    if place is None or place == "running":
        rule = "runs already" if place else "does not wait here: it ended, was withdrawn, or was never handed in"
        others = [each for each in cluster.names() if cluster.place_of(each) != "running"]
        # A task that runs was not misspelt: all that could have been asked about are listed.
        fix = nearest("" if place else name, others) if others else "Nothing waits"
        raise TaskError(problem("task", name, rule, fix))
    state, k = cluster.engine.state, len(cluster.world.cluster)
    slot = cluster.slot_of(name)
    if slot is None:
        waiting = (
            cluster.held[name].waiting if place == "held" else next(w for w in cluster.backlog if w.task.id == name)
        )
        task = waiting.task
        at = next((each for each, there in cluster.residents.items() if there.id), None)
    else:
        task, at = None, slot
    if at is None:
        raise TaskError(problem("task", name, "is the only one, and on hold", f"Use release({name!r})"))
    seen = _put_up_now(cluster, at)
    if task is not None:
        seen = put_up(seen, replace(task, slot=-1, hold=place == "held"))
    running = [
        Holder(there.id, there.tenant, tuple(int(n) for n in devices_of(plan, k)))
        for each, there in cluster.residents.items()
        if state.slots[0, each, st.STATUS] == st.RUNNING and (plan := cluster.engine.running_plan(0, each)) is not None
    ]
    tenant = seen.task.tenant if seen.task is not None else ""
    allowed = (
        np.maximum(0, seen.free_devices - cluster.reserved_devices(tenant))
        if cluster.reservations
        else seen.free_devices
    )
    left = cluster.quota_left(seen)
    if left is not None:
        allowed = np.minimum(allowed, left)
    behind = len(seen.queue) if place == "backlog" else 0
    return seen, running, allowed, behind


def present_moment(cluster: SimulatedCluster) -> Decision:
    """The moment as a decision, whoever it is about: what is known of the cluster now.

    Raises:
        TaskError: If nobody waits or runs.
    """
    present = np.flatnonzero(cluster.engine.state.slots[0, :, st.STATUS] != st.FREE)
    if len(present) == 0:
        rule = "nobody waits or runs, so nothing can be played on"
        raise TaskError(problem("cluster", "empty", rule, "Submit a task, or let time pass with schedule_next_task()"))
    return _put_up_now(cluster, int(present[0]))


def _put_up_now(cluster: SimulatedCluster, slot: int) -> Decision:
    """The moment as if the task of a slot were put up now; nothing is decided, nothing stays changed."""
    event = cluster.engine.state.event[0].copy()
    try:
        cluster.engine.state.event[0, st.EVENT], cluster.engine.state.event[0, st.SLOT] = st.PLACE, slot
        seen = view_of(cluster.engine)
    finally:
        cluster.engine.state.event[0] = event
    assert seen is not None
    return cluster.with_spending(seen)
