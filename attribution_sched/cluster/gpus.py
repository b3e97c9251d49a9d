"""The GPU catalogue and the numeric formats GPUs run: dense peaks, memory, power, and where each figure comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any

from attribution_sched.errors import SettingsError, nearest, problem


class Precision(StrEnum):
    """A numeric format; the order is the order of the precision axis in every table."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"

    index: int  # type: ignore[assignment]
    """Position on the precision axis."""

    def __new__(cls, value: str) -> Precision:
        """A format, numbered in the order they are written down."""
        member = str.__new__(cls, value)
        member._value_, member.index = value, len(cls.__members__)
        return member

    @property
    def element_bytes(self) -> int:
        """Bytes of one activation or weight element in this format."""
        return {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}[self.value]


PRECISIONS: tuple[Precision, ...] = tuple(Precision)
"""Every precision, in axis order: fp32, fp16, bf16, int8."""


GB = 1e9
TERA = 1e12


@dataclass(frozen=True)
class Gpu:
    """One GPU type.

    Attributes:
        name: Catalogue name, for example ``A100-80``.
        peak_flops: Dense peak operations per second for each precision that the silicon has. On
            Ampere and later ``fp32`` is the TF32 tensor path, which frameworks use by default for
            full-precision training. A precision that is missing does not exist on the device and
            is masked, never emulated.
        memory_bytes: Device memory.
        bandwidth_bytes_per_s: Peak HBM bandwidth.
        tdp_w: Board power limit.
        min_cap_w: Lowest power cap the driver accepts.
        idle_w: Power with no work resident.
        nvlink_bytes_per_s: Bandwidth of one direction between two devices of a node.
        sources: Field name → where the figure comes from; ``assumed`` where nothing was found.
        like: Fitted chip (``V100``, ``A100``, ``H100``) whose shares of the peak, precision gains, launch floors and
            draw this device is assumed to have where it has no measured ones of its own; empty for none.
    """

    name: str
    peak_flops: Mapping[Precision, float]
    memory_bytes: float
    bandwidth_bytes_per_s: float
    tdp_w: float
    min_cap_w: float
    idle_w: float
    nvlink_bytes_per_s: float
    sources: Mapping[str, str] = field(default_factory=dict)
    like: str = ""

    @property
    def chip(self) -> str:
        """The name without its memory size (``A100`` of ``A100-80``): the key of fitted constants."""
        return self.name.split("-", maxsplit=1)[0]

    def supports(self, precision: Precision) -> bool:
        """Say whether the device has hardware for ``precision``."""
        return precision in self.peak_flops

    @property
    def assumed(self) -> tuple[str, ...]:
        """Names of the fields that rest on an assumption, not on a source."""
        return tuple(k for k, source in self.sources.items() if source.startswith("assumed"))

    def override(self, **changes: float) -> Gpu:
        """Return a copy with some scalar fields replaced (an assumed idle power, for example)."""
        allowed = {"memory_bytes", "bandwidth_bytes_per_s", "tdp_w", "min_cap_w", "idle_w", "nvlink_bytes_per_s"}
        for key, value in changes.items():
            if key not in allowed:
                raise SettingsError(problem("gpu field", key, "is not overridable", nearest(key, allowed)))
            if not value > 0:
                raise SettingsError(problem(f"{self.name}.{key}", value, "must be > 0", "Give a positive number"))
        sources = dict(self.sources) | dict.fromkeys(changes, "set by the user")
        return replace(self, sources=MappingProxyType(sources), **changes)  # type: ignore[arg-type]


_DATASHEET = "NVIDIA datasheet"
_ASSUMED_IDLE = "assumed: no measured idle figure with a licence was found"


_ASSUMED_CAP = "assumed: a quarter to a third of TDP, as on the cards Zeus swept"
_SWEPT_CAP = "Zeus traces: lowest cap of the sweep"
_LOWEST = "Zeus traces: lowest reading of NCF, which keeps its host busy and the device idle"
_USUAL = "assumed: the usual datasheet value; no retrieved source states it"


def _gpu(
    name: str, fp32: float, fp16: float, bf16: float | None, int8: float | None,
    memory_gb: float, hbm_gb_s: float, tdp_w: float, min_cap_w: float, idle_w: float,
    nvlink_gb_s: float, idle_source: str, peak_source: str = _DATASHEET, *,
    other_source: str = _DATASHEET, cap_source: str = _ASSUMED_CAP, like: str = "",
) -> Gpu:  # fmt: skip
    peaks = {Precision.FP32: fp32, Precision.FP16: fp16, Precision.BF16: bf16, Precision.INT8: int8}
    return Gpu(
        name=name,
        peak_flops=MappingProxyType({p: v * TERA for p, v in peaks.items() if v is not None}),
        memory_bytes=memory_gb * GB,
        bandwidth_bytes_per_s=hbm_gb_s * GB,
        tdp_w=tdp_w,
        min_cap_w=min_cap_w,
        idle_w=idle_w,
        nvlink_bytes_per_s=nvlink_gb_s * GB,
        sources=MappingProxyType({
            "peak_flops": peak_source, "memory_bytes": other_source, "bandwidth_bytes_per_s": other_source,
            "tdp_w": peak_source, "min_cap_w": cap_source,
            "idle_w": idle_source, "nvlink_bytes_per_s": other_source,
        }),
        like=like,
    )  # fmt: skip


_zeus = partial(_gpu, idle_source=_LOWEST, peak_source=_USUAL, other_source=_USUAL, cap_source=_SWEPT_CAP)
"""A card that Zeus swept: caps and idle watts from its traces, the rest from the datasheet."""

_newer = partial(_gpu, idle_source=_ASSUMED_IDLE, peak_source=_USUAL, other_source=_USUAL)
"""A card without any measured run here: every figure is the usual one of its datasheet or assumed."""

_V100_IDLE = "fit: floor of NCF and ShuffleNet in the Zeus traces (35-39 W)"

GPUS: Mapping[str, Gpu] = MappingProxyType({
    gpu.name: gpu
    for gpu in (
        _gpu("V100-16", 15.7, 125, None, None, 16, 900, 300, 100, 37, 150, _V100_IDLE, _USUAL),
        _gpu("V100-32", 15.7, 125, None, None, 32, 900, 300, 100, 37, 150, _V100_IDLE, _USUAL),
        _gpu("A100-40", 156, 312, 312, 624, 40, 1555, 400, 100, 55, 300, _ASSUMED_IDLE),
        _gpu("A100-80", 156, 312, 312, 624, 80, 2039, 400, 100, 55, 300, _ASSUMED_IDLE),
        _gpu("H100-80", 495, 989, 989, 1979, 80, 3352, 700, 200, 68, 450, _ASSUMED_IDLE),
        # The Hopper half of a GH200 superchip.
        _gpu("H100-96", 495, 989, 989, 1979, 96, 4000, 700, 200, 68, 450, _ASSUMED_IDLE),
        # The PCIe board of the Zeus traces: the same chip within 250 W.
        _zeus("V100-PCIE", 14.0, 112, None, None, 32, 900, 250, 100, 37, 16, like="V100"),
        _zeus("P100-16", 9.3, 18.7, None, None, 16, 732, 250, 125, 33.5, 16, like="V100"),
        _zeus("RTX6000-24", 16.3, 130.5, None, 261, 24, 672, 260, 100, 55.4, 50, like="V100"),
        _zeus("A40-48", 74.8, 149.7, 149.7, 299.3, 48, 696, 300, 100, 82.5, 56, like="A100"),
        _newer("T4-16", 8.1, 65, None, 130, 16, 320, 70, 60, 10, 16, like="V100"),
        _newer("L4-24", 60, 121, 121, 242, 24, 300, 72, 40, 16, 32, like="A100"),
        _newer("L40S-48", 183, 362, 362, 733, 48, 864, 350, 100, 35, 32, like="A100"),
        _newer("H200-141", 495, 989, 989, 1979, 141, 4800, 700, 200, 75, 450, like="H100"),
    )
})  # fmt: skip
"""Catalogue name → GPU; presets may add their own under ``gpus:``."""


def device_of(name: str, figures: Mapping[str, Any]) -> Gpu:
    """A device type from its figures: a catalogue type with some replaced, or one that the catalogue does not have.

    Args:
        name: Catalogue name, or any other where the figures are complete.
        figures: Scalar fields of :class:`Gpu`, ``peak_tflops`` by precision and ``like``.
    """
    given = dict(figures)
    peaks, like = given.pop("peak_tflops", None), given.pop("like", None)
    if name in GPUS:
        device = GPUS[name].override(**given) if given else GPUS[name]
    else:
        needed = ("memory_bytes", "bandwidth_bytes_per_s", "tdp_w", "min_cap_w", "idle_w", "nvlink_bytes_per_s")
        missing = [key for key in needed if key not in given] + ([] if peaks else ["peak_tflops"])
        if missing:
            rule = f"is not in the catalogue, and its figures lack {', '.join(missing)}"
            raise SettingsError(problem("gpu", name, rule, other_device(name, GPUS)))
        sources = MappingProxyType(dict.fromkeys((*needed, "peak_flops"), "set by the user"))
        device = Gpu(name, MappingProxyType({}), **given, sources=sources)
    if peaks:
        own = MappingProxyType({Precision(p): float(v) * TERA for p, v in peaks.items()})
        device = replace(
            device, peak_flops=own, sources=MappingProxyType(dict(device.sources) | {"peak_flops": "set by the user"})
        )
    return replace(device, like=like) if like else device


def other_device(name: str, known: Iterable[str]) -> str:
    """What to do about a device that is not known; another chip is never offered, only a name spelt right."""
    return f"{nearest(name, known, alike=0.7)}; or give its figures under gpus:"


def gpu(name: str) -> Gpu:
    """Look a GPU up by name; an unknown name raises with the nearest known one."""
    if name not in GPUS:
        raise SettingsError(problem("gpu", name, "is not in the catalogue", other_device(name, GPUS)))
    return GPUS[name]
