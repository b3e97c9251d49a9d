"""Quotas, budgets, the share rule, holds and tasks' own limits in copies of a cluster: they obey what a system obeys.

The laws of :class:`~attribution_sched.live_cluster.SimulatedCluster`, compiled: a tenant whose budget is used up or
whose devices are all taken is not asked about; one that holds its share is asked about after those below theirs;
nothing that runs is stopped. A task on hold is not asked about before its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import signal_hour
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.objective import BUDGETS
from attribution_sched.cluster.world import World
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.types import FloatArray, IntArray

MASKED = 9
"""Status of a waiting task while somebody decides who may not choose it."""

SECOND_LOOK_S = 1.0
"""Who is passed over by the share rule is asked about so much later, when those below their share have been."""

NO_LIMIT = 1 << 30
"""Devices that nobody reaches."""


@by_reference
class TenantLimits(NamedTuple):
    """What tenants may use in n copies; M tenants, T tasks of the future's pool.

    Attributes:
        active: Whether anything is limited at all.
        fair: Whether turns follow equal shares of the devices.
        all_devices: Devices of the cluster.
        energy_usd_per_kwh: What electricity costs beside its signal.
        tenant: Of each task, shape ``(T,)``.
        devices: Most devices at once, shape ``(M,)``.
        budgets: Most of each of ``BUDGETS`` in a window, shape ``(M, 4)``; infinite for no limit.
        window_s: Length of the window, shape ``(M,)``.
        used: Number of the window and what was used in it, shape ``(n, M, 5)``.
        not_before_s: When each task may be asked about, shape ``(n, T)``.
        most: Devices that each task asked for at most, shape ``(T,)``.
        rates: Buffer: what each tenant uses an hour, shape ``(M, 4)``.
        held: Buffer: devices of each tenant, shape ``(M,)``.
        state: Buffer: 0 may take devices, 1 not now, 2 later at this moment, shape ``(M,)``.
    """

    active: bool
    fair: bool
    all_devices: int
    energy_usd_per_kwh: float
    tenant: IntArray
    devices: IntArray
    budgets: FloatArray
    window_s: FloatArray
    used: FloatArray
    not_before_s: FloatArray
    most: IntArray
    rates: FloatArray
    held: IntArray
    state: IntArray


def make_limits(
    world: World, tenants: Sequence[str], copies: int, used: FloatArray | None = None,
    holds: Mapping[tuple[int, int], float] | None = None, asked: Mapping[int, int] | None = None,
) -> TenantLimits:  # fmt: skip
    """The limits of a world for the tasks of a future's pool.

    Args:
        world: Whose quotas and share rule.
        tenants: Who asks for each task of the pool.
        copies: How many there are.
        used: Number of the window and what each quota's tenant has used in it, shape ``(Q, 5)``; nothing by default.
        holds: Copy and task → when it may be asked about at the earliest.
        asked: Task → devices that it asked for at most.
    """
    active = bool(world.quotas) or world.share_rule != "none" or bool(holds) or bool(asked)
    names = [quota.tenant for quota in world.quotas] + sorted(set(tenants) - {quota.tenant for quota in world.quotas})
    at = {name: place for place, name in enumerate(names)}
    m, t = max(1, len(names)), len(tenants) if active else 1
    devices = np.full(m, NO_LIMIT, dtype=np.int64)
    budgets, window_s, spent = np.full((m, len(BUDGETS)), np.inf), np.full(m, 86_400.0), np.zeros((m, 1 + len(BUDGETS)))
    for place, quota in enumerate(world.quotas):
        devices[place] = NO_LIMIT if quota.devices is None else quota.devices
        limits = [getattr(quota, name) for name in BUDGETS]
        budgets[place] = [np.inf if limit is None else limit for limit in limits]
        window_s[place] = 3600.0 * quota.per_h
        if used is not None:
            spent[place] = used[place]
    not_before_s = np.zeros((copies, t))
    for (copy, task), until_s in (holds or {}).items():
        not_before_s[copy, task] = until_s
    most = np.full(t, NO_LIMIT, dtype=np.int64)
    for task, devices_asked in (asked or {}).items():
        most[task] = devices_asked
    whose = [at[name] for name in tenants] if active else [0]
    return TenantLimits(
        active, world.share_rule == "fair-share", world.cluster.devices, world.reward.energy_usd_per_kwh,
        np.array(whose, dtype=np.int64), devices, budgets, window_s, np.repeat(spent[None], copies, axis=0),
        not_before_s, most, np.zeros((m, len(BUDGETS))), np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64),
    )  # fmt: skip


def no_limits() -> TenantLimits:
    """Nobody is limited."""
    nothing, none = np.zeros((1, 1 + len(BUDGETS))), np.zeros(1, dtype=np.int64)
    return TenantLimits(
        False, False, 0, 0.0, none, none, nothing, nothing[0], nothing[None], nothing, none, nothing, none, none
    )  # fmt: skip


@kernel
def open_budgets(world: WorldArrays, state: StateArrays, e: int, limits: TenantLimits) -> None:
    """Write what every tenant uses an hour, before time passes."""
    limits.rates[:, :] = 0.0
    hour, now = signal_hour(world, state.clock[e, st.LAST_TICK]), state.clock[e, st.NOW]
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.RUNNING:
            continue
        task, row = state.tasks[e, slot], limits.rates[limits.tenant[state.slots[e, slot, st.POOL]]]
        devices, holding, price = 0.0, 0, 0.0
        for k in range(state.occupant.shape[1]):
            for d in range(state.occupant.shape[2]):
                first, second = state.occupant[e, k, d, 0], state.occupant[e, k, d, 1]
                if first == slot or second == slot:
                    # A device that two share counts half for each.
                    devices += 0.5 if first >= 0 and second >= 0 else 1.0
                    holding += 1
                    price += world.signals[st.ELECTRICITY, hour, k]
        price = limits.energy_usd_per_kwh * price / max(1, holding)
        kw = task[st.POWER] / 1e3
        egress = 0.0
        if task[st.PAUSED] <= now and task[st.STEP] > 0.0:
            egress = 3600.0 / task[st.STEP] * task[st.STEP_BILL]
        row[0] += devices
        row[1] += kw
        row[2] += egress + kw * price
        row[3] += task[st.CARBON_RATE] * 3.6


@kernel
def close_budgets(limits: TenantLimits, e: int, since_s: float, now_s: float) -> None:
    """Book what was used since :func:`open_budgets`."""
    hours = (now_s - since_s) / 3600.0
    for m in range(limits.rates.shape[0]):
        _window(limits, e, m, since_s)
        for c in range(limits.rates.shape[1]):
            limits.used[e, m, 1 + c] += limits.rates[m, c] * hours


@kernel
def _window(limits: TenantLimits, e: int, m: int, now_s: float) -> None:
    number = now_s // limits.window_s[m]
    if limits.used[e, m, 0] != number:
        limits.used[e, m, :] = 0.0
        limits.used[e, m, 0] = number


@kernel
def devices_left(state: StateArrays, e: int, limits: TenantLimits, m: int) -> int:
    """Devices that a tenant's quota leaves it."""
    if limits.devices[m] >= NO_LIMIT:
        return NO_LIMIT
    used = 0
    for k in range(state.occupant.shape[1]):
        for d in range(state.occupant.shape[2]):
            for place in range(2):
                slot = state.occupant[e, k, d, place]
                if slot >= 0 and limits.tenant[state.slots[e, slot, st.POOL]] == m:
                    used += 1
                    break
    return int(max(0, limits.devices[m] - used))


@kernel
def pass_over(world: WorldArrays, state: StateArrays, e: int, limits: TenantLimits) -> None:
    """Let nobody be asked now about tasks that may take no device: others come before them.

    The pending decision is taken back if it is about one of them.
    """
    now = state.clock[e, st.NOW]
    for m in range(limits.state.size):
        _window(limits, e, m, now)
        limits.state[m] = 0
        for c in range(limits.budgets.shape[1]):
            if limits.used[e, m, 1 + c] >= limits.budgets[m, c]:
                limits.state[m] = 1
        if devices_left(state, e, limits, m) == 0:
            limits.state[m] = 1
    if limits.fair:
        _mark_above_share(state, e, limits, now)
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.QUEUED or state.tasks[e, slot, st.OFFERED] > now:
            continue
        row = state.slots[e, slot, st.POOL]
        again_s = limits.not_before_s[e, row]
        if again_s <= now:
            found = limits.state[limits.tenant[row]]
            if found == 0:
                continue
            again_s = now + (SECOND_LOOK_S if found == 2 else world.retry_s)
        state.tasks[e, slot, st.OFFERED] = again_s
        if state.event[e, st.EVENT] == st.PLACE and state.event[e, st.SLOT] == slot:
            state.event[e, st.EVENT] = st.NO_EVENT


@kernel
def _mark_above_share(state: StateArrays, e: int, limits: TenantLimits, now_s: float) -> None:
    """Who holds its share comes later if others, below theirs, have a task that is still to be asked about."""
    limits.held[:] = -1
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.FREE:
            m = limits.tenant[state.slots[e, slot, st.POOL]]
            limits.held[m] = max(0, limits.held[m])
    present = 0
    for k in range(state.occupant.shape[1]):
        for d in range(state.occupant.shape[2]):
            for place in range(2):
                slot = state.occupant[e, k, d, place]
                if slot >= 0:
                    limits.held[limits.tenant[state.slots[e, slot, st.POOL]]] += 1
    for m in range(limits.held.size):
        present += limits.held[m] >= 0
    devices = limits.all_devices
    below = False
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED and state.tasks[e, slot, st.OFFERED] <= now_s:
            m = limits.tenant[state.slots[e, slot, st.POOL]]
            below |= limits.held[m] * present < devices
    for m in range(limits.held.size):
        if below and limits.state[m] == 0 and limits.held[m] * present >= devices and limits.held[m] >= 0:
            limits.state[m] = 2


@kernel
def mask(state: StateArrays, e: int, limits: TenantLimits, only: int) -> None:
    """Hide waiting tasks that may take no device from whoever decides now; with ``only``, all but the one there."""
    now = state.clock[e, st.NOW]
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED:
            row = state.slots[e, slot, st.POOL]
            barred = limits.not_before_s[e, row] > now or limits.state[limits.tenant[row]] != 0
            if barred or (only >= 0 and slot != only):
                state.slots[e, slot, st.STATUS] = MASKED


@kernel
def unmask(state: StateArrays, e: int) -> None:
    """Let them wait again as before."""
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == MASKED:
            state.slots[e, slot, st.STATUS] = st.QUEUED


@kernel
def devices_taken(world: WorldArrays, action: IntArray) -> int:
    """Devices that an action asks for."""
    taken = 0
    for p in range(action.shape[0]):
        if action[p, 0] >= world.domains.rows.size:
            break
        layout = world.layouts[action[p, 2] % world.layouts.shape[0]]
        taken += layout[0] * layout[1] * layout[2]
    return int(taken)
