"""Scenarios: a preset's world with one thing changed, so that policies can be tried where it hurts.

:data:`SCENARIOS` lists them. Hours are those of an episode of 24; in a shorter or longer one they come at the
same share of it. Everything that is not named, the wandering network included, is as the preset has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attribution_sched.config.network import RegionLinks
from attribution_sched.config.schema import Settings
from attribution_sched.config.sources import load_settings, merge
from attribution_sched.errors import SettingsError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.cluster.world import Arrivals, World

DAY_H = 24.0
REGIONS_PRESET = "large"
MEASURED = 60
"""So many regions of that preset, the first ones, were all measured against each other."""

CUT_TO = 0.1
BURST_FACTOR = 4.0


def scenario_names() -> tuple[str, ...]:
    """Names of all scenarios."""
    return tuple(SCENARIOS)


def build_scenario(
    preset: str | Path | Mapping[str, Any] | Settings = "cross-domain-easy", scenario: str = "ou30"
) -> World:
    """Build a preset's world in a scenario.

    Args:
        preset: As :func:`~attribution_sched.config.load_settings` takes it.
        scenario: A name of :func:`scenario_names`.

    Raises:
        SettingsError: If the scenario is unknown, or means nothing in this preset (a lost domain where there is
            only one).
    """
    if scenario not in SCENARIOS:
        fix = nearest(scenario, SCENARIOS)
        raise SettingsError(problem("scenario", scenario, "is not a known scenario", fix))
    return SCENARIOS[scenario][0](load_settings(preset), scenario)


def _steady(settings: Settings, scenario: str) -> World:
    return _with_wan(settings.build_world(), spread=0.0, trace=None, failures=None)


def _wandering(settings: Settings, scenario: str) -> World:
    from attribution_sched.cluster.wan import DEFAULT_SPREAD

    world = settings.build_world()
    return _with_wan(world, spread=world.cluster.wan.spread or DEFAULT_SPREAD, bound=0.3, trace=None)


def _with_wan(world: World, **changes: Any) -> World:
    return replace(world, cluster=replace(world.cluster, wan=replace(world.cluster.wan, **changes)))


def _link_cut(settings: Settings, scenario: str) -> World:
    import numpy as np

    from attribution_sched.cluster.incidents import LinkCut

    world = _several(settings, scenario)
    gbps = _between_domains(world)
    source, target = (int(i) for i in np.unravel_index(np.argmax(gbps + gbps.T), gbps.shape))
    start_s, end_s = _hours(world, 10.0, 18.0)
    return replace(world, incidents=(LinkCut(source, target, start_s, end_s, CUT_TO, both_ways=True),))


def _domain_lost(settings: Settings, scenario: str) -> World:
    from attribution_sched.cluster.incidents import DomainLoss

    world = _several(settings, scenario)
    gbps = _between_domains(world)
    lost = int((gbps.sum(axis=0) + gbps.sum(axis=1)).argmax())
    return replace(world, incidents=(DomainLoss(lost, *_hours(world, 8.0, 14.0)),))


def _between_domains(world: World) -> Any:
    """Bandwidth of the links between domains, 0 inside one."""
    import numpy as np

    return np.where(np.eye(len(world.cluster), dtype=bool), 0.0, world.cluster.wan.bandwidth_gbps)


def _half_domains(settings: Settings, scenario: str) -> World:
    world = _several(settings, scenario)
    smaller = tuple(
        replace(
            domain,
            devices=max(1, domain.devices // 2),
            power_budget_w=None if domain.power_budget_w is None else domain.power_budget_w / 2.0,
        )
        for domain in world.cluster.domains
    )
    share = sum(domain.devices for domain in smaller) / world.cluster.devices
    cluster = replace(world.cluster, domains=smaller)
    return replace(world, cluster=cluster, arrivals=_scaled(world.arrivals, share))


def _several(settings: Settings, scenario: str) -> World:
    world = settings.build_world()
    if len(world.cluster) < 2:
        rule = f"needs two domains or more, and preset {settings.name!r} has one"
        raise SettingsError(problem("scenario", scenario, rule, "Use the preset cross-domain"))
    return world


def _hours(world: World, start_h: float, end_h: float) -> tuple[float, float]:
    """Hours of a day of 24 as seconds of an episode."""
    return world.horizon_s * start_h / DAY_H, world.horizon_s * end_h / DAY_H


def _load(factor: float) -> Callable[[Settings, str], World]:
    def scaled(settings: Settings, scenario: str) -> World:
        world = settings.build_world()
        return replace(world, arrivals=_scaled(world.arrivals, factor))

    return scaled


def _scaled(arrivals: Arrivals, factor: float) -> Arrivals:
    """Make tasks arrive ``factor`` times as often; a recording is played so much faster."""
    from attribution_sched.cluster.arrivals import TraceArrivals
    from attribution_sched.cluster.philly import OpaqueTrace, PhillyWeek

    if isinstance(arrivals, TraceArrivals | OpaqueTrace):
        rows = tuple(replace(row, arrival_s=row.arrival_s / factor) for row in arrivals.rows)
        return replace(arrivals, rows=rows)
    if isinstance(arrivals, PhillyWeek):
        return replace(arrivals, speed=arrivals.speed * factor)
    return replace(arrivals, rate_per_hour=arrivals.rate_per_hour * factor)


def _burst(settings: Settings, scenario: str) -> World:
    from attribution_sched.cluster.arrivals import Burst, Diurnal, Poisson

    world = settings.build_world()
    if not isinstance(world.arrivals, Poisson | Diurnal):
        rule = f"needs arrivals of a given rate, and preset {settings.name!r} replays or draws from a recording"
        raise SettingsError(problem("scenario", scenario, rule, "Use arrivals of kind poisson or diurnal"))
    start_s, end_s = _hours(world, 10.0, 12.0)
    return replace(world, arrivals=replace(world.arrivals, burst=Burst(start_s / 3600, end_s / 3600, BURST_FACTOR)))


def _domains(count: int) -> Callable[[Settings, str], World]:
    def rebuilt(settings: Settings, scenario: str) -> World:
        if not isinstance(settings.network.links, RegionLinks):
            rule = f"needs domains that are cloud regions, and preset {settings.name!r} gives its links itself"
            raise SettingsError(problem("scenario", scenario, rule, "Use the preset cross-domain"))
        share = count / len(settings.domain_names)
        domain_list = [domain.model_dump(exclude_none=True) for domain in settings.domains or ()]
        domain_list = domain_list or [{"name": name} for name in settings.domain_names]
        episode = settings.episode
        changes: dict[str, Any] = {
            "domains": (domain_list + [{"name": name} for name in _more_regions(settings)])[:count],
            "domain_defaults": {"carbon_g_per_kwh": _usual_carbon(settings)},
            "episode": {
                "max_running": math.ceil(episode.max_running * share),
                "queue_capacity": math.ceil(episode.queue_capacity * share),
            },
        }
        world = load_settings(merge(settings.model_dump(exclude_none=True), changes)).build_world()
        return replace(world, arrivals=_scaled(world.arrivals, share))

    return rebuilt


def _more_regions(settings: Settings) -> list[str]:
    """Regions the preset does not have: those measured against each other first, providers in turn."""
    listed = load_settings(REGIONS_PRESET).domain_names
    by_provider: dict[str, list[str]] = {}
    for name in listed[:MEASURED]:
        by_provider.setdefault(name.split(":")[0], []).append(name)
    in_turn = [name for name in chain.from_iterable(zip_longest(*by_provider.values())) if name is not None]
    return [name for name in (*in_turn, *listed[MEASURED:]) if name not in settings.domain_names]


def _usual_carbon(settings: Settings) -> float | None:
    """Carbon of regions without a figure: the preset's own, else the median of those that have one."""
    default = settings.domain_defaults.carbon_g_per_kwh
    return default if default is not None else load_settings(REGIONS_PRESET).domain_defaults.carbon_g_per_kwh


SCENARIOS: Mapping[str, tuple[Callable[[Settings, str], World], str]] = MappingProxyType({
    "steady": (_steady, "bandwidth stands still, and no link fails"),
    "ou30": (_wandering, "bandwidth wanders within ±30 % of its base"),
    "link-cut": (_link_cut, "the fastest link keeps a tenth of its bandwidth, both ways, from hour 10 to 18"),
    "load-20": (_load(0.8), "tasks arrive at 0.8 times the rate"),
    "load+20": (_load(1.2), "tasks arrive at 1.2 times the rate"),
    "domain-lost": (_domain_lost, "the best-connected domain is lost from hour 8 to 14"),
    "burst": (_burst, "tasks arrive at four times the rate from hour 10 to 12"),
    "half-domains": (
        _half_domains, "domains of half the devices, work in proportion: models that just fitted must be cut"
    ),
    "domains-3": (_domains(3), "three regions, work in proportion"),
    "domains-8": (_domains(8), "eight regions, work in proportion"),
    "domains-16": (_domains(16), "sixteen regions, work in proportion"),
    "domains-64": (_domains(64), "sixty-four regions, work in proportion"),
})  # fmt: skip
"""Name → how to build it from a preset's settings, and what is changed there."""
