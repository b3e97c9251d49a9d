"""NVIDIA GPU energy, power, utilisation and PCIe traffic through NVML (optional package ``nvidia-ml-py``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from attribution_sched.attribution.sources.reading import Provenance, Reading, ReadingBuilder
from attribution_sched.errors import CounterError, problem

NO_PACKAGE = "the package nvidia-ml-py is not installed"
NO_PACKAGE_FIX = "Install the extra: attribution-sched[nvml]"
_MEANING = {
    1: "NVML was not initialised",
    3: "not supported by this GPU",
    4: "permission denied: run as root or ask the administrator",
    9: "the NVIDIA driver is not loaded",
    12: "libnvidia-ml.so was not found: install the NVIDIA driver",
    15: "the GPU has fallen off the bus and needs a reset",
}
_MIG_ON = "the GPU is split by MIG: NVML gives no utilisation for the whole device; scrape dcgm-exporter instead"


def load_nvml() -> Any:
    """Import NVML and start it.

    Raises:
        CounterError: The package or the driver is missing; the message says which.
    """
    try:
        import pynvml
    except ImportError as error:
        raise CounterError(problem("nvml", "pynvml", NO_PACKAGE, NO_PACKAGE_FIX)) from error
    return start_nvml(pynvml)


def start_nvml(nvml: Any) -> Any:
    """Initialise an NVML module (the real one or a fake) and return it."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise CounterError(
            problem("nvml", str(error), _meaning(error), "Check that `nvidia-smi` works on this machine")
        ) from error
    return nvml


def _meaning(error: Exception) -> str:
    return _MEANING.get(getattr(error, "value", -1), f"NVML error: {error}")


class NvmlSource:
    """Joules, watts, utilisation and PCIe traffic of every GPU the driver sees.

    Per GPU *i*: ``gpu<i>/energy_j`` (since opened), ``power_w``, ``utilisation``, ``memory_utilisation``,
    ``pcie_tx_bytes_per_s``, ``pcie_rx_bytes_per_s``; and ``gpu_energy_j``, the sum over GPUs.
    Volta and later count millijoules in hardware: measured. Before Volta, energy is the trapezoid sum of the
    power seen at each read: estimated, and only as good as the reading rate.
    """

    def __init__(self, nvml: Any | None = None, clock: Callable[[], float] = time.time) -> None:
        """Find the GPUs.

        Args:
            nvml: An initialised NVML module; the real one is imported by default.
            clock: Gives the Unix time of a reading.
        """
        self._nvml = nvml if nvml is not None else load_nvml()
        self._clock = clock
        count = int(self._nvml.nvmlDeviceGetCount())
        if count == 0:
            raise CounterError(problem("nvml", 0, "the driver sees no GPU", "Check `nvidia-smi -L`"))
        self._gpus = [_Gpu(self._nvml, i) for i in range(count)]
        for gpu in self._gpus:
            gpu.advance(clock())

    def read(self) -> Reading:
        """Read every GPU once."""
        now = self._clock()
        out = ReadingBuilder()
        for gpu in self._gpus:
            gpu.advance(now)
            gpu.report(out)
        lost = [g for g in self._gpus if g.lost]
        if lost:
            reason = f"gpu{lost[0].index}: {lost[0].lost}"
            out.missing("gpu_energy_j", "J", reason, cumulative=True)
        else:
            polled = any(g.polled for g in self._gpus)
            label = Provenance.ESTIMATED if polled else Provenance.MEASURED
            total = sum(g.energy_j for g in self._gpus)
            out.add("gpu_energy_j", total, "J", label, _POLLED if polled else "", cumulative=True)
        return out.build(now)


_POLLED = "no energy counter on this GPU: polled power, summed by trapezoids"


class _Gpu:
    """One device and its running energy."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.index, self.energy_j, self.lost, self.polled = index, 0.0, "", False
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self._last_mj: int | None = None
        self._last_power: tuple[float, float] | None = None
        self.power_w: float | None = None
        self._power_reason = ""

    def _ask(self, function: str, *args: Any) -> tuple[Any, str]:
        """Call NVML; return (answer, "") or (None, why not)."""
        call = getattr(self._nvml, function, None)
        if call is None:
            return None, f"{function} is missing in this version of nvidia-ml-py"
        try:
            return call(self._handle, *args), ""
        except self._nvml.NVMLError as error:
            return None, _meaning(error)

    def advance(self, now_s: float) -> None:
        """Bring the running energy up to ``now_s``."""
        milliwatts, self._power_reason = self._ask("nvmlDeviceGetPowerUsage")
        self.power_w = None if milliwatts is None else milliwatts * 1e-3
        if self.lost:
            return
        total_mj, reason = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        if total_mj is not None and not self.polled:
            if self._last_mj is not None and total_mj < self._last_mj:
                self.lost = "the energy counter fell: the driver was reloaded; open the source again"
                return
            self.energy_j += 0.0 if self._last_mj is None else (total_mj - self._last_mj) * 1e-3
            self._last_mj = total_mj
        elif self._last_mj is not None:
            self.lost = reason or "the energy counter vanished"
        elif self.power_w is None:
            self.lost = f"no energy counter ({reason}) and no power ({self._power_reason})"
        else:
            self.polled = True
            if self._last_power is not None:
                then_s, then_w = self._last_power
                self.energy_j += 0.5 * (then_w + self.power_w) * (now_s - then_s)
            self._last_power = (now_s, self.power_w)

    def report(self, out: ReadingBuilder) -> None:
        """Write this device's counters."""
        prefix = f"gpu{self.index}/"
        if self.lost:
            out.missing(prefix + "energy_j", "J", self.lost, cumulative=True)
        else:
            label = Provenance.ESTIMATED if self.polled else Provenance.MEASURED
            note = _POLLED if self.polled else ""
            out.add(prefix + "energy_j", self.energy_j, "J", label, note, cumulative=True)
        self._level(out, prefix + "power_w", "W", self.power_w, self._power_reason)
        mig, _ = self._ask("nvmlDeviceGetMigMode")
        rates, reason = self._ask("nvmlDeviceGetUtilizationRates")
        if mig is not None and mig[0]:
            rates, reason = None, _MIG_ON
        for name, field in (("utilisation", "gpu"), ("memory_utilisation", "memory")):
            share = None if rates is None else getattr(rates, field) / 100.0
            self._level(out, prefix + name, "ratio", share, reason)
        for name, counter in (("pcie_tx_bytes_per_s", 0), ("pcie_rx_bytes_per_s", 1)):
            kilobytes, reason = self._ask("nvmlDeviceGetPcieThroughput", counter)
            rate = None if kilobytes is None else kilobytes * 1e3
            self._level(out, prefix + name, "bytes/s", rate, reason)

    @staticmethod
    def _level(out: ReadingBuilder, name: str, unit: str, value: float | None, reason: str) -> None:
        if value is None:
            out.missing(name, unit, reason)
        else:
            out.add(name, value, unit)
