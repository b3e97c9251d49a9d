"""The batched world's clockwork: prices, progress and events of one cluster, compiled.

Every function works on row ``e`` of the state arrays only, so a cluster's path depends on its seed and its
actions, never on the batch it is in.
"""

from __future__ import annotations

import numba
import numpy as np

from attribution_sched.cluster import engine_state as st
from attribution_sched.cluster.arrivals import next_arrival
from attribution_sched.cluster.bandwidth_trace import trace_row
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
from attribution_sched.cluster.engine_state import FloatArray, StateArrays, WorldArrays
from attribution_sched.cluster.plan import DOMAIN, DP, MICROBATCH, MICROBATCHES, PP, REPLICA, TP
from attribution_sched.cluster.streams import integers
from attribution_sched.cluster.wan import effective_latency, ou_advance, ou_stationary

LEAST_BANDWIDTH_SHARE = 0.1
"""What a task gets of a link however crowded it is."""

SETTLED, PRICE_NETWORK, PRICE_ALL = 0, 1, 2
"""What ``advance`` asks for."""

TIME_TOLERANCE = 1e-9
"""Steps below which a task counts as finished: rounding of accumulated progress."""


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def kind_of(world: WorldArrays, state: StateArrays, e: int, slot: int) -> int:
    """Task kind of a slot."""
    return int(world.pool[state.slots[e, slot, st.POOL], st.P_KIND])


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _segment_of(state: StateArrays, e: int, slot: int, domain: int) -> int:
    for row in range(state.slots[e, slot, st.SEGMENTS]):
        if state.plans[e, slot, row, DOMAIN] == domain:
            return row
    return -1


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def pair_slowdown(world: WorldArrays, own: FloatArray, other: FloatArray) -> float:
    """Slow-down of a task by a co-runner; both are demand vectors over the shared resources."""
    total = 1.0
    for r in range(own.size):
        d = min(other[r], 1.0)
        total += world.resources[0, r] * own[r] * d / (1.0 + world.coupling_epsilon - d)
    return min(total, world.slowdown_cap)


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
        worst = max(
            worst,
            pair_slowdown(world, state.loads[e, slot, row, st.HOST :], state.loads[e, other, other_row, st.HOST :]),
        )
    return worst


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
            share = max(0.0, others) / state.links[e, 1, i, j] if i != j else 0.0
            bandwidth[i, j] = state.links[e, 1, i, j] * max(LEAST_BANDWIDTH_SHARE, 1.0 - share)
            latency[i, j] = effective_latency(world.base[1, i, j], share, world.congestion)
    count = state.slots[e, slot, st.SEGMENTS]
    segments = state.plans[e, slot]
    slowdown = np.ones(segments.shape[0])
    for row in range(count):
        slowdown[row] = segment_slowdown(world, state, e, slot, row)
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
    samples = 0.0
    last = -1
    for row in range(count):
        if segments[row, REPLICA] != last:
            last = segments[row, REPLICA]
            samples += segments[row, MICROBATCH] * segments[row, MICROBATCHES]
    norm = world.kinds[kind, st.K_BATCH] / samples
    traffic *= norm
    step = plan_out[STEP_S] * norm
    memory_ratio = 0.0
    for row in range(count):
        domain = segments[row, DOMAIN]
        busy = min(1.0, segment_out[row, BUSY_S] / plan_out[STEP_S])
        dynamic = (segment_out[row, POWER_W] - world.domains.rows[domain].idle_w) * busy
        row_load = state.loads[e, slot, row]
        row_load[st.BUSY] = busy
        row_load[st.MEMORY] = segment_out[row, MEMORY_BYTES]
        row_load[st.DYNAMIC_W] = dynamic
        row_load[st.INTRA] = segment_out[row, SEGMENT_COMM_S] * norm
        shares = (segment_out[row, HOST_SHARE], segment_out[row, COMPUTE_SHARE], segment_out[row, MEMORY_SHARE])
        for r in range(3):
            row_load[st.HOST + r] = min(1.0, world.resources[1, r] * shares[r] * busy)
        row_load[st.HOST + 3] = min(
            1.0, world.resources[1, 3] * world.pool[pool, st.P_PCIE] * samples / plan_out[STEP_S]
        )
        memory_ratio = max(memory_ratio, segment_out[row, MEMORY_BYTES] / world.domains.rows[domain].memory_bytes)
    bill = plan_out[BILL_USD] * norm
    cost = (
        bill + world.energy_usd_per_j * plan_out[ENERGY_J] * norm + world.carbon_usd_per_g * plan_out[CARBON_G] * norm
    )
    task[st.STEP] = step
    task[st.STEP_BILL] = bill
    task[st.T_EFF] = (world.kinds[kind, st.K_BASE_STEP] - step) / world.kinds[kind, st.K_BASE_STEP]
    task[st.T_UTIL] = plan_out[UTILISATION]
    task[st.T_COST] = cost / world.kinds[kind, st.K_BASE_COST] if world.kinds[kind, st.K_BASE_COST] > 0.0 else 0.0
    return memory_ratio


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _any_spans_domains(state: StateArrays, e: int) -> bool:
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.RUNNING and state.slots[e, slot, st.SEGMENTS] > 1:
            return True
    return False


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def snapshot_links(state: StateArrays, e: int, slot: int) -> None:
    """Remember the bandwidth of the links a plan uses, to notice later when one has moved."""
    count = state.slots[e, slot, st.SEGMENTS]
    for row in range(count):
        i, j = plan_link(state, e, slot, row, count)
        state.loads[e, slot, row, st.LINK] = state.links[e, 1, i, j]


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def plan_link(state: StateArrays, e: int, slot: int, row: int, count: int) -> tuple[int, int]:
    """Return the link that leaves a segment: to the next one, from the last of all back to the first."""
    after = row + 1 if row + 1 < count else 0
    return state.plans[e, slot, row, DOMAIN], state.plans[e, slot, after, DOMAIN]


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _flag_moved_links(world: WorldArrays, state: StateArrays, e: int) -> None:
    for slot in range(state.slots.shape[1]):
        count = state.slots[e, slot, st.SEGMENTS]
        if state.slots[e, slot, st.STATUS] != st.RUNNING or count < 2:
            continue
        for row in range(count):
            i, j = plan_link(state, e, slot, row, count)
            before = state.loads[e, slot, row, st.LINK]
            if i != j and abs(state.links[e, 1, i, j] / before - 1.0) > world.replan_threshold:
                state.tasks[e, slot, st.REVIEW] = 1.0


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
        totals[st.STEPS_DONE] += steps
        state.outcome[e, st.INTEGRALS + 0] += task[st.T_EFF] * per_interval
        state.outcome[e, st.INTEGRALS + 1] += task[st.T_UTIL] * per_interval
        state.outcome[e, st.INTEGRALS + 2] += task[st.T_COST] * per_interval
    totals[st.METER_J] += state.clock[e, st.METER_W] * dt
    totals[st.IDLE_J] += state.clock[e, st.UNUSED_W] * dt
    state.clock[e, st.NOW] = until_s


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _asked_w(state: StateArrays, e: int, slot: int, domain: int, awake: bool) -> float:
    """Watts above idle that a task asks of each of its devices in a domain; none while it is paused."""
    if not awake and state.tasks[e, slot, st.PAUSED] > state.clock[e, st.NOW]:
        return 0.0
    row = _segment_of(state, e, slot, domain)
    return float(state.loads[e, slot, row, st.DYNAMIC_W])


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def domain_power_w(
    world: WorldArrays, state: StateArrays, e: int, domain: int, awake: bool, book: bool
) -> tuple[float, float]:
    """Read the meters of a domain's devices.

    A device draws its idle power and what its tasks ask for above it, cut to what its cap leaves; tasks that
    share a device answer for half its idle power each.

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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
    state.clock[e, st.METER_W] = 0.0
    state.clock[e, st.UNUSED_W] = 0.0
    for domain in range(world.domains.rows.size):
        total, unused = domain_power_w(world, state, e, domain, False, True)
        state.clock[e, st.METER_W] += total
        state.clock[e, st.UNUSED_W] += unused


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _arrive(world: WorldArrays, state: StateArrays, e: int) -> None:
    waiting = 0
    free = -1
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED:
            waiting += 1
        elif state.slots[e, slot, st.STATUS] == st.FREE and free < 0:
            free = slot
    taken = state.event[e, st.TAKEN]
    pool = (
        taken % world.pool.shape[0] if world.arrival_kind == 2 else integers(state.streams[e, 1], world.pool.shape[0])
    )
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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _is_over(steps: float, step_s: float, now_s: float) -> bool:
    """Whether work is done: nothing is left, or so little that the clock could not move by it."""
    return steps <= TIME_TOLERANCE or now_s + steps * step_s <= now_s


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
            freed = True
        elif task[st.PAUSED] > 0.0 and task[st.PAUSED] <= now:
            task[st.PAUSED] = 0.0
            resumed = True
        elif task[st.PAUSED] <= now and _is_over(task[st.EPOCH], task[st.STEP], now):
            task[st.EPOCH] = world.kinds[kind_of(world, state, e, slot), st.K_EPOCH]
            task[st.REVIEW] = 1.0
    return freed, resumed


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def offer_queue(state: StateArrays, e: int) -> None:
    """Offer every waiting task again: something has changed."""
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED:
            state.tasks[e, slot, st.OFFERED] = min(state.tasks[e, slot, st.OFFERED], state.clock[e, st.NOW])


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
        mine = world.kinds[kind_of(world, state, e, slot), st.K_PRIORITY]
        other = world.kinds[kind_of(world, state, e, best), st.K_PRIORITY]
        if mine > other or (mine == other and state.slots[e, slot, st.SERIAL] < state.slots[e, best, st.SERIAL]):
            best = slot
    if best < 0:
        return False
    state.event[e, st.EVENT] = st.PLACE
    state.event[e, st.SLOT] = best
    return True


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
            ou_advance(state.links[e, 0], world.ou_decay, world.ou_noise, world.ou_correlation, state.streams[e, 0])
            state.clock[e, st.NEXT_TICK] += world.tick_s
            set_bandwidth(world, state, e)
            _flag_moved_links(world, state, e)
            moved = True
        if state.clock[e, st.NEXT_ARRIVAL] <= state.clock[e, st.NOW]:
            _arrive(world, state, e)
        if freed:
            return PRICE_ALL
        if moved:
            return PRICE_NETWORK


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def begin(world: WorldArrays, state: StateArrays, e: int) -> None:
    """Set cluster ``e`` to the start of an episode; its random streams go on from where they are."""
    state.clock[e, st.NOW] = 0.0
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
    set_bandwidth(world, state, e)
    state.clock[e, st.NEXT_ARRIVAL] = next_arrival(
        world.arrival_kind, world.arrival_params, world.arrival_times_s, 0, 0.0, state.streams[e, 1]
    )
