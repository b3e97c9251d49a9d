"""Who earned what: per task what the clockwork adds up per cluster, so that two copies can be compared task by task.

Rates of a task change only where ``advance`` returns (a price, an end, a pause), so what a task earned between two
returns follows from its row before and its row after. Summed over tasks a ledger is the cluster's own account.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.prices import kind_of
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.reward import r_cost_kernel
from attribution_sched.kernels import kernel
from attribution_sched.types import FloatArray, IntArray

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
