"""Everything this machine can be asked for, as one source: what a recording of a run is made of.

    machine = MachineSource(dcgm_url="http://localhost:9400/metrics")
    with Recorder("run.csv") as recorder:
        recorder.write(machine.read())
        for batch in loader:
            train(batch)
            machine.samples += len(batch)
            recorder.write(machine.read())

``samples`` is the count that makes joules per sample of joules; windows in which it stands still are idle.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from attribution_sched.attribution.sources.dcgm import DcgmSource
from attribution_sched.attribution.sources.nvml import NvmlSource
from attribution_sched.attribution.sources.perf_event import PerfSource
from attribution_sched.attribution.sources.process import ProcessSource
from attribution_sched.attribution.sources.rapl import RaplSource
from attribution_sched.attribution.sources.reading import Provenance, Reading, ReadingBuilder, Source
from attribution_sched.errors import CounterError


def open_sources(dcgm_url: str | None = None) -> dict[str, Source]:
    """Every source that opens here, by name; those that do not are left out.

    Args:
        dcgm_url: Address of dcgm-exporter, the only one that reads how busy a GPU's memory is.

    Raises:
        CounterError: If an address was given and nothing answers there: what was asked for is not left out silently.
    """
    sources: dict[str, Source] = {"process": ProcessSource()}
    for name, opened in (("perf", PerfSource), ("rapl", RaplSource), ("nvml", NvmlSource)):
        with contextlib.suppress(CounterError):
            sources[name] = opened()
    if dcgm_url is not None:
        sources["dcgm"] = DcgmSource(dcgm_url)
        sources["dcgm"].read()
    return sources


class MachineSource:
    """Process, processor, meters and GPUs side by side; counters are called ``<source>/<counter>``.

    Attributes:
        samples: Samples worked off so far; the caller counts them.

    Args:
        sources: By name; every one that opens here by default.
        dcgm_url: Address of dcgm-exporter.
        clock: Gives the Unix time of a reading.
    """

    def __init__(
        self,
        sources: Mapping[str, Source] | None = None,
        *,
        dcgm_url: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.samples = 0
        self._sources = dict(open_sources(dcgm_url) if sources is None else sources)
        self._clock = clock

    def __enter__(self) -> MachineSource:
        for source in self._sources.values():
            if hasattr(source, "__enter__"):
                source.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for source in self._sources.values():
            if hasattr(source, "__exit__"):
                source.__exit__(*error)

    def read(self) -> Reading:
        """Read every source once."""
        out = ReadingBuilder()
        out.add("samples", float(self.samples), "samples", cumulative=True)
        seconds = _machine_cpu_s()
        if seconds is None:
            out.missing("machine_cpu_time_s", "s", "psutil reads no CPU times here", cumulative=True)
        else:
            out.add("machine_cpu_time_s", seconds, "s", cumulative=True)
        for source, opened in self._sources.items():
            reading = opened.read()
            for name in reading.names:
                label, running = reading.provenance[name], name in reading.cumulative
                note, unit = reading.notes.get(name, ""), reading.units[name]
                if label is Provenance.UNAVAILABLE:
                    out.missing(f"{source}/{name}", unit, note, cumulative=running)
                else:
                    out.add(f"{source}/{name}", reading.values[name], unit, label, note, running)
        return out.build(self._clock())


def _machine_cpu_s() -> float | None:
    """Busy CPU seconds of the whole machine since it started."""
    import psutil

    with contextlib.suppress(OSError, AttributeError, NotImplementedError):
        times = psutil.cpu_times()
        resting = {"idle", "iowait", "guest", "guest_nice", "steal"}
        return float(sum(value for name, value in times._asdict().items() if name not in resting))
    return None
