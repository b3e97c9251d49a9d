"""From a real machine to its attributor: a table of metered runs → idle subtracted, one's own share, energy model.

One row is one run (or one window of it), one machine a file. Columns, of which only the first two are needed:

| column | what it says |
|---|---|
| ``seconds`` | how long the window was |
| ``samples`` | samples worked off in it |
| ``energy_j`` | joules of the meter in it (RAPL, NVML, DCGM); without it CPU-seconds are what is metered |
| the seven counters | rates, in the units of ``COUNTER_UNITS``; what is not there or empty was not read |
| ``cpu_seconds``, ``machine_cpu_seconds`` | of the process and of the whole socket: its share of the joules |
| ``task``, ``training``, ``machine`` | a name (``idle``: nothing ran), 0 or 1, the machine's name |

A file of :class:`~attribution_sched.attribution.recorder.Recorder` with the readings of a
:class:`~attribution_sched.attribution.sources.machine.MachineSource` is taken as well: every two readings are a window,
and one in which no sample was worked off is idle.

    runs = load_runs("runs.csv")
    System(attributor=runs.fit())
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attribution_sched.attribution.fitted import Fitted
from attribution_sched.attribution.recordings import Column, ColumnMap, Recording, as_recording, read_table
from attribution_sched.cluster.counters import COUNTER_UNITS
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import ModelFitError, TraceError, nearest, problem
from attribution_sched.types import BoolArray, FloatArray

IDLE = "idle"
"""Name of a window in which nothing ran."""

NUMBERS = {
    "seconds": "s",
    "samples": "1",
    "energy_j": "J",
    "cpu_seconds": "s",
    "machine_cpu_seconds": "s",
    "training": "1",
}
TEXTS = ("task", "machine")


@dataclass(frozen=True, eq=False)
class MeasuredRuns:
    """Runs of one machine, the run axis first; idle windows are taken out.

    Attributes:
        labels: (n,) name of each run.
        counters: (n, 7) counters per second, NaN where one was not read.
        samples_per_s: (n,) throughput.
        training: (n,) mode.
        energy_j: (n,) metered per sample: joules of its own, or CPU-seconds where there was no meter.
        idle_j: (n,) of those, what the idle machine draws meanwhile.
        idle_w: Watts of the idle machine; 0 where there was no meter.
        metered: ``J``, or ``CPU-s`` where there was no meter.
        machine: Its name; empty if the file does not say.
        notes: What was assumed, in words.
    """

    labels: tuple[str, ...]
    counters: FloatArray
    samples_per_s: FloatArray
    training: BoolArray
    energy_j: FloatArray
    idle_j: FloatArray
    idle_w: float
    metered: str
    machine: str
    notes: tuple[str, ...]

    def fit(self, family: str = "mixture") -> Fitted:
        """The machine's own attributor, from the runs all of whose readable counters were read.

        Raises:
            ModelFitError: If there are too few.
        """
        readable = ~np.isnan(self.counters).all(axis=0)
        whole: BoolArray = np.asarray(~np.isnan(self.counters[:, readable]).any(axis=1))
        # A counter that this machine cannot read at all has no part: nothing can be learnt of it here.
        counters = np.where(readable, np.nan_to_num(self.counters), 0.0)[whole]
        source = f"{int(whole.sum())} metered runs" + (f" on {self.machine}" if self.machine else "")
        return Fitted.fit(
            counters, self.samples_per_s[whole], self.energy_j[whole], idle_j=self.idle_j[whole], idle_w=self.idle_w,
            training=self.training[whole], labels=[self.labels[row] for row in np.flatnonzero(whole).tolist()],
            source=source, metered=self.metered, family=family,
        )  # fmt: skip

    def check_machine(self, source: str) -> None:
        """Refuse a recording of another machine than an attributor was fitted on.

        Args:
            source: What the attributor says of its runs.

        Raises:
            ModelFitError: If both name a machine and the names differ.
        """
        _, named, other = source.partition(" on ")
        if named and self.machine and other != self.machine:
            rule = f"the attributor was fitted on {other}: another machine has other prices"
            raise ModelFitError(problem("machine", self.machine, rule, "Fit one on runs of this machine"))


WINDOW = {
    "samples": ("samples",),
    "energy_j": ("rapl/energy_j", "nvml/*/energy_j", "dcgm/*/energy_j"),
    "cpu_seconds": ("process/cpu_time_s",),
    "machine_cpu_seconds": ("machine_cpu_time_s",),
}
"""Column of a table of runs → running totals of a recording that it is the growth of; ``*`` is a GPU."""

RATES = {"cpu_cycles": "perf/cpu_cycles", "l3_misses": "perf/llc_misses"}
LEVELS = {
    "pcie_bandwidth": ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    "memory_bandwidth": ("memory_bytes_per_s",),
    "dram_active": ("dram_active",),
    "sm_active": ("sm_active",),
}


def recorded_runs(path: str | Path, *, gpu: str | None = None, task: str = "run") -> dict[str, list[float | str]]:
    """A recorder's raw series as columns of a table of runs, one row for every two readings.

    Args:
        path: File of a recorder.
        gpu: Name of the GPU, whose bandwidth makes bytes of the share of time that its memory was busy.
        task: What windows with work in them are called.

    Raises:
        TraceError: If it is no recording, has fewer than two readings or no count of samples, or a total fell.
    """
    from attribution_sched.attribution.recorder import load_recorded
    from attribution_sched.cluster.gpus import gpu as known_gpu

    path = Path(path)
    recording = load_recorded(path)
    times = recording.timestamps_s
    if times is None or len(recording) < 2:
        raise TraceError(problem(path.name, len(recording), "a window needs two readings", "Record for longer"))
    if "samples" not in recording.names:
        fix = "Record a MachineSource and count its samples"
        raise TraceError(problem(f"{path.name}: counter", "samples", "is missing", fix))
    seconds = np.diff(times)

    def grown(name: str) -> FloatArray:
        values = recording.column(name)
        growth = np.diff(values)
        if (growth < 0.0).any():
            row = int(np.argmax(growth < 0.0)) + 2
            rule = "a running total fell: the meter ran backwards or wrapped"
            fix = "Leave the readings before it out"
            raise TraceError(problem(f"{path.name}: column {name!r} row {row}", float(values[row - 1]), rule, fix))
        return growth

    columns: dict[str, list[float | str]] = {"seconds": seconds.tolist()}
    for column, patterns in WINDOW.items():
        names = [name for pattern in patterns for name in recording.names if _fits(name, pattern)]
        if column == "energy_j" and any(name.startswith("nvml/") for name in names):
            # The same GPUs, read twice.
            names = [name for name in names if not name.startswith("dcgm/")]
        named = [name for name in names if not np.isnan(recording.column(name)).all()]
        if named:
            columns[column] = np.sum([grown(name) for name in named], axis=0).tolist()
    for column, name in RATES.items():
        if name in recording.names and not np.isnan(recording.column(name)).all():
            columns[column] = (grown(name) / seconds).tolist()
    levels = {column: _level(recording, endings) for column, endings in LEVELS.items()}
    if levels["memory_bandwidth"] is None and levels["dram_active"] is not None and gpu is not None:
        levels["memory_bandwidth"] = levels["dram_active"] * known_gpu(gpu).bandwidth_bytes_per_s
    columns |= {column: level.tolist() for column, level in levels.items() if level is not None}
    worked = np.array(columns["samples"], dtype=np.float64) > 0.0
    columns["task"] = [task if works else IDLE for works in worked.tolist()]
    if "machine" in recording.labels:
        columns["machine"] = list(recording.labels["machine"][1:])
    return columns


def _fits(name: str, pattern: str) -> bool:
    first, star, last = pattern.partition("*")
    return name == pattern if not star else name.startswith(first) and name.endswith(last) and name != first + last[1:]


def _level(read: Recording, endings: tuple[str, ...]) -> FloatArray | None:
    """Level in every window, the mean of its two readings: traffic summed over GPUs, shares their mean."""
    ends = [name for name in read.names if "/" in name and name.rsplit("/", 1)[1] in endings]
    names = [name for name in ends if not np.isnan(read.column(name)).any()]
    if any(name.startswith("dcgm/") for name in names):
        names = [name for name in names if name.startswith("dcgm/")]
    if not names:
        return None
    values = read.select(names)
    each: FloatArray = values.mean(axis=1) if endings[0].endswith("active") else values.sum(axis=1)
    return np.asarray((each[1:] + each[:-1]) / 2.0)


def _is_recording(path: Path) -> bool:
    """Whether a file is a recorder's."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        try:
            return b"attribution_sched" in (pyarrow.parquet.read_schema(path).metadata or {})
        except (pyarrow.ArrowException, OSError):
            return False
    try:
        with path.open(encoding="utf-8") as stream:
            return "attribution-sched recording" in stream.readline()
    except (OSError, UnicodeDecodeError):
        return False


def load_runs(path: str | Path, *, gpu: str | None = None) -> MeasuredRuns:
    """Read a table of runs, or a recorder's raw series, ``.csv`` or ``.parquet``.

    Args:
        path: The file.
        gpu: Name of the GPU of a raw series.

    Raises:
        TraceError: If a column is unknown or missing, a cell is no number or negative (a meter that ran backwards), a
            throughput is zero, or runs of several machines are in one file.
    """
    path = Path(path)
    if _is_recording(path):
        table: dict[str, list[object]] = dict(recorded_runs(path, gpu=gpu))  # type: ignore[arg-type]
    else:
        table, _ = read_table(path)
    units = {**NUMBERS, **{name: COUNTER_UNITS[name] for name in DEMAND_NAMES}}
    for name in table:
        if name not in units and name not in TEXTS and name not in COUNTER_UNITS:
            raise TraceError(problem(f"{path.name}: column", name, "is none of a table of runs", nearest(name, units)))
    for name in ("seconds", "samples"):
        if name not in table:
            raise TraceError(
                problem(f"{path.name}: column", name, "is missing", "Say how long a run was and what it did")
            )
    columns = {
        name: Column(name, unit, missing_ok=name not in ("seconds", "energy_j"))
        for name, unit in units.items()
        if name in table
    }
    labels = tuple(name for name in TEXTS if name in table)
    recording = as_recording(path, table, ColumnMap(columns, labels=labels))
    n = len(recording)
    names = recording.labels.get("task", tuple(f"run {row + 1}" for row in range(n)))
    machines = sorted(set(recording.labels.get("machine", ("",) * n)))
    if len(machines) > 1:
        rule = "runs of several machines are in one file, and each has its own prices"
        raise TraceError(problem(f"{path.name}: machine", machines, rule, "Write one file for each"))

    def number(name: str, otherwise: float) -> FloatArray:
        return (
            np.nan_to_num(recording.column(name), nan=otherwise) if name in recording.names else np.full(n, otherwise)
        )

    seconds, samples = number("seconds", 0.0), number("samples", 0.0)
    idle, notes = np.array([name == IDLE for name in names]), []
    _refuse(path, "seconds", seconds, seconds > 0.0, "a window takes time")
    _refuse(path, "samples", samples, idle | (samples > 0.0), "a throughput of zero has no joules per sample")
    cpu, machine_cpu = number("cpu_seconds", np.nan), number("machine_cpu_seconds", np.nan)
    if "energy_j" in recording.names:
        metered, joules = "J", number("energy_j", 0.0)
        idle_w = float((joules[idle] / seconds[idle]).mean()) if idle.any() else 0.0
        notes.append(f"idle {idle_w:.4g} W, measured in {int(idle.sum())} windows" if idle.any() else
                     "no idle window: idle draw is inside the parts")  # fmt: skip
        shared = np.isfinite(cpu) & (machine_cpu > 0.0)
        share = np.minimum(np.divide(cpu, machine_cpu, out=np.ones(n), where=shared), 1.0)
        if (share < 1.0).any():
            notes.append("joules of the socket shared by CPU-seconds")
        resting = np.minimum(idle_w * seconds, joules)
        task_joules = share * joules
        resting = share * resting
    else:
        _refuse(path, "cpu_seconds", cpu, idle | (cpu > 0.0), "without a meter CPU-seconds are what is metered")
        metered, task_joules, idle_w, resting = "CPU-s", cpu, 0.0, np.zeros(n)
        notes.append("no meter: CPU-seconds are the metered quantity, no joules are known")
    counters = np.column_stack(
        [recording.column(c) if c in recording.names else np.full(n, np.nan) for c in DEMAND_NAMES]
    )
    runs = ~idle
    each = samples[runs]
    return MeasuredRuns(
        tuple(name for name, rests in zip(names, idle, strict=True) if not rests), counters[runs], each / seconds[runs],
        number("training", 1.0)[runs] > 0.0, task_joules[runs] / each, resting[runs] / each, idle_w, metered,
        machines[0], tuple(notes),
    )  # fmt: skip


def _refuse(path: Path, name: str, values: FloatArray, good: BoolArray, rule: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise TraceError(
            problem(f"{path.name}: column {name!r} row {row + 1}", float(values[row]), rule, "Repair or drop it")
        )
