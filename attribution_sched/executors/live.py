"""A cluster with machines behind it: the twin prices and is corrected, executors run the jobs, the wall clock drives.

    decision on disk ─▶ twin ─▶ executor.launch(key) ─▶ handle on disk ─▶ events ─▶ operations on disk ─▶ twin

What executors report enters the twin as operations (``started``, ``measured``, ``finished``, ``failed``), which the
journal keeps before they take effect. Going through a journal again therefore moves the twin only, and gives it to the
last bit. Only a decision, or an operation, whose effect is not recorded is told to the executors once more: by its key,
so that what was launched is found and not launched again.

Time goes by in ticks, :attr:`Live.tick_s` each; the twin never runs ahead of the wall clock, and no task ends in it
before its end was reported.
"""

from __future__ import annotations

import datetime
import logging
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.billing.metering import MeteredCluster
from attribution_sched.cluster import signals
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.demands import Demands
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import link_load, meter, price, release, reprice, signal_hour
from attribution_sched.cluster.live import Heard, Held, SimulatedCluster, Waiting
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import r_eff
from attribution_sched.cluster.world import World
from attribution_sched.config import Settings, load_settings
from attribution_sched.errors import AttributionSchedError, ExecutorError, LaunchRefused, SettingsError, problem
from attribution_sched.executors import stand_in
from attribution_sched.executors.executor import Executor
from attribution_sched.executors.records import (
    CANCELLED,
    FAILED,
    FINISHED,
    GRANTED,
    LOST,
    RUNNING,
    STEP,
    Event,
    jobs_of,
)
from attribution_sched.executors.registry import EXECUTORS
from attribution_sched.explain.digits import amount, number
from attribution_sched.journal import HandleRecord, Journal, JournalHeader
from attribution_sched.system import operations
from attribution_sched.system.operations import Operation
from attribution_sched.types import FloatArray, IntArray, Outcome, Quantities, Task
from attribution_sched.words.say import Phrase

if TYPE_CHECKING:
    from attribution_sched.system.system import System

_logger = logging.getLogger(__name__)

STAND_IN: tuple[str, ...] = (sys.executable, "-I", "-S", str(Path(stand_in.__file__).resolve()))
"""What runs for a task that was handed in without a command."""

FEWEST_STEPS = 3
"""Measured steps before the twin believes them."""

DRIFT = 0.1
"""Relative change of the measured step after which the twin is corrected again."""

LINK_DRIFT = 0.25
"""Relative change of what a link is measured to carry after which the twin is told."""

ALIKE = 0.5
"""Steps, or CPU-seconds of steps, that differ by less are of the same conditions."""

RECENT = 9
"""Newest measured steps of the same conditions that the twin is corrected by."""

MOST_LEARNT = 5
"""Newest corrections of tasks of a kind that a new one of it is expected by."""

WIDEST = 64.0
"""A task's demands are corrected by no larger factor at a time."""

ATTEMPTS = 3
"""Failures of a task's job after which it is set aside."""

SKEW_S = 120.0
"""How far the wall clock may lie behind what the journal last recorded."""

ELECTRICITY, CARBON = "electricity", "carbon"
"""Fields of a domain that may have a live source."""

HELD, RELEASING, RELEASED, CANCELLING, GONE = "held", "releasing", "released", "cancelling", "gone"
"""How far a launch has come; each is on disk before the next begins."""


# --- The twin -----------------------------------------------------------------------------------------------------


class Twin(SimulatedCluster):
    """The simulation of a real cluster: it believes what is reported to it, and ends no task by itself."""

    def pending(self, *, background: bool = False) -> Decision:
        """As in a simulation, but whoever decides is shown no neighbours of tasks whose model is known.

        Engines give a device to one job. One that was put beside another would wait there for devices of its own while
        the twin believed that it runs. Opaque jobs are told their partner, for scripts that can share.
        """
        seen = super().pending(background=background)
        return seen if seen.kind.opaque else replace(seen, neighbours=())

    def _stepwise(self, limit_s: float) -> bool:
        return True

    @property
    def next_stop_s(self) -> float:
        """The next moment at which the clockwork pauses anyway."""
        return min(self._next_s, float(self.engine.state.clock[0, st.NEXT_TICK]))

    def look(self) -> bool:
        """Whether a decision is pending now; no time passes."""
        self.settle()
        if not self.deciding:
            self._until(self.now_s)
            self.engine.state.event[0, st.DONE] = 0
            self._go_on()
        return self.deciding

    def _go_on(self) -> None:
        state = self.engine.state
        ahead_s = max(0.0, self.engine.arrays.horizon_s - self.now_s)
        for slot in np.flatnonzero(state.slots[0, :, st.STATUS] == st.RUNNING):
            step_s = float(state.tasks[0, slot, st.STEP])
            if step_s > 0.0 and math.isfinite(ahead_s):
                # Its end is reported, never foretold.
                state.tasks[0, slot, st.LEFT] = max(float(state.tasks[0, slot, st.LEFT]), ahead_s / step_s + 2.0)
        super()._go_on()

    def observed(self, kind: str, name: str, more: Mapping[str, Any]) -> None:
        """Let the twin know what was reported of a task that runs."""
        slot = self.slot_of(name)
        if slot is None or self.engine.state.slots[0, slot, st.STATUS] != st.RUNNING:
            return
        if kind == operations.MEASURED:
            self._correct(slot, more)
        elif kind == operations.FINISHED:
            totals, task = self.engine.state.totals[0], self.engine.state.tasks[0, slot]
            totals[st.COMPLETED] += 1.0
            totals[st.COMPLETION_S] += self.now_s - task[st.ARRIVAL]
            self.stop(name)
        elif kind == operations.FAILED:
            self._wait_again(slot, str(more.get("reason", "")), aside=bool(more.get("aside")))

    def hear(self, domain: str, signal: str, value: float) -> None:
        """Believe what a live source said from this hour on, and price what runs by it."""
        arrays, state = self.engine.arrays, self.engine.state
        names = [each.name for each in self.world.cluster.domains]
        hour = signal_hour(arrays, float(state.clock[0, st.LAST_TICK]))
        row = st.ELECTRICITY if signal == ELECTRICITY else st.CARBON
        self.believe(Heard(self.now_s, hour, names.index(domain), row, value))
        load = np.zeros((len(names), len(names)))
        link_load(state, 0, load)
        for slot in np.flatnonzero(state.slots[0, :, st.STATUS] == st.RUNNING).tolist():
            price(arrays, state, 0, slot, load, self.engine._scratch)
        meter(arrays, state, 0)

    def _enter(self, waiting: Waiting) -> None:
        """Put a task into the window; its demands are expected to be what those of its kind turned out to be."""
        row = waiting.row.copy()
        row[st.P_FACTORS : st.P_PCIE] = self._expected(waiting.task, waiting.demands)
        super()._enter(replace(waiting, row=row))

    def _expected(self, task: Task, demands: Demands) -> FloatArray:
        """Factors of a task's demands, as corrected by others of its kind."""
        learnt = self.learnt.get(task.kind_index)
        return _foretold(task, demands) * (statistics.median(learnt.values()) if learnt else 1.0)

    def _learn(self, slot: int) -> None:
        """Expect of others of a kind what one of them was measured to need."""
        task, demands = self.residents[slot], self.engine.pool.demands
        corrections = self.learnt.setdefault(task.kind_index, {})
        corrections.pop(task.id, None)
        corrections[task.id] = float(self._arrays.pool[slot, st.P_FACTORS] / _foretold(task, demands.take(slot))[0])
        while len(corrections) > MOST_LEARNT:
            del corrections[next(iter(corrections))]
        for each in np.flatnonzero(self.engine.state.slots[0, :, st.STATUS] == st.QUEUED).tolist():
            other = self.residents[each]
            if other.kind_index == task.kind_index:
                self._arrays.pool[each, st.P_FACTORS : st.P_PCIE] = self._expected(other, demands.take(each))

    def _correct_links(self, links: Sequence[Sequence[Any]]) -> None:
        """Believe what links were measured to carry, both ways; whoever uses one that changed is asked about again."""
        names = [each.name for each in self.world.cluster.domains]
        for source, target, _, usable in links:
            self._carry(names.index(source), names.index(target), float(usable))
        if links:
            self.corrected = True
            self._price()

    def _carry(self, i: int, j: int, bytes_per_s: float) -> None:
        state, base = self.engine.state, self._arrays.base
        for a, b in ((i, j), (j, i)):
            base[0, a, b] = state.links[0, 1, a, b] = bytes_per_s

    def _price(self) -> None:
        reprice(self.engine.arrays, self.engine.state, 0, False, self.engine._scratch)

    def _correct(self, slot: int, told: Mapping[str, Any]) -> None:
        """Correct what the measured step says most about, until the task's step takes that long; its work left, too.

        A first measurement is about the task's demands, and so is a later one with other CPU-seconds. A step that got
        longer or shorter with the same CPU-seconds, and over other links, is about the links: demands that were fitted
        to it would be wrong wherever the task goes next.
        """
        self._correct_links(told.get("links") or ())
        wanted_s, share_done = told.get("step_s"), told.get("done")
        task = self.engine.state.tasks[0, slot]
        if isinstance(wanted_s, float) and wanted_s > 0.0 and float(task[st.STEP]) > 0.0:
            if told.get("about") == "links":
                self._fit_links(slot, wanted_s, told.get("links") or ())
            else:
                self._fit_demands(slot, wanted_s)
        if isinstance(share_done, float) and 0.0 <= share_done <= 1.0:
            task[st.LEFT] = max(1.0, self.residents[slot].steps * (1.0 - share_done))

    def _fit_demands(self, slot: int, wanted_s: float) -> None:
        """Scale a task's demands until its step takes so long; links leave a floor under it."""
        factors = self._arrays.pool[slot, st.P_FACTORS : st.P_PCIE].copy()

        def scale(factor: float) -> None:
            self._arrays.pool[slot, st.P_FACTORS : st.P_PCIE] = factors * factor

        if self._fitted(slot, wanted_s, scale):
            self._learn(slot)

    def _fit_links(self, slot: int, wanted_s: float, links: Sequence[Sequence[Any]]) -> None:
        """Scale what the links of a task carry until its step takes so long; never beyond what was measured one way."""
        names = [each.name for each in self.world.cluster.domains]
        ends = [(names.index(source), names.index(target), float(rate)) for source, target, rate, _ in links]
        base_rates = [float(self._arrays.base[0, i, j]) for i, j, _ in ends]

        def scale(factor: float) -> None:
            for (i, j, rate), usable in zip(ends, base_rates, strict=True):
                self._carry(i, j, min(rate, usable / factor))

        if ends:
            self._fitted(slot, wanted_s, scale)

    def _fitted(self, slot: int, wanted_s: float, scale: Callable[[float], None]) -> bool:
        """Find the factor at which a task's step takes so long; False, and nothing is changed, if none does nearly."""
        task = self.engine.state.tasks[0, slot]

        def apart(log_factor: float) -> float:
            scale(math.exp(log_factor))
            self._price()
            return math.log(float(task[st.STEP]) / wanted_s)

        low, high = -math.log(WIDEST), math.log(WIDEST)
        # Doubled outwards from what it is now: most corrections are small.
        reach, here = 0.25, apart(0.0)
        while abs(here) > 1e-3 and reach < high and apart(math.copysign(reach, -here)) * here > 0.0:
            reach *= 2.0
        low, high = sorted((0.0, math.copysign(min(reach, high), -here)))
        for _ in range(24):
            middle = (low + high) / 2.0
            here = apart(middle)
            if abs(here) < 1e-4:
                return True
            low, high = (middle, high) if here < 0.0 else (low, middle)
        if abs(here) < DRIFT:
            return True
        apart(0.0)
        return False

    def _wait_again(self, slot: int, reason: str, *, aside: bool) -> None:
        """Take a task off its devices and let it wait again, or set it aside."""
        state = self.engine.state
        release(self.engine.arrays, state, 0, slot)
        task, steps_left = self.residents.pop(slot), float(state.tasks[0, slot, st.LEFT])
        waiting = Waiting(task, self.engine.pool.demands.take(slot), self._arrays.pool[slot].copy(), steps_left)
        state.slots[0, slot] = (st.FREE, 0, 0, 0)
        state.traffic[0, slot] = 0.0
        reprice(self.engine.arrays, state, 0, False, self.engine._scratch)
        if aside:
            self.set_aside += 1
            self.held[task.id] = Held(replace(waiting, task=replace(task, hold=True)), reason, True)
        else:
            self._admit(waiting)
        self._offer()

    def plan_of(self, slot: int) -> Plan:
        """The plan in force of a task that runs."""
        state = self.engine.state
        count = int(state.slots[0, slot, st.SEGMENTS])
        rows = state.plans[0, slot, :count][None].copy()
        return PlanBatch(rows, np.array([count], dtype=np.int64), np.zeros(1, dtype=np.int64)).plan(0)

    def partner_of(self, slot: int) -> str | None:
        """Id of a task that shares a device with another; None if it has them alone."""
        seats = self.engine.state.occupant[0].reshape(-1, 2)
        others = {int(other) for pair in seats if slot in pair for other in pair if other not in (slot, -1)}
        return next((self.residents[other].id for other in sorted(others) if other in self.residents), None)


def _foretold(task: Task, demands: Demands) -> FloatArray:
    """Factors of a task's demands by its own counters, shape ``(3,)``; nominal ones if nobody measured it.

    What a simulation would draw for a task that nobody measured says nothing of a real one.
    """
    demand_factors: FloatArray = np.asarray(demands.factors[0], dtype=np.float64)
    return (
        np.ones_like(demand_factors) if all(how == "simulated" for how in task.provenance.values()) else demand_factors
    )


class MeteredTwin(MeteredCluster, Twin):
    """The twin with a meter on every device: joules are what its model says of the steps that were measured."""

    def observed(self, kind: str, name: str, more: Mapping[str, Any]) -> None:
        """Let the twin know what was reported, and the books when it ended."""
        super().observed(kind, name, more)
        if kind == operations.FINISHED and name in self._uses:
            self._uses[name] = replace(self._uses[name], finished_s=self.now_s)


class RealCluster(Twin):
    """The twin, and the executors behind it.

    Args:
        world: The scheduling problem.
        seed: Of what the twin still draws.
        arrivals: Whether the world's own tasks arrive.
        live: The machines.
    """

    def __init__(self, world: World, seed: int, *, arrivals: bool = False, live: Live) -> None:
        super().__init__(world, seed, arrivals=arrivals)
        self.live = live

    def carry_out(self, action: IntArray, key: str = "") -> Outcome:
        """Let a decision take effect in the twin, and launch what it placed or moved."""
        slot = int(self.engine.state.event[0, st.SLOT])
        effect = super().carry_out(action, key)
        if effect.code in (1, 2):
            task = self.residents[slot]
            steps_left = max(1, math.ceil(float(self.engine.state.tasks[0, slot, st.LEFT])))
            self.live.launch(key, task, self.plan_of(slot), steps_left, self.partner_of(slot))
        return replace(effect, predicted=replace(effect.observed, provenance="estimated"))

    def cancel(self, name: str) -> None:
        """Stop a running task, on its machines first."""
        self.live.stop(name)
        super().cancel(name)


def twin_world(world: World, tick_s: float) -> World:
    """A world as a twin takes it: it ticks with the wall clock, and nothing happens that nobody reported."""
    still = replace(world.cluster, wan=replace(world.cluster.wan, spread=0.0, failures=None))
    return replace(world, cluster=still, tick_s=tick_s, incidents=())


def is_real(header: JournalHeader) -> bool:
    """Whether a journal is of a real cluster."""
    return bool(header.settings.get("cluster", "simulated") != "simulated")


def twin_of(header: JournalHeader) -> tuple[type[Twin], World] | None:
    """What a real cluster's journal is gone through in; None if it is of a simulated one."""
    if not is_real(header):
        return None
    world = load_settings(header.settings["world"]).build_world()
    return Twin, twin_world(world, float(header.settings["tick_s"]))


# --- The machines -------------------------------------------------------------------------------------------------


@dataclass
class Launched:
    """A launch that is in force.

    Attributes:
        key: Of its decision.
        task: Id of its task.
        parts: Domain → the engine's own name of its job.
        phase: How far the launch has come.
        since_unix_s: When it was launched.
        attempt: How often the task was started before.
        states: Domain → the last state that was reported.
        ends: Domain → what was reported of its end.
        steps: Domain → measured steps, the newest last.
        done: Share of the work that is done, as the job says.
        told: Kinds of operations that the journal has of it.
        told_step_s: The step that the twin was last told.
        told_cpu_s: The CPU-seconds of a step that went with it.
        started_unix_s: When the last of its parts began.
        reason: Why it is being given up.
        next: Domain → the domain of the stage after it.
        told_links: What the twin was last told of links, by their first end.
        duplex: What is left of a link's direction while the other is busy.
        spent: What was metered of it, once it was taken away: its end and CPU-seconds by domain.
    """

    key: str
    task: str
    parts: dict[str, str]
    phase: str
    since_unix_s: float
    attempt: int = 0
    states: dict[str, str] = field(default_factory=dict)
    ends: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    steps: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    done: float | None = None
    told: set[str] = field(default_factory=set)
    told_step_s: float | None = None
    told_cpu_s: float = 0.0
    started_unix_s: float = 0.0
    reason: str = ""
    next: dict[str, str] = field(default_factory=dict)
    told_links: dict[str, float] = field(default_factory=dict)
    duplex: float = 1.0
    spent: dict[str, Any] = field(default_factory=dict)

    def links(self) -> dict[str, float]:
        """Bytes a second to the next stage's domain, by domain, as jobs that measure it report it now."""
        medians = {}
        for domain in self.next:
            rates = [each.get("link_bytes_per_s") for each in self.steps.get(domain, ())]
            recent = [float(rate) for rate in rates if isinstance(rate, float | int) and 0.0 < rate < math.inf][-3:]
            if recent:
                # Unlike ones are of before and after a change: their mean was never there.
                medians[domain] = statistics.median(
                    rate for rate in recent if abs(rate / recent[-1] - 1.0) <= LINK_DRIFT
                )
        return medians

    def measured(self) -> dict[str, Any] | None:
        """The step as it is measured now, by its slowest part; None while too little is known."""
        if len(self.steps) < len(self.parts) or any(len(steps) < FEWEST_STEPS for steps in self.steps.values()):
            return None
        windows = {domain: alike(steps) for domain, steps in self.steps.items()}
        medians = [statistics.median(float(each["step_s"]) for each in steps) for steps in windows.values()]
        per_step = {}
        for name in ("bytes", "cpu_s"):
            columns = [[float(each[name]) for each in steps if name in each] for steps in windows.values()]
            per_step[name] = sum(statistics.median(values) for values in columns if values)
        count = min(len(steps) for steps in self.steps.values())
        # As measured, one way and undisturbed; and as a pipeline has it, which sends both ways at once.
        links = [[domain, self.next[domain], rate, rate * self.duplex] for domain, rate in self.links().items()]
        step_s, about = max(medians), self._about(max(medians), per_step["cpu_s"])
        if about == "links" and not any("link_bytes_per_s" in each for steps in windows.values() for each in steps):
            # Links are told as they were when these steps were taken, or not yet.
            return None
        return {
            "step_s": step_s,
            "steps": count,
            "done": self.done,
            **per_step,
            **({"links": links, "about": about} if links else {}),
        }

    def _about(self, step_s: float, cpu_s: float) -> str:
        """What a step that was measured says something about: the task's demands, or the links between its parts."""
        if self.told_step_s is None or not self.next or not (cpu_s > 0.0 and self.told_cpu_s > 0.0):
            return "demands"
        changed = abs(step_s / self.told_step_s - 1.0) > DRIFT
        same = abs(cpu_s / self.told_cpu_s - 1.0) <= ALIKE
        return "links" if changed and same else "demands"


def alike(steps: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The newest steps that were taken under the same conditions."""
    newest = statistics.median(float(each["step_s"]) for each in steps[-FEWEST_STEPS:])
    count = 0
    for each in reversed(steps[-RECENT:]):
        if abs(float(each["step_s"]) / newest - 1.0) > ALIKE:
            break
        count += 1
    return steps[-max(1, count) :]


class Live:
    """The machines behind a system, and what is under way on them.

    Args:
        executors: Domain → its executor.
        command: What runs for a task that was handed in without a command.
        tick_s: Length of a tick of the twin's clock.
        poll_s: Pause between two looks at the executors.
        gang_s: Seconds within which all parts of a gang must have their devices; else all are cancelled.
        kind: Word for it in the journal.
    """

    def __init__(
        self,
        executors: Mapping[str, Executor],
        *,
        command: Sequence[str] = STAND_IN,
        tick_s: float = 1.0,
        poll_s: float = 0.05,
        gang_s: float = 60.0,
        kind: str = "local",
    ) -> None:
        self.executors, self.command, self.kind = dict(executors), tuple(command), kind
        self.tick_s, self.poll_s, self.gang_s = tick_s, poll_s, gang_s
        self.journal: Journal | None = None
        self.launched: dict[str, Launched] = {}
        self._cursors: dict[str, Mapping[str, Any]] = {}
        self._attempts: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._heard: dict[tuple[str, str], int] = {}
        self._origin_s, self._duplex = 0.0, 1.0
        self.domains: list[str] = list(self.executors)
        self.cap_w: Callable[[int, int], float] | None = None

    def world_of(self, world: World) -> World:
        """A world as the twin takes it: it ticks with the wall clock, and nothing happens that nobody reported."""
        missing = [each.name for each in world.cluster.domains if each.name not in self.executors]
        if missing:
            rule = f"no executor was given for {', '.join(missing)}"
            raise SettingsError(problem("cluster", sorted(self.executors), rule, "Give one for each domain"))
        self.domains, self.cap_w = [each.name for each in world.cluster.domains], world.cluster.cap_w
        return twin_world(world, self.tick_s)

    def make(self, world: World, seed: int, *, arrivals: bool) -> Twin:
        """The cluster of a world, with these machines behind it."""
        return RealCluster(world, seed, arrivals=arrivals, live=self)

    def header_of(self, header: JournalHeader) -> JournalHeader:
        """A journal's header that says what it ran on, and how its twin ticks."""
        cluster_settings = {"cluster": self.kind, "tick_s": self.tick_s}
        return replace(header, settings={**header.settings, **cluster_settings})

    def attach(self, journal: Journal) -> None:
        """Work for a journal: know again what it launched, and lend its lock to whoever submits.

        Raises:
            ExecutorError: If the wall clock lies behind what the journal recorded.
        """
        self.journal = journal
        network = (journal.header.settings.get("world") or {}).get("network") or {}
        self._duplex = float(network.get("duplex_efficiency") or 1.0)
        ticks = journal.header.settings.get("tick_s", self.tick_s)
        if ticks != self.tick_s:
            rule = f"the journal was written with ticks of {ticks} s"
            raise ExecutorError(problem("tick_s", self.tick_s, rule, f"Use tick_s={ticks}"))
        self._origin_s = datetime.datetime.fromisoformat(journal.header.created_at).timestamp()
        for executor in self.executors.values():
            executor.lock_file = journal.lock_file
        ended: set[str] = set()
        by_key: dict[str, list[Operation]] = {}
        for each in operations.recorded(journal):
            if each.kind in operations.OBSERVED:
                key = str(each.more["key"])
                by_key.setdefault(key, []).append(each)
                if each.kind == operations.FAILED:
                    self._failures[each.name] = self._failures.get(each.name, 0) + 1
                if each.kind in (operations.FINISHED, operations.FAILED):
                    ended.add(key)
        newest: dict[str, Launched] = {}
        for record in journal.handles():
            running = launched_of(record)
            running.duplex = self._duplex
            self._attempts[running.task] = running.attempt + 1
            if running.phase != GONE and running.key not in ended:
                for operation in by_key.get(running.key, ()):
                    running.told.add(operation.kind)
                    running.told_step_s = operation.more.get("step_s", running.told_step_s)
                    running.told_cpu_s = float(operation.more.get("cpu_s", running.told_cpu_s))
                newest[running.task] = running
        self.launched = {each.key: each for each in newest.values()}
        # An engine may have forgotten the end of what was launched long ago, unless it is asked for by its key.
        self._cursors = {
            domain: {each.key: None for each in self.launched.values() if domain in each.parts}
            for domain in self.executors
        }
        behind_s = journal_time(journal) - time.time()
        if behind_s > SKEW_S:
            rule = f"lies {behind_s:.0f} s behind what the journal last recorded"
            raise ExecutorError(problem("clock", time.strftime("%H:%M:%S"), rule, "Set the machine's clock"))

    @property
    def now_s(self) -> float:
        """Seconds since the journal was made, by the wall clock."""
        return time.time() - self._origin_s

    def check_inventory(self) -> None:
        """Ask every executor what it has.

        Raises:
            ExecutorError: If one does not answer.
        """
        for executor in self.executors.values():
            executor.inventory()

    def launch(self, key: str, task: Task, plan: Plan, steps: int, partner: str | None = None) -> None:
        """Start a placed or moved task, once, however often this is called for a key.

        The parts of a gang are handed in held, everywhere; :meth:`poll` lets them go when all have their devices.
        """
        assert self.journal is not None
        for old in [each for each in self.launched.values() if each.task == task.id and each.key != key]:
            # A move: the old job is asked to save itself, and is gone before the new one starts.
            self._end(old)
            old.spent = self._metered(old)
            self._gone(old)
        journaled = self.journal.handle(key)
        if journaled is not None and launched_of(journaled).phase not in (HELD,):
            self.launched[key] = self.launched.get(key) or launched_of(journaled)
            return
        attempt = launched_of(journaled).attempt if journaled is not None else self._attempts.get(task.id, 0)
        record = self.journal.task(task.id) if self.journal.knows_task(task.id) else None
        command = self.command if record is None else tuple(record.meta.get("command") or self.command)
        jobs = jobs_of(
            key, task.id, plan, self.domains, command, steps=steps, attempt=attempt, partner=partner,
            cap_w=self.cap_w,
        )  # fmt: skip
        since = time.time() if journaled is None else launched_of(journaled).since_unix_s
        made = Launched(key, task.id, {}, HELD if len(jobs) > 1 else RELEASED, since, attempt)
        parts = {(job.component.replica, job.component.stage): job.component.domain for job in jobs}
        made.duplex = self._duplex
        made.next = {at: parts[r, s + 1] for (r, s), at in parts.items() if (r, s + 1) in parts}
        self.launched[key] = made
        self._attempts[task.id] = attempt + 1
        refused = ""
        for job in jobs:
            domain = job.component.domain
            try:
                handle = self.executors[domain].launch(key, replace(job, hold_s=max(60.0, 10.0 * self.gang_s)))
            except LaunchRefused as error:
                refused = str(error)
                break
            made.parts[domain] = handle.id
            # Named from now on: an engine may have forgotten its end before it is first looked at.
            cursor = self._cursors.get(domain, {})
            self._cursors[domain] = {**cursor, key: cursor.get(key)}
        if refused:
            # What its other domains have taken already is given back by whoever sees this phase next.
            made.phase, made.reason = CANCELLING, refused
        self._keep(made)

    def stop(self, name: str) -> None:
        """Cancel whatever runs for a task; its devices are free once it has ended."""
        for each in [each for each in self.launched.values() if each.task == name]:
            self._end(each)
            each.spent = self._metered(each)
            self._gone(each)

    def _end(self, old: Launched, wait_s: float = 120.0) -> None:
        """Cancel a launch and wait until all its parts have ended."""
        for domain in old.parts:
            self.executors[domain].cancel(old.key)
        until = time.monotonic() + wait_s
        for domain in old.parts:
            while (handle := self.executors[domain].find(old.key)) is not None and not handle.ended:
                if time.monotonic() > until:
                    rule = f"did not end within {wait_s:g} s of being asked to"
                    raise ExecutorError(problem("job", old.key, rule, "Let the command end on SIGTERM"))
                time.sleep(self.poll_s)

    def _metered(self, made: Launched) -> dict[str, Any]:
        """End and CPU-seconds by domain of a launch that has ended, as far as executors know them."""
        handles = [(domain, self.executors[domain].find(made.key)) for domain in made.parts]
        spent = {domain: each.cpu_s for domain, each in handles if each is not None and each.cpu_s is not None}
        ends = [each.ended_unix_s for _, each in handles if each is not None and each.ended_unix_s is not None]
        return {"end_s": max(ends, default=time.time()) - self._origin_s, "cpu_by_domain": spent} if spent else {}

    def _keep(self, made: Launched) -> None:
        assert self.journal is not None
        payload = {
            "task": made.task, "parts": dict(made.parts), "phase": made.phase, "since_unix_s": made.since_unix_s,
            "attempt": made.attempt, "reason": made.reason, "next": made.next,
            **({"spent": made.spent} if made.spent else {}),
        }  # fmt: skip
        self.journal.record_handle(HandleRecord(made.key, self.kind, payload))

    def _gone(self, made: Launched) -> None:
        made.phase = GONE
        self._keep(made)
        self.launched.pop(made.key, None)

    def poll(self, cluster: Twin) -> Iterator[Operation]:
        """Look at the executors; what they report, as operations that the journal has not seen yet."""
        yield from self._hear(cluster)
        for domain, executor in self.executors.items():
            if any(domain in each.parts for each in self.launched.values()):
                observed = executor.observe(self._cursors.get(domain, {}))
                self._cursors[domain] = observed.cursor
                for event in observed.events:
                    if event.key in self.launched:
                        self._note(self.launched[event.key], event)
        for each in list(self.launched.values()):
            if cluster.place_of(each.task) != "running":
                continue
            report = self._reported(each)
            if report is not None:
                kind, more = report
                yield operations.operation(cluster, kind, each.task, key=each.key, **more)

    def _hear(self, cluster: Twin) -> Iterator[Operation]:
        """Ask the live sources of prices and carbon, once an hour each; one that fails leaves what it said last."""
        # By the wall: the twin's clock stands while nothing runs, and the next task would be priced by old news.
        hour = int(self.now_s // signals.HOUR_S)
        for domain in cluster.world.cluster.domains:
            for name in (ELECTRICITY, CARBON):
                source = getattr(domain, name)
                if not (isinstance(source, signals.Live) and source.only_noted):
                    continue
                if self._heard.get((domain.name, name)) == hour:
                    continue
                self._heard[domain.name, name] = hour
                try:
                    value = source.ask()
                except (OSError, ValueError, AttributionSchedError) as error:
                    _logger.warning("%s of %s: no news this hour, the last value stays (%s)", name, domain.name, error)
                    continue
                yield operations.operation(cluster, operations.SIGNAL, domain.name, signal=name, value=value)

    def _note(self, made: Launched, event: Event) -> None:
        if event.kind == STEP:
            if isinstance(event.data.get("step_s"), float | int):
                made.steps.setdefault(event.domain, []).append(event.data)
            share_done = event.data.get("done")
            made.done = float(share_done) if isinstance(share_done, float | int) else made.done
            return
        made.states[event.domain] = event.kind
        if event.kind == RUNNING:
            made.started_unix_s = max(made.started_unix_s, event.unix_s)
        made.ends[event.domain] = {"unix_s": event.unix_s, **event.data}

    def _reported(self, made: Launched) -> tuple[str, dict[str, Any]] | None:
        """The next operation that a launch's reports amount to; None if there is none."""
        states = [made.states.get(domain, "") for domain in made.parts]
        if made.phase == CANCELLING:
            return self._failed(made, made.reason)
        order = (FAILED, LOST, CANCELLED)
        broken = min(
            (each for each in made.parts if made.states.get(each) in order),
            key=lambda each: order.index(made.states[each]),
            default=None,
        )
        if broken is not None:
            end = made.ends.get(broken, {})
            code = f"exit code {end['exit_code']}" if "exit_code" in end else ""
            reason = str(end.get("reason") or code or made.states[broken])
            return self._failed(made, f"{broken}: {made.states[broken]} ({reason})")
        if made.phase in (HELD, RELEASING):
            return self._advance_gang(made, states)
        if all(state == FINISHED for state in states):
            return operations.FINISHED, self._spent(made)
        if operations.STARTED not in made.told and all(state in (RUNNING, FINISHED) for state in states):
            made.told.add(operations.STARTED)
            waited = made.started_unix_s - made.since_unix_s
            return operations.STARTED, {"start_s": made.started_unix_s - self._origin_s, "launch_s": max(0.0, waited)}
        step = made.measured()
        if step is not None and self._is_news(made, step):
            made.told.add(operations.MEASURED)
            made.told_step_s, made.told_cpu_s, made.told_links = step["step_s"], step["cpu_s"], made.links()
            return operations.MEASURED, step
        return None

    @staticmethod
    def _is_news(made: Launched, step: Mapping[str, Any]) -> bool:
        """Whether a measured step, or a link, differs from what the twin was last told."""
        if made.told_step_s is None or abs(step["step_s"] / made.told_step_s - 1.0) > DRIFT:
            return True
        links = made.links().items()
        return any(abs(rate / made.told_links.get(at, math.inf) - 1.0) > LINK_DRIFT for at, rate in links)

    def _advance_gang(self, made: Launched, states: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
        """One phase of a gang further, if it is due; that it is let go is on disk before the first part is."""
        if made.phase == HELD and all(state == GRANTED for state in states):
            made.phase = RELEASING
            self._keep(made)
        if made.phase == RELEASING:
            for domain in made.parts:
                self.executors[domain].release(made.key)
            made.phase = RELEASED
            self._keep(made)
            return None
        if time.time() - made.since_unix_s > self.gang_s:
            got = sum(state == GRANTED for state in states)
            return self._failed(made, f"{got} of {len(states)} parts had their devices within {self.gang_s:g} s")
        return None

    def _failed(self, made: Launched, reason: str) -> tuple[str, dict[str, Any]]:
        """Nothing of a launch may be left when its task waits again."""
        made.phase, made.reason = CANCELLING, reason
        self._keep(made)
        self._end(made)
        failures = self._failures[made.task] = self._failures.get(made.task, 0) + 1
        return operations.FAILED, {"reason": reason, "aside": failures >= ATTEMPTS, **self._metered(made)}

    def _spent(self, made: Launched) -> dict[str, Any]:
        step = made.measured() or {}
        ends = list(made.ends.values())
        spent: dict[str, Any] = {
            "end_s": max(float(end["unix_s"]) for end in ends) - self._origin_s,
            "start_s": made.started_unix_s - self._origin_s,
        }
        for name in ("cpu_s", "max_rss_bytes"):
            figures = [float(end[name]) for end in ends if end.get(name) is not None]
            if figures:
                spent[f"job_{name}"] = sum(figures)
        spent["cpu_by_domain"] = {
            domain: float(end["cpu_s"]) for domain, end in made.ends.items() if end.get("cpu_s") is not None
        }
        return spent | step

    def drive(self, system: System, limit_s: float) -> bool:
        """Let wall time pass to the next decision; see :meth:`SimulatedCluster.advance`."""
        while True:
            cluster = system.cluster
            assert isinstance(cluster, Twin)
            for what in self.poll(cluster):
                system.operate.carry_out(what)
                if what.kind in (operations.FINISHED, operations.FAILED):
                    launch = self.launched.get(str(what.more["key"]))
                    if launch is not None:
                        self._gone(launch)
            wall_s = min(self.now_s, limit_s)
            with system.transaction.moves():
                pending = cluster.look()
                # Time stands where nothing runs and nobody waits.
                while not pending and cluster.next_stop_s <= wall_s and (cluster.expecting or cluster.running):
                    pending = cluster.advance(cluster.next_stop_s)
            if pending:
                return True
            if self.now_s >= limit_s or not (cluster.expecting or cluster.running):
                return False
            time.sleep(self.poll_s)


class Onlooker(Live):
    """No machines at all: whoever only reads a real cluster's journal lives through it in its twin.

    Nothing is launched, asked or stopped; a decision that is pending in the journal takes effect in the twin alone.

    Args:
        header: Of the journal.
    """

    def __init__(self, header: JournalHeader) -> None:
        super().__init__({}, tick_s=float(header.settings["tick_s"]), kind=str(header.settings["cluster"]))

    def world_of(self, world: World) -> World:
        """A world as the twin takes it; no machines are needed."""
        self.domains = [each.name for each in world.cluster.domains]
        return twin_world(world, self.tick_s)

    def make(self, world: World, seed: int, *, arrivals: bool) -> Twin:
        """The twin, with nothing behind it."""
        return Twin(world, seed, arrivals=arrivals)

    def attach(self, journal: Journal) -> None:
        """Know the journal; nothing in it is taken over."""
        self.journal = journal
        self._origin_s = datetime.datetime.fromisoformat(journal.header.created_at).timestamp()

    def drive(self, system: System, limit_s: float) -> bool:
        """No time passes."""
        return False


def onlooker(path: str | os.PathLike[str]) -> Onlooker | str:
    """What a copy of a journal is built again with, to be asked and never to go on: a twin, or ``simulated``.

    Raises:
        JournalError: If there is no such journal.
    """
    with Journal.read(path) as journal:
        return Onlooker(journal.header) if is_real(journal.header) else "simulated"


def launched_of(record: HandleRecord) -> Launched:
    """A launch as its handle in the journal tells it."""
    payload = record.handle
    return Launched(
        record.key, payload["task"], dict(payload["parts"]), payload["phase"], float(payload["since_unix_s"]),
        int(payload["attempt"]), reason=payload["reason"], next=dict(payload.get("next", {})),
    )  # fmt: skip


def journal_time(journal: Journal) -> float:
    """When a journal's newest decision was recorded, by the wall clock of then."""
    last = journal.last()
    at = journal.header.created_at if last is None else last.recorded_at
    return datetime.datetime.fromisoformat(at).timestamp()


# --- How it is asked for ------------------------------------------------------------------------------------------


def live_of(cluster: Any, settings: Settings, journal: str | os.PathLike[str] | None) -> Live | None:
    """The machines that a system was asked to run on; None if it simulates.

    Args:
        cluster: A name of :data:`~attribution_sched.executors.registry.EXECUTORS`, a :class:`Live`, executors by
            domain, or what a simulated cluster is asked for by.
        settings: Of the world whose domains need executors.
        journal: Path of the journal. Local jobs are kept in a folder beside it.

    Raises:
        SettingsError: If it cannot be made.
    """
    if isinstance(cluster, Live):
        return cluster
    spec = EXECUTORS.get(cluster) if isinstance(cluster, str) else None
    if spec is not None:
        if journal is None:
            rule = "jobs outlive this process, so what was launched must be on disk"
            fix = f"Give journal='run.sqlite' with cluster={spec.name!r}"
            raise SettingsError(problem("journal", None, rule, fix))
        folder, domains = local_folder(journal), settings.build_world().cluster.domains
        sites = {each.name: spec.make(each.name, each.devices, folder) for each in domains}
        live = Live(sites, poll_s=spec.poll_s, kind=spec.name)
        if spec.asked_first:
            live.check_inventory()
        return live
    if isinstance(cluster, Mapping):
        wrong = [name for name, each in cluster.items() if not isinstance(each, Executor)]
        if wrong or not cluster:
            rule = "must map every domain to an Executor"
            raise SettingsError(
                problem("cluster", wrong, rule, "For example {'east': LocalExecutor('east', 4, folder)}")
            )
        kinds = sorted({each.name for each in cluster.values()})
        return Live(cluster, kind="+".join(kinds))
    return None


def local_folder(journal: str | os.PathLike[str]) -> Path:
    """Where local jobs of a journal are kept: beside it."""
    resolved = Path(journal).resolve()
    return resolved.with_name(f"{resolved.name}.jobs")


def recorded_cluster(path: str | os.PathLike[str]) -> str:
    """What a journal ran on, to go on with it there.

    Raises:
        JournalError: If there is no such journal.
        SettingsError: If its machines must be given again.
    """
    with Journal.read(path) as journal:
        kind = str(journal.header.settings.get("cluster", "simulated"))
    if kind not in ("simulated", *EXECUTORS):
        rule = "ran on machines that cannot be made by their name"
        raise SettingsError(problem("cluster", kind, rule, "Pass them: System.resume(path, cluster={...})"))
    return kind


def outcome_of(journal: Journal, decision: str) -> Outcome:
    """What a decision came to, predicted and measured side by side.

    Args:
        journal: Where it stands.
        decision: Its id.

    Returns:
        ``predicted`` is what the twin expected when it was taken; ``observed`` what executors and the job itself
        reported since (``measured``), or nothing (``unavailable``).
    """
    record, key = journal.outcome(decision), journal.key(decision)
    if record is None:
        rule = "has no outcome yet"
        raise ExecutorError(problem("decision", decision, rule, "Resume the journal, which finishes it"))
    predicted = Quantities(
        start_s=journal.decision(decision).cluster_time_s, step_s=record.step_s, energy_j=record.energy_j,
        bill_usd=record.bill_usd, carbon_g=record.details.get("carbon_g"), r_eff=record.r_eff, r_util=record.r_util,
        r_cost=record.r_cost, provenance="estimated",
    )  # fmt: skip
    observed: dict[str, Any] = {}
    for each in operations.recorded(journal):
        if each.kind in operations.OBSERVED and each.more.get("key") == key:
            observed |= {name: value for name, value in each.more.items() if value is not None}
    if not observed:
        return Outcome(record.code, Quantities(), predicted)
    base_s, step_s = record.details.get("base_step_s"), observed.get("step_s")
    saved = None if not base_s or step_s is None else float(r_eff(float(step_s), float(base_s)))
    measured = Quantities(
        start_s=observed.get("start_s"), step_s=step_s, traffic_bytes=observed.get("bytes"), r_eff=saved,
        provenance="measured",
    )  # fmt: skip
    return Outcome(record.code, measured, predicted)


def outcome_words(journal: Journal, decision: str) -> str:
    """Predicted and measured of a decision, in words; empty if it placed nothing."""
    record, key = journal.outcome(decision), journal.key(decision)
    if record is None or record.code not in (1, 2) or record.step_s is None:
        return ""
    reports = [each.more for each in operations.recorded(journal) if each.more.get("key") == key]
    steps = [float(more["step_s"]) for more in reports if more.get("step_s")]
    predicted = amount(record.step_s, "s")
    if not steps:
        return Phrase("outcome.none", predicted=predicted)
    cpu_s = [float(more["job_cpu_s"]) for more in reports if more.get("job_cpu_s")]
    values: dict[str, Any] = {
        "predicted": predicted,
        "measured": amount(steps[0], "s"),
        "off": f"{steps[0] / record.step_s - 1.0:+.0%}".replace("-", "−").replace("%", " %"),
        "spent": Phrase("outcome.spent", cpu=number(cpu_s[-1])) if cpu_s else "",
    }
    if abs(steps[-1] / steps[0] - 1.0) <= DRIFT:
        return Phrase("outcome.measured", **values)
    return Phrase("outcome.changed", last=amount(steps[-1], "s"), **values)
