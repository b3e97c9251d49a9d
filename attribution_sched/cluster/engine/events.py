"""The batched world's clockwork: time, events and progress of one cluster, compiled.

Every function works on row ``e`` of the state arrays only, so a cluster's path depends on its seed and its
actions, never on the batch it is in.
"""

from __future__ import annotations

from attribution_sched.cluster.arrivals import next_arrival
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.prices import kind_of, meter
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.incidents import cut_links, is_lost
from attribution_sched.cluster.plan import DOMAIN
from attribution_sched.cluster.streams import integers
from attribution_sched.cluster.wan import ou_advance, ou_stationary, trace_row
from attribution_sched.kernels import kernel

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
        totals[st.STEPS_DONE] += steps
        # By the work, not by the hour: a task that finishes sooner must not earn less.
        earned = steps * world.kinds[kind_of(world, state, e, slot), st.K_BASE_STEP] / world.interval_s
        state.outcome[e, st.INTEGRALS + 0] += task[st.T_EFF] * earned
        state.outcome[e, st.INTEGRALS + 1] += task[st.T_UTIL] * earned
        task[st.EPOCH_UTIL] += task[st.T_UTIL] * earned
        state.outcome[e, st.INTEGRALS + 2] += task[st.T_COST] * earned
    totals[st.METER_J] += state.clock[e, st.METER_W] * dt
    totals[st.IDLE_J] += state.clock[e, st.UNUSED_W] * dt
    state.clock[e, st.NOW] = until_s


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
    set_bandwidth(world, state, e)
    state.clock[e, st.NEXT_ARRIVAL] = next_arrival(
        world.arrival_kind, world.arrival_params, world.arrival_times_s, 0, 0.0, state.streams[e, 1]
    )
