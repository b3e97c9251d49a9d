"""A decision as a record: what a scheduler that thinks in plans, not in tensors, may look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster import engine_state as st
from attribution_sched.cluster.cost import BYTES_PER_GBIT, CostModel
from attribution_sched.cluster.engine import ACTION_COLUMNS, Engine
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.wan import effective_latency
from attribution_sched.cluster.world import TaskKind
from attribution_sched.errors import PlanError, problem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class DecisionView:
    """One pending decision. Latent demands are not in it; counters are.

    Attributes:
        kind: What the task is.
        kind_index: Its row in the cost model.
        counters: Its measured counters, shape ``(12,)``.
        replanning: Whether it is already running and may be moved.
        current_plan: Its plan in force, if it runs.
        steps_left: Work left, in steps.
        time_s: Time since the start of the episode.
        waiting: Tasks in the queue, this one included if it waits.
        free_devices: Empty devices per domain, this task's own counted as free, shape ``(K,)``.
        bandwidth_gbps: Links now, shape ``(K, K)``.
        latency_s: One-way latency now, shape ``(K, K)``.
        cost: Scores plans as a nominal task of this kind would run them.
        max_segments: Most segments a plan may have.
    """

    kind: TaskKind
    kind_index: int
    counters: FloatArray
    replanning: bool
    current_plan: Plan | None
    steps_left: float
    time_s: float
    waiting: int
    free_devices: IntArray
    bandwidth_gbps: FloatArray
    latency_s: FloatArray
    cost: CostModel
    max_segments: int


def view(engine: Engine, cluster: int = 0) -> DecisionView | None:
    """Describe the pending decision of a cluster; None when there is none."""
    state = engine.state
    if state.event[cluster, st.EVENT] == st.NO_EVENT:
        return None
    slot = int(state.event[cluster, st.SLOT])
    pool = int(state.slots[cluster, slot, st.POOL])
    kind = int(engine.pool.kinds[pool])
    occupant = state.occupant[cluster]
    devices = engine.arrays.domains.rows.devices
    real = np.arange(occupant.shape[1])[None, :] < devices[:, None]
    alone = (occupant[:, :, 1] < 0) & ((occupant[:, :, 0] < 0) | (occupant[:, :, 0] == slot))
    running = (state.slots[cluster, :, st.STATUS] == st.RUNNING) & (state.tasks[cluster, :, st.STEP] > 0)
    running &= state.tasks[cluster, :, st.PAUSED] <= state.clock[cluster, st.NOW]
    load = (state.traffic[cluster, running] / state.tasks[cluster, running, st.STEP, None, None]).sum(axis=0)
    bandwidth = state.links[cluster, 1]
    wan = engine.world.cluster.wan
    return DecisionView(
        kind=engine.world.kinds[kind],
        kind_index=kind,
        counters=engine.pool.counters.values[pool].copy(),
        replanning=bool(state.event[cluster, st.EVENT] == st.REPLAN),
        current_plan=engine.running_plan(cluster, slot),
        steps_left=float(state.tasks[cluster, slot, st.LEFT]),
        time_s=float(state.clock[cluster, st.NOW]),
        waiting=int((state.slots[cluster, :, st.STATUS] == st.QUEUED).sum()),
        free_devices=(alone & real).sum(axis=1),
        bandwidth_gbps=bandwidth / BYTES_PER_GBIT,
        latency_s=effective_latency(np.array(wan.latency_s), load / bandwidth, wan.congestion),
        cost=engine.cost,
        max_segments=engine.world.max_segments,
    )


def encode(engine: Engine, plan: Plan | None, kind_index: int, *, share: bool = False) -> IntArray:
    """Write a plan as engine action rows, shape ``(P, 5)``; None ends at once (defer, or keep the plan).

    The number of microbatches is not part of an action: the cluster shares the batch out by speed.
    """
    width, k = engine.world.max_segments, len(engine.world.cluster)
    rows = np.zeros((width, len(ACTION_COLUMNS)), dtype=np.int64)
    rows[:, 0] = k
    if plan is None:
        return rows
    segments = [(replica, segment) for replica in plan.replicas for segment in replica.segments]
    if len(segments) > width:
        raise PlanError(problem("segments", len(segments), f"this world allows {width}", "Use fewer domains"))
    levels = engine.world.kinds[kind_index].microbatches
    for p, (replica, segment) in enumerate(segments):
        wanted = [segment.dp, segment.tp, segment.pp, int(share)]
        layout = np.flatnonzero((engine.layouts == wanted).all(axis=1))
        if layout.size == 0:
            raise PlanError(problem("layout", wanted[:3], "is not in this world's table", "Use powers of two"))
        if replica.microbatch not in levels:
            raise PlanError(problem("microbatch", replica.microbatch, f"must be one of {levels}", "Pick a level"))
        level = levels.index(replica.microbatch)
        rows[p] = (segment.domain, segment.stop, layout[0], segment.precision.index, level)
    return rows
