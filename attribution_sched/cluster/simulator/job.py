"""Jobs, devices and how a job sits on devices: the things the event simulator moves about.

A run leaves behind one record per job, sums, and what happened when (``SimulationResult``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from attribution_sched.cluster.interference import RESOURCES
from attribution_sched.cluster.plan import CAP, Plan, PlanBatch, Segment
from attribution_sched.cluster.world import TaskKind
from attribution_sched.types import FloatArray


class JobStatus(StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    TURNED_AWAY = "turned away"


@dataclass(frozen=True)
class JobRecord:
    """One job from arrival to wherever the run left it.

    Attributes:
        serial: Number of its arrival, from 0.
        kind: Index into ``World.kinds``.
        instance: Index into the task pool.
        priority: Larger is more urgent.
        status: Where it stood at the end.
        arrival_s: When it arrived.
        start_s: When it first started; None if it never did.
        finish_s: When it finished; None if it did not.
        steps: Work it asked for.
        steps_left: Work left at the end.
        energy_j: Energy it answers for: dynamic draw and its share of the idle draw of its devices.
        bill_usd: Cross-domain traffic and moved state.
        moves: Times it was moved while running.
        restarts: Times it started again after a failure, a preemption or the loss of a domain.
        preemptions: Times it made room for a more urgent one.
        failures: Times one of its devices failed under it.
        evictions: Times one of its domains was lost under it.
        lost_steps: Steps it had done and had to do again.
    """

    serial: int
    kind: int
    instance: int
    priority: int
    status: JobStatus
    arrival_s: float
    start_s: float | None
    finish_s: float | None
    steps: float
    steps_left: float
    energy_j: float
    bill_usd: float
    moves: int
    restarts: int
    preemptions: int
    failures: int
    evictions: int
    lost_steps: float


@dataclass(frozen=True)
class Totals:
    """Sums over a run; the first twenty-four carry the names and meanings of the batched world's totals.

    Attributes:
        completed: Tasks that finished.
        dropped: Tasks that found the queue full.
        rejected: Plans that were refused.
        migrations: Moves of running tasks.
        decisions: Decisions taken.
        meter_j: What the meters of all devices read.
        task_j: The part that tasks answer for.
        idle_j: The part of devices that held no task.
        bill_usd: Cross-domain traffic and moved state.
        carbon_g: CO2-equivalent of the tasks' energy.
        busy_device_s: Device time spent computing.
        completion_s: Time from arrival to finish, over finished tasks.
        migration_s: Pauses of moved tasks.
        placed: Tasks that were started, again or for the first time.
        wait_s: Time in the queue.
        steps_done: Steps worked, lost ones included.
        missed: Tasks that finished after their deadline.
        evictions: Tasks sent back to the queue by the loss of a domain.
        lost_steps: Steps lost to failures and lost domains.
        restart_s: Pauses of tasks that started again.
        wan_bytes: Bytes that crossed from domain to domain.
        wan_g: CO2-equivalent of the network's energy for them; not in ``carbon_g``.
        electricity_usd: What the meters' energy cost, by the hour.
        idle_g: CO2-equivalent of the devices that held no task; not in ``carbon_g``.
        overdue: Tasks still unfinished at the end of the run and past their deadline.
        arrived: Tasks that arrived.
        failures: Device failures.
        down_device_s: Device time out of service.
        preemptions: Tasks sent back to the queue by more urgent ones.
        restarts: Tasks that started again.
    """

    completed: int = 0
    dropped: int = 0
    rejected: int = 0
    migrations: int = 0
    decisions: int = 0
    meter_j: float = 0.0
    task_j: float = 0.0
    idle_j: float = 0.0
    bill_usd: float = 0.0
    carbon_g: float = 0.0
    busy_device_s: float = 0.0
    completion_s: float = 0.0
    migration_s: float = 0.0
    placed: int = 0
    wait_s: float = 0.0
    steps_done: float = 0.0
    missed: int = 0
    evictions: int = 0
    lost_steps: float = 0.0
    restart_s: float = 0.0
    wan_bytes: float = 0.0
    wan_g: float = 0.0
    electricity_usd: float = 0.0
    idle_g: float = 0.0
    overdue: int = 0
    arrived: int = 0
    failures: int = 0
    down_device_s: float = 0.0
    preemptions: int = 0
    restarts: int = 0


@dataclass(frozen=True)
class Happening:
    """One line of the timeline.

    Attributes:
        time_s: When.
        what: ``arrived``, ``turned away``, ``placed``, ``moved``, ``kept``, ``deferred``, ``refused``, ``finished``,
            ``preempted``, ``stopped`` (by a failure), ``evicted`` (by the loss of a domain), ``failed`` or ``repaired``
            (a device), ``lost`` or ``returned`` (a domain).
        job: Serial of the job; None for a device or a domain.
        detail: The device or domain, the reason of a refusal, or nothing.
    """

    time_s: float
    what: str
    job: int | None
    detail: str = ""


@dataclass(frozen=True)
class SimulationResult:
    """A run.

    Attributes:
        policy: Who decided.
        seed: Seed of arrivals, network and failures.
        jobs: In order of arrival.
        totals: Sums.
        timeline: What happened, in order.
    """

    policy: str
    seed: int
    jobs: tuple[JobRecord, ...]
    totals: Totals
    timeline: tuple[Happening, ...]

    def count(self, status: JobStatus) -> int:
        """Jobs that ended the run in a status."""
        return sum(job.status is status for job in self.jobs)

    @property
    def deadline_misses(self) -> int:
        """Tasks that finished late, were overdue at the end or were turned away."""
        return self.totals.missed + self.totals.overdue + self.totals.dropped

    @property
    def energy_gap(self) -> float:
        """Joules of the meters that neither a task nor idleness explains, over what the meters read."""
        sums = self.totals
        return abs(sums.task_j + sums.idle_j - sums.meter_j) / max(sums.meter_j, 1e-300)


STEP_TOLERANCE = 1e-9
"""Steps below which work counts as done: rounding of accumulated progress."""


@dataclass(eq=False)
class Device:
    """One GPU.

    Attributes:
        domain: Index of its domain.
        index: Its number there.
        up: Whether it works.
        lost: Whether its domain is lost.
        jobs: The jobs on it, two at most.
    """

    domain: int
    index: int
    up: bool = True
    lost: bool = False
    jobs: list[Job] = field(default_factory=list)

    @property
    def in_service(self) -> bool:
        """Whether it can be used and draws power."""
        return self.up and not self.lost

    def room(self, limit: int) -> bool:
        """Whether one more job may come, at most ``limit`` in all."""
        return self.in_service and len(self.jobs) < limit


@dataclass(frozen=True)
class SegmentLoad:
    """What one device of a segment carries.

    Attributes:
        busy: Share of the step in which it computes.
        memory_bytes: Memory it needs.
        dynamic_w: Draw above idle, averaged over the step.
        demands: Demands on the shared resources, shape ``(4,)``, in the order of ``RESOURCES``.
    """

    busy: float = 0.0
    memory_bytes: float = 0.0
    dynamic_w: float = 0.0
    demands: FloatArray = field(default_factory=lambda: np.zeros(len(RESOURCES)))


@dataclass(eq=False)
class Deployment:
    """A plan in force: where it sits and what it costs at the moment.

    Attributes:
        plan: The plan, with the microbatches the cluster gave each replica.
        segments: All its segments, in plan order.
        batch: The same as arrays.
        traffic_bytes: Bytes per global batch from domain to domain, shape ``(K, K)``.
        devices: Devices of every segment.
        loads: Load of every segment.
        step_s: Time of one global batch; 0 before it is priced.
        step_bill_usd: Traffic bill of one global batch.
        planned_bandwidth: Bandwidth of all links when the task was last decided on, shape ``(K, K)``.
    """

    plan: Plan
    segments: tuple[Segment, ...]
    batch: PlanBatch
    traffic_bytes: FloatArray
    devices: list[list[Device]]
    loads: list[SegmentLoad]
    step_s: float = 0.0
    step_bill_usd: float = 0.0
    planned_bandwidth: FloatArray | None = None

    @classmethod
    def of(cls, plan: Plan, n_domains: int) -> Deployment:
        """A plan that sits nowhere yet and has no price."""
        segments = plan.segments
        places: list[list[Device]] = [[] for _ in segments]
        loads = [SegmentLoad()] * len(segments)
        return cls(plan, segments, PlanBatch.of([plan]), np.zeros((n_domains, n_domains)), places, loads)

    def same_plan(self, other: Plan) -> bool:
        """Whether another plan would change nothing: a task keeps the caps it has while it keeps its plan."""
        rows, own = PlanBatch.of([other]).segments, self.batch.segments
        return rows.shape == own.shape and bool((rows[:, :, :CAP] == own[:, :, :CAP]).all())

    @property
    def shares(self) -> bool:
        """Whether another job is on any of its devices."""
        return any(len(device.jobs) > 1 for row in self.devices for device in row)

    def parts(self) -> list[tuple[Segment, list[Device], SegmentLoad]]:
        """Segments with their devices and loads, in plan order."""
        return list(zip(self.segments, self.devices, self.loads, strict=True))

    def load_in(self, domain: int) -> SegmentLoad:
        """Load of its one segment in a domain."""
        return next(load for s, load in zip(self.segments, self.loads, strict=True) if s.domain == domain)


@dataclass(eq=False)
class Job:
    """A task on its way through the cluster.

    Attributes:
        serial: Number of its arrival.
        slot: Its place among all tasks the cluster keeps, the lowest free one at its arrival. Simultaneous
            affairs are settled in the order of slots.
        instance: Row of the task pool.
        kind_index: Index into ``World.kinds``.
        kind: What it is.
        arrival_s: When it arrived.
        steps: Work asked for.
        left: Steps left.
        epoch_left: Steps until it may be re-planned.
        offered_s: When it may next be decided on while it waits.
        paused_until_s: End of its pause.
        saved_steps: Progress saved outside the regular checkpoints, by a move or a preemption.
        review: Whether it is up for re-planning.
        returned: Whether it goes to the front of its priority.
        timer_stale: Whether its timer runs on a price that no longer holds.
        deployment: Its plan in force.
        last_plan: The plan it ran under before it was sent back, if its saved state lies there.
        start_s: When it first started.
        last_start_s: When it last started.
    """

    serial: int
    slot: int
    instance: int
    kind_index: int
    kind: TaskKind
    arrival_s: float
    steps: float
    left: float = math.nan
    epoch_left: float = 0.0
    offered_s: float = 0.0
    paused_until_s: float = 0.0
    saved_steps: float = 0.0
    review: bool = False
    returned: bool = False
    timer_stale: bool = False
    status: JobStatus = JobStatus.WAITING
    deployment: Deployment | None = None
    last_plan: Plan | None = None
    start_s: float | None = None
    last_start_s: float = 0.0
    finish_s: float | None = None
    energy_j: float = 0.0
    bill_usd: float = 0.0
    moves: int = 0
    restarts: int = 0
    preemptions: int = 0
    failures: int = 0
    evictions: int = 0
    lost_steps: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.steps
        self.offered_s = self.arrival_s

    @property
    def plan_in_force(self) -> Deployment:
        """Its deployment; only for a job that has one."""
        if self.deployment is None:
            raise RuntimeError(f"job {self.serial} sits on no device")
        return self.deployment

    @property
    def turn(self) -> tuple[int, bool, int]:
        """Key of the queue: urgent ones first, then those sent back, then by arrival."""
        return -self.kind.priority, not self.returned, self.serial

    def paused(self, now_s: float) -> bool:
        """Whether it is being moved or started again."""
        return self.paused_until_s > now_s

    def over(self, steps: float, now_s: float) -> bool:
        """Whether so many steps are no work: nothing, or so little that the clock could not move by it."""
        return steps <= STEP_TOLERANCE or now_s + steps * self.plan_in_force.step_s <= now_s

    def due_in_s(self, now_s: float) -> float:
        """Seconds until its pause, its epoch or its work ends, at its present price."""
        if self.paused(now_s):
            return self.paused_until_s - now_s
        return max(0.0, min(self.left, self.epoch_left) * self.plan_in_force.step_s)

    def record(self) -> JobRecord:
        """Its record as things stand."""
        return JobRecord(
            self.serial, self.kind_index, self.instance, self.kind.priority, self.status, self.arrival_s, self.start_s,
            self.finish_s, self.steps, self.left, self.energy_j, self.bill_usd, self.moves, self.restarts,
            self.preemptions, self.failures, self.evictions, self.lost_steps,
        )  # fmt: skip
