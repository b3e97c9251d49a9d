"""The fork: copies of a cluster at one moment, one thing changed in each, all played on under the same futures.

    Δ(change) = what the tasks earn and use in the changed copy − what they do in the unchanged one

A future is written down before anything is played: arrivals, bandwidth of the links, ends of failures, and what every
task present truly demands, each drawn from what may be known at the moment (:mod:`~attribution_sched.cluster.decision`)
by a stream of its own purpose and, for tasks, of its own task. Copies only read it: nothing that happens in one of them
can shift what the others meet, and nothing of the real future or of the real demands is there to be read. Two copies
with nothing changed are equal to the last bit.

Budgets are copies, futures and followed decisions, never seconds: the same seed gives the same answer on any machine.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol, get_args

import numpy as np

from attribution_sched.cluster.arrivals import ArrivalKind, Poisson, next_arrival
from attribution_sched.cluster.cost import Scratch, make_scratch
from attribution_sched.cluster.decision import ArrivalLaw, Moment
from attribution_sched.cluster.demands import draw_demands
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import (
    LEDGER_COLUMNS,
    book_decision,
    conclude,
    enact,
    link_load,
    offer_queue,
    price,
    release,
    reprice,
    signal_hour,
)
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.incidents import I_END, I_START, DomainLoss, pack
from attribution_sched.cluster.interference import PCIE_BYTES_PER_S
from attribution_sched.cluster.objective import BUDGETS
from attribution_sched.cluster.philly import BELIEVED_AT_S, Philly, PhillyWeek, believed_by_age_s
from attribution_sched.cluster.plan import MAX_PP, Plan, layout_table
from attribution_sched.cluster.recorded import ALIKE_ONE, ALIKE_WIDE, SESSION_GAP_S, Recorded, lengths_before, levels_of
from attribution_sched.cluster.reward import total_of
from attribution_sched.cluster.signals import asked_at, possible
from attribution_sched.cluster.streams import StreamState, integers
from attribution_sched.cluster.wan import fail_links, ou_advance
from attribution_sched.cluster.world import TaskPool, World, build_pool, task_working, working_shares
from attribution_sched.errors import PlanError, SettingsError, problem
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.limits import MOST_DEVICES
from attribution_sched.types import BoolArray, FloatArray, IntArray, Task

# ------ Quotas, budgets, the share rule, holds and tasks' own limits: copies obey what a system obeys

# The laws of SimulatedCluster, compiled: a tenant whose budget is used up or whose devices are all taken is not asked
# about; one that holds its share is asked about after those below theirs; nothing that runs is stopped. A task on
# hold is not asked about before its time.

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


# ------ Copies of a cluster, compiled: how one begins with a change, and the futures that all of them meet

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


@kernel(allocates=True)
def draw_failures(
    now: FloatArray, fails: float, stays_down: float, left: float, stream: StreamState, out: FloatArray
) -> None:
    """Leave of a path of the links, shape ``(T, K, K)``, what failures and repairs leave of it, row 0 as it is."""
    down = now.copy()
    for row in range(out.shape[0]):
        if row > 0:
            fail_links(down, fails, stays_down, stream)
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                if down[i, j] > 0.0:
                    out[row, i, j] *= left


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


# ------ Futures of a moment: what may come, drawn from what may be known, written down before anything is played
#
# Every stream has a purpose (arrivals, links, their failures, ends of incidents), and what a task present truly demands
# is drawn by a stream of that task: leaving one out, or adding one, shifts nothing for the others.

FACTORS = 4
"""What is believed of a task: logarithms of its compute, memory and host time and of its input traffic over nominal."""

LAW_SEED = 777_001
"""Seed of the tasks that futures draw from: the world's law of tasks, never the instances that will really come."""

LEAST_FAILURE_S = 3600.0
"""A failure under way is expected to last as long again as it has lasted, and at least this long."""


@dataclass(frozen=True, eq=False)
class Belief:
    """What is believed of n tasks, normal in logarithms.

    Attributes:
        mean: Shape ``(n, 4)``, order of :data:`FACTORS`.
        root: Lower triangular root of the covariance, shape ``(n, 4, 4)``.
        pace: Logarithm of how much longer than nominal each is expected to compute, as the follower reads it, ``(n,)``.
    """

    mean: FloatArray
    root: FloatArray
    pace: FloatArray


class Beliefs(Protocol):
    """What may be believed of tasks."""

    @property
    def pool(self) -> FloatArray:
        """Tasks that may come, rows as the engine takes them, shape ``(n, 10)``."""
        ...

    @property
    def pool_believed(self) -> FloatArray:
        """What followers will believe of them, as in :class:`Copies`, shape ``(n, 4)``."""
        ...

    def of(self, tasks: Sequence[Task]) -> Belief:
        """What is believed of tasks that are here."""
        ...


class PriorBeliefs:
    """Nothing is known of a task but its kind: the law of demands itself.

    Args:
        world: Whose kinds.
        draws: Simulated tasks of every kind that the law is read off.
    """

    def __init__(self, world: World, draws: int = 256) -> None:
        pool = law_pool(world)
        inputs = np.array([kind.model.layers[0].input_elements for kind in world.kinds], dtype=np.float64)
        self.inputs = inputs
        working = working_shares(world.kinds, pool.kinds, pool.counters.values)
        self.pool = pool_rows(pool.kinds, pool.steps, pool.demands.factors, pool.demands.ratio[:, 3], inputs, working)
        self.pool_believed = with_history(np.zeros((len(pool), FACTORS)), world, pool.tenants)
        rng = np.random.default_rng(LAW_SEED)
        self.mean, self.root = np.zeros((len(world.kinds), FACTORS)), np.zeros((len(world.kinds), FACTORS, FACTORS))
        for k, kind in enumerate(world.kinds):
            drawn = draw_demands([kind.model] * draws, rng, world.idiosyncrasy, training=kind.training)
            logs = np.log(np.column_stack([drawn.factors, drawn.ratio[:, 3]]))
            self.mean[k], self.root[k] = logs.mean(axis=0), covariance_root(logs)

    def of(self, tasks: Sequence[Task]) -> Belief:
        """The law of each task's kind."""
        kinds = np.array([task.kind_index for task in tasks], dtype=np.int64)
        return Belief(self.mean[kinds], self.root[kinds], np.zeros(len(kinds)))


LAW_TASKS = 512
"""Tasks that stand for a log's law."""


def law_pool(world: World) -> TaskPool:
    """Tasks of the world's law: other instances than its own, and none of those that a recording still holds."""
    if isinstance(world.arrivals, Philly | PhillyWeek):
        # Constants fitted to the log before its test weeks: tenants, requests and durations as they may be known.
        return build_pool(replace(world, pool_seed=LAW_SEED, arrivals=Philly(1.0), pool_size=LAW_TASKS))
    return build_pool(replace(world, pool_seed=LAW_SEED, arrivals=Poisson(1.0)))


def covariance_root(logs: FloatArray) -> FloatArray:
    """Root of the covariance of rows ``(n, 4)``; a number that does not vary stays as it is."""
    spread = np.cov(logs.T) + 1e-12 * np.eye(logs.shape[1])
    return np.asarray(np.linalg.cholesky(spread))


def pool_rows(
    kinds: IntArray, steps: FloatArray, factors: FloatArray, pcie: FloatArray, inputs: FloatArray, working: FloatArray
) -> FloatArray:
    """Rows of the engine's pool of tasks, shape ``(n, 10)``; as urgent as their kind, and no measured jobs."""
    rows = np.zeros((len(kinds), st.POOL_COLUMNS))
    rows[:, st.P_WORKING] = working
    rows[:, st.P_KIND], rows[:, st.P_STEPS] = kinds, steps
    rows[:, st.P_FACTORS : st.P_FACTORS + 3] = factors
    rows[:, st.P_TYPE] = -1.0
    rows[:, st.P_PCIE] = inputs[kinds] * pcie * 4.0 / PCIE_BYTES_PER_S
    return rows


def with_history(believed: FloatArray, world: World, tenants: Sequence[str]) -> FloatArray:
    """What is believed of tasks, and beside it what their tenants' histories say is left of them, by age."""
    if not isinstance(world.arrivals, Philly | PhillyWeek):
        return believed
    # In a quiet future nobody comes: no rows, and still as many columns.
    by_age = np.array([believed_by_age_s(tenant) for tenant in tenants]).reshape(len(tenants), len(BELIEVED_AT_S))
    return np.column_stack([believed, by_age])


@kernel
def believed_left(world: WorldArrays, state: StateArrays, e: int, slot: int, believed: FloatArray) -> float:
    """Steps left of a task as whoever decides may know them: what a future has drawn shows only when it ends."""
    left: float = state.tasks[e, slot, st.LEFT]
    row = state.slots[e, slot, st.POOL]
    if believed.shape[1] <= FACTORS or np.isnan(believed[row, FACTORS]):
        return left
    done = max(0.0, world.pool[row, st.P_STEPS] - left)
    last = len(BELIEVED_AT_S) - 1
    for i in range(last):
        if done < BELIEVED_AT_S[i + 1]:
            part = (done - BELIEVED_AT_S[i]) / (BELIEVED_AT_S[i + 1] - BELIEVED_AT_S[i])
            told: float = (1.0 - part) * believed[row, FACTORS + i] + part * believed[row, FACTORS + i + 1]
            return told
    oldest: float = believed[row, FACTORS + last]
    return oldest


@dataclass(frozen=True, eq=False)
class Future:
    """One future of a moment, written down.

    Attributes:
        pool: Tasks present, added and coming, shape ``(T, 8)``.
        believed: As in :class:`Copies`.
        arrival_times_s: When task t comes, shape ``(T,)``; 0 for those present.
        link_times_s: When bandwidth changes, shape ``(L,)``.
        links: Bandwidth over base from then on, shape ``(L, K, K)``.
        incidents: Failures under way, with an end.
        signals: Prices of electricity and carbon by the hour from the present one on, shape ``(2, H, K)``.
        left: Steps that each task present has left, shape ``(n,)``; NaN where that is known.
        partners: Speed of each task beside each other one, over its speed alone, shape ``(T, T)``; 0 where the two are
            not to be put together, and no rows where nothing is believed of pairs.
        jobs: Rows of :class:`WorldArrays` for the same tasks, shape ``(T, 6)``.
    """

    pool: FloatArray
    believed: FloatArray
    arrival_times_s: FloatArray
    link_times_s: FloatArray
    links: FloatArray
    incidents: FloatArray
    signals: FloatArray
    left: FloatArray
    partners: FloatArray
    jobs: FloatArray


class PairTable(Protocol):
    """What is believed of tasks that share devices."""

    def of(self, tasks: Sequence[Task], coming: IntArray) -> tuple[FloatArray, FloatArray]:
        """Speeds ``(T, T)`` and job rows ``(T, 6)`` of tasks present, then of those of the law's pool that come."""
        ...


MOST_ARRIVALS = 4096
"""Tasks that may come in one future."""

MOST_FUTURES = 100_000
"""Numbers of futures lie below this."""


def draw_futures(
    moment: Moment, beliefs: Beliefs, futures: int | Sequence[int], until_s: float, seed: int,
    added: Sequence[Task] = (), tasks: Mapping[int, Task] | None = None, arrive_until_s: float | None = None,
    pairs: PairTable | None = None, coming: Sequence[Task] | None = None,
) -> list[Future]:  # fmt: skip
    """Draw futures of a moment; future i depends on the seed and on i only, and what a task demands on itself too.

    Args:
        moment: What is known.
        beliefs: Of its tasks and of those that will come.
        futures: How many, or the numbers of those wanted.
        until_s: How far they reach.
        seed: Of all streams.
        added: Tasks that some copies have beside those present.
        tasks: Slot → record to go by instead of the moment's own, for example with other attributions.
        arrive_until_s: When tasks stop coming; ``until_s`` by default.
        pairs: What is believed of tasks on the same devices.
        coming: Tasks that come, by their ``arrived_s``, and no others; drawn from the law of arrivals by default.
    """
    numbers = numbers_of(futures)
    most = int(numbers.max()) + 1
    given = moment.tasks if tasks is None else {**moment.tasks, **{k: v for k, v in tasks.items() if k in moment.tasks}}
    order = resident_slots(moment)
    known_to_come = sorted(coming or (), key=lambda task: task.arrived_s)
    records = [given[slot] for slot in order] + list(added) + known_to_come
    keys = [moment_key(moment, slot, i) for i, slot in enumerate([*order, *(-1 for _ in added)])]
    keys += [2**31 + 2**24 + task.number for task in known_to_come]
    believed = beliefs.of(records) if records else Belief(np.zeros((0, 4)), np.zeros((0, 4, 4)), np.zeros(0))
    normals = np.stack(
        [np.random.default_rng([seed, 1, key]).standard_normal((most, FACTORS)) for key in keys]
        or [np.zeros((most, 0))],
        axis=1,
    )[numbers]
    known = moment.arrays.pool[list(order)] if order else np.zeros((0, st.POOL_COLUMNS))
    fresh = np.zeros((len(added) + len(known_to_come), st.POOL_COLUMNS))
    fresh[:, st.P_TYPE] = -1.0
    for i, task in enumerate([*added, *known_to_come]):
        fresh[i, st.P_KIND], fresh[i, st.P_STEPS] = task.kind_index, task.steps
        fresh[i, st.P_RAISED] = task.priority - moment.world.kinds[task.kind_index].priority
        if task.deadline_s is not None:
            fresh[i, st.P_ALLOWED_S] = max(0.0, task.deadline_s - max(moment.now_s, task.arrived_s))
    facts = np.concatenate([known, fresh])
    kinds = facts[:, st.P_KIND].astype(np.int64)
    facts[:, st.P_WORKING] = [task_working(moment.world.kinds, task) for task in records]
    inputs = np.array([kind.model.layers[0].input_elements for kind in moment.world.kinds], dtype=np.float64)
    signals = _signals(moment, until_s, seed, numbers)
    told = np.column_stack([believed.pace, believed.mean[:, : FACTORS - 1]])
    here = np.zeros(len(records))
    here[len(order) + len(added) :] = [task.arrived_s for task in known_to_come]
    told = with_history(told, moment.world, [task.tenant for task in records])
    come = beliefs.pool_believed
    if come.shape[1] < told.shape[1]:
        come = np.column_stack([come, np.full((len(come), told.shape[1] - come.shape[1]), np.nan)])
    done = np.maximum(0.0, known[:, st.P_STEPS] - moment.state.tasks[0, list(order), st.LEFT])
    recorded = _recorded(moment, order, done)
    left = _left(moment, order, done, seed, numbers, recorded)
    drawn = []
    for f, number in enumerate(numbers.tolist()):
        logs = believed.mean + np.einsum("tij,tj->ti", believed.root, normals[f].reshape(len(records), FACTORS))
        ratios = np.exp(logs)
        rows = facts.copy()
        rows[:, st.P_FACTORS : st.P_FACTORS + 3] = ratios[:, :3]
        rows[:, st.P_PCIE] = inputs[kinds] * ratios[:, 3] * 4.0 / PCIE_BYTES_PER_S
        # What was done and what is left are all there is of a task: the request told only what was believed.
        rows[: len(order), st.P_STEPS] = np.where(np.isnan(left[f]), rows[: len(order), st.P_STEPS], done + left[f])
        times, instances, more, told_more = np.zeros(0), np.zeros(0, dtype=np.int64), beliefs.pool[:0], come[:0]
        if coming is None:
            until = until_s if arrive_until_s is None else arrive_until_s
            times, instances, more, told_more = _arrivals(moment, beliefs, come, until, seed, number, recorded)
        link_times, links = _links(moment, until_s, seed, number)
        pool = np.concatenate([rows, more])
        speeds, jobs = _NOBODY if pairs is None else pairs.of(records, instances)
        if len(speeds):
            # In a future every task is a job of its own, with what is believed of it beside each of the others.
            pool[:, st.P_TYPE] = np.arange(len(pool))
        drawn.append(
            Future(
                pool,
                np.concatenate([told, told_more]),
                np.concatenate([here, times]),
                link_times,
                links,
                _incidents(moment, seed, number),
                signals[f],
                left[f],
                speeds,
                jobs,
            )
        )
    return drawn


_NOBODY: tuple[FloatArray, FloatArray] = (np.zeros((0, 0)), np.zeros((0, 6)))


def _left(
    moment: Moment, order: Sequence[int], done_s: FloatArray, seed: int, numbers: IntArray, recorded: Recorded | None
) -> FloatArray:  # fmt: skip
    """Steps left of the tasks present, shape ``(F, n)``; NaN where they are known.

    Of one that only its tenant's history tells of, one of those that go on. Tasks of one session of a recorded log take
    about as long as each other, and so they do in a future.
    """
    most, found = int(numbers.max()) + 1, np.full((len(numbers), len(order)), np.nan)
    if not isinstance(moment.world.arrivals, Philly | PhillyWeek):
        return found
    last: dict[tuple[str, bool], tuple[float, int]] = {}
    for i, slot in enumerate(order):
        task, key = moment.tasks[slot], moment_key(moment, slot, i)
        whose = task.tenant, moment.world.kinds[task.kind_index].batch_size > 1
        if recorded is None:
            levels = np.random.default_rng([seed, 6, key]).random(most)[numbers]
            found[:, i] = lengths_before(*whose).left_s(float(done_s[i]), levels)
            continue
        came_s = float(moment.state.tasks[0, slot, st.ARRIVAL])
        before_s, session = last.get(whose, (-math.inf, key))
        session = session if came_s - before_s < SESSION_GAP_S else key
        last[whose] = came_s, session
        own, shared = (
            np.random.default_rng([seed, 6 + n, k]).standard_normal(most)[numbers] for n, k in ((1, key), (2, session))
        )
        alike = ALIKE_WIDE if whose[1] else ALIKE_ONE
        levels = levels_of(math.sqrt(alike) * shared + math.sqrt(1.0 - alike) * own)
        found[:, i] = recorded.lengths(*whose).left_s(float(done_s[i]), levels)
    return found


def _recorded(moment: Moment, order: Sequence[int], done_s: FloatArray) -> Recorded | None:
    """What may come after a moment of a recorded log; None for a law."""
    arrivals = moment.world.arrivals
    if not isinstance(arrivals, PhillyWeek):
        return None
    past_s = np.zeros(0) if moment.law is None else moment.law.past_s
    running = [
        (moment.tasks[slot].tenant, moment.world.kinds[moment.tasks[slot].kind_index].batch_size > 1, float(done_s[i]))
        for i, slot in enumerate(order)
    ]
    return Recorded(arrivals, past_s, moment.lasted, running)


def resident_slots(moment: Moment) -> list[int]:
    """Slots of the tasks present, in order of arrival."""
    slots = moment.state.slots[0]
    present = np.flatnonzero(slots[:, st.STATUS] != st.FREE)
    return [int(slot) for slot in present[np.argsort(slots[present, st.SERIAL], kind="stable")]]


def moment_key(moment: Moment, slot: int, at: int) -> int:
    """What the draws about a task hang on: the task, wherever it stands."""
    return int(moment.state.slots[0, slot, st.SERIAL]) if slot >= 0 else 2**31 + at


def arrivals_per_s(law: ArrivalLaw, now_s: float) -> float:
    """How often tasks come, on average; a recording tells no more than how often they have come."""
    if law.kind == ArrivalKind.TRACE:
        return len(law.past_s) / now_s if now_s > 0.0 else 0.0
    return float(law.params[0])


def within_arrivals(moment: Moment, hours: float, most: float) -> float:
    """So many hours, or fewer where more than ``most`` tasks are expected to come in them: a budget in tasks."""
    rate = 0.0 if moment.law is None else arrivals_per_s(moment.law, moment.now_s)
    return min(hours, most / rate / 3600.0) if rate > 0.0 else hours


def _arrivals(
    moment: Moment, beliefs: Beliefs, believed: FloatArray, until_s: float, seed: int, future: int,
    recorded: Recorded | None,
) -> tuple[FloatArray, IntArray, FloatArray, FloatArray]:  # fmt: skip
    """When tasks come, which of the law's pool, their rows of the engine's pool, and what is believed of them."""
    law = moment.law
    if law is None:
        return np.zeros(0), np.zeros(0, dtype=np.int64), beliefs.pool[:0], believed[:0]
    if recorded is not None:
        rng = np.random.default_rng([seed, 2, future])
        coming = recorded.coming(moment.now_s, until_s, MOST_ARRIVALS, rng)
        requests = np.array([kind.batch_size for kind in moment.world.kinds])
        asked = requests[beliefs.pool[:, st.P_KIND].astype(np.int64)]
        instances = rng.integers(len(beliefs.pool), size=len(coming.times_s))
        for size in np.unique(coming.devices):
            own, alike = np.flatnonzero(coming.devices == size), np.flatnonzero(asked == size)
            if len(alike):
                instances[own] = rng.choice(alike, size=len(own))
        rows = beliefs.pool[instances]
        rows[:, st.P_STEPS] = coming.lasts_s
        return (
            coming.times_s,
            instances,
            rows,
            with_history(believed[instances, :FACTORS], moment.world, coming.tenants),
        )
    kind, params = law.kind, law.params
    if kind == ArrivalKind.TRACE:
        rate = arrivals_per_s(law, moment.now_s)
        if rate == 0.0:
            return np.zeros(0), np.zeros(0, dtype=np.int64), beliefs.pool[:0], believed[:0]
        kind, params = int(ArrivalKind.POISSON), np.array([rate, 0.0, 0.0, 86_400.0, 0.0, 0.0, 1.0])
    times, instances = np.zeros(MOST_ARRIVALS), np.zeros(MOST_ARRIVALS, dtype=np.int64)
    stream = np.random.SeedSequence([seed, 2, future]).generate_state(4, np.uint64)
    count = draw_arrivals(kind, params, moment.now_s, until_s, stream, len(beliefs.pool), times, instances)
    at = instances[:count]
    return times[:count], at, beliefs.pool[at], believed[at]


def _links(moment: Moment, until_s: float, seed: int, future: int) -> tuple[FloatArray, FloatArray]:
    arrays, clock = moment.arrays, moment.state.clock[0]
    times = [float(clock[st.LAST_TICK]) - 1e-6]
    tick_s = float(clock[st.NEXT_TICK])
    while tick_s < until_s:
        times.append(tick_s - 1e-6)
        tick_s += arrays.tick_s
    k = arrays.base.shape[1]
    path = np.ones((len(times), k, k))
    if len(arrays.trace_times_s):
        # What was recorded so far is what may come again, a stretch of it at a time.
        rng = np.random.default_rng([seed, 3, future])
        seen = arrays.trace_multiplier
        path[0] = seen[-1]
        rows = (rng.integers(len(seen)) + np.arange(len(times) - 1)) % len(seen)
        path[1:] = seen[rows]
        return np.array(times), path
    latent = np.clip(moment.state.links[0, 0], -arrays.ou_bound, arrays.ou_bound)
    stream = np.random.SeedSequence([seed, 3, future]).generate_state(4, np.uint64)
    draw_links(latent, arrays.ou_bound, arrays.ou_decay, arrays.ou_noise, arrays.ou_correlation, stream, path)
    if arrays.fails > 0.0:
        # That a link is down now shows; when it will be repaired, or another fails, is drawn by the law.
        stream = np.random.SeedSequence([seed, 9, future]).generate_state(4, np.uint64)
        down = moment.state.links[0, st.DOWN]
        draw_failures(down, arrays.fails, arrays.stays_down, arrays.down_left, stream, path)
    return np.array(times), path


def _incidents(moment: Moment, seed: int, future: int) -> FloatArray:
    found = moment.arrays.incidents.copy()
    if len(found):
        rng = np.random.default_rng([seed, 4, future])
        lasted = np.maximum(LEAST_FAILURE_S, moment.now_s - found[:, I_START])
        found[:, I_END] = moment.now_s + rng.exponential(lasted)
    return found


def _signals(moment: Moment, until_s: float, seed: int, numbers: IntArray) -> FloatArray:
    """What electricity and carbon may come to, as ratios like ``WorldArrays.signals``, shape ``(n, 2, H, K)``."""
    domains, reward = moment.world.cluster.domains, moment.world.reward
    now = moment.arrays.signals
    if all(domain.carbon is None and domain.electricity is None for domain in domains):
        # Copied, not broadcast: kernels are compiled once more for an array that nobody may write to.
        return np.repeat(now[None], len(numbers), axis=0)
    tick_s = float(moment.state.clock[0, st.LAST_TICK])
    began_s = math.floor(tick_s / st.HOUR_S) * st.HOUR_S
    hours = math.ceil((until_s - began_s) / st.HOUR_S) + 1
    # What nothing changes by the hour stays as it is now.
    found = np.repeat(np.repeat(now[None, :, :1], len(numbers), axis=0), hours, axis=2)
    draws = [np.random.default_rng([seed, 5, number]) for number in numbers.tolist()]
    for k, domain in enumerate(domains):
        told = ((domain.electricity, reward.energy_usd_per_kwh), (domain.carbon, domain.carbon_g_per_kwh))
        for row, (signal, usual) in enumerate(told):
            if signal is not None:
                normals = np.stack([rng.standard_normal(hours) for rng in draws])
                found[:, row, :, k] = possible(signal, asked_at(signal, began_s, moment.now_s), normals) / usual
    return found


# ------ The fork: copies of a cluster at one moment, one thing changed in each, all played on under the same futures

# What may be changed -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choose:
    """A task gets a plan now: placed if it waits, moved if it runs; None lets it stay, or wait as :class:`Wait` does.

    Whoever goes on chooses among all that wait: were others offered at once, the task would be back at once, too.

    Attributes:
        task: Its slot in the cluster's table, or its id.
        plan: Where and how it runs.
    """

    task: int | str
    plan: Plan | None


@dataclass(frozen=True)
class Wait:
    """Nobody is placed now: all waiting tasks wait until something changes."""


@dataclass(frozen=True)
class Hold:
    """A waiting task is not asked about for some hours; others may be placed meanwhile.

    Attributes:
        task: Its slot, or its id.
        hours: How long.
    """

    task: int | str
    hours: float


@dataclass(frozen=True)
class Remove:
    """A task, waiting or running, is not there.

    Attributes:
        task: Its slot, or its id.
        others: Tasks that are not there either.
    """

    task: int | str
    others: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Add:
    """One more task waits.

    Attributes:
        task: Its record; ``kind_index`` and ``steps`` count, and what was measured of it.
    """

    task: Task


@dataclass(frozen=True)
class Devices:
    """A domain has more or fewer devices from now on; tasks on devices that go return to the queue.

    Attributes:
        domain: Its index.
        more: How many more; negative for fewer.
    """

    domain: int
    more: int


@dataclass(frozen=True)
class Lose:
    """A domain is gone from the next tick of the network on; what runs there returns to the queue.

    Attributes:
        domain: Its index.
    """

    domain: int


@dataclass(frozen=True)
class Link:
    """A link carries another bandwidth from now on, both ways, moving as before.

    Attributes:
        source: Index of the domain at one end.
        target: Index of the domain at the other.
        factor: Of its base bandwidth.
    """

    source: int
    target: int
    factor: float


@dataclass(frozen=True)
class Price:
    """Other prices from now on; None leaves one as it is. What R_cost is compared with stays.

    Attributes:
        energy_usd_per_kwh: Of energy inside R_cost.
        carbon_usd_per_kg: Of carbon inside R_cost.
        traffic_factor: On the price of traffic over every link.
    """

    energy_usd_per_kwh: float | None = None
    carbon_usd_per_kg: float | None = None
    traffic_factor: float = 1.0


@dataclass(frozen=True, eq=False)
class Follow:
    """Somebody else decides from now on."""

    follower: Follower


Change = Choose | Wait | Hold | Remove | Add | Devices | Lose | Link | Price | Follow


# Who plays on, and what is believed ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Copies:
    """Copies of one cluster in one future, ready to be played on.

    Attributes:
        world: Constants; arrivals, links and demands are this future's.
        state: The copies.
        begin: How each begins (:data:`CHOOSE` …), shape ``(n,)``; carried out by :func:`begin_copy`.
        slot: The task that is about, shape ``(n,)``.
        action: What is done with it, shape ``(n, P, 5)``.
        believed: What followers believe of each task of the future's pool, shape ``(T, 4)``: how much longer than
            nominal it takes as the rule reads it, and its compute, memory and host time over nominal, in logarithms.
        ledger: Output, per copy and task, columns ``LEDGER_COLUMNS``, shape ``(n, T, 8)``.
        ends: Output, R_eff, R_util and R_cost that tasks still present can expect beyond the horizon, ``(n, 3)``.
        code: Output, what the first decision came to (``CODES``), shape ``(n,)``.
        paid_by_work: Whether reward is paid as work gets done.
        scratch: Buffers.
        tasks: Record of every task of the future's pool that has one.
        present: Which tasks of the future's pool each copy has or will have, shape ``(n, T)``.
        limits: What tenants may use, and tasks on hold.
        partners: As in :class:`Future`: what followers believe of tasks that share devices.
    """

    world: WorldArrays
    state: StateArrays
    begin: IntArray
    slot: IntArray
    action: IntArray
    believed: FloatArray
    ledger: FloatArray
    ends: FloatArray
    code: IntArray
    paid_by_work: bool
    scratch: Scratch
    tasks: Mapping[int, Task]
    present: BoolArray
    limits: TenantLimits = field(default_factory=no_limits)
    partners: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))


class Follower(Protocol):
    """Who decides in the copies after the change."""

    def play(self, copies: Copies) -> int:
        """Begin the copies and play them to their horizon; returns how many decisions that took."""
        ...

    def elsewhere(self, world: World) -> Follower:
        """The same follower for a cluster with other devices."""
        ...


# What comes out ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fork:
    """What became of a cluster and of its changed copies; copy 0 is the unchanged one.

    C changes, F futures, T tasks (those present, then those added). Rewards in the world's units, without weights.

    Attributes:
        changes: What was changed in copies 1 … C.
        tasks: The tasks, by slot; added ones have −1.
        names: Their ids.
        ledger: Per task, shape ``(C + 1, F, T, 8)``, columns ``LEDGER_COLUMNS``; a start or an end beyond the horizon
            is NaN.
        totals: Sums over all tasks, those that came meanwhile included, shape ``(C + 1, F, 8)``; times are NaN.
        ends: R_eff, R_util and R_cost that unfinished tasks can expect beyond the horizon, shape ``(C + 1, F, 3)``.
        codes: What the first decision came to, shape ``(C + 1, F)``; negative is a refusal.
        began_s: When the copies were made.
        until_s: How far they were played.
        decisions: Decisions that were followed.
        seed: Of the futures.
        waited_s: Seconds from now on that all tasks waited for their start, shape ``(C + 1, F)``.
        stayed_s: Seconds from now on that all tasks took to their end, the horizon for those without, ``(C + 1, F)``.
        finished: Tasks that ended, shape ``(C + 1, F)``.
        met: Tasks present, added or come before the horizon, shape ``(C + 1, F)``.
        weights: Of R.
    """

    changes: tuple[Change, ...]
    tasks: tuple[int, ...]
    names: tuple[str, ...]
    ledger: FloatArray
    totals: FloatArray
    ends: FloatArray
    codes: IntArray
    began_s: float
    until_s: float
    decisions: int
    seed: int
    waited_s: FloatArray
    stayed_s: FloatArray
    finished: IntArray
    met: IntArray
    weights: FloatArray = field(default_factory=lambda: np.ones(3))

    def of(self, quantity: str) -> FloatArray:
        """A column of the ledger by name, shape ``(C + 1, F, T)``; times beyond the horizon count as the horizon."""
        column = self.ledger[..., LEDGER_COLUMNS.index(quantity)]
        return np.where(np.isnan(column), self.until_s, column) if quantity.endswith("_s") else column

    def delta(self, quantity: str) -> FloatArray:
        """Changed minus unchanged, shape ``(C, F, T)``."""
        column = self.of(quantity)
        return np.asarray(column[1:] - column[:1])

    @cached_property
    def returns(self) -> FloatArray:
        """R that each copy earned in each future, what unfinished tasks can expect included, shape ``(C + 1, F)``."""
        return total_of(self.totals[..., 2:5] + self.ends, self.weights)

    @cached_property
    def gains(self) -> FloatArray:
        """R of the changed copies over the unchanged one, paired by future, shape ``(C, F)``."""
        return np.asarray(self.returns[1:] - self.returns[:1])


# The fork ------------------------------------------------------------------------------------------------------------


def fork(
    state: Moment,
    changes: Sequence[Change],
    futures: int | Sequence[int],
    hours: float,
    follower: Follower,
    seed: int,
    *,
    beliefs: Beliefs | None = None,
    tasks: Mapping[int, Task] | None = None,
    drain_hours: float = 0.0,
    unchanged: bool = True,
    pairs: PairTable | None = None,
    coming: Sequence[Task] | None = None,
) -> Fork:
    """Copy a cluster, change one thing in each copy, and play all of them on under the same futures.

    Args:
        state: The cluster at a moment; a decision carries it as ``decision.moment``.
        changes: One per copy; an unchanged copy is played beside them.
        futures: How many futures each copy meets, or the numbers of those it is to meet: future i is the same one
            in every call with the same seed.
        hours: How far to play, or to the end of the episode if that comes first.
        follower: Who decides after the change.
        seed: Of the futures.
        beliefs: What is believed of tasks; only their kind by default.
        tasks: Slot → record to go by instead of the moment's, for example with other attributions.
        drain_hours: How long to play on after ``hours`` without new tasks.
        unchanged: Whether to play the unchanged copy; without it, its row is empty.
        pairs: What is believed of tasks on the same devices; without it followers put nobody beside another.
        coming: Tasks that come after the moment, by their ``arrived_s``, where that is known, as on a day that is over:
            no others do, and they stand in the result behind those present and added. Drawn by default.

    Raises:
        SettingsError: If there are no futures, no time, or a change that does not go with the cluster.
        PlanError: If a task is not there any more, or a plan is not one of this world's.
    """
    _check(state, futures, hours, drain_hours, seed)
    numbers = numbers_of(futures)
    played = len(numbers)
    beliefs = PriorBeliefs(state.world) if beliefs is None else beliefs
    stop_s = state.now_s + 3600.0 * hours
    until_s = min(state.ends_s, stop_s + 3600.0 * drain_hours)
    added = [change.task for change in changes if isinstance(change, Add)]
    later = sorted(coming or (), key=lambda task: task.arrived_s)
    for task in [*added, *later]:
        _check_added(state, task)
    order = resident_slots(state)
    t = len(order) + len(added)
    shown = t + len(later)
    stops_s = min(stop_s, until_s)
    drawn = draw_futures(state, beliefs, numbers.tolist(), until_s, seed, added, tasks, stops_s, pairs, coming)
    groups = _groups(state, changes, follower, unchanged)
    n = len(changes) + 1
    ledger = np.full((n, played, shown, len(LEDGER_COLUMNS)), np.nan)
    totals, ends = np.zeros((n, played, len(LEDGER_COLUMNS))), np.zeros((n, played, 3))
    codes, finished, met = (np.zeros((n, played), dtype=np.int64) for _ in range(3))
    waited_s, stayed_s = np.zeros((n, played)), np.zeros((n, played))
    decisions = 0
    scratch = _scratch(state)
    # The plan of a choice is the same in every future.
    written = {
        number: encode_plan(state, change.plan, state.tasks[slot_of(state, change.task)].kind_index)
        for number, change in enumerate(changes, start=1)
        if isinstance(change, Choose) and change.plan is not None
    }
    for f, future in enumerate(drawn):
        base = _future_world(state, future, until_s)
        if any((state.state.slots[0, :, st.STATUS] == st.RUNNING).tolist()):
            spare = _copies(state, base, [AS_IT_IS], order, t, future)
            calibrate(base, spare, scratch)
        at_added = 0
        for members, variant, who in groups:
            world, moved = variant.apply(base)
            copies = _stand(
                moved or state, world, members, changes, order, t, future, scratch, at_added, (), later, written
            )
            at_added += sum(isinstance(changes[m - 1], Add) for m in members if m)
            decisions += _play(who, copies)
            rows = np.array(members)
            ledger[rows, f], ends[rows, f], codes[rows, f] = copies.ledger[:, :shown], copies.ends, copies.code
            totals[rows, f] = copies.ledger.sum(axis=1)
            waited_s[rows, f], stayed_s[rows, f], finished[rows, f], met[rows, f] = _times(copies, state.now_s, until_s)
    if until_s >= state.ends_s:
        # Nothing counts beyond the end of an episode.
        ends[:] = 0.0
    reward = state.world.reward
    weights = np.array([reward.w_eff, reward.w_util, reward.w_cost])
    names = (*(state.tasks[slot].id for slot in order), *(task.id for task in [*added, *later]))
    slots = (*order, *(-1 for _ in [*added, *later]))
    return Fork(
        tuple(changes), slots, names, ledger, totals, ends, codes, state.now_s, until_s, decisions, seed, waited_s,
        stayed_s, finished, met, weights,
    )  # fmt: skip


def replay(
    moment: Moment, pool: FloatArray, arrival_s: FloatArray, until_s: float, follower: Follower,
    tenants: Sequence[str] = (),
) -> FloatArray:  # fmt: skip
    """Play a cluster on under arrivals that are written down: links as they are, nothing drawn.

    Args:
        moment: Where it begins; tasks present are played on with the rest.
        pool: Tasks that come, in order of arrival, rows as the engine takes them, shape ``(T, 9)``.
        arrival_s: When each comes, ascending, not before the moment, shape ``(T,)``.
        until_s: How far to play.
        follower: Who decides.
        tenants: Who asks for each of them, as quotas and the share rule tell them apart; by their kinds by default.

    Returns:
        Seconds that each task waited for its start, or to the end if it never started, shape ``(T,)``.
    """
    order = resident_slots(moment)
    t = len(order)
    known = moment.arrays.pool[list(order)] if order else np.zeros((0, pool.shape[1]))
    k = moment.arrays.base.shape[1]
    future = Future(
        np.concatenate([known, pool]), np.zeros((t + len(pool), FACTORS)), np.concatenate([np.zeros(t), arrival_s]),
        np.array([float(moment.state.clock[0, st.LAST_TICK]) - 1e-6]), np.ones((1, k, k)), moment.arrays.incidents,
        moment.arrays.signals, np.full(t, np.nan), *_NOBODY,
    )  # fmt: skip
    world = _future_world(moment, future, until_s)
    present = [moment.tasks[slot].tenant for slot in order]
    whose = [*present, *tenants] if tenants else ()
    copies = _stand(moment, world, [0], [], order, t, future, _scratch(moment), 0, whose)
    _play(follower, copies)
    start_s = copies.ledger[0, t:, 0]
    return np.asarray(np.clip(np.where(np.isnan(start_s), until_s, start_s) - arrival_s, 0.0, None))


def _times(copies: Copies, now_s: float, until_s: float) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Seconds that the tasks of every copy waited and stayed from now on, how many ended, and how many there were."""
    came_s = np.maximum(copies.world.arrival_times_s[: copies.ledger.shape[1]], now_s)
    start_s, finish_s = copies.ledger[..., 0], copies.ledger[..., 1]
    there = copies.present & (came_s < until_s)
    waited_s = np.where(there, np.clip(np.where(np.isnan(start_s), until_s, start_s) - came_s, 0.0, None), 0.0)
    stayed_s = np.where(there, np.clip(np.where(np.isnan(finish_s), until_s, finish_s) - came_s, 0.0, None), 0.0)
    ended = (there & np.isfinite(finish_s)).sum(axis=1)
    return waited_s.sum(axis=1), stayed_s.sum(axis=1), ended.astype(np.int64), there.sum(axis=1).astype(np.int64)


def _play(follower: Follower, copies: Copies) -> int:
    try:
        return operator.index(follower.play(copies))
    except SettingsError:
        raise
    except Exception as error:
        raise _failed(follower, "played copies on", error) from error


def slot_of(moment: Moment, task: int | str) -> int:
    """Slot of a task by its slot or id.

    Raises:
        PlanError: If it does not wait or run at this moment.
    """
    if isinstance(task, str):
        found = next((slot for slot, each in moment.tasks.items() if each.id == task), None)
    else:
        found = int(task) if int(task) in moment.tasks else None
    if found is None:
        listed = ", ".join(f"{slot}: {each.id or each.model}" for slot, each in sorted(moment.tasks.items()))
        rule = f"neither waits nor runs at this moment ({listed or 'nobody does'})"
        raise PlanError(problem("task", task, rule, "It may have finished: fork a moment at which it was there"))
    return found


def numbers_of(futures: int | Sequence[int]) -> IntArray:
    """Numbers of futures, of so many or as given."""
    return np.arange(futures) if isinstance(futures, int | np.integer) else np.asarray(futures, dtype=np.int64)


def _check(moment: Moment, futures: int | Sequence[int], hours: float, drain_hours: float, seed: int) -> None:
    if not isinstance(moment, Moment):
        raise SettingsError(problem("state", moment, "must be a Moment", "Fork a decision that carries its moment"))
    whole = isinstance(futures, int | np.integer) and not isinstance(futures, bool) and futures >= 1
    listed = isinstance(futures, range | list | tuple) and len(futures) > 0 and min(futures) >= 0
    if not (whole or listed):
        raise SettingsError(problem("futures", futures, "must be an integer >= 1", "Use 8"))
    last = numbers_of(futures).max()
    if last >= MOST_FUTURES:
        # What each task demands is drawn for all futures up to the last one.
        raise SettingsError(problem("futures", int(last), f"must lie below {MOST_FUTURES}", "Use futures from 0 on"))
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise SettingsError(problem("seed", seed, "must be an integer >= 0", "Use 0"))
    if not (math.isfinite(hours) and hours > 0.0):
        raise SettingsError(problem("hours", hours, "must be finite and > 0", "Use 6"))
    if not (math.isfinite(drain_hours) and drain_hours >= 0.0):
        raise SettingsError(problem("drain_hours", drain_hours, "must be finite and >= 0", "Use 0 for none"))
    for name in ("clock", "links", "tasks", "loads"):
        values = getattr(moment.state, name)[0]
        finite = np.isfinite(values) if name != "clock" else ~np.isnan(values)
        if not finite.all():
            at = [int(i) for i in np.argwhere(~finite)[0]]
            fix = "Repair what was observed before it is played on"
            raise SettingsError(problem(f"state.{name}{at}", float(values[tuple(at)]), "must be a number", fix))
    if moment.ends_s <= moment.now_s:
        raise SettingsError(problem("state", moment.now_s, "its episode is over", "Fork an earlier moment"))


def _check_change(change: object) -> None:
    """Refuse what is no change, and hours and prices that are no numbers."""
    if not isinstance(change, Change):
        names = ", ".join(each.__name__ for each in get_args(Change))
        raise SettingsError(problem("change", change, f"must be one of {names}", "Use the records of cluster.fork"))
    told: dict[str, float | None] = {}
    if isinstance(change, Hold):
        told = {"hold hours": change.hours}
    elif isinstance(change, Price):
        told = {
            "energy_usd_per_kwh": change.energy_usd_per_kwh, "carbon_usd_per_kg": change.carbon_usd_per_kg,
            "traffic_factor": change.traffic_factor,
        }  # fmt: skip
    for name, value in told.items():
        if value is not None and not (math.isfinite(value) and value >= 0.0):
            raise SettingsError(problem(name, value, "must be finite and >= 0", "Use 0 for none"))


def _elsewhere(follower: Follower, world: World) -> Follower:
    try:
        return follower.elsewhere(world)
    except SettingsError:
        raise
    except Exception as error:
        raise _failed(follower, "was asked about a cluster with other devices", error) from error


def _failed(follower: Follower, when: str, error: Exception) -> SettingsError:
    name = getattr(follower, "name", type(follower).__name__)
    rule = f"failed while it {when}: {type(error).__name__}: {error}"
    return SettingsError(problem("follower", name, rule, "Mend it, or follow by the rule"))


def _check_added(moment: Moment, task: Task) -> None:
    if not 0 <= task.kind_index < len(moment.world.kinds):
        rule = f"must lie in 0..{len(moment.world.kinds) - 1}"
        raise SettingsError(problem("added kind_index", task.kind_index, rule, "Use a kind of the world"))
    if not (math.isfinite(task.steps) and task.steps > 0):
        raise SettingsError(problem("added steps", task.steps, "must be finite and > 0", "Give the work in steps"))


class _Variant:
    """The world as some copies have it."""

    def __init__(self, moment: Moment, change: Change | None) -> None:
        self.change, self.now_s = change, moment.now_s
        self.moved: Moment | None = None
        self.world: World = moment.world
        if isinstance(change, Devices):
            self.moved = _with_devices(moment, change)
            self.world = self.moved.world
        elif isinstance(change, Lose):
            if not 0 <= change.domain < len(moment.world.cluster):
                rule = f"must lie in 0..{len(moment.world.cluster) - 1}"
                raise SettingsError(problem("domain", change.domain, rule, "Use its index"))
        elif isinstance(change, Link):
            k = moment.arrays.base.shape[1]
            if not (0 <= change.source < k and 0 <= change.target < k and change.source != change.target):
                given = (change.source, change.target)
                raise SettingsError(problem("link", given, f"must be two of 0..{k - 1}", "Use indices of domains"))
            if not (math.isfinite(change.factor) and change.factor > 0):
                raise SettingsError(
                    problem("link factor", change.factor, "must be finite and > 0", "Use 0.001 for a dead link")
                )

    def apply(self, world: WorldArrays) -> tuple[WorldArrays, Moment | None]:
        """A future's world with the change in it."""
        change = self.change
        if isinstance(change, Link):
            base = world.base.copy()
            for i, j in ((change.source, change.target), (change.target, change.source)):
                base[0, i, j] *= change.factor
            return world._replace(base=base), None
        if isinstance(change, Lose):
            lost = pack([DomainLoss(change.domain, self.now_s, math.inf)])
            return world._replace(incidents=np.concatenate([world.incidents, lost])), None
        if isinstance(change, Price):
            energy = world.energy_usd_per_j if change.energy_usd_per_kwh is None else change.energy_usd_per_kwh / 3.6e6
            carbon = world.carbon_usd_per_g if change.carbon_usd_per_kg is None else change.carbon_usd_per_kg / 1e3
            domains = world.domains._replace(
                price_usd_per_byte=world.domains.price_usd_per_byte * change.traffic_factor
            )
            return world._replace(energy_usd_per_j=energy, carbon_usd_per_g=carbon, domains=domains), None
        if self.moved is not None:
            own = self.moved.arrays
            kept = {name: getattr(world, name) for name in _OF_A_FUTURE}
            return own._replace(**kept), self.moved
        return world, None


_OF_A_FUTURE = (
    "pool", "jobs", "pair_speed", "arrival_kind", "arrival_times_s", "trace_times_s", "trace_multiplier",
    "trace_period_s", "incidents", "signals", "signals_from_h", "horizon_s",
)  # fmt: skip


def _groups(
    moment: Moment, changes: Sequence[Change], follower: Follower, unchanged: bool
) -> list[tuple[list[int], _Variant, Follower]]:
    """Copies that share their constants and who decides are played in one call."""
    plain = [0] if unchanged else []
    groups = [(plain, _Variant(moment, None), follower)]
    for number, change in enumerate(changes, start=1):
        _check_change(change)
        if isinstance(change, Choose | Wait | Hold | Remove | Add):
            plain.append(number)
        elif isinstance(change, Follow):
            groups.append(([number], _Variant(moment, None), change.follower))
        elif isinstance(change, Devices):
            variant = _Variant(moment, change)
            groups.append(([number], variant, _elsewhere(follower, variant.world)))
        else:
            groups.append(([number], _Variant(moment, change), follower))
    return [group for group in groups if group[0]]


def _future_world(moment: Moment, future: Future, until_s: float) -> WorldArrays:
    paired = len(future.partners) > 0
    return moment.arrays._replace(
        pool=future.pool,
        jobs=future.jobs if paired else moment.arrays.jobs,
        pair_speed=future.partners if paired else moment.arrays.pair_speed,
        arrival_kind=int(ArrivalKind.TRACE),
        arrival_times_s=future.arrival_times_s,
        trace_times_s=future.link_times_s,
        trace_multiplier=future.links,
        trace_period_s=0.0,
        incidents=future.incidents,
        signals=np.ascontiguousarray(future.signals),
        horizon_s=until_s,
    )


def _copies(
    moment: Moment, world: WorldArrays, members: Sequence[int], order: Sequence[int], t: int, future: Future
) -> StateArrays:
    """Copies of a moment's cluster in a future: task i of the future's pool has the serial number i."""
    n = len(members)
    state = StateArrays(**{name: np.repeat(array, n, axis=0) for name, array in moment.state._asdict().items()})
    for row, slot in enumerate(order):
        state.slots[:, slot, st.POOL] = row
        state.slots[:, slot, st.SERIAL] = row
        if not np.isnan(future.left[row]):
            state.tasks[:, slot, st.LEFT] = future.left[row]
    state.event[:, st.TAKEN] = t
    state.event[:, st.DONE] = 0
    state.totals[:] = 0.0
    times = world.arrival_times_s
    state.clock[:, st.NEXT_ARRIVAL] = times[t] if len(times) > t else math.inf
    return state


def _stand(
    moment: Moment, world: WorldArrays, members: Sequence[int], changes: Sequence[Change], order: Sequence[int], t: int,
    future: Future, scratch: Scratch, added: int, tenants: Sequence[str] = (), later: Sequence[Task] = (),
    written: Mapping[int, IntArray] | None = None,
) -> Copies:  # fmt: skip
    state = _copies(moment, world, members, order, t, future)
    if not tenants:
        tenants = _tenants(moment, changes, order, future, later)
    n, width = len(members), moment.world.max_segments
    begin, slot = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    action = np.zeros((n, width, 5), dtype=np.int64)
    action[:, :, 0] = len(moment.world.cluster)
    row = len(order) + added
    present = np.ones((n, len(future.pool)), dtype=np.bool_)
    present[:, len(order) : t] = False
    holds: dict[tuple[int, int], float] = {}
    for i, member in enumerate(members):
        change = changes[member - 1] if member else None
        if isinstance(change, Choose):
            slot[i] = slot_of(moment, change.task)
            begin[i] = CHOOSE
            if change.plan is None:
                runs = moment.state.slots[0, slot[i], st.STATUS] == st.RUNNING
                begin[i] = CHOOSE if runs else WAIT
            else:
                action[i] = (written or {})[member]
        elif isinstance(change, Wait):
            begin[i] = WAIT
        elif isinstance(change, Hold):
            begin[i], slot[i] = HOLD, slot_of(moment, change.task)
            if moment.state.slots[0, slot[i], st.STATUS] != st.QUEUED:
                rule = "runs: only a task that waits can be held back"
                raise PlanError(problem("held task", change.task, rule, "Hold one that waits, or remove it"))
            holds[i, list(order).index(int(slot[i]))] = moment.now_s + 3600.0 * change.hours
        elif isinstance(change, Remove):
            begin[i], slot[i] = REMOVE, slot_of(moment, change.task)
            present[i, list(order).index(int(slot[i]))] = False
            for other in change.others:
                gone = slot_of(moment, other)
                present[i, list(order).index(gone)] = False
                begin_copy(world, state, i, REMOVE, gone, action[i], False, np.zeros((1, len(LEDGER_COLUMNS))), scratch)
        elif isinstance(change, Add):
            _enter(moment, state, i, row, change.task)
            present[i, row] = True
            row += 1
    ledger = np.zeros((n, len(future.pool), len(LEDGER_COLUMNS)))
    ledger[:, :, :2] = np.nan
    for at, where in enumerate(order):
        if state.slots[0, where, st.STATUS] == st.RUNNING or state.tasks[0, where, st.EVICTED] > 0.0:
            ledger[:, at, 0] = state.tasks[:, where, st.STARTED]
    return Copies(
        world, state, begin, slot, action, future.believed, ledger, np.zeros((n, 3)), np.zeros(n, dtype=np.int64),
        not moment.world.reward.per_decision, scratch, _records(moment, order, t, later), present,
        make_limits(moment.world, tenants, n, moment.spent, holds, _asked(moment, changes, order, later)),
        future.partners,
    )  # fmt: skip


def _records(moment: Moment, order: Sequence[int], t: int, later: Sequence[Task]) -> dict[int, Task]:
    """Task of a future's pool → its record, where it has one."""
    return {i: moment.tasks[slot] for i, slot in enumerate(order)} | {t + i: task for i, task in enumerate(later)}


def _asked(moment: Moment, changes: Sequence[Change], order: Sequence[int], later: Sequence[Task]) -> dict[int, int]:
    """Task of a future's pool → devices that it asked for at most."""
    known = [moment.tasks[slot] for slot in order] + [change.task for change in changes if isinstance(change, Add)]
    known += later
    return {row: task.devices for row, task in enumerate(known) if task.devices is not None}


def _tenants(
    moment: Moment, changes: Sequence[Change], order: Sequence[int], future: Future, later: Sequence[Task]
) -> list[str]:
    """Who asks for each task of a future's pool: those present, those added, and those that come by their kind."""
    known = [moment.tasks[slot] for slot in order] + [change.task for change in changes if isinstance(change, Add)]
    known += later
    kinds = future.pool[len(known) :, st.P_KIND].astype(np.int64).tolist()
    return [task.tenant for task in known] + [moment.world.kinds[kind].tenant for kind in kinds]


def _enter(moment: Moment, state: StateArrays, e: int, row: int, task: Task) -> None:
    free = np.flatnonzero(state.slots[e, :, st.STATUS] == st.FREE)
    if len(free) == 0:
        rule = "all places of the cluster's table of tasks are taken"
        raise SettingsError(problem("added task", task.id or task.model, rule, "Fork a moment with a shorter queue"))
    slot = int(free[0])
    state.slots[e, slot] = (st.QUEUED, row, row, 0)
    state.traffic[e, slot] = 0.0
    state.tasks[e, slot] = 0.0
    state.tasks[e, slot, [st.ARRIVAL, st.OFFERED]] = moment.now_s
    state.tasks[e, slot, st.LEFT] = task.steps
    state.tasks[e, slot, st.T_EFF] = moment.world.waiting_r_eff
    state.event[e, st.EVENT] = st.NO_EVENT


def encode_plan(moment: Moment, plan: Plan, kind_index: int) -> IntArray:
    """A plan as an action of the moment's cluster, shape ``(P, 5)``."""
    from attribution_sched.cluster.decision import encode_rows

    layouts = layout_table(moment.world.cluster, moment.world.share_limit > 1)
    return encode_rows(moment.world, layouts, plan, kind_index)


def _scratch(moment: Moment) -> Scratch:
    kinds = moment.world.kinds
    most = max(kind.batch_size // kind.microbatches[0] for kind in kinds)
    return make_scratch(moment.world.max_segments * MAX_PP, most + 1)


def _with_devices(moment: Moment, change: Devices) -> Moment:
    """The moment in a cluster with more or fewer devices in a domain."""
    from attribution_sched.cluster.engine.engine import Engine

    cluster = moment.world.cluster
    if not 0 <= change.domain < len(cluster):
        raise SettingsError(problem("domain", change.domain, f"must lie in 0..{len(cluster) - 1}", "Use its index"))
    if not isinstance(change.more, int | np.integer) or change.more > MOST_DEVICES:
        rule = f"must be an integer of at most {MOST_DEVICES}"
        raise SettingsError(problem("devices more", change.more, rule, "Use a negative number for fewer"))
    old = cluster.domains[change.domain]
    if old.devices + change.more < 1:
        fix = "Take fewer away, or cut the domain's links"
        raise SettingsError(problem(f"{old.name}.devices", old.devices + change.more, "must be >= 1", fix))
    domains = list(cluster.domains)
    domains[change.domain] = replace(old, devices=old.devices + change.more)
    world = replace(moment.world, cluster=replace(cluster, domains=tuple(domains)), pool_size=1)
    engine = Engine(world)
    largest = max(domain.devices for domain in domains)
    occupant = np.full((1, len(domains), largest, 2), -1, dtype=np.int64)
    width = min(largest, moment.state.occupant.shape[2])
    occupant[:, :, :width] = moment.state.occupant[:, :, :width]
    state = StateArrays(**{name: array.copy() for name, array in moment.state._asdict().items()})._replace(
        occupant=occupant, traffic=np.array(moment.state.traffic), planned=np.array(moment.state.planned)
    )
    arrays = moment.arrays._replace(
        domains=engine.arrays.domains, budget_w=engine.arrays.budget_w, layouts=engine.arrays.layouts
    )
    gone = np.unique(moment.state.occupant[0, change.domain, max(0, old.devices + change.more) :])
    for slot in gone[gone >= 0].tolist():
        _send_back(arrays, state, moment, int(slot))
    occupant[0, change.domain, old.devices + change.more :] = -1
    return replace(
        moment, world=replace(world, pool_size=moment.world.pool_size), arrays=arrays, state=state, cost=engine.cost
    )


def _send_back(arrays: WorldArrays, state: StateArrays, moment: Moment, slot: int) -> None:
    """A task whose devices are gone waits again, from its last epoch boundary on."""
    occupant = state.occupant[0]
    for place in (1, 0):
        mine = occupant[:, :, place] == slot
        occupant[:, :, place][mine] = -1
    left_over = (occupant[:, :, 0] < 0) & (occupant[:, :, 1] >= 0)
    occupant[:, :, 0][left_over] = occupant[:, :, 1][left_over]
    occupant[:, :, 1][left_over] = -1
    task = state.tasks[0, slot]
    kind = moment.tasks[slot].kind_index
    task[st.LEFT] += arrays.kinds[kind, st.K_EPOCH] - task[st.EPOCH]
    task[st.EVICTED] += 1.0
    task[[st.STEP, st.PAUSED, st.REVIEW]] = 0.0
    task[st.OFFERED] = moment.now_s
    state.slots[0, slot, st.STATUS], state.slots[0, slot, st.SEGMENTS] = st.QUEUED, 0
    state.traffic[0, slot] = 0.0
    state.event[0, st.EVENT] = st.NO_EVENT
