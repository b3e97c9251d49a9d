"""What a policy must keep: it bears a name, decides what the cluster carries out, and begins anew when told to."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from attribution_sched.cluster.live import PolicyCall, SimulatedCluster, as_policy
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.errors import PlanError
from attribution_sched.scheduler.policy import Episodic, QueueOrder
from attribution_sched.testing.contract import ContractError, asked, require

DECISIONS = 60
"""Decisions of a check."""


def check_policy(policy: Any, preset: Any = "cross-domain-easy", seed: int = 0, decisions: int = DECISIONS) -> None:
    """Let a policy decide in a simulated cluster and hold it to the contract.

    It has a short name. It answers every decision with a plan of this world or None, and its plans are carried out: a
    plan that the cluster refuses is one it could have known to be wrong. What it chooses to place first waits in the
    queue. It leaves the views it is shown as they were. The same seed gives the same decisions, after
    ``reset(seed)`` too where it has one.

    Args:
        policy: A policy, or a function from a view to a plan, as for ``System``.
        preset: Where, as for ``System``; or a world.
        seed: Of the days and of the policy.
        decisions: How many.

    Raises:
        ContractError: Field, value, rule and fix of the first thing it does not keep.
    """
    asked_for = as_policy(policy)
    name = asked_for.name
    short = isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable()
    require(short, "policy.name", name, "must be a short printable name", "Give it a name attribute")
    world = preset if isinstance(preset, World) else load_settings(preset).build_world()
    taken = _decisions(asked_for, world, seed, decisions)
    placed = sum(code == 1 for _, code in taken)
    require(
        placed, "policy.decide", f"{len(taken)} times None", "places nobody on a day", "Return a plan where one fits"
    )
    again = _decisions(asked_for, world, seed, decisions)
    same = len(again) == len(taken) and all(
        one == two and np.array_equal(action, other) for (action, one), (other, two) in zip(taken, again, strict=True)
    )
    fix = "Take randomness from reset(seed), and forget there what the last episode left"
    require(same, "policy.decide", f"seed {seed} twice", "must decide the same on the same day", fix)


def _decisions(policy: Any, world: World, seed: int, most: int) -> list[tuple[Any, int]]:
    """Actions and what they came to on one day."""
    if isinstance(policy, Episodic):
        with asked("policy.reset"):
            policy.reset(seed)
    cluster, call = SimulatedCluster(world, seed), PolicyCall()
    taken: list[tuple[Any, int]] = []
    while len(taken) < most and cluster.advance():
        view = cluster.pending()
        if isinstance(policy, QueueOrder) and not view.replanning:
            with asked("policy.select"):
                slot = policy.select(view)
            waiting = [task.slot for task in view.queue]
            require(
                slot in waiting, "policy.select", slot, f"must be a slot of the queue, {waiting}", "Take one of them"
            )
        before = replace(view, free_devices=view.free_devices.copy(), bandwidth_gbps=view.bandwidth_gbps.copy())
        queue = copy.copy(view.queue)
        with asked("policy.decide"):
            answer = call.ask(policy, cluster, world.reward, view)
        untouched = np.array_equal(before.free_devices, view.free_devices) and queue == view.queue
        untouched &= np.array_equal(before.bandwidth_gbps, view.bandwidth_gbps)
        require(
            untouched, "view", "changed", "must be left as it was: others read it too", "Copy arrays before writing"
        )
        refused = "" if not answer.refused else str(answer.refused)
        fix = "Ask planning.candidates.feasible(view, plans), or return None"
        require(not refused, "policy.decide", refused, "must be a plan that the cluster carries out", fix)
        try:
            action = cluster.encode(answer.plan, answer.view.kind_index)
        except PlanError as error:
            raise ContractError(f"policy.decide: {error}") from error
        effect = cluster.carry_out(action)
        require(effect.code >= 0, "policy.decide", effect.code, "must be a plan that the cluster carries out", fix)
        call.note(answer)
        taken.append((action, effect.code))
    return taken
