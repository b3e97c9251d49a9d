"""The batched world: hundreds of clusters advanced from decision to decision in one call.

``Engine`` owns the arrays and seeds. Above it stand the compiled parts, in this order: prices and power of what runs,
the clockwork (``advance``), actions (``decode``, ``enact``), observations (``observe``). A single environment is an
engine with one cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import SeedSequence

from attribution_sched.cluster.arrivals import next_arrival
from attribution_sched.cluster.compute import PARAMS_SHARDED, PARAMS_WHOLE
from attribution_sched.cluster.cost import (
    BILL_USD,
    BUSY_S,
    BYTES_PER_GB,
    BYTES_PER_GBIT,
    COMPUTE_SHARE,
    HOST_SHARE,
    JOULES_PER_KWH,
    MEMORY_BYTES,
    MEMORY_SHARE,
    POWER_W,
    SEGMENT_COMM_S,
    SEGMENT_SIZE,
    STEP_S,
    UTILISATION,
    CostModel,
    Scratch,
    Workload,
    make_scratch,
    opaque_cap,
    plan_cost,
    segment_energy_j,
    share_batch,
)
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.state import (
    DECISION_COLUMNS,
    TOTAL_COLUMNS,
    StateArrays,
    WorldArrays,
    make_state,
)
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.incidents import cut_links, is_lost, pack
from attribution_sched.cluster.interference import (
    EPSILON,
    PCIE_BYTES_PER_S,
    job_columns,
    measured_jobs,
    resource_constants,
    slowdown_cap,
)
from attribution_sched.cluster.memory import element_bytes, state_bytes_per_parameter
from attribution_sched.cluster.plan import (
    CAP,
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
    Plan,
    PlanBatch,
    layout_table,
)
from attribution_sched.cluster.reward import (
    baseline_costs,
    cost_usd_kernel,
    r_cost_kernel,
    r_eff_kernel,
    samples_kernel,
    total_of,
    usd_per_g,
    usd_per_j,
)
from attribution_sched.cluster.streams import StreamState, integers, seed_stream
from attribution_sched.cluster.validity import (
    DEVICES,
    INT8,
    MEMORY,
    POWER,
    VALID,
    end_fault,
    order_fault,
    segment_fault,
)
from attribution_sched.cluster.wan import (
    FAILURE_STREAM,
    effective_latency,
    fail_links,
    ou_advance,
    ou_coefficients,
    ou_stationary,
    trace_row,
)
from attribution_sched.cluster.world import BATCH_LEVELS, TaskPool, World, build_pool, hourly_ratios
from attribution_sched.errors import PlanError, SettingsError, problem
from attribution_sched.kernels import kernel
from attribution_sched.types import BoolArray, Float32Array, FloatArray, IntArray

# ------ What running tasks cost each other: prices under contention, loads on links, watts on meters; compiled
#
# Every function works on row ``e`` of the state arrays only.

LEAST_BANDWIDTH_SHARE = 0.1
"""What a task gets of a link however crowded it is."""


@kernel
def kind_of(world: WorldArrays, state: StateArrays, e: int, slot: int) -> int:
    """Task kind of a slot."""
    return int(world.pool[state.slots[e, slot, st.POOL], st.P_KIND])


@kernel
def signal_hour(world: WorldArrays, tick_s: float) -> int:
    """Column of the signals that is in force since a tick: like the network, they change at ticks only."""
    return int((int(tick_s / st.HOUR_S) - world.signals_from_h) % world.signals.shape[1])


@kernel
def _hour_turned(world: WorldArrays, state: StateArrays, e: int) -> bool:
    """Whether this very tick brought other prices and intensities."""
    tick_s = state.clock[e, st.LAST_TICK]
    if world.signals.shape[1] == 1 or state.clock[e, st.NOW] > tick_s:
        return False
    return int(tick_s / st.HOUR_S) != int((tick_s - world.tick_s) / st.HOUR_S)


@kernel
def _segment_of(state: StateArrays, e: int, slot: int, domain: int) -> int:
    for row in range(state.slots[e, slot, st.SEGMENTS]):
        if state.plans[e, slot, row, DOMAIN] == domain:
            return row
    return -1


@kernel
def pair_slowdown(world: WorldArrays, own: FloatArray, other: FloatArray) -> float:
    """Slow-down of a task by a co-runner; both are demand vectors over the shared resources."""
    total = 1.0
    for r in range(own.size):
        d = min(other[r], 1.0)
        total += world.resources[0, r] * own[r] * d / (1.0 + world.coupling_epsilon - d)
    return min(total, world.slowdown_cap)


@kernel
def type_of(world: WorldArrays, state: StateArrays, e: int, slot: int) -> int:
    """Row of the measured job that the task of a slot is, −1 for none."""
    return int(world.pool[state.slots[e, slot, st.POOL], st.P_TYPE])


@kernel
def measured_speed(world: WorldArrays, state: StateArrays, e: int, slot: int, other: int) -> float:
    """Measured speed of a task beside another, over its speed alone; NaN where the two were not measured."""
    own, theirs = type_of(world, state, e, slot), type_of(world, state, e, other)
    return float(world.pair_speed[own, theirs]) if own >= 0 and theirs >= 0 else np.nan


@kernel
def slowdown_beside(
    world: WorldArrays, state: StateArrays, e: int, slot: int, row: int, other: int, other_row: int
) -> float:
    """Slow-down of a segment by a task on its devices: as measured where both are in the table, else by the law."""
    speed = measured_speed(world, state, e, slot, other)
    if speed > 0.0:
        # Pairs at a few per cent of their speed exist in the table; the cap is the law's, not the measurement's.
        return float(1.0 / speed)
    own, theirs = state.loads[e, slot, row, st.DEMANDS :], state.loads[e, other, other_row, st.DEMANDS :]
    return float(pair_slowdown(world, own, theirs))


@kernel
def segment_slowdown(world: WorldArrays, state: StateArrays, e: int, slot: int, row: int) -> float:
    """Worst slow-down over the devices of a segment (its ranks wait for each other)."""
    domain = state.plans[e, slot, row, DOMAIN]
    worst = 1.0
    for d in range(world.domains.rows[domain].devices):
        first = state.occupant[e, domain, d, 0]
        second = state.occupant[e, domain, d, 1]
        if first != slot and second != slot:
            continue
        other = second if first == slot else first
        if other < 0:
            continue
        other_row = _segment_of(state, e, other, domain)
        worst = max(worst, slowdown_beside(world, state, e, slot, row, other, other_row))
    return worst


@kernel
def shared_devices(world: WorldArrays, state: StateArrays, e: int, slot: int, domain: int) -> int:
    """Devices of a task in a domain that another task is on too."""
    found = 0
    for d in range(world.domains.rows[domain].devices):
        first, second = state.occupant[e, domain, d, 0], state.occupant[e, domain, d, 1]
        found += second >= 0 and (first == slot or second == slot)
    return found


@kernel
def device_cap(state: StateArrays, e: int, domain: int, device: int) -> int:
    """Cap level in force on a device that is in use: the one its last comer was given."""
    last = state.occupant[e, domain, device, 1]
    if last < 0:
        last = state.occupant[e, domain, device, 0]
    return int(state.plans[e, last, _segment_of(state, e, last, domain), CAP])


@kernel
def _working_beside(world: WorldArrays, state: StateArrays, e: int, slot: int, row: int, other: int) -> float:
    """Share of its time that a device works for two opaque tasks: what each does alone, at its speed beside the other.

    Negative where either is not opaque: what a cap does to such a pair is in no law.
    """
    own = world.pool[state.slots[e, slot, st.POOL], st.P_WORKING]
    theirs = world.pool[state.slots[e, other, st.POOL], st.P_WORKING]
    if own <= 0.0 or theirs <= 0.0:
        return -1.0
    other_row = _segment_of(state, e, other, state.plans[e, slot, row, DOMAIN])
    own /= slowdown_beside(world, state, e, slot, row, other, other_row)
    theirs /= slowdown_beside(world, state, e, other, other_row, slot, row)
    return float(min(1.0, own + theirs))


@kernel
def segment_cap(world: WorldArrays, state: StateArrays, e: int, slot: int, row: int) -> tuple[int, float]:
    """Lowest cap on a segment's devices, as a level, and the most that one works if the task is opaque (else 0).

    Its ranks wait for each other, so the device that is held back most decides. A device that two tasks share of
    which one is not opaque has its domain's cap.
    """
    domain, level = state.plans[e, slot, row, DOMAIN], 0
    working = world.pool[state.slots[e, slot, st.POOL], st.P_WORKING]
    for d in range(world.domains.rows[domain].devices):
        first, second = state.occupant[e, domain, d, 0], state.occupant[e, domain, d, 1]
        if first != slot and second != slot:
            continue
        if second >= 0:
            both = _working_beside(world, state, e, slot, row, second if first == slot else first)
            if both < 0.0:
                continue
            working = max(working, both)
        level = max(level, device_cap(state, e, domain, d))
    return level, working


@kernel
def _demands(
    world: WorldArrays, shares: tuple[float, float, float], busy: float, bus: float, row_load: FloatArray
) -> None:
    """Write what a segment asks of the shared resources when it is alone.

    The cost kernel gives shares over the heavier of arithmetic and memory, as the power law wants them; on a device
    the two follow one another, so as shares of the time they add up to no more than the time the device works.
    """
    host, compute, memory = shares
    both = compute + memory
    working = max(compute, memory) / both if both > 0.0 else 0.0
    row_load[st.DEMANDS + 0] = min(1.0, world.resources[1, 0] * host * busy)
    row_load[st.DEMANDS + 1] = min(1.0, world.resources[1, 1] * compute * working * busy)
    row_load[st.DEMANDS + 2] = min(1.0, world.resources[1, 2] * memory * working * busy)
    row_load[st.DEMANDS + 3] = min(1.0, world.resources[1, 3] * bus)


@kernel(allocates=True)
def price(world: WorldArrays, state: StateArrays, e: int, slot: int, load: FloatArray, scratch: Scratch) -> float:
    """Price the plan of a slot at the present network and co-location; returns its worst memory ratio.

    Args:
        world: Constants.
        state: State; step time, reward terms, loads and traffic of the slot are rewritten.
        e: Cluster.
        slot: Task slot with a plan.
        load: Bytes per second on every link from all running tasks, this one included, shape ``(K, K)``.
        scratch: Buffers of the cost kernel.
    """
    k = load.shape[0]
    pool = state.slots[e, slot, st.POOL]
    kind = kind_of(world, state, e, slot)
    task = state.tasks[e, slot]
    own_step = task[st.STEP]
    bandwidth = np.empty((k, k))
    latency = np.empty((k, k))
    for i in range(k):
        for j in range(k):
            others = load[i, j]
            # A paused task sends nothing, so its traffic is not in the load.
            if own_step > 0.0 and task[st.PAUSED] <= state.clock[e, st.NOW]:
                others -= state.traffic[e, slot, i, j] / own_step
            # Taking the own share off again may leave a rounding below zero.
            share = max(0.0, others) / state.links[e, 1, i, j] if i != j else 0.0
            bandwidth[i, j] = state.links[e, 1, i, j] * max(LEAST_BANDWIDTH_SHARE, 1.0 - share)
            latency[i, j] = effective_latency(world.base[1, i, j], share, world.congestion)
    count = state.slots[e, slot, st.SEGMENTS]
    segments = state.plans[e, slot]
    # By co-runners; then what a cap does to an opaque task, whose draw is not the cost kernel's: its time, watts and
    # joules; then both slow-downs together.
    effects = np.ones((5, segments.shape[0]))
    slowdown, stretch, kept_w, left_j, slower = effects[0], effects[1], effects[2], effects[3], effects[4]
    for row in range(count):
        slowdown[row] = segment_slowdown(world, state, e, slot, row)
    job = type_of(world, state, e, slot)
    if world.domains.caps_w.shape[1] > 1:
        segments = segments.copy()
        for row in range(count):
            level, working = segment_cap(world, state, e, slot, row)
            segments[row, CAP] = level
            if working > 0.0 and level > 0:
                segments[row, CAP] = 0
                stretch[row], kept_w[row], left_j[row] = opaque_cap(
                    world.domains, world.power_law, segments[row, DOMAIN], segments[row, PRECISION], level, working
                )
    for row in range(count):
        slower[row] = slowdown[row] * stretch[row]
    factors = world.pool[pool, st.P_FACTORS : st.P_PCIE]
    workload = Workload(kind, world.kinds[kind, st.K_TRAINING] == 1.0, factors[0], factors[1], factors[2])
    plan_out = np.zeros(10)
    segment_out = np.zeros((segments.shape[0], SEGMENT_SIZE))
    traffic = state.traffic[e, slot]
    traffic[:, :] = 0.0
    plan_cost(
        world.domains, world.runtime, world.power_law, world.tables, workload, bandwidth, latency, segments, count,
        0, slower, False, scratch, plan_out, segment_out, traffic,
    )  # fmt: skip
    # A plan may process slightly more or fewer samples than the batch; compare per global batch.
    samples = samples_kernel(segments, count)
    norm = world.kinds[kind, st.K_BATCH] / samples
    traffic *= norm
    step = plan_out[STEP_S] * norm
    memory_ratio = 0.0
    hour = signal_hour(world, state.clock[e, st.LAST_TICK])
    priced_j, carbon_g = 0.0, 0.0
    for row in range(count):
        domain = segments[row, DOMAIN]
        here = world.domains.rows[domain]
        devices = segments[row, DP] * segments[row, TP] * segments[row, PP]
        power_w, busy_s = segment_out[row, POWER_W], segment_out[row, BUSY_S]
        # Beside another a task computes as long as alone, only later, and answers for half the idle power (``meter``).
        step_s = plan_out[STEP_S] / stretch[row]
        joules = segment_energy_j(devices, here.idle_w, power_w, busy_s / stretch[row] / slowdown[row], step_s)
        joules -= 0.5 * shared_devices(world, state, e, slot, domain) * here.idle_w * step_s
        joules *= left_j[row]
        priced_j += joules * world.signals[st.ELECTRICITY, hour, domain]
        carbon_g += joules * here.carbon_g_per_j * world.signals[st.CARBON, hour, domain]
        # M·(f + b) and M times adding f and b may differ in the last bit.
        busy = min(1.0, segment_out[row, BUSY_S] / plan_out[STEP_S])
        # Beside another a task does less work a second: it asks for less power and less of the device's time.
        active = busy / slowdown[row] if job < 0 else busy * world.jobs[job, st.J_BUSY] / slowdown[row]
        dynamic = (segment_out[row, POWER_W] - world.domains.rows[domain].idle_w) * active * kept_w[row]
        row_load = state.loads[e, slot, row]
        row_load[st.BUSY] = active
        row_load[st.MEMORY] = segment_out[row, MEMORY_BYTES] if job < 0 else world.jobs[job, st.J_MEMORY]
        row_load[st.DYNAMIC_W] = dynamic
        row_load[st.INTRA] = segment_out[row, SEGMENT_COMM_S] * norm
        shares = (segment_out[row, HOST_SHARE], segment_out[row, COMPUTE_SHARE], segment_out[row, MEMORY_SHARE])
        for r in range(3):
            row_load[st.HOST + r] = min(1.0, world.resources[2, r] * shares[r] * busy)
        # Seconds of the host's bus that a sample takes, times samples per second.
        bus = world.pool[pool, st.P_PCIE] * samples / plan_out[STEP_S]
        row_load[st.PCIE_READ] = min(1.0, world.resources[2, 3] * bus)
        if job >= 0:
            for r in range(4):
                row_load[st.DEMANDS + r] = world.jobs[job, st.J_DEMANDS + r]
        else:
            _demands(world, shares, busy, bus * slowdown[row], row_load)
        memory_ratio = max(memory_ratio, row_load[st.MEMORY] / world.domains.rows[domain].memory_bytes)
    bill = plan_out[BILL_USD] * norm
    cost = cost_usd_kernel(bill, priced_j * norm, carbon_g * norm, world.energy_usd_per_j, world.carbon_usd_per_g)
    task[st.STEP] = step
    task[st.STEP_BILL] = bill
    task[st.STEP_BYTES], task[st.STEP_WAN_G] = network_grams(world, state, e, traffic)
    task[st.T_EFF] = r_eff_kernel(step, world.kinds[kind, st.K_BASE_STEP])
    task[st.T_UTIL] = plan_out[UTILISATION]
    task[st.T_COST] = r_cost_kernel(cost, world.kinds[kind, st.K_BASE_COST])
    return memory_ratio


@kernel
def network_grams(world: WorldArrays, state: StateArrays, e: int, traffic: FloatArray) -> tuple[float, float]:
    """Bytes that cross from domain to domain, and grams of the network's energy for them, half by each end's grid.

    Args:
        world: Constants.
        state: State.
        e: Cluster.
        traffic: Bytes, shape ``(K, K)``.
    """
    hour = signal_hour(world, state.clock[e, st.LAST_TICK])
    sent, grams = 0.0, 0.0
    for i in range(traffic.shape[0]):
        for j in range(traffic.shape[1]):
            if i != j and traffic[i, j] > 0.0:
                sent += traffic[i, j]
                for end in (i, j):
                    g_per_j = world.domains.rows[end].carbon_g_per_j * world.signals[st.CARBON, hour, end]
                    grams += 0.5 * traffic[i, j] * world.network_j_per_byte * g_per_j
    return sent, grams


@kernel
def link_load(state: StateArrays, e: int, load: FloatArray) -> None:
    """Write bytes per second on every link from all running tasks that are not paused."""
    load[:, :] = 0.0
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.RUNNING or state.slots[e, slot, st.SEGMENTS] < 2:
            continue
        task = state.tasks[e, slot]
        if task[st.PAUSED] <= state.clock[e, st.NOW] and task[st.STEP] > 0.0:
            for i in range(load.shape[0]):
                for j in range(load.shape[1]):
                    load[i, j] += state.traffic[e, slot, i, j] / task[st.STEP]


@kernel(allocates=True)
def links_left(
    bandwidth: FloatArray,
    load: FloatArray,
    base_s: FloatArray,
    congestion: float,
    left: FloatArray,
    latency: FloatArray,
) -> None:
    """Write what others leave of every link, in bytes per second, and its latency under their load; all ``(K, K)``."""
    for i in range(load.shape[0]):
        for j in range(load.shape[1]):
            share = load[i, j] / bandwidth[i, j] if i != j else 0.0
            left[i, j] = bandwidth[i, j] * max(LEAST_BANDWIDTH_SHARE, 1.0 - share)
            latency[i, j] = effective_latency(base_s[i, j], share, congestion)


@kernel
def shares_devices(world: WorldArrays, state: StateArrays, e: int, slot: int) -> bool:
    """Whether a task has a co-runner on any of its devices."""
    for row in range(state.slots[e, slot, st.SEGMENTS]):
        if shared_devices(world, state, e, slot, state.plans[e, slot, row, DOMAIN]) > 0:
            return True
    return False


@kernel
def _any_spans_domains(state: StateArrays, e: int) -> bool:
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.RUNNING and state.slots[e, slot, st.SEGMENTS] > 1:
            return True
    return False


@kernel(allocates=True)
def reprice(world: WorldArrays, state: StateArrays, e: int, network_only: bool, scratch: Scratch) -> None:
    """Price anew the running tasks that a change can have touched, against the link loads as they stood before.

    A task inside one domain feels neither the network nor tasks on other devices; it keeps its price, unless the hour
    has brought another price of electricity or another grid.
    """
    turned = _hour_turned(world, state, e)
    if network_only and not turned and not _any_spans_domains(state, e):
        return
    load = np.zeros((world.base.shape[1], world.base.shape[1]))
    link_load(state, e, load)
    # Idle devices have the hour's price and grid too.
    changed = turned or not network_only
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.RUNNING:
            continue
        touched = turned or state.slots[e, slot, st.SEGMENTS] > 1
        if not network_only:
            shared = shares_devices(world, state, e, slot)
            touched = touched or shared or state.tasks[e, slot, st.SHARED] > 0.0
            state.tasks[e, slot, st.SHARED] = 1.0 if shared else 0.0
        if touched:
            price(world, state, e, slot, load, scratch)
            changed = True
    if changed:
        meter(world, state, e)


@kernel
def _asked_w(state: StateArrays, e: int, slot: int, domain: int, awake: bool) -> float:
    """Watts above idle that a task asks of each of its devices in a domain; none while it is paused."""
    if not awake and state.tasks[e, slot, st.PAUSED] > state.clock[e, st.NOW]:
        return 0.0
    row = _segment_of(state, e, slot, domain)
    return float(state.loads[e, slot, row, st.DYNAMIC_W])


@kernel
def domain_power_w(
    world: WorldArrays, state: StateArrays, e: int, domain: int, awake: bool, book: bool
) -> tuple[float, float]:
    """Read the meters of a domain's devices.

    A device draws its idle power and what its tasks ask for above it, cut to what its cap leaves; tasks that
    share a device answer for half its idle power each. A lost domain draws nothing.

    Args:
        world: Constants.
        state: State.
        e: Cluster.
        domain: Which domain.
        awake: Count paused tasks as if they ran.
        book: Add each task's part to its ``power_w`` and ``carbon_g_per_s``.

    Returns:
        Watts of all devices, and watts of devices that hold no task.
    """
    if is_lost(world.incidents, state.clock[e, st.LAST_TICK], domain):
        return 0.0, 0.0
    here = world.domains.rows[domain]
    occupant = state.occupant[e, domain]
    idle_w = here.idle_w
    carbon_g_per_j = here.carbon_g_per_j
    if book:
        hour = signal_hour(world, state.clock[e, st.LAST_TICK])
        carbon_g_per_j = here.carbon_g_per_j * world.signals[st.CARBON, hour, domain]
    room = here.cap_w - idle_w
    capped = world.domains.caps_w.shape[1] > 1
    total = 0.0
    unused = 0.0
    # Neighbours mostly hold the same task, so what it asks for is looked up once per run of devices.
    known = -1
    known_w = 0.0
    for d in range(here.devices):
        first = occupant[d, 0]
        second = occupant[d, 1]
        if first < 0:
            total += idle_w
            unused += idle_w
            continue
        if first != known:
            known = first
            known_w = _asked_w(state, e, first, domain, awake)
        other_w = _asked_w(state, e, second, domain, awake) if second >= 0 else 0.0
        if capped:
            apart = second < 0 or _working_beside(
                world, state, e, first, _segment_of(state, e, first, domain), second
            ) >= 0.0  # fmt: skip
            room = world.domains.caps_w[domain, device_cap(state, e, domain, d) if apart else 0] - idle_w
        asked = known_w + other_w
        granted = room / asked if asked > room else 1.0
        total += idle_w + asked * granted
        if book:
            own_idle_w = idle_w / 2 if second >= 0 else idle_w
            watts = own_idle_w + known_w * granted
            state.tasks[e, first, st.POWER] += watts
            state.tasks[e, first, st.CARBON_RATE] += watts * carbon_g_per_j
            if second >= 0:
                watts = own_idle_w + other_w * granted
                state.tasks[e, second, st.POWER] += watts
                state.tasks[e, second, st.CARBON_RATE] += watts * carbon_g_per_j
    return total, unused


@kernel
def _busy_beside(world: WorldArrays, state: StateArrays, e: int, slot: int) -> float:
    """Device time a second that a task takes where it shares: no device works more than all of the time."""
    found = 0.0
    for row in range(state.slots[e, slot, st.SEGMENTS]):
        domain = state.plans[e, slot, row, DOMAIN]
        own = state.loads[e, slot, row, st.BUSY]
        for d in range(world.domains.rows[domain].devices):
            first, second = state.occupant[e, domain, d, 0], state.occupant[e, domain, d, 1]
            if first != slot and second != slot:
                continue
            other = second if first == slot else first
            theirs = 0.0
            if other >= 0 and state.tasks[e, other, st.PAUSED] <= state.clock[e, st.NOW]:
                theirs = state.loads[e, other, _segment_of(state, e, other, domain), st.BUSY]
            found += own / max(1.0, own + theirs)
    return found


@kernel
def meter(world: WorldArrays, state: StateArrays, e: int) -> None:
    """Read all meters and write down who answers for what, until the next change."""
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.RUNNING:
            continue
        task = state.tasks[e, slot]
        task[st.POWER] = 0.0
        task[st.CARBON_RATE] = 0.0
        task[st.BUSY_DEVICES] = 0.0
        if task[st.PAUSED] <= state.clock[e, st.NOW]:
            for row in range(state.slots[e, slot, st.SEGMENTS]):
                segment = state.plans[e, slot, row]
                devices = segment[DP] * segment[TP] * segment[PP]
                task[st.BUSY_DEVICES] += devices * state.loads[e, slot, row, st.BUSY]
            if task[st.SHARED] > 0.0:
                task[st.BUSY_DEVICES] = _busy_beside(world, state, e, slot)
    state.clock[e, st.METER_W] = 0.0
    state.clock[e, st.UNUSED_W] = 0.0
    state.clock[e, st.METER_USD] = 0.0
    state.clock[e, st.UNUSED_G] = 0.0
    hour = signal_hour(world, state.clock[e, st.LAST_TICK])
    for domain in range(world.domains.rows.size):
        total, unused = domain_power_w(world, state, e, domain, False, True)
        state.clock[e, st.METER_W] += total
        state.clock[e, st.UNUSED_W] += unused
        state.clock[e, st.METER_USD] += total * world.energy_usd_per_j * world.signals[st.ELECTRICITY, hour, domain]
        g_per_j = world.domains.rows[domain].carbon_g_per_j * world.signals[st.CARBON, hour, domain]
        state.clock[e, st.UNUSED_G] += unused * g_per_j


# ------ The batched world's clockwork: time, events and progress of one cluster, compiled
#
# Every function works on row ``e`` of the state arrays only, so a cluster's path depends on its seed and its
# actions, never on the batch it is in.

SETTLED, PRICE_NETWORK, PRICE_ALL = 0, 1, 2
"""What ``advance`` asks for."""

TIME_TOLERANCE = 1e-9
"""Steps below which a task counts as finished: rounding of accumulated progress."""

DEADLINE_TOLERANCE = 1e-9
"""Relative lateness that is rounding and no lateness."""


@kernel
def set_bandwidth(world: WorldArrays, state: StateArrays, e: int) -> None:
    """Write the bandwidth of every link at the present time, from the trace or the process."""
    k = world.base.shape[1]
    traced = world.trace_times_s.size > 0
    row = trace_row(world.trace_times_s, state.clock[e, st.NOW], world.trace_period_s) if traced else 0
    for i in range(k):
        for j in range(k):
            if i == j:
                state.links[e, 1, i, j] = world.base[0, i, j]
            elif traced:
                state.links[e, 1, i, j] = world.base[0, i, j] * world.trace_multiplier[row, i, j]
            else:
                epsilon = min(max(state.links[e, 0, i, j], -world.ou_bound), world.ou_bound)
                state.links[e, 1, i, j] = world.base[0, i, j] * (1.0 + epsilon)
                if world.fails > 0.0 and state.links[e, st.DOWN, i, j] > 0.0:
                    state.links[e, 1, i, j] *= world.down_left
    cut_links(world.incidents, state.clock[e, st.LAST_TICK], state.links[e, 1])


@kernel
def release(world: WorldArrays, state: StateArrays, e: int, slot: int) -> None:
    """Take a task off its devices."""
    for row in range(state.slots[e, slot, st.SEGMENTS]):
        domain = state.plans[e, slot, row, DOMAIN]
        for d in range(world.domains.rows[domain].devices):
            if state.occupant[e, domain, d, 0] == slot:
                state.occupant[e, domain, d, 0] = state.occupant[e, domain, d, 1]
                state.occupant[e, domain, d, 1] = -1
            elif state.occupant[e, domain, d, 1] == slot:
                state.occupant[e, domain, d, 1] = -1


@kernel
def snapshot_links(state: StateArrays, e: int, slot: int) -> None:
    """Remember the bandwidth of all links, to notice later when one that the task uses has moved."""
    for i in range(state.links.shape[2]):
        for j in range(state.links.shape[3]):
            state.planned[e, slot, i, j] = state.links[e, 1, i, j]


@kernel
def _flag_moved_links(world: WorldArrays, state: StateArrays, e: int) -> None:
    k = world.base.shape[1]
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.RUNNING or state.slots[e, slot, st.SEGMENTS] < 2:
            continue
        for i in range(k):
            for j in range(k):
                if state.traffic[e, slot, i, j] > 0.0:
                    change = state.links[e, 1, i, j] / state.planned[e, slot, i, j] - 1.0
                    if abs(change) > world.replan_threshold:
                        state.tasks[e, slot, st.REVIEW] = 1.0


@kernel
def _integrate(world: WorldArrays, state: StateArrays, e: int, until_s: float) -> None:
    """Let time pass to ``until_s``: progress, joules, dollars and reward."""
    dt = until_s - state.clock[e, st.NOW]
    if dt <= 0.0:
        state.clock[e, st.NOW] = max(state.clock[e, st.NOW], until_s)
        return
    per_interval = dt / world.interval_s
    totals = state.totals[e]
    for slot in range(state.slots.shape[1]):
        status = state.slots[e, slot, st.STATUS]
        task = state.tasks[e, slot]
        if status == st.FREE:
            continue
        if status == st.QUEUED:
            state.outcome[e, st.INTEGRALS + 0] += world.waiting_r_eff * per_interval
            totals[st.WAIT_S] += dt
            continue
        paused = task[st.PAUSED] > state.clock[e, st.NOW]
        joules = task[st.POWER] * dt
        task[st.ENERGY] += joules
        totals[st.TASK_J] += joules
        totals[st.CARBON_TOTAL] += task[st.CARBON_RATE] * dt
        totals[st.BUSY_DEVICE_S] += task[st.BUSY_DEVICES] * dt
        if paused:
            state.outcome[e, st.INTEGRALS + 0] += world.waiting_r_eff * per_interval
            continue
        steps = dt / task[st.STEP]
        task[st.LEFT] -= steps
        task[st.EPOCH] -= steps
        bill = steps * task[st.STEP_BILL]
        task[st.BILL] += bill
        totals[st.BILL_TOTAL] += bill
        totals[st.WAN_BYTES] += steps * task[st.STEP_BYTES]
        totals[st.WAN_G] += steps * task[st.STEP_WAN_G]
        totals[st.STEPS_DONE] += steps
        # By the work, not by the hour: a task that finishes sooner must not earn less.
        earned = steps * world.kinds[kind_of(world, state, e, slot), st.K_BASE_STEP] / world.interval_s
        state.outcome[e, st.INTEGRALS + 0] += task[st.T_EFF] * earned
        state.outcome[e, st.INTEGRALS + 1] += task[st.T_UTIL] * earned
        task[st.EPOCH_UTIL] += task[st.T_UTIL] * earned
        state.outcome[e, st.INTEGRALS + 2] += task[st.T_COST] * earned
    totals[st.METER_J] += state.clock[e, st.METER_W] * dt
    totals[st.IDLE_J] += state.clock[e, st.UNUSED_W] * dt
    totals[st.ELECTRICITY_USD] += state.clock[e, st.METER_USD] * dt
    totals[st.IDLE_G] += state.clock[e, st.UNUSED_G] * dt
    state.clock[e, st.NOW] = until_s


@kernel
def arriving(kind: int, taken: int, many: int, stream: StreamState) -> int:
    """Instance of ``many`` that comes now: the next of a trace, any of the others."""
    return taken % many if kind == 2 else integers(stream, many)


@kernel
def arrive_after(
    kind: int, params: FloatArray, times_s: FloatArray, taken: int, now_s: float, many: int, stream: StreamState
) -> tuple[int, float]:
    """Instance that comes now, after ``taken`` others, and the time of the next arrival."""
    instance = arriving(kind, taken, many, stream)
    return instance, next_arrival(kind, params, times_s, taken + 1, now_s, stream)


@kernel
def _arrive(world: WorldArrays, state: StateArrays, e: int) -> None:
    waiting = 0
    free = -1
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED:
            waiting += 1
        elif state.slots[e, slot, st.STATUS] == st.FREE and free < 0:
            free = slot
    taken = state.event[e, st.TAKEN]
    pool = arriving(world.arrival_kind, taken, world.pool.shape[0], state.streams[e, 1])
    state.event[e, st.TAKEN] += 1
    if waiting >= world.queue_capacity or free < 0:
        state.totals[e, st.DROPPED] += 1
    else:
        state.slots[e, free, st.STATUS] = st.QUEUED
        state.slots[e, free, st.POOL] = pool
        state.slots[e, free, st.SERIAL] = taken
        state.slots[e, free, st.SEGMENTS] = 0
        state.traffic[e, free, :, :] = 0.0
        task = state.tasks[e, free]
        task[:] = 0.0
        task[st.ARRIVAL] = state.clock[e, st.NOW]
        task[st.LEFT] = world.pool[pool, st.P_STEPS]
        task[st.OFFERED] = state.clock[e, st.NOW]
        task[st.T_EFF] = world.waiting_r_eff
    state.clock[e, st.NEXT_ARRIVAL] = next_arrival(
        world.arrival_kind,
        world.arrival_params,
        world.arrival_times_s,
        state.event[e, st.TAKEN],
        state.clock[e, st.NOW],
        state.streams[e, 1],
    )


@kernel
def _is_over(steps: float, step_s: float, now_s: float) -> bool:
    """Whether work is done: nothing is left, or so little that the clock could not move by it."""
    return steps <= TIME_TOLERANCE or now_s + steps * step_s <= now_s


@kernel
def is_late(world: WorldArrays, state: StateArrays, e: int, slot: int) -> bool:
    """Whether the deadline of a task has passed."""
    pool = state.slots[e, slot, st.POOL]
    kind = world.kinds[kind_of(world, state, e, slot)]
    allowed_s = world.pool[pool, st.P_ALLOWED_S]
    if allowed_s <= 0.0:
        allowed_s = kind[st.K_SLACK] * world.pool[pool, st.P_STEPS] * kind[st.K_BASE_STEP]
    taken_s = state.clock[e, st.NOW] - state.tasks[e, slot, st.ARRIVAL]
    return bool(taken_s > allowed_s * (1.0 + DEADLINE_TOLERANCE))


@kernel
def _anything_due(state: StateArrays, e: int) -> bool:
    """Whether some running task has ended its work, its epoch or its pause; a look that costs little."""
    now = state.clock[e, st.NOW]
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.RUNNING:
            continue
        task = state.tasks[e, slot]
        if task[st.PAUSED] > 0.0 and task[st.PAUSED] <= now:
            return True
        if _is_over(min(task[st.LEFT], task[st.EPOCH]), task[st.STEP], now):
            return True
    return False


@kernel
def _finish_tasks(world: WorldArrays, state: StateArrays, e: int) -> tuple[bool, bool]:
    """Complete what is done, wake what has moved, flag what ended an epoch; say if any was freed or woken."""
    freed = False
    resumed = False
    now = state.clock[e, st.NOW]
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.RUNNING:
            continue
        task = state.tasks[e, slot]
        if _is_over(task[st.LEFT], task[st.STEP], now):
            release(world, state, e, slot)
            state.slots[e, slot, st.STATUS] = st.FREE
            state.slots[e, slot, st.SEGMENTS] = 0
            state.totals[e, st.COMPLETED] += 1
            state.totals[e, st.COMPLETION_S] += now - task[st.ARRIVAL]
            if is_late(world, state, e, slot):
                state.totals[e, st.MISSED] += 1
            freed = True
        elif task[st.PAUSED] > 0.0 and task[st.PAUSED] <= now:
            task[st.PAUSED] = 0.0
            resumed = True
        elif task[st.PAUSED] <= now and _is_over(task[st.EPOCH], task[st.STEP], now):
            task[st.EPOCH] = world.kinds[kind_of(world, state, e, slot), st.K_EPOCH]
            task[st.EPOCH_UTIL] = 0.0
            task[st.REVIEW] = 1.0
    return freed, resumed


@kernel
def offer_queue(state: StateArrays, e: int) -> None:
    """Offer every waiting task again: something has changed."""
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED:
            state.tasks[e, slot, st.OFFERED] = min(state.tasks[e, slot, st.OFFERED], state.clock[e, st.NOW])


@kernel
def _evict(world: WorldArrays, state: StateArrays, e: int, slot: int) -> None:
    """Send a running task back to the queue and to its last epoch boundary."""
    task = state.tasks[e, slot]
    kind = world.kinds[kind_of(world, state, e, slot)]
    lost = kind[st.K_EPOCH] - task[st.EPOCH]
    release(world, state, e, slot)
    state.slots[e, slot, st.STATUS] = st.QUEUED
    state.slots[e, slot, st.SEGMENTS] = 0
    state.traffic[e, slot, :, :] = 0.0
    task[st.LEFT] += lost
    task[st.EVICTED] += 1.0
    task[st.OFFERED] = state.clock[e, st.NOW]
    task[st.STEP] = 0.0
    task[st.PAUSED] = 0.0
    task[st.REVIEW] = 0.0
    state.totals[e, st.EVICTIONS] += 1
    state.totals[e, st.LOST_STEPS] += lost
    # Time and traffic of lost steps stay spent; what the baseline would have needed for them is not saved, and devices
    # that were busy with them were busy for nothing.
    state.outcome[e, st.INTEGRALS + 0] -= lost * kind[st.K_BASE_STEP] / world.interval_s
    state.outcome[e, st.INTEGRALS + 1] -= task[st.EPOCH_UTIL]
    task[st.EPOCH_UTIL] = 0.0


@kernel
def _lose_domains(world: WorldArrays, state: StateArrays, e: int, before_s: float) -> bool:
    """Clear domains that are lost since the tick at ``before_s``; say if any was lost or came back."""
    changed = False
    tick_s = state.clock[e, st.LAST_TICK]
    for domain in range(world.domains.rows.size if world.incidents.shape[0] > 0 else 0):
        lost = is_lost(world.incidents, tick_s, domain)
        if lost == is_lost(world.incidents, before_s, domain):
            continue
        changed = True
        for d in range(world.domains.rows[domain].devices if lost else 0):
            while state.occupant[e, domain, d, 0] >= 0:
                _evict(world, state, e, state.occupant[e, domain, d, 0])
    return changed


@kernel
def priority_of(world: WorldArrays, state: StateArrays, e: int, slot: int) -> float:
    """How urgent a task is: as its kind, and what it was given beyond that."""
    raised: float = world.pool[state.slots[e, slot, st.POOL], st.P_RAISED]
    usual: float = world.kinds[kind_of(world, state, e, slot), st.K_PRIORITY]
    return raised + usual


@kernel
def _next_decision(world: WorldArrays, state: StateArrays, e: int) -> bool:
    """Find what to decide at the present moment: first re-planning, then the most urgent waiting task."""
    running = 0
    best = -1
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.RUNNING:
            running += 1
            if state.tasks[e, slot, st.REVIEW] > 0.0 and state.tasks[e, slot, st.PAUSED] <= state.clock[e, st.NOW]:
                state.event[e, st.EVENT] = st.REPLAN
                state.event[e, st.SLOT] = slot
                return True
    if running >= world.max_running:
        return False
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.QUEUED or state.tasks[e, slot, st.OFFERED] > state.clock[e, st.NOW]:
            continue
        if best < 0:
            best = slot
            continue
        mine, other = priority_of(world, state, e, slot), priority_of(world, state, e, best)
        if mine > other or (mine == other and state.slots[e, slot, st.SERIAL] < state.slots[e, best, st.SERIAL]):
            best = slot
    if best < 0:
        return False
    state.event[e, st.EVENT] = st.PLACE
    state.event[e, st.SLOT] = best
    return True


@kernel
def _next_time(world: WorldArrays, state: StateArrays, e: int) -> float:
    soonest: float = min(world.horizon_s, state.clock[e, st.NEXT_TICK], state.clock[e, st.NEXT_ARRIVAL])
    now = state.clock[e, st.NOW]
    for slot in range(state.slots.shape[1]):
        task = state.tasks[e, slot]
        if state.slots[e, slot, st.STATUS] == st.RUNNING:
            if task[st.PAUSED] > now:
                soonest = min(soonest, task[st.PAUSED])
            else:
                soonest = min(soonest, now + min(task[st.LEFT], task[st.EPOCH]) * task[st.STEP])
        elif state.slots[e, slot, st.STATUS] == st.QUEUED and task[st.OFFERED] > now:
            soonest = min(soonest, task[st.OFFERED])
    return soonest


@kernel
def advance(world: WorldArrays, state: StateArrays, e: int) -> int:
    """Run cluster ``e`` until something must be decided, the episode ends, or prices have changed.

    Returns:
        ``SETTLED`` at a decision or the end, else what to price anew before calling again. (Pricing stays
        outside so that the compiler meets the large cost kernel in few places.)
    """
    state.event[e, st.EVENT] = st.NO_EVENT
    while True:
        if state.clock[e, st.NOW] >= world.horizon_s:
            state.event[e, st.DONE] = 1
            return SETTLED
        if _next_decision(world, state, e):
            return SETTLED
        _integrate(world, state, e, _next_time(world, state, e))
        freed, moved = False, False
        if _anything_due(state, e):
            freed, moved = _finish_tasks(world, state, e)
        if moved:
            # A task at work again draws more even where no price changes.
            meter(world, state, e)
        if freed:
            offer_queue(state, e)
        if state.clock[e, st.NEXT_TICK] <= state.clock[e, st.NOW]:
            if world.trace_times_s.size == 0:
                # A recorded network has no process of its own.
                ou_advance(state.links[e, 0], world.ou_decay, world.ou_noise, world.ou_correlation, state.streams[e, 0])
                if world.fails > 0.0:
                    fail_links(
                        state.links[e, st.DOWN], world.fails, world.stays_down, state.streams[e, st.LINK_FAILURES]
                    )
            before_s = state.clock[e, st.LAST_TICK]
            state.clock[e, st.LAST_TICK] = state.clock[e, st.NEXT_TICK]
            state.clock[e, st.NEXT_TICK] += world.tick_s
            set_bandwidth(world, state, e)
            if _lose_domains(world, state, e, before_s):
                offer_queue(state, e)
                freed = True
            _flag_moved_links(world, state, e)
            moved = True
        if state.clock[e, st.NEXT_ARRIVAL] <= state.clock[e, st.NOW]:
            _arrive(world, state, e)
        if freed:
            return PRICE_ALL
        if moved:
            return PRICE_NETWORK


@kernel
def begin(world: WorldArrays, state: StateArrays, e: int) -> None:
    """Set cluster ``e`` to the start of an episode; its random streams go on from where they are."""
    state.clock[e, st.NOW] = 0.0
    state.clock[e, st.LAST_TICK] = 0.0
    state.clock[e, st.NEXT_TICK] = world.tick_s
    state.event[e, st.TAKEN] = 0
    state.slots[e, :, st.STATUS] = st.FREE
    state.slots[e, :, st.SEGMENTS] = 0
    state.tasks[e, :, :] = 0.0
    state.traffic[e, :, :, :] = 0.0
    state.occupant[e, :, :, :] = -1
    state.outcome[e, st.INTEGRALS :] = 0.0
    state.totals[e, :] = 0.0
    state.outcome[e, : st.INTEGRALS] = 0.0
    state.r_low[e, :] = 0.0
    state.event[e, st.DONE] = 0
    meter(world, state, e)
    ou_stationary(state.links[e, 0], world.ou_spread, world.ou_correlation, state.streams[e, 0])
    if world.fails > 0.0:
        fail_links(state.links[e, st.DOWN], world.down_share, world.down_share, state.streams[e, st.LINK_FAILURES])
    set_bandwidth(world, state, e)
    state.clock[e, st.NEXT_ARRIVAL] = next_arrival(
        world.arrival_kind, world.arrival_params, world.arrival_times_s, 0, 0.0, state.streams[e, 1]
    )


# ------ From an action to a placement: decode, check, occupy devices, charge for moving state
#
# An action is P rows of five choices: domain (K ends the list), one past the last layer, layout, precision,
# batch level. A row that reaches the last layer closes a replica; the next row opens another. So a cut
# pipeline, replicas and mixtures of both are one encoding, and an empty list defers a task or keeps a plan.
# A sharing layout may name its neighbour: ``layout + n_layouts · (slot + 1)`` takes only devices that the task in that
# slot has for itself. A precision may carry a power cap: ``precision + n_precisions · level``.

A_DOMAIN, A_STOP, A_LAYOUT, A_PRECISION, A_BATCH = range(5)
"""Columns of an action row."""

L_DP, L_TP, L_PP, L_SHARE = range(4)
"""Columns of the layout table; ``share`` lets a segment use devices that already hold a task."""

FORMATS = len(PRECISIONS)


@kernel
def decode(world: WorldArrays, kind: int, action: IntArray, rows: IntArray) -> tuple[int, int]:
    """Turn an action into segment rows.

    Returns:
        ``(count, code)``: segments written into ``rows`` and 0, or 0 and a negative code.
    """
    n_domains = world.domains.rows.size
    n_layers = world.tables.n_layers[kind]
    training = world.kinds[kind, st.K_TRAINING] == 1.0
    at = 0
    replica = 0
    count = 0
    for p in range(action.shape[0]):
        domain = action[p, A_DOMAIN]
        if domain >= n_domains:
            break
        stop, layout = action[p, A_STOP], world.layouts[action[p, A_LAYOUT] % world.layouts.shape[0]]
        precision, cap = action[p, A_PRECISION] % FORMATS, action[p, A_PRECISION] // FORMATS
        micro = int(world.kinds[kind, st.K_MICRO + action[p, A_BATCH]])
        code = order_fault(rows, count, domain, at, stop, n_layers, micro, training and precision == INT8)
        if code == VALID:
            # The table of layouts holds those that a node allows.
            code = segment_fault(
                stop - at, layout[L_DP], layout[L_TP], layout[L_PP], micro, world.domains.rows[domain].devices,
                layout[L_TP], world.domains.peak_flops[domain, precision] > 0.0, False,
            )  # fmt: skip
        if code != VALID:
            return 0, code
        row = rows[count]
        row[DOMAIN] = domain
        row[FIRST] = at
        row[STOP] = stop
        row[DP] = layout[L_DP]
        row[TP] = layout[L_TP]
        row[PP] = layout[L_PP]
        row[PRECISION] = precision
        row[REPLICA] = replica
        row[MICROBATCH] = micro
        row[CAP] = cap
        count += 1
        at = stop
        if stop == n_layers:
            at = 0
            replica += 1
    code = end_fault(at)
    if code != VALID:
        return 0, code
    share_batch(world.tables, world.domains, kind, world.kinds[kind, st.K_BATCH], rows, count, replica)
    return count, 0


@kernel
def free_devices(world: WorldArrays, state: StateArrays, e: int, domain: int, share: bool, own: int) -> int:
    """Count the devices of a domain that a task may use; places held by slot ``own`` (−1: none) count as free."""
    if is_lost(world.incidents, state.clock[e, st.LAST_TICK], domain):
        return 0
    limit = world.share_limit if share else 1
    free = 0
    for d in range(world.domains.rows[domain].devices):
        used = 0
        for place in range(2):
            holder = state.occupant[e, domain, d, place]
            if holder >= 0 and holder != own:
                used += 1
        if used < limit:
            free += 1
    return free


@kernel
def _occupy(
    world: WorldArrays,
    state: StateArrays,
    e: int,
    slot: int,
    domain: int,
    wanted: int,
    share: bool,
    device: int,
    beside: int,
) -> bool:
    """Put a task on devices: the named one, a neighbour's, shared ones first if it may share, else empty in order."""
    if is_lost(world.incidents, state.clock[e, st.LAST_TICK], domain):
        return False
    limit = world.share_limit if share else 1
    left = wanted
    if beside >= 0:
        for d in range(world.domains.rows[domain].devices):
            alone = state.occupant[e, domain, d, 0] == beside and state.occupant[e, domain, d, 1] < 0
            if left > 0 and limit > 1 and alone and beside != slot:
                state.occupant[e, domain, d, 1] = slot
                left -= 1
        return left == 0
    for sharing in range(limit - 1, -1, -1):
        for d in range(world.domains.rows[domain].devices):
            if left == 0 or (device >= 0 and d != device):
                continue
            used = int(state.occupant[e, domain, d, 0] >= 0) + int(state.occupant[e, domain, d, 1] >= 0)
            if used == sharing and state.occupant[e, domain, d, 0] != slot:
                state.occupant[e, domain, d, used] = slot
                left -= 1
    return left == 0


@kernel
def _memory_fits(world: WorldArrays, state: StateArrays, e: int, slot: int) -> bool:
    """Whether every device that holds the task has room for all it holds."""
    for row in range(state.slots[e, slot, st.SEGMENTS]):
        domain = state.plans[e, slot, row, DOMAIN]
        for d in range(world.domains.rows[domain].devices):
            first = state.occupant[e, domain, d, 0]
            second = state.occupant[e, domain, d, 1]
            if first != slot and second != slot:
                continue
            used = 0.0
            for place in range(2):
                other = state.occupant[e, domain, d, place]
                for p in range(state.slots[e, other, st.SEGMENTS] if other >= 0 else 0):
                    if state.plans[e, other, p, DOMAIN] == domain:
                        used += state.loads[e, other, p, st.MEMORY]
            if first >= 0 and second >= 0:
                measured = measured_speed(world, state, e, first, second)
                if measured == 0.0:
                    return False
                if measured > 0.0:
                    # The two were run on one device: they fit, whatever arithmetic says of their memory.
                    continue
            if used > world.domains.rows[domain].memory_bytes:
                return False
    return True


@kernel(allocates=True)
def migration(
    world: WorldArrays, bandwidth: FloatArray, kind: int, old: IntArray, old_count: int, new: IntArray, new_count: int,
    moved: FloatArray,
) -> tuple[float, float]:  # fmt: skip
    """Seconds and dollars of sending the state of layers to domains that do not hold them yet; bytes into ``moved``.

    Every newly needed copy comes from the first domain that has it; transfers over different links run side
    by side.
    """
    k = bandwidth.shape[0]
    sizes = world.tables.sizes[kind]
    training = world.kinds[kind, st.K_TRAINING] == 1.0
    for layer in range(world.tables.n_layers[kind]):
        params = (
            sizes[PARAMS_SHARDED, layer + 1]
            - sizes[PARAMS_SHARDED, layer]
            + sizes[PARAMS_WHOLE, layer + 1]
            - sizes[PARAMS_WHOLE, layer]
        )
        source = -1
        for p in range(old_count):
            if old[p, FIRST] <= layer < old[p, STOP]:
                source = old[p, DOMAIN]
                break
        for p in range(new_count):
            if not new[p, FIRST] <= layer < new[p, STOP]:
                continue
            target = new[p, DOMAIN]
            held = False
            for q in range(old_count):
                if old[q, DOMAIN] == target and old[q, FIRST] <= layer < old[q, STOP]:
                    held = True
            if not held:
                element = element_bytes(new[p, PRECISION])
                moved[source, target] += params * state_bytes_per_parameter(element, training, 0, 1.0)
    seconds = 0.0
    dollars = 0.0
    for i in range(k):
        for j in range(k):
            if i != j and moved[i, j] > 0.0:
                seconds = max(seconds, moved[i, j] / bandwidth[i, j])
                dollars += moved[i, j] * world.domains.price_usd_per_byte[i, j]
    return seconds, dollars


@kernel
def _same_plan(state: StateArrays, e: int, slot: int, rows: IntArray, count: int) -> bool:
    """Whether a running task has this very plan; another cap alone makes no other plan: it keeps the one it has."""
    if state.slots[e, slot, st.SEGMENTS] != count:
        return False
    for p in range(count):
        for c in range(rows.shape[1]):
            if c != CAP and state.plans[e, slot, p, c] != rows[p, c]:
                return False
    return True


@kernel
def _restore(target: FloatArray, kept: FloatArray) -> None:
    """Write back what was kept; both have the same shape.

    Element by element: assigning an array to an array compiles numba's copy for overlaps, and its words about shapes
    that differ, into every kernel that does it.
    """
    for i in range(kept.size):
        target.flat[i] = kept.flat[i]


@kernel
def _occupy_all(
    world: WorldArrays, state: StateArrays, e: int, slot: int, action: IntArray, rows: IntArray, count: int, device: int
) -> bool:
    """Write the plan into the slot and put it on devices; False if a domain has too few."""
    state.slots[e, slot, st.SEGMENTS] = 0
    state.loads[e, slot, :, :] = 0.0
    state.traffic[e, slot, :, :] = 0.0
    state.tasks[e, slot, st.STEP] = 0.0
    for p in range(count):
        wanted = rows[p, DP] * rows[p, TP] * rows[p, PP]
        share = world.layouts[action[p, A_LAYOUT] % world.layouts.shape[0], L_SHARE] == 1
        beside = action[p, A_LAYOUT] // world.layouts.shape[0] - 1
        _restore(state.plans[e, slot, p], rows[p])
        state.slots[e, slot, st.SEGMENTS] = p + 1
        if not _occupy(world, state, e, slot, rows[p, DOMAIN], wanted, share, device, beside):
            return False
    return True


@kernel
def _within_limits(world: WorldArrays, state: StateArrays, e: int, slot: int) -> int:
    """Return 0, or the code of the limit that the placed and priced plan breaks."""
    if not _memory_fits(world, state, e, slot):
        return MEMORY
    for p in range(state.slots[e, slot, st.SEGMENTS]):
        domain = state.plans[e, slot, p, DOMAIN]
        if domain_power_w(world, state, e, domain, True, False)[0] > world.budget_w[domain]:
            return POWER
    return VALID


@kernel(allocates=True)
def enact(world: WorldArrays, state: StateArrays, e: int, action: IntArray, device: int, scratch: Scratch) -> int:
    """Carry out an action on the task of the pending event, and on no other; returns its code.

    The decision's own reward terms are written; other tasks are not priced anew. A refused action leaves the
    task exactly as it was.
    """
    placing = state.event[e, st.EVENT] == st.PLACE
    slot = state.event[e, st.SLOT]
    task = state.tasks[e, slot]
    kind = kind_of(world, state, e, slot)
    rows = np.zeros((action.shape[0], state.plans.shape[3]), dtype=np.int64)
    count, code = decode(world, kind, action, rows)
    seconds, dollars = 0.0, 0.0
    moved = np.zeros((world.base.shape[1], world.base.shape[1]))
    keeps = not placing and _same_plan(state, e, slot, rows, count)
    if keeps and world.layouts[action[0, A_LAYOUT] % world.layouts.shape[0], L_SHARE] == 0:
        # The same layout on devices of its own is another plan for a task that shares.
        keeps = not shares_devices(world, state, e, slot)
    if code == 0 and count > 0 and not keeps:
        old_count = state.slots[e, slot, st.SEGMENTS]
        old_plan = state.plans[e, slot].copy()
        old_loads = state.loads[e, slot].copy()
        old_traffic = state.traffic[e, slot].copy()
        old_task = task.copy()
        occupant = state.occupant[e].copy()
        release(world, state, e, slot)
        code = 0 if _occupy_all(world, state, e, slot, action, rows, count, device) else DEVICES
        if code == 0:
            load = np.zeros((world.base.shape[1], world.base.shape[1]))
            link_load(state, e, load)
            # The first pricing gives the demands that interference needs; with a co-runner, the second includes it.
            rounds = 2 if shares_devices(world, state, e, slot) else 1
            for _ in range(rounds):
                # No step time yet: its traffic is not in the load and must not be taken out of it.
                task[st.STEP] = 0.0
                price(world, state, e, slot, load, scratch)
            code = _within_limits(world, state, e, slot)
        if code < 0:
            state.slots[e, slot, st.SEGMENTS] = old_count
            _restore(state.plans[e, slot], old_plan)
            _restore(state.loads[e, slot], old_loads)
            _restore(state.traffic[e, slot], old_traffic)
            _restore(state.occupant[e], occupant)
            _restore(task, old_task)
        elif placing:
            code = 1
            state.slots[e, slot, st.STATUS] = st.RUNNING
            task[st.EPOCH] = world.kinds[kind, st.K_EPOCH]
            if task[st.EVICTED] > 0.0:
                seconds = world.restart_s
                task[st.PAUSED] = state.clock[e, st.NOW] + seconds
            else:
                task[st.STARTED] = state.clock[e, st.NOW]
        else:
            code = 2
            seconds, dollars = migration(world, state.links[e, 1], kind, old_plan, old_count, rows, count, moved)
            seconds += world.restart_s
            task[st.PAUSED] = state.clock[e, st.NOW] + seconds
            task[st.BILL] += dollars
    _record(world, state, e, slot, kind, code, seconds, dollars)
    if code == 2:
        decision = state.outcome[e]
        decision[st.D_MOVE_BYTES], decision[st.D_MOVE_WAN_G] = network_grams(world, state, e, moved)
    return int(code)


@kernel
def conclude(world: WorldArrays, state: StateArrays, e: int, code: int) -> None:
    """Book an action that was carried out: totals, the price of moving, when to ask again."""
    placing = state.event[e, st.EVENT] == st.PLACE
    slot = state.event[e, st.SLOT]
    task = state.tasks[e, slot]
    totals = state.totals[e]
    totals[st.DECISIONS] += 1
    task[st.REVIEW] = 0.0
    if code == 1:
        totals[st.PLACED] += 1
        totals[st.RESTART_S] += state.outcome[e, st.D_MOVE_S]
    elif code == 2:
        dollars = state.outcome[e, st.D_MOVE_USD]
        totals[st.MIGRATIONS] += 1
        totals[st.MIGRATION_S] += state.outcome[e, st.D_MOVE_S]
        totals[st.BILL_TOTAL] += dollars
        totals[st.WAN_BYTES] += state.outcome[e, st.D_MOVE_BYTES]
        totals[st.WAN_G] += state.outcome[e, st.D_MOVE_WAN_G]
        kind = kind_of(world, state, e, slot)
        # One step of the baseline costs one unit of R_cost and takes base_step_s.
        steps = r_cost_kernel(dollars, world.kinds[kind, st.K_BASE_COST])
        state.outcome[e, st.INTEGRALS + 2] += steps * world.kinds[kind, st.K_BASE_STEP] / world.interval_s
        offer_queue(state, e)
    elif code < 0:
        totals[st.REJECTED] += 1
    if state.slots[e, slot, st.STATUS] == st.RUNNING:
        snapshot_links(state, e, slot)
    elif placing:
        task[st.OFFERED] = state.clock[e, st.NOW] + world.retry_s


@kernel(allocates=True)
def probe(
    world: WorldArrays,
    state: StateArrays,
    e: int,
    actions: IntArray,
    devices: IntArray,
    scratch: Scratch,
    decisions: FloatArray,
) -> None:
    """Say what each of many actions would come to at the pending event, and change nothing.

    Args:
        world: Constants.
        state: State; left as it was.
        e: Cluster.
        actions: Shape ``(n, P, 5)``.
        devices: Forced device per action or −1, shape ``(n,)``.
        scratch: Buffers.
        decisions: Output, shape ``(n, 10)``, columns ``DECISION_COLUMNS``.
    """
    slot = state.event[e, st.SLOT]
    task = state.tasks[e, slot].copy()
    status = state.slots[e, slot, st.STATUS]
    count = state.slots[e, slot, st.SEGMENTS]
    plan = state.plans[e, slot].copy()
    loads = state.loads[e, slot].copy()
    traffic = state.traffic[e, slot].copy()
    occupant = state.occupant[e].copy()
    decision = state.outcome[e, : st.INTEGRALS].copy()
    r_low = state.r_low[e].copy()
    for n in range(actions.shape[0]):
        enact(world, state, e, actions[n], devices[n], scratch)
        _restore(decisions[n], state.outcome[e, : st.INTEGRALS])
        _restore(state.tasks[e, slot], task)
        state.slots[e, slot, st.STATUS] = status
        state.slots[e, slot, st.SEGMENTS] = count
        _restore(state.plans[e, slot], plan)
        _restore(state.loads[e, slot], loads)
        _restore(state.traffic[e, slot], traffic)
        _restore(state.occupant[e], occupant)
    _restore(state.outcome[e, : st.INTEGRALS], decision)
    _restore(state.r_low[e], r_low)


@kernel
def fragmentation(world: WorldArrays, state: StateArrays, e: int, domain: int) -> float:
    """Share of a domain's free devices that sit in partly used nodes."""
    node = world.domains.rows[domain].node_devices
    devices = world.domains.rows[domain].devices
    free = 0
    broken = 0
    start = 0
    while start < devices:
        end = min(devices, start + node)
        here = 0
        for d in range(start, end):
            if state.occupant[e, domain, d, 0] < 0:
                here += 1
        free += here
        if 0 < here < end - start:
            broken += here
        start = end
    return broken / free if free > 0 else 0.0


@kernel
def _record(
    world: WorldArrays, state: StateArrays, e: int, slot: int, kind: int, code: int, seconds: float, dollars: float
) -> None:
    """Write the decision's own reward terms; moving is spread over the steps until the next review."""
    decision = state.outcome[e, : st.INTEGRALS]
    decision[:] = 0.0
    state.r_low[e, :] = 0.0
    task = state.tasks[e, slot]
    decision[st.D_CODE] = code
    decision[st.D_MOVE_S] = seconds
    decision[st.D_MOVE_USD] = dollars
    if state.slots[e, slot, st.STATUS] != st.RUNNING:
        decision[st.D_EFF] = world.waiting_r_eff
        return
    steps = max(1.0, min(world.kinds[kind, st.K_EPOCH], task[st.LEFT]))
    step = task[st.STEP] + seconds / steps
    bill = task[st.STEP_BILL] + dollars / steps
    decision[st.D_EFF] = r_eff_kernel(step, world.kinds[kind, st.K_BASE_STEP])
    decision[st.D_UTIL] = task[st.T_UTIL]
    decision[st.D_COST] = task[st.T_COST] + r_cost_kernel(dollars / steps, world.kinds[kind, st.K_BASE_COST])
    decision[st.D_STEP] = step
    decision[st.D_BILL] = bill
    for row in range(state.slots[e, slot, st.SEGMENTS]):
        domain = state.plans[e, slot, row, DOMAIN]
        broken = fragmentation(world, state, e, domain)
        inside = state.loads[e, slot, row, st.INTRA]
        state.r_low[e, domain] = -world.lambda_fragmentation * broken - world.lambda_intra_comm * inside


# ------ What a scheduler may see of a cluster, as numbers with names

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


# ------ Who earned what: per task what the clockwork adds up per cluster, so that two copies can be compared task by
# task
#
# Rates of a task change only where ``advance`` returns (a price, an end, a pause), so what a task earned between two
# returns follows from its row before and its row after. Summed over tasks a ledger is the cluster's own account.

LEDGER_COLUMNS = ("start_s", "finish_s", "r_eff", "r_util", "r_cost", "energy_j", "bill_usd", "carbon_g")
G_START, G_FINISH, G_EFF, G_UTIL, G_COST, G_ENERGY, G_BILL, G_CARBON = range(len(LEDGER_COLUMNS))
"""Columns of a ledger, shape ``(E, T, 8)``; row t is the task with serial number t. Times are NaN until they are."""


@kernel
def open_page(state: StateArrays, e: int, slots: IntArray, tasks: FloatArray) -> float:
    """Keep the table of tasks as it is before time passes; returns the time."""
    for slot in range(slots.shape[0]):
        for c in range(slots.shape[1]):
            slots[slot, c] = state.slots[e, slot, c]
        if slots[slot, st.STATUS] != st.FREE:
            for c in range(tasks.shape[1]):
                tasks[slot, c] = state.tasks[e, slot, c]
    now: float = state.clock[e, st.NOW]
    return now


@kernel
def close_page(
    world: WorldArrays, state: StateArrays, e: int, since_s: float, slots: IntArray, tasks: FloatArray,
    paid_by_work: bool, ledger: FloatArray,
) -> None:  # fmt: skip
    """Book what every task earned and used since :func:`open_page`.

    Args:
        world: Constants.
        state: State after time has passed.
        e: Cluster.
        since_s: When the page was opened.
        slots: What was kept then.
        tasks: What was kept then.
        paid_by_work: Whether reward is paid as work gets done; else decisions are booked as they are taken.
        ledger: Of this cluster, shape ``(T, 8)``.
    """
    now = state.clock[e, st.NOW]
    dt = now - since_s
    for slot in range(slots.shape[0]):
        if slots[slot, st.STATUS] == st.FREE:
            continue
        page = ledger[slots[slot, st.SERIAL]]
        task = tasks[slot]
        if slots[slot, st.STATUS] == st.QUEUED:
            if paid_by_work:
                page[G_EFF] += world.waiting_r_eff * dt / world.interval_s
            continue
        page[G_ENERGY] += task[st.POWER] * dt
        page[G_CARBON] += task[st.CARBON_RATE] * dt
        same = state.slots[e, slot, st.SERIAL] == slots[slot, st.SERIAL]
        ended = not same or state.slots[e, slot, st.STATUS] == st.FREE
        steps = 0.0
        base = world.kinds[int(world.pool[slots[slot, st.POOL], st.P_KIND]), st.K_BASE_STEP] / world.interval_s
        if task[st.PAUSED] > since_s:
            if paid_by_work:
                page[G_EFF] += world.waiting_r_eff * dt / world.interval_s
        elif dt > 0.0:
            steps = dt / task[st.STEP]
            page[G_BILL] += steps * task[st.STEP_BILL]
            if paid_by_work:
                page[G_EFF] += task[st.T_EFF] * steps * base
                page[G_UTIL] += task[st.T_UTIL] * steps * base
                page[G_COST] += task[st.T_COST] * steps * base
        if ended:
            page[G_FINISH] = now
        elif state.slots[e, slot, st.STATUS] == st.QUEUED and paid_by_work:
            # Sent back to its last epoch boundary: what was done since is not kept, and not paid for.
            lost = state.tasks[e, slot, st.LEFT] - (task[st.LEFT] - steps)
            page[G_EFF] -= lost * base
            page[G_UTIL] -= task[st.EPOCH_UTIL] + task[st.T_UTIL] * steps * base


@kernel
def book_decision(
    world: WorldArrays, state: StateArrays, e: int, code: int, paid_by_work: bool, page: FloatArray
) -> None:
    """Book a decision that was carried out on the pending task: its start, the price of a move, its own reward."""
    slot = state.event[e, st.SLOT]
    if not paid_by_work:
        page[G_EFF] += state.outcome[e, st.D_EFF]
        page[G_UTIL] += state.outcome[e, st.D_UTIL]
        page[G_COST] += state.outcome[e, st.D_COST]
    if code == 1 and np.isnan(page[G_START]):
        page[G_START] = state.clock[e, st.NOW]
    if code == 2:
        dollars = state.outcome[e, st.D_MOVE_USD]
        page[G_BILL] += dollars
        if paid_by_work:
            kind = kind_of(world, state, e, slot)
            steps = r_cost_kernel(dollars, world.kinds[kind, st.K_BASE_COST])
            page[G_COST] += steps * world.kinds[kind, st.K_BASE_STEP] / world.interval_s


# ------ The batched world: hundreds of clusters advanced from decision to decision in one call

ACTION_COLUMNS: tuple[str, ...] = ("domain", "stop", "layout", "precision", "batch")
"""Columns of an action row."""


@dataclass(frozen=True)
class Observations:
    """What the schedulers of a batch of clusters see; every array has the cluster axis first.

    Attributes:
        domains: Shape ``(E, K, 20)``.
        links: Shape ``(E, 3, K, K)``.
        task: Shape ``(E, 5)``.
        event: Shape ``(E, 6)``.
        plan: Shape ``(E, P, 6)``, −1 where unused.
        counters: The task's measured counters, shape ``(E, 12)``.
    """

    domains: Float32Array
    links: Float32Array
    task: Float32Array
    event: Float32Array
    plan: IntArray
    counters: Float32Array


@kernel
def _observe_all(
    world: WorldArrays,
    state: StateArrays,
    domains: Float32Array,
    links: Float32Array,
    task: Float32Array,
    event: Float32Array,
    plan: IntArray,
) -> None:
    for e in range(state.clock.shape[0]):
        observe(world, state, e, domains[e], links[e], task[e], event[e], plan[e])


@kernel
def _run_all(
    world: WorldArrays,
    state: StateArrays,
    deciding: bool,
    actions: IntArray,
    devices: IntArray,
    active: BoolArray,
    scratch: Scratch,
) -> None:
    """Decide (or begin an episode) in every active cluster and run it to its next decision."""
    for e in range(state.clock.shape[0]):
        if not active[e]:
            continue
        if deciding and state.event[e, st.EVENT] == st.NO_EVENT:
            # The episode is over: there is nothing to decide and nothing to earn.
            state.outcome[e, :] = 0.0
            state.r_low[e, :] = 0.0
            continue
        if deciding:
            state.outcome[e, st.INTEGRALS :] = 0.0
            code = enact(world, state, e, actions[e], devices[e], scratch)
            conclude(world, state, e, code)
            if code > 0:
                reprice(world, state, e, False, scratch)
        else:
            begin(world, state, e)
        while True:
            wanted = advance(world, state, e)
            if wanted == SETTLED:
                break
            reprice(world, state, e, wanted == PRICE_NETWORK, scratch)


@kernel
def _free_all(world: WorldArrays, state: StateArrays, share: bool, own: bool, out: IntArray) -> None:
    for e in range(out.shape[0]):
        slot = state.event[e, st.SLOT] if own and state.event[e, st.EVENT] == st.REPLAN else -1
        for k in range(out.shape[1]):
            out[e, k] = free_devices(world, state, e, k, share, slot)


class Engine:
    """A batch of clusters of one world.

    Args:
        world: The scheduling problem.
        clusters: How many to run side by side.
    """

    def __init__(self, world: World, clusters: int = 1) -> None:
        self.world = world
        self.clusters = clusters
        kinds = world.kinds
        self.cost = CostModel(world.cluster, [kind.model for kind in kinds], [kind.training for kind in kinds])
        self.pool: TaskPool = build_pool(world)
        self.layouts = layout_table(world.cluster, world.share_limit > 1)
        self.arrays = _world_arrays(world, self.cost, self.pool, self.layouts)
        largest = max(domain.devices for domain in world.cluster.domains)
        self.state: StateArrays = make_state(
            clusters, len(world.cluster), largest, world.max_running + world.queue_capacity, world.max_segments,
            world.cluster.wan.failures is not None,
        )  # fmt: skip
        most = max(kind.batch_size // kind.microbatches[0] for kind in kinds)
        self._scratch = make_scratch(world.max_segments * int(self.layouts[:, 2].max()), most + 1)
        most_layers = max(len(kind.model) for kind in kinds)
        self.choices = np.array(
            [
                len(world.cluster) + 1,
                most_layers + 1,
                len(self.layouts),
                len(PRECISIONS) * (len(world.cluster.cap_levels) + 1),
                BATCH_LEVELS,
            ]
        )
        reward = world.reward
        self.weights = np.tile([reward.w_eff, reward.w_util, reward.w_cost], (clusters, 1))
        # What may be known of the future: how tasks come (kind, parameters, recorded times; None if they do not come by
        # themselves) and when the episode ends.
        self.arrivals: tuple[int, FloatArray, FloatArray] | None = (
            self.arrays.arrival_kind, self.arrays.arrival_params, self.arrays.arrival_times_s,
        )  # fmt: skip
        self.ends_s = world.horizon_s
        self._no_devices = np.full(clusters, -1, dtype=np.int64)
        self._no_actions = np.zeros((clusters, world.max_segments, len(ACTION_COLUMNS)), dtype=np.int64)

    def seed(self, seeds: Sequence[int | None]) -> None:
        """Give clusters fresh random streams; None leaves a cluster's stream as it is."""
        if len(seeds) != self.clusters:
            rule = f"there are {self.clusters} clusters"
            raise SettingsError(problem("seeds", len(seeds), rule, "Give one seed or None for each"))
        for e, seed in enumerate(seeds):
            if seed is not None:
                own = SeedSequence(seed).spawn(FAILURE_STREAM + 1)
                self.state.streams[e, st.NETWORK_STREAM] = seed_stream(own[0])
                self.state.streams[e, st.TASK_STREAM] = seed_stream(own[1])
                if self.arrays.fails > 0.0:
                    self.state.streams[e, st.LINK_FAILURES] = seed_stream(own[FAILURE_STREAM])

    def reset(self, chosen: BoolArray | None = None) -> None:
        """Begin an episode in all (or the chosen) clusters."""
        if chosen is None:
            chosen = np.ones(self.clusters, dtype=np.bool_)
        _run_all(self.arrays, self.state, False, self._no_actions, self._no_devices, chosen, self._scratch)

    def step(
        self, actions: IntArray, devices: IntArray | None = None, active: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Carry out one decision in every active cluster and run each to its next one.

        Args:
            actions: Shape ``(E, P, 5)``, columns ``ACTION_COLUMNS``.
            devices: A device every single-segment plan must use, shape ``(E,)``; −1 lets the cluster choose.
            active: Clusters to step, shape ``(E,)``; all by default.

        Returns:
            Rewards ``(E,)`` and their terms R_eff, R_util, R_cost ``(E, 3)``.
        """
        if active is None:
            active = np.ones(self.clusters, dtype=np.bool_)
        chosen = self._checked(actions, self.clusters)
        forced = self._no_devices if devices is None else devices
        _run_all(self.arrays, self.state, True, chosen, forced, active, self._scratch)
        source = self.state.outcome[:, :3] if self.world.reward.per_decision else self.state.outcome[:, st.INTEGRALS :]
        terms = np.where(active[:, None], source, 0.0)
        rewards = total_of(terms, self.weights)
        return rewards, terms

    def _checked(self, actions: IntArray, count: int) -> IntArray:
        """Actions the kernels can follow without looking, or a ``PlanError`` that names the first bad choice."""
        chosen = np.ascontiguousarray(actions, dtype=np.int64)
        shape = (count, self.world.max_segments, len(ACTION_COLUMNS))
        if chosen.shape != shape:
            raise PlanError(problem("actions.shape", chosen.shape, f"must be {shape}", "Give five choices per segment"))
        limits = self.choices.copy()
        # A layout may name a neighbour, see ``actions``.
        limits[2] *= self.state.slots.shape[1] + 1
        wrong = (chosen < 0) | (chosen >= limits)
        if wrong.any():
            at = np.argwhere(wrong)[0]
            rule = f"must lie in 0..{limits[at[2]] - 1}"
            given = int(chosen[tuple(at)])
            raise PlanError(problem(f"action {ACTION_COLUMNS[at[2]]}", given, rule, "Use the mask"))
        return chosen

    def observe(self) -> Observations:
        """Return what the schedulers see now."""
        e, k, p = self.clusters, len(self.world.cluster), self.world.max_segments
        seen = Observations(
            domains=np.empty((e, k, len(DOMAIN_FEATURES)), dtype=np.float32),
            links=np.empty((e, len(LINK_FEATURES), k, k), dtype=np.float32),
            task=np.empty((e, len(TASK_FEATURES)), dtype=np.float32),
            event=np.empty((e, len(EVENT_FEATURES)), dtype=np.float32),
            plan=np.empty((e, p, 6), dtype=np.int64),
            counters=np.zeros((e, self.pool.counters.values.shape[1]), dtype=np.float32),
        )
        _observe_all(self.arrays, self.state, seen.domains, seen.links, seen.task, seen.event, seen.plan)
        pending = self.state.event[:, st.EVENT] != st.NO_EVENT
        rows = np.arange(e)[pending]
        seen.counters[rows] = self.pool.counters.values[self.pending_pool()[rows]]
        return seen

    def observe_domains(self, cluster: int) -> FloatArray:
        """What the instruments of one cluster's domains say, shape ``(K, 20)``, columns ``DOMAIN_FEATURES``."""
        k = len(self.world.cluster)
        domains = np.empty((k, len(DOMAIN_FEATURES)), dtype=np.float32)
        observe(
            self.arrays, self.state, cluster, domains, np.empty((len(LINK_FEATURES), k, k), dtype=np.float32),
            np.empty(len(TASK_FEATURES), dtype=np.float32), np.empty(len(EVENT_FEATURES), dtype=np.float32),
            np.empty((self.world.max_segments, 6), dtype=np.int64),
        )  # fmt: skip
        return domains.astype(np.float64)

    def pending_pool(self) -> IntArray:
        """Pool instance of the task each cluster has to decide on, shape ``(E,)``."""
        pool: IntArray = self.state.slots[np.arange(self.clusters), self.state.event[:, st.SLOT], st.POOL]
        return pool

    def pending_kind(self) -> IntArray:
        """Task kind each cluster has to decide on, shape ``(E,)``."""
        return self.pool.kinds[self.pending_pool()]

    def free_devices(self, share: bool = False, own: bool = False) -> IntArray:
        """Devices one more task may use, shape ``(E, K)``.

        Args:
            share: Count devices that hold one task too, where the world lets two share.
            own: Count the devices of a running task that is up for re-planning as free.
        """
        free = np.zeros((self.clusters, len(self.world.cluster)), dtype=np.int64)
        _free_all(self.arrays, self.state, share, own, free)
        return free

    def probe(self, cluster: int, actions: IntArray, devices: IntArray | None = None) -> dict[str, FloatArray]:
        """Say what each of many actions would come to now in one cluster; nothing changes.

        Args:
            cluster: Which cluster; it must have a decision pending.
            actions: Shape ``(n, P, 5)``.
            devices: Device a single-segment plan must use, shape ``(n,)``.

        Returns:
            The decision's reward terms, step time, bill, move and code (see ``CODES``), each ``(n,)``.
        """
        if self.state.event[cluster, st.EVENT] == st.NO_EVENT:
            fix = "Reset the cluster: its episode is over"
            raise PlanError(problem("cluster", cluster, "has no decision pending", fix))
        n = actions.shape[0]
        found = np.zeros((n, len(DECISION_COLUMNS)))
        forced = np.full(n, -1, dtype=np.int64) if devices is None else devices
        chosen = self._checked(actions, n)
        probe(self.arrays, self.state, cluster, chosen, forced, self._scratch, found)
        return {name: found[:, c] for c, name in enumerate(DECISION_COLUMNS)}

    def running_plan(self, cluster: int, slot: int) -> Plan | None:
        """The plan in force in a task slot."""
        count = int(self.state.slots[cluster, slot, st.SEGMENTS])
        if count == 0:
            return None
        rows = self.state.plans[cluster, slot][None, :]
        return PlanBatch(rows, np.array([count]), np.zeros(1, dtype=np.int64)).plan(0)

    def totals(self) -> dict[str, FloatArray]:
        """Sums over the episode so far, by name, each of shape ``(E,)``."""
        return {name: self.state.totals[:, c].copy() for c, name in enumerate(TOTAL_COLUMNS)}

    def overdue(self) -> IntArray:
        """Tasks that are still there and past their deadline, shape ``(E,)``."""
        return np.array(
            [
                sum(is_late(self.arrays, self.state, e, slot) for slot in np.flatnonzero(status != st.FREE))
                for e, status in enumerate(self.state.slots[:, :, st.STATUS])
            ],
            dtype=np.int64,
        )

    def decisions(self) -> dict[str, FloatArray]:
        """What the last decision of each cluster was worth by itself, by name, each of shape ``(E,)``."""
        return {name: self.state.outcome[:, c].copy() for c, name in enumerate(DECISION_COLUMNS)}


def _world_arrays(world: World, cost: CostModel, pool: TaskPool, layouts: IntArray) -> WorldArrays:
    wan, reward = world.cluster.wan, world.reward
    decay, noise = ou_coefficients(wan.reversion_per_s, wan.spread, world.tick_s)
    fails, stays_down = (0.0, 0.0) if wan.failures is None else wan.failures.down_after(world.tick_s)
    k = len(world.cluster)
    trace = wan.trace
    base_step, base_cost = baseline_costs(world, cost)
    arrival = world.arrivals.spec()
    features = np.array([kind.features for kind in world.kinds])
    inputs = np.array([kind.model.layers[0].input_elements for kind in world.kinds])
    return WorldArrays(
        domains=cost.domains,
        runtime=cost.runtime,
        power_law=cost.power_law,
        tables=cost.tables,
        base=np.stack([wan.bandwidth_gbps * BYTES_PER_GBIT, wan.latency_s]),
        kinds=np.column_stack(
            [
                [float(kind.batch_size) for kind in world.kinds],
                [float(kind.training) for kind in world.kinds],
                [float(kind.epoch_steps) for kind in world.kinds],
                [float(kind.priority) for kind in world.kinds],
                base_step,
                base_cost,
                [float(kind.deadline_slack) for kind in world.kinds],
                np.array([kind.microbatches for kind in world.kinds], dtype=np.float64),
                features,
            ]
        ),
        pool=np.column_stack(
            [
                pool.kinds,
                pool.steps,
                pool.demands.factors,
                inputs[pool.kinds] * pool.demands.ratio[:, 3] * 4.0 / PCIE_BYTES_PER_S,
                # As urgent as its kind, and with its kind's deadline.
                np.zeros((len(pool), 2)),
                pool.jobs if pool.jobs.size else np.full(len(pool), -1),
                measured_jobs().device_busy[pool.jobs] if pool.jobs.size else np.zeros(len(pool)),
            ]
        ),
        resources=resource_constants(),
        jobs=job_columns(),
        pair_speed=measured_jobs().pair_speed if world.pairs_measured else np.full((len(job_columns()),) * 2, np.nan),
        layouts=layouts,
        budget_w=np.array([d.power_budget_w or np.inf for d in world.cluster.domains]),
        trace_times_s=np.empty(0) if trace is None else np.array(trace.times_s),
        trace_multiplier=np.ones((1, k, k)) if trace is None else trace.multiplier(wan.bandwidth_gbps),
        arrival_params=arrival.params,
        arrival_times_s=arrival.times_s,
        incidents=pack(world.incidents),
        signals=hourly_ratios(world),
        signals_from_h=0,
        arrival_kind=arrival.kind,
        trace_period_s=0.0 if trace is None else float(trace.period_s),
        ou_decay=decay,
        ou_noise=noise,
        ou_spread=wan.spread,
        ou_correlation=wan.correlation,
        ou_bound=wan.bound,
        fails=fails,
        stays_down=stays_down,
        down_share=0.0 if wan.failures is None else wan.failures.down_share,
        down_left=1.0 if wan.failures is None else wan.failures.left,
        congestion=wan.congestion,
        coupling_epsilon=EPSILON,
        slowdown_cap=slowdown_cap(),
        energy_usd_per_j=usd_per_j(reward),
        carbon_usd_per_g=usd_per_g(reward),
        network_j_per_byte=wan.kwh_per_gb * JOULES_PER_KWH / BYTES_PER_GB,
        horizon_s=world.horizon_s,
        tick_s=world.tick_s,
        interval_s=reward.interval_s,
        restart_s=world.restart_s,
        retry_s=world.retry_s,
        replan_threshold=world.replan_threshold,
        waiting_r_eff=world.waiting_r_eff,
        share_limit=world.share_limit,
        max_running=world.max_running,
        queue_capacity=world.queue_capacity,
        lambda_fragmentation=reward.lambda_fragmentation,
        lambda_intra_comm=reward.lambda_intra_comm,
    )
