"""Replay of recorded bandwidth from a CSV file, in place of the stochastic process of the network.

The file is in long form, one observation per line: ``time_s, src, dst, gbps``. Between two observations
of a link its last value holds. A link that was not observed, or not yet, keeps its base bandwidth.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.errors import TraceError, nearest, problem
from attribution_sched.kernels import kernel

FloatArray = NDArray[np.float64]

COLUMNS = ("time_s", "src", "dst", "gbps")


@dataclass(frozen=True, eq=False)
class BandwidthTrace:
    """Bandwidth of every link over time, held constant between two rows.

    Attributes:
        names: The K domains, in the order of the two link axes.
        times_s: Start of each row, shape ``(T,)``, strictly increasing from 0.
        gbps: Shape ``(T, K, K)``, source then destination; NaN where the link keeps its base bandwidth.
        at_end: ``hold`` the last row for ever, or ``wrap`` to the first. A wrapped trace gives its last
            row the length of the row before it.
        source: Where the figures come from.
    """

    names: tuple[str, ...]
    times_s: FloatArray
    gbps: FloatArray
    at_end: Literal["hold", "wrap"] = "hold"
    source: str = "given as arrays"

    def __post_init__(self) -> None:
        """Check shapes and figures and make the arrays read-only."""
        times = np.array(self.times_s, dtype=np.float64)
        gbps = np.array(self.gbps, dtype=np.float64)
        k = len(self.names)
        if times.ndim != 1 or times.size == 0 or gbps.shape != (times.size, k, k):
            rule = f"must have shape (T, {k}, {k}) with T = {times.size} >= 1 row times"
            raise TraceError(problem("gbps.shape", gbps.shape, rule, "Give one matrix per row time"))
        if times[0] != 0.0 or not np.all(np.isfinite(times)) or not np.all(np.diff(times) > 0):
            rule = "must start at 0 and increase strictly"
            raise TraceError(problem("times_s", times.tolist()[:5], rule, "Sort the rows, subtract the first time"))
        recorded = gbps[~np.isnan(gbps)]
        if not np.all(np.isfinite(recorded) & (recorded > 0)):
            bad = float(recorded[~(np.isfinite(recorded) & (recorded > 0))][0])
            raise TraceError(problem("gbps", bad, "must be finite and > 0, or NaN for the base", "Mend the row"))
        if not np.all(np.isnan(gbps[:, np.arange(k), np.arange(k)])):
            rule = "must be NaN on the diagonal: links inside a domain do not fluctuate"
            raise TraceError(problem("gbps", "diagonal", rule, "Leave them out"))
        if self.at_end not in ("hold", "wrap"):
            raise TraceError(problem("at_end", self.at_end, "must be 'hold' or 'wrap'", "Choose one of them"))
        for name, array in (("times_s", times), ("gbps", gbps)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "names", tuple(self.names))

    @classmethod
    def from_csv(
        cls, path: str | Path, names: Sequence[str], *, at_end: Literal["hold", "wrap"] = "hold"
    ) -> BandwidthTrace:
        """Read a trace; its first time becomes time 0.

        Args:
            path: CSV file with the columns ``time_s, src, dst, gbps`` (others are ignored).
            names: The domains of the cluster. A row that names another one is an error.
            at_end: What follows the last row.

        Raises:
            TraceError: If the file cannot be read or a row is wrong; the message names file and line.
        """
        index = {name: i for i, name in enumerate(names)}
        last: dict[tuple[int, int], float] = {}
        rows: list[tuple[float, int, int, float]] = []
        for line, row in read_trace_rows(path, COLUMNS):
            time_s = number(path, line, "time_s", row["time_s"])
            link = (
                _domain(path, line, "src", row["src"], index),
                _domain(path, line, "dst", row["dst"], index),
            )
            if link[0] == link[1]:
                rule = "must differ from src: links inside a domain do not fluctuate"
                raise row_error(path, line, "dst", row["dst"], rule, "Remove the line")
            gbps = number(path, line, "gbps", row["gbps"])
            if gbps <= 0:
                fix = "Write an outage as a very small bandwidth, for example 0.001"
                raise row_error(path, line, "gbps", row["gbps"], "must be > 0", fix)
            if time_s <= last.get(link, -math.inf):
                rule = f"must be later than {last[link]}, the time before it on this link"
                raise row_error(path, line, "time_s", row["time_s"], rule, "Sort the file by time_s, drop repeats")
            last[link] = time_s
            rows.append((time_s, *link, gbps))
        times, which = np.unique([r[0] for r in rows], return_inverse=True)
        grid = np.full((times.size, len(names), len(names)), np.nan)
        _, src, dst, values = zip(*rows, strict=True)
        grid[which, src, dst] = values
        return cls(tuple(names), times - times[0], _hold_last(grid), at_end, source=str(path))

    @property
    def period_s(self) -> float:
        """Seconds after which the trace repeats; 0 where it holds its end instead."""
        if self.at_end == "hold" or self.times_s.size < 2:
            return 0.0
        return float(2 * self.times_s[-1] - self.times_s[-2])

    def at(self, time_s: ArrayLike) -> FloatArray:
        """Look up the bandwidth in Gb/s; a time array of shape S gives shape ``S + (K, K)``, NaN = base."""
        wanted = np.asarray(time_s, dtype=np.float64)
        rows: NDArray[np.int64] = trace_rows(self.times_s, wanted.ravel(), self.period_s)
        return self.gbps[rows.reshape(wanted.shape)]

    def multiplier(self, base_gbps: FloatArray) -> FloatArray:
        """Express every row as a multiple of the base bandwidth, shape ``(T, K, K)``; 1 where unrecorded."""
        return np.where(np.isnan(self.gbps), 1.0, self.gbps / np.where(base_gbps > 0, base_gbps, 1.0))


@kernel
def trace_row(times_s: FloatArray, time_s: float, period_s: float) -> int:
    """Return the row that holds at ``time_s``; a period of 0 holds the last row for ever."""
    if period_s > 0.0:
        time_s = time_s % period_s
    low, high = 0, times_s.size
    while low < high:
        middle = (low + high) // 2
        if times_s[middle] <= time_s:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


@kernel(allocates=True)
def trace_rows(times_s: FloatArray, wanted_s: FloatArray, period_s: float) -> NDArray[np.int64]:
    """Return the rows that hold at each of ``wanted_s``."""
    rows = np.empty(wanted_s.size, np.int64)
    for i in range(wanted_s.size):
        rows[i] = trace_row(times_s, wanted_s[i], period_s)
    return rows


def _hold_last(grid: FloatArray) -> FloatArray:
    """Carry the last recorded value of each link forward over the rows that do not mention it."""
    rows = np.arange(grid.shape[0])[:, None, None]
    newest = np.maximum.accumulate(np.where(np.isnan(grid), 0, rows), axis=0)
    return np.take_along_axis(grid, newest, axis=0)


def _domain(path: str | Path, line: int, column: str, name: str, index: dict[str, int]) -> int:
    if name not in index:
        raise row_error(path, line, column, name, "must be a domain of the cluster", nearest(name, index))
    return index[name]


def row_error(path: str | Path, line: int, column: str, value: object, rule: str, fix: str) -> TraceError:
    """Build the error of one cell of a trace file."""
    return TraceError(problem(f"{path}, line {line}, {column}", value, rule, fix))


def number(path: str | Path, line: int, column: str, text: str) -> float:
    """Parse a finite number or raise a ``TraceError`` that names the cell."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise row_error(path, line, column, text, "must be a finite number", "Mend or remove the line")
    return value


def read_trace_rows(path: str | Path, required: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield ``(line number, row)`` of a CSV file that has the required columns and at least one row."""
    empty = True
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            for column in required:
                if column not in header:
                    rule = f"must name the column {column!r}; it needs {', '.join(required)}"
                    raise row_error(path, 1, "header", ",".join(header), rule, "Add the column")
            for row in reader:
                if None in row or None in row.values():
                    rule = f"must have {len(header)} fields like the header"
                    raise row_error(path, reader.line_num, "row", list(row.values()), rule, "Mend the line")
                empty = False
                yield reader.line_num, {key: value.strip() for key, value in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(problem("trace file", str(path), f"cannot be read ({error})", "Give a UTF-8 CSV")) from error
    if empty:
        raise row_error(path, 1, "rows", 0, "must have at least one row below the header", "Record some data")
