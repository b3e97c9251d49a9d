"""What a run of the event simulator leaves behind: one record per job, sums, and what happened when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
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
    status: Status
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
    """Sums over a run; the first twenty carry the names and meanings of the batched world's totals.

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

    def count(self, status: Status) -> int:
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
