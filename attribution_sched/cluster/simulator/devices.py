"""The devices and who sits on them: taking and leaving places, limits, progress and meters.

Job energy is added up from plans, meter readings device by device, so that their agreement is a finding and
not a definition.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.cost import JOULES_PER_KWH
from attribution_sched.cluster.layouts import layout_table
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.precision import Precision
from attribution_sched.cluster.simulator.job import Deployment, Device, Job
from attribution_sched.cluster.simulator.prices import Prices, memory_used
from attribution_sched.cluster.simulator.record import Totals
from attribution_sched.errors import PlanError, problem

IntArray = NDArray[np.int64]


class Floor:
    """All devices of a cluster, the jobs running on them and the jobs waiting for them.

    Args:
        prices: What jobs cost.
    """

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.world = prices.world
        self.domains = self.world.cluster.domains
        self.devices = [[Device(k, d) for d in range(domain.devices)] for k, domain in enumerate(self.domains)]
        self.running: dict[int, Job] = {}
        self.waiting: dict[int, Job] = {}
        self.now_s = 0.0
        self.sums: dict[str, Any] = asdict(Totals())
        table = layout_table(self.world.cluster, sharing=False)
        self._layouts = {tuple(int(n) for n in row[:3]) for row in table}

    def in_order(self) -> list[Job]:
        """Running jobs by berth."""
        return [self.running[berth] for berth in sorted(self.running)]

    def elapse(self, now_s: float) -> None:
        """Let time pass: progress, joules, grams and dollars at the rates of the moment before."""
        dt = now_s - self.now_s
        if dt <= 0.0:
            return
        self.sums["wait_s"] += dt * len(self.waiting)
        for job in self.in_order():
            self._work(job, dt)
        for device in (device for row in self.devices for device in row):
            if device.in_service:
                self.sums["meter_j"] += dt * self._device_w(device)
                self.sums["idle_j"] += 0.0 if device.jobs else dt * self.domains[device.domain].gpu.idle_w
            else:
                self.sums["down_device_s"] += dt
        self.now_s = now_s

    def _work(self, job: Job, dt: float) -> None:
        paused, deployed = job.paused(self.now_s), job.plan_in_force
        for segment, devices, load in deployed.parts():
            domain = self.domains[segment.domain]
            watts = sum(domain.gpu.idle_w / len(device.jobs) for device in devices)
            if not paused:
                watts += sum(load.dynamic_w * self._granted(device) for device in devices)
                self.sums["busy_device_s"] += dt * segment.device_count * load.busy
            job.energy_j += watts * dt
            self.sums["task_j"] += watts * dt
            self.sums["carbon_g"] += watts * dt * domain.carbon_g_per_kwh / JOULES_PER_KWH
        if paused:
            return
        steps = dt / deployed.step_s
        job.left -= steps
        job.epoch_left -= steps
        self.sums["steps_done"] += steps
        self.pay(job, steps * deployed.step_bill_usd)

    def _device_w(self, device: Device, awake: bool = False) -> float:
        """Draw of a device in service: idle, and what its jobs ask for above it as far as the cap allows.

        Args:
            device: The device.
            awake: Count paused jobs as if they ran.
        """
        domain = self.domains[device.domain]
        return domain.gpu.idle_w + min(self._asked_w(device, awake), domain.cap_w - domain.gpu.idle_w)

    def _asked_w(self, device: Device, awake: bool = False) -> float:
        at_work = (job for job in device.jobs if awake or not job.paused(self.now_s))
        return sum(job.plan_in_force.load_in(device.domain).dynamic_w for job in at_work)

    def _granted(self, device: Device) -> float:
        """Part of what its jobs ask for that the cap of a device lets through."""
        domain, asked_w = self.domains[device.domain], self._asked_w(device)
        room_w = domain.cap_w - domain.gpu.idle_w
        return room_w / asked_w if asked_w > room_w else 1.0

    def pay(self, job: Job, dollars: float) -> None:
        """Charge a job for traffic."""
        job.bill_usd += dollars
        self.sums["bill_usd"] += dollars

    def free_devices(self, job: Job) -> IntArray:
        """Empty devices per domain, the job's own counted as free, shape ``(K,)``."""
        free = [sum(d.in_service and all(j is job for j in d.jobs) for d in row) for row in self.devices]
        return np.array(free, dtype=np.int64)

    def reprice(self, network_only: bool = False) -> None:
        """Price running jobs anew against the link loads as they stood; inside one domain no link matters."""
        flows = self.prices.flows(self.in_order(), self.now_s)
        for job in self.in_order():
            if network_only and len(job.plan_in_force.devices) == 1:
                continue
            changed = self.prices.price(job, self.prices.total(flows, without=job.berth))
            job.timer_stale = job.timer_stale or changed

    def refusal(self, job: Job, plan: Plan) -> str:
        """Say why a plan makes no sense for a job, or nothing.

        Raises:
            PlanError: The plan cannot be expressed in this world at all: a layout or a microbatch that is not among
                its choices, or too many segments.
        """
        levels, count = job.kind.microbatches, len(plan.segments)
        if count > self.world.max_segments:
            rule = f"this world allows {self.world.max_segments}"
            raise PlanError(problem("segments", count, rule, "Use fewer domains"))
        for replica in plan.replicas:
            if replica.microbatch not in levels:
                rule = f"must be one of {levels}"
                raise PlanError(problem("microbatch", replica.microbatch, rule, "Pick a level"))
        for s in plan.segments:
            if s.tp not in TP_DEGREES or (s.dp, s.tp, s.pp) not in self._layouts:
                rule = "is not in this world's table"
                raise PlanError(problem("layout", (s.dp, s.tp, s.pp), rule, "Use powers of two"))
        try:
            plan.check(len(job.kind.model), len(self.domains))
        except PlanError as error:
            return str(error)
        for s in plan.segments:
            if not self.domains[s.domain].gpu.supports(s.precision):
                return "the GPU has no hardware for the precision"
            if s.precision is Precision.INT8 and job.kind.training:
                return "INT8 is for inference only"
        return ""

    def place(self, job: Job, plan: Plan, share: bool) -> str:
        """Put a job on devices and price it; a refusal says why and leaves everything as it was.

        Args:
            job: A waiting job, or a running one that moves.
            plan: A sensible plan, its batch shared out.
            share: Whether it may use devices that hold another job.
        """
        before = job.deployment
        if before is not None:
            self._leave(job)
        job.deployment = Deployment.of(plan, len(self.domains))
        reason = "" if self._occupy(job, share) else "not enough devices are free"
        if not reason:
            flows = self.prices.flows((j for j in self.in_order() if j is not job), self.now_s)
            # The first pricing gives the demands that interference needs; the second includes it.
            for _ in range(2):
                self.prices.price(job, self.prices.total(flows))
            reason = self._broken_limit(job)
        if reason:
            self._leave(job)
            job.deployment = before
            if before is not None:
                self._enter(job)
        return reason

    def _occupy(self, job: Job, share: bool) -> bool:
        """Find devices: shared ones first if it may share, then empty ones, in order."""
        limit = self.world.share_limit if share else 1
        deployed = job.plan_in_force
        for segment, taken in zip(deployed.segments, deployed.devices, strict=True):
            rooms = [device for device in self.devices[segment.domain] if device.room(limit)]
            rooms.sort(key=lambda device: -len(device.jobs))
            taken += rooms[: segment.device_count]
            for device in taken:
                device.jobs.append(job)
            if len(taken) < segment.device_count:
                return False
        return True

    def _broken_limit(self, job: Job) -> str:
        for segment, devices, _ in job.plan_in_force.parts():
            if any(memory_used(device) > self.domains[segment.domain].gpu.memory_bytes for device in devices):
                return "a device runs out of memory"
        return "" if self.within_power(job) else "the domain exceeds its power budget"

    def within_power(self, job: Job) -> bool:
        """Whether the domains a job uses stay within their budgets when no job is paused."""
        for k in {segment.domain for segment in job.plan_in_force.segments}:
            budget_w = self.domains[k].power_budget_w
            drawn_w = sum(self._device_w(device, awake=True) for device in self.devices[k] if device.in_service)
            if budget_w is not None and drawn_w > budget_w:
                return False
        return True

    def _leave(self, job: Job) -> None:
        for device in (d for row in job.plan_in_force.devices for d in row):
            device.jobs.remove(job)

    def _enter(self, job: Job) -> None:
        for device in (d for row in job.plan_in_force.devices for d in row):
            device.jobs.append(job)

    def lift(self, job: Job) -> None:
        """Take a running job off its devices."""
        self._leave(job)
        del self.running[job.berth]

    def put_back(self, job: Job) -> None:
        """Undo ``lift``."""
        self._enter(job)
        self.running[job.berth] = job
