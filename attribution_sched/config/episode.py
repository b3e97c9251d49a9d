"""How a run goes, in settings: the framework, length and limits, and what goes wrong."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from attribution_sched.cluster.objective import Interval, Positive, Switch
from attribution_sched.config.fields import (
    HourWindow,
    Name,
    NonNegative,
    Real,
    Record,
    Seconds,
    Seed,
    Slots,
    between,
    broken_rule,
)
from attribution_sched.limits import Rationale

MOST_TICKS = 10_000_000
"""Changes of the network, or offers of a waiting task, in an episode: each is an event the engine goes through."""


class RuntimeSettings(Record):
    """How the framework behaves, see :class:`attribution_sched.cluster.world.Runtime`.

    Attributes:
        recompute: Recompute activations in the backward pass.
        zero_stage: What data-parallel ranks shard, 0 to 3.
        sequence_parallel: Shard norms and dropout over tensor-parallel ranks too.
        flash_attention: Fused attention.
        blocking_sends: A stage computes nothing while it sends.
        reserved_bytes: Device memory that context and allocator take.
        preset: A framework whose way of sending is known: ``torch-1f1b`` waits for its sends, ``torch-gpipe`` does not.
            It says what ``blocking_sends`` says; None leaves that to ``blocking_sends``.
    """

    recompute: Switch = False
    zero_stage: Annotated[int, between(0, 3)] = 1
    sequence_parallel: Switch = False
    flash_attention: Switch = True
    blocking_sends: Switch = False
    reserved_bytes: NonNegative = 2.0e9
    preset: Literal["torch-1f1b", "torch-gpipe"] | None = None


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
        profiling_s: How long an opaque task is profiled on devices set aside, before it enters the queue.
    """

    horizon_s: Interval = 86_400.0
    tick_s: Interval = 300.0
    max_segments: Annotated[
        int, between(1, 64), Rationale("a plan is a row of so many segments, and choices grow with each")
    ] = 4
    max_running: Slots = 8
    queue_capacity: Slots = 16
    replan_threshold: Positive = 0.15
    restart_s: Seconds = 60.0
    retry_s: Interval = 1800.0
    share_limit: Annotated[int, between(1, 2)] = 2
    waiting_r_eff: Real = -1.0
    idiosyncrasy: Annotated[float, between(0.0, 10.0), Rationale("demands spread by its exponential")] = 1.0
    pool_size: Annotated[int, between(1, 100_000), Rationale("every instance is drawn when the world is made")] = 1024
    pool_seed: Seed = 20261116
    profiling_s: Seconds = 0.0

    @model_validator(mode="after")
    def _few_events(self) -> Self:
        for field in ("tick_s", "retry_s"):
            step_s = getattr(self, field)
            if self.horizon_s / step_s > MOST_TICKS:
                rule = f"must be at least horizon_s / {MOST_TICKS} = {self.horizon_s / MOST_TICKS:g}: each is an event"
                raise broken_rule(rule, "Raise it, or shorten horizon_s", key=(field,), value=step_s)
        return self


class LinkCutSettings(HourWindow):
    """A link that carries less for a while, see :class:`attribution_sched.cluster.incidents.LinkCut`.

    Attributes:
        kind: ``link_cut``.
        source: Domain at one end.
        target: Domain at the other.
        start_h: When it begins, hours from the start of the run.
        end_h: When it is over.
        factor: What is left of the bandwidth.
        both_ways: Whether the way back suffers too.
    """

    kind: Literal["link_cut"]
    source: Name
    target: Name
    factor: Annotated[float, between(0.0, 1.0, "(]")]
    both_ways: Switch = True

    @model_validator(mode="after")
    def _two_ends(self) -> Self:
        if self.source == self.target:
            raise broken_rule("must differ from source", "Name two domains", key=("target",), value=self.target)
        return self


class DomainLossSettings(HourWindow):
    """A domain that is gone for a while, see :class:`attribution_sched.cluster.incidents.DomainLoss`.

    Attributes:
        kind: ``domain_loss``.
        domain: Which one.
        start_h: When it goes, hours from the start of the run.
        end_h: When it is back.
    """

    kind: Literal["domain_loss"]
    domain: Name


IncidentSettings = Annotated[LinkCutSettings | DomainLossSettings, Field(discriminator="kind")]
