"""The world played out event by event: processes that sleep, wake and interrupt each other (SimPy).

The same world as the batched engine, written a second time as processes: arrivals, the network's ticks, running
jobs that are interrupted when their speed changes, devices that fail, and a dispatcher that settles whatever
came due at an instant and asks the policy. On a run without failures and preemption both agree on every job;
this one adds devices that fail and urgent jobs that take devices from others (``dispatch.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy
from numpy.random import Generator as Random
from numpy.random import SeedSequence

from attribution_sched.cluster.arrivals import TraceArrivals, next_arrival
from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.simulator.devices import Floor, Prices
from attribution_sched.cluster.simulator.dispatch import Decider, Dispatcher, Failures, Preemption, Shared
from attribution_sched.cluster.simulator.job import Device, Job, JobStatus, SimulationResult, Totals
from attribution_sched.cluster.streams import integers, seed_stream
from attribution_sched.cluster.wan import FAILURE_STREAM, WanProcess
from attribution_sched.cluster.world import World, build_pool

__all__ = ["Decider", "Shared", "Simulator", "simulate"]

Process = Generator[Any, Any, None]

HOUR_S = 3600.0
OFF = "off its devices"
"""Cause of the interrupt that ends the process of a job."""


class _Ranked(simpy.Event):
    """A timeout that fires after everything else of its instant, or with a rank below 0 before it."""

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
        self.world, self.policy, self.seed, self.failures = world, policy, seed, failures
        # The third stream is the simulator's own; spawning it leaves the engine's two as they are.
        network, tasks, self._wear_seed, failing = SeedSequence(seed).spawn(FAILURE_STREAM + 1)
        self.network = WanProcess(world.cluster.wan, network, failing)
        cost = CostModel(world.cluster, [k.model for k in world.kinds], [k.training for k in world.kinds])
        self.pool = build_pool(world)
        self.floor = Floor(Prices(world, cost, self.pool, self.network))
        self.dispatcher = Dispatcher(self.floor, policy, preemption or Preemption())
        self.env = simpy.Environment()
        self._task_stream = seed_stream(tasks)
        self._called, self._settled = self.env.event(), self.env.event()
        self._workers: dict[int, tuple[Job, Any]] = {}

    def run(self) -> SimulationResult:
        """Play the episode to its horizon."""
        self.dispatcher.domains_lost()
        self.env.process(self._settlements())
        self.env.process(self._arrivals())
        self.env.process(self._ticks())
        if self.failures is not None:
            devices = [device for row in self.floor.devices for device in row]
            for device, source in zip(devices, self._wear_seed.spawn(len(devices)), strict=True):
                self.env.process(self._wear(self.failures, device, np.random.default_rng(source)))
        self.env.run(until=_Ranked(self.env, self.world.horizon_s, rank=2))
        self.floor.elapse(self.world.horizon_s)
        self.floor.sums["overdue"] = self.dispatcher.overdue()
        records = tuple(job.record() for job in self.dispatcher.jobs)
        totals, timeline = Totals(**self.floor.sums), tuple(self.dispatcher.timeline)
        return SimulationResult(self.policy.name, self.seed, records, totals, timeline)

    def _arrivals(self) -> Process:
        """Let tasks arrive; those of one moment one after the other, each settled before the next."""
        spec, at_s, size = self.world.arrivals.spec(), 0.0, len(self.pool)
        traced = isinstance(self.world.arrivals, TraceArrivals)
        for taken in itertools.count():
            due_s = float(next_arrival(*spec, taken, at_s, self._task_stream))
            if taken > 0 and due_s <= at_s:
                yield self._settled
            if due_s > self.world.horizon_s or self.env.now >= self.world.horizon_s:
                return
            yield self.env.timeout(max(0.0, due_s - self.env.now))
            at_s = due_s
            self.floor.elapse(self.env.now)
            self.dispatcher.arrive(taken % size if traced else int(integers(self._task_stream, size)))
            self._call()

    def _ticks(self) -> Process:
        """Let the bandwidth of the links change and incidents begin and end, before anything else of the moment."""
        while True:
            yield _Ranked(self.env, self.world.tick_s, rank=-1)
            # What passed until now passed in the hour before.
            self.floor.elapse(self.env.now)
            self.network.step(self.world.tick_s)
            self.dispatcher.links_moved()
            self.dispatcher.domains_lost()
            self._call()

    def _wear(self, failures: Failures, device: Device, rng: Random) -> Process:
        """Let a device fail and be repaired, again and again."""
        while True:
            yield self.env.timeout(rng.exponential(failures.mtbf_h * HOUR_S))
            self.floor.elapse(self.env.now)
            self.dispatcher.fail(failures, device)
            self._call()
            yield self.env.timeout(failures.repair_h * HOUR_S)
            self.floor.elapse(self.env.now)
            self.dispatcher.repair(device)
            self._call()

    def _work(self, job: Job) -> Process:
        """Sleep until something of a running job comes due; a change of its speed interrupts the sleep."""
        while job.status is JobStatus.RUNNING:
            job.timer_stale = False
            try:
                yield self.env.timeout(job.due_in_s(self.env.now))
                yield self._call()
            except simpy.Interrupt as interrupt:
                if interrupt.cause == OFF:
                    return

    def _remind(self) -> Process:
        """Bring deferred jobs up again."""
        yield self.env.timeout(self.world.retry_s)
        self._call()

    def _settlements(self) -> Process:
        """Settle every instant at which the dispatcher was called, after all else that happens then."""
        while True:
            yield self._called
            yield _Ranked(self.env)
            self._called = self.env.event()
            self.floor.elapse(self.env.now)
            self.dispatcher.settle()
            if self.dispatcher.deferred:
                self.env.process(self._remind())
            self._direct_workers()
            settled, self._settled = self._settled, self.env.event()
            settled.succeed()

    def _direct_workers(self) -> None:
        """Start, interrupt and end the processes of jobs after what has been settled."""
        for serial, (job, process) in list(self._workers.items()):
            if job.status is not JobStatus.RUNNING:
                process.interrupt(OFF)
                del self._workers[serial]
            elif job.timer_stale:
                process.interrupt()
        for job in self.floor.in_order():
            if job.serial not in self._workers:
                self._workers[job.serial] = (job, self.env.process(self._work(job)))

    def _call(self) -> simpy.Event:
        """Call for a settlement of this instant; the returned event fires when it is done."""
        if not self._called.triggered:
            self._called.succeed()
        return self._settled
