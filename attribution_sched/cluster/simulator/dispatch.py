"""Who runs next and where: the life of jobs between arrival and finish in the event simulator.

What comes due at one instant is settled in a fixed order: work, pauses and epochs that ended, prices, then
decisions (re-planning before placing; urgent before early). Nothing here waits: time is the floor's, and the
processes of ``simulator.py`` say when it is later.

Devices fail and jobs give way. A device in service fails after an exponential time of mean ``mtbf_h``, out of
service draws no power, and is back after ``repair_h``. A task that sat on it falls back to its last checkpoint.
A preempted task saves its state first and loses nothing. Both kinds wait again at the front of their priority
and, when they start again, pay the restart pause and, where they start elsewhere, the sending of their state
over the WAN.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.incidents import DomainLoss
from attribution_sched.cluster.plan import ANYBODY, Plan
from attribution_sched.cluster.reward import baseline_costs
from attribution_sched.cluster.simulator.devices import LEAST_SHARE, Floor
from attribution_sched.cluster.simulator.job import Device, Happening, Job, JobStatus
from attribution_sched.errors import SettingsError, problem
from attribution_sched.types import Task


@dataclass(frozen=True)
class Failures:
    """How devices fail.

    Attributes:
        mtbf_h: Mean hours a device in service runs until it fails.
        repair_h: Hours until a failed device is back.
        checkpoint_steps: A task saves its state whenever it has done another this many steps; saving is taken to
            overlap with work and costs no time.
    """

    mtbf_h: float
    repair_h: float = 1.0
    checkpoint_steps: int = 100

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mtbf_h) and self.mtbf_h > 0):
            fix = "Use hours, or failures=None for devices that never fail"
            raise SettingsError(problem("failures.mtbf_h", self.mtbf_h, "must be finite and > 0", fix))
        if not (math.isfinite(self.repair_h) and self.repair_h >= 0):
            raise SettingsError(problem("failures.repair_h", self.repair_h, "must be finite and >= 0", "Use hours"))
        steps = self.checkpoint_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            rule = "must be a whole number >= 1"
            raise SettingsError(problem("failures.checkpoint_steps", steps, rule, "Use steps between checkpoints"))

    def saved_steps(self, done_steps: float) -> float:
        """Steps that survive a failure after ``done_steps``, by the regular checkpoints alone."""
        # A count that rounding left just below a checkpoint has reached it.
        return math.floor(done_steps / self.checkpoint_steps + 1e-9) * float(self.checkpoint_steps)


@dataclass(frozen=True)
class Preemption:
    """Whether urgent tasks may take devices from others.

    Attributes:
        enabled: A waiting task for which the policy finds no feasible plan may send running tasks of strictly
            lower priority back to the queue: the least urgent first, and among equals the last started.
    """

    enabled: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise SettingsError(
                problem("preemption.enabled", self.enabled, "must be true or false", "Use True or False")
            )


DEADLINE_TOLERANCE = 1e-9
"""Relative lateness that is rounding and no lateness."""


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

    def decide(self, view: Decision) -> Plan | Shared | None:
        """Return a plan; None leaves a waiting job in the queue and a running one where it is."""
        ...


class Dispatcher:
    """Keeps the books of all jobs and asks the policy.

    Args:
        floor: Devices and the jobs on them.
        policy: Who decides.
        preemption: Whether urgent jobs may take devices from others.
    """

    def __init__(self, floor: Floor, policy: Decider, preemption: Preemption) -> None:
        self.floor, self.policy, self.preemption = floor, policy, preemption
        self.world, self.prices = floor.world, floor.prices
        self.jobs: list[Job] = []
        self.timeline: list[Happening] = []
        self.deferred = False
        self._free_slots = list(range(self.world.max_running + self.world.queue_capacity))
        self._links_changed = self._devices_freed = False
        self._baseline = baseline_costs(self.world, self.prices.cost)

    # What happens to the cluster

    def arrive(self, instance: int) -> None:
        """Take in a new job, or turn it away when the queue is full."""
        pool = self.prices.pool
        kind = int(pool.kinds[instance])
        accepted = bool(self._free_slots) and len(self.floor.waiting) < self.world.queue_capacity
        job = Job(
            len(self.jobs), heapq.heappop(self._free_slots) if accepted else -1, instance, kind, self.world.kinds[kind],
            self.floor.now_s, float(pool.steps[instance]),
        )  # fmt: skip
        self.jobs.append(job)
        self.floor.sums["arrived"] += 1
        if accepted:
            self.floor.waiting[job.slot] = job
        else:
            job.status = JobStatus.TURNED_AWAY
            self.floor.sums["dropped"] += 1
        self._log("arrived" if accepted else "turned away", job)

    def links_moved(self) -> None:
        """Take over the bandwidth of the links; call for re-planning where one moved far."""
        self.prices.read_network()
        self._links_changed = True
        for job in self.floor.in_order():
            deployed = job.plan_in_force
            used = deployed.traffic_bytes > 0.0
            if deployed.planned_bandwidth is None or not used.any():
                continue
            change = self.prices.bandwidth[used] / deployed.planned_bandwidth[used] - 1.0
            if (np.abs(change) > self.world.replan_threshold).any():
                job.review = True

    def fail(self, failures: Failures, device: Device) -> None:
        """Take a device out of service; its jobs fall back to what was saved."""
        device.up = False
        self.floor.sums["failures"] += 1
        self._log("failed", None, self._label(device))
        for job in list(device.jobs):
            if job.over(job.left, self.floor.now_s):
                self._finish(job)
                continue
            done = job.steps - job.left
            lost = max(0.0, done - max(job.saved_steps, failures.saved_steps(done)))
            job.left += lost
            job.failures += 1
            job.lost_steps += lost
            self.floor.sums["lost_steps"] += lost
            self.floor.lift(job)
            self._send_back(job, "stopped")

    def domains_lost(self) -> None:
        """Clear the domains that are lost from now on, and open those that are back."""
        losses = [i for i in self.world.incidents if isinstance(i, DomainLoss) and i.active(self.floor.now_s)]
        lost = {loss.domain for loss in losses}
        changed = [row for k, row in enumerate(self.floor.devices) if (k in lost) != row[0].lost]
        if not changed:
            return
        # Work that ends at this very moment is done.
        self._come_due()
        for row in changed:
            gone = not row[0].lost
            self._log("lost" if gone else "returned", None, self.world.cluster.domains[row[0].domain].name)
            for device in row:
                device.lost = gone
                for job in list(device.jobs):
                    self._evict(job)
        self._devices_freed = True
        self._offer_queue()

    def _evict(self, job: Job) -> None:
        lost = float(job.kind.epoch_steps) - job.epoch_left
        job.left += lost
        job.evictions += 1
        job.lost_steps += lost
        self.floor.sums["evictions"] += 1
        self.floor.sums["lost_steps"] += lost
        self.floor.lift(job)
        self._send_back(job, "evicted")
        # Its checkpoint is at hand everywhere, and its turn is that of its arrival.
        job.last_plan, job.returned = None, False

    def repair(self, device: Device) -> None:
        """Put a device back into service."""
        device.up = True
        self._log("repaired", None, self._label(device))
        self._offer_queue()

    def settle(self) -> None:
        """Deal with everything that is due now, prices and decisions included."""
        self._come_due()
        if self._devices_freed or self._links_changed:
            self.floor.reprice(network_only=not self._devices_freed)
        self._devices_freed = self._links_changed = self.deferred = False
        while self.floor.now_s < self.world.horizon_s:
            chosen = self._next_decision()
            if chosen is None:
                return
            self._decide(chosen)

    def _come_due(self) -> None:
        """Finish what is done, wake what has moved, flag what ended an epoch."""
        now_s = self.floor.now_s
        for job in self.floor.in_order():
            if job.over(job.left, now_s):
                self._finish(job)
            elif 0.0 < job.paused_until_s <= now_s:
                job.paused_until_s = 0.0
                self._links_changed = True
            elif not job.paused(now_s) and job.over(job.epoch_left, now_s):
                job.epoch_left = float(job.kind.epoch_steps)
                job.review = job.timer_stale = True

    def _finish(self, job: Job) -> None:
        self.floor.lift(job)
        job.deployment, job.status, job.finish_s = None, JobStatus.FINISHED, self.floor.now_s
        heapq.heappush(self._free_slots, job.slot)
        self.floor.sums["completed"] += 1
        self.floor.sums["completion_s"] += job.finish_s - job.arrival_s
        self.floor.sums["missed"] += self._late(job)
        self._devices_freed = True
        self._log("finished", job)
        self._offer_queue()

    def _late(self, job: Job) -> bool:
        allowed_s = job.kind.deadline_slack * job.steps * float(self._baseline[0][job.kind_index])
        return self.floor.now_s - job.arrival_s > allowed_s * (1.0 + DEADLINE_TOLERANCE)

    def overdue(self) -> int:
        """Jobs that are still there and past their deadline."""
        return sum(self._late(job) for job in (*self.floor.waiting.values(), *self.floor.running.values()))

    def _send_back(self, job: Job, why: str) -> None:
        """Let a job that has been lifted off its devices wait at the front of its priority."""
        job.last_plan, job.deployment = job.plan_in_force.plan, None
        job.status, job.returned, job.review = JobStatus.WAITING, True, False
        job.paused_until_s, job.offered_s = 0.0, self.floor.now_s
        self.floor.waiting[job.slot] = job
        self._devices_freed = True
        self._log(why, job)
        self._offer_queue()

    def _offer_queue(self) -> None:
        """Offer every waiting job again: something has changed."""
        for job in self.floor.waiting.values():
            job.offered_s = min(job.offered_s, self.floor.now_s)

    # Decisions

    def _next_decision(self) -> Job | None:
        """First re-planning, by slot; then the most urgent waiting job, if one more may run."""
        now_s = self.floor.now_s
        for job in self.floor.in_order():
            if job.review and not job.paused(now_s):
                return job
        offered = [job for job in self.floor.waiting.values() if job.offered_s <= now_s]
        if len(self.floor.running) >= self.world.max_running:
            offered = [job for job in offered if self._victims(job)]
        return min(offered, key=lambda job: job.turn, default=None)

    def _decide(self, job: Job) -> None:
        self.floor.sums["decisions"] += 1
        job.review = False
        if job.status is JobStatus.WAITING:
            crowded = len(self.floor.running) >= self.world.max_running
            done = (not crowded and self._ask(job)) or self._preempt_for(job)
        else:
            done = self._ask(job)
        if job.status is JobStatus.RUNNING:
            job.plan_in_force.planned_bandwidth = self.prices.bandwidth.copy()
        else:
            job.offered_s = self.floor.now_s + self.world.retry_s
            self.deferred = True
        if done:
            self.floor.reprice()

    def _ask(self, job: Job, trial: bool = False) -> bool:
        """Ask the policy about a job and carry out what it says; True if the job took new places.

        Args:
            job: The job.
            trial: Whether other jobs have been lifted to see if that makes room; then a refusal is not counted.
        """
        answer = self.policy.decide(self._view(job))
        placing, before = job.status is JobStatus.WAITING, job.deployment
        if answer is None:
            if not trial:
                self._log("deferred" if placing else "kept", job)
            return False
        plan = answer.plan if isinstance(answer, Shared) else answer
        share, beside = isinstance(answer, Shared) or plan.beside is not None, plan.beside
        reason = self.floor.refusal(job, plan)
        if not reason:
            plan = self.prices.share_batch(plan, job.kind_index)
            # The same layout on devices of its own is another plan for a job that shares.
            if before is not None and before.same_plan(plan) and (share or not before.shares):
                self._log("kept", job)
                return False
            reason = self.floor.place(job, plan, share, ANYBODY if beside is None else beside)
        if reason:
            if not trial:
                self.floor.sums["rejected"] += 1
                self._log("refused", job, reason)
            return False
        if before is None:
            self._start(job)
        else:
            job.moves += 1
            self.floor.sums["migrations"] += 1
            self.floor.sums["migration_s"] += self._move_state(job, before.plan)
            self._log("moved", job)
            self._offer_queue()
        return True

    def _start(self, job: Job) -> None:
        del self.floor.waiting[job.slot]
        self.floor.running[job.slot] = job
        job.status, job.epoch_left, job.last_start_s = JobStatus.RUNNING, float(job.kind.epoch_steps), self.floor.now_s
        self.floor.sums["placed"] += 1
        if job.start_s is None:
            job.start_s = self.floor.now_s
        else:
            job.restarts += 1
            self.floor.sums["restarts"] += 1
            self.floor.sums["restart_s"] += self._move_state(job, job.last_plan)
        self._log("placed", job)

    def _move_state(self, job: Job, old: Plan | None) -> float:
        """Pause a job while its state, if it lies elsewhere, travels and it starts again; returns the seconds."""
        seconds, dollars = 0.0, 0.0
        if old is not None:
            seconds, dollars, moved = self.prices.move(job.kind, old, job.plan_in_force.plan)
            self.floor.carry(moved)
        seconds += self.world.restart_s
        job.paused_until_s = self.floor.now_s + seconds
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
        if job.status is JobStatus.WAITING:
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
        # The decision itself has everything priced anew.
        self._devices_freed = False
        return True

    def _view(self, job: Job) -> Decision:
        flows = self.prices.flows(self.floor.in_order(), self.floor.now_s)
        busy = self.prices.utilisation(self.prices.total(flows, without=job.slot))
        return Decision(
            kind=job.kind,
            kind_index=job.kind_index,
            counters=self.prices.pool.counters.values[job.instance].copy(),
            replanning=job.status is JobStatus.RUNNING,
            current_plan=job.deployment.plan if job.deployment is not None else None,
            steps_left=job.left,
            time_s=self.floor.now_s,
            slot=job.slot,
            queue=self._queue(),
            free_devices=self.floor.free_devices(job),
            bandwidth_gbps=self.prices.bandwidth * np.maximum(LEAST_SHARE, 1.0 - busy) / BYTES_PER_GBIT,
            latency_s=self.prices.network.latency_s(busy),
            cost=self.prices.cost,
            kinds=self.world.kinds,
            reward=self.world.reward,
            base_step_s=self._baseline[0],
            base_cost_usd=self._baseline[1],
            restart_s=self.world.restart_s,
            max_segments=self.world.max_segments,
            samples_per_s=self.prices.pool.speed(job.instance),
            attribution=self.prices.pool.task(job.instance, self.world.kinds).attribution,
        )

    def _queue(self) -> tuple[Task, ...]:
        waiting = sorted(self.floor.waiting.values(), key=lambda job: job.serial)
        pool, kinds = self.prices.pool, self.world.kinds
        return tuple(
            pool.task(job.instance, kinds).at(job.slot, job.left, self.floor.now_s - job.arrival_s) for job in waiting
        )

    def _log(self, what: str, job: Job | None, detail: str = "") -> None:
        self.timeline.append(Happening(self.floor.now_s, what, None if job is None else job.serial, detail))

    def _label(self, device: Device) -> str:
        return f"{self.world.cluster.domains[device.domain].name}/{device.index}"
