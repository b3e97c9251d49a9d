"""A simulated cluster that goes on for ever: tasks of the preset arrive, others are handed in, time stands in between.

The engine runs an episode from decision to decision. Here the same clockwork is stopped after a decision took effect,
so that a task may be handed in at that very moment, and driven on with the next call. Stops fall on arrivals and on
ticks of the network, where the clockwork pauses anyway: seed, tasks handed in and actions give the same cluster to the
last bit, however often it was stopped. Without tasks handed in, it is the cluster of
:func:`~attribution_sched.scheduler.episode.play`, beyond its end.

A policy compares the tasks of a window, as Slurm tests a bounded number of jobs per cycle; what waits behind it, in the
backlog, costs a decision nothing.
"""

from __future__ import annotations

import contextlib
import heapq
import math
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from attribution_sched.cluster.arrivals import ArrivalKind, next_arrival
from attribution_sched.cluster.counters import Counters
from attribution_sched.cluster.decision import Decision, encode, pend, view
from attribution_sched.cluster.demands import Demands
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import (
    PRICE_NETWORK,
    SETTLED,
    Engine,
    advance,
    arrive_after,
    offer_queue,
    release,
    reprice,
    signal_hour,
)
from attribution_sched.cluster.engine.state import WorldArrays
from attribution_sched.cluster.interference import PCIE_BYTES_PER_S
from attribution_sched.cluster.objective import BUDGETS, Quota
from attribution_sched.cluster.philly import PhillyWeek
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.signals import Live
from attribution_sched.cluster.world import Attribute, Reward, TaskKind, TaskPool, World, task_working
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.kernels import clock
from attribution_sched.scheduler.policy import FunctionPolicy, Policy, QueueOrder
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.types import FloatArray, IntArray, Outcome, Quantities, Task
from attribution_sched.words.say import Phrase

# ------ A simulated cluster that goes on for ever: tasks of the preset arrive, others are handed in, time stands in
# between

# --- The queue behind the window ---

MOST_WAITING = 1_000_000
"""Tasks that may wait in all: some gigabytes, and hours of anybody's patience."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """A task that waits behind the window.

    Attributes:
        task: The task, with its name, number and time of arrival.
        demands: Its latent demands, a batch of one.
        row: The same as the engine's pool keeps it, shape ``(9,)``.
        left: Work left, in steps; less than the task's own if it was at work before.
    """

    task: Task
    demands: Demands
    row: FloatArray
    left: float


class Backlog:
    """Tasks by kind, the most urgent first, of those the oldest."""

    def __init__(self) -> None:
        self._tasks: dict[str, Waiting] = {}
        self._order: dict[int, list[tuple[int, int, str]]] = {}
        self.tenants: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[Waiting]:
        """All of them, in order of arrival."""
        return iter(sorted(self._tasks.values(), key=lambda each: each.task.number))

    def add(self, waiting: Waiting) -> None:
        """One more."""
        name = waiting.task.id
        self._tasks[name] = waiting
        self.tenants[waiting.task.tenant] += 1
        entry = (-waiting.task.priority, waiting.task.number, name)
        heapq.heappush(self._order.setdefault(waiting.task.kind_index, []), entry)

    def remove(self, name: str) -> Waiting:
        """Take a task out by its name; its place in the order goes when it is come across."""
        task = self._tasks.pop(name)
        self.tenants[task.task.tenant] -= 1
        return task

    def kinds(self) -> list[int]:
        """Kinds that some task here is of."""
        return [kind for kind in self._order if self._first(kind) is not None]

    def most_urgent(self) -> Waiting | None:
        """The first task of all, by urgency and age; None if there is none."""
        entries = [entry for kind in self._order if (entry := self._first(kind)) is not None]
        return self._tasks[min(entries)[2]] if entries else None

    def pop(self, kinds: Collection[int]) -> Waiting | None:
        """Take out the first task that is of one of these kinds; None if there is none."""
        entries = [entry for kind in kinds if (entry := self._first(kind)) is not None]
        return self.remove(min(entries)[2]) if entries else None

    def _first(self, kind: int) -> tuple[int, int, str] | None:
        order = self._order.get(kind, [])
        while order:
            known = self._tasks.get(order[0][2])
            if known is not None and known.task.number == order[0][1]:
                return order[0]
            heapq.heappop(order)
        return None


@dataclass(frozen=True, eq=False)
class Held:
    """A task that nobody is asked about.

    Attributes:
        waiting: The task as it waited.
        reason: Why.
        aside: Whether it was set aside because its decision failed; else its owner holds it.
    """

    waiting: Waiting
    reason: str
    aside: bool = False


class Heard(NamedTuple):
    """What a live source said; numbers alone, as a snapshot keeps them.

    Attributes:
        time_s: When it was asked, on the cluster's clock.
        hour: Column of ``WorldArrays.signals`` from which on it holds.
        domain: Whose grid it is about.
        row: Row of the signals: ``ELECTRICITY`` or ``CARBON``.
        value: What it said.
    """

    time_s: float
    hour: int
    domain: int
    row: int
    value: float


@dataclass(frozen=True)
class Reservation:
    """Devices kept for a tenant; others do not see them as free.

    Attributes:
        id: Its name.
        tenant: Whose they are.
        domain: Name of the domain.
        devices: How many.
        until_s: When it ends, on the cluster's clock.
    """

    id: str
    tenant: str
    domain: str
    devices: int
    until_s: float


class Spending:
    """What tenants with a quota have used of it in its present window.

    Args:
        quotas: One per tenant.
    """

    def __init__(self, quotas: tuple[Quota, ...]) -> None:
        self.quotas = {quota.tenant: at for at, quota in enumerate(quotas)}
        self._limits = quotas
        # The window's number, then as BUDGETS: device-hours, kWh, dollars, kilograms.
        self.used = np.zeros((len(quotas), 1 + len(BUDGETS)))

    def of(self, tenant: str) -> Quota | None:
        """A tenant's quota, if it has one."""
        at = self.quotas.get(tenant)
        return None if at is None else self._limits[at]

    def book(self, tenant: str, now_s: float, amounts: FloatArray) -> None:
        """Add what a tenant used, as ``BUDGETS``; the window is that of the moment."""
        at = self.quotas.get(tenant)
        if at is not None:
            self._open(at, now_s)
            self.used[at, 1:] += amounts

    def spent(self, tenant: str, now_s: float) -> tuple[str, float, float] | None:
        """The first budget that a tenant has used up: its name, what was used and the limit."""
        at = self.quotas.get(tenant)
        if at is None:
            return None
        self._open(at, now_s)
        for name, used in zip(BUDGETS, self.used[at, 1:].tolist(), strict=True):
            limit = getattr(self._limits[at], name)
            if limit is not None and used >= limit:
                return name, used, float(limit)
        return None

    def _open(self, at: int, now_s: float) -> None:
        window = now_s // (3600.0 * self._limits[at].per_h)
        if self.used[at, 0] != window:
            self.used[at] = 0.0
            self.used[at, 0] = window


BY_OWNER = "held: let in again with release"
"""Why a task is held that its owner holds."""


# --- The cluster ---


@dataclass(frozen=True, eq=False)
class TaskInstance:
    """A task as the simulation takes it: its record, and what only the simulation knows of it.

    Attributes:
        task: What was submitted.
        demands: Its latent demands, a batch of one; no scheduler may look at them.
    """

    task: Task
    demands: Demands

    @property
    def kind(self) -> int:
        """Row of its kind in the world."""
        return self.task.kind_index

    @property
    def counters(self) -> FloatArray:
        """What was measured of it, shape ``(12,)``."""
        return self.task.counters


class SimulatedCluster:
    """One cluster of a world, driven decision by decision.

    Args:
        world: The scheduling problem; its horizon is not looked at.
        seed: Of arrivals and network.
        arrivals: Whether the world's own tasks arrive; else only those handed in.
        attribute: Who says where a task's joules go: asked once, when it comes, and whenever its counters change.
            Without it, tasks are not attributed.
    """

    def __init__(self, world: World, seed: int, *, arrivals: bool = True, attribute: Attribute | None = None) -> None:
        self.world = world
        self.attribute = attribute
        self.engine = engine = Engine(world)
        engine.seed([seed])
        engine.ends_s = math.inf
        if not arrivals:
            engine.arrivals = None
        self._tasks, self._rows = engine.pool, engine.arrays.pool
        self._process = engine.arrays.arrival_kind, engine.arrays.arrival_params, engine.arrays.arrival_times_s
        slots = world.max_running + world.queue_capacity
        some = np.zeros(slots, dtype=np.int64)
        # Every slot has its own row of the pool, which the task in it fills: nothing grows with time.
        engine.pool = TaskPool(
            np.array(self._tasks.kinds[some]),
            np.array(self._tasks.steps[some]),
            self._tasks.demands.take(some),
            Counters(np.array(self._tasks.counters.values[some])),
            np.zeros(slots),
        )
        self._arrays: WorldArrays = engine.arrays._replace(
            pool=np.array(self._rows[some]), arrival_kind=int(ArrivalKind.TRACE), arrival_times_s=np.empty(0)
        )
        self._until(0.0)
        engine.reset()
        self.residents: dict[int, Task] = {}
        self.backlog = Backlog()
        self.held: dict[str, Held] = {}
        self.reservations: dict[str, Reservation] = {}
        self._reserved = 0
        self.spending = Spending(world.quotas)
        # Whether a tenant's tasks may have to wait although there is room.
        self.limits_tenants = bool(world.quotas) or world.share_rule != "none"
        # Kind → task → by how much its demands turned out to exceed what was expected; a simulation learns nothing.
        self.learnt: dict[int, dict[str, float]] = {}
        # Tenant and whether on several devices → how long its last tasks took; of a recorded log, whose tenants change.
        self.lasted: dict[tuple[str, bool], deque[float]] = {}
        self._recorded = isinstance(world.arrivals, PhillyWeek)
        self.set_aside = 0
        self.operated = 0
        self._least_bytes = [_least_bytes(kind) for kind in world.kinds]
        self._memory_bytes = np.array([domain.gpu.memory_bytes for domain in world.cluster.domains])
        self._swaps, self._refilled_s = 0, -1.0
        self.left_waiting: dict[str, int] = {}
        # Whether who decides compares the whole window: then waiting is an answer for all of it.
        self.compared = False
        self._arrived = 0
        self._came = 0
        first = next_arrival(*self._process, 0, 0.0, engine.state.streams[0, 1]) if arrivals else math.inf
        self._next_s = float(first)

    @property
    def now_s(self) -> float:
        """The cluster's clock."""
        return float(self.engine.state.clock[0, st.NOW])

    @property
    def link_time_s(self) -> float:
        """When the links were last read."""
        return float(self.engine.state.clock[0, st.LAST_TICK])

    @property
    def deciding(self) -> bool:
        """Whether a decision is pending."""
        return bool(self.engine.state.event[0, st.EVENT] != st.NO_EVENT)

    @property
    def waiting(self) -> int:
        """Tasks in the queue, the backlog included; those that are held are not in it."""
        return self._in_window + len(self.backlog)

    @property
    def _in_window(self) -> int:
        return int((self.engine.state.slots[0, :, st.STATUS] == st.QUEUED).sum())

    @property
    def running(self) -> int:
        """Tasks at work."""
        return int((self.engine.state.slots[0, :, st.STATUS] == st.RUNNING).sum())

    @property
    def expecting(self) -> bool:
        """Whether a task waits or will arrive by itself."""
        return self.waiting > 0 or self.endless

    @property
    def endless(self) -> bool:
        """Whether tasks arrive by themselves."""
        return math.isfinite(self._next_s)

    @property
    def came(self) -> int:
        """Tasks that have come so far, those turned away included."""
        return self._came

    @property
    def has_room(self) -> bool:
        """Whether one more task may wait where policies see it."""
        free = (self.engine.state.slots[0, :, st.STATUS] == st.FREE).any()
        return self._in_window < self.world.queue_capacity and bool(free)

    @property
    def accepts(self) -> bool:
        """Whether one more task may be handed in."""
        return len(self.backlog) + len(self.held) < MOST_WAITING

    def totals(self) -> Mapping[str, float]:
        """Sums since the start, by name; see :data:`~attribution_sched.cluster.engine.state.TOTAL_COLUMNS`."""
        sums = {name: float(values[0]) for name, values in self.engine.totals().items()}
        return sums | {"arrived": float(self._came)}

    def advance(self, limit_s: float = math.inf) -> bool:
        """Let time pass to the next decision.

        Args:
            limit_s: Stop at the first tick of the network from here on.

        Returns:
            Whether a decision is pending; False at the limit, or if nothing is left that could ask for one.
        """
        state = self.engine.state
        while True:
            self.settle()
            if self.deciding:
                return True
            if self.now_s >= limit_s or not (self.expecting or self.running):
                return False
            tick_s = float(state.clock[0, st.NEXT_TICK]) if self._stepwise(limit_s) else math.inf
            ends_s = min((each.until_s for each in self.reservations.values()), default=math.inf)
            self._until(min(self._next_s, tick_s, ends_s))
            state.event[0, st.DONE] = 0
            self._go_on()
            if self.now_s >= ends_s:
                for name in [name for name, each in self.reservations.items() if each.until_s <= self.now_s]:
                    self.unreserve(name)
            if not self.deciding and self.now_s >= self._next_s:
                self._arrive()

    def _stepwise(self, limit_s: float) -> bool:
        """Whether time passes tick by tick, so that it can stop at any of them."""
        return math.isfinite(limit_s) or not self.endless

    corrected = False
    """Whether links were measured since, so that the world's own figures are not those in force."""

    def observed(self, kind: str, name: str, more: Mapping[str, Any]) -> None:
        """Let the cluster know what a real one reported; a simulation reports to itself."""

    heard: tuple[Heard, ...] = ()
    """What live sources of prices and carbon said, in order."""

    def hear(self, domain: str, signal: str, value: float) -> None:
        """Let the cluster know what a live source said of a domain's grid; a simulation asks none."""

    def believe(self, heard: Heard) -> None:
        """Go by what a live source said from its hour on."""
        self.heard = (*self.heard, heard)
        domain = self.world.cluster.domains[heard.domain]
        priced = heard.row == st.ELECTRICITY
        usual = self.world.reward.energy_usd_per_kwh if priced else domain.carbon_g_per_kwh
        source = domain.electricity if priced else domain.carbon
        assert isinstance(source, Live)
        source.note(heard.time_s, heard.value)
        self.engine.arrays.signals[heard.row, heard.hour :, heard.domain] = heard.value / usual

    def pending(self, *, background: bool = False) -> Decision:
        """The decision that is pending.

        Args:
            background: Whether it is only what others are compared with: nobody will take it, or play copies of it.
        """
        seen = view(self.engine, neighbours=not background, moment=not background)
        if seen is None:
            raise RuntimeError("no decision is pending")
        allowed = self.allowed_devices(seen)
        seen = self.with_spending(seen)
        if self.backlog:
            seen = replace(seen, backlog=len(self.backlog))
        return seen if allowed is None else replace(self.in_turn(seen), free_devices=allowed)

    @property
    def up(self) -> int:
        """Slot of the task that the pending decision is on."""
        return int(self.engine.state.event[0, st.SLOT])

    @property
    def replanning(self) -> bool:
        """Whether the pending decision is on a running task."""
        return bool(self.engine.state.event[0, st.EVENT] == st.REPLAN)

    def choose(self, slot: int) -> None:
        """Put another waiting task up for the pending placement."""
        pend(self.engine, slot)

    def encode(self, plan: Plan | None, kind_index: int) -> IntArray:
        """A plan as the cluster is told it."""
        return encode(self.engine, plan, kind_index)

    @property
    def decided(self) -> int:
        """Decisions that have taken effect."""
        return int(self.engine.state.totals[0, st.DECISIONS])

    @property
    def paid(self) -> tuple[float, float, float]:
        """R_eff, R_util and R_cost that the cluster earned since the last decision took effect."""
        eff, util, cost = self.engine.state.outcome[0, st.INTEGRALS :].tolist()
        return eff, util, cost

    def carry_out(self, action: IntArray, key: str = "") -> Outcome:
        """Let the pending decision take effect, once; no time passes.

        What also tells a real cluster overrides this one: it is called for live decisions only. A journal that is gone
        through again calls :meth:`apply`.

        Args:
            action: What was decided.
            key: Names the decision for ever: whoever launches something asks by it whether that was done already.
        """
        slot, paid = int(self.engine.state.event[0, st.SLOT]), self.paid
        self.apply(action)
        return self.effect(slot, paid)

    def apply(self, action: IntArray) -> None:
        """Let the pending decision take effect in the simulation, and nowhere else."""
        state = self.engine.state
        placing = state.event[0, st.EVENT] == st.PLACE
        owner, billed = self.residents[self.up].tenant, float(state.totals[0, st.BILL_TOTAL])
        self._until(self.now_s)
        self.engine.step(action[None])
        if self.world.quotas:
            # What moving its state costs a task is paid at once.
            moved_usd = float(state.totals[0, st.BILL_TOTAL]) - billed
            self.spending.book(owner, self.now_s, np.array([0.0, 0.0, moved_usd, 0.0]))
        if placing and self.compared and self.backlog and int(state.outcome[0, st.D_CODE]) == 0:
            # Whoever compares the whole window has answered for all of it: the others are not asked one by one.
            queued = np.flatnonzero(state.slots[0, :, st.STATUS] == st.QUEUED)
            offered = queued[state.tasks[0, queued, st.OFFERED] <= self.now_s]
            state.tasks[0, offered, st.OFFERED] = self.now_s + self.world.retry_s
            state.event[0, st.EVENT] = st.NO_EVENT
            self.left_waiting = {"the policy waits": int(offered.size), "behind the window": len(self.backlog)}

    def effect(self, slot: int, paid: tuple[float, float, float]) -> Outcome:
        """What the last decision came to.

        Args:
            slot: Of its task.
            paid: What had been earned when it was taken.
        """
        state = self.engine.state
        outcome, task = state.outcome[0], state.tasks[0, slot]
        runs = state.slots[0, slot, st.STATUS] == st.RUNNING
        step_s = float(task[st.STEP]) if runs else 0.0
        held = int((state.occupant[0, :, :, 0] >= 0).sum())
        return Outcome(
            code=int(outcome[st.D_CODE]),
            observed=Quantities(
                start_s=self.now_s + float(outcome[st.D_MOVE_S]) if runs else None,
                step_s=step_s,
                traffic_bytes=float(state.traffic[0, slot].sum()) if runs else 0.0,
                energy_j=float(task[st.POWER]) * step_s,
                bill_usd=float(task[st.STEP_BILL]) if runs else 0.0,
                carbon_g=float(task[st.CARBON_RATE]) * step_s,
                r_eff=float(outcome[st.D_EFF]),
                r_util=float(outcome[st.D_UTIL]),
                r_cost=float(outcome[st.D_COST]),
                provenance="simulated",
            ),
            move_s=float(outcome[st.D_MOVE_S]),
            move_usd=float(outcome[st.D_MOVE_USD]),
            busy_share=held / self.world.cluster.devices,
            paid=paid,
        )

    def holds(self, name: str) -> bool:
        """Whether a task of this name waits or runs."""
        statuses = self.engine.state.slots[0, :, st.STATUS]
        listed = any(task.id == name and statuses[slot] != st.FREE for slot, task in self.residents.items())
        return listed or name in self.backlog or name in self.held

    def hand_in(self, made: TaskInstance, name: str) -> bool:
        """Put a task into the queue now; False if it holds no more."""
        if not self.accepts:
            return False
        factors, index = made.demands.factors[0], made.task.kind_index
        inputs = self.world.kinds[index].model.layers[0].input_elements
        pcie = inputs * float(made.demands.ratio[0, 3]) * 4.0 / PCIE_BYTES_PER_S
        raised = float(made.task.priority - self.world.kinds[index].priority)
        allowed_s = 0.0 if made.task.deadline_s is None else made.task.deadline_s - self.now_s
        working = task_working(self.world.kinds, made.task)
        row = np.array([float(index), made.task.steps, *factors, pcie, raised, allowed_s, -1.0, working])
        number, self._came = self._came, self._came + 1
        self.engine.state.event[0, st.TAKEN] += 1
        task = replace(made.task, id=name, submitted=True, number=number, arrived_s=self.now_s)
        waiting = Waiting(task, made.demands, row, task.steps)
        if task.hold:
            self.held[name] = Held(waiting, BY_OWNER)
        else:
            self._admit(waiting)
        return True

    def _admit(self, waiting: Waiting) -> None:
        """Let a task wait: in the window if it has room or a less urgent task makes room, else behind it."""
        self.settle()
        if not self.backlog and self.has_room:
            self._enter(waiting)
            return
        queued = np.flatnonzero(self.engine.state.slots[0, :, st.STATUS] == st.QUEUED).tolist()
        last = self._last(queued) if queued else None
        if last is not None and waiting.task.priority <= self.residents[last].priority:
            last = self._crowding(queued, waiting.task) if self.world.share_rule == "fair-share" else None
        if last is not None:
            self.backlog.add(self._leave(last))
            self._enter(waiting)
        else:
            self.backlog.add(waiting)

    def _last(self, slots: list[int]) -> int:
        """Who makes room first: of the least urgent tasks the youngest."""
        serials = self.engine.state.slots[0, :, st.SERIAL]
        return max(slots, key=lambda slot: (-self.residents[slot].priority, int(serials[slot])))

    def _crowding(self, slots: list[int], comer: Task) -> int | None:
        """Who makes room in a full window for a tenant with fewer tasks there: the youngest of the tenant with most.

        None if nobody has so many more that both would be better off, or only more urgent ones.
        """
        count = Counter(self.residents[slot].tenant for slot in slots)
        tenant, most = max(count.items(), key=lambda each: (each[1], each[0]))
        own = [slot for slot in slots if self.residents[slot].tenant == tenant]
        own = [slot for slot in own if self.residents[slot].priority <= comer.priority]
        return self._last(own) if own and most > count[comer.tenant] + 1 else None

    def names(self) -> Iterator[str]:
        """Of all tasks that wait, run or are held."""
        statuses = self.engine.state.slots[0, :, st.STATUS]
        yield from (task.id for slot, task in self.residents.items() if statuses[slot] != st.FREE)
        yield from (each.task.id for each in self.backlog)
        yield from self.held

    def slot_of(self, name: str) -> int | None:
        """Slot of a task that runs or waits in the window."""
        statuses = self.engine.state.slots[0, :, st.STATUS]
        slots = (slot for slot, task in self.residents.items() if task.id == name and statuses[slot] != st.FREE)
        return next(slots, None)

    def place_of(self, name: str) -> str | None:
        """Where a task is: ``window``, ``backlog``, ``held`` or ``running``; None if it is in none of them."""
        if name in self.held:
            return "held"
        if name in self.backlog:
            return "backlog"
        slot = self.slot_of(name)
        if slot is None:
            return None
        return "running" if self.engine.state.slots[0, slot, st.STATUS] == st.RUNNING else "window"

    def take_out(self, name: str) -> Waiting:
        """Take a task that waits or is held out of the cluster."""
        if name in self.held:
            return self.held.pop(name).waiting
        if name in self.backlog:
            return self.backlog.remove(name)
        slot = self.slot_of(name)
        if slot is None:
            raise RuntimeError(f"no task {name} waits")
        return self._leave(slot)

    def put_aside(self, name: str, reason: str, *, aside: bool = False) -> None:
        """Let nobody be asked about a waiting task until it is let in again."""
        waiting = self.take_out(name)
        self.set_aside += aside
        self.held[name] = Held(replace(waiting, task=replace(waiting.task, hold=True)), reason, aside)

    def let_in(self, name: str) -> None:
        """Let a task that is held wait again; what it was when it came decides its turn."""
        waiting = self.held.pop(name).waiting
        self._admit(replace(waiting, task=replace(waiting.task, hold=False)))

    def cancel(self, name: str) -> None:
        """Stop a running task. What also tells a real cluster overrides this one; see :meth:`carry_out`."""
        self.stop(name)

    def stop(self, name: str) -> None:
        """Take a running task off its devices, in the simulation and nowhere else; what it has cost stays spent."""
        slot = self.slot_of(name)
        if slot is None:
            raise RuntimeError(f"no task {name} runs")
        world, state = self.engine.arrays, self.engine.state
        release(world, state, 0, slot)
        del self.residents[slot]
        state.slots[0, slot] = (st.FREE, 0, 0, 0)
        state.traffic[0, slot] = 0.0
        reprice(world, state, 0, False, self.engine._scratch)
        self._offer()

    def reserve(self, wanted: Reservation) -> None:
        """Keep devices for a tenant."""
        self._reserved += 1
        self.reservations[wanted.id] = wanted

    def unreserve(self, name: str) -> None:
        """Give reserved devices to all; whoever waits is asked about again."""
        del self.reservations[name]
        self._offer()

    @property
    def next_reservation(self) -> str:
        """Name of the next reservation."""
        return f"r{self._reserved:04d}"

    def _offer(self) -> None:
        """Something fell free: every waiting task may be asked about again."""
        offer_queue(self.engine.state, 0)
        self.engine.state.event[0, st.EVENT] = st.NO_EVENT

    def with_spending(self, seen: Decision) -> Decision:
        """A decision whose moment tells what tenants have used of their quotas, and how long their tasks took."""
        if not (self.world.quotas or self.lasted) or seen.moment is None:
            return seen
        spent = self.spending.used.copy() if self.world.quotas else None
        lasted = {whose: tuple(lasted) for whose, lasted in self.lasted.items()}
        return replace(seen, moment=replace(seen.moment, spent=spent, lasted=lasted))

    def allowed_devices(self, seen: Decision) -> IntArray | None:
        """Free devices per domain that a decision may use, shape ``(K,)``; None if all of them.

        Those reserved for other tenants are not counted, nor more than its task asked for or its tenant's quota leaves.
        """
        task = seen.task
        if task is None or (task.devices is None and not self.reservations and not self.limits_tenants):
            return None
        free = seen.free_devices.copy()
        if self.reservations:
            free -= self.reserved_devices(task.tenant)
        if task.devices is not None:
            np.minimum(free, task.devices, out=free)
        left = self.quota_left(seen)
        if left is not None:
            np.minimum(free, left, out=free)
        return np.maximum(free, 0)

    def in_turn(self, seen: Decision) -> Decision:
        """A decision whose queue holds only tasks that it may be about: others of a tenant at its limit do not."""
        if not self.limits_tenants:
            return seen
        barred = self.barred({task.tenant for task in seen.queue})
        if seen.task is None or seen.task.tenant in barred:
            return seen
        return replace(seen, queue=tuple(task for task in seen.queue if task.tenant not in barred))

    def quota_left(self, seen: Decision) -> int | None:
        """Devices that the task of a decision may have by its tenant's quota, its own counted; None without one.

        A task that runs stays where it is when a budget is used up, so moving it is not limited by that.
        """
        return None if seen.task is None else self.devices_left(seen.task.tenant, seen.slot if seen.replanning else -1)

    def barred(self, tenants: Collection[str]) -> set[str]:
        """Those of some tenants that may take no device now, by their quota or by the share rule."""
        later = self.passed_over()
        return {tenant for tenant in tenants if tenant in later or self._quota_of(tenant) == 0}

    def devices_left(self, tenant: str, mover: int = -1) -> int | None:
        """Devices that a tenant may still take; those of a task that is to be moved count as free."""
        return 0 if mover < 0 and tenant in self.passed_over() else self._quota_of(tenant, mover)

    def _quota_of(self, tenant: str, mover: int = -1) -> int | None:
        quota = self.spending.of(tenant)
        if quota is None:
            return None
        if mover < 0 and self.spending.spent(tenant, self.now_s) is not None:
            return 0
        if quota.devices is None:
            return None
        running = self.engine.state.slots[0, :, st.STATUS] == st.RUNNING
        slots = [slot for slot, task in self.residents.items() if task.tenant == tenant and running[slot]]
        used = np.isin(self.engine.state.occupant[0], [slot for slot in slots if slot != mover]).any(axis=2).sum()
        return max(0, quota.devices - int(used))

    def holdings(self) -> tuple[dict[str, int], float]:
        """Devices that each tenant holds which waits or runs, and the equal share of each of them."""
        statuses, occupant = self.engine.state.slots[0, :, st.STATUS], self.engine.state.occupant[0]
        held = {task.tenant: 0 for slot, task in self.residents.items() if statuses[slot] != st.FREE}
        held.update((tenant, 0) for tenant, count in self.backlog.tenants.items() if count and tenant not in held)
        on = np.bincount(occupant[occupant >= 0], minlength=len(statuses)) if held else np.zeros(0)
        for slot, task in self.residents.items():
            if statuses[slot] == st.RUNNING:
                held[task.tenant] += int(on[slot])
        return held, self.world.cluster.devices / max(1, len(held))

    def passed_over(self) -> frozenset[str]:
        """Tenants that nobody is asked about now because of the share rule.

        They hold their share, and others, below theirs, have a task that is still to be asked about at this moment.
        """
        if self.world.share_rule == "none":
            return frozenset()
        state = self.engine.state
        offered = (state.slots[0, :, st.STATUS] == st.QUEUED) & (state.tasks[0, :, st.OFFERED] <= self.now_s)
        asking = {self.residents[slot].tenant for slot in np.flatnonzero(offered).tolist()}
        if not asking:
            return frozenset()
        held, share = self.holdings()
        above = {tenant for tenant, devices in held.items() if devices >= share}
        return frozenset(above) if asking - above else frozenset()

    def share_reason(self, tenant: str) -> Phrase:
        """What the share rule means for a tenant's waiting tasks, in words."""
        if self.world.share_rule == "none":
            return Phrase("why.share_none")
        held, share = self.holdings()
        devices = held.get(tenant, 0)
        message = "why.share_above" if devices >= share else "why.share_below"
        return Phrase(message, rule=self.world.share_rule, tenant=tenant, held=devices, share=share, count=len(held))

    def quota_reason(self, seen: Decision) -> Phrase | None:
        """Why the quota of its tenant keeps a task from devices, in words; None if it does not."""
        task, left = seen.task, self.quota_left(seen)
        if task is None or left is None:
            return None
        spent = self.spending.spent(task.tenant, self.now_s)
        if spent is not None and not seen.replanning:
            name, used, limit = spent
            quota = self.spending.of(task.tenant)
            per_h = 24.0 if quota is None else quota.per_h
            again_h = per_h - self.now_s / 3600.0 % per_h
            what = Phrase("quota.resource", variant=name)
            return Phrase("why.spent", tenant=task.tenant, what=what, used=used, limit=limit, again_h=again_h)
        if not seen.replanning and task.tenant in self.passed_over():
            held, share = self.holdings()
            return Phrase(
                "why.passed_over", rule=self.world.share_rule, tenant=task.tenant, held=held[task.tenant], share=share
            )
        return Phrase("why.quota_devices", tenant=task.tenant, left=left)

    def reserved_devices(self, tenant: str) -> IntArray:
        """Devices per domain that are kept for other tenants and not yet in use by them, shape ``(K,)``."""
        names = [domain.name for domain in self.world.cluster.domains]
        wanted: dict[tuple[str, str], int] = {}
        for each in self.reservations.values():
            if each.tenant != tenant:
                wanted[each.tenant, each.domain] = wanted.get((each.tenant, each.domain), 0) + each.devices
        kept = np.zeros(len(names), dtype=np.int64)
        for (owner, domain), devices in wanted.items():
            at = names.index(domain)
            own = [slot for slot, task in self.residents.items() if task.tenant == owner]
            used = np.isin(self.engine.state.occupant[0, at], own).any(axis=1).sum()
            kept[at] += max(0, devices - int(used))
        return kept

    def settle(self) -> None:
        """Bring into the window what can be there, as when time is about to pass.

        Whoever changes the queue does it first, because whether somebody has let time pass at this moment is not known
        when a journal is gone through again.
        """
        if self.backlog:
            self._refill()
        if self.limits_tenants:
            self._pass_over()

    def _pass_over(self) -> None:
        """Let nobody be asked about tasks whose tenant's quota leaves them no device: others come before them.

        Who is passed over by the share rule is asked about a second later, when those below their share have been.
        """
        state, now_s = self.engine.state, self.now_s
        offered = (state.slots[0, :, st.STATUS] == st.QUEUED) & (state.tasks[0, :, st.OFFERED] <= now_s)
        tenants = {self.residents[slot].tenant for slot in np.flatnonzero(offered).tolist()}
        later, barred = self.passed_over(), self.barred(tenants)
        for slot in np.flatnonzero(offered).tolist():
            if (tenant := self.residents[slot].tenant) in barred:
                again_s = 1.0 if tenant in later else self.world.retry_s
                state.tasks[0, slot, st.OFFERED] = now_s + again_s
                if state.event[0, st.EVENT] == st.PLACE and self.up == slot:
                    state.event[0, st.EVENT] = st.NO_EVENT

    def _refill(self) -> None:
        """Bring tasks from the backlog to where policies see them, those first that free devices could hold.

        While the queue is longer than the window, tasks in it that no free device could hold are not asked about: they
        are counted in :attr:`left_waiting`. If none is left to ask about, the youngest makes room for the first of the
        backlog that could be held, at most a window of them at one moment.
        """
        while self._exchange():
            pass

    def _exchange(self) -> bool:
        """One step of refilling; whether a task made room. Done until none does, a second time nothing happens."""
        state, now_s = self.engine.state, self.now_s
        if now_s != self._refilled_s:
            self._swaps, self._refilled_s = 0, now_s
        while self.backlog and self.has_room:
            holdable = self._holdable(self.backlog.kinds())
            entering = self.backlog.pop(holdable) or self.backlog.pop(self.backlog.kinds())
            if entering is not None:
                self._enter(entering)
        queued = np.flatnonzero(state.slots[0, :, st.STATUS] == st.QUEUED)
        offered = queued[state.tasks[0, queued, st.OFFERED] <= now_s]
        kinds = self.engine.pool.kinds[state.slots[0, offered, st.POOL]]
        holdable = self._holdable(np.unique(kinds).tolist())
        idle = offered[~np.isin(kinds, holdable)]
        if idle.size:
            state.tasks[0, idle, st.OFFERED] = now_s + self.world.retry_s
            if self.deciding and state.event[0, st.EVENT] == st.PLACE:
                # Whose turn it is has changed; it is found anew.
                state.event[0, st.EVENT] = st.NO_EVENT
        if self.backlog:
            self.left_waiting = {"no free device holds it": int(idle.size) + len(self.backlog)}
        if offered.size == idle.size and idle.size and self._swaps < self.world.queue_capacity:
            entering = self.backlog.pop(self._holdable(self.backlog.kinds()))
            if entering is not None:
                self._swaps += 1
                self.backlog.add(self._leave(self._last(idle.tolist())))
                self._enter(entering)
                return True
        return False

    def _holdable(self, kinds: Collection[int]) -> list[int]:
        """Kinds that the empty devices could hold, by what the model itself takes: no policy shares devices."""
        room = float((self.engine.free_devices()[0] * self._memory_bytes).sum())
        return [kind for kind in kinds if self._least_bytes[kind] <= room]

    def _leave(self, slot: int) -> Waiting:
        """Take a waiting task out of its slot, as it is."""
        task, demands = self.residents.pop(slot), self.engine.pool.demands.take(slot)
        left = float(self.engine.state.tasks[0, slot, st.LEFT])
        self.engine.state.slots[0, slot] = (st.FREE, 0, 0, 0)
        self.engine.state.event[0, st.EVENT] = st.NO_EVENT
        return Waiting(task, demands, self._arrays.pool[slot].copy(), left)

    def change(self, slot: int, **changes: Any) -> Task:
        """Change what is known of a task in the cluster; one whose counters change is attributed anew.

        Args:
            slot: Its place in the table of tasks.
            **changes: Fields of :class:`~attribution_sched.types.Task`.
        """
        task = replace(self.residents[slot], **changes)
        if "counters" in changes:
            task = self.attributed(replace(task, attribution=None))
            self.engine.pool.counters.values[slot] = task.counters
        self.residents[slot] = self.engine.pool.tasks[slot] = task
        return task

    def _go_on(self) -> None:
        """Let time pass to the next decision or to the horizon: the engine's own loop, its kernels one by one."""
        world, state, scratch = self.engine.arrays, self.engine.state, self.engine._scratch
        before_s, ran = self.now_s, state.slots[0, :, st.STATUS] == st.RUNNING
        while (wanted := self._pass_time()) != SETTLED:
            reprice(world, state, 0, wanted == PRICE_NETWORK, scratch)
        if self._recorded:
            for slot in np.flatnonzero(ran & (state.slots[0, :, st.STATUS] == st.FREE)).tolist():
                task = self.residents[slot]
                whose = task.tenant, self.world.kinds[task.kind_index].batch_size > 1
                self.lasted.setdefault(whose, deque(maxlen=LASTED)).append(float(self._arrays.pool[slot, st.P_STEPS]))
        if self.backlog:
            # The engine books the waiting of what it sees; these wait as well.
            waited_s = len(self.backlog) * (self.now_s - before_s)
            state.outcome[0, st.INTEGRALS] += self.world.waiting_r_eff * waited_s / self.world.reward.interval_s
            state.totals[0, st.WAIT_S] += waited_s

    def _pass_time(self) -> int:
        """Run to the next change, with all rates as they are; says what to price anew."""
        if not self.world.quotas:
            return int(advance(self.engine.arrays, self.engine.state, 0))
        rates, before_s = self._rates(), self.now_s
        wanted = int(advance(self.engine.arrays, self.engine.state, 0))
        lasted_h = (self.now_s - before_s) / 3600.0
        for tenant, per_h in rates:
            self.spending.book(tenant, before_s, per_h * lasted_h)
        return wanted

    def _rates(self) -> list[tuple[str, FloatArray]]:
        """What every running task of a tenant with a quota uses an hour, as ``BUDGETS``."""
        world, state = self.engine.arrays, self.engine.state
        hour, found = signal_hour(world, float(state.clock[0, st.LAST_TICK])), []
        for slot in np.flatnonzero(state.slots[0, :, st.STATUS] == st.RUNNING).tolist():
            tenant, task = self.residents[slot].tenant, state.tasks[0, slot]
            if self.spending.of(tenant) is None:
                continue
            held = (state.occupant[0] == slot).any(axis=2)
            # A device that two share counts half for each.
            devices = float((held / np.maximum(1, (state.occupant[0] >= 0).sum(axis=2))).sum())
            at_work = task[st.PAUSED] <= self.now_s and task[st.STEP] > 0.0
            egress = 3600.0 / task[st.STEP] * task[st.STEP_BILL] if at_work else 0.0
            share = held.sum(axis=1) / max(1, held.sum())
            price = self.world.reward.energy_usd_per_kwh * float(share @ world.signals[st.ELECTRICITY, hour])
            kw = float(task[st.POWER]) / 1e3
            kg_per_h = float(task[st.CARBON_RATE]) * 3.6
            found.append((tenant, np.array([devices, kw, egress + kw * price, kg_per_h])))
        return found

    def _arrive(self) -> None:
        """The next task of the preset comes, in the way of the engine's own arrivals."""
        stream = self.engine.state.streams[0, 1]
        at, next_s = arrive_after(*self._process, self._arrived, self.now_s, len(self._tasks), stream)
        self._arrived += 1
        number, self._came = self._came, self._came + 1
        self.engine.state.event[0, st.TAKEN] += 1
        if self.has_room:
            known, demands = self._tasks.instance(at, self.world.kinds)
            task = replace(known, id=f"t{number:06d}", number=number, arrived_s=self.now_s)
            # Of an opaque task the record says what can be known of its work, the row what there is.
            self._enter(Waiting(task, demands, self._rows[at], float(self._rows[at, st.P_STEPS])))
        else:
            self.engine.state.totals[0, st.DROPPED] += 1
        self._next_s = float(next_s)

    def attributed(self, task: Task) -> Task:
        """A task with its attribution, if it was measured and somebody can say it."""
        if self.attribute is None or task.attribution is not None or not task.counters.size:
            return task
        return replace(task, attribution=self.attribute(task))

    def _enter(self, waiting: Waiting) -> None:
        """Put a task into a free slot of the window."""
        state, demands = self.engine.state, waiting.demands
        # Before any policy is asked, and before anything is written: the decision only refers to what is kept here.
        task = self.attributed(waiting.task)
        slot, pool = int(np.argmax(state.slots[0, :, st.STATUS] == st.FREE)), self.engine.pool
        pool.kinds[slot], pool.steps[slot], pool.counters.values[slot] = task.kind_index, task.steps, task.counters
        pool.samples_per_s[slot] = task.samples_per_s
        for old, new in ((pool.demands.values, demands.values), (pool.demands.nominal, demands.nominal)):
            old[slot] = new[0]
        pool.demands.nominal_s[slot] = demands.nominal_s[0]
        self._arrays.pool[slot] = waiting.row
        state.slots[0, slot] = (st.QUEUED, slot, task.number, 0)
        state.traffic[0, slot] = 0.0
        state.tasks[0, slot] = 0.0
        state.tasks[0, slot, st.ARRIVAL], state.tasks[0, slot, st.OFFERED] = task.arrived_s, self.now_s
        state.tasks[0, slot, st.LEFT] = waiting.left
        state.tasks[0, slot, st.T_EFF] = self.world.waiting_r_eff
        # Whose turn it is may have changed: it is found anew, whether or not it was known before.
        state.event[0, st.EVENT] = st.NO_EVENT
        self.residents[slot] = pool.tasks[slot] = task.at(slot, waiting.left, 0.0)

    def _until(self, horizon_s: float) -> None:
        # As ``_replace``, which looks at all fields by their names: this is asked several times a decision.
        arrays = self._arrays
        self.engine.arrays = tuple.__new__(WorldArrays, (*arrays[:_HORIZON], horizon_s, *arrays[_HORIZON + 1 :]))


LASTED = 64
"""Ended tasks of a tenant that are remembered, on one device and on several."""

_HORIZON = WorldArrays._fields.index("horizon_s")


def _least_bytes(kind: TaskKind) -> float:
    """Memory that a model takes at the very least, however it is laid out.

    Its parameters in INT8 if it is served; in 16 bits with gradients if it is trained, frozen ones for next to nothing.
    """
    return max(1.0, float(kind.model.stateful_params(kind.training).sum())) * (4.0 if kind.training else 1.0)


# ------ Calling a policy: which task, which plan; the same for live decisions, rehearsals and warm-ups
#
# What a task asked for (devices, priority, deadline, what others reserved) is checked here too: a plan beyond it is not
# carried out, and a wish that is passed over is said in words.

# --- What tasks asked for ---

MOST_NAMED = 3
"""Tasks that a breach names; the others are counted."""


def devices_of(plan: Plan, domains: int) -> IntArray:
    """Devices that a plan uses per domain, shape ``(K,)``."""
    used = np.zeros(domains, dtype=np.int64)
    for segment in plan.segments:
        used[segment.domain] += segment.device_count
    return used


def beyond_limits(cluster: SimulatedCluster, seen: Decision, plan: Plan | None) -> str:
    """Why a plan uses devices that its task may not have; empty if it does not."""
    task = seen.task
    if (
        plan is None
        or task is None
        or (task.devices is None and not cluster.reservations and not cluster.limits_tenants)
    ):
        return ""
    used = devices_of(plan, len(seen.free_devices))
    left = cluster.quota_left(seen)
    if left is not None and used.sum() > left:
        return Phrase("breach.quota", used=int(used.sum()), tenant=task.tenant, left=left)
    if task.devices is not None and used.sum() > task.devices:
        return Phrase("breach.devices", used=int(used.sum()), most=task.devices)
    reserved = cluster.reserved_devices(task.tenant) if cluster.reservations else np.zeros_like(used)
    for at in np.flatnonzero((used > seen.free_devices) & (reserved > 0)).tolist():
        name = cluster.world.cluster.domains[at].name
        return Phrase("breach.reserved", used=int(used[at]), domain=name, reserved=int(reserved[at]))
    return ""


def within_one_domain(seen: Decision) -> IntArray:
    """Free devices with those of one domain only, the one with most: no plan in it can sum up to more."""
    only = np.zeros_like(seen.free_devices)
    at = int(np.argmax(seen.free_devices))
    only[at] = seen.free_devices[at]
    return only


def more_urgent(cluster: SimulatedCluster, seen: Decision, asked_before: frozenset[int]) -> tuple[str, ...]:
    """Tasks that are more urgent than the one to be placed, and wait.

    Args:
        cluster: Where.
        seen: The decision.
        asked_before: Slots of tasks that were asked about at this moment and left waiting.
    """
    if seen.replanning or seen.task is None:
        return ()
    priority = seen.task.priority
    above = [task for task in seen.queue if task.priority > priority]
    passed = [task for task in above if task.slot not in asked_before]
    left = [task for task in above if task.slot in asked_before]
    behind = cluster.backlog.most_urgent() if cluster.backlog else None
    reasons = []
    if passed:
        reasons.append(Phrase("breach.passed", tasks=_named(passed), own=priority))
    if left:
        reasons.append(Phrase("breach.left", tasks=_named(left), own=priority))
    if behind is not None and behind.task.priority > priority:
        reasons.append(Phrase("breach.behind", tasks=_named([behind.task]), own=priority))
    return tuple(reasons)


def expected_late(task: Task, steps_left: float, now_s: float, effect: Outcome) -> tuple[str, ...]:
    """Whether a task that runs will have finished in time, as things are now."""
    if task.deadline_s is None or effect.step_s <= 0.0:
        return ()
    late_s = now_s + effect.move_s + steps_left * effect.step_s - task.deadline_s
    if late_s <= 1e-9 * max(1.0, abs(task.deadline_s)):
        return ()
    return (Phrase("breach.late", late_s=late_s),)


def _named(tasks: list[Task]) -> Phrase:
    listed = tuple(Phrase("breach.task", id=task.id, priority=task.priority) for task in tasks[:MOST_NAMED])
    if len(tasks) > MOST_NAMED:
        return Phrase("breach.tasks and more", tasks=listed, more=len(tasks) - MOST_NAMED)
    return Phrase("breach.tasks", tasks=listed)


# --- The call ---


def as_policy(asked: Any) -> Policy:
    """A policy from its name, from itself or from a function.

    Raises:
        SettingsError: If it is none of these.
    """
    if isinstance(asked, str):
        if asked not in POLICIES:
            raise SettingsError(problem("policy", asked, "is not a known policy", nearest(asked, POLICIES)))
        return make_policy(asked)
    if not isinstance(asked, type):
        if callable(getattr(asked, "decide", None)) and isinstance(getattr(asked, "name", None), str):
            policy: Policy = asked
            return policy
        if callable(asked):
            return FunctionPolicy(asked)
    rule = "must be the name of a policy, a policy, or a function from the view to a plan"
    raise SettingsError(problem("policy", asked, rule, f"For example {'hi-ppo'!r}; known: {', '.join(POLICIES)}"))


@dataclass(frozen=True, eq=False)
class PolicyAnswer:
    """What a policy said.

    Attributes:
        view: The decision, with the task it chose.
        plan: Its plan; None waits, or stays.
        seconds: How long it took.
        idle: Whether nothing ran when it was asked.
        instead: Whose plan it is and why, if it is not the policy's own.
        breaches: What tasks asked for and this decision passes over, in words.
        refused: Why the policy's plan is not carried out; empty if it is.
    """

    view: Decision
    plan: Plan | None
    seconds: float
    idle: bool = False
    instead: str = ""
    breaches: tuple[str, ...] = ()
    refused: str = ""


class Moment(NamedTuple):
    """What is remembered from one question to the next.

    Attributes:
        deferred: Slots of the tasks that were left waiting at this moment.
        time_s: The moment.
        idle_waits: Tasks left waiting in a row while nothing ran.
        noted: Number of the last decision that is counted here.
    """

    deferred: frozenset[int] = frozenset()
    time_s: float = -1.0
    idle_waits: int = 0
    noted: int = -1


class PolicyCall:
    """Asks for one decision after the other, and not twice at one moment for a task that was left waiting, or refused.

    A learnt policy can meet a queue that it was never taught, and let all of it wait while nothing runs, for ever. If
    it names a ``fallback``, that one is asked then.
    """

    def __init__(self) -> None:
        self.state = Moment()
        # Plans asked for at this moment, by task: one whose task still waits was refused.
        self._tried: set[tuple[object, ...]] = set()
        self.failure: Exception | None = None
        """What the policy last raised: whoever catches an error knows by it whose it is."""

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.failure = error
            raise

    def ask(
        self, policy: Policy, cluster: SimulatedCluster, reward: Reward | None = None, seen: Decision | None = None
    ) -> PolicyAnswer:
        """Let a policy choose task and plan of the pending decision.

        Args:
            policy: Who decides.
            cluster: Where.
            reward: Weights in force, if they are not the world's.
            seen: The pending decision, if it was looked at already.

        Raises:
            Exception: Whatever the policy raises, or what says that its answer is no plan; it is :attr:`failure` then.
        """
        seen = weighted(cluster.pending(), reward) if seen is None else seen
        self._at(seen.time_s)
        began = clock()
        spent = 0.0
        if not seen.replanning and len(seen.queue) > 1 and isinstance(policy, QueueOrder):
            with self._noticing():
                chosen = policy.select(seen)
            spent = clock() - began
            if chosen not in self.state.deferred:
                cluster.choose(chosen)
                seen = weighted(cluster.pending(), reward)
            began = clock()
        with self._noticing():
            plan, refused = _plan_of(policy, cluster, seen)
        if plan is not None and not seen.replanning and _request(seen, plan) in self._tried:
            # It would be refused again, and whoever chooses the same task again would be asked for ever.
            plan, refused = None, "the cluster refused the same plan a moment ago"
        spent += clock() - began
        idle = cluster.running == 0
        other: Any = getattr(policy, "fallback", None)
        instead = ""
        if (
            plan is None
            and idle
            and self.state.idle_waits >= len(seen.queue)
            and callable(getattr(other, "decide", None))
        ):
            fallback: Policy = other
            with self._noticing():
                plan, refused = _plan_of(fallback, cluster, seen)
            spent = clock() - began
            instead = f"fallback:{fallback.name} (all tasks were left waiting, none runs)"
        elif refused:
            instead = f"{'keeps' if seen.replanning else 'waits'} (refused: {refused})"
        breaches = () if plan is None else more_urgent(cluster, seen, self.state.deferred)
        return PolicyAnswer(seen, plan, spent, idle, instead, breaches, refused)

    def encode(self, cluster: SimulatedCluster, asked: PolicyAnswer) -> IntArray:
        """A plan as the cluster is told it.

        Raises:
            PlanError: If the cluster has no words for it; it is :attr:`failure` then.
        """
        with self._noticing():
            return cluster.encode(asked.plan, asked.view.kind_index)

    def note(self, asked: PolicyAnswer, number: int | None = None) -> None:
        """Remember that a decision was taken.

        Args:
            asked: The decision.
            number: Its number: told twice of one, as after an interrupt, it is remembered once.
        """
        state = self.state
        if number is not None and number <= state.noted:
            return
        self._at(asked.view.time_s)
        deferred = self.state.deferred
        if asked.plan is not None and not asked.view.replanning:
            self._tried.add(_request(asked.view, asked.plan))
        waits = asked.plan is None and not asked.view.replanning
        # In one assignment: an interrupt finds it noted or not noted, never half.
        self.state = Moment(
            deferred | {asked.view.slot} if waits else deferred,
            asked.view.time_s,
            state.idle_waits + 1 if waits and asked.idle else 0,
            state.noted if number is None else number,
        )

    def _at(self, time_s: float) -> None:
        if time_s != self.state.time_s:
            self._tried.clear()
            self.state = self.state._replace(deferred=frozenset(), time_s=time_s)


def _request(seen: Decision, plan: Plan) -> tuple[object, ...]:
    """A task and what is asked for it."""
    return seen.slot, *(() if seen.task is None else (seen.task.id, seen.task.number)), plan


def _plan_of(policy: Policy, cluster: SimulatedCluster, seen: Decision) -> tuple[Plan | None, str]:
    """A policy's plan within what its task may use, and why there is none if there is none for that reason.

    Per domain a policy sees no more free devices than it may use. A plan over several domains can still sum up to more
    than the task asked for: it is asked once more, about one domain.
    """
    wide, plan, refused = seen, None, ""
    for attempt in range(2):
        answer: Any = policy.decide(seen)
        if answer is not None and not isinstance(answer, Plan):
            rule = f"{policy.name} must decide on a Plan or None"
            raise SettingsError(problem("plan", answer, rule, "Return a Plan, or None to wait"))
        plan, beyond = answer, beyond_limits(cluster, wide, answer)
        if not beyond:
            return plan, refused if plan is None else ""
        refused = beyond
        if attempt == 0:
            seen = replace(seen, free_devices=within_one_domain(seen))
    return None, refused


def with_weights(reward: Reward, weights: tuple[float, float, float] | None) -> Reward:
    """A reward with other weights of its three terms; None leaves them."""
    if weights is None or weights == (reward.w_eff, reward.w_util, reward.w_cost):
        return reward
    w_eff, w_util, w_cost = weights
    return replace(reward, w_eff=w_eff, w_util=w_util, w_cost=w_cost)


def weighted(view: Decision, reward: Reward | None) -> Decision:
    """A view with the weights in force."""
    return view if reward is None or reward == view.reward else replace(view, reward=reward)
