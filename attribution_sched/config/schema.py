"""A scheduling problem as one settings record: hardware, network, framework, work, what goes wrong, limits.

Every record is frozen, closed to unknown keys and strict about types: ``"16"`` or ``true`` for a number is refused
instead of guessed at; a whole number is accepted where a real one is asked for, as YAML users write them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from attribution_sched.cluster.objective import Interval, KindFields, Positive, Quota, Reward, ShareRule, Switch
from attribution_sched.errors import NetworkError, nearest
from attribution_sched.limits import MOST_CELLS, MOST_DEVICES, MOST_LAYERS, Why, name_rule, path_rule

if TYPE_CHECKING:
    from attribution_sched.cluster.gpus import Gpu
    from attribution_sched.cluster.world import World


RULE = "settings_rule"
"""Type of the errors that :func:`broken_rule` makes."""

_LARGEST = 1e15
DIGITS = Why("beyond it sums lose their digits")

NonNegative = Annotated[float, Field(strict=True, ge=0, le=_LARGEST, allow_inf_nan=False), DIGITS]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Real = Annotated[float, Field(strict=True, ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False), DIGITS]
Count = Annotated[int, Field(strict=True, ge=1, le=10**12), Why("nobody counts further, and arrays cannot")]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**62), Why("generators take whole numbers of 64 bits")]


def _name(name: str) -> str:
    rule = name_rule(name)
    if rule is not None:
        raise broken_rule(rule, "Use letters, digits and signs", value=name)
    return name


def _path(path: str) -> str:
    rule = path_rule(path)
    if rule is not None:
        raise broken_rule(rule, "Give the path of a file", value=path)
    return path


Name = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_name)]
"""Printable, at most 200 characters."""

FilePath = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_path)]
"""A path that a file system can take; whether the file is there is seen when it is read."""


class Record(BaseModel):
    """Base of every settings record."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def to_yaml(self) -> str:
        """Write the record as YAML that loads into an equal record; keys that are unset are left out."""
        return yaml.safe_dump(
            self.model_dump(mode="json", exclude_none=True), sort_keys=False, default_flow_style=None, width=110
        )


def broken_rule(rule: str, fix: str, *, key: Iterable[str | int] = (), value: object = None) -> PydanticCustomError:
    """Build the error of a rule that pydantic does not know.

    Args:
        rule: What must hold.
        fix: What the user can do.
        key: Where below the validated record or field the mistake is.
        value: The offending value; the validated one when the key is empty.
    """
    context = {"rule": rule, "fix": fix, "key": tuple(key), "value": value}
    return PydanticCustomError(RULE, "{rule}", context)


Devices = Annotated[int, Field(strict=True, ge=1, le=MOST_DEVICES), Why("every device has a place in arrays")]
Gbps = Annotated[
    float,
    Field(strict=True, ge=1e-6, le=1e9, allow_inf_nan=False),
    Why("slower ones never end a transfer, and none is faster"),
]
"""Bandwidth."""
Bytes = Annotated[
    float, Field(strict=True, ge=1.0, le=1e18, allow_inf_nan=False), Why("memories and links hold or move bytes")
]
MemoryBytes = Annotated[
    float,
    Field(strict=True, ge=1e8, le=1e18, allow_inf_nan=False),
    Why("no device holds less: the number counts bytes, not gigabytes"),
]
BytesPerSecond = Annotated[
    float,
    Field(strict=True, ge=1e8, le=1e18, allow_inf_nan=False),
    Why("no memory of a device is slower: the number counts bytes a second, not gigabytes"),
]
Seconds = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False), Why("a task would wait for weeks")]
"""Latency or pause."""
Watts = Annotated[
    float, Field(strict=True, ge=1e-3, le=1e9, allow_inf_nan=False), Why("a device draws milliwatts to megawatts")
]


class GpuOverride(Record):
    """Figures of a device type: those of the catalogue replaced, or all of a type that the catalogue does not have.

    Attributes:
        peak_tflops: Dense peak in 10¹² operations a second by precision (``fp32``, ``fp16``, ``bf16``, ``int8``); what
            is left out the device does not have.
        like: Fitted chip (``V100``, ``A100``, ``H100``) whose achieved shares of the peak, launch floors and draw it is
            assumed to have.
        memory_bytes: Device memory.
        bandwidth_bytes_per_s: Peak memory bandwidth.
        tdp_w: Board power limit.
        min_cap_w: Lowest power cap the driver accepts.
        idle_w: Power with no work resident.
        nvlink_bytes_per_s: One direction between two devices of a node.
    """

    memory_bytes: MemoryBytes | None = None
    bandwidth_bytes_per_s: BytesPerSecond | None = None
    tdp_w: Watts | None = None
    min_cap_w: Watts | None = None
    idle_w: Watts | None = None
    nvlink_bytes_per_s: Bytes | None = None
    peak_tflops: dict[Literal["fp32", "fp16", "bf16", "int8"], Positive] | None = None
    like: Literal["V100", "A100", "H100"] | None = None


class GridCarbon(Record):
    """Carbon intensity by the fitted profile of a grid, see :class:`attribution_sched.cluster.signals.Grid`.

    Attributes:
        kind: ``grid``.
        grid: Its name: ``BPAT``, ``CISO``, ``ERCO`` or ``PJM``.
        seed: Seed of the hours' deviations; the profile alone when left out.
        start_h: Hour of the year (UTC) at which the run begins.
    """

    kind: Literal["grid"]
    grid: Literal["BPAT", "CISO", "ERCO", "PJM"]
    seed: Seed | None = None
    start_h: Annotated[float, Field(strict=True, ge=0, lt=8760, allow_inf_nan=False)] = 0.0


class SeriesSignal(Record):
    """A signal from a file, see :class:`attribution_sched.cluster.signals.Series`.

    Attributes:
        kind: ``series``.
        path: CSV file with ``time_s`` and the values, its first row the start of the run, its rows about as far apart
            as they usually are; a relative path starts at the file that names it.
        column: Column of the values: gCO2/kWh, or USD/kWh for a price.
    """

    kind: Literal["series"]
    path: FilePath
    column: Name


class SeriesCarbon(SeriesSignal):
    """Carbon intensity from a file."""

    column: Name = "carbon_g_per_kwh"


class SeriesPrice(SeriesSignal):
    """Price of electricity from a file."""

    column: Name = "usd_per_kwh"


class ConstantPrice(Record):
    """A domain's own price of electricity, the same at all hours.

    Attributes:
        kind: ``constant``.
        value: USD/kWh.
    """

    kind: Literal["constant"]
    value: NonNegative


class DaySignal(Record):
    """A signal that repeats every day, such as a tariff by the hour; it is known ahead.

    Attributes:
        kind: ``day``.
        values: Its 24 hours, the first from the start of the run: gCO2/kWh, or USD/kWh for a price.
    """

    kind: Literal["day"]
    values: Annotated[tuple[NonNegative, ...], Field(min_length=24, max_length=24)]


class LiveSignal(Record):
    """A file that somebody keeps up to date, see :class:`attribution_sched.cluster.signals.Live`.

    A real cluster reads it once an hour; a simulation holds the usual value.

    Attributes:
        kind: ``live``.
        path: Text file whose last number is the value now: gCO2/kWh, or USD/kWh for a price.
        usual: What holds until it is first read.
    """

    kind: Literal["live"]
    path: FilePath
    usual: Positive


CarbonSettings = Annotated[GridCarbon | SeriesCarbon | DaySignal | LiveSignal, Field(discriminator="kind")]
ElectricitySettings = Annotated[ConstantPrice | SeriesPrice | DaySignal | LiveSignal, Field(discriminator="kind")]


class DomainDefaults(Record):
    """What domains have in common unless they say otherwise.

    Attributes:
        gpu: Name in the GPU catalogue.
        devices: Number of devices.
        node_devices: Devices that share a node and its fast links.
        fabric_gbps: Bandwidth of one device between nodes of the domain, Gb/s.
        fabric_latency_s: Latency between nodes of the domain.
        power_cap_w: Cap on every device; its TDP when left out.
        power_budget_w: What all devices together may draw; unlimited when left out.
        carbon_g_per_kwh: Carbon intensity of the grid where the region table has no figure.
        carbon: Carbon intensity by the hour, in place of one figure.
        electricity: Price of electricity by the hour, USD/kWh; the reward's ``energy_usd_per_kwh`` when left out.
    """

    gpu: Name = "A100-80"
    devices: Devices = 8
    node_devices: Devices = 8
    fabric_gbps: Gbps = 200.0
    fabric_latency_s: Seconds = 5e-6
    power_cap_w: Watts | None = None
    power_budget_w: Watts | None = None
    carbon_g_per_kwh: NonNegative | None = None
    carbon: CarbonSettings | None = None
    electricity: ElectricitySettings | None = None


class DomainSettings(Record):
    """One domain; whatever is left out is taken from the defaults.

    Attributes:
        name: A cloud region such as ``aws:us-east-1``, or any name where the network is given.
        gpu: See :class:`DomainDefaults`, as for all that follow.
        devices: Number of devices.
        node_devices: Devices of one node.
        fabric_gbps: Bandwidth between nodes.
        fabric_latency_s: Latency between nodes.
        power_cap_w: Cap per device.
        power_budget_w: Budget of the domain.
        carbon_g_per_kwh: Carbon intensity of the grid, in place of the region table's.
        carbon: The same by the hour; one of the two.
        electricity: Price of electricity by the hour.
    """

    name: Name
    gpu: Name | None = None
    devices: Devices | None = None
    node_devices: Devices | None = None
    fabric_gbps: Gbps | None = None
    fabric_latency_s: Seconds | None = None
    power_cap_w: Watts | None = None
    power_budget_w: Watts | None = None
    carbon_g_per_kwh: NonNegative | None = None
    carbon: CarbonSettings | None = None
    electricity: ElectricitySettings | None = None

    @model_validator(mode="after")
    def _one_carbon(self) -> Self:
        if self.carbon is not None and self.carbon_g_per_kwh is not None:
            rule = "stands beside carbon, which says the same"
            raise broken_rule(rule, "Keep one of them", key=("carbon_g_per_kwh",), value=self.carbon_g_per_kwh)
        return self


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
    zero_stage: Annotated[int, Field(strict=True, ge=0, le=3)] = 1
    sequence_parallel: Switch = False
    flash_attention: Switch = True
    blocking_sends: Switch = False
    reserved_bytes: NonNegative = 2.0e9
    preset: Literal["torch-1f1b", "torch-gpipe"] | None = None


GpuOverrides = dict[str, GpuOverride]
"""Device type → its figures, or those that replace the catalogue's."""


Matrix = tuple[tuple[NonNegative, ...], ...]
"""Source domain, then destination domain; the diagonal is the link inside a domain."""


class RegionLinks(Record):
    """Measured figures between cloud regions; every domain must bear the name of one.

    Attributes:
        kind: ``regions``.
        intra_gbps: Bandwidth between machines of one region, Gb/s.
        intra_latency_s: Latency between machines of one region.
    """

    kind: Literal["regions"] = "regions"
    intra_gbps: Gbps = 100.0
    intra_latency_s: Seconds = 1e-4


class UniformLinks(Record):
    """All links alike.

    Attributes:
        kind: ``uniform``.
        gbps: Bandwidth, Gb/s.
        latency_s: One-way latency.
        usd_per_gb: Price of a gigabyte.
        intra_gbps: Bandwidth between machines of one domain, Gb/s.
        intra_latency_s: Latency between machines of one domain.
    """

    kind: Literal["uniform"]
    gbps: Gbps
    latency_s: Seconds
    usd_per_gb: NonNegative = 0.0
    intra_gbps: Gbps = 100.0
    intra_latency_s: Seconds = 1e-4


class MatrixLinks(Record):
    """Every link by itself.

    Attributes:
        kind: ``matrix``.
        bandwidth_gbps: Bandwidth of every ordered pair.
        latency_s: One-way latency of every ordered pair.
        price_usd_per_gb: Price of every ordered pair.
    """

    kind: Literal["matrix"]
    bandwidth_gbps: Matrix
    latency_s: Matrix
    price_usd_per_gb: Matrix


FailureHours = Annotated[
    float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False), Why("a century has 876,600 hours")
]


class FailureSettings(Record):
    """How links between domains fail, see :class:`attribution_sched.cluster.wan.LinkFailures`.

    Attributes:
        mean_up_h: Mean hours from a repair of a pair's link to its next failure.
        mean_down_h: Mean hours that a failure lasts.
        left: Share of its bandwidth that a link carries while it is down, by a detour.
    """

    mean_up_h: FailureHours
    mean_down_h: FailureHours
    left: Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False)] = 0.02


class MotionSettings(Record):
    """How bandwidth and latency move, see :class:`attribution_sched.cluster.wan.Wan`.

    Attributes:
        reversion_per_s: Rate at which a link forgets where it was.
        spread: Standard deviation of the process behind a link's bandwidth; 0 for a still network.
        bound: Largest relative deviation from the base bandwidth.
        correlation: Correlation between the links.
        congestion: How strongly load raises latency.
        failures: How links fail and are repaired; links that hold when left out.
    """

    reversion_per_s: Annotated[
        float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False), Why("no link forgets within a microsecond")
    ] = 1.0 / 1800.0
    spread: Annotated[
        float, Field(strict=True, ge=0, le=100, allow_inf_nan=False), Why("bound cuts it off far below")
    ] = 0.12
    bound: Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False)] = 0.3
    correlation: Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)] = 0.0
    congestion: NonNegative = 0.1
    failures: FailureSettings | None = None


class NetworkSettings(Record):
    """The network: its links, how they move, and optionally a recording that replaces the movement.

    Attributes:
        links: Base figures of the links.
        motion: The random process.
        trace: CSV file of recorded bandwidth (``time_s, src, dst, gbps``); a relative path starts at the
            file that names it.
        trace_at_end: ``hold`` the last figures of the recording, or ``wrap`` around to its first.
        duplex_efficiency: What is left of a link's direction while the other is busy, as ``profile links`` measures it.
            A pipeline trains with both busy, so links between domains are priced with so much of their bandwidth; all
            of it by default.
        kwh_per_gb: Energy of the network for a gigabyte sent between domains, see
            :data:`attribution_sched.cluster.wan.DEFAULT_KWH_PER_GB`; accounted in grams, in no reward.
    """

    links: Annotated[RegionLinks | UniformLinks | MatrixLinks, Field(discriminator="kind")] = RegionLinks()
    motion: MotionSettings = MotionSettings()
    trace: FilePath | None = None
    trace_at_end: Literal["hold", "wrap"] = "hold"
    duplex_efficiency: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] | None = None
    kwh_per_gb: Annotated[float, Field(strict=True, ge=0, le=100, allow_inf_nan=False)] | None = None


_CENTURY = Why("a century has 876,600 hours")


class _Window(Record):
    start_h: Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False), _CENTURY]
    end_h: Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False), _CENTURY]

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if not self.end_h > self.start_h:
            rule = f"must lie after start_h = {self.start_h:g}"
            raise broken_rule(rule, "Give the hour at which it is over", key=("end_h",), value=self.end_h)
        return self


class BurstSettings(_Window):
    """Hours with another rate of arrivals, see :class:`attribution_sched.cluster.arrivals.Burst`.

    Attributes:
        start_h: When it begins, hours from the start of the run.
        end_h: When it is over.
        factor: What the rate is multiplied by.
    """

    factor: Annotated[
        float,
        Field(strict=True, ge=1e-3, le=1e3, allow_inf_nan=False),
        Why("arrivals are drawn at the larger rate and thinned to the smaller, one by one"),
    ]


class LinkCutSettings(_Window):
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
    factor: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
    both_ways: Switch = True

    @model_validator(mode="after")
    def _two_ends(self) -> Self:
        if self.source == self.target:
            raise broken_rule("must differ from source", "Name two domains", key=("target",), value=self.target)
        return self


class DomainLossSettings(_Window):
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


Rate = Annotated[
    float,
    Field(strict=True, ge=1e-6, le=1e6, allow_inf_nan=False),
    Why("arrivals are drawn one by one, between one a century and 277 a second"),
]
"""Tasks per hour."""
Slots = Annotated[int, Field(strict=True, ge=1, le=1_000_000), Why("every slot is a row of the engine's arrays")]
MOST_TICKS = 10_000_000
"""Changes of the network, or offers of a waiting task, in an episode: each is an event the engine goes through."""

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
    output_tokens: Annotated[int, Field(strict=True, ge=0, le=10**7), Why("a sequence has no more")] | None = None

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

    count: Annotated[int, Field(strict=True, ge=1, le=MOST_LAYERS), Why("every layer has a row in tables")] = 1
    flops: NonNegative
    params: NonNegative
    activations: Positive
    outputs: NonNegative = 0.0
    operator: Literal["conv", "fc", "attention"] = "fc"
    kind: Literal["block", "conv", "embedding", "norm", "head"] = "block"
    sharded: Switch = True
    experts: Annotated[int, Field(strict=True, ge=0, le=100_000), Why("no layer has more")] = 0
    top_k: Annotated[int, Field(strict=True, ge=0, le=100_000), Why("no token visits more")] = 0
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
        Annotated[tuple[LayerSettings, ...], Field(min_length=1, max_length=10_000), Why("a chain of layers")] | None
    ) = None
    base: Name | None = None
    sequence_length: Annotated[int, Field(strict=True, ge=1, le=10**7), Why("no sequence is longer")] | None = None
    params: Positive | None = None
    lora_rank: Annotated[int, Field(strict=True, ge=1, le=100_000), Why("a rank is far below a width")] | None = None
    task_type: Literal["vision", "language", "speech", "recommendation"] = "language"
    family: Literal["resnet", "efficientnet", "shufflenet", "bert", "gpt", "opt", "llama", "vit"] = "llama"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [key for key in ("config", "layers", "base") if getattr(self, key) is not None]
        if len(sources) != 1:
            rule = "exactly one of config, layers and base must say what the model is"
            raise broken_rule(rule, "Keep one of them", value=", ".join(sources) or "none")
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
    profiling_s: Seconds = 0.0

    @model_validator(mode="after")
    def _few_events(self) -> Self:
        for field in ("tick_s", "retry_s"):
            step_s = getattr(self, field)
            if self.horizon_s / step_s > MOST_TICKS:
                rule = f"must be at least horizon_s / {MOST_TICKS} = {self.horizon_s / MOST_TICKS:g}: each is an event"
                raise broken_rule(rule, "Raise it, or shorten horizon_s", key=(field,), value=step_s)
        return self


MOST_DOMAINS = 1_000
MOST_KINDS = 1_000
MOST_INCIDENTS = 10_000
MOST_QUOTAS = 10_000
_DOMAINS = Why("every pair of domains is a link")


class Settings(Record):
    """A world in words: hardware, network, framework, work, reward and limits.

    Domains are given either by ``regions``, a list of cloud regions that are all like ``domain_defaults``,
    or by ``domains``, a list of records that override those defaults.

    Attributes:
        name: What to call it in reports.
        description: A sentence for people.
        regions: Cloud regions, one domain each.
        domains: Domains one by one.
        domain_defaults: What domains have in common.
        gpus: Device types of one's own, and figures that replace those of the GPU catalogue.
        models: Models of one's own, by name.
        network: Links between the domains.
        runtime: Framework behaviour.
        kinds: Kinds of tasks.
        arrivals: When tasks arrive.
        reward: What a decision is worth.
        episode: Length and limits of a run.
        incidents: Links that are cut and domains that are lost on the way.
        quotas: What tenants may use.
        share_rule: Whose turn it is when several tenants wait: none (the policy's choice) or fair-share.
        cap_levels: Power caps that a task may be given, as shares of its devices' TDP, descending; none by default.
        targets: What ``attribution-sched run`` works toward when nothing is asked for: target to number.
    """

    name: Name = "unnamed"
    description: str = ""
    regions: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MOST_DOMAINS), _DOMAINS] | None = None
    domains: Annotated[tuple[DomainSettings, ...], Field(min_length=1, max_length=MOST_DOMAINS), _DOMAINS] | None = None
    domain_defaults: DomainDefaults = DomainDefaults()
    gpus: GpuOverrides = Field(default_factory=dict)
    models: dict[Name, ModelSettings] = Field(default_factory=dict)
    network: NetworkSettings = NetworkSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    kinds: Annotated[
        tuple[KindSettings, ...],
        Field(min_length=1, max_length=MOST_KINDS),
        Why("every kind is priced on every device"),
    ]
    arrivals: ArrivalSettings
    reward: Reward = Reward()
    episode: EpisodeSettings = EpisodeSettings()
    incidents: Annotated[
        tuple[IncidentSettings, ...], Field(max_length=MOST_INCIDENTS), Why("every event looks through them")
    ] = ()
    quotas: Annotated[tuple[Quota, ...], Field(max_length=MOST_QUOTAS), Why("every decision looks them up")] = ()
    share_rule: ShareRule = "none"
    cap_levels: tuple[Annotated[float, Field(strict=True, gt=0.0, lt=1.0)], ...] = ()
    targets: dict[Name, Annotated[float, Field(strict=True, gt=0.0, allow_inf_nan=False)]] = Field(default_factory=dict)

    @field_validator("targets")
    @classmethod
    def _known_targets(cls, targets: dict[str, float]) -> dict[str, float]:
        from attribution_sched.feedback.targets import KINDS

        for name, value in targets.items():
            if name not in KINDS:
                raise broken_rule("is not a target", nearest(name, KINDS), value=name)
            if name == "utilisation_at_least" and value > 1.0:
                raise broken_rule("must be <= 1", "Use a share, like 0.85", key=(name,), value=value)
        return targets

    @field_validator("gpus")
    @classmethod
    def _complete_gpus(cls, gpus: GpuOverrides) -> GpuOverrides:
        from attribution_sched.cluster.gpus import GPUS, other_device

        for name, figures in gpus.items():
            if name not in GPUS:
                missing = [key for key in GpuOverride.model_fields if key != "like" and getattr(figures, key) is None]
                if missing:
                    rule = f"is not in the GPU catalogue, and its figures lack {', '.join(missing)}"
                    raise broken_rule(rule, other_device(name, GPUS), value=name)
        return gpus

    @field_validator("cap_levels")
    @classmethod
    def _falling(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        from attribution_sched.cluster.power import MOST_LEVELS

        if len(levels) > MOST_LEVELS or list(levels) != sorted(set(levels), reverse=True):
            rule = f"must be at most {MOST_LEVELS} shares of the TDP, each below the one before"
            raise broken_rule(rule, "Use for example [0.9, 0.75, 0.5, 0.35]", value=list(levels))
        return levels

    def device(self, name: str) -> Gpu:
        """The device type of a name: the catalogue's with the overrides of these settings, or one of their own."""
        from attribution_sched.cluster.gpus import device_of

        custom = self.gpus.get(name)
        return device_of(name, {} if custom is None else custom.model_dump(exclude_none=True))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.regions is None) == (self.domains is None):
            stated = "both" if self.regions else "neither"
            rule = "exactly one of the two lists must be given"
            raise broken_rule(rule, "Keep one of them", key=("regions or domains",), value=stated)
        names = self.domain_names
        twice = next((name for name in names if names.count(name) > 1), None)
        listed = "domains" if self.regions is None else "regions"
        if twice is not None:
            at = len(names) - 1 - names[::-1].index(twice)
            raise broken_rule("is listed twice", "Give every domain its own name", key=(listed, at), value=twice)
        if isinstance(self.network.links, RegionLinks):
            self._check_regions(listed)
        if isinstance(self.network.links, MatrixLinks):
            self._check_matrices(self.network.links)
        self._check_gpus(listed)
        self._check_models()
        self._check_size()
        self._check_power()
        self._check_carbon(listed)
        self._check_incidents()
        return self

    @property
    def domain_names(self) -> tuple[str, ...]:
        """Names of the domains, in order."""
        if self.domains is not None:
            return tuple(domain.name for domain in self.domains)
        return self.regions or ()

    def resolved_domains(self) -> tuple[DomainSettings, ...]:
        """Every domain with the defaults and its carbon intensity: its own, its signal's mean, the region table's."""
        from attribution_sched.config.build import known_carbon, usual_carbon

        signals = {"carbon", "electricity"}
        shared = self.domain_defaults.model_dump(exclude={*signals, "carbon_g_per_kwh"})
        listed = self.domains or tuple(DomainSettings(name=name) for name in self.domain_names)
        resolved = []
        for domain, (hourly, _) in zip(listed, self.domain_signals(), strict=True):
            fields = domain.model_dump(exclude_none=True, exclude=signals)
            if hourly is not None:
                fields["carbon_g_per_kwh"] = usual_carbon(hourly, domain.name)
            elif "carbon_g_per_kwh" not in fields:
                carbon = known_carbon(domain.name)
                carbon = self.domain_defaults.carbon_g_per_kwh if carbon is None else carbon
                if carbon is not None:
                    fields["carbon_g_per_kwh"] = carbon
            resolved.append(DomainSettings(**(shared | fields)))
        return tuple(resolved)

    def domain_signals(self) -> tuple[tuple[CarbonSettings | None, ElectricitySettings | None], ...]:
        """Carbon and price of electricity by the hour of every domain, as it or the defaults give them."""
        listed = self.domains or tuple(DomainSettings(name=name) for name in self.domain_names)
        usual = self.domain_defaults
        return tuple(
            (
                domain.carbon or (None if domain.carbon_g_per_kwh is not None else usual.carbon),
                domain.electricity or usual.electricity,
            )
            for domain in listed
        )

    def build_world(self) -> World:
        """Build the world these settings describe.

        Raises:
            SettingsError: If a file that the settings name is missing or malformed, or a part of the
                world refuses its figures; the message names the key.
        """
        from attribution_sched.config.build import build_world

        return build_world(self)

    def _check_size(self) -> None:
        listed = self.domains or ()
        devices = sum(domain.devices or self.domain_defaults.devices for domain in listed)
        devices = devices or len(self.domain_names) * self.domain_defaults.devices
        if devices > MOST_DEVICES:
            rule = f"all domains together must have at most {MOST_DEVICES}: every device has a place in arrays"
            raise broken_rule(rule, "Use fewer devices", key=("devices",), value=devices)
        slots = self.episode.max_running + self.episode.queue_capacity
        cells = slots * len(self.domain_names) ** 2
        if cells > MOST_CELLS:
            size = f"{slots} slots, {len(self.domain_names)} domains"
            rule = f"slots × domains² must be at most {MOST_CELLS}: every slot keeps its traffic over every link"
            fix = "Lower max_running and queue_capacity, or use fewer domains"
            raise broken_rule(rule, fix, key=("episode", "max_running + queue_capacity"), value=size)

    def _check_regions(self, listed: str) -> None:
        from attribution_sched.cluster.regions import carbon_g_per_kwh, region_names

        for i, name in enumerate(self.domain_names):
            try:
                carbon_g_per_kwh(name)
            except NetworkError:
                key = (listed, i) if listed == "regions" else (listed, i, "name")
                rule = "is not in the table of cloud regions, which network.links asks for"
                hint = nearest(name, region_names())
                fix = "For a place of your own give its links: set network.links.kind to uniform or matrix"
                raise broken_rule(rule, f"{fix}. {hint}", key=key, value=name) from None

    def _check_matrices(self, links: MatrixLinks) -> None:
        k = len(self.domain_names)
        for field in ("bandwidth_gbps", "latency_s", "price_usd_per_gb"):
            shape = [len(row) for row in getattr(links, field)]
            if shape != [k] * k:
                key = ("network", "links", field)
                rule = f"must have {k} rows of {k} numbers, one for each domain"
                raise broken_rule(rule, "Add or remove entries", key=key, value=f"rows of {shape}")
        for i, row in enumerate(links.bandwidth_gbps):
            if 0 in row:
                at = ("network", "links", "bandwidth_gbps", i, row.index(0))
                raise broken_rule("must be > 0", "Write a missing link as a small number", key=at, value=0)

    def _check_gpus(self, listed: str) -> None:
        from attribution_sched.cluster.gpus import GPUS, other_device

        catalogue = [*GPUS, *self.gpus]
        named = [
            ((listed, i, "gpu"), domain.gpu) for i, domain in enumerate(self.domains or ()) if domain.gpu is not None
        ]
        for key, name in [*named, (("domain_defaults", "gpu"), self.domain_defaults.gpu)]:
            if name not in catalogue:
                raise broken_rule("is not in the GPU catalogue", other_device(name, catalogue), key=key, value=name)

    def _check_models(self) -> None:
        from attribution_sched.cluster.models import known_model, model_names
        from attribution_sched.cluster.models.catalogue import PROFILED_NAMES
        from attribution_sched.cluster.models.opaque import OPAQUE_NAMES

        named: list[tuple[tuple[str | int, ...], str]] = []
        for model_name, settings in self.models.items():
            if settings.base is not None:
                named.append((("models", model_name, "base"), settings.base))
        for i, kind in enumerate(self.kinds):
            if kind.model not in self.models and kind.model.lower() not in OPAQUE_NAMES:
                named.append((("kinds", i, "model"), kind.model))
        for key, name in named:
            if name.startswith(PROFILED_PREFIX):
                if name.removeprefix(PROFILED_PREFIX) not in PROFILED_NAMES:
                    valid = [PROFILED_PREFIX + profiled for profiled in PROFILED_NAMES]
                    raise broken_rule("was not profiled", nearest(name, valid), key=key, value=name)
            elif not known_model(name):
                valid = [*model_names(), *self.models]
                raise broken_rule("is not in the model zoo", nearest(name.lower(), valid), key=key, value=name)

    def _check_power(self) -> None:
        for i, domain in enumerate(self.resolved_domains()):
            device = self.device(str(domain.gpu))
            if not device.idle_w < device.min_cap_w <= device.tdp_w:
                watts = f"{device.idle_w:g}, {device.min_cap_w:g}, {device.tdp_w:g}"
                rule = "must satisfy idle_w < min_cap_w <= tdp_w"
                raise broken_rule(rule, "Mend the override", key=("gpus", device.name), value=watts)
            cap = domain.power_cap_w
            if cap is not None and not device.min_cap_w <= cap <= device.tdp_w:
                listed = self.domains is not None and self.domains[i].power_cap_w is not None
                key = ("domains", i, "power_cap_w") if listed else ("domain_defaults", "power_cap_w")
                rule = f"{device.name} accepts caps from {device.min_cap_w:g} to {device.tdp_w:g} W"
                raise broken_rule(rule, "Choose a cap in that range", key=key, value=cap)

    def _check_incidents(self) -> None:
        names = self.domain_names
        for i, incident in enumerate(self.incidents):
            for field in ("source", "target", "domain"):
                name = getattr(incident, field, None)
                if name is not None and name not in names:
                    key = ("incidents", i, field)
                    raise broken_rule("is not a domain of these settings", nearest(name, names), key=key, value=name)

    def _check_carbon(self, listed: str) -> None:
        if not self.reward.carbon_usd_per_kg:
            return
        for i, domain in enumerate(self.resolved_domains()):
            if domain.carbon_g_per_kwh is None:
                rule = "has no known carbon intensity, but reward.carbon_usd_per_kg puts a price on carbon"
                fix = "Set its carbon_g_per_kwh, or the one in domain_defaults"
                raise broken_rule(rule, fix, key=(listed, i), value=domain.name)
