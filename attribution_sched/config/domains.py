"""Domains in settings: their devices, their grid, and figures of devices of one's own."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from attribution_sched.cluster.objective import Positive
from attribution_sched.config.fields import (
    Bytes,
    BytesPerSecond,
    Devices,
    FilePath,
    Gbps,
    MemoryBytes,
    Name,
    NonNegative,
    Record,
    Seconds,
    Seed,
    Watts,
    between,
    broken_rule,
)


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
    start_h: Annotated[float, between(0.0, 8760.0, "[)")] = 0.0


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


GpuOverrides = dict[str, GpuOverride]
"""Device type → its figures, or those that replace the catalogue's."""
