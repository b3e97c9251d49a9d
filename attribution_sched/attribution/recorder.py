"""Write what a live source reads, and read it back as if it were live: exact to the last bit.

A recording file is an ordinary table: ``timestamp_s``, then for each counter three columns, ``<name>``,
``<name>:provenance`` and ``<name>:note``. Units, running totals and the machine's name stand in a header comment (CSV)
or in the schema (Parquet). Rows go to ``<file>.part``, which takes the file's name in one atomic step when the
recorder closes.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from attribution_sched.attribution.recordings import Recording, read_table
from attribution_sched.attribution.sources.reading import Provenance, Reading, Source
from attribution_sched.errors import CounterError, TraceError, problem

_FORMAT, _VERSION = "attribution-sched recording", 1


def _header(reading: Reading, machine: str) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "units": dict(reading.units),
        "cumulative": sorted(reading.cumulative),
        "machine": machine,
    }


def _row(reading: Reading) -> dict[str, Any]:
    row: dict[str, Any] = {"timestamp_s": reading.timestamp_s}
    for name, value in reading.values.items():
        row[name] = None if math.isnan(value) else value
        row[f"{name}:provenance"] = str(reading.provenance[name])
        row[f"{name}:note"] = reading.notes.get(name, "")
    return row


class Recorder:
    """Appends readings of one source to a CSV or Parquet file.

    Use as a context manager. The file appears, or grows, only when the recorder closes without an error in
    its own writing; an exception in the caller's code still keeps what was read until then. After a crash
    the rows read so far are in ``<file>.part`` (CSV), and ``append=True`` picks them up.
    """

    def __init__(self, path: Path | str, append: bool = False, machine: str | None = None) -> None:
        """Open a recording.

        Args:
            path: File to write, ``.csv`` or ``.parquet``.
            append: Continue an existing file (and what a crash left in its ``.part``); else it must not
                exist.
            machine: Name of the machine that is read; this one's by default.
        """
        self.path = Path(path)
        self.machine = platform.node() if machine is None else machine
        self._part = self.path.with_name(self.path.name + ".part")
        if self.path.suffix not in (".csv", ".parquet"):
            raise TraceError(problem("path", self.path.name, "must end in .csv or .parquet", "Rename it"))
        if not append and (self.path.exists() or self._part.exists()):
            existing = self.path if self.path.exists() else self._part
            raise TraceError(problem("path", str(existing), "exists already", "Pass append=True or another name"))
        self._rows: list[dict[str, Any]] = []
        self._head: dict[str, Any] | None = None
        self._stream: io.TextIOWrapper | None = None
        self._last_s = -math.inf
        for file in (self.path, self._part) if append else ():
            if file.exists():
                self._take_over(file)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, reading: Reading) -> None:
        """Append one reading; it must hold the same counters as the first."""
        head = _header(reading, self.machine)
        if self._head is not None and head != self._head:
            odd = sorted(set(head["units"]).symmetric_difference(self._head["units"]))
            raise TraceError(
                problem(f"{self.path.name}: counters", odd, "differ from the first reading", "Use a new file")
            )
        if reading.timestamp_s <= self._last_s:
            raise TraceError(
                problem("timestamp_s", reading.timestamp_s, f"must be after {self._last_s}", "Check the clock")
            )
        self._head, self._last_s = head, reading.timestamp_s
        self._rows.append(_row(reading))
        if self.path.suffix == ".csv":
            self._write_csv()

    def record(self, source: Source, seconds: float, interval_s: float) -> int:
        """Read a source at an interval for a while and return how many readings were written."""
        end, count = time.monotonic() + seconds, 0
        while True:
            self.write(source.read())
            count += 1
            if time.monotonic() + interval_s > end:
                return count
            time.sleep(interval_s)

    def close(self) -> None:
        """Put the recording in place; without a single reading no file appears."""
        if self._head is None:
            return
        if self.path.suffix == ".parquet":
            self._write_parquet()
        if self._stream is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            self._stream = None
        if self._part.exists():
            self._part.replace(self.path)
        self._head = None

    def _write_csv(self) -> None:
        if self._stream is None:
            self._stream = self._part.open("w", newline="", encoding="utf-8")
            self._stream.write("# " + json.dumps(self._head) + "\n")
            csv.writer(self._stream).writerow(self._rows[0])
        # Rows of an earlier session come along once; after that nothing is held in memory.
        csv.writer(self._stream).writerows(_cells(row) for row in self._rows)
        self._rows.clear()
        self._stream.flush()

    def _write_parquet(self) -> None:
        import pyarrow
        import pyarrow.parquet

        types = {n: pyarrow.float64() for n in ("timestamp_s", *(self._head or {})["units"])}
        schema = pyarrow.schema(
            [(name, types.get(name, pyarrow.string())) for name in self._rows[0]],
            metadata={"attribution_sched": json.dumps(self._head)},
        )
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(self._rows, schema=schema), self._part)

    def _take_over(self, file: Path) -> None:
        """Keep the rows of an earlier session, once each; a last line cut off by a crash is dropped."""
        if file == self._part and self.path.suffix == ".parquet":
            return  # a Parquet part is whole or worthless; its rows were never promised
        if file == self._part:
            text = file.read_bytes()
            os.truncate(file, text.rfind(b"\n") + 1)
            if text.count(b"\n") < 3:
                return
        old = load_recorded(file)
        before = old.labels.get("machine", (self.machine,))[0]
        if before != self.machine:
            rule = f"was recorded on {before}: one file, one machine"
            raise TraceError(problem(f"{file.name}: machine", self.machine, rule, "Use a new file"))
        for i in range(len(old)):
            reading = old.reading(i)
            if reading.timestamp_s > self._last_s:
                self._head, self._last_s = _header(reading, self.machine), reading.timestamp_s
                self._rows.append(_row(reading))


def _cells(row: Mapping[str, Any]) -> list[str]:
    return ["" if v is None else repr(v) if isinstance(v, float) else str(v) for v in row.values()]


def load_recorded(path: Path | str) -> Recording:
    """Read a file written by `Recorder`.

    Raises:
        TraceError: The file is not such a recording, or is damaged.
    """
    path = Path(path)
    source = path.with_suffix("") if path.suffix == ".part" else path
    table, n_rows = read_table(path, source.suffix)
    head = _read_head(path, source.suffix)
    names = tuple(head["units"])
    expected = ["timestamp_s", *(c for n in names for c in (n, f"{n}:provenance", f"{n}:note"))]
    if list(table) != expected:
        odd = sorted(set(table).symmetric_difference(expected))
        raise TraceError(problem(f"{path.name}: columns", odd, "do not fit the header", "The file was edited"))
    values, provenance = np.empty((n_rows, len(names))), np.empty((n_rows, len(names)), dtype="U11")
    notes: dict[tuple[int, str], str] = {}
    for j, name in enumerate(names):
        for i in range(n_rows):
            values[i, j] = _number(path, name, i, table[name][i], empty_ok=True)
            provenance[i, j] = _word(path, name, i, table[f"{name}:provenance"][i])
            if note := table[f"{name}:note"][i]:
                notes[i, name] = str(note)
    times = np.array([_number(path, "timestamp_s", i, t) for i, t in enumerate(table["timestamp_s"])])
    units = tuple(head["units"].values())
    machine = str(head.get("machine", ""))
    labels = {"machine": (machine,) * n_rows} if machine and n_rows else {}
    return Recording(names, units, values, provenance, times, labels, notes, frozenset(head["cumulative"]), source.name)


def _read_head(path: Path, suffix: str) -> dict[str, Any]:
    try:
        if suffix == ".parquet":
            import pyarrow.parquet

            text = (pyarrow.parquet.read_schema(path).metadata or {}).get(b"attribution_sched", b"").decode()
        else:
            with path.open(encoding="utf-8") as stream:
                text = stream.readline().removeprefix("# ")
        head = json.loads(text)
        good = head["format"] == _FORMAT and head["version"] == _VERSION
        good = good and isinstance(head["units"], dict) and isinstance(head["cumulative"], list)
    except (ValueError, KeyError, TypeError):
        good = False
    if not good:
        raise TraceError(
            problem(
                path.name,
                "header",
                "is not a recording of this package",
                "Use load_recording with a ColumnMap",
            )
        )
    return dict(head)


def _number(path: Path, column: str, row: int, cell: object, empty_ok: bool = False) -> float:
    if empty_ok and (cell is None or cell == ""):
        return math.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise TraceError(
            problem(
                f"{path.name}: column {column!r} row {row + 1}",
                cell,
                "is not a number",
                "The file was edited",
            )
        ) from error


def _word(path: Path, name: str, row: int, cell: object) -> str:
    if cell not in list(Provenance):
        where = f"{path.name}: column '{name}:provenance' row {row + 1}"
        raise TraceError(problem(where, cell, "must be one of " + ", ".join(Provenance), "The file was edited"))
    return str(cell)


class ReplaySource:
    """A recording as a live source: each read gives the next row."""

    def __init__(self, recording: Recording | Path | str, loop: bool = False) -> None:
        """Choose what to replay.

        Args:
            recording: A recording, or a file written by `Recorder`.
            loop: Start over at the end instead of raising.
        """
        self._recording = recording if isinstance(recording, Recording) else load_recorded(recording)
        self._loop, self._next = loop, 0

    def __len__(self) -> int:
        return len(self._recording)

    def __iter__(self) -> Iterator[Reading]:
        """All rows from the first, whatever was read before."""
        return (self._recording.reading(i) for i in range(len(self._recording)))

    def read(self) -> Reading:
        """The next row."""
        if self._next >= len(self._recording):
            if not self._loop:
                rule = f"the recording ended after {len(self._recording)} readings"
                raise CounterError(problem("replay", self._recording.origin, rule, "Pass loop=True to start over"))
            self._next = 0
        self._next += 1
        return self._recording.reading(self._next - 1)
