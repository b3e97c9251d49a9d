"""A simulated cluster that goes on for ever: tasks of the preset arrive, others are handed in, time stands in between.

The engine runs an episode from decision to decision. Here the same clockwork is stopped after a decision took effect,
so that a task may be handed in at that very moment, and driven on with the next call. Stops fall on arrivals and on
ticks of the network, where the clockwork pauses anyway: seed, tasks handed in and actions give the same cluster to the
last bit, however often it was stopped. Without tasks handed in, it is the cluster of
:func:`~attribution_sched.scheduler.episode.play`, beyond its end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attribution_sched.cluster.arrivals import ArrivalKind, next_arrival
from attribution_sched.cluster.counters import Counters
from attribution_sched.cluster.decision import Decision, encode, pend, view
from attribution_sched.cluster.demands import Demands
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.engine.events import PRICE_NETWORK, SETTLED, advance
from attribution_sched.cluster.engine.prices import reprice
from attribution_sched.cluster.engine.state import WorldArrays
from attribution_sched.cluster.interference import PCIE_BYTES_PER_S
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.pool import Attribute, TaskPool
from attribution_sched.cluster.streams import integers
from attribution_sched.cluster.world import World
from attribution_sched.types import FloatArray, IntArray, Outcome, Quantities, Task


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
        self._arrived = 0
        self._came = 0
        self._next_s = self._draw(0.0) if arrivals else math.inf

    @property
    def now_s(self) -> float:
        """The cluster's clock."""
        return float(self.engine.state.clock[0, st.NOW])

    @property
    def deciding(self) -> bool:
        """Whether a decision is pending."""
        return bool(self.engine.state.event[0, st.EVENT] != st.NO_EVENT)

    @property
    def waiting(self) -> int:
        """Tasks in the queue."""
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
        """Whether one more task may wait."""
        free = (self.engine.state.slots[0, :, st.STATUS] == st.FREE).any()
        return self.waiting < self.world.queue_capacity and bool(free)

    def totals(self) -> Mapping[str, float]:
        """Sums since the start, by name; see :data:`~attribution_sched.cluster.engine.state.TOTAL_COLUMNS`."""
        found = {name: float(values[0]) for name, values in self.engine.totals().items()}
        return found | {"arrived": float(self._came)}

    def advance(self, limit_s: float = math.inf) -> bool:
        """Let time pass to the next decision.

        Args:
            limit_s: Stop at the first tick of the network from here on.

        Returns:
            Whether a decision is pending; False at the limit, or if nothing is left that could ask for one.
        """
        state = self.engine.state
        while not self.deciding:
            if self.now_s >= limit_s or not (self.expecting or self.running):
                return False
            stepwise = math.isfinite(limit_s) or not self.endless
            tick_s = float(state.clock[0, st.NEXT_TICK]) if stepwise else math.inf
            self._until(min(self._next_s, tick_s))
            state.event[0, st.DONE] = 0
            self._go_on()
            if not self.deciding and self.now_s >= self._next_s:
                self._arrive()
        return True

    def pending(self) -> Decision:
        """The decision that is pending."""
        seen = view(self.engine)
        if seen is None:
            raise RuntimeError("no decision is pending")
        return seen

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
        self._until(self.now_s)
        self.engine.step(action[None])

    def effect(self, slot: int, paid: tuple[float, float, float]) -> Outcome:
        """What the last decision came to.

        Args:
            slot: Of its task.
            paid: What had been earned when it was taken.
        """
        state = self.engine.state
        own, task = state.outcome[0], state.tasks[0, slot]
        runs = state.slots[0, slot, st.STATUS] == st.RUNNING
        step_s = float(task[st.STEP]) if runs else 0.0
        held = int((state.occupant[0, :, :, 0] >= 0).sum())
        return Outcome(
            code=int(own[st.D_CODE]),
            observed=Quantities(
                start_s=self.now_s + float(own[st.D_MOVE_S]) if runs else None,
                step_s=step_s,
                traffic_bytes=float(state.traffic[0, slot].sum()) if runs else 0.0,
                energy_j=float(task[st.POWER]) * step_s,
                bill_usd=float(task[st.STEP_BILL]) if runs else 0.0,
                carbon_g=float(task[st.CARBON_RATE]) * step_s,
                r_eff=float(own[st.D_EFF]),
                r_util=float(own[st.D_UTIL]),
                r_cost=float(own[st.D_COST]),
                provenance="simulated",
            ),
            move_s=float(own[st.D_MOVE_S]),
            move_usd=float(own[st.D_MOVE_USD]),
            busy_share=held / self.world.cluster.devices,
            paid=paid,
        )

    def holds(self, name: str) -> bool:
        """Whether a task of this name waits or runs."""
        statuses = self.engine.state.slots[0, :, st.STATUS]
        return any(task.id == name and statuses[slot] != st.FREE for slot, task in self.residents.items())

    def hand_in(self, made: TaskInstance, name: str) -> bool:
        """Put a task into the queue now; False if the queue is full."""
        factors, index = made.demands.factors[0], made.task.kind_index
        inputs = self.world.kinds[index].model.layers[0].input_elements
        pcie = inputs * float(made.demands.ratio[0, 3]) * 4.0 / PCIE_BYTES_PER_S
        row = np.array([float(index), made.task.steps, *factors, pcie])
        return self._enter(replace(made.task, id=name, submitted=True), made.demands, row)

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
        while (wanted := advance(world, state, 0)) != SETTLED:
            reprice(world, state, 0, wanted == PRICE_NETWORK, scratch)

    def _arrive(self) -> None:
        """The next task of the preset comes, in the way of the engine's own arrivals."""
        count = len(self._tasks)
        traced = self._process[0] == ArrivalKind.TRACE
        at = self._arrived % count if traced else int(integers(self.engine.state.streams[0, 1], count))
        self._arrived += 1
        task = replace(self._tasks.task(at, self.world.kinds), id=f"t{self._came:06d}")
        if not self._enter(task, self._tasks.demands.take(at), self._rows[at]):
            self.engine.state.totals[0, st.DROPPED] += 1
        self._next_s = self._draw(self.now_s)

    def _draw(self, now_s: float) -> float:
        return float(next_arrival(*self._process, self._arrived, now_s, self.engine.state.streams[0, 1]))

    def attributed(self, task: Task) -> Task:
        """A task with its attribution, if it was measured and somebody can say it."""
        if self.attribute is None or task.attribution is not None or not task.counters.size:
            return task
        return replace(task, attribution=self.attribute(task.counters))

    def _enter(self, task: Task, demands: Demands, row: FloatArray) -> bool:
        state, now_s = self.engine.state, self.now_s
        number, self._came = self._came, self._came + 1
        state.event[0, st.TAKEN] += 1
        if not self.has_room:
            return False
        # Before any policy is asked, and before anything is written: the decision only refers to what is kept here.
        task = self.attributed(task)
        slot, pool = int(np.argmax(state.slots[0, :, st.STATUS] == st.FREE)), self.engine.pool
        pool.kinds[slot], pool.steps[slot], pool.counters.values[slot] = task.kind_index, task.steps, task.counters
        pool.samples_per_s[slot] = task.samples_per_s
        for own, new in ((pool.demands.values, demands.values), (pool.demands.nominal, demands.nominal)):
            own[slot] = new[0]
        pool.demands.nominal_s[slot] = demands.nominal_s[0]
        self._arrays.pool[slot] = row
        state.slots[0, slot] = (st.QUEUED, slot, number, 0)
        state.traffic[0, slot] = 0.0
        state.tasks[0, slot] = 0.0
        state.tasks[0, slot, [st.ARRIVAL, st.OFFERED]] = now_s
        state.tasks[0, slot, st.LEFT] = task.steps
        state.tasks[0, slot, st.T_EFF] = self.world.waiting_r_eff
        # Whose turn it is may have changed: it is found anew, whether or not it was known before.
        state.event[0, st.EVENT] = st.NO_EVENT
        known = replace(task, number=number, arrived_s=now_s, slot=slot, steps_left=task.steps)
        self.residents[slot] = pool.tasks[slot] = known
        return True

    def _until(self, horizon_s: float) -> None:
        self.engine.arrays = self._arrays._replace(horizon_s=horizon_s)
