"""Arrays of the batched world: what never changes (``WorldArrays``) and what does (``StateArrays``).

E is the number of clusters, K of domains, D of devices in the largest domain, S of task slots (running plus
queued), P of segments a plan may have.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import DomainArrays, PowerArrays, RuntimeArrays
from attribution_sched.cluster.plan import SEGMENT_FIELDS
from attribution_sched.cluster.streams import StreamState
from attribution_sched.cluster.validity import REFUSALS
from attribution_sched.kernels import by_reference
from attribution_sched.types import FloatArray, IntArray

NOW, NEXT_TICK, NEXT_ARRIVAL, METER_W, UNUSED_W, LAST_TICK, METER_USD, UNUSED_G = range(8)
"""Columns of ``StateArrays.clock``: times in seconds; what all devices draw and how much of it no task uses; dollars of
all of it and grams of the unused part, a second."""

EVENT, SLOT, TAKEN, DONE = range(4)
"""Columns of ``StateArrays.event``: pending decision, its task slot, tasks arrived so far, episode over."""

STATUS, POOL, SERIAL, SEGMENTS = range(4)
"""Columns of ``StateArrays.slots``: status, pool instance, arrival number, segments of its plan."""

LATENT, BANDWIDTH, DOWN = range(3)
"""Rows of ``StateArrays.links``; the last is there only where links fail."""

NETWORK_STREAM, TASK_STREAM, LINK_FAILURES = range(3)
"""Rows of ``StateArrays.streams``; the last is there only where links fail."""

ELECTRICITY, CARBON = range(2)
"""Rows of ``WorldArrays.signals``."""

HOUR_S = 3600.0

K_BATCH, K_TRAINING, K_EPOCH, K_PRIORITY, K_BASE_STEP, K_BASE_COST, K_SLACK, K_MICRO, K_FEATURES = (*range(8), 11)
"""Columns of ``WorldArrays.kinds``; there are four microbatch sizes and five features."""

P_KIND, P_STEPS, P_FACTORS, P_PCIE, P_RAISED, P_ALLOWED_S, P_TYPE, P_WORKING = 0, 1, 2, 5, 6, 7, 8, 9
"""Columns of ``WorldArrays.pool``; three demand factors; how much more urgent than its kind a task is, the time it
may take from its arrival on, 0 for its kind's; row of the measured job it really is, −1 for none; of an opaque task,
the share of its time that a device works, 0 for others: what a power cap does to it follows from that."""

POOL_COLUMNS = P_WORKING + 1

J_DEMANDS, J_MEMORY, J_BUSY = 0, 4, 5
"""Columns of ``WorldArrays.jobs``: four demands, bytes on a device, share of its time that a device works."""

FREE, QUEUED, RUNNING = 0, 1, 2
"""Status of a task slot."""

NO_EVENT, PLACE, REPLAN = 0, 1, 2
"""Kind of a decision event."""

TASK_COLUMNS = (
    "arrival_s", "steps_left", "step_s", "paused_until_s", "epoch_left", "offered_s", "energy_j", "bill_usd",
    "r_eff", "r_util", "r_cost", "review", "started_s", "power_w", "step_bill_usd", "carbon_g_per_s",
    "busy_devices", "shared", "evictions", "epoch_r_util", "step_wan_bytes", "step_wan_g",
)  # fmt: skip
(
    ARRIVAL, LEFT, STEP, PAUSED, EPOCH, OFFERED, ENERGY, BILL, T_EFF, T_UTIL, T_COST, REVIEW, STARTED, POWER,
    STEP_BILL, CARBON_RATE, BUSY_DEVICES, SHARED, EVICTED, EPOCH_UTIL, STEP_BYTES, STEP_WAN_G,
) = range(len(TASK_COLUMNS))  # fmt: skip
"""Columns of ``StateArrays.tasks``; ``step_s`` is the time of one global batch, ``started_s`` the first start."""

LOAD_COLUMNS = (
    "busy", "memory_bytes", "dynamic_w", "intra_comm_s", "host", "compute", "memory", "pcie",
    "host_demand", "compute_demand", "memory_demand", "pcie_demand",
)  # fmt: skip
BUSY, MEMORY, DYNAMIC_W, INTRA, HOST, COMPUTE_READ, MEMORY_READ, PCIE_READ, DEMANDS = range(9)
"""Columns of ``StateArrays.loads``: what one device of a segment carries; four shares as instruments read them; from
``DEMANDS`` on, its four demands on the shared resources when it is alone."""

TOTAL_COLUMNS = (
    "completed", "dropped", "rejected", "migrations", "decisions", "meter_j", "task_j", "idle_j", "bill_usd",
    "carbon_g", "busy_device_s", "completion_s", "migration_s", "placed", "wait_s", "steps_done",
    "missed", "evictions", "lost_steps", "restart_s", "wan_bytes", "wan_g", "electricity_usd", "idle_g",
)  # fmt: skip
(
    COMPLETED, DROPPED, REJECTED, MIGRATIONS, DECISIONS, METER_J, TASK_J, IDLE_J, BILL_TOTAL, CARBON_TOTAL,
    BUSY_DEVICE_S, COMPLETION_S, MIGRATION_S, PLACED, WAIT_S, STEPS_DONE,
    MISSED, EVICTIONS, LOST_STEPS, RESTART_S, WAN_BYTES, WAN_G, ELECTRICITY_USD, IDLE_G,
) = range(len(TOTAL_COLUMNS))  # fmt: skip
"""Columns of ``StateArrays.totals``: sums over the episode. ``wan_bytes`` crossed from domain to domain, ``wan_g``
are the grams of the network's energy for them: accounted beside the tasks' own, and in no reward. ``electricity_usd``
is what the meters' energy cost by the hour, ``idle_g`` the grams of devices that held no task."""

DECISION_COLUMNS = (
    "r_eff", "r_util", "r_cost", "step_s", "bill_usd", "migration_s", "migration_usd", "code", "migration_bytes",
    "migration_wan_g",
)  # fmt: skip
D_EFF, D_UTIL, D_COST, D_STEP, D_BILL, D_MOVE_S, D_MOVE_USD, D_CODE, D_MOVE_BYTES, D_MOVE_WAN_G = range(
    len(DECISION_COLUMNS)
)
"""First columns of ``StateArrays.outcome``: what the last decision was worth by itself."""

INTEGRALS = len(DECISION_COLUMNS)
"""Where the three reward terms paid over time since the last decision begin in ``StateArrays.outcome``."""

CODES = {
    1: "placed",
    2: "moved",
    0: "deferred or kept",
    **{code: REFUSALS[code] for code in range(-1, -11, -1)},
}
"""What an applied action came to; negative codes are refusals that leave the world as it was."""


@by_reference
class WorldArrays(NamedTuple):
    """The constant part of a world, shared by all clusters of a batch.

    Few, wide tables instead of many arrays: every array is an argument of every compiled call.

    Attributes:
        domains: The cluster.
        runtime: Framework behaviour.
        power_law: Constants of the power laws.
        tables: Layer cost tables; model m is kind m.
        base: Base bandwidth (bytes/s) and latency (s), shape ``(2, K, K)``.
        kinds: Task kinds, shape ``(n_kinds, 16)``, columns ``K_…``.
        pool: Task instances, shape ``(n, 10)``, columns ``P_…``.
        resources: Coupling, demand gain and gain of the instruments of the shared resources, shape ``(3, 4)``.
        jobs: Measured jobs that instances may be, shape ``(n_jobs, 6)``, columns ``J_…``.
        pair_speed: Speed of a measured job beside another, over its speed alone, shape ``(n_jobs, n_jobs)``; 0 where
            the two do not fit, NaN where nobody measured them.
        layouts: Shape ``(n_layouts, 4)``: dp, tp, pp, share.
        budget_w: Power budget per domain, shape ``(K,)``.
        trace_times_s: Times of a replayed bandwidth trace; empty without one.
        trace_multiplier: Its bandwidth over base, shape ``(T, K, K)``.
        arrival_params: Parameters of the arrival process.
        arrival_times_s: Recorded arrivals.
        incidents: Cuts and losses, shape ``(n, 6)``, columns ``incidents.I_…``.
        signals: Price of electricity over the reward's and carbon intensity over the domain's, hour by hour, shape
            ``(2, H, K)``; after the last hour they begin again. One hour of ones where nothing outside changes.
        signals_from_h: Hour of the run at which they begin.
        fails: Chance that a link which is up is down a tick later; 0 where links do not fail.
        stays_down: Chance that one which is down still is a tick later.
        down_share: Share of the time that a link is down.
        down_left: Share of its bandwidth that is left of it then.
    """

    domains: DomainArrays
    runtime: RuntimeArrays
    power_law: PowerArrays
    tables: CostTables
    base: FloatArray
    kinds: FloatArray
    pool: FloatArray
    resources: FloatArray
    jobs: FloatArray
    pair_speed: FloatArray
    layouts: IntArray
    budget_w: FloatArray
    trace_times_s: FloatArray
    trace_multiplier: FloatArray
    arrival_params: FloatArray
    arrival_times_s: FloatArray
    incidents: FloatArray
    signals: FloatArray
    signals_from_h: int
    arrival_kind: int
    trace_period_s: float
    ou_decay: float
    ou_noise: float
    ou_spread: float
    ou_correlation: float
    ou_bound: float
    fails: float
    stays_down: float
    down_share: float
    down_left: float
    congestion: float
    coupling_epsilon: float
    slowdown_cap: float
    energy_usd_per_j: float
    carbon_usd_per_g: float
    network_j_per_byte: float
    horizon_s: float
    tick_s: float
    interval_s: float
    restart_s: float
    retry_s: float
    replan_threshold: float
    waiting_r_eff: float
    share_limit: int
    max_running: int
    queue_capacity: int
    lambda_fragmentation: float
    lambda_intra_comm: float


@by_reference
class StateArrays(NamedTuple):
    """The changing part; every array has the cluster axis first.

    Attributes:
        clock: Shape ``(E, 8)``.
        event: Shape ``(E, 4)``.
        streams: Random streams of the network, of the tasks and, where links fail, of that, shape ``(E, 2 or 3, 4)``.
        links: Latent process, bandwidth now (bytes/s) and, where links fail, 1 for those that are down, shape
            ``(E, 2 or 3, K, K)``.
        slots: Shape ``(E, S, 4)``.
        tasks: Shape ``(E, S, 22)``, columns ``TASK_COLUMNS``.
        plans: Segment rows of running tasks, shape ``(E, S, P, 11)``.
        loads: Shape ``(E, S, P, 12)``, columns ``LOAD_COLUMNS``.
        traffic: Bytes per step of every task, shape ``(E, S, K, K)``.
        planned: Bandwidth of the links when a task was last decided on, same shape.
        occupant: Task slots on every device, −1 for none, shape ``(E, K, D, 2)``.
        outcome: Shape ``(E, 13)``: the last decision's own worth, then the terms paid over time.
        totals: Shape ``(E, 24)``, columns ``TOTAL_COLUMNS``.
        r_low: Lower agents' reward of the last decision, shape ``(E, K)``.
    """

    clock: FloatArray
    event: IntArray
    streams: StreamState
    links: FloatArray
    slots: IntArray
    tasks: FloatArray
    plans: IntArray
    loads: FloatArray
    traffic: FloatArray
    planned: FloatArray
    occupant: IntArray
    outcome: FloatArray
    totals: FloatArray
    r_low: FloatArray


def make_state(
    clusters: int, domains: int, devices: int, slots: int, segments: int, failing: bool = False
) -> StateArrays:
    """Allocate the state of a batch of clusters; ``failing`` for links that fail."""
    e, k, d, s, p = clusters, domains, devices, slots, segments
    rows = 3 if failing else 2
    return StateArrays(
        clock=np.zeros((e, 8)),
        event=np.zeros((e, 4), dtype=np.int64),
        streams=np.zeros((e, rows, 4), dtype=np.uint64),
        links=np.zeros((e, rows, k, k)),
        slots=np.zeros((e, s, 4), dtype=np.int64),
        tasks=np.zeros((e, s, len(TASK_COLUMNS))),
        plans=np.zeros((e, s, p, len(SEGMENT_FIELDS)), dtype=np.int64),
        loads=np.zeros((e, s, p, len(LOAD_COLUMNS))),
        traffic=np.zeros((e, s, k, k)),
        planned=np.zeros((e, s, k, k)),
        occupant=np.full((e, k, d, 2), -1, dtype=np.int64),
        outcome=np.zeros((e, INTEGRALS + 3)),
        totals=np.zeros((e, len(TOTAL_COLUMNS))),
        r_low=np.zeros((e, k)),
    )
