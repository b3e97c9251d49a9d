"""A scheduling problem as one settings record: hardware, network, framework, work, what goes wrong, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, field_validator, model_validator

from attribution_sched.cluster.objective import Quota, Reward, ShareRule
from attribution_sched.config.domains import (
    CarbonSettings,
    DomainDefaults,
    DomainSettings,
    ElectricitySettings,
    GpuOverride,
    GpuOverrides,
)
from attribution_sched.config.episode import EpisodeSettings, IncidentSettings, RuntimeSettings
from attribution_sched.config.fields import Name, Record, between, broken_rule
from attribution_sched.config.network import MatrixLinks, NetworkSettings, RegionLinks
from attribution_sched.config.work import PROFILED_PREFIX, ArrivalSettings, KindSettings, ModelSettings
from attribution_sched.errors import NetworkError, nearest
from attribution_sched.limits import MOST_CELLS, MOST_DEVICES, Rationale

if TYPE_CHECKING:
    from attribution_sched.cluster.gpus import Gpu
    from attribution_sched.cluster.world import World

MOST_DOMAINS = 1_000
MOST_KINDS = 1_000
MOST_INCIDENTS = 10_000
MOST_QUOTAS = 10_000
_DOMAINS = Rationale("every pair of domains is a link")


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
        Rationale("every kind is priced on every device"),
    ]
    arrivals: ArrivalSettings
    reward: Reward = Reward()
    episode: EpisodeSettings = EpisodeSettings()
    incidents: Annotated[
        tuple[IncidentSettings, ...], Field(max_length=MOST_INCIDENTS), Rationale("every event looks through them")
    ] = ()
    quotas: Annotated[tuple[Quota, ...], Field(max_length=MOST_QUOTAS), Rationale("every decision looks them up")] = ()
    share_rule: ShareRule = "none"
    cap_levels: tuple[Annotated[float, between(0.0, 1.0, "()")], ...] = ()
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
        listed = "domains" if self.regions is None else "regions"
        for at, name in enumerate(names):
            if name in names[:at]:
                raise broken_rule("is listed twice", "Give every domain its own name", key=(listed, at), value=name)
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
    def listed_domains(self) -> tuple[DomainSettings, ...]:
        """The domains as they are given, one by one or as regions."""
        return self.domains or tuple(DomainSettings(name=name) for name in self.regions or ())

    @property
    def domain_names(self) -> tuple[str, ...]:
        """Names of the domains, in order."""
        return tuple(domain.name for domain in self.listed_domains)

    def resolved_domains(self) -> tuple[DomainSettings, ...]:
        """Every domain with the defaults and its carbon intensity: its own, its signal's mean, the region table's."""
        from attribution_sched.config.build import known_carbon, usual_carbon

        signals = {"carbon", "electricity"}
        shared = self.domain_defaults.model_dump(exclude=signals)
        domains = []
        for domain, (hourly, _) in zip(self.listed_domains, self.domain_signals(), strict=True):
            fields = domain.model_dump(exclude_none=True, exclude=signals)
            carbon = known_carbon(domain.name) if hourly is None else usual_carbon(hourly, domain.name)
            if carbon is not None and (hourly is not None or domain.carbon_g_per_kwh is None):
                fields["carbon_g_per_kwh"] = carbon
            domains.append(DomainSettings(**(shared | fields)))
        return tuple(domains)

    def domain_signals(self) -> tuple[tuple[CarbonSettings | None, ElectricitySettings | None], ...]:
        """Carbon and price of electricity by the hour of every domain, as it or the defaults give them."""
        usual = self.domain_defaults
        return tuple(
            (
                domain.carbon or (usual.carbon if domain.carbon_g_per_kwh is None else None),
                domain.electricity or usual.electricity,
            )
            for domain in self.listed_domains
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
        devices = sum(domain.devices or self.domain_defaults.devices for domain in self.listed_domains)
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
        named = [((listed, i, "gpu"), domain.gpu) for i, domain in enumerate(self.listed_domains)]
        for key, name in [*named, (("domain_defaults", "gpu"), self.domain_defaults.gpu)]:
            if name is not None and name not in catalogue:
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
