"""The state of a live cluster between two decisions, as arrays and plain facts; nothing is pickled."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.demands import Demands
from attribution_sched.cluster.live import (
    LASTED,
    Backlog,
    Heard,
    Held,
    Reservation,
    SimulatedCluster,
    Waiting,
)
from attribution_sched.cluster.world import hourly_ratios
from attribution_sched.errors import JournalError, problem
from attribution_sched.types import Task

Arrays = dict[str, NDArray[Any]]

ELSEWHERE = frozenset({"counters", "attribution"})
"""Fields of a task that are not written: counters stand among the arrays, attributions are worked out of them."""


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
    if cluster.world.quotas:
        arrays["quotas.used"] = cluster.spending.used.copy()
    if cluster.corrected:
        arrays["links.base"] = cluster._arrays.base.copy()
    if cluster.heard:
        arrays["signals.heard"] = np.array(cluster.heard)
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
        "learnt": {str(kind): list(known.items()) for kind, known in cluster.learnt.items()},
        "lasted": [[*whose, *lasted] for whose, lasted in cluster.lasted.items()],
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
    if cluster.world.quotas:
        targets["quotas.used"] = cluster.spending.used
    for name, target in targets.items():
        array_of = arrays.get(name)
        if array_of is None or array_of.shape != target.shape or array_of.dtype != target.dtype:
            shape = None if array_of is None else (array_of.shape, str(array_of.dtype))
            rule = f"must be {(target.shape, str(target.dtype))}, as this world has it"
            raise JournalError(problem(f"snapshot.{name}", shape, rule, "Resume with the release that wrote it"))
    for name, target in targets.items():
        target[...] = arrays[name]
    # One that is used again for an earlier moment knows what was measured and heard later.
    if cluster.corrected:
        cluster._arrays.base[0] = cluster.world.cluster.wan.bandwidth_gbps * BYTES_PER_GBIT
    if "links.base" in arrays:
        cluster._arrays.base[...] = arrays["links.base"]
    cluster.corrected = "links.base" in arrays
    if cluster.heard:
        engine.arrays.signals[...] = hourly_ratios(cluster.world)
    cluster.heard = ()
    for time_s, hour, domain, row, value in arrays.get("signals.heard", ()):
        cluster.believe(Heard(float(time_s), int(hour), int(domain), int(row), float(value)))
    cluster.residents.clear()
    cluster.backlog = Backlog()
    cluster.held.clear()
    for slot, record in facts["residents"].items():
        task = cluster.attributed(_read_task(record, pool.counters.values[int(slot)].copy()))
        cluster.residents[int(slot)] = pool.tasks[int(slot)] = task
    demands = {name.removeprefix("backlog.demands."): array for name, array in arrays.items() if "backlog.dem" in name}
    for at, record in enumerate(facts["backlog"]):
        own = Demands(**{name: array[at : at + 1].copy() for name, array in demands.items()})
        task = _read_task(record, arrays["backlog.counters"][at].copy())
        left = float(arrays["backlog.left"][at])
        waiting = Waiting(task, own, arrays["backlog.rows"][at].copy(), left)
        if task.id in facts["held"]:
            cluster.held[task.id] = Held(waiting, *facts["held"][task.id])
        else:
            cluster.backlog.add(waiting)
    cluster.reservations = {each["id"]: Reservation(**each) for each in facts["reservations"]}
    cluster.operated, cluster._reserved, cluster.set_aside = facts["operated"]
    cluster.learnt = {int(kind): dict(known) for kind, known in facts.get("learnt", {}).items()}
    cluster.lasted = {(each[0], bool(each[1])): deque(each[2:], maxlen=LASTED) for each in facts.get("lasted", ())}
    cluster._arrived, cluster._came = int(facts["arrived"]), int(facts["came"])
    cluster._next_s = float("inf") if facts["next_s"] is None else float(facts["next_s"])
    cluster._swaps, cluster._refilled_s = facts["swaps"]
    cluster.left_waiting = dict(facts["left_waiting"])


def _demands(demands: Demands) -> Arrays:
    return {each.name: np.asarray(getattr(demands, each.name)).copy() for each in fields(demands)}


def _task(task: Task) -> dict[str, Any]:
    named = {each.name: getattr(task, each.name) for each in fields(task) if each.name not in ELSEWHERE}
    return named | {"provenance": dict(task.provenance)}


def _read_task(record: Mapping[str, Any], counters: NDArray[np.float64]) -> Task:
    known = {each.name for each in fields(Task)}
    return replace(Task(**{name: value for name, value in record.items() if name in known}), counters=counters)
