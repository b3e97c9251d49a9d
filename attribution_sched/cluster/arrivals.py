"""When tasks arrive: a Poisson process, one that follows the hours of the day, either with a burst, or a trace file.

All three reduce to an :class:`ArrivalSpec`, numbers and arrays only, so that a compiled environment can ask
:func:`next_arrival` for the next time with the cluster's own random stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import SeedSequence

from attribution_sched.cluster.streams import StreamState, exponential, seed_stream, uniform
from attribution_sched.cluster.wan import number, read_trace_rows, row_error
from attribution_sched.errors import SettingsError, TraceError, nearest, problem
from attribution_sched.kernels import kernel
from attribution_sched.limits import name_rule
from attribution_sched.types import FloatArray

HOUR_S = 3600.0
DAY_S = 24.0 * HOUR_S
TRACE_COLUMNS = ("arrival_s", "model", "steps", "batch_size", "priority", "tenant")
OPTIONAL_COLUMNS = ("mode", "gpus", "duration_s")
MODES = ("training", "inference")


class ArrivalKind(IntEnum):
    """The process behind an :class:`ArrivalSpec`, as the kernels see it."""

    POISSON = 0
    DIURNAL = 1
    TRACE = 2


class ArrivalSpec(NamedTuple):
    """An arrival process as plain numbers.

    Attributes:
        kind: A value of :class:`ArrivalKind`.
        params: Shape ``(9,)``: mean rate per second, amplitude, peak and period in seconds; start and end in seconds
            and factor of a burst, the factor 1 without one; chance that one more task of the same session follows, and
            its mean gap in seconds, 0 without sessions.
        times_s: Recorded arrival times, sorted, shape ``(n,)``; empty unless the kind is ``TRACE``.
    """

    kind: int
    params: FloatArray
    times_s: FloatArray

    def times(self, horizon_s: float, seed: int | SeedSequence = 0) -> FloatArray:
        """Return every arrival in ``[0, horizon_s)``, sorted."""
        if not (math.isfinite(horizon_s) and horizon_s >= 0):
            fix = "Give the length of the run in seconds"
            raise SettingsError(problem("horizon_s", horizon_s, "must be finite and >= 0", fix))
        state = seed_stream(seed)
        count: int = _walk(*self, horizon_s, state.copy(), np.empty(0))
        times = np.empty(count)
        _walk(*self, horizon_s, state, times)
        return times


@dataclass(frozen=True)
class Burst:
    """Hours in which more tasks (or fewer) arrive than otherwise.

    Attributes:
        start_h: When it begins, hours from the start of the run.
        end_h: When it is over.
        factor: What the rate is multiplied by.
    """

    start_h: float
    end_h: float
    factor: float

    def __post_init__(self) -> None:
        """Check window and factor."""
        if not (math.isfinite(self.start_h) and self.start_h >= 0):
            fix = "Count hours from the start of the run"
            raise SettingsError(problem("burst start_h", self.start_h, "must be finite and >= 0", fix))
        if not (math.isfinite(self.end_h) and self.end_h > self.start_h):
            rule = f"must be finite and lie after its start, {self.start_h:g}"
            raise SettingsError(problem("burst end_h", self.end_h, rule, "Give the hour at which it is over"))
        if not (math.isfinite(self.factor) and self.factor > 0):
            fix = "Use 3.0 for three times as many tasks"
            raise SettingsError(problem("burst factor", self.factor, "must be finite and > 0", fix))


@dataclass(frozen=True)
class Poisson:
    """Arrivals at a constant mean rate.

    Attributes:
        rate_per_hour: Mean number of tasks per hour.
        burst: Hours with another rate.
    """

    rate_per_hour: float
    burst: Burst | None = None

    def __post_init__(self) -> None:
        """Check the rate."""
        _check_rate(self.rate_per_hour)

    def spec(self) -> ArrivalSpec:
        """Return the form the kernels take."""
        return spec_of(ArrivalKind.POISSON, self.rate_per_hour, burst=self.burst)

    def times(self, horizon_s: float, seed: int | SeedSequence = 0) -> FloatArray:
        """Return every arrival in ``[0, horizon_s)``, sorted."""
        return self.spec().times(horizon_s, seed)


@dataclass(frozen=True)
class Diurnal:
    """A Poisson process whose rate follows the day: ``rate · (1 + amplitude · cos(2π (h − peak)/24))``.

    Attributes:
        rate_per_hour: Mean number of tasks per hour over a day.
        amplitude: Swing around the mean, in [0, 1]; at 1 the quietest moment has no arrivals.
        peak_hour: Hour of the day with most arrivals, in [0, 24). Time 0 is midnight.
        burst: Hours in which that rate is multiplied once more.
    """

    rate_per_hour: float
    amplitude: float = 0.5
    peak_hour: float = 14.0
    burst: Burst | None = None

    def __post_init__(self) -> None:
        """Check rate, amplitude and peak."""
        _check_rate(self.rate_per_hour)
        if not 0 <= self.amplitude <= 1:
            fix = "A larger swing would make the rate negative"
            raise SettingsError(problem("amplitude", self.amplitude, "must lie in [0, 1]", fix))
        if not 0 <= self.peak_hour < 24:
            raise SettingsError(problem("peak_hour", self.peak_hour, "must lie in [0, 24)", "Give an hour of the day"))

    def spec(self) -> ArrivalSpec:
        """Return the form the kernels take."""
        return spec_of(ArrivalKind.DIURNAL, self.rate_per_hour, self.amplitude, self.peak_hour * HOUR_S, self.burst)

    def times(self, horizon_s: float, seed: int | SeedSequence = 0) -> FloatArray:
        """Return every arrival in ``[0, horizon_s)``, sorted."""
        return self.spec().times(horizon_s, seed)


@dataclass(frozen=True)
class ArrivalRow:
    """One task of a trace file.

    Attributes:
        arrival_s: Seconds after the start of the run.
        model: Name of the model, as the file has it.
        steps: Amount of work in steps.
        batch_size: Samples per step.
        priority: Larger is more urgent.
        tenant: Who asked for it.
        mode: ``training`` or ``inference``.
        gpus: Devices it held where it was recorded; 0 if the trace does not say.
        duration_s: How long it ran there; 0 if the trace does not say.
    """

    arrival_s: float
    model: str
    steps: int
    batch_size: int
    priority: int
    tenant: str
    mode: str = "training"
    gpus: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True)
class TraceArrivals:
    """Recorded tasks, replayed at their recorded times.

    Attributes:
        rows: The tasks, in order of arrival; tasks may arrive together.
        source: Where they come from.
    """

    rows: tuple[ArrivalRow, ...]
    source: str = "given as rows"

    def __post_init__(self) -> None:
        """Check that there are tasks and that time runs forward."""
        times = [row.arrival_s for row in self.rows]
        if not times:
            raise TraceError(problem("rows", (), "must hold at least one task", "Record some tasks"))
        if not all(math.isfinite(t) and t >= 0 for t in times) or times != sorted(times):
            rule = "must be finite, >= 0 and not decreasing"
            raise TraceError(problem("arrival_s", times[:5], rule, "Sort the tasks by arrival_s"))

    @classmethod
    def from_csv(cls, path: str | Path) -> TraceArrivals:
        """Read a trace: ``arrival_s, model, steps, batch_size, priority, tenant[, mode, gpus, duration_s]``.

        A column of another name is an error: a misspelt one would be lost in silence.

        Raises:
            TraceError: If the file cannot be read or a row is wrong; the message names file and line.
        """
        rows: list[ArrivalRow] = []
        for line, cells in read_trace_rows(path, TRACE_COLUMNS):
            strange = [name for name in cells if name not in (*TRACE_COLUMNS, *OPTIONAL_COLUMNS)]
            if strange and not rows:
                known = (*TRACE_COLUMNS, *OPTIONAL_COLUMNS)
                raise row_error(path, 1, "header", strange[0], "is no column of a trace", nearest(strange[0], known))
            row = _row(path, line, cells)
            if rows and row.arrival_s < rows[-1].arrival_s:
                rule = f"must not be earlier than {rows[-1].arrival_s}, the row before it"
                raise row_error(path, line, "arrival_s", cells["arrival_s"], rule, "Sort the file by arrival_s")
            rows.append(row)
        return cls(tuple(rows), source=str(path))

    def spec(self) -> ArrivalSpec:
        """Return the form the kernels take; row ``i`` is the ``i``-th arrival."""
        return spec_of(ArrivalKind.TRACE, 0.0, times_s=np.array([row.arrival_s for row in self.rows]))

    def times(self, horizon_s: float, seed: int | SeedSequence = 0) -> FloatArray:
        """Return every arrival in ``[0, horizon_s)``, sorted; a trace does not use the seed."""
        return self.spec().times(horizon_s, seed)


@kernel
def next_arrival(
    kind: int, params: FloatArray, times_s: FloatArray, taken: int, now_s: float, state: StreamState
) -> float:
    """Return the time of the next arrival, or infinity if a trace has ended.

    Args:
        kind: Field of :class:`ArrivalSpec`, as are the next two.
        params: Mean rate per second, amplitude, peak and period in seconds; start, end and factor of a burst; chance
            and gap of one more task of a session.
        times_s: Recorded times.
        taken: How many tasks have arrived so far; a trace looks at it, so that tasks which arrive at the same moment
            are all seen, and sessions, which begin with a task.
        now_s: Time of the last arrival (0 at the start); a trace does not look at it.
        state: Random stream, advanced in place; a trace leaves it alone.
    """
    if kind == 2:
        recorded: float = times_s[taken] if taken < times_s.size else np.inf
        return recorded
    if params[7] > 0.0 and taken > 0 and uniform(state) < params[7]:
        soon: float = now_s + exponential(state) * params[8]
        return soon
    rate = params[0]
    factor = params[6]
    if kind == 0 and factor == 1.0:
        constant: float = now_s + exponential(state) / rate
        return constant
    # Thinning: candidates at the peak rate, each kept with the share of the rate at its time.
    amplitude, peak_s, period_s = params[1], params[2], params[3]
    most = (1.0 + amplitude) * max(1.0, factor)
    time_s: float = now_s
    while True:
        time_s += exponential(state) / (rate * most)
        here = 1.0 + amplitude * math.cos(2.0 * math.pi * (time_s - peak_s) / period_s)
        if params[4] <= time_s < params[5]:
            here *= factor
        if uniform(state) * most < here:
            return time_s


@kernel
def _walk(
    kind: int, params: FloatArray, times_s: FloatArray, horizon_s: float, state: StreamState, out: FloatArray
) -> int:
    """Count the arrivals before the horizon; write as many as ``out`` holds."""
    count = 0
    time_s = next_arrival(kind, params, times_s, 0, 0.0, state)
    while time_s < horizon_s:
        if count < out.size:
            out[count] = time_s
        count += 1
        time_s = next_arrival(kind, params, times_s, count, time_s, state)
    return count


def spec_of(
    kind: ArrivalKind, rate_per_hour: float, amplitude: float = 0.0, peak_s: float = 0.0,
    burst: Burst | None = None, times_s: FloatArray | None = None, session: tuple[float, float] = (0.0, 0.0),
) -> ArrivalSpec:  # fmt: skip
    """Put an arrival process into the form the kernels take; ``session`` is the chance and gap of one more task."""
    extra = (0.0, 0.0, 1.0) if burst is None else (burst.start_h * HOUR_S, burst.end_h * HOUR_S, burst.factor)
    params = np.array([rate_per_hour / HOUR_S, amplitude, peak_s, DAY_S, *extra, *session])
    return ArrivalSpec(int(kind), params, np.empty(0) if times_s is None else times_s)


def _check_rate(rate_per_hour: float) -> None:
    if not (math.isfinite(rate_per_hour) and rate_per_hour > 0):
        fix = "Give the mean number of tasks per hour"
        raise SettingsError(problem("rate_per_hour", rate_per_hour, "must be finite and > 0", fix))


def _row(path: str | Path, line: int, cells: dict[str, str]) -> ArrivalRow:
    def integer(column: str, holds: Callable[[float], bool], rule: str) -> int:
        value = number(path, line, column, cells[column])
        if value != int(value) or not holds(value):
            raise row_error(path, line, column, cells[column], f"must be a whole number{rule}", "Mend the line")
        return int(value)

    arrival_s = number(path, line, "arrival_s", cells["arrival_s"])
    if arrival_s < 0:
        raise row_error(path, line, "arrival_s", cells["arrival_s"], "must be >= 0", "Count from the start of the run")
    for column in ("model", "tenant"):
        rule = name_rule(cells[column])
        if rule is not None:
            raise row_error(path, line, column, cells[column], rule, f"Name the {column}")
    mode = cells.get("mode") or MODES[0]
    if mode not in MODES:
        raise row_error(path, line, "mode", mode, f"must be one of {', '.join(MODES)}", nearest(mode, MODES))
    duration_s = number(path, line, "duration_s", cells["duration_s"]) if cells.get("duration_s") else 0.0
    if duration_s < 0:
        raise row_error(path, line, "duration_s", cells["duration_s"], "must be >= 0", "Mend the line")
    return ArrivalRow(
        arrival_s=arrival_s,
        model=cells["model"],
        steps=integer("steps", lambda v: v >= 1, " >= 1"),
        batch_size=integer("batch_size", lambda v: v >= 1, " >= 1"),
        priority=integer("priority", lambda v: True, ""),
        tenant=cells["tenant"],
        mode=mode,
        gpus=integer("gpus", lambda v: v >= 0, " >= 0") if cells.get("gpus") else 0,
        duration_s=duration_s,
    )
