"""From an action to a placement: decode, check, occupy devices, charge for moving state.

An action is P rows of five choices: domain (K ends the list), one past the last layer, layout, precision,
batch level. A row that reaches the last layer closes a replica; the next row opens another. So a cut
pipeline, replicas and mixtures of both are one encoding, and an empty list defers a task or keeps a plan.
A sharing layout may name its neighbour: ``layout + n_layouts · (slot + 1)`` takes only devices that the task in that
slot has for itself.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.compute import PARAMS_SHARDED, PARAMS_WHOLE
from attribution_sched.cluster.cost_kernel import Scratch, share_batch
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.events import offer_queue, release, snapshot_links
from attribution_sched.cluster.engine.prices import (
    domain_power_w,
    kind_of,
    link_load,
    measured_speed,
    price,
    shares_devices,
)
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.incidents import is_lost
from attribution_sched.cluster.memory import element_bytes, state_bytes_per_parameter
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
)
from attribution_sched.cluster.reward import r_cost_kernel, r_eff_kernel
from attribution_sched.kernels import kernel
from attribution_sched.types import FloatArray, IntArray

A_DOMAIN, A_STOP, A_LAYOUT, A_PRECISION, A_BATCH = range(5)
"""Columns of an action row."""

L_DP, L_TP, L_PP, L_SHARE = range(4)
"""Columns of the layout table; ``share`` lets a segment use devices that already hold a task."""

INT8 = 3


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
    level = 0
    for p in range(action.shape[0]):
        domain = action[p, A_DOMAIN]
        if domain >= n_domains:
            break
        for before in range(count):
            if rows[before, DOMAIN] == domain:
                return 0, -2
        stop = action[p, A_STOP]
        if stop <= at or stop > n_layers:
            return 0, -1
        layout = world.layouts[action[p, A_LAYOUT] % world.layouts.shape[0]]
        precision = action[p, A_PRECISION]
        if not world.domains.peak_flops[domain, precision] > 0.0:
            return 0, -4
        if training and precision == INT8:
            return 0, -9
        if at == 0:
            level = action[p, A_BATCH]
        elif action[p, A_BATCH] != level:
            return 0, -10
        micro = int(world.kinds[kind, st.K_MICRO + level])
        if micro % layout[L_DP] != 0:
            return 0, -5
        if layout[L_PP] > stop - at:
            return 0, -8
        if layout[L_DP] * layout[L_TP] * layout[L_PP] > world.domains.rows[domain].devices:
            return 0, -3
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
        count += 1
        at = stop
        if stop == n_layers:
            at = 0
            replica += 1
    if at != 0:
        return 0, -1
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
            used = (state.occupant[e, domain, d, 0] >= 0) + (state.occupant[e, domain, d, 1] >= 0)
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
    world: WorldArrays, bandwidth: FloatArray, kind: int, old: IntArray, old_count: int, new: IntArray, new_count: int
) -> tuple[float, float]:
    """Seconds and dollars of sending the state of layers to domains that do not hold them yet.

    Every newly needed copy comes from the first domain that has it; transfers over different links run side
    by side.
    """
    k = bandwidth.shape[0]
    moved = np.zeros((k, k))
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
    if state.slots[e, slot, st.SEGMENTS] != count:
        return False
    for p in range(count):
        for c in range(rows.shape[1]):
            if state.plans[e, slot, p, c] != rows[p, c]:
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
        return -6
    for p in range(state.slots[e, slot, st.SEGMENTS]):
        domain = state.plans[e, slot, p, DOMAIN]
        if domain_power_w(world, state, e, domain, True, False)[0] > world.budget_w[domain]:
            return -7
    return 0


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
    if code == 0 and count > 0 and not (not placing and _same_plan(state, e, slot, rows, count)):
        old_count = state.slots[e, slot, st.SEGMENTS]
        old_plan = state.plans[e, slot].copy()
        old_loads = state.loads[e, slot].copy()
        old_traffic = state.traffic[e, slot].copy()
        old_task = task.copy()
        occupant = state.occupant[e].copy()
        release(world, state, e, slot)
        code = 0 if _occupy_all(world, state, e, slot, action, rows, count, device) else -3
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
            seconds, dollars = migration(world, state.links[e, 1], kind, old_plan, old_count, rows, count)
            seconds += world.restart_s
            task[st.PAUSED] = state.clock[e, st.NOW] + seconds
            task[st.BILL] += dollars
    _record(world, state, e, slot, kind, code, seconds, dollars)
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
        decisions: Output, shape ``(n, 9)``, columns ``DECISION_COLUMNS``.
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
