"""Column maps of public measurement tables, found through the variable ``ATTRIBUTION_SCHED_DATA``.

| loader | origin | rows |
|---|---|---|
| `kepler` | kepler-model-db, machine nx12 (Apache-2.0): counters and RAPL watts every 3 s | 2202 |
| `accelwattch_components` | AccelWattch (BSD-2): modelled watts per component of V100 kernels | 25 or 26 |
| `accelwattch_counters` | AccelWattch (BSD-2): hardware counters and measured watts of V100 kernels | 25 |
| `zeus_power` | Zeus NSDI 23 traces (Apache-2.0): batch and power cap to seconds and watts | 270-476 |
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

from attribution_sched.attribution.recordings import Column, ColumnMap, Recording, load_recording
from attribution_sched.attribution.sources.reading import Provenance
from attribution_sched.errors import TraceError, nearest, problem

DATA_VARIABLE = "ATTRIBUTION_SCHED_DATA"

KEPLER_COUNTERS = ("cpu_cycles", "cpu_instructions", "cache_miss")
KEPLER_FILES = {
    "absolute": "preprocess_abs_default_rapl_Basic.csv",
    "dynamic": "preprocess_dyn_default_min_rapl_CounterIRQCombined.csv",
}
KEPLER = ColumnMap(
    counters={
        "cpu_cycles": Column("cpu_cycles", "cycles/s"),
        "cpu_instructions": Column("cpu_instructions", "instructions/s"),
        "cache_miss": Column("cache_miss", "misses/s"),
        "package_power_w": Column("package_power", "W"),
        "dram_power_w": Column("dram_power", "W"),
    },
    timestamp="timestamp",
)
ZEUS_POWER = ColumnMap(
    counters={
        "batch_size": Column("batch_size", "samples", minimum=1.0),
        "power_limit_w": Column("power_limit", "W", minimum=1.0),
        "epoch_time_s": Column("time_per_epoch", "s"),
        "power_w": Column("average_power", "W"),
    },
    labels=("dataset", "network", "optimizer"),
)
ACCELWATTCH_TABLES = ("sass_sim", "hw", "hybrid")
_ACCELWATTCH_TEXT = ("benchmark", "suite", "kernel")
_ACCELWATTCH_TOTALS = ("model_total_w", "measured_w")
ZEUS_GPUS = ("v100", "a40", "rtx6000", "p100")


def data_directory() -> Path:
    """The directory of measurement tables.

    Raises:
        TraceError: The variable is unset or names no directory.
    """
    text = os.environ.get(DATA_VARIABLE, "")
    if not text or not Path(text).is_dir():
        raise TraceError(
            problem(DATA_VARIABLE, text, "must name the directory of measurement tables", "Set it and try again")
        )
    return Path(text)


def _choose(field: str, value: str, valid: tuple[str, ...]) -> str:
    if value not in valid:
        raise TraceError(problem(field, value, "is not a known table", nearest(value, valid)))
    return value


def kepler(kind: str = "absolute") -> Recording:
    """Counters per second and RAPL watts of one server under a stress sweep.

    Args:
        kind: ``absolute`` watts, or ``dynamic`` (idle power removed).
    """
    file = KEPLER_FILES[_choose("kind", kind, tuple(KEPLER_FILES))]
    return load_recording(data_directory() / "kepler_nx12" / file, KEPLER)


def accelwattch_components(table: str = "sass_sim") -> Recording:
    """Modelled watts of each component of a V100, per kernel; labels name the kernel.

    Args:
        table: ``sass_sim``, ``hw`` or ``hybrid``: which AccelWattch variant made the table.
    """
    name = f"volta_components_{_choose('table', table, ACCELWATTCH_TABLES)}.csv"
    path = data_directory() / "accelwattch" / name
    parts = [c for c in _header(path) if c not in (*_ACCELWATTCH_TEXT, *_ACCELWATTCH_TOTALS)]
    counters = {c: Column(c, "W", provenance=Provenance.SIMULATED) for c in parts}
    counters["model_total_w"] = Column("model_total_w", "W", provenance=Provenance.SIMULATED)
    counters["measured_w"] = Column("measured_w", "W")
    return load_recording(path, ColumnMap(counters, labels=_ACCELWATTCH_TEXT))


def accelwattch_counters() -> Recording:
    """Hardware counters and measured watts of V100 kernels."""
    path = data_directory() / "accelwattch" / "volta_counters_power.csv"
    counters = {c: Column(c, "W" if c == "measured_w" else "count") for c in _header(path) if c != "kernel"}
    return load_recording(path, ColumnMap(counters, labels=("kernel",)))


def zeus_power(gpu: str = "v100") -> Recording:
    """Seconds per epoch and watts over batch sizes and power caps.

    Args:
        gpu: ``v100``, ``a40``, ``rtx6000`` or ``p100``.
    """
    name = f"summary_power_{_choose('gpu', gpu, ZEUS_GPUS)}.csv"
    return load_recording(data_directory() / "zeus" / name, ZEUS_POWER)


def _header(path: Path) -> list[str]:
    if not path.is_file():
        raise TraceError(problem("path", path.name, "is not in the data directory", f"Check {DATA_VARIABLE}"))
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return next(csv.reader(stream), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(problem(path.name, str(error), "is not a UTF-8 CSV file", "Copy it again")) from error
