"""The cluster: datacentre domains, the network between them, and how the framework behaves."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from attribution_sched.cluster.gpus import Gpu
from attribution_sched.cluster.power import check_cap
from attribution_sched.cluster.wan import Wan
from attribution_sched.errors import SettingsError, problem
from attribution_sched.types import IntArray

GIGA = 1e9


@dataclass(frozen=True)
class Runtime:
    """Framework behaviour shared by every task of a cluster: switches that change time and memory but are no plan.

    Attributes:
        recompute: Recompute activations in the backward pass (keeps layer inputs only).
        zero_stage: ZeRO stage 0..3: what data-parallel ranks shard (optimiser, gradients, weights).
        sequence_parallel: Shard layer norms and dropout over tensor-parallel ranks too.
        flash_attention: Fused attention; no score matrices are kept or moved.
        blocking_sends: A stage computes nothing while it sends (as frameworks that synchronise after
            every point-to-point transfer do); otherwise sends overlap with computing.
        reserved_bytes: Device memory that context, communicators and allocator slack take.
    """

    recompute: bool = False
    zero_stage: int = 1
    sequence_parallel: bool = False
    flash_attention: bool = True
    blocking_sends: bool = False
    reserved_bytes: float = 2.0 * GIGA

    def __post_init__(self) -> None:
        if self.zero_stage not in (0, 1, 2, 3):
            raise SettingsError(problem("zero_stage", self.zero_stage, "must be 0, 1, 2 or 3", "Pick one of these"))
        if not self.reserved_bytes >= 0:
            raise SettingsError(problem("reserved_bytes", self.reserved_bytes, "must be >= 0", "Use bytes"))


@dataclass(frozen=True)
class Domain:
    """One datacentre domain: a pool of equal GPUs.

    Attributes:
        name: Readable name, often a cloud region.
        gpu: The device type.
        devices: Number of devices N_k.
        node_devices: Devices that share a node and its fast links.
        fabric_gbps: Bandwidth of one device between nodes of the domain, Gb/s.
        fabric_latency_s: Latency between nodes of the domain.
        power_cap_w: Cap on every device; the TDP when None.
        power_budget_w: What all devices together may draw; unlimited when None.
        carbon_g_per_kwh: Carbon intensity of the grid.
    """

    name: str
    gpu: Gpu
    devices: int
    node_devices: int = 8
    fabric_gbps: float = 200.0
    fabric_latency_s: float = 5e-6
    power_cap_w: float | None = None
    power_budget_w: float | None = None
    carbon_g_per_kwh: float = 0.0

    def __post_init__(self) -> None:
        if self.devices < 1:
            fix = "Give the domain at least one device or leave it out"
            raise SettingsError(problem(f"{self.name}.devices", self.devices, "must be >= 1", fix))
        if self.node_devices < 1:
            raise SettingsError(problem(f"{self.name}.node_devices", self.node_devices, "must be >= 1", "Use 8"))
        if not self.fabric_gbps > 0 or not self.fabric_latency_s >= 0:
            given = (self.fabric_gbps, self.fabric_latency_s)
            rule = "bandwidth must be > 0 and latency >= 0"
            raise SettingsError(problem(f"{self.name} fabric", given, rule, "Use Gb/s and seconds"))
        if self.power_cap_w is not None:
            check_cap(self.gpu, self.power_cap_w)
        if self.power_budget_w is not None and not self.power_budget_w > 0:
            given_w = self.power_budget_w
            raise SettingsError(problem(f"{self.name}.power_budget_w", given_w, "must be > 0", "Use watts or None"))
        if not self.carbon_g_per_kwh >= 0:
            given_g = self.carbon_g_per_kwh
            raise SettingsError(problem(f"{self.name}.carbon_g_per_kwh", given_g, "must be >= 0", "Use g/kWh"))

    @property
    def cap_w(self) -> float:
        """The cap in force on every device."""
        return self.gpu.tdp_w if self.power_cap_w is None else self.power_cap_w


@dataclass(frozen=True)
class Cluster:
    """Domains, the WAN between them, and the framework's behaviour.

    Attributes:
        domains: K domains, in the order of the WAN's axes.
        wan: Links between them.
        runtime: Framework behaviour.
    """

    domains: tuple[Domain, ...]
    wan: Wan
    runtime: Runtime = field(default_factory=Runtime)

    def __post_init__(self) -> None:
        names = tuple(domain.name for domain in self.domains)
        if names != self.wan.names:
            fix = "List the domains in the order of the network's names"
            raise SettingsError(problem("domains", names, f"must match the network {self.wan.names}", fix))

    def __len__(self) -> int:
        return len(self.domains)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Distinct GPU types, in order of first use; an overridden copy is a type of its own."""
        found: list[Gpu] = []
        for domain in self.domains:
            if domain.gpu not in found:
                found.append(domain.gpu)
        return tuple(found)

    @property
    def devices(self) -> int:
        """Devices in the whole cluster."""
        return sum(domain.devices for domain in self.domains)


def within_budgets(cluster: Cluster, free: IntArray) -> IntArray:
    """Leave so many of the free devices that power budgets hold whatever they and the rest draw, shape ``(..., K)``."""
    domains = cluster.domains
    if all(domain.power_budget_w is None for domain in domains):
        return free
    rooms = free.copy()
    for k, domain in enumerate(domains):
        if domain.power_budget_w is not None and domain.cap_w > domain.gpu.idle_w:
            spare_w = domain.power_budget_w - domain.devices * domain.gpu.idle_w
            awake = int(spare_w / (domain.cap_w - domain.gpu.idle_w) + 1e-9)
            rooms[..., k] = np.maximum(0, np.minimum(free[..., k], awake - (domain.devices - free[..., k])))
    return rooms
