"""Work of a real cluster: arrivals, sizes, durations and tenants of Microsoft's Philly log.

Three forms. :class:`Philly` draws from constants fitted to the log before its test weeks (``constants/philly.json``,
made by ``calibration/fit_philly.py``): sessions of tasks whose rate follows the day, tenants by their share of tasks,
devices and duration by tenant. :class:`PhillyWeek` replays tasks of one week of the log itself, one in so many.
:class:`OpaqueTrace` replays a trace of opaque tasks, such as ``attribution-sched import`` writes for ``shared``.

The log does not say what a job computed. A model is **drawn** for each task, uniformly among the measured jobs that
were run on so many devices (:func:`attribution_sched.cluster.interference.measured_jobs`). Requests of other than 1, 2,
4 or 8 devices are rounded down to one of them, and durations are cut at a day; both change the work, and so the load is
set by the rate. What a scheduler may know of a duration is the tenant's history: :func:`believed_left_s`.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.arrivals import ArrivalKind, ArrivalRow, ArrivalSpec, spec_of
from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.interference import measured_jobs
from attribution_sched.cluster.models.opaque import REQUESTS
from attribution_sched.errors import SettingsError, TraceError, problem
from attribution_sched.types import FloatArray, IntArray

LONGEST_S = 86_400.0
"""Durations are cut here."""

TRAIN_WEEKS: tuple[str, ...] = ("2017-10-02", "2017-10-09", "2017-10-16", "2017-10-23")
TEST_WEEKS: tuple[str, ...] = ("2017-10-30", "2017-11-06", "2017-11-13", "2017-11-20")
"""Mondays; constants are fitted to what lies before the first test week."""

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


class Drawn(NamedTuple):
    """Tasks; every array has shape ``(n,)``.

    Attributes:
        tenants: Who asks.
        devices: How many are asked for.
        durations_s: Seconds alone on them.
        jobs: Row of the measured job that each was drawn to be.
    """

    tenants: tuple[str, ...]
    devices: IntArray
    durations_s: FloatArray
    jobs: IntArray


def request_of(devices: int) -> int:
    """The request that stands for so many devices."""
    return max(size for size in REQUESTS if size <= max(1, devices))


def draw_jobs(devices: IntArray, rng: np.random.Generator) -> IntArray:
    """A measured job for each task, among those that were run on as many devices, shape ``(n,)``."""
    rates = measured_jobs().steps_per_s
    found = np.zeros(len(devices), dtype=np.int64)
    for column, size in enumerate(REQUESTS):
        at = np.flatnonzero(devices == size)
        found[at] = rng.choice(np.flatnonzero(np.isfinite(rates[:, column])), size=len(at))
    return found


@dataclass(frozen=True)
class Philly:
    """Tasks like those of the log before its test weeks.

    Attributes:
        rate_per_hour: Mean number of tasks per hour.
    """

    rate_per_hour: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate_per_hour) and self.rate_per_hour > 0):
            fix = "Give the mean number of tasks per hour"
            raise SettingsError(problem("rate_per_hour", self.rate_per_hour, "must be finite and > 0", fix))

    def spec(self) -> ArrivalSpec:
        """Return the form the kernels take: sessions that begin with the hours of the day."""
        told = load_constants("philly")
        follows = float(told["session"]["chance"])
        begin = self.rate_per_hour * (1.0 - follows)
        return spec_of(
            ArrivalKind.DIURNAL, begin, float(told["day"]["amplitude"]), 3600.0 * float(told["day"]["peak_hour"]),
            session=(follows, float(told["session"]["gap_s"])),
        )  # fmt: skip

    def draw(self, count: int, rng: np.random.Generator) -> Drawn:
        """Draw tasks: tenant, then devices and duration as that tenant's are."""
        told = load_constants("philly")["tenants"]
        names = tuple(told)
        shares = np.array([told[name]["share"] for name in names])
        who = rng.choice(len(names), size=count, p=shares / shares.sum())
        devices, seconds = np.zeros(count, dtype=np.int64), np.zeros(count)
        for index, name in enumerate(names):
            at = np.flatnonzero(who == index)
            sizes = np.array(told[name]["sizes"])
            devices[at] = rng.choice(REQUESTS, size=len(at), p=sizes / sizes.sum())
            for wide in (False, True):
                own = at[(devices[at] > 1) == wide]
                seconds[own] = _from_quantiles(told[name]["wide" if wide else "single"], rng.random(len(own)))
        return Drawn(tuple(names[w] for w in who), devices, np.maximum(1.0, np.round(seconds)), draw_jobs(devices, rng))


@dataclass(frozen=True)
class PhillyWeek:
    """Tasks of one week of the log, replayed.

    Attributes:
        path: ``philly.csv``.
        monday: First day of the week, for example ``2017-11-06``.
        keep: One task in so many is kept, in order; so a cluster of few devices has the load of the many.
        seed: Of the models drawn for the tasks, and of which of the ``keep`` is kept.
        speed: How many times as fast it is played.
    """

    path: str
    monday: str
    keep: int = 4
    seed: int = 0
    speed: float = 1.0

    def __post_init__(self) -> None:
        fix = f"One of {', '.join(TRAIN_WEEKS + TEST_WEEKS)}"
        try:
            day = datetime.fromisoformat(self.monday)
        except ValueError as error:
            raise SettingsError(problem("monday", self.monday, "must be a day such as 2017-11-06", fix)) from error
        if day.weekday() != 0:
            raise SettingsError(problem("monday", self.monday, f"is a {day:%A}", fix))
        if self.keep < 1:
            raise SettingsError(problem("keep", self.keep, "must be >= 1", "Use 1 to keep every task"))

    def spec(self) -> ArrivalSpec:
        """Return the form the kernels take; row ``i`` is the ``i``-th arrival."""
        times = np.array([row[0] for row in self._rows()])
        return spec_of(ArrivalKind.TRACE, 0.0, times_s=times / self.speed)

    def draw(self) -> Drawn:
        """The tasks of the week in order of arrival."""
        rows = self._rows()
        devices = np.array([request_of(row[2]) for row in rows], dtype=np.int64)
        seconds = np.array([min(LONGEST_S, max(1.0, row[1])) for row in rows])
        return Drawn(
            tuple(row[3] for row in rows), devices, seconds, draw_jobs(devices, np.random.default_rng(self.seed))
        )

    def _rows(self) -> tuple[tuple[float, float, int, str], ...]:
        rows = _week(self.path, self.monday)
        kept = rows[self.seed % self.keep :: self.keep]
        if not kept:
            rule = f"has no task in {self.path}"
            raise TraceError(problem("monday", self.monday, rule, f"One of {', '.join(TRAIN_WEEKS + TEST_WEEKS)}"))
        return kept


@dataclass(frozen=True)
class OpaqueTrace(PhillyWeek):
    """Opaque tasks of a trace: as known and as unknown as those of a week of the log.

    A measured job is drawn for each, and what is left of one is what its tenant's history tells; a tenant that the
    Philly log does not have is taken to be like all of them together.

    Attributes:
        rows: The tasks, in order of arrival; a step is a second alone on the devices asked for.
    """

    rows: tuple[ArrivalRow, ...] = ()

    def __post_init__(self) -> None:
        """Rows were checked when they were read."""

    def draw(self) -> Drawn:
        """The tasks of the trace in order of arrival."""
        rows = self._rows()
        devices = np.array([row[2] for row in rows], dtype=np.int64)
        jobs = draw_jobs(devices, np.random.default_rng(self.seed))
        return Drawn(tuple(row[3] for row in rows), devices, np.array([row[1] for row in rows]), jobs)

    def _rows(self) -> tuple[tuple[float, float, int, str], ...]:
        return tuple(
            (row.arrival_s, float(row.steps), int(row.model.rpartition("-")[2]), row.tenant) for row in self.rows
        )


@cache
def _week(path: str, monday: str) -> tuple[tuple[float, float, int, str], ...]:
    """Seconds from Monday, duration, devices and tenant of all tasks of a week, in order of arrival."""
    begin = datetime.fromisoformat(monday)
    end, rows = begin + timedelta(days=7), []
    try:
        with Path(path).open(newline="") as file:
            reader = csv.DictReader(file)
            missing = set(COLUMNS) - set(reader.fieldnames or ())
            if missing:
                rule = f"must have the columns {', '.join(COLUMNS)}"
                raise TraceError(problem(path, sorted(missing), rule, "Use philly.csv of the Philly log"))
            for line, cells in enumerate(reader, start=2):
                try:
                    when, took = datetime.fromisoformat(cells["timestamp"]), float(cells["duration"])
                    devices = int(cells["num_gpus"])
                except ValueError as error:
                    raise TraceError(
                        problem(f"{path}, line {line}", str(error), "is no task", "Mend the line")
                    ) from error
                if took < 0 or devices < 1 or not math.isfinite(took):
                    rule = "duration must be >= 0 and num_gpus >= 1"
                    raise TraceError(problem(f"{path}, line {line}", (took, devices), rule, "Mend the line"))
                if begin <= when < end:
                    rows.append(((when - begin).total_seconds(), took, devices, cells["cluster"]))
    except OSError as error:
        raise TraceError(problem("path", path, f"cannot be read ({error})", "Give philly.csv")) from error
    return tuple(sorted(rows))


def _from_quantiles(quantiles: list[float], u: FloatArray) -> FloatArray:
    """Durations at levels ``u``, linear in their logarithm between equally spaced quantiles."""
    found: FloatArray = np.exp(np.interp(u, np.linspace(0.0, 1.0, len(quantiles)), np.log(quantiles)))
    return np.minimum(found, LONGEST_S)


@cache
def history_s(tenant: str, wide: bool | None = None) -> FloatArray:
    """Durations of a tenant's tasks as its history tells, sorted, shape ``(512,)``; of all tenants for a stranger.

    Args:
        tenant: Whose.
        wide: Only tasks of several devices, or only those of one; both by default.
    """
    told = load_constants("philly")["tenants"]
    levels = (np.arange(512) + 0.5) / 512
    if tenant in told and wide is not None:
        return _from_quantiles(told[tenant]["wide" if wide else "single"], levels)
    if tenant in told:
        own = told[tenant]
        single = own["sizes"][0] / sum(own["sizes"])
        count = round(512 * single)
        parts = [
            _from_quantiles(own[key], (np.arange(n) + 0.5) / max(1, n))
            for key, n in (("single", count), ("wide", 512 - count))
        ]
        return np.sort(np.concatenate(parts))
    drawn = Philly(1.0).draw(4096, np.random.default_rng(0))
    chosen = np.ones(4096, dtype=np.bool_) if wide is None else (drawn.devices > 1) == wide
    return np.asarray(np.quantile(drawn.durations_s[chosen], levels), dtype=np.float64)


@cache
def _longer(tenant: str, wide: bool | None = None) -> tuple[list[float], list[float]]:
    """A tenant's durations, sorted, and the mean of those from each on."""
    history = history_s(tenant, wide)
    sums = np.cumsum(history[::-1])[::-1] / np.arange(len(history), 0, -1)
    return history.tolist(), sums.tolist()


def believed_left_s(tenant: str, done_s: float) -> float:
    """Mean of what is left of a task that has done so much, by the history of its tenant alone."""
    history, means = _longer(tenant)
    at = bisect_right(history, done_s)
    # Older than anything known: a tenth of what it has done already, and a minute at least.
    return means[at] - done_s if at < len(means) else max(60.0, 0.1 * done_s)


BELIEVED_AT_S: tuple[float, ...] = (
    0.0, 15.0, 30.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 450.0, 600.0, 900.0, 1200.0, 1800.0, 2400.0, 3600.0,
    5400.0, 7200.0, 10_800.0, 14_400.0, 21_600.0, 28_800.0, 43_200.0, 64_800.0, LONGEST_S,
)  # fmt: skip
"""Ages of a task at which followers in copies of a cluster are told what is believed to be left of it."""


@cache
def believed_by_age_s(tenant: str) -> FloatArray:
    """What is believed to be left of a tenant's task at each of :data:`BELIEVED_AT_S`, shape ``(25,)``."""
    return np.array([believed_left_s(tenant, age_s) for age_s in BELIEVED_AT_S])
