"""What running tasks cost each other: prices under contention, loads on links, watts on meters; compiled.

Every function works on row ``e`` of the state arrays only.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.cost_kernel import (
    BILL_USD,
    BUSY_S,
    CARBON_G,
    COMPUTE_SHARE,
    ENERGY_J,
    HOST_SHARE,
    MEMORY_BYTES,
    MEMORY_SHARE,
    POWER_W,
    SEGMENT_COMM_S,
    STEP_S,
    UTILISATION,
    Scratch,
    Workload,
    plan_cost,
)
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.incidents import is_lost
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP
from attribution_sched.cluster.reward import cost_usd_kernel, r_cost_kernel, r_eff_kernel, samples_kernel
from attribution_sched.cluster.wan import effective_latency
from attribution_sched.kernels import kernel
from attribution_sched.types import FloatArray

LEAST_BANDWIDTH_SHARE = 0.1
"""What a task gets of a link however crowded it is."""


@kernel
def kind_of(world: WorldArrays, state: StateArrays, e: int, slot: int) -> int:
    """Task kind of a slot."""
    return int(world.pool[state.slots[e, slot, st.POOL], st.P_KIND])


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
    slowdown = np.ones(segments.shape[0])
    for row in range(count):
        slowdown[row] = segment_slowdown(world, state, e, slot, row)
    job = type_of(world, state, e, slot)
    factors = world.pool[pool, st.P_FACTORS : st.P_PCIE]
    workload = Workload(kind, world.kinds[kind, st.K_TRAINING] == 1.0, factors[0], factors[1], factors[2])
    plan_out = np.zeros(10)
    segment_out = np.zeros((segments.shape[0], 7))
    traffic = state.traffic[e, slot]
    traffic[:, :] = 0.0
    plan_cost(
        world.domains, world.runtime, world.power_law, world.tables, workload, bandwidth, latency, segments, count,
        0, slowdown, False, scratch, plan_out, segment_out, traffic,
    )  # fmt: skip
    # A plan may process slightly more or fewer samples than the batch; compare per global batch.
    samples = samples_kernel(segments, count)
    norm = world.kinds[kind, st.K_BATCH] / samples
    traffic *= norm
    step = plan_out[STEP_S] * norm
    memory_ratio = 0.0
    for row in range(count):
        domain = segments[row, DOMAIN]
        # M·(f + b) and M times adding f and b may differ in the last bit.
        busy = min(1.0, segment_out[row, BUSY_S] / plan_out[STEP_S])
        # Beside another a task does less work a second: it asks for less power and less of the device's time.
        active = busy / slowdown[row] if job < 0 else busy * world.jobs[job, st.J_BUSY] / slowdown[row]
        dynamic = (segment_out[row, POWER_W] - world.domains.rows[domain].idle_w) * active
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
    cost = cost_usd_kernel(
        bill, plan_out[ENERGY_J] * norm, plan_out[CARBON_G] * norm, world.energy_usd_per_j, world.carbon_usd_per_g
    )
    task[st.STEP] = step
    task[st.STEP_BILL] = bill
    task[st.T_EFF] = r_eff_kernel(step, world.kinds[kind, st.K_BASE_STEP])
    task[st.T_UTIL] = plan_out[UTILISATION]
    task[st.T_COST] = r_cost_kernel(cost, world.kinds[kind, st.K_BASE_COST])
    return memory_ratio


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


@kernel
def shares_devices(world: WorldArrays, state: StateArrays, e: int, slot: int) -> bool:
    """Whether a task has a co-runner on any of its devices."""
    for row in range(state.slots[e, slot, st.SEGMENTS]):
        domain = state.plans[e, slot, row, DOMAIN]
        for d in range(world.domains.rows[domain].devices):
            if state.occupant[e, domain, d, 1] < 0:
                continue
            if state.occupant[e, domain, d, 0] == slot or state.occupant[e, domain, d, 1] == slot:
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

    A task inside one domain feels neither the network nor tasks on other devices; it keeps its price.
    """
    if network_only and not _any_spans_domains(state, e):
        return
    load = np.zeros((world.base.shape[1], world.base.shape[1]))
    link_load(state, e, load)
    changed = not network_only
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.RUNNING:
            continue
        touched = state.slots[e, slot, st.SEGMENTS] > 1
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
    room = here.cap_w - idle_w
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
        asked = known_w + other_w
        granted = room / asked if asked > room else 1.0
        total += idle_w + asked * granted
        if book:
            own_idle_w = idle_w / 2 if second >= 0 else idle_w
            watts = own_idle_w + known_w * granted
            state.tasks[e, first, st.POWER] += watts
            state.tasks[e, first, st.CARBON_RATE] += watts * here.carbon_g_per_j
            if second >= 0:
                watts = own_idle_w + other_w * granted
                state.tasks[e, second, st.POWER] += watts
                state.tasks[e, second, st.CARBON_RATE] += watts * here.carbon_g_per_j
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
    for domain in range(world.domains.rows.size):
        total, unused = domain_power_w(world, state, e, domain, False, True)
        state.clock[e, st.METER_W] += total
        state.clock[e, st.UNUSED_W] += unused
