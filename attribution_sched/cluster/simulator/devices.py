"""The devices and who sits on them: taking and leaving places, limits, progress and meters.

Job energy is added up from plans, meter readings device by device, so that their agreement is a finding and
not a definition.

``Prices`` says what running jobs cost each other: shared links, shared devices, and the moving of state. The rules of
contention of the batched world, written a second time in plain Python over the cost model's own
interface, so that each implementation is the other's test:

- a job gets what others leave of a link, at least a tenth, and its latency rises with their load;
- the load of others is as it stood before anything was priced anew;
- a segment is stretched by the worst of the co-runners on its devices;
- a device has one power cap, the one that its last comer was given;
- figures are per global batch, whatever number of samples the plan's microbatches come to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from attribution_sched.cluster.compute import COMPUTE_FORWARD, MEMORY_FORWARD, TP_DEGREES
from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.cost import (
    BYTES_PER_GB,
    BYTES_PER_GBIT,
    JOULES_PER_KWH,
    CostModel,
    move_cost,
    moved_bytes,
)
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.incidents import LinkCut
from attribution_sched.cluster.interference import (
    PCIE_BYTES_PER_S,
    job_columns,
    measured_jobs,
    resource_constants,
    slowdown,
    strengths,
)
from attribution_sched.cluster.plan import ANYBODY, CAP, Plan, PlanBatch, layout_table
from attribution_sched.cluster.power import (
    cap_reached,
    cap_slowdown,
    capped_w,
    draw_law,
    natural_power_w,
    precision_factor,
)
from attribution_sched.cluster.signals import HOUR_S
from attribution_sched.cluster.simulator.job import Deployment, Device, Job, SegmentLoad, Totals
from attribution_sched.cluster.validity import DEVICES, MEMORY, POWER, REFUSALS, VALID, fault, form_only
from attribution_sched.cluster.wan import WanProcess, effective_latency
from attribution_sched.cluster.world import Domain, TaskKind, TaskPool, World
from attribution_sched.errors import PlanError, problem
from attribution_sched.types import FloatArray, IntArray

LEAST_SHARE = 0.1
"""What a job gets of a link however crowded it is."""


class Prices:
    """Prices jobs at the present network and co-location.

    Args:
        world: The scheduling problem.
        cost: Scores plans.
        pool: Task instances; their latent demands set the price and are shown to nobody.
        network: The links.
    """

    def __init__(self, world: World, cost: CostModel, pool: TaskPool, network: WanProcess) -> None:
        self.world = world
        self.cost = cost
        self.pool = pool
        self.network = network
        self.usd_per_byte = world.cluster.wan.price_usd_per_gb / BYTES_PER_GB
        self._factors = pool.demands.factors
        self._strength = strengths()
        _, self._gain, _ = resource_constants()
        self._jobs = pool.jobs if pool.jobs.size else np.full(len(pool), -1)
        self._columns, self._pairs = job_columns(), measured_jobs().pair_speed
        inputs = np.array([kind.model.layers[0].input_elements for kind in world.kinds])
        self._pcie_s = inputs[pool.kinds] * pool.demands.ratio[:, 3] * 4.0 / PCIE_BYTES_PER_S
        self._between = ~np.eye(len(world.cluster), dtype=bool)
        self.bandwidth = np.zeros_like(self.usd_per_byte)
        self.read_network()

    def read_network(self) -> None:
        """Take over the bandwidth of the links as cuts leave it, bytes/s."""
        left = np.ones_like(self.bandwidth)
        for cut in self.world.incidents:
            if isinstance(cut, LinkCut) and cut.active(self.network.time_s):
                left[cut.source, cut.target] *= cut.factor
                if cut.both_ways:
                    left[cut.target, cut.source] *= cut.factor
        self.bandwidth = self.network.bandwidth_gbps * left * BYTES_PER_GBIT

    def flows(self, jobs: Iterable[Job], now_s: float) -> dict[int, FloatArray]:
        """Bytes per second that each job which is at work sends over the links, by slot."""
        sending = {}
        for job in jobs:
            deployed = job.plan_in_force
            if not job.paused(now_s) and len(deployed.devices) > 1 and deployed.step_s > 0.0:
                sending[job.slot] = deployed.traffic_bytes / deployed.step_s
        return sending

    def total(self, flows: dict[int, FloatArray], without: int | None = None) -> FloatArray:
        """Bytes per second on every link, leaving out the job in one slot."""
        load = np.zeros_like(self.bandwidth)
        for slot, flow in flows.items():
            if slot != without:
                load += flow
        return load

    def utilisation(self, load: FloatArray) -> FloatArray:
        """Busy share of every link between domains under a load in bytes/s."""
        return np.where(self._between, load / np.where(self._between, self.bandwidth, 1.0), 0.0)

    def price(self, job: Job, others: FloatArray) -> bool:
        """Price a job anew; True if its speed has changed.

        Args:
            job: A job that sits on devices.
            others: Bytes per second that other jobs send over the links, shape ``(K, K)``.
        """
        deployed = job.plan_in_force
        share = self.utilisation(others)
        stretch = np.array([self._stretch(job, row) for row in range(len(deployed.devices))])
        levels = [max((self.level_on(device) for device in devices), default=0) for devices in deployed.devices]
        measured = self._jobs[job.instance]
        capped = [(1.0, 1.0)] * len(levels)
        batch = deployed.batch
        if self.world.cluster.cap_levels:
            if measured >= 0:
                capped = [self._capped(job, row, level) for row, level in enumerate(levels)]
                levels = [0] * len(levels)
            batch = replace(batch, segments=batch.segments.copy())
            batch.segments[0, : len(levels), CAP] = levels
        wan = self.world.cluster.wan
        scored = self.cost.score(
            batch,
            job.kind_index,
            bandwidth_gbps=self.bandwidth * np.maximum(LEAST_SHARE, 1.0 - share) / BYTES_PER_GBIT,
            latency_s=effective_latency(wan.latency_s, share, wan.congestion),
            slowdown=stretch[None] * np.array([slower for slower, _ in capped]),
            factors=tuple(self._factors[job.instance]),
            breakdown=False,
        )
        samples = deployed.plan.samples
        norm = job.kind.batch_size / samples
        raw_step_s, before_s = float(scored.step_s[0]), deployed.step_s
        busy = np.minimum(1.0, scored.segment("busy_s")[0] / raw_step_s)
        shares = np.stack([scored.segment(f"{name}_share")[0] for name in ("host", "compute", "memory")], axis=1)
        pcie = self._pcie_s[job.instance] * samples / raw_step_s
        deployed.traffic_bytes = scored.traffic_bytes[0] * norm
        deployed.step_s = raw_step_s * norm
        deployed.step_bill_usd = float(scored.bill_usd[0]) * norm
        for row, segment in enumerate(deployed.segments):
            idle_w = self.world.cluster.domains[segment.domain].gpu.idle_w
            active = float(busy[row] * (1.0 if measured < 0 else self._columns[measured, 5]) / stretch[row])
            host, compute, memory = shares[row]
            # Arithmetic and memory follow one another on the device; here as shares of the time.
            working = max(compute, memory) / max(compute + memory, 1e-300)
            asked = np.append(np.array([host, compute * working, memory * working]) * busy[row], pcie * stretch[row])
            deployed.loads[row] = SegmentLoad(
                busy=active,
                memory_bytes=float(
                    scored.segment("memory_bytes")[0, row] if measured < 0 else self._columns[measured, 4]
                ),
                dynamic_w=float((scored.segment("power_w")[0, row] - idle_w) * active * capped[row][1]),
                demands=np.minimum(1.0, self._gain * asked) if measured < 0 else self._columns[measured, :4],
            )
        return deployed.step_s != before_s

    def level_on(self, device: Device) -> int:
        """Cap level of a device: its last comer's; the domain's own for a pair that is not all of measured jobs."""
        jobs = device.jobs
        if not jobs or (len(jobs) > 1 and any(self._jobs[job.instance] < 0 for job in jobs)):
            return 0
        return next(s.cap for s in jobs[-1].plan_in_force.segments if s.domain == device.domain)

    def _working(self, job: Job, device: Device) -> float:
        """Share of its time that a device works for measured jobs: what each does alone, at its speed there."""
        at_work = 0.0
        for one in device.jobs:
            own = one.plan_in_force.load_in(device.domain).demands
            others = (self._beside(one, own, other, device.domain) for other in device.jobs if other is not one)
            at_work += float(self._columns[self._jobs[one.instance], 5]) / max(others, default=1.0)
        return max(float(self._columns[self._jobs[job.instance], 5]), min(1.0, at_work))

    def _capped(self, job: Job, row: int, level: int) -> tuple[float, float]:
        """How much a cap stretches a measured job, and what is left of its watts above idle."""
        segment = job.plan_in_force.segments[row]
        cluster, gpu = self.world.cluster, self.world.cluster.domains[segment.domain].gpu
        law, working = draw_law(gpu), max(self._working(job, device) for device in job.plan_in_force.devices[row])
        busy_w = float(natural_power_w(gpu, 1.0, 1.0, precision_factor(segment.precision)))
        natural_w = gpu.idle_w + working * (busy_w - gpu.idle_w)
        drawn_w = float(capped_w(natural_w, cluster.cap_w(segment.domain, level), gpu.tdp_w, cap_reached()))
        beta = working ** load_constants("power")["cap"]["k"] * law.beta_c
        slower = float(cap_slowdown(natural_w, drawn_w, law.p0_w, beta))
        return slower, (drawn_w - gpu.idle_w) / (natural_w - gpu.idle_w)

    def _stretch(self, job: Job, row: int) -> float:
        """Worst slow-down over the devices of a segment: its ranks wait for each other."""
        own, devices = job.plan_in_force.loads[row].demands, job.plan_in_force.devices[row]
        domain = job.plan_in_force.segments[row].domain
        company = {id(other): other for device in devices for other in device.jobs if other is not job}
        return max((self._beside(job, own, other, domain) for other in company.values()), default=1.0)

    def measured_speed(self, job: Job, other: Job) -> float:
        """Measured speed of a job beside another; NaN where the two were not measured."""
        own, theirs = self._jobs[job.instance], self._jobs[other.instance]
        known = self.world.pairs_measured and own >= 0 and theirs >= 0
        return float(self._pairs[own, theirs]) if known else float("nan")

    def _beside(self, job: Job, own: FloatArray, other: Job, domain: int) -> float:
        speed = self.measured_speed(job, other)
        if speed > 0.0:
            return 1.0 / speed
        return float(slowdown(own, other.plan_in_force.load_in(domain).demands, self._strength))

    def share_batch(self, plan: Plan, kind_index: int) -> Plan:
        """Give every replica microbatches in proportion to its speed, its slowest segment's."""
        kind, gpus, speeds = self.world.kinds[kind_index], self.world.cluster.gpus, []
        for replica in plan.replicas:
            slowest = 0.0
            for s in replica.segments:
                gpu = gpus.index(self.world.cluster.domains[s.domain].gpu)
                times = self.cost.tables.times_s[kind_index, gpu, s.precision.index, TP_DEGREES.index(s.tp)]
                seconds = (
                    times[COMPUTE_FORWARD, s.stop]
                    - times[COMPUTE_FORWARD, s.first]
                    + times[MEMORY_FORWARD, s.stop]
                    - times[MEMORY_FORWARD, s.first]
                )
                slowest = max(slowest, float(seconds) / (s.dp * s.pp))
            speeds.append(1.0 / slowest)
        total = sum(speeds)
        return Plan(
            tuple(
                replace(replica, microbatches=max(1, round(kind.batch_size * (speed / total) / replica.microbatch)))
                for replica, speed in zip(plan.replicas, speeds, strict=True)
            )
        )

    def move(self, kind: TaskKind, old: Plan, new: Plan) -> tuple[float, float, FloatArray]:
        """Seconds, dollars and bytes of carrying a job's state to another plan, at the bandwidth of the moment."""
        moved = moved_bytes(kind, old, new, len(self.bandwidth))
        return *move_cost(moved, self.bandwidth, self.usd_per_byte), moved


def memory_used(device: Device) -> float:
    """Bytes that the jobs on a device need."""
    return sum(job.plan_in_force.load_in(device.domain).memory_bytes for job in device.jobs)


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
        """Running jobs by slot."""
        return [self.running[slot] for slot in sorted(self.running)]

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
                domain, joules = self.domains[device.domain], dt * self._device_w(device)
                self.sums["meter_j"] += joules
                self.sums["electricity_usd"] += joules * self._usd_per_kwh(domain) / JOULES_PER_KWH
                if not device.jobs:
                    self.sums["idle_j"] += dt * domain.gpu.idle_w
                    idle_kwh = dt * domain.gpu.idle_w / JOULES_PER_KWH
                    self.sums["idle_g"] += idle_kwh * self._carbon_g_per_kwh(domain)
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
                self.sums["busy_device_s"] += dt * sum(self._busy(job, device, load.busy) for device in devices)
            job.energy_j += watts * dt
            self.sums["task_j"] += watts * dt
            self.sums["carbon_g"] += watts * dt * self._carbon_g_per_kwh(domain) / JOULES_PER_KWH
        if paused:
            return
        steps = dt / deployed.step_s
        job.left -= steps
        job.epoch_left -= steps
        self.sums["steps_done"] += steps
        self.pay(job, steps * deployed.step_bill_usd)
        self.carry(steps * deployed.traffic_bytes)

    def _carbon_g_per_kwh(self, domain: Domain) -> float:
        """Of the hour in which the network last moved: signals change with it."""
        if domain.carbon is None:
            return domain.carbon_g_per_kwh
        return domain.carbon.at(self.prices.network.time_s // HOUR_S * HOUR_S)

    def _usd_per_kwh(self, domain: Domain) -> float:
        """Of the same hour; where energy has no price, nothing costs."""
        usual = self.world.reward.energy_usd_per_kwh
        if domain.electricity is None or usual == 0.0:
            return usual
        return domain.electricity.at(self.prices.network.time_s // HOUR_S * HOUR_S)

    def _busy(self, job: Job, device: Device, own: float) -> float:
        """A job's part of a device's time: no device works more than all of it."""
        others = (other for other in device.jobs if other is not job and not other.paused(self.now_s))
        theirs = sum(other.plan_in_force.load_in(device.domain).busy for other in others)
        return own / max(1.0, own + theirs) if len(device.jobs) > 1 else own

    def _device_w(self, device: Device, awake: bool = False) -> float:
        """Draw of a device in service: idle, and what its jobs ask for above it as far as the cap allows.

        Args:
            device: The device.
            awake: Count paused jobs as if they ran.
        """
        idle_w = self.domains[device.domain].gpu.idle_w
        return idle_w + min(self._asked_w(device, awake), self._cap_w(device) - idle_w)

    def _cap_w(self, device: Device) -> float:
        return self.world.cluster.cap_w(device.domain, self.prices.level_on(device))

    def _asked_w(self, device: Device, awake: bool = False) -> float:
        at_work = (job for job in device.jobs if awake or not job.paused(self.now_s))
        return sum(job.plan_in_force.load_in(device.domain).dynamic_w for job in at_work)

    def _granted(self, device: Device) -> float:
        """Part of what its jobs ask for that the cap of a device lets through."""
        asked_w = self._asked_w(device)
        room_w = self._cap_w(device) - self.domains[device.domain].gpu.idle_w
        return room_w / asked_w if asked_w > room_w else 1.0

    def pay(self, job: Job, dollars: float) -> None:
        """Charge a job for traffic."""
        job.bill_usd += dollars
        self.sums["bill_usd"] += dollars

    def carry(self, sent_bytes: FloatArray) -> None:
        """Account the network's energy for bytes from domain to domain, shape ``(K, K)``, half by each end's grid."""
        wan = self.world.cluster.wan
        grams = np.array([self._carbon_g_per_kwh(domain) for domain in self.domains])
        crossing = np.where(np.eye(len(grams), dtype=bool), 0.0, sent_bytes)
        self.sums["wan_bytes"] += float(crossing.sum())
        ends = 0.5 * (grams[:, None] + grams[None])
        self.sums["wan_g"] += float((crossing * ends).sum()) * wan.kwh_per_gb / BYTES_PER_GB

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
            changed = self.prices.price(job, self.prices.total(flows, without=job.slot))
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
            if not 0 <= s.cap <= len(self.world.cluster.cap_levels):
                rule = f"must lie in 0..{len(self.world.cluster.cap_levels)}, the cluster's cap levels"
                raise PlanError(problem("cap", s.cap, rule, "Use 0 for the domain's own cap"))
            if s.tp not in TP_DEGREES or (s.dp, s.tp, s.pp) not in self._layouts:
                rule = "is not in this world's table"
                raise PlanError(problem("layout", (s.dp, s.tp, s.pp), rule, "Use powers of two"))
        try:
            plan.check(len(job.kind.model), len(self.domains))
        except PlanError as error:
            return str(error)
        formats = np.array([[each.gpu.supports(form) for form in PRECISIONS] for each in self.domains])
        limits = form_only(len(job.kind.model), len(self.domains))._replace(formats=formats, trained=job.kind.training)
        code, _ = fault(limits, PlanBatch.of([plan]))
        return "" if code == VALID else REFUSALS[code]

    def place(self, job: Job, plan: Plan, share: bool, beside: int = ANYBODY) -> str:
        """Put a job on devices and price it; a refusal says why and leaves everything as it was.

        Args:
            job: A waiting job, or a running one that moves.
            plan: A sensible plan, its batch shared out.
            share: Whether it may use devices that hold another job.
            beside: Slot of the job whose devices it must use, ``ANYBODY`` for any.
        """
        before = job.deployment
        if before is not None:
            self._leave(job)
        job.deployment = Deployment.of(plan, len(self.domains))
        reason = "" if self._occupy(job, share, beside) else REFUSALS[DEVICES]
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

    def _occupy(self, job: Job, share: bool, beside: int) -> bool:
        """Find devices: a neighbour's, shared ones first if it may share, then empty ones, in order."""
        limit = self.world.share_limit if share else 1
        deployed = job.plan_in_force
        for segment, taken in zip(deployed.segments, deployed.devices, strict=True):
            rooms = [device for device in self.devices[segment.domain] if device.room(limit)]
            if beside != ANYBODY:
                rooms = [device for device in rooms if [other.slot for other in device.jobs] == [beside]]
            rooms.sort(key=lambda device: -len(device.jobs))
            taken += rooms[: segment.device_count]
            for device in taken:
                device.jobs.append(job)
            if len(taken) < segment.device_count:
                return False
        return True

    def _broken_limit(self, job: Job) -> str:
        for segment, devices, _ in job.plan_in_force.parts():
            for device in devices:
                speeds = [self.prices.measured_speed(job, other) for other in device.jobs if other is not job]
                if 0.0 in speeds:
                    return REFUSALS[MEMORY]
                run_together = any(speed > 0.0 for speed in speeds)
                if not run_together and memory_used(device) > self.domains[segment.domain].gpu.memory_bytes:
                    return REFUSALS[MEMORY]
        return "" if self.within_power(job) else REFUSALS[POWER]

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
        del self.running[job.slot]

    def put_back(self, job: Job) -> None:
        """Undo ``lift``."""
        self._enter(job)
        self.running[job.slot] = job
