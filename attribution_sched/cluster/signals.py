"""What changes outside the cluster: electricity price, carbon intensity, capacity. One protocol for all of them.

    signal.at(time_s)                    the value at a moment
    signal.forecast(time_s, horizon_s)   what is expected ``horizon_s`` later, seen from that moment, and its error

Four kinds: a constant, a recorded series, a live source (any callable), and the fitted profile of a grid. Errors of
forecasts are one standard deviation in the signal's own unit.

Carbon here always means the location-based *average* intensity of a grid in gCO2 per kWh: grams that are accounted, not
grams that a decision avoids (that would be the marginal intensity). Embodied carbon is not part of it.

The profile of a grid (``constants/grids.json``, fitted to four US grids of 2022) is::

    c(t) = year(t) · day(season, hour) + r(t),   r an AR(1) process by the hour

and its forecast is the profile plus what is left of the residual: ``phi^h · r``, error ``sigma · sqrt(1 − phi^2h)``.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.errors import SettingsError, TraceError, nearest, problem
from attribution_sched.types import FloatArray

HOUR_S, DAY_S = 3600.0, 86_400.0
YEAR_H = 8760
"""Hours of the year that profiles of grids are fitted to."""

SEASON_H = YEAR_H / 4
"""Length of a season in hours; the first begins with the year."""


SERIES_PERSISTENCE = 0.95
"""Share of a recorded signal's deviation from its forecast that is left an hour later; assumed, the fitted grids have
0.95 to 0.99."""


class Forecast(NamedTuple):
    """What is expected, and one standard deviation of how far off that is."""

    value: float
    error: float


@runtime_checkable
class Signal(Protocol):
    """A number that depends on the time since the start of the run, in seconds."""

    def at(self, time_s: float) -> float:
        """The value at a moment."""

    def forecast(self, time_s: float, horizon_s: float) -> Forecast:
        """What is expected ``horizon_s`` after ``time_s``, from what is known at ``time_s``."""

    @property
    def persistence(self) -> float:
        """Share of a deviation from the forecast that is left an hour later."""


def _check_time(time_s: float, horizon_s: float = 0.0) -> None:
    if not (math.isfinite(time_s) and time_s >= 0):
        raise SettingsError(problem("time_s", time_s, "must be finite and >= 0", "Count from the start of the run"))
    if not (math.isfinite(horizon_s) and horizon_s >= 0):
        raise SettingsError(problem("horizon_s", horizon_s, "must be finite and >= 0", "Look ahead, not back"))


@dataclass(frozen=True)
class Constant:
    """Always the same.

    Attributes:
        value: The value.
    """

    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise SettingsError(problem("signal value", self.value, "must be finite", "Give a number"))

    def at(self, time_s: float) -> float:
        """The value."""
        _check_time(time_s)
        return self.value

    def forecast(self, time_s: float, horizon_s: float) -> Forecast:
        """The value, known exactly."""
        _check_time(time_s, horizon_s)
        return Forecast(self.value, 0.0)

    @property
    def persistence(self) -> float:
        """Nothing deviates."""
        return 0.0


DAY = "a day that repeats"
"""Source of a series that is meant to begin again every day, such as a tariff: it is known ahead."""


@dataclass(frozen=True)
class Series:
    """Recorded values, each in force from its time to the next; after the last the series begins again.

    A forecast knows the past only: it is what the series had one day earlier at the same hour (or has now, on the first
    day), and its error is how far off that rule was over the past, one standard deviation. A day that repeats is known
    ahead, without error.

    Attributes:
        times_s: When each value begins, ascending from 0, shape ``(n,)``.
        values: The values, same shape.
        period_s: When the series begins again.
        source: Where it comes from.
    """

    times_s: tuple[float, ...]
    values: tuple[float, ...]
    period_s: float
    source: str = "given as values"

    def __post_init__(self) -> None:
        if not self.times_s or len(self.times_s) != len(self.values):
            given = f"{len(self.times_s)} times, {len(self.values)} values"
            raise TraceError(problem("signal", given, "must have one value for each time", "Add what is missing"))
        if self.times_s[0] != 0.0 or list(self.times_s) != sorted(set(self.times_s)):
            rule = "must begin at 0 and rise"
            raise TraceError(problem("times_s", self.times_s[:4], rule, "Sort the rows and remove repeats"))
        if not all(math.isfinite(v) for v in (*self.times_s, *self.values)):
            at = next(i for i, v in enumerate(self.values) if not math.isfinite(v))
            raise TraceError(problem(f"values[{at}]", self.values[at], "must be finite", "Fill the gap"))
        if not self.period_s > self.times_s[-1]:
            rule = f"must lie after the last time, {self.times_s[-1]:g}"
            raise TraceError(problem("period_s", self.period_s, rule, "Give the length of the recording"))

    @classmethod
    def hourly(cls, values: Sequence[float], source: str = "given as values") -> Series:
        """One value an hour."""
        times = tuple(HOUR_S * i for i in range(len(values)))
        return cls(times, tuple(float(v) for v in values), HOUR_S * len(values), source)

    @classmethod
    def from_csv(cls, path: str | Path, column: str = "value", longest_gap_s: float | None = None) -> Series:
        """Read ``time_s`` and a column of values; times ascend, and the first row is the start of the run.

        Args:
            path: The file.
            column: Which column holds the values.
            longest_gap_s: Two rows further apart than this are a gap and an error; by default half as long again
                as rows are usually apart, and a day at most.

        Raises:
            TraceError: The file cannot be read, a column is missing, a value is below 0 or none, or there is a gap.
        """
        from attribution_sched.cluster.wan import read_trace_rows

        times: list[float] = []
        values: list[float] = []
        lines: list[int] = []
        for line, cells in read_trace_rows(path, ("time_s", column)):
            where = f"{path}, line {line}: "
            numbers = []
            for name in ("time_s", column):
                try:
                    value = float(cells[name])
                except ValueError:
                    value = math.nan
                if not math.isfinite(value):
                    raise TraceError(where + problem(name, cells[name], "must be a finite number", "Fill the gap"))
                numbers.append(value)
            if numbers[0] < 0.0:
                raise TraceError(where + problem("time_s", numbers[0], "must be >= 0", "Count from the first row"))
            if numbers[1] < 0.0:
                fix = "Put 0 where a market paid for taking power; a grid's average intensity is never negative"
                raise TraceError(where + problem(column, numbers[1], "must be >= 0", fix))
            if times and numbers[0] <= times[-1]:
                rule = f"must lie after the row before it, {times[-1]:g}"
                raise TraceError(where + problem("time_s", numbers[0], rule, "Sort the rows and remove repeats"))
            times.append(numbers[0])
            values.append(numbers[1])
            lines.append(line)
        if not times:
            raise TraceError(problem("signal", str(path), "must hold at least one row", "Record some values"))
        apart = np.diff(times)
        usual_s = float(np.quantile(apart, 0.5, method="lower")) if len(apart) else HOUR_S
        longest_s = min(1.5 * usual_s, DAY_S) if longest_gap_s is None else longest_gap_s
        if (apart > longest_s).any():
            at = int(np.argmax(apart > longest_s))
            rule = f"leaves a gap of {apart[at]:g} s, longer than {longest_s:g}; rows are usually {usual_s:g} s apart"
            raise TraceError(f"{path}, line {lines[at + 1]}: " + problem("time_s", times[at + 1], rule, "Fill the gap"))
        step = times[-1] - times[-2] if len(times) > 1 else HOUR_S
        return cls(tuple(t - times[0] for t in times), tuple(values), times[-1] - times[0] + step, str(path))

    def at(self, time_s: float) -> float:
        """The value in force."""
        _check_time(time_s)
        return self.values[bisect.bisect_right(self.times_s, time_s % self.period_s) - 1]

    def forecast(self, time_s: float, horizon_s: float) -> Forecast:
        """The value at the same hour of the last day that is known; see the class."""
        _check_time(time_s, horizon_s)
        if horizon_s == 0 or self.source == DAY:
            return Forecast(self.at(time_s + horizon_s), 0.0)
        days = math.ceil(horizon_s / DAY_S)
        then = time_s + horizon_s - days * DAY_S
        value = self.at(then) if then >= 0 else self.at(time_s)
        known = np.arange(0.0, time_s - days * DAY_S + 1e-9, HOUR_S)
        if len(known) < 2:
            return Forecast(value, float(np.std(self._many(np.arange(0.0, time_s + HOUR_S, HOUR_S)))))
        off = self._many(known + days * DAY_S) - self._many(known)
        return Forecast(value, float(np.sqrt(np.mean(np.square(off)))))

    def _many(self, times_s: FloatArray) -> FloatArray:
        rows = np.searchsorted(self.times_s, times_s % self.period_s, side="right") - 1
        return np.asarray(self.values)[rows]

    @property
    def persistence(self) -> float:
        """Assumed: a day that is off stays off for hours."""
        return SERIES_PERSISTENCE


@dataclass(frozen=True)
class Scaled:
    """Another signal times a factor: for questions of what if it were higher or lower.

    Attributes:
        signal: The other one.
        factor: What it is multiplied by.
    """

    signal: Signal
    factor: float

    def at(self, time_s: float) -> float:
        """The value at a moment."""
        return self.factor * self.signal.at(time_s)

    def forecast(self, time_s: float, horizon_s: float) -> Forecast:
        """The other's, its error too."""
        found = self.signal.forecast(time_s, horizon_s)
        return Forecast(self.factor * found.value, self.factor * found.error)

    @property
    def persistence(self) -> float:
        """The other's."""
        return self.signal.persistence


MOST = 1e15
"""Largest number that is taken from a source outside, as from settings: beyond it sums lose their digits."""


@dataclass
class Live:
    """A source outside: a price feed, a carbon API, a file that somebody keeps up to date.

    Without a usual value it is asked when its value is needed, and remembered. With one it is asked by whoever runs a
    real cluster, once an hour (:meth:`ask`), and everybody reads what was noted last: a decision waits for no answer,
    and going through the journal again gives the same numbers. A simulation holds the usual value.

    A forecast is the last value; its error grows with the root of the horizon from the steps seen so far.

    Attributes:
        read: Called without arguments; returns the value now.
        name: What to call it in errors.
        usual: What holds until it is first asked.
    """

    read: Callable[[], float]
    name: str = "live signal"
    usual: float | None = None
    _seen: list[tuple[float, float]] = field(default_factory=list, repr=False)

    @classmethod
    def from_file(cls, path: str | Path, usual: float) -> Live:
        """The last number of a text file, read anew every hour: whatever brings it there keeps it up to date."""
        return cls(partial(_last_number, Path(path)), str(path), usual)

    @property
    def only_noted(self) -> bool:
        """Whether readers go by what was noted, and never ask."""
        return self.usual is not None

    def at(self, time_s: float) -> float:
        """The value now; without a usual value asked once for each moment."""
        _check_time(time_s)
        if self._seen and (self.usual is not None or time_s <= self._seen[-1][0]):
            past = bisect.bisect_right(self._seen, time_s, key=lambda seen: seen[0]) - 1
            return self._seen[past][1] if past >= 0 or self.usual is None else self.usual
        return self.usual if self.usual is not None else self.note(time_s, self.ask())

    def ask(self) -> float:
        """What the source says now.

        Raises:
            SettingsError: If that is no number from 0 to :data:`MOST`.
        """
        value = float(self.read())
        if not 0.0 <= value <= MOST:
            raise SettingsError(problem(self.name, value, f"must be a number from 0 to {MOST:g}", "Mend the source"))
        return value

    def note(self, time_s: float, value: float) -> float:
        """Remember what it said at a moment, the last word of it; what was before that stays. Returns the value."""
        if self._seen and time_s == self._seen[-1][0]:
            # The clock of a cluster stands while nothing runs, and the source may have news.
            self._seen[-1] = time_s, value
        elif not self._seen or time_s > self._seen[-1][0]:
            self._seen.append((time_s, value))
        return value

    def forecast(self, time_s: float, horizon_s: float) -> Forecast:
        """The value now, and how far such values have wandered in as long a time."""
        value = self.at(time_s)
        _check_time(time_s, horizon_s)
        seen = [each for each in self._seen if each[0] <= time_s]
        if len(seen) < 3:
            return Forecast(value, abs(value) if horizon_s > 0 else 0.0)
        times, values = (np.array(column) for column in zip(*seen, strict=True))
        # Steps over all the time they took: two readings a second apart, as when a run is resumed, say little.
        rate = float((np.diff(values) ** 2).sum()) / (times[-1] - times[0])
        return Forecast(value, math.sqrt(rate * horizon_s))

    @property
    def persistence(self) -> float:
        """It wanders: what is off stays off."""
        return 1.0


def _last_number(path: Path) -> float:
    if path.exists() and not path.is_file():
        # Reading a pipe would wait for whoever writes into it.
        raise OSError(f"{path} is no regular file")
    words = path.read_text(encoding="utf-8").replace(",", " ").split()
    return float(words[-1]) if words else math.nan


@dataclass(frozen=True)
class Grid:
    """Carbon intensity of a grid by its fitted profile, gCO2/kWh.

    Attributes:
        name: One of :func:`grid_names`.
        seed: Seed of the hours' deviations from the profile; None for the profile alone.
        start_h: Hour of the year (UTC) at which the run begins.
    """

    name: str
    seed: int | None = None
    start_h: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in grid_names():
            raise SettingsError(problem("grid", self.name, "has no fitted profile", nearest(self.name, grid_names())))

    @property
    def annual_mean(self) -> float:
        """Mean over the year."""
        mean: float = load_constants("grids")["grids"][self.name]["mean"]
        return mean

    def profile(self, time_s: float) -> float:
        """What the hour of the day and of the year lead to expect."""
        law = load_constants("grids")["grids"][self.name]
        hour = (self.start_h + time_s / HOUR_S) % YEAR_H
        year: float = (
            1.0
            + law["year"][0] * math.cos(math.tau * hour / YEAR_H)
            + law["year"][1] * math.sin(math.tau * hour / YEAR_H)
        )
        day: float = law["day"][int(hour // SEASON_H)][int(hour % 24)]
        return max(0.0, float(law["mean"] * year * day))

    def at(self, time_s: float) -> float:
        """Profile and deviation of the hour."""
        _check_time(time_s)
        return max(0.0, self.profile(time_s) + self._residual(time_s))

    def forecast(self, time_s: float, horizon_s: float) -> Forecast:
        """Profile of the hour ahead and what is left of the deviation now."""
        _check_time(time_s, horizon_s)
        law = load_constants("grids")["grids"][self.name]
        left = law["phi"] ** (horizon_s / HOUR_S)
        value = max(0.0, self.profile(time_s + horizon_s) + left * self._residual(time_s))
        return Forecast(value, law["sigma"] * math.sqrt(max(0.0, 1.0 - left * left)))

    @property
    def persistence(self) -> float:
        """Of the fitted residual."""
        phi: float = load_constants("grids")["grids"][self.name]["phi"]
        return phi

    def _residual(self, time_s: float) -> float:
        if self.seed is None:
            return 0.0
        return float(_residuals(self.name, self.seed)[int(time_s // HOUR_S) % YEAR_H])


@cache
def _residuals(name: str, seed: int) -> FloatArray:
    """A year of hourly deviations, stationary from the first hour on, shape ``(8760,)``."""
    law = load_constants("grids")["grids"][name]
    noise = np.random.default_rng(seed).standard_normal(YEAR_H)
    out = np.empty(YEAR_H)
    out[0] = law["sigma"] * noise[0]
    step = law["sigma"] * math.sqrt(1.0 - law["phi"] ** 2)
    for i in range(1, YEAR_H):
        out[i] = law["phi"] * out[i - 1] + step * noise[i]
    return out


def grid_names() -> tuple[str, ...]:
    """Grids with a fitted profile."""
    return tuple(load_constants("grids")["grids"])


def mean_over(signal: Signal, start_s: float, end_s: float) -> float:
    """Mean of a signal over a window, by the hour."""
    _check_time(start_s)
    if not end_s > start_s:
        raise SettingsError(problem("end_s", end_s, f"must lie after {start_s:g}", "Give a window"))
    edges = np.arange(start_s, end_s, HOUR_S)
    weights = np.minimum(edges + HOUR_S, end_s) - edges
    return float(np.average([signal.at(float(t)) for t in edges], weights=weights))


def possible(signal: Signal, time_s: float, normals: FloatArray) -> FloatArray:
    """Futures of a signal as they may come, seen from a moment: its forecasts and deviations that persist.

    Args:
        signal: The signal; only what is known at ``time_s`` is asked of it.
        time_s: The moment.
        normals: Standard normal numbers, shape ``(n, hours)``; the first hour is the present one and is known.

    Returns:
        Values hour by hour, none below zero, shape ``(n, hours)``.
    """
    found, off = np.empty_like(normals), np.zeros(len(normals))
    error, left = 0.0, signal.persistence
    for h in range(normals.shape[1]):
        ahead = signal.forecast(time_s, h * HOUR_S)
        # So that an hour's deviation has the forecast's error, whatever is left of the hour before.
        fresh = math.sqrt(max(0.0, ahead.error**2 - (left * error) ** 2))
        off, error = left * off + fresh * normals[:, h], ahead.error
        found[:, h] = np.maximum(0.0, ahead.value + off)
    return found


def asked_at(signal: Signal, hour_s: float, now_s: float) -> float:
    """The moment to ask a signal from, for the hour in force and those after it: when that hour began.

    What is noted of a live source is noted within an hour and holds at once, so it is asked from now.

    Args:
        signal: The signal.
        hour_s: When the hour in force began.
        now_s: Now.
    """
    while isinstance(signal, Scaled):
        signal = signal.signal
    return now_s if isinstance(signal, Live) and signal.only_noted else hour_s


def by_hour(signal: Signal, hours: int) -> FloatArray:
    """Values of a signal at the start of every hour of the run, shape ``(hours,)``; not to be changed.

    The hours of a simulation do not come from a live source: its usual value holds, or what it says when it is asked.
    """
    if isinstance(signal, Live):
        return np.full(hours, usual(signal))
    return _grid_by_hour(signal, hours) if isinstance(signal, Grid) else _by_hour(signal, hours)


def _by_hour(signal: Signal, hours: int) -> FloatArray:
    return np.array([signal.at(h * HOUR_S) for h in range(hours)])


@lru_cache(maxsize=256)
def _grid_by_hour(grid: Grid, hours: int) -> FloatArray:
    """The same of a grid, once: its numbers follow from its fields, and every copy of a cluster asks for a year."""
    found = _by_hour(grid, hours)
    found.flags.writeable = False
    return found


def usual(signal: Signal) -> float:
    """What a table says of a signal: its mean over the year or the recording; of a live one its usual value, or now."""
    if isinstance(signal, Live) and signal.usual is not None:
        return signal.usual
    if isinstance(signal, Grid):
        return signal.annual_mean
    if isinstance(signal, Series):
        return mean_over(signal, 0.0, signal.period_s)
    return signal.at(0.0)
