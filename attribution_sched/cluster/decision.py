"""A decision as a record: what a scheduler that thinks in plans, not in tensors, may look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT, CostModel, move_cost
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import ACTION_COLUMNS, Engine
from attribution_sched.cluster.engine.prices import LEAST_BANDWIDTH_SHARE
from attribution_sched.cluster.incidents import is_lost
from attribution_sched.cluster.moment import Moment, capture
from attribution_sched.cluster.philly import Philly, PhillyWeek, believed_left_s
from attribution_sched.cluster.plan import DOMAIN, Plan
from attribution_sched.cluster.wan import effective_latency
from attribution_sched.cluster.world import Reward, TaskKind, World
from attribution_sched.errors import PlanError, problem
from attribution_sched.types import BoolArray, FloatArray, IntArray, Task

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector


@dataclass(frozen=True)
class Neighbour:
    """A running task on whose devices one more may be put.

    Attributes:
        task: Its record: what was submitted and measured of it, work left as far as that is known.
        slot: Its place in the cluster's table of tasks.
        domain: Where the devices are.
        devices: How many it has for itself there.
        memory_free_bytes: What it leaves of each of them.
        step_s: Its measured step time now.
    """

    task: Task
    slot: int
    domain: int
    devices: int
    memory_free_bytes: float
    step_s: float


@dataclass(frozen=True)
class Decision:
    """One pending decision. Latent demands are not in it; counters are, and what they say of the task's energy.

    Attributes:
        kind: What the task is.
        kind_index: Its row in the cost model.
        counters: Its measured counters, shape ``(12,)``.
        replanning: Whether it is already running and may be moved.
        current_plan: Its plan in force, if it runs.
        steps_left: Work left, in steps.
        time_s: Time since the start of the episode.
        slot: The task's place in the cluster's table of tasks.
        queue: Every waiting task in order of arrival, this one included if it waits.
        free_devices: Empty devices per domain, this task's own counted as free, shape ``(K,)``; 0 in a lost domain.
        bandwidth_gbps: What other tasks leave of the links now, shape ``(K, K)``.
        latency_s: One-way latency now under their load, shape ``(K, K)``.
        cost: Scores plans as a nominal task of this kind would run them.
        kinds: All kinds of tasks of the world; ``queue`` points into them.
        reward: What decisions are worth.
        base_step_s: Step time of every kind's baseline (the static uniform split), shape ``(n_kinds,)``.
        base_cost_usd: Cost of a step of every kind's baseline, shape ``(n_kinds,)``.
        restart_s: Pause of a task that moves, on top of sending its state.
        max_segments: Most segments a plan may have.
        observed: What the domains' own instruments say, shape ``(K, 20)``, columns ``DOMAIN_FEATURES``; None if nobody
            reads them.
        running_step_s: Measured step time of a running task; 0 if it waits.
        link_gbps: What the links carry in all, whoever uses them, shape ``(K, K)``; None if nobody measures it.
        link_time_s: When that was measured.
        samples_per_s: Measured throughput of the task on the reference device; 0 if nobody measured it.
        task: The task's record, as it was submitted; None if only the numbers above are known of it.
        attribution: Where its joules go, worked out when it came; None if nothing was measured or nobody was asked.
            Every task of ``queue`` has its own.
        backlog: Tasks that wait behind those of ``queue``.
        moment: The whole cluster as it is known, for whoever plays copies of it on; None if only the numbers above are.
        neighbours: Running tasks that have devices for themselves, on which one more task may be put; empty where a
            device holds one task at most. A plan names one of them as ``beside``.
    """

    kind: TaskKind
    kind_index: int
    counters: FloatArray
    replanning: bool
    current_plan: Plan | None
    steps_left: float
    time_s: float
    slot: int
    queue: tuple[Task, ...]
    free_devices: IntArray
    bandwidth_gbps: FloatArray
    latency_s: FloatArray
    cost: CostModel
    kinds: tuple[TaskKind, ...]
    reward: Reward
    base_step_s: FloatArray
    base_cost_usd: FloatArray
    restart_s: float
    max_segments: int
    observed: FloatArray | None = None
    running_step_s: float = 0.0
    link_gbps: FloatArray | None = None
    link_time_s: float = 0.0
    samples_per_s: float = 0.0
    task: Task | None = None
    attribution: AttributionVector | None = None
    backlog: int = 0
    moment: Moment | None = field(default=None, compare=False, repr=False)
    neighbours: tuple[Neighbour, ...] = ()

    def beside(self, slot: int) -> Neighbour:
        """The neighbour in a slot.

        Raises:
            PlanError: If no running task there has devices for itself.
        """
        for neighbour in self.neighbours:
            if neighbour.slot == slot:
                return neighbour
        listed = [neighbour.slot for neighbour in self.neighbours]
        raise PlanError(problem("beside", slot, f"must be one of {listed}", "Take a slot of the view's neighbours"))

    def move_cost(self, plan: Plan) -> tuple[float, float]:
        """Seconds of pause and dollars of traffic that changing from the current plan to this one takes."""
        if self.current_plan is None or plan == self.current_plan:
            return 0.0, 0.0
        prices = self.cost.domains.price_usd_per_byte
        seconds, dollars = move_cost(self.kind, self.current_plan, plan, self.bandwidth_gbps * BYTES_PER_GBIT, prices)
        return seconds + self.restart_s, dollars


DecisionView = Decision
"""The name of the first edition."""

QueuedTask = Task
"""A waiting task is a task; the name of the first edition."""


def attributed(decision: Decision, attribute: Callable[[Task], AttributionVector]) -> Decision:
    """A decision all of whose measured tasks have an attribution; those that have one keep it.

    For decisions that did not come from a cluster which attributes its tasks.
    """
    lacking = decision.attribution is None and decision.counters.size > 0
    waiting = [task.attribution is None and task.counters.size > 0 for task in decision.queue]
    if not lacking and not any(waiting):
        return decision
    queue = tuple(
        replace(task, attribution=attribute(task)) if without else task
        for task, without in zip(decision.queue, waiting, strict=True)
    )
    own = attribute(_own_task(decision)) if lacking else decision.attribution
    return replace(decision, queue=queue, attribution=own)


def _own_task(decision: Decision) -> Task:
    """The task that is decided on; from what the decision says of it, if it does not carry its record."""
    if decision.task is not None:
        return decision.task
    kind = decision.kind
    return Task(
        kind_index=decision.kind_index, model=kind.model.name, batch_size=kind.batch_size, training=kind.training,
        counters=decision.counters, samples_per_s=decision.samples_per_s,
    )  # fmt: skip


def view(engine: Engine, cluster: int = 0, *, neighbours: bool = True) -> Decision | None:
    """Describe the pending decision of a cluster; None when there is none.

    Args:
        engine: The clusters.
        cluster: Which of them.
        neighbours: Whether to list the neighbours a task could be put beside: only who pairs looks at them.
    """
    state = engine.state
    if state.event[cluster, st.EVENT] == st.NO_EVENT:
        return None
    slot = int(state.event[cluster, st.SLOT])
    pool = int(state.slots[cluster, slot, st.POOL])
    kind = int(engine.pool.kinds[pool])
    occupant = state.occupant[cluster]
    devices = engine.arrays.domains.rows.devices
    real = np.arange(occupant.shape[1])[None, :] < devices[:, None]
    if engine.world.incidents:
        tick_s = state.clock[cluster, st.LAST_TICK]
        real &= ~np.array([[is_lost(engine.arrays.incidents, tick_s, k)] for k in range(len(devices))])
    alone = (occupant[:, :, 1] < 0) & ((occupant[:, :, 0] < 0) | (occupant[:, :, 0] == slot))
    running = (state.slots[cluster, :, st.STATUS] == st.RUNNING) & (state.tasks[cluster, :, st.STEP] > 0)
    running &= state.tasks[cluster, :, st.PAUSED] <= state.clock[cluster, st.NOW]
    running[slot] = False
    load = (state.traffic[cluster, running] / state.tasks[cluster, running, st.STEP, None, None]).sum(axis=0)
    bandwidth = state.links[cluster, 1]
    wan = engine.world.cluster.wan
    busy = np.where(np.eye(len(bandwidth), dtype=bool), 0.0, load / bandwidth)
    task = engine.pool.task(pool, engine.world.kinds)
    left, now = _steps_left(engine, cluster, slot, task), float(state.clock[cluster, st.NOW])
    return Decision(
        kind=engine.world.kinds[kind],
        kind_index=kind,
        counters=task.counters,
        replanning=bool(state.event[cluster, st.EVENT] == st.REPLAN),
        current_plan=engine.running_plan(cluster, slot),
        steps_left=left,
        time_s=now,
        slot=slot,
        queue=_queue(engine, cluster),
        free_devices=(alone & real).sum(axis=1),
        bandwidth_gbps=bandwidth * np.maximum(LEAST_BANDWIDTH_SHARE, 1.0 - busy) / BYTES_PER_GBIT,
        latency_s=effective_latency(np.array(wan.latency_s), busy, wan.congestion),
        cost=engine.cost,
        kinds=engine.world.kinds,
        reward=engine.world.reward,
        base_step_s=engine.arrays.kinds[:, st.K_BASE_STEP].copy(),
        base_cost_usd=engine.arrays.kinds[:, st.K_BASE_COST].copy(),
        restart_s=engine.world.restart_s,
        max_segments=engine.world.max_segments,
        observed=engine.observe_domains(cluster),
        running_step_s=float(state.tasks[cluster, slot, st.STEP]),
        link_gbps=bandwidth / BYTES_PER_GBIT,
        link_time_s=float(state.clock[cluster, st.LAST_TICK]),
        samples_per_s=task.samples_per_s,
        task=task.at(slot, left, now - float(state.tasks[cluster, slot, st.ARRIVAL])),
        attribution=task.attribution,
        neighbours=_neighbours(engine, cluster, slot, real) if neighbours and engine.world.share_limit > 1 else (),
        moment=capture(engine, cluster),
    )


def _steps_left(engine: Engine, cluster: int, slot: int, task: Task) -> float:
    """Work left of a task as far as a scheduler may know it: of an opaque one, what its tenant's history tells."""
    left = float(engine.state.tasks[cluster, slot, st.LEFT])
    if not isinstance(engine.world.arrivals, Philly | PhillyWeek):
        return left
    steps = float(engine.arrays.pool[engine.state.slots[cluster, slot, st.POOL], st.P_STEPS])
    return believed_left_s(task.tenant, max(0.0, steps - left))


def _neighbours(engine: Engine, cluster: int, own: int, real: BoolArray) -> tuple[Neighbour, ...]:
    """Running tasks with devices for themselves, in order of domain and device."""
    state = engine.state
    occupant = np.where(real[:, :, None], state.occupant[cluster], -1)
    alone = np.where(occupant[:, :, 1] < 0, occupant[:, :, 0], -1)
    alone[alone == own] = -1
    found = []
    for domain in np.flatnonzero((alone >= 0).any(axis=1)).tolist():
        slots, counts = np.unique(alone[domain][alone[domain] >= 0], return_counts=True)
        room = float(engine.arrays.domains.rows[domain].memory_bytes)
        for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
            task = engine.pool.task(int(state.slots[cluster, slot, st.POOL]), engine.world.kinds)
            rows = state.plans[cluster, slot, : state.slots[cluster, slot, st.SEGMENTS], DOMAIN]
            held = float(state.loads[cluster, slot, int(np.flatnonzero(rows == domain)[0]), st.MEMORY])
            waited = float(state.clock[cluster, st.NOW] - state.tasks[cluster, slot, st.ARRIVAL])
            known = task.at(slot, _steps_left(engine, cluster, slot, task), waited)
            step_s = float(state.tasks[cluster, slot, st.STEP])
            found.append(Neighbour(known, slot, domain, count, max(0.0, room - held), step_s))
    return tuple(found)


def _queue(engine: Engine, cluster: int) -> tuple[Task, ...]:
    state, now = engine.state, float(engine.state.clock[cluster, st.NOW])
    waiting = np.flatnonzero(state.slots[cluster, :, st.STATUS] == st.QUEUED)
    listed = []
    for slot in sorted(waiting, key=lambda s: int(state.slots[cluster, s, st.SERIAL])):
        task, row = (
            engine.pool.task(int(state.slots[cluster, slot, st.POOL]), engine.world.kinds),
            state.tasks[cluster, slot],
        )
        listed.append(task.at(int(slot), _steps_left(engine, cluster, int(slot), task), now - float(row[st.ARRIVAL])))
    return tuple(listed)


def pend(engine: Engine, slot: int, cluster: int = 0) -> None:
    """Put another waiting task up for the pending placement, so that a policy may choose the order of the queue."""
    state = engine.state
    placing = state.event[cluster, st.EVENT] == st.PLACE
    if not placing or not 0 <= slot < state.slots.shape[1] or state.slots[cluster, slot, st.STATUS] != st.QUEUED:
        rule = "must be a waiting task, while a placement is pending"
        raise PlanError(problem("slot", slot, rule, "Take a slot from the view's queue"))
    state.event[cluster, st.SLOT] = slot


def encode(engine: Engine, plan: Plan | None, kind_index: int) -> IntArray:
    """Write a plan as engine action rows, shape ``(P, 5)``; None ends at once (defer, or keep the plan).

    The number of microbatches is not part of an action: the cluster shares the batch out by speed.

    Raises:
        PlanError: If the plan cannot be said in this world: its layout, its microbatch, its segments, or sharing where
            a device holds one task at most.
    """
    return encode_rows(engine.world, engine.layouts, plan, kind_index)


def encode_rows(world: World, layouts: IntArray, plan: Plan | None, kind_index: int) -> IntArray:
    """Write a plan as action rows of a world with a table of layouts; see :func:`encode`."""
    width, k = world.max_segments, len(world.cluster)
    rows = np.zeros((width, len(ACTION_COLUMNS)), dtype=np.int64)
    rows[:, 0] = k
    if plan is None:
        return rows
    segments = [(replica, segment) for replica in plan.replicas for segment in replica.segments]
    if len(segments) > width:
        raise PlanError(problem("segments", len(segments), f"this world allows {width}", "Use fewer domains"))
    levels = world.kinds[kind_index].microbatches
    share, named = plan.beside is not None, 0
    if plan.beside is not None:
        if world.share_limit < 2:
            rule = "a device of this world holds one task"
            raise PlanError(problem("beside", plan.beside, rule, "Raise episode.share_limit to 2, or do not share"))
        named = len(layouts) * (plan.beside + 1)
    for p, (replica, segment) in enumerate(segments):
        wanted = [segment.dp, segment.tp, segment.pp, int(share)]
        layout = np.flatnonzero((layouts == wanted).all(axis=1))
        if layout.size == 0:
            raise PlanError(problem("layout", wanted[:3], "is not in this world's table", "Use powers of two"))
        if replica.microbatch not in levels:
            raise PlanError(problem("microbatch", replica.microbatch, f"must be one of {levels}", "Pick a level"))
        level = levels.index(replica.microbatch)
        rows[p] = (segment.domain, segment.stop, layout[0] + named, segment.precision.index, level)
    return rows
