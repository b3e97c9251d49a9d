"""From settings to the world; the only module of the room that loads the compiled cluster model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from attribution_sched.cluster.objective import KindFields
from attribution_sched.config.domains import ConstantPrice, DaySignal, GridCarbon, LiveSignal, SeriesSignal
from attribution_sched.config.episode import DomainLossSettings
from attribution_sched.config.network import RegionLinks, UniformLinks
from attribution_sched.config.work import PROFILED_PREFIX, KindSettings, ModelSettings, TraceSettings
from attribution_sched.errors import AttributionSchedError, NetworkError, SettingsError

if TYPE_CHECKING:
    from attribution_sched.cluster.incidents import Incident
    from attribution_sched.cluster.models import Model
    from attribution_sched.cluster.signals import Signal
    from attribution_sched.cluster.wan import Wan, WanMotion
    from attribution_sched.cluster.world import Arrivals, Domain, Runtime, TaskKind, World
    from attribution_sched.config.schema import Settings

HOUR_S = 3600.0


def known_carbon(name: str) -> float | None:
    """Return the carbon intensity of a cloud region, or None where the table has no figure or no region."""
    from attribution_sched.cluster.regions import carbon_g_per_kwh

    try:
        return carbon_g_per_kwh(name)
    except NetworkError:
        return None


def signal_of(settings: GridCarbon | ConstantPrice | SeriesSignal | DaySignal | LiveSignal) -> Signal:
    """The signal that some settings describe."""
    from attribution_sched.cluster.signals import DAY, Constant, Grid, Live, Series

    if isinstance(settings, SeriesSignal):
        return Series.from_csv(settings.path, settings.column)
    if isinstance(settings, ConstantPrice):
        return Constant(settings.value)
    if isinstance(settings, DaySignal):
        return Series.hourly(settings.values, DAY)
    if isinstance(settings, LiveSignal):
        return Live.from_file(settings.path, settings.usual)
    return Grid(settings.grid, settings.seed, settings.start_h)


def usual_carbon(settings: GridCarbon | SeriesSignal | DaySignal | LiveSignal, domain: str) -> float:
    """What a table would say of a domain's carbon intensity, gCO2/kWh."""
    from attribution_sched.cluster.signals import usual

    with _named(f"carbon of {domain}"):
        return usual(signal_of(settings))


def build_world(settings: Settings) -> World:
    """Build the world that ``settings`` describe; see :meth:`Settings.build_world`."""
    from attribution_sched.cluster.world import Cluster, World

    with _named("network"):
        wan = _both_ways(_wan(settings), settings.network.duplex_efficiency)
        if settings.network.kwh_per_gb is not None:
            wan = replace(wan, kwh_per_gb=settings.network.kwh_per_gb)
    with _named("runtime"):
        runtime = _runtime(settings)
    with _named("domains"):
        cluster = Cluster(_domains(settings), wan, runtime, settings.cap_levels)
    kinds = []
    for i, kind in enumerate(settings.kinds):
        with _named(f"kinds[{i}]"):
            kinds.append(_kind(kind, settings))
    # A mistake in a model that no kind uses yet is told now, not on the day when one does.
    for name in settings.models.keys() - {kind.model for kind in settings.kinds}:
        with _named(f"models.{name}"):
            _own_model(name, settings.models[name])
    with _named("arrivals"):
        arrivals = _arrivals(settings)
    with _named("episode"):
        incidents = _incidents(settings)
        return World(
            cluster, tuple(kinds), arrivals, settings.reward, incidents=incidents, quotas=settings.quotas,
            share_rule=settings.share_rule, **settings.episode.model_dump(),
        )  # fmt: skip


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Say in which part of the settings a mistake lies that only the world itself can see."""
    try:
        yield
    except AttributionSchedError as error:
        raise SettingsError(f"{key}: {error}") from error


def _wan(settings: Settings) -> Wan:
    import numpy as np

    from attribution_sched.cluster.regions import wan_between
    from attribution_sched.cluster.wan import BandwidthTrace, LinkFailures, Wan

    network, names = settings.network, settings.domain_names
    motion = cast("WanMotion", network.motion.model_dump(exclude={"failures"}))
    failures = network.motion.failures
    if failures is not None:
        motion["failures"] = LinkFailures(**failures.model_dump())
    if network.trace is not None:
        motion["trace"] = BandwidthTrace.from_csv(network.trace, names, at_end=network.trace_at_end)
    figures = network.links.model_dump(exclude={"kind"})
    if isinstance(network.links, RegionLinks):
        return wan_between(names, **figures, **motion)
    if isinstance(network.links, UniformLinks):
        return Wan.uniform(names, **figures, **motion)
    matrices: dict[str, Any] = {name: np.array(rows) for name, rows in figures.items()}
    return Wan(names, **matrices, **motion)


def _runtime(settings: Settings) -> Runtime:
    from attribution_sched.cluster.world import Runtime

    options = settings.runtime.model_dump(exclude={"preset"})
    if settings.runtime.preset is not None:
        options["blocking_sends"] = settings.runtime.preset == "torch-1f1b"
    return Runtime(**options)


def _both_ways(wan: Wan, efficiency: float | None) -> Wan:
    """Links between domains with what is left of them while both directions are busy."""
    import numpy as np

    if efficiency is None:
        return wan
    inside = np.eye(len(wan.names), dtype=bool)
    return replace(wan, bandwidth_gbps=np.where(inside, wan.bandwidth_gbps, efficiency * wan.bandwidth_gbps))


def _domains(settings: Settings) -> tuple[Domain, ...]:
    from attribution_sched.cluster.world import Domain

    domains = []
    for domain, signals in zip(settings.resolved_domains(), settings.domain_signals(), strict=True):
        figures = domain.model_dump(exclude_none=True)
        device = settings.device(figures.pop("gpu"))
        # Where a file of carbon is wrong, the domains could not be resolved above.
        with _named(f"electricity of {domain.name}"):
            carbon, electricity = (None if each is None else signal_of(each) for each in signals)
        domains.append(Domain(gpu=device, carbon=carbon, electricity=electricity, **figures))
    return tuple(domains)


def _model(name: str, settings: Settings) -> Model:
    from attribution_sched.cluster.models import model
    from attribution_sched.cluster.models.catalogue import profiled_model
    from attribution_sched.cluster.models.opaque import OPAQUE_NAMES, opaque_model

    if name in settings.models:
        with _named(f"models.{name}"):
            return _own_model(name, settings.models[name])
    if name.startswith(PROFILED_PREFIX):
        return profiled_model(name.removeprefix(PROFILED_PREFIX))
    if name.lower() in OPAQUE_NAMES:
        return opaque_model(int(name.rpartition("-")[2]))
    return model(name)


def _own_model(name: str, settings: ModelSettings) -> Model:
    from attribution_sched.cluster.models import TaskType, model
    from attribution_sched.cluster.models.declared import LayerFigures, check_total, declared_model, with_adapters
    from attribution_sched.cluster.models.huggingface import Shape, from_config, read_config

    if settings.config is not None:
        shape = Shape(name, settings.sequence_length or 0, settings.params or 0.0)
        built = check_total(from_config(read_config(settings.config), shape), settings.params)
    elif settings.base is not None:
        length = "" if settings.sequence_length is None else f"@{settings.sequence_length}"
        built = check_total(replace(model(settings.base.partition("@")[0] + length), name=name), settings.params)
    else:
        layers = [LayerFigures(**layer.model_dump()) for layer in settings.layers or ()]
        built = declared_model(
            name, layers, sequence_length=settings.sequence_length or 1, task_type=TaskType(settings.task_type),
            total_params=settings.params or 0.0, family=settings.family,
        )  # fmt: skip
    return built if settings.lora_rank is None else with_adapters(built, settings.lora_rank, name)


def _kind(kind: KindSettings, settings: Settings) -> TaskKind:
    from attribution_sched.cluster.world import TaskKind

    model = _model(kind.model, settings)
    if kind.output_tokens is not None:
        model = replace(model, output_tokens=kind.output_tokens)
    shared = {each.name: getattr(kind, each.name) for each in fields(KindFields)}
    return TaskKind(**shared | {"model": model})


def _arrivals(settings: Settings) -> Arrivals:
    from attribution_sched.cluster.arrivals import Burst, Diurnal, Poisson, TraceArrivals
    from attribution_sched.cluster.models.opaque import OPAQUE_NAMES
    from attribution_sched.cluster.philly import OpaqueTrace, Philly, PhillyWeek

    arrivals = settings.arrivals
    if not isinstance(arrivals, TraceSettings):
        figures = arrivals.model_dump(exclude={"kind"})
        if figures.get("burst") is not None:
            figures["burst"] = Burst(**figures["burst"])
        laws = {"poisson": Poisson, "diurnal": Diurnal, "philly": Philly, "philly_week": PhillyWeek}
        return cast("Arrivals", laws[arrivals.kind](**figures))
    trace = TraceArrivals.from_csv(arrivals.path)
    if all(row.model.lower() in OPAQUE_NAMES for row in trace.rows):
        return OpaqueTrace(arrivals.path, "", keep=1, rows=trace.rows)
    return trace


def _incidents(settings: Settings) -> tuple[Incident, ...]:
    from attribution_sched.cluster.incidents import DomainLoss, LinkCut

    at = settings.domain_names.index
    built: list[Incident] = []
    for incident in settings.incidents:
        start_s, end_s = incident.start_h * HOUR_S, incident.end_h * HOUR_S
        if isinstance(incident, DomainLossSettings):
            built.append(DomainLoss(at(incident.domain), start_s, end_s))
        else:
            ends = at(incident.source), at(incident.target)
            built.append(LinkCut(*ends, start_s, end_s, incident.factor, incident.both_ways))
    return tuple(built)
