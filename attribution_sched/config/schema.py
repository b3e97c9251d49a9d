"""The whole of a scheduling problem as one settings record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, field_validator, model_validator

from attribution_sched.config.domains import (
    DomainDefaults,
    DomainSettings,
    GpuOverrides,
    RuntimeSettings,
    check_gpu,
)
from attribution_sched.config.fields import Name, Record, Why, broken_rule
from attribution_sched.config.incidents import IncidentSettings
from attribution_sched.config.network import MatrixLinks, NetworkSettings, RegionLinks
from attribution_sched.config.work import ArrivalSettings, EpisodeSettings, KindSettings, RewardSettings
from attribution_sched.limits import MOST_CELLS, MOST_DEVICES

if TYPE_CHECKING:
    from attribution_sched.cluster.world import World

MOST_DOMAINS = 1_000
MOST_KINDS = 1_000
MOST_INCIDENTS = 10_000
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
        gpus: Figures that replace those of the GPU catalogue, by device type.
        network: Links between the domains.
        runtime: Framework behaviour.
        kinds: Kinds of tasks.
        arrivals: When tasks arrive.
        reward: What a decision is worth.
        episode: Length and limits of a run.
        incidents: Links that are cut and domains that are lost on the way.
    """

    name: Name = "unnamed"
    description: str = ""
    regions: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MOST_DOMAINS), _DOMAINS] | None = None
    domains: Annotated[tuple[DomainSettings, ...], Field(min_length=1, max_length=MOST_DOMAINS), _DOMAINS] | None = None
    domain_defaults: DomainDefaults = DomainDefaults()
    gpus: GpuOverrides = Field(default_factory=dict)
    network: NetworkSettings = NetworkSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    kinds: Annotated[
        tuple[KindSettings, ...],
        Field(min_length=1, max_length=MOST_KINDS),
        Why("every kind is priced on every device"),
    ]
    arrivals: ArrivalSettings
    reward: RewardSettings = RewardSettings()
    episode: EpisodeSettings = EpisodeSettings()
    incidents: Annotated[
        tuple[IncidentSettings, ...], Field(max_length=MOST_INCIDENTS), Why("every event looks through them")
    ] = ()

    @field_validator("gpus")
    @classmethod
    def _known_gpus(cls, gpus: GpuOverrides) -> GpuOverrides:
        for name in gpus:
            check_gpu(name)
        return gpus

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.regions is None) == (self.domains is None):
            given = "both" if self.regions else "neither"
            rule = "exactly one of the two lists must be given"
            raise broken_rule(rule, "Keep one of them", key=("regions or domains",), value=given)
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
        """Every domain with the defaults and the region table's carbon intensity filled in."""
        from attribution_sched.config.build import known_carbon

        shared = self.domain_defaults.model_dump()
        own = self.domains or tuple(DomainSettings(name=name) for name in self.domain_names)
        resolved = []
        for domain in own:
            given = domain.model_dump(exclude_none=True)
            carbon = given.get("carbon_g_per_kwh", known_carbon(domain.name))
            filled = shared | given
            if carbon is not None:
                filled["carbon_g_per_kwh"] = carbon
            resolved.append(DomainSettings(**filled))
        return tuple(resolved)

    def build_world(self) -> World:
        """Build the world these settings describe.

        Raises:
            SettingsError: If a file that the settings name is missing or malformed, or a part of the
                world refuses its figures; the message names the key.
        """
        from attribution_sched.config.build import build_world

        return build_world(self)

    def _check_size(self) -> None:
        own = self.domains or ()
        devices = sum(domain.devices or self.domain_defaults.devices for domain in own)
        devices = devices or len(self.domain_names) * self.domain_defaults.devices
        if devices > MOST_DEVICES:
            rule = f"all domains together must have at most {MOST_DEVICES}: every device has a place in arrays"
            raise broken_rule(rule, "Use fewer devices", key=("devices",), value=devices)
        slots = self.episode.max_running + self.episode.queue_capacity
        cells = slots * len(self.domain_names) ** 2
        if cells > MOST_CELLS:
            given = f"{slots} slots, {len(self.domain_names)} domains"
            rule = f"slots × domains² must be at most {MOST_CELLS}: every slot keeps its traffic over every link"
            fix = "Lower max_running and queue_capacity, or use fewer domains"
            raise broken_rule(rule, fix, key=("episode", "max_running + queue_capacity"), value=given)

    def _check_regions(self, listed: str) -> None:
        from attribution_sched.cluster.regions import carbon_g_per_kwh, region_names
        from attribution_sched.errors import NetworkError, nearest

        for i, name in enumerate(self.domain_names):
            try:
                carbon_g_per_kwh(name)
            except NetworkError:
                key = (listed, i) if listed == "regions" else (listed, i, "name")
                rule = "is not in the table of cloud regions, which network.links asks for"
                hint = nearest(name, region_names())
                own = "For a place of your own give its links: set network.links.kind to uniform or matrix"
                raise broken_rule(rule, f"{own}. {hint}", key=key, value=name) from None

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

    def _check_power(self) -> None:
        from attribution_sched.cluster.gpus import gpu

        for i, domain in enumerate(self.resolved_domains()):
            device = gpu(str(domain.gpu))
            own = self.gpus.get(device.name)
            if own is not None:
                device = device.override(**own.model_dump(exclude_none=True))
            if not device.idle_w < device.min_cap_w <= device.tdp_w:
                given = f"{device.idle_w:g}, {device.min_cap_w:g}, {device.tdp_w:g}"
                rule = "must satisfy idle_w < min_cap_w <= tdp_w"
                raise broken_rule(rule, "Mend the override", key=("gpus", device.name), value=given)
            cap = domain.power_cap_w
            if cap is not None and not device.min_cap_w <= cap <= device.tdp_w:
                listed = self.domains is not None and self.domains[i].power_cap_w is not None
                key = ("domains", i, "power_cap_w") if listed else ("domain_defaults", "power_cap_w")
                rule = f"{device.name} accepts caps from {device.min_cap_w:g} to {device.tdp_w:g} W"
                raise broken_rule(rule, "Choose a cap in that range", key=key, value=cap)

    def _check_incidents(self) -> None:
        from attribution_sched.errors import nearest

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
