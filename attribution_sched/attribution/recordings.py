"""Counter recordings in memory, and how foreign CSV and Parquet tables become one.

A `ColumnMap` says which columns of a table are counters, under which name, unit and scale; `load_recording`
applies it and checks every cell, so that an error names the file, the column, the row, the rule and the fix.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.sources.reading import Provenance, Reading, ReadingBuilder
from attribution_sched.errors import CounterError, TraceError, nearest, problem
from attribution_sched.types import FloatArray


@dataclass(frozen=True, eq=False)
class Recording:
    """A batch of readings of the same counters.

    Attributes:
        names: Counter names, ``(d,)``.
        units: Unit of each counter, ``(d,)``.
        values: Counter values, ``(n, d)``; NaN exactly where unavailable. Read-only.
        provenance: How each value was got, ``(n, d)`` array of `Provenance` words. Read-only.
        timestamps_s: Unix times, ``(n,)``, or None where the table has none.
        labels: Text columns kept beside the counters, name to ``n`` strings.
        notes: What the source said about single values, keyed by ``(row, counter)``.
        cumulative: Counters that are running totals.
        origin: File the recording came from, for messages.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    values: FloatArray
    provenance: NDArray[np.str_]
    timestamps_s: FloatArray | None = None
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: Mapping[tuple[int, str], str] = field(default_factory=dict)
    cumulative: frozenset[str] = frozenset()
    origin: str = "memory"

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        provenance = np.array(self.provenance, dtype="U11")
        shape = (len(values), len(self.names))
        if values.ndim != 2 or values.shape != shape or provenance.shape != shape or len(self.units) != shape[1]:
            raise TraceError(
                problem(
                    "values",
                    values.shape,
                    f"{len(self.names)} names, {len(self.units)} units, provenance {provenance.shape} differ",
                    "Give one column, unit and provenance per name",
                )
            )
        if np.isinf(values).any() or not np.array_equal(np.isnan(values), provenance == Provenance.UNAVAILABLE):
            raise TraceError(
                problem(
                    "values",
                    self.origin,
                    "are finite, or NaN and marked unavailable",
                    "Mark the missing cells",
                )
            )
        for array in (values, provenance):
            array.flags.writeable = False
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "provenance", provenance)
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))
        object.__setattr__(self, "notes", MappingProxyType(dict(self.notes)))
        if self.timestamps_s is not None:
            times = np.array(self.timestamps_s, dtype=np.float64)
            times.flags.writeable = False
            object.__setattr__(self, "timestamps_s", times)

    def __len__(self) -> int:
        return len(self.values)

    def column(self, name: str) -> FloatArray:
        """One counter, shape ``(n,)``."""
        return self.select([name])[:, 0]

    def select(self, names: Sequence[str]) -> FloatArray:
        """Several counters in the order asked for, shape ``(n, len(names))``."""
        for name in names:
            if name not in self.names:
                raise CounterError(problem("counter", name, f"is not in {self.origin}", nearest(name, self.names)))
        return self.values[:, [self.names.index(n) for n in names]]

    def reading(self, row: int) -> Reading:
        """One row as a reading."""
        out = ReadingBuilder()
        for j, (name, unit) in enumerate(zip(self.names, self.units, strict=True)):
            label, note = Provenance(self.provenance[row, j]), self.notes.get((row, name), "")
            running = name in self.cumulative
            if label is Provenance.UNAVAILABLE:
                out.missing(name, unit, note or f"not in {self.origin}", cumulative=running)
            else:
                out.add(name, float(self.values[row, j]), unit, label, note, running)
        return out.build(0.0 if self.timestamps_s is None else float(self.timestamps_s[row]))


@dataclass(frozen=True)
class Column:
    """One counter column of a foreign table.

    Attributes:
        source: Column name in the file.
        unit: Unit after scaling.
        scale: Factor from the file's unit to ours.
        provenance: How the file's numbers were got.
        minimum: Least legal value after scaling; None for no bound.
        missing_ok: Whether an empty cell is an unavailable value, or an error.
    """

    source: str
    unit: str
    scale: float = 1.0
    provenance: Provenance = Provenance.MEASURED
    minimum: float | None = 0.0
    missing_ok: bool = False


@dataclass(frozen=True)
class ColumnMap:
    """Which columns of a foreign table mean what.

    Attributes:
        counters: Our counter name to its column.
        timestamp: Column with Unix seconds that rise from row to row; None where there is none.
        labels: Text columns to keep.
    """

    counters: Mapping[str, Column]
    timestamp: str | None = None
    labels: tuple[str, ...] = ()


def load_recording(path: Path | str, columns: ColumnMap) -> Recording:
    """Read a CSV (``.csv``) or Parquet (``.parquet``) table.

    Args:
        path: The file.
        columns: What its columns mean.

    Raises:
        TraceError: The file is malformed; the message names file, column, row, rule and fix.
    """
    path = Path(path)
    return as_recording(path, read_table(path)[0], columns)


def as_recording(path: Path, table: Mapping[str, Sequence[object]], columns: ColumnMap) -> Recording:
    """Columns of raw cells as a recording.

    Args:
        path: File they are from, for messages.
        table: The columns.
        columns: What they mean.

    Raises:
        TraceError: As :func:`load_recording`.
    """
    n_rows = len(next(iter(table.values()), ()))
    wanted = [c.source for c in columns.counters.values()] + list(columns.labels)
    for name in wanted + ([columns.timestamp] if columns.timestamp is not None else []):
        if name not in table:
            raise TraceError(
                problem(
                    f"{path.name}: column",
                    name,
                    "is not in the file",
                    nearest(name, table) + ". Change the map",
                )
            )
    if n_rows == 0:
        raise TraceError(problem(path.name, 0, "has a header but no rows", "Record at least one reading"))
    values = np.empty((n_rows, len(columns.counters)))
    provenance = np.empty(values.shape, dtype="U11")
    for j, column in enumerate(columns.counters.values()):
        values[:, j] = _numbers(path, column, table[column.source])
        provenance[:, j] = np.where(np.isnan(values[:, j]), Provenance.UNAVAILABLE, column.provenance)
    times = None if columns.timestamp is None else _times(path, columns.timestamp, table[columns.timestamp])
    return Recording(
        names=tuple(columns.counters),
        units=tuple(c.unit for c in columns.counters.values()),
        values=values,
        provenance=provenance,
        timestamps_s=times,
        labels={name: tuple(str(v) for v in table[name]) for name in columns.labels},
        origin=path.name,
    )


def read_table(path: Path, suffix: str | None = None) -> tuple[dict[str, list[object]], int]:
    """Read a whole file into columns of raw cells: text from CSV, typed values from Parquet.

    Args:
        path: The file. A first line that starts with ``#`` is a comment (CSV).
        suffix: ``.csv`` or ``.parquet``; the file's own by default.
    """
    suffix = (path.suffix if suffix is None else suffix).lower()
    if not path.is_file():
        raise TraceError(problem("path", str(path), "is not a file", "Check the path"))
    if suffix in (".parquet", ".pq"):
        return _read_parquet(path)
    if suffix == ".csv":
        return _read_csv(path)
    raise TraceError(problem("path", path.name, "is neither .csv nor .parquet", "Convert it, or fix the suffix"))


def _read_csv(path: Path) -> tuple[dict[str, list[object]], int]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            start = stream.tell()
            if not stream.readline().startswith("#"):
                stream.seek(start)
            rows = [row for row in csv.reader(stream, strict=True) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(problem(path.name, str(error), "is not a UTF-8 CSV file", "Write it again as CSV")) from error
    if not rows:
        raise TraceError(problem(path.name, "", "is empty", "The first row must name the columns"))
    header = rows[0]
    _refuse_repeats(path, header)
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            raise TraceError(
                problem(
                    f"{path.name}: row {number}",
                    f"{len(row)} fields",
                    f"must have {len(header)} like the header",
                    "The file may be cut off: drop or repair this row",
                )
            )
    return {name: [row[j] for row in rows[1:]] for j, name in enumerate(header)}, len(rows) - 1


def _refuse_repeats(path: Path, header: Sequence[str]) -> None:
    repeated = sorted(name for name, count in Counter(header).items() if count > 1)
    if repeated:
        raise TraceError(problem(f"{path.name}: columns", repeated, "appear twice", "Rename one of each"))


def _read_parquet(path: Path) -> tuple[dict[str, list[object]], int]:
    import pyarrow
    import pyarrow.parquet

    try:
        _refuse_repeats(path, pyarrow.parquet.read_schema(path).names)
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # names of columns are text too
        raise TraceError(
            problem(path.name, str(error).split("\n")[0], "is not a whole Parquet file", "Write it again")
        ) from error
    try:
        cells = {name: table.column(name).to_pylist() for name in table.column_names}
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:  # text that is no UTF-8, dates out of range
        reason = str(error).split("\n")[0]
        raise TraceError(problem(path.name, reason, "has cells that cannot be read", "Write it again")) from error
    return cells, table.num_rows


def _numbers(path: Path, column: Column, cells: Sequence[object]) -> FloatArray:
    out = np.empty(len(cells))
    for row, cell in enumerate(cells, start=1):
        value, rule, fix = math.nan, "", ""
        empty = cell is None or (isinstance(cell, str) and cell.strip().lower() in ("", "nan"))
        if empty or (isinstance(cell, float) and math.isnan(cell)):
            rule, fix = ("", "") if column.missing_ok else ("is empty", "Fill it, or set missing_ok for the column")
        else:
            try:
                value = float(cell) * column.scale  # type: ignore[arg-type]
            except (TypeError, ValueError, OverflowError):
                rule, fix = "is not a number", "Correct the cell, or map another column"
            else:
                if not math.isfinite(value):
                    rule, fix = "must be finite", "Correct the cell"
                elif column.minimum is not None and value < column.minimum:
                    rule, fix = (
                        f"must be at least {column.minimum} {column.unit}",
                        "A counter wrapped, or a sign is wrong",
                    )
        if rule:
            raise TraceError(problem(f"{path.name}: column {column.source!r} row {row}", cell, rule, fix))
        out[row - 1] = value
    return out


def _times(path: Path, name: str, cells: Sequence[object]) -> FloatArray:
    times = _numbers(path, Column(name, "s", minimum=None), cells)
    falls = np.flatnonzero(np.diff(times) <= 0)
    if len(falls):
        row = int(falls[0]) + 2
        raise TraceError(
            problem(
                f"{path.name}: column {name!r} row {row}",
                cells[row - 1],
                "must rise from row to row",
                "Sort the rows",
            )
        )
    return times
