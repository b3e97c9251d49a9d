"""Copies of a cluster, compiled: how one begins with a change, and the futures that all of them meet."""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.arrivals import next_arrival
from attribution_sched.cluster.cost_kernel import Scratch
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.actions import conclude, enact
from attribution_sched.cluster.engine.events import offer_queue, release
from attribution_sched.cluster.engine.ledger import book_decision
from attribution_sched.cluster.engine.prices import link_load, price, reprice
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.streams import StreamState, integers
from attribution_sched.cluster.wan import ou_advance
from attribution_sched.kernels import kernel
from attribution_sched.types import FloatArray, IntArray

AS_IT_IS, CHOOSE, WAIT, HOLD, REMOVE = range(5)
"""How a copy begins: as it is, with a decision on a task, nothing placed, a task passed over, or a task removed."""


@kernel(allocates=True)
def begin_copy(
    world: WorldArrays, state: StateArrays, e: int, begin: int, slot: int, action: IntArray, paid_by_work: bool,
    ledger: FloatArray, scratch: Scratch,
) -> int:  # fmt: skip
    """Make the change that a copy begins with; returns what a decision came to, 0 if none was taken."""
    if begin == AS_IT_IS:
        return 0
    now = state.clock[e, st.NOW]
    if begin == WAIT:
        for other in range(state.slots.shape[1]):
            if state.slots[e, other, st.STATUS] == st.QUEUED and state.tasks[e, other, st.OFFERED] <= now:
                state.tasks[e, other, st.OFFERED] = now + world.retry_s
        state.event[e, st.EVENT] = st.NO_EVENT
        return 0
    if begin == HOLD:
        state.tasks[e, slot, st.OFFERED] = now + world.retry_s
        state.tasks[e, slot, st.REVIEW] = 0.0
        state.event[e, st.EVENT] = st.NO_EVENT
        return 0
    if begin == REMOVE:
        if state.slots[e, slot, st.STATUS] == st.RUNNING:
            release(world, state, e, slot)
        state.slots[e, slot, st.STATUS] = st.FREE
        state.slots[e, slot, st.SEGMENTS] = 0
        state.traffic[e, slot, :, :] = 0.0
        reprice(world, state, e, False, scratch)
        offer_queue(state, e)
        state.event[e, st.EVENT] = st.NO_EVENT
        return 0
    state.event[e, st.EVENT] = st.REPLAN if state.slots[e, slot, st.STATUS] == st.RUNNING else st.PLACE
    state.event[e, st.SLOT] = slot
    code = enact(world, state, e, action, -1, scratch)
    conclude(world, state, e, code)
    book_decision(world, state, e, code, paid_by_work, ledger[state.slots[e, slot, st.SERIAL]])
    if code > 0:
        reprice(world, state, e, False, scratch)
    state.event[e, st.EVENT] = st.NO_EVENT
    return int(code)


@kernel(allocates=True)
def calibrate(world: WorldArrays, state: StateArrays, scratch: Scratch) -> None:
    """Let what is believed of running tasks agree with the step times that were measured of them.

    ``state`` is one spare copy, and ends in disorder.
    """
    load = np.zeros((world.base.shape[1], world.base.shape[1]))
    link_load(state, 0, load)
    for slot in range(state.slots.shape[1]):
        if state.slots[0, slot, st.STATUS] != st.RUNNING or state.tasks[0, slot, st.STEP] <= 0.0:
            continue
        measured = state.tasks[0, slot, st.STEP]
        price(world, state, 0, slot, load, scratch)
        ratio = measured / state.tasks[0, slot, st.STEP]
        for f in range(3):
            world.pool[state.slots[0, slot, st.POOL], st.P_FACTORS + f] *= ratio


@kernel(allocates=True)
def draw_links(
    now: FloatArray, bound: float, decay: float, noise: float, rho: float, stream: StreamState, out: FloatArray
) -> None:
    """Write a path of the links' bandwidth over base, row 0 as it is, shape ``(T, K, K)``."""
    latent = now.copy()
    for row in range(out.shape[0]):
        if row > 0:
            ou_advance(latent, decay, noise, rho, stream)
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                epsilon = min(max(latent[i, j], -bound), bound) if i != j else 0.0
                out[row, i, j] = 1.0 + epsilon


@kernel
def draw_arrivals(
    kind: int, params: FloatArray, now_s: float, until_s: float, stream: StreamState, many: int, times: FloatArray,
    instances: IntArray,
) -> int:  # fmt: skip
    """Write when tasks come and which; returns how many do."""
    nothing = times[:0]
    count = 0
    time_s = next_arrival(kind, params, nothing, 0, now_s, stream)
    while time_s < until_s and count < times.size:
        times[count] = time_s
        instances[count] = integers(stream, many)
        count += 1
        time_s = next_arrival(kind, params, nothing, 0, time_s, stream)
    return count
