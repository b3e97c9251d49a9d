"""Work in settings: kinds of tasks, models of one's own, and when tasks arrive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from attribution_sched.cluster.objective import KindFields, Positive, Switch
from attribution_sched.config.fields import (
    Count,
    FilePath,
    Fraction,
    HourWindow,
    Name,
    NonNegative,
    Rate,
    Record,
    Seed,
    between,
    broken_rule,
)
from attribution_sched.limits import MOST_LAYERS, Rationale

PROFILED_PREFIX = "profiled:"
"""Before the name of a network whose layers were measured one by one, as in ``profiled:LLAMA-3-8``."""


@dataclass(frozen=True)
class KindSettings(KindFields):
    """A kind of task; its other fields are those of :class:`~attribution_sched.cluster.objective.KindFields`.

    Attributes:
        model: Name in the model zoo (a language model with its length: ``bert-base@384``), a name under ``models:``,
            ``profiled:`` and the name of a profiled network, or ``opaque-`` and the number of devices that a job of
            which nothing else is known asks for.
        output_tokens: Tokens that a served language model writes after its prompt; half its sequence when left out.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", hide_input_in_errors=True)

    model: Name
    output_tokens: Annotated[int, between(0, 10**7), Rationale("a sequence has no more")] | None = None

    def __post_init__(self) -> None:
        broken = self.broken()
        if broken is not None:
            name, value, rule, fix = broken
            raise broken_rule(rule, fix, key=(name,), value=value)


class LayerSettings(Record):
    """One kind of layer of a model of one's own, see :class:`attribution_sched.cluster.models.declared.LayerFigures`.

    Attributes:
        count: How many follow each other.
        flops: Forward FLOPs per sample of one, without its experts.
        params: Parameters of one, without its experts.
        activations: Elements per sample it keeps for the backward pass.
        outputs: Elements per sample it hands on; its activations when left out.
        operator: What most of its FLOPs are.
        kind: What it is.
        sharded: Whether tensor parallelism divides it.
        experts: How many experts it has.
        top_k: How many of them a token visits.
        expert_params: Parameters of one expert.
        expert_flops: Forward FLOPs per sample of one expert if every token visits it.
        attention_flops: Forward FLOPs per sample of its attention, beside those of ``operator``.
    """

    count: Annotated[int, between(1, MOST_LAYERS), Rationale("every layer has a row in tables")] = 1
    flops: NonNegative
    params: NonNegative
    activations: Positive
    outputs: NonNegative = 0.0
    operator: Literal["conv", "fc", "attention"] = "fc"
    kind: Literal["block", "conv", "embedding", "norm", "head"] = "block"
    sharded: Switch = True
    experts: Annotated[int, between(0, 100_000), Rationale("no layer has more")] = 0
    top_k: Annotated[int, between(0, 100_000), Rationale("no token visits more")] = 0
    expert_params: NonNegative = 0.0
    expert_flops: NonNegative = 0.0
    attention_flops: NonNegative = 0.0

    @model_validator(mode="after")
    def _routed(self) -> Self:
        if (self.top_k > 0) != (self.experts > 0) or self.top_k > self.experts:
            rule = f"must lie between 1 and experts = {self.experts}" if self.experts else "stands without experts"
            fix = "Say how many of the experts a token visits" if self.experts else "Give experts, or leave it out"
            raise broken_rule(rule, fix, key=("top_k",), value=self.top_k)
        if not self.experts and (self.expert_params or self.expert_flops):
            stated = "expert_params" if self.expert_params else "expert_flops"
            rule, fix = "stands without experts", "Give experts and top_k, or leave it out"
            raise broken_rule(rule, fix, key=(stated,), value=getattr(self, stated))
        return self


class ModelSettings(Record):
    """A model of one's own: from a Hugging Face ``config.json``, from layers, or from the zoo with adapters.

    Attributes:
        config: Path of a ``config.json``; a relative path starts at the file that names it.
        layers: Its layers, first to last.
        base: A model of the zoo.
        sequence_length: Tokens per sample; the model's own when left out.
        params: Parameters of the whole; layers that do not add up to it within one percent are an error.
        lora_rank: Train adapters of this rank, the weights being frozen.
        task_type: Coarse type.
        family: Family whose measured speed it is assumed to have.
    """

    config: FilePath | None = None
    layers: (
        Annotated[tuple[LayerSettings, ...], Field(min_length=1, max_length=10_000), Rationale("a chain of layers")]
        | None
    ) = None
    base: Name | None = None
    sequence_length: Annotated[int, between(1, 10**7), Rationale("no sequence is longer")] | None = None
    params: Positive | None = None
    lora_rank: Annotated[int, between(1, 100_000), Rationale("a rank is far below a width")] | None = None
    task_type: Literal["vision", "language", "speech", "recommendation"] = "language"
    family: Literal["resnet", "efficientnet", "shufflenet", "bert", "gpt", "opt", "llama", "vit"] = "llama"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [key for key in ("config", "layers", "base") if getattr(self, key) is not None]
        if len(sources) != 1:
            rule = "exactly one of config, layers and base must say what the model is"
            raise broken_rule(rule, "Keep one of them", value=", ".join(sources) or "none")
        return self


class BurstSettings(HourWindow):
    """Hours with another rate of arrivals, see :class:`attribution_sched.cluster.arrivals.Burst`.

    Attributes:
        start_h: When it begins, hours from the start of the run.
        end_h: When it is over.
        factor: What the rate is multiplied by.
    """

    factor: Annotated[
        float,
        between(1e-3, 1e3),
        Rationale("arrivals are drawn at the larger rate and thinned to the smaller, one by one"),
    ]


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
    peak_hour: Annotated[float, between(0.0, 24.0, "[)")] = 14.0
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


class PhillySettings(Record):
    """Tasks as Microsoft's Philly log has them, see :mod:`attribution_sched.cluster.philly`; kinds must be opaque.

    Attributes:
        kind: ``philly``.
        rate_per_hour: Mean number of tasks per hour, drawn from constants fitted to the log.
    """

    kind: Literal["philly"]
    rate_per_hour: Rate


def _day(day: object) -> object:
    """YAML reads ``2017-11-06`` as a date: the text it was."""
    return day.isoformat() if isinstance(day, date) else day


class PhillyWeekSettings(Record):
    """A week of the Philly log itself; kinds must be opaque.

    Attributes:
        kind: ``philly_week``.
        path: The log's ``philly.csv``; a relative path starts at the file that names it.
        monday: First day of the week, for example ``2017-11-06``.
        keep: One task in so many is kept.
        seed: Of the models drawn for the tasks, and of which one in ``keep`` is kept.
    """

    kind: Literal["philly_week"]
    path: FilePath
    monday: Annotated[Name, BeforeValidator(_day)]
    keep: Count = 4
    seed: Seed = 0


ArrivalSettings = Annotated[
    PoissonSettings | DiurnalSettings | TraceSettings | PhillySettings | PhillyWeekSettings,
    Field(discriminator="kind"),
]
