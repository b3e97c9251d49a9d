"""A running system as arrays and plain facts, to the bit.

A journal keeps it now and then, so that going on takes a bounded time however long the history is. Nothing here is
pickled: arrays are saved as they are, the rest is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.demands import Demands
from attribution_sched.errors import JournalError, problem
from attribution_sched.journal import Journal
from attribution_sched.scheduler.policy import Policy, Recallable
from attribution_sched.session.backlog import Backlog, Waiting
from attribution_sched.session.cluster import SimulatedCluster
from attribution_sched.session.operations import Held, Reservation
from attribution_sched.storage import take
from attribution_sched.types import Task

EVERY = 64
"""Decisions between two snapshots: living through so many again is quick, and a snapshot is small beside them."""

FORMAT = 1
"""Of what is written here; a snapshot of another one is passed over, and the journal gone through instead."""

Arrays = dict[str, NDArray[Any]]

ELSEWHERE = frozenset({"counters", "attribution"})
"""Fields of a task that are not written: counters stand among the arrays, attributions are worked out of them."""


def record_snapshot(journal: Journal, cluster: SimulatedCluster, policy: Policy, facts: Mapping[str, Any]) -> None:
    """Keep a system as it is between two decisions.

    Args:
        journal: Where.
        cluster: The cluster.
        policy: Who decides; one that can say what it remembers is kept with it.
        facts: What else it needs to go on.
    """
    arrays, told = save_cluster(cluster)
    if isinstance(policy, Recallable):
        arrays |= {f"policy.{name}": np.asarray(array) for name, array in policy.memory().items()}
    told |= {"tasks": journal.task_count(), "remembers": isinstance(policy, Recallable), **facts}
    # The longest part of it; as bytes it is compressed with the rest.
    arrays["facts"] = np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)
    journal.record_snapshot(journal.count(), arrays, {"format": FORMAT}, keep_newest=1, keep_every=1)


def restore_snapshot(
    journal: Journal, cluster: SimulatedCluster, at: int | None = None, policy: Policy | None = None
) -> dict[str, Any]:
    """Bring a fresh cluster as near to a decision as snapshots do.

    Args:
        journal: Where they are.
        cluster: A fresh cluster of the journal's world and seed.
        at: Decisions that may have been taken at most; all by default.
        policy: Who decides; it remembers again what it did then, if it can.

    Returns:
        The facts that were kept, with ``sequence``: the decisions that are not to be lived through again. With 0 of
        them there was no snapshot to begin from.
    """
    found = journal.newest_snapshot(at)
    if found is None or found.facts.get("format") != FORMAT or "facts" not in found.arrays:
        return {"sequence": 0, "tasks": 0}
    told: dict[str, Any] = json.loads(found.arrays["facts"].tobytes())
    restore_cluster(cluster, found.arrays, told)
    if policy is not None and isinstance(policy, Recallable):
        policy.recall(take(found.arrays, "policy."))
    return told | {"sequence": found.sequence}


def recall_newest(journal: Journal, policy: Policy) -> int:
    """Let a policy remember what it did at the newest snapshot; returns the decisions that this includes."""
    found = journal.newest_snapshot()
    if found is None or not isinstance(policy, Recallable):
        return 0
    policy.recall(take(found.arrays, "policy."))
    return found.sequence


def save_cluster(cluster: SimulatedCluster) -> tuple[Arrays, dict[str, Any]]:
    """The state of a cluster between two decisions."""
    engine, pool = cluster.engine, cluster.engine.pool
    arrays: Arrays = {f"state.{name}": array.copy() for name, array in engine.state._asdict().items()}
    arrays |= {
        "pool.kinds": pool.kinds.copy(),
        "pool.steps": pool.steps.copy(),
        "pool.counters": pool.counters.values.copy(),
        "pool.samples_per_s": pool.samples_per_s.copy(),
        "pool.rows": cluster._arrays.pool.copy(),
    } | {f"pool.demands.{name}": array for name, array in _demands(pool.demands).items()}
    waiting = [*cluster.backlog, *(each.waiting for each in cluster.held.values())]
    if waiting:
        arrays |= {
            "backlog.counters": np.stack([each.task.counters for each in waiting]),
            "backlog.rows": np.stack([each.row for each in waiting]),
            "backlog.left": np.array([each.left for each in waiting]),
        }
        parts = [_demands(each.demands) for each in waiting]
        arrays |= {f"backlog.demands.{name}": np.concatenate([part[name] for part in parts]) for name in parts[0]}
    facts = {
        "residents": {str(slot): _task(task) for slot, task in cluster.residents.items()},
        "backlog": [_task(each.task) for each in waiting],
        "arrived": cluster._arrived,
        "came": cluster._came,
        "next_s": cluster._next_s if np.isfinite(cluster._next_s) else None,
        "swaps": [cluster._swaps, cluster._refilled_s],
        "left_waiting": dict(cluster.left_waiting),
        "held": {name: [each.reason, each.aside] for name, each in cluster.held.items()},
        "reservations": [asdict(each) for each in cluster.reservations.values()],
        "operated": [cluster.operated, cluster._reserved, cluster.set_aside],
    }
    return arrays, facts


def restore_cluster(cluster: SimulatedCluster, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Put a cluster of the same world into a state that was saved.

    Raises:
        JournalError: If the state is of another world or of another release's form.
    """
    engine, pool = cluster.engine, cluster.engine.pool
    targets: Arrays = {f"state.{name}": array for name, array in engine.state._asdict().items()}
    targets |= {
        "pool.kinds": pool.kinds, "pool.steps": pool.steps, "pool.counters": pool.counters.values,
        "pool.samples_per_s": pool.samples_per_s, "pool.rows": cluster._arrays.pool,
    }  # fmt: skip
    targets |= {f"pool.demands.{name}": getattr(pool.demands, name) for name in _demands(pool.demands)}
    for name, target in targets.items():
        given = arrays.get(name)
        if given is None or given.shape != target.shape or given.dtype != target.dtype:
            shape = None if given is None else (given.shape, str(given.dtype))
            rule = f"must be {(target.shape, str(target.dtype))}, as this world has it"
            raise JournalError(problem(f"snapshot.{name}", shape, rule, "Resume with the release that wrote it"))
    for name, target in targets.items():
        target[...] = arrays[name]
    cluster.residents.clear()
    cluster.backlog = Backlog()
    cluster.held.clear()
    for slot, told in facts["residents"].items():
        task = cluster.attributed(_read_task(told, pool.counters.values[int(slot)].copy()))
        cluster.residents[int(slot)] = pool.tasks[int(slot)] = task
    demands = {name.removeprefix("backlog.demands."): array for name, array in arrays.items() if "backlog.dem" in name}
    for at, told in enumerate(facts["backlog"]):
        own = Demands(**{name: array[at : at + 1].copy() for name, array in demands.items()})
        task = _read_task(told, arrays["backlog.counters"][at].copy())
        left = float(arrays["backlog.left"][at])
        waiting = Waiting(task, own, arrays["backlog.rows"][at].copy(), left)
        if task.id in facts["held"]:
            cluster.held[task.id] = Held(waiting, *facts["held"][task.id])
        else:
            cluster.backlog.add(waiting)
    cluster.reservations = {each["id"]: Reservation(**each) for each in facts["reservations"]}
    cluster.operated, cluster._reserved, cluster.set_aside = facts["operated"]
    cluster._arrived, cluster._came = int(facts["arrived"]), int(facts["came"])
    cluster._next_s = float("inf") if facts["next_s"] is None else float(facts["next_s"])
    cluster._swaps, cluster._refilled_s = facts["swaps"]
    cluster.left_waiting = dict(facts["left_waiting"])


def _demands(demands: Demands) -> Arrays:
    return {each.name: np.asarray(getattr(demands, each.name)).copy() for each in fields(demands)}


def _task(task: Task) -> dict[str, Any]:
    named = {each.name: getattr(task, each.name) for each in fields(task) if each.name not in ELSEWHERE}
    return named | {"provenance": dict(task.provenance)}


def _read_task(told: Mapping[str, Any], counters: NDArray[np.float64]) -> Task:
    known = {each.name for each in fields(Task)}
    return replace(Task(**{name: value for name, value in told.items() if name in known}), counters=counters)
