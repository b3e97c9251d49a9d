"""The world a scheduler lives in: a cluster, the work that arrives, and how decisions are rewarded.

A ``World`` is a complete, frozen description; the environments and the event simulator are built from it
and add nothing but a seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from attribution_sched.cluster.arrivals import Diurnal, Poisson, TraceArrivals
from attribution_sched.cluster.domains import Cluster
from attribution_sched.cluster.incidents import Incident, check_incidents
from attribution_sched.cluster.models import Model, TaskType
from attribution_sched.cluster.objective import Reward as Reward
from attribution_sched.cluster.philly import Philly, PhillyWeek
from attribution_sched.errors import SettingsError, TaskError, problem

Arrivals = Poisson | Diurnal | TraceArrivals | Philly | PhillyWeek

TRAINING_BYTES_PER_PARAMETER = 16.0
"""Weights, gradients and Adam states, in full or mixed precision."""

BATCH_LEVELS = 4
"""Microbatch choices per task kind."""


@dataclass(frozen=True)
class TaskKind:
    """A kind of task that arrives.

    Attributes:
        model: What is trained or run.
        batch_size: Global batch: samples per step.
        microbatches: The four microbatch sizes (samples) a plan may choose, ascending; each divides the batch.
        steps: Fewest and most steps a task of this kind needs (log-uniform between them).
        epoch_steps: Steps after which a running task may be re-planned.
        training: False for inference.
        share: How often this kind arrives, relative to the others.
        priority: Larger is more urgent.
        tenant: Who asks for it.
        deadline_slack: A task is late when it takes longer from arrival to finish than so many times what its steps
            take on the baseline plan.
    """

    model: Model
    batch_size: int
    microbatches: tuple[int, int, int, int]
    steps: tuple[int, int]
    epoch_steps: int
    training: bool = True
    share: float = 1.0
    priority: int = 0
    tenant: str = "default"
    deadline_slack: float = 2.0

    @property
    def features(self) -> tuple[float, float, float, float, float]:
        """The five task numbers: type code over 3, log10 parameters over 12, log2 of input and batch sizes over 16."""
        return (
            list(TaskType).index(self.model.task_type) / 3.0,
            math.log10(self.model.params) / 12.0,
            math.log2(self.model.input_size[0]) / 16.0,
            math.log2(self.model.input_size[1]) / 16.0,
            math.log2(self.batch_size) / 16.0,
        )

    def __post_init__(self) -> None:
        name = self.model.name
        if self.batch_size < 1:
            raise TaskError(problem(f"{name}.batch_size", self.batch_size, "must be >= 1", "Use samples per step"))
        levels = self.microbatches
        wrong = [m for m in levels if m < 1 or self.batch_size % m]
        if len(levels) != BATCH_LEVELS or wrong or list(levels) != sorted(levels):
            rule = f"must be {BATCH_LEVELS} ascending divisors of the batch {self.batch_size}"
            raise TaskError(problem(f"{name}.microbatches", levels, rule, "Use powers of two"))
        if not 1 <= self.steps[0] <= self.steps[1]:
            raise TaskError(problem(f"{name}.steps", self.steps, "must be 1 <= fewest <= most", "Swap or raise them"))
        if self.epoch_steps < 1:
            raise TaskError(problem(f"{name}.epoch_steps", self.epoch_steps, "must be >= 1", "Use steps per epoch"))
        if not self.share > 0:
            raise TaskError(problem(f"{name}.share", self.share, "must be > 0", "Leave the kind out instead"))
        if not (math.isfinite(self.deadline_slack) and self.deadline_slack > 0):
            fix = "Use multiples of the time on the baseline plan"
            raise TaskError(problem(f"{name}.deadline_slack", self.deadline_slack, "must be finite and > 0", fix))


@dataclass(frozen=True)
class World:
    """Everything that defines a scheduling problem.

    Attributes:
        cluster: Domains, network, framework.
        kinds: Kinds of tasks.
        arrivals: When tasks arrive.
        reward: What is good.
        horizon_s: Length of an episode.
        tick_s: How often link bandwidth changes.
        max_segments: Most domains one plan may use (P).
        max_running: Most tasks running at once.
        queue_capacity: Most tasks waiting; a task that finds the queue full is turned away and counted.
        replan_threshold: Relative change of a used link that calls for a re-planning decision.
        restart_s: Pause of a task that moves, on top of sending its state.
        retry_s: How long a deferred task waits before it is offered again if nothing else changes.
        share_limit: Most tasks on one device.
        waiting_r_eff: R_eff credited per interval to a task that waits or is being moved.
        idiosyncrasy: Spread of latent demands; 0 makes all tasks of a kind alike.
        pool_size: Number of distinct task instances drawn from.
        pool_seed: Seed of those instances.
        incidents: Links that are cut and domains that are lost on the way.
        pairs_measured: Whether two measured jobs on one device run as they were measured; else by the law alone.
    """

    cluster: Cluster
    kinds: tuple[TaskKind, ...]
    arrivals: Arrivals
    reward: Reward = field(default_factory=Reward)
    horizon_s: float = 86_400.0
    tick_s: float = 300.0
    max_segments: int = 4
    max_running: int = 8
    queue_capacity: int = 16
    replan_threshold: float = 0.15
    restart_s: float = 60.0
    retry_s: float = 1800.0
    share_limit: int = 2
    waiting_r_eff: float = -1.0
    idiosyncrasy: float = 1.0
    pool_size: int = 1024
    pool_seed: int = 20261116
    incidents: tuple[Incident, ...] = ()
    pairs_measured: bool = True

    def __post_init__(self) -> None:
        if not self.kinds:
            raise SettingsError(problem("kinds", (), "a world needs at least one", "Add a task kind"))
        for name in ("horizon_s", "tick_s", "retry_s", "replan_threshold"):
            if not getattr(self, name) > 0:
                raise SettingsError(problem(name, getattr(self, name), "must be > 0", "Use a positive number"))
        for name in ("max_segments", "max_running", "queue_capacity", "share_limit", "pool_size"):
            if getattr(self, name) < 1:
                raise SettingsError(problem(name, getattr(self, name), "must be >= 1", "Use a positive integer"))
        if self.share_limit > 2:
            fix = "Interference is measured for pairs; use 1 or 2"
            raise SettingsError(problem("share_limit", self.share_limit, "must be 1 or 2", fix))
        if not self.restart_s >= 0:
            raise SettingsError(problem("restart_s", self.restart_s, "must be >= 0", "Use seconds"))
        if self.max_segments > len(self.cluster):
            object.__setattr__(self, "max_segments", len(self.cluster))
        check_incidents(self.incidents, tuple(domain.name for domain in self.cluster.domains))
        for kind in self.kinds:
            self._check_size(kind)

    def _check_size(self, kind: TaskKind) -> None:
        """Refuse a task that no plan can ever hold, even with its states sharded over every device it may use."""
        reserved = self.cluster.runtime.reserved_bytes
        rooms = [d.devices * max(0.0, d.gpu.memory_bytes - reserved) for d in self.cluster.domains]
        room = sum(sorted(rooms, reverse=True)[: self.max_segments])
        needed = kind.model.params * (TRAINING_BYTES_PER_PARAMETER if kind.training else 1.0)
        if needed > room:
            given = f"{needed / 1e9:,.0f} GB of weights and states"
            rule = f"the {self.max_segments} largest domains together hold {room / 1e9:,.0f} GB"
            fix = "Add devices, allow more segments, or leave the task kind out"
            raise TaskError(problem(f"{kind.model.name} is larger than the cluster", given, rule, fix))
