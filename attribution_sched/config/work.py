"""Settings of the work: kinds of tasks, when they arrive, what a decision is worth, how long it all runs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from attribution_sched.config.domains import Seconds
from attribution_sched.config.fields import (
    FilePath,
    Fraction,
    Name,
    Positive,
    Real,
    Record,
    Seed,
    Switch,
    Why,
    broken_rule,
)
from attribution_sched.config.incidents import BurstSettings
from attribution_sched.errors import nearest

Samples = Annotated[
    int,
    Field(strict=True, ge=1, le=10**8),
    Why("bytes of a batch are whole numbers of 64 bits, and no step is so large"),
]
Steps = Annotated[int, Field(strict=True, ge=1, le=10**12), Why("at a millisecond each, that is 30 years")]
Rate = Annotated[
    float,
    Field(strict=True, ge=1e-6, le=1e6, allow_inf_nan=False),
    Why("arrivals are drawn one by one, between one a century and 277 a second"),
]
"""Tasks per hour."""
Price = Annotated[
    float, Field(strict=True, ge=0, le=1e9, allow_inf_nan=False), Why("the reward is a sum of such terms")
]
"""Weight or price of a term of the reward."""
Slots = Annotated[int, Field(strict=True, ge=1, le=1_000_000), Why("every slot is a row of the engine's arrays")]
Interval = Annotated[
    float,
    Field(strict=True, ge=1e-3, le=3.2e9, allow_inf_nan=False),
    Why("the clock moves in seconds: a thousandth of one to a century"),
]
MOST_TICKS = 10_000_000
"""Changes of the network, or offers of a waiting task, in an episode: each is an event the engine goes through."""

PROFILED_PREFIX = "profiled:"
"""Before the name of a network whose layers were measured one by one, as in ``profiled:LLAMA-3-8``."""


class KindSettings(Record):
    """A kind of task, see :class:`attribution_sched.cluster.world.TaskKind`.

    Attributes:
        model: Name in the model zoo, or ``profiled:`` and the name of a profiled network.
        batch_size: Samples per step.
        microbatches: Four microbatch sizes a plan may choose from, ascending divisors of the batch.
        steps: Fewest and most steps of a task.
        epoch_steps: Steps after which a running task may be re-planned.
        training: False for inference.
        share: How often the kind arrives, relative to the others.
        priority: Larger is more urgent.
        tenant: Who asks for it.
        deadline_slack: Multiple of its time on the baseline plan within which a task should finish.
    """

    model: Name
    batch_size: Samples
    microbatches: tuple[Samples, Samples, Samples, Samples]
    steps: tuple[Steps, Steps]
    epoch_steps: Steps
    training: Switch = True
    share: Positive = 1.0
    priority: Annotated[int, Field(strict=True, ge=-1_000_000, le=1_000_000), Why("policies weigh it as a number")] = 0
    tenant: Name = "default"
    deadline_slack: Positive = 2.0

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        from attribution_sched.cluster.models import model_names
        from attribution_sched.cluster.models.catalogue import PROFILED_NAMES

        if name.startswith(PROFILED_PREFIX):
            if name.removeprefix(PROFILED_PREFIX) not in PROFILED_NAMES:
                valid = [PROFILED_PREFIX + profiled for profiled in PROFILED_NAMES]
                raise broken_rule("was not profiled", nearest(name, valid))
        elif name.lower() not in model_names():
            raise broken_rule("is not in the model zoo", nearest(name.lower(), model_names()))
        return name

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        levels = self.microbatches
        if list(levels) != sorted(levels) or any(self.batch_size % level for level in levels):
            rule = f"must be ascending divisors of batch_size = {self.batch_size}"
            raise broken_rule(rule, "Use powers of two", key=("microbatches",), value=levels)
        if self.steps[0] > self.steps[1]:
            rule = "must give the fewest steps first, then the most"
            raise broken_rule(rule, "Swap them", key=("steps",), value=self.steps)
        return self


class PoissonSettings(Record):
    """Arrivals at a constant mean rate.

    Attributes:
        kind: ``poisson``.
        rate_per_hour: Mean number of tasks per hour.
        burst: Hours with another rate.
    """

    kind: Literal["poisson"]
    rate_per_hour: Rate
    burst: BurstSettings | None = None


class DiurnalSettings(Record):
    """Arrivals that follow the hours of the day.

    Attributes:
        kind: ``diurnal``.
        rate_per_hour: Mean number of tasks per hour over a day.
        amplitude: Swing around the mean.
        peak_hour: Busiest hour of the day.
        burst: Hours in which that rate is multiplied once more.
    """

    kind: Literal["diurnal"]
    rate_per_hour: Rate
    amplitude: Fraction = 0.5
    peak_hour: Annotated[float, Field(strict=True, ge=0, lt=24, allow_inf_nan=False)] = 14.0
    burst: BurstSettings | None = None


class TraceSettings(Record):
    """Arrivals replayed from a CSV file.

    Attributes:
        kind: ``trace``.
        path: File with ``arrival_s, model, steps, batch_size, priority, tenant[, mode]``; a relative path
            starts at the file that names it.
    """

    kind: Literal["trace"]
    path: FilePath


ArrivalSettings = Annotated[PoissonSettings | DiurnalSettings | TraceSettings, Field(discriminator="kind")]


class RewardSettings(Record):
    """What a decision is worth, see :class:`attribution_sched.cluster.world.Reward`.

    Attributes:
        w_eff: Weight of training efficiency.
        w_util: Weight of utilisation.
        w_cost: Weight of cost.
        lambda_fragmentation: Weight of fragmentation in the lower agents' reward.
        lambda_intra_comm: Weight of communication inside a domain in the lower agents' reward.
        energy_usd_per_kwh: Price of energy inside the cost; 0 leaves energy out.
        carbon_usd_per_kg: Price of carbon inside the cost; 0 leaves carbon out.
        per_decision: Pay a decision at once instead of step by step while tasks run.
        interval_s: Time that counts as one unit of reward when paid step by step.
    """

    w_eff: Price = 1.0
    w_util: Price = 0.5
    w_cost: Price = 0.5
    lambda_fragmentation: Price = 1.0
    lambda_intra_comm: Price = 1.0
    energy_usd_per_kwh: Price = 0.0
    carbon_usd_per_kg: Price = 0.0
    per_decision: Switch = False
    interval_s: Interval = 3600.0


class EpisodeSettings(Record):
    """Length and limits of a run, see :class:`attribution_sched.cluster.world.World`.

    Attributes:
        horizon_s: Length of an episode.
        tick_s: How often link bandwidth changes.
        max_segments: Most domains one plan may use.
        max_running: Most tasks running at once.
        queue_capacity: Most tasks waiting.
        replan_threshold: Relative change of a used link that calls for a re-planning decision.
        restart_s: Pause of a task that moves, on top of sending its state.
        retry_s: How long a deferred task waits before it is offered again.
        share_limit: Most tasks on one device, 1 or 2.
        waiting_r_eff: Efficiency credited per interval to a task that waits or moves.
        idiosyncrasy: Spread of latent demands; 0 makes all tasks of a kind alike.
        pool_size: Number of distinct task instances drawn from.
        pool_seed: Seed of those instances.
    """

    horizon_s: Interval = 86_400.0
    tick_s: Interval = 300.0
    max_segments: Annotated[
        int, Field(strict=True, ge=1, le=64), Why("a plan is a row of so many segments, and choices grow with each")
    ] = 4
    max_running: Slots = 8
    queue_capacity: Slots = 16
    replan_threshold: Positive = 0.15
    restart_s: Seconds = 60.0
    retry_s: Interval = 1800.0
    share_limit: Annotated[int, Field(strict=True, ge=1, le=2)] = 2
    waiting_r_eff: Real = -1.0
    idiosyncrasy: Annotated[
        float, Field(strict=True, ge=0, le=10, allow_inf_nan=False), Why("demands spread by its exponential")
    ] = 1.0
    pool_size: Annotated[
        int, Field(strict=True, ge=1, le=100_000), Why("every instance is drawn when the world is made")
    ] = 1024
    pool_seed: Seed = 20261116

    @model_validator(mode="after")
    def _few_events(self) -> Self:
        for field in ("tick_s", "retry_s"):
            step_s = getattr(self, field)
            if self.horizon_s / step_s > MOST_TICKS:
                rule = f"must be at least horizon_s / {MOST_TICKS} = {self.horizon_s / MOST_TICKS:g}: each is an event"
                raise broken_rule(rule, "Raise it, or shorten horizon_s", key=(field,), value=step_s)
        return self
