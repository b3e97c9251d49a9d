"""What this machine can be asked for, and what to do about the rest."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attribution_sched.attribution.sources.dcgm import DcgmSource
from attribution_sched.attribution.sources.nvml import (
    NO_PACKAGE,
    NO_PACKAGE_FIX,
    NvmlSource,
    load_nvml,
    start_nvml,
)
from attribution_sched.attribution.sources.perf_event import MSR_TYPE_PATH, PerfKernel, PerfSource
from attribution_sched.attribution.sources.process import ProcessSource
from attribution_sched.attribution.sources.rapl import (
    ABSENT,
    ABSENT_FIX,
    DENIED_FIX,
    POWERCAP_ROOT,
    RaplSource,
    find_zones,
)
from attribution_sched.attribution.sources.reading import Provenance, Reading
from attribution_sched.errors import CounterError


@dataclass(frozen=True)
class Capability:
    """One counter family of this machine.

    Attributes:
        source: ``rapl``, ``perf``, ``nvml``, ``dcgm``, ``process`` or ``torch``.
        counter: What is counted, for example ``package_energy_j``.
        provenance: How its numbers would be got; unavailable where there are none.
        detail: Why the counter is missing or estimated; empty where it is plainly measured.
        fix: What the user can do about it; empty where nothing needs doing.
    """

    source: str
    counter: str
    provenance: Provenance
    detail: str = ""
    fix: str = ""

    @property
    def available(self) -> bool:
        """Whether a number can be had."""
        return self.provenance is not Provenance.UNAVAILABLE


_RAPL_COUNTERS = ("package_energy_j", "dram_energy_j", "platform_energy_j")
_PERF_FIX = "Run on bare metal, or lower /proc/sys/kernel/perf_event_paranoid, or replay a recording"
_GPU_COUNTERS = ("energy_j", "power_w", "utilisation", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
_GPU_FIX = "Use a machine with an NVIDIA GPU and driver, scrape dcgm-exporter, or replay a recording"
_DCGM_FIX = "Give the exporter's address, for example http://localhost:9400/metrics"


def detect(
    powercap_root: Path = POWERCAP_ROOT,
    perf_kernel: PerfKernel | None = None,
    msr_type_path: Path = MSR_TYPE_PATH,
    nvml: Any | None = None,
    dcgm_url: str | None = None,
) -> tuple[Capability, ...]:
    """List what this machine offers and, for what it does not, why and the fix.

    Args:
        powercap_root: Directory that stands for ``/sys/class/powercap``.
        perf_kernel: Stands for the ``perf_event_open`` system call.
        msr_type_path: File with the type number of the ``msr`` event source.
        nvml: Stands for the NVML module.
        dcgm_url: Address of a dcgm-exporter to try.
    """
    return (
        *_rapl(powercap_root),
        *_perf(perf_kernel, msr_type_path),
        *_nvml(nvml),
        *_dcgm(dcgm_url),
        *_from_reading("process", ProcessSource().read(), ("cpu_time_s", "voluntary_switches"), ""),
        _torch(),
    )


def _none(source: str, counters: tuple[str, ...], why: str, fix: str) -> tuple[Capability, ...]:
    return tuple(Capability(source, c, Provenance.UNAVAILABLE, why, fix) for c in counters)


def _from_reading(source: str, reading: Reading, counters: tuple[str, ...], fix: str) -> tuple[Capability, ...]:
    out: list[Capability] = []
    for counter in counters:
        label = reading.provenance[counter]
        plain = label is Provenance.MEASURED
        out.append(Capability(source, counter, label, reading.notes.get(counter, ""), "" if plain else fix))
    return tuple(out)


def _rapl(root: Path) -> tuple[Capability, ...]:
    if not find_zones(root):
        return _none("rapl", _RAPL_COUNTERS, ABSENT, ABSENT_FIX)
    return _from_reading("rapl", RaplSource(root).read(), _RAPL_COUNTERS, DENIED_FIX)


def _perf(kernel: PerfKernel | None, msr_type_path: Path) -> tuple[Capability, ...]:
    counters = ("cpu_cycles", "cpu_instructions", "llc_misses")
    try:
        with PerfSource(kernel=kernel, msr_type_path=msr_type_path) as source:
            return _from_reading("perf", source.read(), counters, _PERF_FIX)
    except CounterError as error:
        return _none("perf", counters, str(error), _PERF_FIX)


def _nvml(nvml: Any | None) -> tuple[Capability, ...]:
    if nvml is None and importlib.util.find_spec("pynvml") is None:
        return _none("nvml", _GPU_COUNTERS, NO_PACKAGE, NO_PACKAGE_FIX)
    try:
        reading = NvmlSource(load_nvml() if nvml is None else start_nvml(nvml)).read()
    except CounterError as error:
        return _none("nvml", _GPU_COUNTERS, str(error), _GPU_FIX)
    gpus = sorted({name.split("/")[0] for name in reading.names if "/" in name})
    return tuple(
        c for gpu in gpus for c in _from_reading("nvml", reading, tuple(f"{gpu}/{n}" for n in _GPU_COUNTERS), _GPU_FIX)
    )


def _dcgm(url: str | None) -> tuple[Capability, ...]:
    if url is None:
        return _none("dcgm", ("gpu_counters",), "no address of a dcgm-exporter was given", _DCGM_FIX)
    try:
        reading = DcgmSource(url).read()
    except CounterError as error:
        return _none("dcgm", ("gpu_counters",), str(error), _DCGM_FIX)
    return _from_reading("dcgm", reading, reading.names, "")


def _torch() -> Capability:
    counter = "operator_time_s"
    if importlib.util.find_spec("torch") is None:
        return Capability("torch", counter, Provenance.UNAVAILABLE, "torch is not installed", "Install torch")
    return Capability("torch", counter, Provenance.MEASURED)
