"""Counter sources: one protocol, `Source.read() -> Reading`, whatever the counters come from.

- `RaplSource`: CPU and memory joules from the kernel's powercap files.
- `PerfSource`: cycles, instructions, last-level cache misses from perf_event.
- `NvmlSource`, `DcgmSource`: GPU joules, watts, utilisation and traffic.
- `ProcessSource`: CPU seconds and context switches of a process tree.
- `MachineSource`: all of those side by side, for a recording.
- `profile`, `ProfilerSource`: convolution, fully-connected and attention time and FLOPs of a torch module.
- `detect`: what of all this the present machine has, and how to get the rest.
"""

from attribution_sched.attribution.sources.dcgm import DcgmSource
from attribution_sched.attribution.sources.detect import Capability, detect
from attribution_sched.attribution.sources.machine import MachineSource
from attribution_sched.attribution.sources.nvml import NvmlSource
from attribution_sched.attribution.sources.perf_event import PerfSource
from attribution_sched.attribution.sources.process import ProcessSource
from attribution_sched.attribution.sources.profiler import OperatorProfile, ProfilerSource, profile
from attribution_sched.attribution.sources.rapl import RaplSource
from attribution_sched.attribution.sources.reading import (
    Provenance,
    Reading,
    ReadingBuilder,
    Source,
    difference,
)

__all__ = [
    "Capability",
    "DcgmSource",
    "MachineSource",
    "NvmlSource",
    "OperatorProfile",
    "PerfSource",
    "ProcessSource",
    "ProfilerSource",
    "Provenance",
    "RaplSource",
    "Reading",
    "ReadingBuilder",
    "Source",
    "detect",
    "difference",
    "profile",
]
