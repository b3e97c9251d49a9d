"""A decision as a record: what a scheduler that thinks in plans, not in tensors, may look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT, CostModel, move_cost, moved_bytes, opaque_cap
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import (
    ACTION_COLUMNS,
    DAY_S,
    DOMAIN_FEATURES,
    GROUPS,
    LEAST_BANDWIDTH_SHARE,
    Engine,
    free_devices,
    kind_of,
    link_load,
    links_left,
    observe,
    signal_hour,
)
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.incidents import I_END, I_START, is_lost
from attribution_sched.cluster.philly import Philly, PhillyWeek, believed_left_s
from attribution_sched.cluster.plan import CAP, DOMAIN, DP, PP, PRECISION, TP, Plan
from attribution_sched.cluster.signals import Constant, Scaled
from attribution_sched.cluster.wan import effective_latency
from attribution_sched.cluster.world import Reward, TaskKind, World, task_working, within_budgets
from attribution_sched.errors import PlanError, problem
from attribution_sched.kernels import kernel
from attribution_sched.types import Attributor, BoolArray, Float32Array, FloatArray, IntArray, Task

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.cost import CostModel
    from attribution_sched.cluster.engine.engine import Engine


# ------ A cluster at one moment, as whoever decides knows it: what the future holds and what tasks truly demand is not
# in it
#
# Taken along with every decision, so that a policy, an explanation or a person can play copies of the cluster on
# (:mod:`~attribution_sched.cluster.fork`) long after the cluster itself has moved.


@dataclass(frozen=True)
class ArrivalLaw:
    """How tasks come, as far as it is known beforehand.

    Attributes:
        kind: As :class:`~attribution_sched.cluster.arrivals.ArrivalKind` numbers them.
        params: Of the process.
        past_s: When tasks came so far, for a recording: what it holds further on is nobody's to know.
    """

    kind: int
    params: FloatArray
    past_s: FloatArray


@dataclass(frozen=True, eq=False)
class Moment:
    """What is known of one cluster at one moment.

    Attributes:
        world: The scheduling problem.
        arrays: Its constants, without the tasks' demands, coming incidents and recorded futures.
        state: One cluster (leading axis 1), without its random streams and its next arrival.
        tasks: Slot → record of the task there, waiting or running.
        law: How tasks come by themselves; None if they are only handed in.
        ends_s: When the episode ends; infinite for a cluster that goes on.
        cost: The cost model of its plans.
        spent: Number of the window and what each quota's tenant has used in it, shape ``(Q, 5)``; None for nothing.
        lasted: Tenant and whether on several devices → steps of its tasks that ended last, in order of their ends; only
            where nothing else tells how long tasks take.
    """

    world: World
    arrays: WorldArrays
    state: StateArrays
    tasks: Mapping[int, Task]
    law: ArrivalLaw | None
    ends_s: float
    cost: CostModel
    spent: FloatArray | None = None
    lasted: Mapping[tuple[str, bool], tuple[float, ...]] = field(default_factory=dict)

    @property
    def now_s(self) -> float:
        """The cluster's clock."""
        return float(self.state.clock[0, st.NOW])

    @property
    def pending(self) -> int | None:
        """Slot of the task that is to be decided on; None if nothing is."""
        return int(self.state.event[0, st.SLOT]) if self.state.event[0, st.EVENT] != st.NO_EVENT else None


def capture(engine: Engine, cluster: int = 0) -> Moment:
    """Take down what is known of a cluster; the cluster is left as it is and may go on."""
    state, arrays = engine.state, engine.arrays
    spans = bool((state.slots[cluster, :, st.SEGMENTS] > 1).any())
    nothing = np.broadcast_to(np.zeros(1), (1, *state.traffic.shape[1:]))
    kept = {name: array[cluster : cluster + 1].copy() for name, array in state._asdict().items() if name not in _HIDDEN}
    for name in ("traffic", "planned"):
        # Only plans over several domains send anything or look at links.
        kept[name] = getattr(state, name)[cluster : cluster + 1].copy() if spans else nothing
    kept["streams"] = np.zeros((1, *state.streams.shape[1:]), dtype=np.uint64)
    kept["clock"][0, st.NEXT_ARRIVAL] = math.inf
    present = np.flatnonzero(kept["slots"][0, :, st.STATUS] != st.FREE).tolist()
    tasks: dict[int, Task] = {}
    # Facts of the request, one row a slot: kind, steps asked for, urgency beyond the kind's, time allowed.
    pool = np.zeros((kept["slots"].shape[1], arrays.pool.shape[1]))
    # What job an opaque task really is, nobody who looks at the moment may know.
    pool[:, st.P_TYPE] = -1.0
    now = float(kept["clock"][0, st.NOW])
    from_history = isinstance(engine.world.arrivals, Philly | PhillyWeek)
    for slot in present:
        row = int(kept["slots"][0, slot, st.POOL])
        task = engine.pool.task(row, engine.world.kinds)
        true = arrays.pool[row]
        pool[slot, st.P_KIND], pool[slot, st.P_STEPS] = task.kind_index, task.steps
        pool[slot, st.P_RAISED], pool[slot, st.P_ALLOWED_S] = true[st.P_RAISED], true[st.P_ALLOWED_S]
        if task.steps != true[st.P_STEPS]:
            # What was done shows; what is left is known only as far as the request told the truth.
            done = true[st.P_STEPS] - kept["tasks"][0, slot, st.LEFT]
            kept["tasks"][0, slot, st.LEFT] = max(task.steps - done, LEAST_LEFT * task.steps)
            if from_history:
                # The tenant's history tells more the longer a task has run; the two together say what was done.
                kept["tasks"][0, slot, st.LEFT] = believed_left_s(task.tenant, max(0.0, done))
                pool[slot, st.P_STEPS] = max(0.0, done) + kept["tasks"][0, slot, st.LEFT]
        left = float(kept["tasks"][0, slot, st.LEFT])
        tasks[slot] = task.at(slot, left, now - float(kept["tasks"][0, slot, st.ARRIVAL]))
        kept["slots"][0, slot, st.POOL] = slot
    tick_s = kept["clock"][0, st.LAST_TICK]
    active = arrays.incidents[(arrays.incidents[:, I_START] <= tick_s) & (arrays.incidents[:, I_END] > tick_s)]
    # Nobody knows how long it lasts.
    active[:, I_END] = math.inf
    seen = arrays.trace_times_s <= now
    hour = signal_hour(arrays, tick_s)
    known = arrays._replace(
        pool=pool,
        incidents=active,
        # The present hour is known; what the next ones may bring, the signals' forecasts tell.
        signals=arrays.signals[:, hour : hour + 1].copy(),
        signals_from_h=int(tick_s / st.HOUR_S),
        trace_times_s=arrays.trace_times_s[seen],
        trace_multiplier=arrays.trace_multiplier[: max(1, int(seen.sum()))],
        arrival_times_s=np.empty(0),
        horizon_s=math.inf,
    )
    return Moment(engine.world, known, StateArrays(**kept), tasks, _law(engine, now), engine.ends_s, engine.cost)


LEAST_LEFT = 0.05
"""Share of its steps that a task is given which has done all it asked for and goes on."""

_HIDDEN = ("streams", "traffic", "planned")


def _law(engine: Engine, now_s: float) -> ArrivalLaw | None:
    if engine.arrivals is None:
        return None
    kind, params, times_s = engine.arrivals
    return ArrivalLaw(kind, params, times_s[times_s <= now_s])


# ------ A decision as a record: what a scheduler that thinks in plans, not in tensors, may look at


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
class CoRunners:
    """Two running tasks on the same devices, and how fast each is seen to run there.

    Attributes:
        task: One of them.
        other: The other.
        speeds: Measured speed of each over its throughput alone.
    """

    task: Task
    other: Task
    speeds: tuple[float, float]


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
        co_runners: Opaque tasks that share devices now, and how fast each is seen to run: what a scheduler learns from.
        carbon_g_per_kwh: Accounted intensity of each domain's grid now, shape ``(K,)``; ``(0,)`` where none changes.
        electricity_usd_per_kwh: Price of electricity of each domain now, shape ``(K,)``; ``(0,)`` where none changes.
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
    co_runners: tuple[CoRunners, ...] = ()
    carbon_g_per_kwh: FloatArray = field(default_factory=lambda: np.zeros(0))
    electricity_usd_per_kwh: FloatArray = field(default_factory=lambda: np.zeros(0))

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
        if self.current_plan is None or plan.uncapped() == self.current_plan.uncapped():
            return 0.0, 0.0
        prices = self.cost.domains.price_usd_per_byte
        moved = moved_bytes(self.kind, self.current_plan, plan, len(prices))
        seconds, dollars = move_cost(moved, self.bandwidth_gbps * BYTES_PER_GBIT, prices)
        return seconds + self.restart_s, dollars


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
        counters=decision.counters, samples_per_s=decision.samples_per_s, measured_devices=kind.measured_devices,
    )  # fmt: skip


def view(engine: Engine, cluster: int = 0, *, neighbours: bool = True, moment: bool = True) -> Decision | None:
    """Describe the pending decision of a cluster; None when there is none.

    Args:
        engine: The clusters.
        cluster: Which of them.
        neighbours: Whether to list the neighbours a task could be put beside: only who pairs looks at them.
        moment: Whether to take down all that is known of the cluster: only who plays copies looks at it.
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
    rate, latency_s = np.empty_like(load), np.empty_like(load)
    links_left(bandwidth, load, np.array(wan.latency_s), wan.congestion, rate, latency_s)
    task = engine.pool.task(pool, engine.world.kinds)
    left, now = _steps_left(engine, cluster, slot, task), float(state.clock[cluster, st.NOW])
    ticks_s = state.clock[cluster : cluster + 1, st.LAST_TICK]
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
        bandwidth_gbps=rate / BYTES_PER_GBIT,
        latency_s=latency_s,
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
        co_runners=co_runners(engine, cluster) if neighbours else (),
        moment=capture(engine, cluster) if moment else None,
        carbon_g_per_kwh=_signal_now(engine.world, engine.arrays, ticks_s, st.CARBON)[0],
        electricity_usd_per_kwh=_signal_now(engine.world, engine.arrays, ticks_s, st.ELECTRICITY)[0],
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


def co_runners(engine: Engine, cluster: int = 0) -> tuple[CoRunners, ...]:
    """Opaque tasks on the same devices, each pair once: their throughput alone on as many is what they asked with."""
    if engine.world.share_limit < 2:
        return ()
    state = engine.state
    occupant = state.occupant[cluster]
    both = np.unique(occupant[occupant[:, :, 1] >= 0], axis=0)
    found = []
    for slots in both.tolist():
        pools = [int(state.slots[cluster, slot, st.POOL]) for slot in slots]
        first, second = (engine.pool.task(pool, engine.world.kinds) for pool in pools)
        if all(engine.world.kinds[task.kind_index].opaque for task in (first, second)):
            alone = engine.arrays.kinds[engine.pool.kinds[pools], st.K_BASE_STEP]
            speeds = alone / state.tasks[cluster, slots, st.STEP]
            if engine.world.cluster.cap_levels:
                speeds = speeds * _held_back(engine, cluster, slots[1], (first, second), speeds)
            found.append(CoRunners(first, second, (float(speeds[0]), float(speeds[1]))))
    return tuple(found)


def _held_back(engine: Engine, cluster: int, last: int, tasks: tuple[Task, Task], speeds: FloatArray) -> float:
    """How much the cap of their devices slows two tasks, as their counters tell: no part of what they do together."""
    row, arrays = engine.state.plans[cluster, last, 0], engine.arrays
    shares = np.array([task_working(engine.world.kinds, task) for task in tasks])
    working = min(1.0, float(shares @ speeds))
    domain, precision, level = int(row[DOMAIN]), int(row[PRECISION]), int(row[CAP])
    return float(opaque_cap(arrays.domains, arrays.power_law, domain, precision, level, working)[0])


def _queue(engine: Engine, cluster: int) -> tuple[Task, ...]:
    state, now = engine.state, float(engine.state.clock[cluster, st.NOW])
    slots = state.slots[cluster]
    waiting = np.flatnonzero(slots[:, st.STATUS] == st.QUEUED)
    if not waiting.size:
        return ()
    waiting = waiting[np.argsort(slots[waiting, st.SERIAL], kind="stable")]
    arrived, pools = state.tasks[cluster, waiting, st.ARRIVAL].tolist(), slots[waiting, st.POOL].tolist()
    listed = []
    for slot, pool, since_s in zip(waiting.tolist(), pools, arrived, strict=True):
        task = engine.pool.task(pool, engine.world.kinds)
        listed.append(task.at(slot, _steps_left(engine, cluster, slot, task), now - since_s))
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
        if not 0 <= segment.cap <= len(world.cluster.cap_levels):
            rule = f"must lie in 0..{len(world.cluster.cap_levels)}, the cluster's cap levels"
            raise PlanError(problem("cap", segment.cap, rule, "Use 0 for the domain's own cap"))
        numbers = segment.precision.index + len(PRECISIONS) * segment.cap
        rows[p] = (segment.domain, segment.stop, layout[0] + named, numbers, level)
    return rows


# ------ Pending decisions as arrays: the same record from hundreds of simulated clusters or from one view

__all__ = [
    "ATTRIBUTIONS",
    "EVENT",
    "PER_CANDIDATE",
    "Attributor",
    "Decisions",
    "from_view",
    "gather",
    "own_first",
    "states",
]

ATTRIBUTIONS = len(DEMAND_NAMES)
EVENT = 6
"""Numbers of an event: its kind (two), sine and cosine of the hour, log steps left, days waited."""


PER_CANDIDATE: tuple[str, ...] = ("kind", "slot", "left", "waited_s", "attribution")
"""Fields of :class:`Decisions` with one entry per candidate."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """B pending decisions of one cluster or of many of the same kind; K domains, Q candidates for placement.

    Attributes:
        replanning: Whether the task already runs, shape ``(B,)``.
        free: Devices a plan may use, shape ``(B, K)``.
        links: Gb/s and seconds as other tasks leave them, USD per GB, forecast Gb/s, shape ``(B, 4, K, K)``.
        domains: The 20 system numbers per domain, shape ``(B, K, 20)``.
        event: Shape ``(B, 6)``.
        held: Domains of the plan in force, shape ``(B, K)``.
        holding: Devices of the plan in force, shape ``(B,)``.
        step_s: Measured step time of a running task, 0 if it waits, shape ``(B,)``.
        weights: w_eff, w_util and w_cost, shape ``(B, 3)``.
        waiting: Tasks in the queue, shape ``(B,)``.
        kind: Kinds of the candidates (a running task is its own only candidate), −1 for none, shape ``(B, Q)``.
        slot: Their places in the table of tasks, shape ``(B, Q)``.
        left: Steps they have left, shape ``(B, Q)``.
        waited_s: Since when they are there, shape ``(B, Q)``.
        attribution: Their attribution vectors, shape ``(B, Q, 7)``.
        carbon: Accounted intensity of each domain's grid now, g/kWh, shape ``(B, K)``; ``(B, 0)`` where no grid changes
            by the hour.
        electricity: Price of electricity of each domain now, USD/kWh, shape ``(B, K)``; ``(B, 0)`` where none changes.
    """

    replanning: BoolArray
    free: IntArray
    links: FloatArray
    domains: Float32Array
    event: Float32Array
    held: BoolArray
    holding: IntArray
    step_s: FloatArray
    weights: FloatArray
    waiting: IntArray
    kind: IntArray
    slot: IntArray
    left: FloatArray
    waited_s: FloatArray
    attribution: Float32Array
    carbon: FloatArray
    electricity: FloatArray

    def __len__(self) -> int:
        return len(self.replanning)

    def take(self, index: IntArray | BoolArray) -> Decisions:
        """Some of the decisions."""
        return Decisions(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def only(self, candidate: int) -> Decisions:
        """The decisions with one of their candidates; how many tasks wait stays."""
        return replace(self, **{name: getattr(self, name)[:, [candidate]] for name in PER_CANDIDATE})

    def check(self) -> None:
        """Raise ``PlanError`` if a number is not finite or a link carries nothing: a policy must not decide on it."""
        for name in ("links", "domains", "event", "step_s", "weights", "left", "waited_s", "attribution"):
            values = getattr(self, name)
            if not np.isfinite(values).all():
                at = [int(i) for i in np.argwhere(~np.isfinite(values))[0]]
                given = float(values[tuple(at)])
                fix = "Repair the measurement, or leave the decision to a rule"
                raise PlanError(problem(f"{name}{at}", given, "must be finite", fix))
        if not (self.links[:, 0] > 0.0).all():
            at = [int(i) for i in np.argwhere(~(self.links[:, 0] > 0.0))[0]]
            fix = "Write a dead link as a small number such as 0.001"
            raise PlanError(
                problem(f"bandwidth_gbps{at}", float(self.links[at[0], 0, at[1], at[2]]), "must be > 0", fix)
            )


@kernel(allocates=True)
def _gather(
    world: WorldArrays,
    state: StateArrays,
    rows: IntArray,
    free: IntArray,
    links: FloatArray,
    domains: Float32Array,
    event: Float32Array,
    held: BoolArray,
    holding: IntArray,
    step_s: FloatArray,
    waiting: IntArray,
    kind: IntArray,
    slots: IntArray,
    left: FloatArray,
    waited_s: FloatArray,
    pool: IntArray,
) -> None:
    """Write the pending decisions of clusters ``rows``; candidates stand in order of arrival."""
    k = free.shape[1]
    link_rows = np.empty((3, k, k), dtype=np.float32)
    task = np.empty(5, dtype=np.float32)
    plan = np.empty((state.plans.shape[2], 6), dtype=np.int64)
    load = np.zeros((k, k))
    for b in range(rows.size):
        e = rows[b]
        observe(world, state, e, domains[b], link_rows, task, event[b], plan)
        slot = state.event[e, st.SLOT]
        running = state.event[e, st.EVENT] == st.REPLAN
        now = state.clock[e, st.NOW]
        load[:, :] = 0.0
        link_load(state, e, load)
        own_step = state.tasks[e, slot, st.STEP]
        own = running and own_step > 0.0 and state.tasks[e, slot, st.PAUSED] <= now
        for i in range(k):
            free[b, i] = free_devices(world, state, e, i, False, slot if running else -1)
            for j in range(k):
                others = load[i, j]
                if own:
                    others -= state.traffic[e, slot, i, j] / own_step
                share = max(0.0, others) / state.links[e, 1, i, j] if i != j else 0.0
                rate = state.links[e, 1, i, j] * max(LEAST_BANDWIDTH_SHARE, 1.0 - share)
                links[b, 0, i, j] = rate / BYTES_PER_GBIT
                links[b, 1, i, j] = effective_latency(world.base[1, i, j], share, world.congestion)
                links[b, 2, i, j] = world.domains.price_usd_per_byte[i, j] * 1e9
                links[b, 3, i, j] = links[b, 0, i, j]
        held[b, :] = False
        holding[b] = 0
        step_s[b] = own_step if running else 0.0
        kind[b, :] = -1
        count = 0
        if running:
            for p in range(state.slots[e, slot, st.SEGMENTS]):
                segment = state.plans[e, slot, p]
                held[b, segment[DOMAIN]] = True
                holding[b] += segment[DP] * segment[TP] * segment[PP]
        waiting[b] = 0
        last = -1
        while True:
            # Slots are not in order of arrival; their serial numbers are.
            chosen, serial = -1, 2**62
            for s in range(state.slots.shape[1]):
                number = state.slots[e, s, st.SERIAL]
                if state.slots[e, s, st.STATUS] == st.QUEUED and last < number < serial:
                    chosen, serial = s, number
            if chosen < 0:
                break
            last = serial
            waiting[b] += 1
            if not running and count < kind.shape[1]:
                _candidate(world, state, e, chosen, b, count, kind, slots, left, waited_s, pool)
                count += 1
        if running:
            _candidate(world, state, e, slot, b, 0, kind, slots, left, waited_s, pool)
            # A view does not tell since when a running task is there.
            waited_s[b, 0] = 0.0
            event[b, 5] = 0.0


@kernel
def _candidate(
    world: WorldArrays,
    state: StateArrays,
    e: int,
    slot: int,
    b: int,
    q: int,
    kind: IntArray,
    slots: IntArray,
    left: FloatArray,
    waited_s: FloatArray,
    pool: IntArray,
) -> None:
    kind[b, q] = kind_of(world, state, e, slot)
    slots[b, q] = slot
    left[b, q] = state.tasks[e, slot, st.LEFT]
    waited_s[b, q] = state.clock[e, st.NOW] - state.tasks[e, slot, st.ARRIVAL]
    pool[b, q] = state.slots[e, slot, st.POOL]


def gather(engine: Engine, rows: IntArray, attributions: Float32Array) -> Decisions:
    """Read the pending decisions of some clusters of an engine.

    Args:
        engine: The clusters; each of ``rows`` must have a decision pending.
        rows: Clusters, shape ``(B,)``.
        attributions: Attribution vectors of the engine's pool of tasks, shape ``(n, 7)``.
    """
    b, k, q = len(rows), len(engine.world.cluster), engine.world.queue_capacity
    if engine.world.incidents:
        # Tasks of a lost domain go back to the queue however full it is.
        q += engine.world.max_running
    pool = np.zeros((b, q), dtype=np.int64)
    found = Decisions(
        replanning=engine.state.event[rows, st.EVENT] == st.REPLAN,
        free=np.zeros((b, k), dtype=np.int64),
        links=np.zeros((b, 4, k, k)),
        domains=np.zeros((b, k, len(DOMAIN_FEATURES)), dtype=np.float32),
        event=np.zeros((b, EVENT), dtype=np.float32),
        held=np.zeros((b, k), dtype=np.bool_),
        holding=np.zeros(b, dtype=np.int64),
        step_s=np.zeros(b),
        weights=engine.weights[rows].copy(),
        waiting=np.zeros(b, dtype=np.int64),
        kind=np.full((b, q), -1, dtype=np.int64),
        slot=np.zeros((b, q), dtype=np.int64),
        left=np.zeros((b, q)),
        waited_s=np.zeros((b, q)),
        attribution=np.zeros((b, q, ATTRIBUTIONS), dtype=np.float32),
        carbon=_signal_now(engine.world, engine.arrays, engine.state.clock[rows, st.LAST_TICK], st.CARBON),
        electricity=_signal_now(engine.world, engine.arrays, engine.state.clock[rows, st.LAST_TICK], st.ELECTRICITY),
    )
    _gather(
        engine.arrays, engine.state, rows, found.free, found.links, found.domains, found.event, found.held,
        found.holding, found.step_s, found.waiting, found.kind, found.slot, found.left, found.waited_s, pool,
    )  # fmt: skip
    found.attribution[:] = np.where(found.kind[:, :, None] >= 0, attributions[pool], 0.0)
    found.free[:] = within_budgets(engine.world.cluster, found.free)
    return found


def from_view(
    view: Decision, attributor: Attributor | None = None, forecast_gbps: FloatArray | None = None
) -> Decisions:
    """Read one decision from its record.

    Args:
        view: The decision.
        attributor: For tasks whose counters nobody has attributed yet. Zeros where there is none, or a task was not
            measured.
        forecast_gbps: Bandwidth expected some time ahead, shape ``(K, K)``; what it is now by default.

    Raises:
        PlanError: If an array of the view does not go with its cluster, or the attributor's answer with its question.
    """
    _check_shapes(view)
    k = len(view.free_devices)
    own = (view.kind_index, view.slot, view.steps_left, 0.0, view.counters, view.attribution)
    listed = [own] if view.replanning else [
        (task.kind_index, task.slot, task.steps_left, task.waited_s, task.counters, task.attribution)
        for task in view.queue
    ] or [own]  # fmt: skip
    q = len(listed)
    price = view.cost.domains.price_usd_per_byte * 1e9
    ahead = view.bandwidth_gbps if forecast_gbps is None else forecast_gbps
    angle = 2.0 * np.pi * view.time_s / DAY_S
    steps = min(1.0, float(np.log10(max(1.0, view.steps_left))) / 8.0)
    waited = next((task.waited_s for task in view.queue if task.slot == view.slot), 0.0)
    held = np.zeros((1, k), dtype=np.bool_)
    holding = 0
    if view.current_plan is not None:
        held[0, list(view.current_plan.domains)] = True
        holding = sum(segment.device_count for segment in view.current_plan.segments)
    return Decisions(
        replanning=np.array([view.replanning]),
        free=within_budgets(view.cost.cluster, np.asarray(view.free_devices, dtype=np.int64))[None],
        links=np.stack([view.bandwidth_gbps, view.latency_s, price, ahead])[None],
        domains=_observed(view)[None].astype(np.float32),
        event=np.array(
            [[not view.replanning, view.replanning, np.sin(angle), np.cos(angle), steps, min(1.0, waited / DAY_S)]],
            dtype=np.float32,
        ),
        held=held,
        holding=np.array([holding]),
        step_s=np.array([view.running_step_s if view.replanning else 0.0]),
        weights=np.array([[view.reward.w_eff, view.reward.w_util, view.reward.w_cost]]),
        waiting=np.array([len(view.queue)]),
        kind=np.array([[row[0] for row in listed]]),
        slot=np.array([[row[1] for row in listed]]),
        left=np.array([[row[2] for row in listed]]),
        waited_s=np.array([[row[3] for row in listed]]),
        attribution=states([row[4:] for row in listed], attributor).reshape(1, q, ATTRIBUTIONS),
        carbon=np.asarray(view.carbon_g_per_kwh)[None],
        electricity=np.asarray(view.electricity_usd_per_kwh)[None],
    )


SIGNALS: Mapping[int, Literal["carbon", "electricity"]] = {st.CARBON: "carbon", st.ELECTRICITY: "electricity"}
"""Row of ``WorldArrays.signals`` → what a domain and :class:`Decisions` call it."""


def _signal_now(world: World, arrays: WorldArrays, ticks_s: FloatArray, signal: int) -> FloatArray:
    """A signal of every domain at moments ``(B,)``, g/kWh or USD/kWh, shape ``(B, K)``; ``(B, 0)`` if none changes."""
    domains = world.cluster.domains
    if all(getattr(domain, SIGNALS[signal]) is None for domain in domains):
        return np.zeros((len(ticks_s), 0))
    hours = [signal_hour(arrays, float(tick_s)) for tick_s in ticks_s]
    return np.asarray(arrays.signals[signal, hours] * _usual_values(world, signal))


def _usual_values(world: World, signal: int) -> FloatArray:
    """What a signal of every domain is told in multiples of, shape ``(K,)``."""
    priced, domains = signal == st.ELECTRICITY, world.cluster.domains
    return np.array([world.reward.energy_usd_per_kwh if priced else domain.carbon_g_per_kwh for domain in domains])


def with_signal(moment: Moment, signal: int, values: FloatArray) -> Moment:
    """A moment at which carbon or electricity stands otherwise, shape ``(K,)``; its forecasts by the same factors.

    Of nothing there are no multiples: what is 0 now is as if it stood where it is told to, and stayed there.
    """
    name = SIGNALS[signal]
    now = _signal_now(moment.world, moment.arrays, moment.state.clock[:, st.LAST_TICK], signal)[0]
    if np.array_equal(now, values):
        return moment
    domains, signals = list(moment.world.cluster.domains), moment.arrays.signals.copy()
    usual = _usual_values(moment.world, signal)
    for k, domain in enumerate(domains):
        own = getattr(domain, name)
        if own is not None and values[k] != now[k]:
            factor = float(values[k] / now[k]) if now[k] > 0.0 else 0.0
            other: dict[str, Any] = {name: Scaled(own, factor) if factor else Constant(float(values[k]))}
            domains[k] = replace(domain, **other)
            signals[signal, 0, k] = signals[signal, 0, k] * factor if factor else values[k] / usual[k]
    world = replace(moment.world, cluster=replace(moment.world.cluster, domains=tuple(domains)))
    return replace(moment, world=world, arrays=moment.arrays._replace(signals=signals))


def own_first(decisions: Decisions, slot: int) -> Decisions:
    """One decision with the task of ``slot`` as candidate 0; the others keep their order."""
    at = np.flatnonzero((decisions.slot[0] == slot) & (decisions.kind[0] >= 0))
    if len(at) == 0:
        rule = f"must be among the waiting tasks {decisions.slot[0].tolist()}"
        raise PlanError(problem("slot", slot, rule, "Put the decision's own task into its queue"))
    order = np.concatenate([at[:1], np.delete(np.arange(decisions.kind.shape[1]), at[0])])
    return replace(decisions, **{name: getattr(decisions, name)[:, order] for name in PER_CANDIDATE})


def check_known(view: Decision, *more: str) -> None:
    """Refuse counts, baselines and paces that are no numbers; nobody reads them off a list of observations.

    Args:
        view: The decision.
        more: Names of other arrays or numbers of it that must be finite.

    Raises:
        PlanError: If one is not finite.
    """
    for name in ("free_devices", "base_step_s", "base_cost_usd", *more):
        values = getattr(view, name)
        if values is not None and not np.isfinite(values).all():
            at = np.argwhere(~np.isfinite(values))[0].tolist()
            _not_finite(f"{name}{at or ''}", float(np.asarray(values)[tuple(at)]))
    for task in view.queue:
        if not math.isfinite(task.samples_per_s):
            _not_finite(f"samples_per_s of task {task.id or task.slot}", task.samples_per_s)
    if not math.isfinite(view.samples_per_s):
        _not_finite("samples_per_s", view.samples_per_s)


def _not_finite(name: str, value: float) -> None:
    raise PlanError(problem(name, value, "must be finite", "Repair the measurement, or leave the decision to a rule"))


def _check_shapes(view: Decision) -> None:
    """Refuse what was observed of another cluster than the one the view is of."""
    k = len(view.cost.cluster)
    told = {
        "free_devices": (view.free_devices, (k,)),
        "bandwidth_gbps": (view.bandwidth_gbps, (k, k)),
        "latency_s": (view.latency_s, (k, k)),
        "observed": (view.observed, (k, len(DOMAIN_FEATURES))),
        "link_gbps": (view.link_gbps, (k, k)),
    }
    for name, (array, shape) in told.items():
        if array is not None and np.shape(array) != shape:
            fix = "Use the view of the preset that is scheduled"
            raise PlanError(
                problem(f"{name}.shape", np.shape(array), f"must be {shape}, the cluster has {k} domains", fix)
            )
    check_known(view)
    devices = np.asarray(view.cost.domains.rows.devices)
    wrong = np.flatnonzero((view.free_devices < 0) | (view.free_devices > devices))
    if len(wrong):
        rule = f"must lie in 0..{devices[wrong[0]]}"
        given = int(view.free_devices[wrong[0]])
        raise PlanError(problem(f"free_devices[{wrong[0]}]", given, rule, "Count the free devices per domain"))
    for kind in (view.kind_index, *(task.kind_index for task in view.queue)):
        if not 0 <= kind < len(view.kinds):
            raise PlanError(
                problem("kind_index", kind, f"must lie in 0..{len(view.kinds) - 1}", "Use the view's kinds")
            )


def states(
    tasks: Sequence[tuple[FloatArray, AttributionVector | None]], attributor: Attributor | None = None
) -> Float32Array:
    """What a policy reads of the attributions of tasks, shape ``(n, 7)``; zeros for a task that was not measured.

    Args:
        tasks: Counters of each, and its attribution if it has one.
        attributor: For those that were measured and not yet attributed.

    Raises:
        PlanError: If an attribution has no state, or the attributor's answer does not go with its question.
    """
    found = np.zeros((len(tasks), ATTRIBUTIONS), dtype=np.float32)
    unread = []
    for row, (counters, vector) in enumerate(tasks):
        if vector is not None:
            if vector.state is None:
                rule = "is in no policy's schema: its seven numbers in [-1, 1] are not known"
                raise PlanError(problem("attribution", vector.method, rule, "Attribute tasks by as_attributor(...)"))
            found[row] = vector.state
        elif counters.size:
            unread.append(row)
    if attributor is not None and unread:
        given = np.asarray(attributor(np.stack([tasks[row][0] for row in unread])))
        if given.shape != (len(unread), ATTRIBUTIONS):
            rule = f"must be {(len(unread), ATTRIBUTIONS)}, seven numbers per task"
            raise PlanError(problem("attributor's answer", given.shape, rule, "Return one row per row of counters"))
        found[unread] = given
    return found


def _observed(view: Decision) -> FloatArray:
    """What instruments say; without any, devices that are not free count as busy and full."""
    if view.observed is not None:
        return view.observed
    rows = view.cost.domains.rows
    busy = 1.0 - np.asarray(view.free_devices) / np.asarray(rows.devices)
    found = np.zeros((len(busy), len(DOMAIN_FEATURES)))
    found[:, : 2 * GROUPS] = busy[:, None]
    found[:, -3] = busy
    found[:, -2] = min(1.0, len(view.queue) / 16.0)
    found[:, -1] = 1.0
    return found
