"""Settings of the hardware: domains, device types, and the framework that runs on them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from attribution_sched.config.fields import Name, NonNegative, Record, Switch, Why, broken_rule
from attribution_sched.errors import nearest
from attribution_sched.limits import MOST_DEVICES

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
Seconds = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False), Why("a task would wait for weeks")]
"""Latency or pause."""
Watts = Annotated[
    float, Field(strict=True, ge=1e-3, le=1e9, allow_inf_nan=False), Why("a device draws milliwatts to megawatts")
]


def check_gpu(name: str) -> str:
    """Return a catalogue name, or say which one is nearest."""
    from attribution_sched.cluster.gpus import GPUS

    if name not in GPUS:
        raise broken_rule("is not in the GPU catalogue", nearest(name, GPUS), value=name)
    return name


class GpuOverride(Record):
    """Figures of a device type that replace those of the catalogue; some of its are assumed.

    Attributes:
        memory_bytes: Device memory.
        bandwidth_bytes_per_s: Peak memory bandwidth.
        tdp_w: Board power limit.
        min_cap_w: Lowest power cap the driver accepts.
        idle_w: Power with no work resident.
        nvlink_bytes_per_s: One direction between two devices of a node.
    """

    memory_bytes: Bytes | None = None
    bandwidth_bytes_per_s: Bytes | None = None
    tdp_w: Watts | None = None
    min_cap_w: Watts | None = None
    idle_w: Watts | None = None
    nvlink_bytes_per_s: Bytes | None = None


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
    """

    gpu: Name = "A100-80"
    devices: Devices = 8
    node_devices: Devices = 8
    fabric_gbps: Gbps = 200.0
    fabric_latency_s: Seconds = 5e-6
    power_cap_w: Watts | None = None
    power_budget_w: Watts | None = None
    carbon_g_per_kwh: NonNegative | None = None

    _known_gpu = field_validator("gpu")(check_gpu)


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

    @field_validator("gpu")
    @classmethod
    def _known_gpu(cls, name: str | None) -> str | None:
        return None if name is None else check_gpu(name)


class RuntimeSettings(Record):
    """How the framework behaves, see :class:`attribution_sched.cluster.domains.Runtime`.

    Attributes:
        recompute: Recompute activations in the backward pass.
        zero_stage: What data-parallel ranks shard, 0 to 3.
        sequence_parallel: Shard norms and dropout over tensor-parallel ranks too.
        flash_attention: Fused attention.
        blocking_sends: A stage computes nothing while it sends.
        reserved_bytes: Device memory that context and allocator take.
    """

    recompute: Switch = False
    zero_stage: Annotated[int, Field(strict=True, ge=0, le=3)] = 1
    sequence_parallel: Switch = False
    flash_attention: Switch = True
    blocking_sends: Switch = False
    reserved_bytes: NonNegative = 2.0e9


GpuOverrides = dict[str, GpuOverride]
"""Catalogue name → figures that replace the catalogue's."""
