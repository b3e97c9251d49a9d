"""What a scheduler may see of a cluster, as numbers with names."""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.prices import domain_power_w, kind_of, link_load
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.incidents import is_lost
from attribution_sched.cluster.plan import DOMAIN, DP, PP, PRECISION, STOP, TP
from attribution_sched.cluster.wan import effective_latency
from attribution_sched.kernels import kernel
from attribution_sched.types import Float32Array, IntArray

GROUPS = 4
"""Devices of a domain are reported in four groups of neighbours (on the testbed: one device each)."""

DOMAIN_FEATURES: tuple[str, ...] = (
    *(f"gpu_utilisation_{g}" for g in range(GROUPS)),
    *(f"memory_utilisation_{g}" for g in range(GROUPS)),
    "cpu_utilisation",
    *(f"memory_bandwidth_{g}" for g in range(GROUPS)),
    *(f"pcie_bandwidth_{g}" for g in range(GROUPS)),
    "total_power",
    "queue_length",
    "power_budget",
)
"""The 20 system numbers of a domain; each is a share in [0, 1] (power and budget of all devices' TDP).

A lost domain looks full: its GPU and memory utilisation are 1, and it draws nothing."""

GPU_UTILISATION, MEMORY_UTILISATION, CPU_UTILISATION = 0, GROUPS, 2 * GROUPS
MEMORY_BANDWIDTH, PCIE_BANDWIDTH = 2 * GROUPS + 1, 3 * GROUPS + 1
TOTAL_POWER, QUEUE_LENGTH, POWER_BUDGET = 4 * GROUPS + 1, 4 * GROUPS + 2, 4 * GROUPS + 3
"""Where they begin in ``DOMAIN_FEATURES``: those of devices have one column a group."""

TASK_FEATURES: tuple[str, ...] = ("task_type", "model_size", "input_height", "input_width", "batch_size")
"""The 5 task numbers: type code over 3, log10 parameters over 12, log2 of the others over 16."""

EVENT_FEATURES: tuple[str, ...] = ("is_place", "is_replan", "day_sine", "day_cosine", "steps_left", "waited")
IS_PLACE, IS_REPLAN, DAY_SINE, DAY_COSINE, STEPS_LEFT, WAITED = range(len(EVENT_FEATURES))
"""The event: its kind, the time of day, log10 of steps left over 8, hours waited over 24."""

LINK_FEATURES: tuple[str, ...] = ("bandwidth_gbps", "latency_s", "price_usd_per_gb")
BANDWIDTH_GBPS, LATENCY_S, PRICE_USD_PER_GB = range(len(LINK_FEATURES))

DAY_S = 86_400.0


@kernel(allocates=True)
def observe(
    world: WorldArrays,
    state: StateArrays,
    e: int,
    domains: Float32Array,
    links: Float32Array,
    task: Float32Array,
    event: Float32Array,
    plan: IntArray,
) -> None:
    """Write the observation of cluster ``e``.

    Args:
        world: Constants.
        state: State.
        e: Cluster.
        domains: Shape ``(K, 20)``, columns ``DOMAIN_FEATURES``.
        links: Shape ``(3, K, K)``, rows ``LINK_FEATURES``.
        task: Shape ``(5,)``, ``TASK_FEATURES``.
        event: Shape ``(6,)``, ``EVENT_FEATURES``.
        plan: Shape ``(P, 6)``: domain, stop, dp, tp, pp, precision of the plan in force; −1 where unused.
    """
    domains[:, :] = 0.0
    task[:] = 0.0
    event[:] = 0.0
    plan[:, :] = -1
    k = domains.shape[0]
    load = np.zeros((k, k))
    link_load(state, e, load)
    for i in range(k):
        for j in range(k):
            # The state holds bytes per second and dollars per byte.
            links[BANDWIDTH_GBPS, i, j] = state.links[e, 1, i, j] * 8e-9
            share = load[i, j] / state.links[e, 1, i, j] if i != j else 0.0
            links[LATENCY_S, i, j] = effective_latency(world.base[1, i, j], share, world.congestion)
            links[PRICE_USD_PER_GB, i, j] = world.domains.price_usd_per_byte[i, j] * 1e9
    waiting = 0
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED:
            waiting += 1
    for i in range(k):
        devices = world.domains.rows[i].devices
        row = domains[i]
        for d in range(devices):
            group = d * GROUPS // devices
            # Devices of this group: those between the rounded-up quarters.
            size = ((group + 1) * devices + GROUPS - 1) // GROUPS - (group * devices + GROUPS - 1) // GROUPS
            for place in range(2):
                slot = state.occupant[e, i, d, place]
                if slot < 0:
                    continue
                for p in range(state.slots[e, slot, st.SEGMENTS]):
                    if state.plans[e, slot, p, DOMAIN] == i:
                        loads = state.loads[e, slot, p]
                        row[GPU_UTILISATION + group] += loads[st.BUSY] / size
                        row[MEMORY_UTILISATION + group] += loads[st.MEMORY] / world.domains.rows[i].memory_bytes / size
                        row[CPU_UTILISATION] += loads[st.HOST] / devices
                        row[MEMORY_BANDWIDTH + group] += loads[st.MEMORY_READ] / size
                        row[PCIE_BANDWIDTH + group] += loads[st.PCIE_READ] / size
        if is_lost(world.incidents, state.clock[e, st.LAST_TICK], i):
            # Full devices and full memory: nobody who reads this places anything here.
            row[:CPU_UTILISATION] = 1.0
        peak = devices * world.domains.rows[i].tdp_w
        row[TOTAL_POWER] = domain_power_w(world, state, e, i, False, False)[0] / peak
        row[QUEUE_LENGTH] = waiting / world.queue_capacity
        # A domain without a budget has an infinite one.
        row[POWER_BUDGET] = min(1.0, world.budget_w[i] / peak)
        # Two tasks on a device may ask for more than all of it.
        for f in range(row.size):
            row[f] = min(1.0, row[f])
    if state.event[e, st.EVENT] == st.NO_EVENT:
        return
    slot = state.event[e, st.SLOT]
    kind = kind_of(world, state, e, slot)
    for f in range(task.size):
        task[f] = world.kinds[kind, st.K_FEATURES + f]
    event[IS_PLACE] = 1.0 if state.event[e, st.EVENT] == st.PLACE else 0.0
    event[IS_REPLAN] = 1.0 if state.event[e, st.EVENT] == st.REPLAN else 0.0
    angle = 2.0 * np.pi * state.clock[e, st.NOW] / DAY_S
    event[DAY_SINE] = np.sin(angle)
    event[DAY_COSINE] = np.cos(angle)
    event[STEPS_LEFT] = min(1.0, np.log10(max(1.0, state.tasks[e, slot, st.LEFT])) / 8.0)
    event[WAITED] = min(1.0, (state.clock[e, st.NOW] - state.tasks[e, slot, st.ARRIVAL]) / DAY_S)
    if state.slots[e, slot, st.STATUS] == st.RUNNING:
        for p in range(state.slots[e, slot, st.SEGMENTS]):
            segment = state.plans[e, slot, p]
            plan[p, 0] = segment[DOMAIN]
            plan[p, 1] = segment[STOP]
            plan[p, 2] = segment[DP]
            plan[p, 3] = segment[TP]
            plan[p, 4] = segment[PP]
            plan[p, 5] = segment[PRECISION]
