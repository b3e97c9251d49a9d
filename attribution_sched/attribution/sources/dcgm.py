"""GPU counters scraped from dcgm-exporter (or any Prometheus endpoint that serves DCGM field names)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from attribution_sched.attribution.sources.http_scrape import fetch_http
from attribution_sched.attribution.sources.prometheus import Sample, parse_prometheus
from attribution_sched.attribution.sources.reading import Reading, ReadingBuilder
from attribution_sched.errors import CounterError, problem
from attribution_sched.limits import check_name

# Field: (our name, unit, scale, running total)
DCGM_FIELDS: Mapping[str, tuple[str, str, float, bool]] = MappingProxyType(
    {
        "DCGM_FI_DEV_POWER_USAGE": ("power_w", "W", 1.0, False),
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_j", "J", 1e-3, True),
        "DCGM_FI_DEV_GPU_UTIL": ("utilisation", "ratio", 1e-2, False),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("graphics_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy", "ratio", 1.0, False),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("fp64_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("fp32_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("fp16_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_per_s", "bytes/s", 1.0, False),
        "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_bytes_per_s", "bytes/s", 1.0, False),
        "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_bytes_per_s", "bytes/s", 1.0, False),
        "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_bytes_per_s", "bytes/s", 1.0, False),
    }
)


class DcgmSource:
    """Per GPU (``gpu0/``) or MIG instance (``gpu0/mig7/``): power, energy, utilisation, pipes, traffic.

    dcgm-exporter repeats a GPU's line once per pod when pods share it by time slicing. The repeats carry the
    same number and are read once, never added; where they disagree the counter is unavailable and says so.
    """

    def __init__(
        self,
        url: str | None = None,
        fetch: Callable[[], str] | None = None,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Choose where the text comes from.

        Args:
            url: Address of the exporter.
            fetch: Returns the text; instead of ``url``.
            timeout_s: Give up on the address after this long, whatever has arrived by then.
            clock: Gives the Unix time of a reading.
        """
        if (url is None) == (fetch is None):
            raise CounterError(problem("url", url, "give either url or fetch", "Pass exactly one of the two"))
        self._name = url or "scrape"
        self._fetch = fetch if fetch is not None else (lambda: fetch_http(str(url), timeout_s))
        self._clock = clock
        self._start: dict[str, float] = {}

    def read(self) -> Reading:
        """Scrape once."""
        groups: dict[tuple[str, str], list[Sample]] = {}
        for sample in parse_prometheus(self._fetch(), self._name):
            if sample.name in DCGM_FIELDS:
                groups.setdefault((self._device(sample), sample.name), []).append(sample)
        if not groups:
            raise CounterError(
                problem(self._name, "no DCGM_FI_ line", "serves no DCGM field", "Check the exporter's field list")
            )
        out = ReadingBuilder()
        for (device, field), samples in sorted(groups.items()):
            self._add(out, device, field, samples)
        return out.build(self._clock())

    def _device(self, sample: Sample) -> str:
        gpu = sample.labels.get("gpu")
        if gpu is None:
            raise CounterError(
                problem(
                    f"{self._name} line {sample.line}",
                    sample.name,
                    "a DCGM line needs the label gpu",
                    "Scrape dcgm-exporter itself, not an aggregate of it",
                )
            )
        instance = sample.labels.get("GPU_I_ID", "")
        for label, value in (("gpu", gpu), ("GPU_I_ID", instance)):
            if value:
                check_name(f"{self._name} line {sample.line}: label {label}", value, CounterError)
        return f"gpu{gpu}/mig{instance}/" if instance else f"gpu{gpu}/"

    def _add(self, out: ReadingBuilder, device: str, field: str, samples: list[Sample]) -> None:
        short, unit, scale, running = DCGM_FIELDS[field]
        name = device + short
        values = {s.value for s in samples}
        value = samples[0].value * scale
        if len(values) > 1 and not all(math.isnan(v) for v in values):
            reason = f"{len(samples)} lines of {field} disagree for one device"
            out.missing(name, unit, reason, cumulative=running)
        elif not math.isfinite(value):
            out.missing(name, unit, f"the exporter answered {samples[0].value}", cumulative=running)
        elif not running:
            out.add(name, value, unit)
        elif value < self._start.setdefault(name, value):
            out.missing(name, unit, "the counter fell: the driver was reloaded", cumulative=True)
        else:
            out.add(name, value - self._start[name], unit, cumulative=True)
