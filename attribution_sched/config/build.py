"""From settings to the world; the only module of the room that loads the compiled cluster model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from attribution_sched.config.schema import (
    PROFILED_PREFIX,
    DiurnalSettings,
    DomainLossSettings,
    KindSettings,
    MatrixLinks,
    PhillySettings,
    PhillyWeekSettings,
    PoissonSettings,
    RegionLinks,
    UniformLinks,
)
from attribution_sched.errors import AttributionSchedError, NetworkError, SettingsError

if TYPE_CHECKING:
    from attribution_sched.cluster.domains import Domain
    from attribution_sched.cluster.incidents import Incident
    from attribution_sched.cluster.models import Model
    from attribution_sched.cluster.wan import Wan, WanMotion
    from attribution_sched.cluster.world import Arrivals, TaskKind, World
    from attribution_sched.config.schema import Settings

HOUR_S = 3600.0


def known_carbon(name: str) -> float | None:
    """Return the carbon intensity of a cloud region, or None where the table has no figure or no region."""
    from attribution_sched.cluster.regions import carbon_g_per_kwh

    try:
        return carbon_g_per_kwh(name)
    except NetworkError:
        return None


def build_world(settings: Settings) -> World:
    """Build the world that ``settings`` describe; see :meth:`Settings.build_world`."""
    from attribution_sched.cluster.domains import Cluster, Runtime
    from attribution_sched.cluster.world import Reward, World

    with _named("network"):
        wan = _wan(settings)
    with _named("runtime"):
        runtime = Runtime(**settings.runtime.model_dump())
    with _named("domains"):
        cluster = Cluster(_domains(settings), wan, runtime)
    kinds = []
    for i, kind in enumerate(settings.kinds):
        with _named(f"kinds[{i}]"):
            kinds.append(_kind(kind))
    with _named("arrivals"):
        arrivals = _arrivals(settings)
    with _named("reward"):
        reward = Reward(**settings.reward.model_dump())
    with _named("episode"):
        incidents = _incidents(settings)
        return World(cluster, tuple(kinds), arrivals, reward, incidents=incidents, **settings.episode.model_dump())


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Say in which part of the settings a mistake lies that only the world itself can see."""
    try:
        yield
    except AttributionSchedError as error:
        raise SettingsError(f"{key}: {error}") from error


def _wan(settings: Settings) -> Wan:
    from attribution_sched.cluster.regions import wan_between
    from attribution_sched.cluster.wan import BandwidthTrace, Wan

    network, names = settings.network, settings.domain_names
    motion = cast("WanMotion", network.motion.model_dump())
    if network.trace is not None:
        motion["trace"] = BandwidthTrace.from_csv(network.trace, names, at_end=network.trace_at_end)
    links = network.links
    figures = links.model_dump(exclude={"kind"})
    if isinstance(links, RegionLinks):
        return wan_between(names, **figures, **motion)
    if isinstance(links, UniformLinks):
        return Wan.uniform(names, **figures, **motion)
    return _wan_of_matrices(names, links, motion)


def _wan_of_matrices(names: tuple[str, ...], links: MatrixLinks, motion: WanMotion) -> Wan:
    import numpy as np

    from attribution_sched.cluster.wan import Wan

    return Wan(
        names,
        bandwidth_gbps=np.array(links.bandwidth_gbps),
        latency_s=np.array(links.latency_s),
        price_usd_per_gb=np.array(links.price_usd_per_gb),
        **motion,
    )


def _domains(settings: Settings) -> tuple[Domain, ...]:
    from attribution_sched.cluster.domains import Domain
    from attribution_sched.cluster.gpus import gpu

    domains = []
    for domain in settings.resolved_domains():
        figures = domain.model_dump(exclude_none=True)
        device = gpu(figures.pop("gpu"))
        if device.name in settings.gpus:
            device = device.override(**settings.gpus[device.name].model_dump(exclude_none=True))
        domains.append(Domain(gpu=device, **figures))
    return tuple(domains)


def _model(name: str) -> Model:
    from attribution_sched.cluster.models import model
    from attribution_sched.cluster.models.catalogue import profiled_model
    from attribution_sched.cluster.models.opaque import OPAQUE_NAMES, opaque_model

    if name.startswith(PROFILED_PREFIX):
        return profiled_model(name.removeprefix(PROFILED_PREFIX))
    if name.lower() in OPAQUE_NAMES:
        return opaque_model(int(name.rpartition("-")[2]))
    return model(name)


def _kind(kind: KindSettings) -> TaskKind:
    from attribution_sched.cluster.world import TaskKind

    return TaskKind(model=_model(kind.model), **kind.model_dump(exclude={"model"}))


def _arrivals(settings: Settings) -> Arrivals:
    from attribution_sched.cluster.arrivals import Burst, Diurnal, Poisson, TraceArrivals
    from attribution_sched.cluster.philly import Philly, PhillyWeek

    arrivals = settings.arrivals
    if isinstance(arrivals, PoissonSettings | DiurnalSettings):
        burst = None if arrivals.burst is None else Burst(**arrivals.burst.model_dump())
        if isinstance(arrivals, PoissonSettings):
            return Poisson(arrivals.rate_per_hour, burst)
        return Diurnal(arrivals.rate_per_hour, arrivals.amplitude, arrivals.peak_hour, burst)
    if isinstance(arrivals, PhillySettings):
        return Philly(arrivals.rate_per_hour)
    if isinstance(arrivals, PhillyWeekSettings):
        return PhillyWeek(arrivals.path, arrivals.monday, arrivals.keep, arrivals.seed)
    return TraceArrivals.from_csv(arrivals.path)


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
