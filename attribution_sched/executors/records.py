"""What walks between the ring and an engine: jobs that go out, handles, events and reasons that come back."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attribution_sched.cluster.plan import Plan

QUEUED, GRANTED, RUNNING, FINISHED, FAILED, CANCELLED, LOST = STATES = (
    "queued", "granted", "running", "finished", "failed", "cancelled", "lost",
)  # fmt: skip
"""States of a job. ``granted``: it has its devices and waits at its gate; ``lost``: its node or keeper is gone."""

ENDED = frozenset({FINISHED, FAILED, CANCELLED, LOST})
"""States from which nothing more comes."""

STEP = "step"
"""Kind of the event that reports measured steps; every other kind of event is a state that was reached."""


@dataclass(frozen=True)
class Inventory:
    """What an engine has for one domain, as it said at one moment.

    Attributes:
        domain: Name of the domain.
        devices: Devices that could be given out.
        free: Devices that are given to nobody now.
        nodes: Name of a node → its state in the engine's own word.
        engine: Which engine, with its version.
        unix_s: When it was asked.
    """

    domain: str
    devices: int
    free: int
    nodes: Mapping[str, str]
    engine: str
    unix_s: float


@dataclass(frozen=True)
class Component:
    """One segment of a plan: what one domain is to run.

    Attributes:
        domain: Name of the domain.
        stage: Its place in the pipeline of its replica, from 0 on.
        stages: Stages of that pipeline.
        replica: Which copy of the model, from 0 on.
        replicas: Copies of the model.
        first: First layer.
        stop: One past the last layer.
        dp: Data-parallel ranks.
        tp: Tensor-parallel ranks.
        pp: Pipeline stages inside the domain.
        precision: Numeric format.
        microbatch: Samples of a microbatch.
        microbatches: Microbatches in a step.
        schedule: Order of forward and backward passes.
        power_cap_w: Cap on every device; None for the domain's own.
        partner: Id of the task that shares the devices; None if it has them alone.
    """

    domain: str
    stage: int
    stages: int
    replica: int
    replicas: int
    first: int
    stop: int
    dp: int = 1
    tp: int = 1
    pp: int = 1
    precision: str = "fp16"
    microbatch: int = 1
    microbatches: int = 1
    schedule: str = "one_f_one_b"
    power_cap_w: float | None = None
    partner: str | None = None

    @property
    def devices(self) -> int:
        """Devices that the layout occupies."""
        return self.dp * self.tp * self.pp


@dataclass(frozen=True)
class JobSpec:
    """What one domain's engine is to start for a decision.

    Attributes:
        task: Id of the task.
        command: The user's command, word by word.
        component: What this domain runs of the plan.
        steps: Work in steps; what is left of it after a move.
        held: Whether it waits at its gate with its devices until it is released: a part of a gang.
        rendezvous: Host and port at which the parts of a gang find each other; empty if there is one part.
        attempt: How often the task was started before.
        environment: More variables for the command.
        hold_s: Seconds after which a part that nobody released gives its devices back by itself.
        time_limit_s: Longest run that the engine is told; None leaves it to the engine.
    """

    task: str
    command: tuple[str, ...]
    component: Component
    steps: int = 1
    held: bool = False
    rendezvous: str = ""
    attempt: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    hold_s: float = 3600.0
    time_limit_s: float | None = None

    def variables(self, key: str) -> dict[str, str]:
        """Environment variables by which the command knows its part; all begin with ``ATTR_``.

        Args:
            key: Of the decision.
        """
        part = self.component
        values: dict[str, Any] = {
            "KEY": key, "TASK": self.task, "ATTEMPT": self.attempt, "STEPS": self.steps, "DOMAIN": part.domain,
            "STAGE": part.stage, "STAGES": part.stages, "REPLICA": part.replica, "REPLICAS": part.replicas,
            "FIRST": part.first, "STOP": part.stop, "DP": part.dp, "TP": part.tp, "PP": part.pp,
            "PRECISION": part.precision, "MICROBATCH": part.microbatch, "MICROBATCHES": part.microbatches,
            "SCHEDULE": part.schedule, "PARTNER": part.partner or "",
            "POWER_CAP_W": "" if part.power_cap_w is None else f"{part.power_cap_w:g}",
            "RENDEZVOUS": self.rendezvous,
        }  # fmt: skip
        return {**{f"ATTR_{name}": str(value) for name, value in values.items()}, **self.environment}


@dataclass(frozen=True)
class Handle:
    """What an engine knows a job by, and how it stands there.

    Attributes:
        key: Of the decision.
        domain: Whose engine.
        id: The engine's own name of it, for example a job id.
        state: One of :data:`STATES`.
        started_unix_s: When the command began; None before.
        ended_unix_s: When it ended; None before.
        exit_code: Of the command; None before it ended, or where the engine does not tell.
        cpu_s: CPU-seconds it used, metered by the engine; None where it does not tell.
        max_rss_bytes: Most memory it held; None where the engine does not tell.
        where: Nodes or devices that it got.
        reason: The engine's own word for its state, if it has one.
    """

    key: str
    domain: str
    id: str
    state: str
    started_unix_s: float | None = None
    ended_unix_s: float | None = None
    exit_code: int | None = None
    cpu_s: float | None = None
    max_rss_bytes: float | None = None
    where: tuple[str, ...] = ()
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state in ENDED


@dataclass(frozen=True)
class Reason:
    """Why a job waits, in the engine's own word.

    Attributes:
        token: The engine's word, for example ``Resources``.
        cause: What it means, one of the causes that ``why`` tells; empty if it has no counterpart.
        detail: More, as the engine says it.
        expected_start_unix_s: When the engine expects to start it; None if it does not say.
    """

    token: str
    cause: str = ""
    detail: str = ""
    expected_start_unix_s: float | None = None


@dataclass(frozen=True)
class Event:
    """Something that an engine, or the job itself, reports.

    Attributes:
        key: Of the decision.
        domain: Whose engine.
        kind: A state that was reached, or ``step``.
        unix_s: When.
        data: More: ``step_s``, ``bytes``, ``cpu_s`` and ``steps`` of a step; ``exit_code``, ``cpu_s`` or ``reason``.
    """

    key: str
    domain: str
    kind: str
    unix_s: float
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Observed:
    """What came since somebody last looked.

    Attributes:
        events: In order, for each job.
        cursor: Where to go on; plain JSON.
    """

    events: tuple[Event, ...]
    cursor: Mapping[str, Any]


def jobs_of(
    key: str,
    task: str,
    plan: Plan,
    domains: Sequence[str],
    command: Sequence[str],
    *,
    steps: int = 1,
    attempt: int = 0,
    host: str = "127.0.0.1",
    partner: str | None = None,
    cap_w: Callable[[int, int], float] | None = None,
) -> tuple[JobSpec, ...]:
    """A plan as jobs, one for each of its domains; several are a gang and are held until all have their devices.

    Args:
        key: Of the decision.
        task: Id of the task.
        plan: Where and how it runs; a domain holds one segment at most.
        domains: Names of the domains, in the plan's order of numbers.
        command: The user's command.
        steps: Work in steps.
        attempt: How often the task was started before.
        host: Where the parts of a gang meet.
        partner: Id of the task that shares the devices.
        cap_w: Watts of a cap level in a domain; needed where the plan has caps.
    """
    # The same key gives the same port, in whichever process it is asked.
    meeting = f"{host}:{20000 + zlib.crc32(key.encode()) % 40000}" if len(plan.segments) > 1 else ""
    jobs = []
    for r, replica in enumerate(plan.replicas):
        for s, segment in enumerate(replica.segments):
            part = Component(
                domain=domains[segment.domain], stage=s, stages=len(replica.segments), replica=r,
                replicas=len(plan.replicas), first=segment.first, stop=segment.stop, dp=segment.dp, tp=segment.tp,
                pp=segment.pp, precision=segment.precision.value, microbatch=replica.microbatch,
                microbatches=replica.microbatches, schedule=plan.schedule.name.lower(), partner=partner,
                power_cap_w=cap_w(segment.domain, segment.cap) if cap_w is not None and segment.cap else None,
            )  # fmt: skip
            jobs.append(JobSpec(task, tuple(command), part, steps, rendezvous=meeting, attempt=attempt))
    return tuple(replace(job, held=len(jobs) > 1) for job in jobs)
