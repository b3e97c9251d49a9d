"""Retention: old snapshots dropped, an old part of the journal moved to a file of its own, room given back."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attribution_sched.journal import chain
from attribution_sched.journal.chain import Tail
from attribution_sched.journal.faults import fault, readable
from attribution_sched.journal.file import draft_of, reading
from attribution_sched.journal.kinds import whole
from attribution_sched.journal.records import ArchiveRecord, now
from attribution_sched.journal.rows import Row, insert
from attribution_sched.journal.schema import ARCHIVE_ID, TABLES, create_tables, guards, select

if TYPE_CHECKING:
    from attribution_sched.journal.reader import Reader

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
    path: Path,
    before: int | None,
    tasks: frozenset[str] | None,
    *,
    without_snapshot: bool,
) -> ArchiveRecord:
    """See :meth:`~attribution_sched.journal.journal.Journal.archive`."""
    if journal.path is None:
        raise journal.fault("has no file to archive from", "Keep it in a file")
    if before is None:
        newest = journal.newest_snapshot()
        if newest is None:
            raise fault(
                "archive",
                str(path),
                "the journal has no snapshot to go on from",
                "Record a snapshot first, or name the decision to archive before",
            )
        before = newest.sequence
    oldest, count = journal.first(), journal.count()
    if not oldest < whole("before", before) <= count:
        raise fault(
            "before",
            before,
            f"the journal has decisions {oldest} to {count - 1}",
            "Give a number above the first, up to one past the last",
        )
    home = journal.path.parent
    name = str(path.relative_to(home)) if path.is_relative_to(home) else str(path)
    record = journal.consistent(lambda connection: _range(connection, name, before, without_snapshot=without_snapshot))
    _write(journal, path, record)
    journal.write(lambda tail: _leave(tail, record, tasks))
    return record


def compact(journal: Reader, newest: int, every: int) -> tuple[int, int]:
    """See :meth:`~attribution_sched.journal.journal.Journal.compact`."""

    def drop(tail: Tail) -> None:
        """Drop the bytes of old snapshots; their rows stay."""
        among = f" AND number % {every} != 0" if every else ""
        old = f"SELECT position FROM snapshots WHERE number < ?{among}"
        last = tail.next["snapshots"] - newest
        tail.connection.execute(f"DELETE FROM snapshot_data WHERE position IN ({old})", (last,))

    def vacuum(connection: sqlite3.Connection) -> tuple[int, int]:
        sizes = []
        for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"):
            connection.execute(statement).fetchall()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            page, pages = (connection.execute(f"PRAGMA page_{each}").fetchone()[0] for each in ("size", "count"))
            sizes.append(page * pages if journal.path is None else journal.path.stat().st_size)
        return sizes[0], sizes[1]

    journal.write(drop)
    return journal.alone(vacuum)


def _range(connection: sqlite3.Connection, name: str, before: int, *, without_snapshot: bool) -> ArchiveRecord:
    """Which rows are to be moved."""
    row = connection.execute("SELECT position FROM decisions WHERE sequence = ?", (before,)).fetchone()
    stop = Tail(connection).position if row is None else row[0]
    query = (
        "SELECT max(s.position) FROM snapshots s JOIN snapshot_data k ON k.position = s.position WHERE s.sequence >= ?"
    )
    snapshot = connection.execute(query, (before,)).fetchone()[0]
    if snapshot is not None:
        stop = min(stop, snapshot)
    elif not without_snapshot:
        raise fault(
            "before",
            before,
            "no snapshot includes all of these decisions, so that the run could not go on",
            "Record a snapshot first, or give a lower number",
        )
    pending = (
        "SELECT (SELECT count(*) FROM decisions WHERE sequence < ?1 AND position < ?2) "
        "!= (SELECT count(*) FROM outcomes WHERE sequence < ?1 AND position < ?2)"
    )
    if connection.execute(pending, (before, stop)).fetchone()[0]:
        raise fault(
            "before",
            before,
            "some of these decisions were pending then",
            "Let them take effect first, or give a lower number",
        )
    first, *_ = chain.bounds(connection)
    return ArchiveRecord(name, first, stop, before, chain.hash_at(connection, stop - 1).hex(), now())


def _write(journal: Reader, path: Path, record: ArchiveRecord) -> None:
    """Copy rows to a new file; one that a process killed afterwards had written is taken as it is."""
    if path.exists():
        with contextlib.closing(reading(path)) as there, readable(path):
            verified = chain.verify(there)
        if (verified.first, verified.head) == (record.first, record.last_hash):
            return
        raise fault("archive", str(path), "is there already", "Choose another name")

    def copy(connection: sqlite3.Connection) -> None:
        with draft_of(path) as draft, contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as target:
            target.execute("BEGIN")
            create_tables(target)
            chain.begin(target, *chain.bounds(connection)[:2])
            for table in TABLES:
                query = f"SELECT {select(table)} FROM {table} WHERE position >= ? AND position < ?"
                also = " OR position = 0" if table == "header" else ""
                target.executemany(insert(table), connection.execute(query + also, (record.first, record.stop)))
            snapshots = connection.execute("SELECT * FROM snapshot_data WHERE position < ?", (record.stop,))
            target.executemany("INSERT INTO snapshot_data VALUES (?, ?)", snapshots)
            chain.seal(target)
            target.execute("COMMIT")
            # What is damaged must not be moved: the originals are about to go.
            if chain.verify(target).head != record.last_hash:
                raise fault("archive", str(path), "does not end as the journal says")
            target.execute(f"PRAGMA application_id = {ARCHIVE_ID}")
            target.execute("PRAGMA journal_mode = WAL")

    try:
        journal.consistent(copy)
    except OSError as error:
        raise fault(
            "archive",
            str(path),
            f"cannot be written ({error.strerror or error})",
            "Use a folder with room that can be written",
        ) from error


def _leave(tail: Tail, record: ArchiveRecord, tasks: frozenset[str] | None) -> None:
    """Take out what was moved, and write again what the run goes on from."""
    execute = tail.connection.execute
    for table in TABLES:
        execute(f"DROP TRIGGER {table}_no_delete")
    for table, which in ONGOING.items():
        # As of before anything is taken out: some of the questions look at other rows.
        query = f"SELECT position FROM {table} WHERE position < ? AND position > 0 AND ({which}) ORDER BY position"
        for row in _take(tail.connection, table, execute(query, (record.stop,)).fetchall()):
            if table == "snapshots":
                execute("UPDATE snapshot_data SET position = ? WHERE position = ?", (tail.position, row[0]))
            if table != "tasks" or tasks is None or row[2] in tasks:
                tail.append(table, row[1:-2])
    for table in TABLES:
        execute(f"DELETE FROM {table} WHERE position < ? AND position > 0", (record.stop,))
        execute(guards(table)[1])
    execute("DELETE FROM snapshot_data WHERE position < ?", (record.stop,))
    execute("UPDATE bounds SET position = ?, hash = ?", (record.stop, bytes.fromhex(record.last_hash)))
    tail.add(record)
    chain.seal(tail.connection)


def _take(connection: sqlite3.Connection, table: str, positions: list[Row]) -> Iterator[Row]:
    """Rows, each taken out before the next step: its number and id must be free when it is written again."""
    for position in positions:
        row = connection.execute(f"SELECT {select(table)} FROM {table} WHERE position = ?", position).fetchone()
        connection.execute(f"DELETE FROM {table} WHERE position = ?", position)
        yield row
