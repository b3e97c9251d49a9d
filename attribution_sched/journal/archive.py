"""Retention: old snapshots dropped, an old part of the journal moved to a file of its own, room given back."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attribution_sched.errors import JournalError, problem
from attribution_sched.journal import store as tables
from attribution_sched.journal.records import ArchiveRecord
from attribution_sched.journal.store import (
    TABLES,
    Row,
    Store,
    Tail,
    draft_of,
    insert,
    now,
    readable,
    reading,
    select,
    whole,
)

if TYPE_CHECKING:
    from attribution_sched.journal.journal import Reader

PAGE = 1024
"""Rows that are in memory at once."""

ONGOING: dict[str, str] = {
    "epochs": "epoch = (SELECT max(epoch) FROM epochs)",
    "tasks": "1",
    "feedback": "1",
    "events": "1",
    "archives": "1",
    "handles": "position IN (SELECT max(position) FROM handles GROUP BY key)",
    "intents": "number NOT IN (SELECT number FROM effects) OR number = (SELECT max(number) FROM intents)",
    "effects": "number = (SELECT max(number) FROM intents)",
    "snapshots": "number = (SELECT max(number) FROM snapshots)",
}
"""Table → which of its rows a run goes on from; they are written again behind the others."""


def archive(
    journal: Reader,
    store: Store,
    path: Path,
    before: int | None,
    tasks: frozenset[str] | None,
    *,
    without_snapshot: bool,
) -> ArchiveRecord:
    """See :meth:`~attribution_sched.journal.journal.Journal.archive`."""
    if journal.path is None:
        raise JournalError(problem("journal", "in memory", "has no file to archive from", "Keep it in a file"))
    if before is None:
        newest = journal.newest_snapshot()
        if newest is None:
            fix = "Record a snapshot first, or name the decision to archive before"
            raise JournalError(problem("archive", str(path), "the journal has no snapshot to go on from", fix))
        before = newest.sequence
    oldest, count = journal.first(), journal.count()
    if not oldest < whole("before", before) <= count:
        rule = f"the journal has decisions {oldest} to {count - 1}"
        raise JournalError(problem("before", before, rule, "Give a number above the first, up to one past the last"))
    first, stop, last_hash = _range(store, before, count, without_snapshot=without_snapshot)
    _write(store, path, first, stop, last_hash)
    home = journal.path.parent
    name = str(path.relative_to(home)) if path.is_relative_to(home) else str(path)
    made = ArchiveRecord(name, first, stop, before, last_hash.hex(), now())
    store.write(lambda connection, tail: _leave(connection, tail, made, tasks))
    return made


def compact(store: Store, path: Path | None, newest: int, every: int) -> tuple[int, int]:
    """See :meth:`~attribution_sched.journal.journal.Journal.compact`."""

    def drop(connection: sqlite3.Connection, tail: Tail) -> None:
        drop_snapshots(connection, tail.next["snapshots"] - 1, newest, whole("keep_every", every))

    def vacuum(connection: sqlite3.Connection) -> tuple[int, int]:
        sizes = []
        for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"):
            connection.execute(statement).fetchall()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            page, pages = (connection.execute(f"PRAGMA page_{each}").fetchone()[0] for each in ("size", "count"))
            sizes.append(page * pages if path is None else path.stat().st_size)
        return sizes[0], sizes[1]

    store.write(drop)
    return store.alone(vacuum)


def drop_snapshots(connection: sqlite3.Connection, last: int, newest: int, every: int) -> None:
    """Drop the bytes of snapshots but for the newest and every so many-th; their rows stay.

    Args:
        connection: The file, in a transaction.
        last: Number of the newest.
        newest: How many of the newest to keep.
        every: Which of the others to keep; 0 for none.
    """
    among = "" if every == 0 else f" AND number % {every} != 0"
    old = f"SELECT position FROM snapshots WHERE number <= ?{among}"
    connection.execute(f"DELETE FROM snapshot_data WHERE position IN ({old})", (last - newest,))


def _range(store: Store, before: int, count: int, *, without_snapshot: bool) -> tuple[int, int, bytes]:
    """Positions of the rows to move: from, up to; and the hash of the last."""

    def look(connection: sqlite3.Connection) -> tuple[int, int, bytes]:
        first, _ = tables.start(connection)
        bounds = "SELECT position FROM decisions WHERE sequence = ?"
        row = connection.execute(bounds, (before,)).fetchone() if before < count else (Tail(connection).position,)
        snapshot = connection.execute(
            "SELECT max(s.position) FROM snapshots s JOIN snapshot_data k ON k.position = s.position "
            "WHERE s.sequence >= ?", (before,),
        ).fetchone()[0]  # fmt: skip
        if snapshot is None and not without_snapshot:
            rule = "no snapshot includes all of these decisions, so that the run could not go on"
            raise JournalError(problem("before", before, rule, "Record a snapshot first, or give a lower number"))
        stop = min(row[0], row[0] if snapshot is None else snapshot)
        moved, concluded = (
            connection.execute(f"SELECT count(*) FROM {table} WHERE sequence < ? AND position < ?", (before, stop))
            for table in ("decisions", "outcomes")
        )
        if moved.fetchone() != concluded.fetchone():
            rule = "some of these decisions were pending then"
            raise JournalError(problem("before", before, rule, "Let them take effect first, or give a lower number"))
        return first, stop, tables.hash_at(connection, stop - 1)

    return store.consistent(look)


def _write(store: Store, path: Path, first: int, stop: int, last_hash: bytes) -> None:
    """Copy rows to a new file; one that a process killed afterwards had written is taken as it is."""
    if path.exists():
        with contextlib.closing(reading(path)) as source_connection, readable(path):
            if (
                tables.start(source_connection)[0] == first
                and Tail(source_connection).hash == last_hash
                and tables.verify(source_connection).rows
            ):
                return
        raise JournalError(problem("archive", str(path), "is there already", "Choose another name"))

    def copy(connection: sqlite3.Connection) -> None:
        with draft_of(path) as draft, contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as target:
            target.execute("BEGIN")
            tables.create_tables(target)
            tables.begin(target, *tables.start(connection))
            for table in TABLES:
                within = "position >= ? AND position < ?" + (" OR position = 0" if table == "header" else "")
                rows = connection.execute(f"SELECT {select(table)} FROM {table} WHERE {within}", (first, stop))
                target.executemany(insert(table), rows)
            snapshots = connection.execute("SELECT * FROM snapshot_data WHERE position < ?", (stop,))
            target.executemany("INSERT INTO snapshot_data VALUES (?, ?)", snapshots)
            tables.seal(target)
            target.execute("COMMIT")
            # What is damaged must not be moved: the originals are about to go.
            if tables.verify(target).head != last_hash.hex():
                raise JournalError(problem("archive", str(path), "does not end as the journal says", tables.DAMAGED))
            target.execute(f"PRAGMA application_id = {tables.ARCHIVE_ID}")
            target.execute("PRAGMA journal_mode = WAL")

    try:
        store.consistent(copy)
    except OSError as error:
        rule = f"cannot be written ({error.strerror or error})"
        fix = "Use a folder with room that can be written"
        raise JournalError(problem("archive", str(path), rule, fix)) from error


def _leave(connection: sqlite3.Connection, tail: Tail, made: ArchiveRecord, tasks: frozenset[str] | None) -> None:
    """Take out what was moved, and write again what the run goes on from."""
    for table in TABLES:
        connection.execute(f"DROP TRIGGER {table}_no_delete")
    for table, which in ONGOING.items():
        # As of before anything is taken out: some of the questions look at other rows.
        asked = f"SELECT position FROM {table} WHERE position < ? AND position > 0 AND ({which}) ORDER BY position"
        positions = [row[0] for row in connection.execute(asked, (made.stop,)).fetchall()]
        for row in _taken(connection, table, positions):
            if table == "snapshots":
                moved = "UPDATE snapshot_data SET position = ? WHERE position = ?"
                connection.execute(moved, (tail.position, row[0]))
            if table != "tasks" or tasks is None or row[2] in tasks:
                tail.append(connection, table, row[1:-2])
    for table in TABLES:
        connection.execute(f"DELETE FROM {table} WHERE position < ? AND position > 0", (made.stop,))
    connection.execute("DELETE FROM snapshot_data WHERE position < ?", (made.stop,))
    connection.execute("UPDATE bounds SET position = ?, hash = ?", (made.stop, bytes.fromhex(made.last_hash)))
    tail.append(connection, "archives", tables.encode("archives", made))
    tables.seal(connection)
    for table in TABLES:
        connection.execute(tables.guards(table)[1])


def _taken(connection: sqlite3.Connection, table: str, positions: list[int]) -> Iterator[Row]:
    """Rows, each taken out before the next step: its number and id must be free when it is written again."""
    query = f"SELECT {select(table)} FROM {table} WHERE position = ?"
    for position in positions:
        row = connection.execute(query, (position,)).fetchone()
        connection.execute(f"DELETE FROM {table} WHERE position = ?", (position,))
        yield row
