"""The world played out event by event: processes that sleep, wake and interrupt each other (SimPy).

The same world as the batched engine, written a second time as processes: arrivals, the network's ticks, running
jobs that are interrupted when their speed changes, and a dispatcher that settles whatever came due at an instant
and asks the policy. On a run without failures and preemption both agree on every job; this one adds devices
that fail and urgent jobs that take devices from others (``failures.py``).

What comes due at one instant is settled in a fixed order: work and epochs that ended, prices, then decisions
(re-planning before placing; urgent before early). Jobs that arrive together are taken one by one.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import simpy
from numpy.random import Generator as Random
from numpy.random import SeedSequence

from attribution_sched.cluster.arrivals import TraceArrivals, next_arrival
from attribution_sched.cluster.cost import BYTES_PER_GBIT, CostModel
from attribution_sched.cluster.failures import Failures, Preemption
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.pool import build_pool
from attribution_sched.cluster.simulator_floor import Floor
from attribution_sched.cluster.simulator_job import STEP_TOLERANCE, Device, Job
from attribution_sched.cluster.simulator_prices import Prices
from attribution_sched.cluster.simulator_record import Happening, SimulationResult, Status, Totals
from attribution_sched.cluster.streams import integers, seed_stream
from attribution_sched.cluster.view import DecisionView
from attribution_sched.cluster.wan import WanProcess
from attribution_sched.cluster.world import World

Process = Generator[Any, Any, None]

HOUR_S = 3600.0
OFF = "off its devices"
"""Cause of the interrupt that ends the process of a job."""


@dataclass(frozen=True)
class Shared:
    """A plan that may use devices which already hold another job."""

    plan: Plan


class Decider(Protocol):
    """A policy; one that never shares devices returns plain plans."""

    @property
    def name(self) -> str:
        """Short name for records."""
        ...

    def decide(self, view: DecisionView) -> Plan | Shared | None:
        """Return a plan; None leaves a waiting job in the queue and a running one where it is."""
        ...


class _Last(simpy.Event):  # type: ignore[misc]
    """A timeout that fires after everything else of its instant."""

    def __init__(self, env: simpy.Environment, delay_s: float = 0.0, rank: int = 1) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, priority=simpy.events.NORMAL + rank, delay=delay_s)


def simulate(
    world: World,
    policy: Decider,
    seed: int,
    *,
    failures: Failures | None = None,
    preemption: Preemption | None = None,
) -> SimulationResult:
    """Play one episode of a world under a policy.

    Args:
        world: The scheduling problem.
        policy: Who decides.
        seed: Seed of network and arrivals, drawn as the batched engine draws them, and of failures.
        failures: How devices fail; None for never.
        preemption: Whether urgent jobs may take devices from others; not by default.
    """
    return Simulator(world, policy, seed, failures=failures, preemption=preemption).run()


class Simulator:
    """One episode; see :func:`simulate` for the arguments."""

    def __init__(
        self,
        world: World,
        policy: Decider,
        seed: int,
        *,
        failures: Failures | None = None,
        preemption: Preemption | None = None,
    ) -> None:
        self.world, self.policy, self.seed = world, policy, seed
        self.failures, self.preemption = failures, preemption or Preemption()
        # The third stream is new; spawning it leaves the engine's two as they are.
        network, tasks, wear = SeedSequence(seed).spawn(3)
        self.network = WanProcess(world.cluster.wan, network)
        self.stream, self.wear = seed_stream(tasks), wear
        self.pool = build_pool(world)
        self.cost = CostModel(world.cluster, [k.model for k in world.kinds], [k.training for k in world.kinds])
        self.prices = Prices(world, self.cost, self.pool, self.network)
        self.floor = Floor(self.prices)
        self.env = simpy.Environment()
        self.berths = list(range(world.max_running + world.queue_capacity))
        self.jobs: list[Job] = []
        self.timeline: list[Happening] = []
        self._called, self._settled = self.env.event(), self.env.event()
        self._links_changed = self._devices_freed = False

    def run(self) -> SimulationResult:
        """Play the episode to its horizon."""
        self.env.process(self._dispatcher())
        self.env.process(self._arrivals())
        self.env.process(self._ticks())
        if self.failures is not None:
            devices = [device for row in self.floor.devices for device in row]
            for device, source in zip(devices, self.wear.spawn(len(devices)), strict=True):
                self.env.process(self._wear(self.failures, device, np.random.default_rng(source)))
        self.env.run(until=_Last(self.env, self.world.horizon_s, rank=2))
        self.floor.elapse(self.world.horizon_s)
        records = tuple(job.record() for job in self.jobs)
        return SimulationResult(self.policy.name, self.seed, records, Totals(**self.floor.sums), tuple(self.timeline))

    # Processes

    def _arrivals(self) -> Process:
        spec, at_s = self.world.arrivals.spec(), 0.0
        traced = isinstance(self.world.arrivals, TraceArrivals)
        for taken in itertools.count():
            due_s = float(next_arrival(*spec, taken, at_s, self.stream))
            if taken > 0 and due_s <= at_s:
                yield self._settled
            if due_s > self.world.horizon_s or self.env.now >= self.world.horizon_s:
                return
            yield self.env.timeout(max(0.0, due_s - self.env.now))
            at_s = due_s
            self._arrive(taken, taken % len(self.pool) if traced else int(integers(self.stream, len(self.pool))))

    def _ticks(self) -> Process:
        while True:
            yield self.env.timeout(self.world.tick_s)
            self.network.step(self.world.tick_s)
            self.prices.read_network()
            self._flag_moved_links()
            self._links_changed = True
            self._call()

    def _work(self, job: Job) -> Process:
        """Sleep until something of the job comes due; a change of price interrupts the sleep."""
        while True:
            job.timer_stale = False
            try:
                yield self.env.timeout(job.due_in_s(self.env.now))
                yield self._call()
            except simpy.Interrupt as interrupt:
                if interrupt.cause == OFF:
                    return

    def _wear(self, failures: Failures, device: Device, rng: Random) -> Process:
        while True:
            yield self.env.timeout(rng.exponential(failures.mtbf_h * HOUR_S))
            self._fail(failures, device)
            yield self.env.timeout(failures.repair_h * HOUR_S)
            self.floor.elapse(self.env.now)
            device.up = True
            self._log("repaired", None, self._label(device))
            self._offer_queue()
            self._call()

    def _remind(self) -> Process:
        yield self.env.timeout(self.world.retry_s)
        self._call()

    def _dispatcher(self) -> Process:
        while True:
            yield self._called
            yield _Last(self.env)
            self._called = self.env.event()
            self._settle()
            settled, self._settled = self._settled, self.env.event()
            settled.succeed()

    def _call(self) -> simpy.Event:
        """Call the dispatcher; the returned event fires when the instant is settled."""
        if not self._called.triggered:
            self._called.succeed()
        return self._settled

    # What happens at an instant

    def _arrive(self, serial: int, instance: int) -> None:
        kind = int(self.pool.kinds[instance])
        accepted = bool(self.berths) and len(self.floor.waiting) < self.world.queue_capacity
        self.floor.elapse(self.env.now)
        job = Job(
            serial, heapq.heappop(self.berths) if accepted else -1, instance, kind, self.world.kinds[kind],
            self.env.now, float(self.pool.steps[instance]),
        )  # fmt: skip
        self.jobs.append(job)
        self.floor.sums["arrived"] += 1
        if accepted:
            self.floor.waiting[job.berth] = job
            self._log("arrived", job)
        else:
            job.status = Status.TURNED_AWAY
            self.floor.sums["dropped"] += 1
            self._log("turned away", job)
        self._call()

    def _flag_moved_links(self) -> None:
        for job in self.floor.in_order():
            deployed = job.plan_in_force
            for (i, j), before in zip(deployed.link_ends(), deployed.links, strict=True):
                if i != j and abs(self.prices.bandwidth[i, j] / before - 1.0) > self.world.replan_threshold:
                    job.review = True

    def _fail(self, failures: Failures, device: Device) -> None:
        self.floor.elapse(self.env.now)
        device.up = False
        self.floor.sums["failures"] += 1
        self._log("failed", None, self._label(device))
        for job in list(device.jobs):
            done = job.steps - job.left
            # Work that was due at this very instant counts as done.
            kept = job.steps if job.left <= STEP_TOLERANCE else max(job.saved_steps, failures.saved_steps(done))
            if kept < job.steps:
                lost = max(0.0, done - kept)
                job.left = job.steps - kept if lost > 0.0 else job.left
                job.failures += 1
                job.lost_steps += lost
                self.floor.sums["lost_steps"] += lost
                self.floor.lift(job)
                self._send_back(job, "stopped")
            else:
                self._finish(job)
        self._call()

    def _send_back(self, job: Job, why: str) -> None:
        """Let a job that has been lifted off its devices wait at the front of its priority."""
        job.last_plan, job.deployment = job.plan_in_force.plan, None
        job.status, job.returned, job.review = Status.WAITING, True, False
        job.paused_until_s, job.offered_s = 0.0, self.env.now
        self.floor.waiting[job.berth] = job
        self._devices_freed = True
        self._end_process(job)
        self._log(why, job)
        self._offer_queue()

    def _finish(self, job: Job) -> None:
        self.floor.lift(job)
        job.deployment, job.status, job.finish_s = None, Status.FINISHED, self.env.now
        heapq.heappush(self.berths, job.berth)
        self.floor.sums["completed"] += 1
        self.floor.sums["completion_s"] += job.finish_s - job.arrival_s
        self._devices_freed = True
        self._end_process(job)
        self._log("finished", job)
        self._offer_queue()

    def _settle(self) -> None:
        self.floor.elapse(self.env.now)
        for job in self.floor.in_order():
            if job.left <= STEP_TOLERANCE:
                self._finish(job)
            elif 0.0 < job.paused_until_s <= self.env.now:
                job.paused_until_s = 0.0
                self._links_changed = True
            elif job.epoch_left <= STEP_TOLERANCE:
                job.epoch_left = float(job.kind.epoch_steps)
                job.review = job.timer_stale = True
        if self._devices_freed or self._links_changed:
            self.floor.reprice(network_only=not self._devices_freed)
        self._devices_freed = self._links_changed = False
        while self.env.now < self.world.horizon_s:
            chosen = self._next_decision()
            if chosen is None:
                break
            self._decide(chosen)
        for job in self.floor.in_order():
            if job.timer_stale and job.process is not None:
                job.process.interrupt()

    # Decisions

    def _next_decision(self) -> Job | None:
        """First re-planning, by berth; then the most urgent waiting job, if one more may run."""
        for job in self.floor.in_order():
            if job.review and not job.paused(self.env.now):
                return job
        offered = [job for job in self.floor.waiting.values() if job.offered_s <= self.env.now]
        if len(self.floor.running) >= self.world.max_running:
            offered = [job for job in offered if self._victims(job)]
        return min(offered, key=lambda job: job.turn, default=None)

    def _decide(self, job: Job) -> None:
        self.floor.sums["decisions"] += 1
        placing, job.review = job.status is Status.WAITING, False
        if placing:
            crowded = len(self.floor.running) >= self.world.max_running
            done = (not crowded and self._ask(job)) or self._preempt_for(job)
        else:
            done = self._ask(job)
        if job.status is Status.RUNNING:
            deployed = job.plan_in_force
            deployed.links = tuple(float(self.prices.bandwidth[i, j]) for i, j in deployed.link_ends())
        else:
            job.offered_s = self.env.now + self.world.retry_s
            self.env.process(self._remind())
        if done:
            self.floor.reprice()

    def _ask(self, job: Job, trial: bool = False) -> bool:
        """Ask the policy about a job and carry out what it says; True if the job took new places.

        Args:
            job: The job.
            trial: Whether other jobs have been lifted to see if that makes room; then a refusal is not counted.
        """
        answer = self.policy.decide(self._view(job))
        placing = job.status is Status.WAITING
        reason, before = "", job.deployment
        if answer is None:
            if not trial:
                self._log("deferred" if placing else "kept", job)
            return False
        share, plan = isinstance(answer, Shared), answer.plan if isinstance(answer, Shared) else answer
        reason = self.floor.refusal(job, plan)
        if not reason:
            plan = self.prices.share_batch(plan, job.kind_index)
            if before is not None and before.same_plan(plan):
                self._log("kept", job)
                return False
            reason = self.floor.place(job, plan, share)
        if reason:
            if not trial:
                self.floor.sums["rejected"] += 1
                self._log("refused", job, reason)
            return False
        if placing:
            self._start(job)
        else:
            job.moves += 1
            seconds = self._move_state(job, before.plan if before is not None else plan)
            self.floor.sums["migrations"] += 1
            self.floor.sums["migration_s"] += seconds
            self._log("moved", job)
            self._offer_queue()
        return True

    def _start(self, job: Job) -> None:
        del self.floor.waiting[job.berth]
        self.floor.running[job.berth] = job
        job.status, job.epoch_left, job.last_start_s = Status.RUNNING, float(job.kind.epoch_steps), self.env.now
        self.floor.sums["placed"] += 1
        if job.last_plan is None:
            job.start_s = self.env.now
        else:
            job.restarts += 1
            self.floor.sums["restarts"] += 1
            self.floor.sums["restart_s"] += self._move_state(job, job.last_plan)
        job.process = self.env.process(self._work(job))
        self._log("placed", job)

    def _move_state(self, job: Job, old: Plan) -> float:
        """Pause a job while its state travels and it starts again; returns the seconds."""
        seconds, dollars = self.prices.move(job.kind, old, job.plan_in_force.plan)
        seconds += self.world.restart_s
        job.paused_until_s = self.env.now + seconds
        job.saved_steps = job.steps - job.left
        job.timer_stale = True
        self.floor.pay(job, dollars)
        return seconds

    def _victims(self, job: Job) -> list[Job]:
        """Jobs that may have to make room: the least urgent first, among equals the last started."""
        if not self.preemption.enabled:
            return []
        lower = [other for other in self.floor.in_order() if other.kind.priority < job.kind.priority]
        return sorted(lower, key=lambda other: (other.kind.priority, -other.last_start_s, -other.serial))

    def _preempt_for(self, job: Job) -> bool:
        """Lift less urgent jobs one by one until the policy can place this one; spare those not in the way."""
        lifted: list[Job] = []
        for victim in self._victims(job):
            self.floor.lift(victim)
            lifted.append(victim)
            if self._ask(job, trial=True):
                break
        if job.status is Status.WAITING:
            for victim in reversed(lifted):
                self.floor.put_back(victim)
            return False
        taken = {id(device) for row in job.plan_in_force.devices for device in row}
        for victim in reversed(lifted):
            if not any(id(device) in taken for row in victim.plan_in_force.devices for device in row):
                self.floor.put_back(victim)
                if len(self.floor.running) <= self.world.max_running and self.floor.within_power(victim):
                    continue
                self.floor.lift(victim)
            victim.preemptions += 1
            victim.saved_steps = victim.steps - victim.left
            self.floor.sums["preemptions"] += 1
            self._send_back(victim, "preempted")
        self._devices_freed = False
        return True

    def _view(self, job: Job) -> DecisionView:
        load = self.prices.total(self.prices.flows(self.floor.in_order(), self.env.now))
        return DecisionView(
            kind=job.kind,
            kind_index=job.kind_index,
            counters=self.pool.counters.values[job.instance].copy(),
            replanning=job.status is Status.RUNNING,
            current_plan=job.deployment.plan if job.deployment is not None else None,
            steps_left=job.left,
            time_s=self.env.now,
            waiting=len(self.floor.waiting),
            free_devices=self.floor.free_devices(job),
            bandwidth_gbps=self.prices.bandwidth / BYTES_PER_GBIT,
            latency_s=self.network.latency_s(self.prices.utilisation(load)),
            cost=self.cost,
            max_segments=self.world.max_segments,
        )

    def _offer_queue(self) -> None:
        """Offer every waiting job again: something has changed."""
        for job in self.floor.waiting.values():
            job.offered_s = min(job.offered_s, self.env.now)

    def _end_process(self, job: Job) -> None:
        if job.process is not None and job.process.is_alive:
            job.process.interrupt(OFF)
        job.process = None

    def _log(self, what: str, job: Job | None, detail: str = "") -> None:
        self.timeline.append(Happening(self.env.now, what, None if job is None else job.serial, detail))

    def _label(self, device: Device) -> str:
        return f"{self.world.cluster.domains[device.domain].name}/{device.index}"
