"""One chain over all rows: no row can be changed, removed, added or moved without every later hash telling.

Each row's hash is SHA-256(hash of the row before, SHA-256(table, values)), in the order of positions, over all tables.
Whoever keeps the last hash elsewhere can show later that nothing before it was changed; the file alone shows all but a
chain that somebody computed anew from the change on.
"""

from __future__ import annotations

import hashlib
import heapq
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attribution_sched.journal.faults import damaged, fault
from attribution_sched.journal.records import Verified, now
from attribution_sched.journal.rows import (
    TABLE_OF,
    R,
    Row,
    check_of,
    decode,
    digest_of,
    encode,
    field_names,
    insert,
)
from attribution_sched.journal.schema import TABLES, select

GENESIS = hashlib.sha256(b"attribution_sched journal").digest()
"""Hash before the first row."""

NUMBERED: dict[str, str] = {
    "epochs": "epoch",
    "tasks": "number",
    "decisions": "sequence",
    "feedback": "number",
    "events": "number",
    "intents": "number",
    "snapshots": "number",
}
"""Table → its column that counts from 0."""


def link(before: bytes, digest: bytes) -> bytes:
    """Hash of a row after another."""
    return hashlib.sha256(before + digest).digest()


class Tail:
    """The end of the chain, where the next row goes.

    Args:
        connection: The file; what it holds is taken to be right.

    Attributes:
        connection: The file.
        position: Of the next row.
        hash: Of the last row.
        next: Table → next number of its records.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.position, self.hash, _, _ = bounds(connection)
        newest = newest_position(connection)
        if newest >= self.position or self.position == 0:
            self.position = newest + 1
            if newest >= 0:
                self.hash = hash_at(connection, newest)
        highest_of = ", ".join(f"(SELECT max({column}) FROM {name})" for name, column in NUMBERED.items())
        *counts, archived = connection.execute(f"SELECT {highest_of}, (SELECT max(before) FROM archives)").fetchone()
        self.next = {name: highest(count) + 1 for name, count in zip(NUMBERED, counts, strict=True)}
        self.next["decisions"] = max(self.next["decisions"], highest(archived))

    def append(self, table: str, values: Row) -> None:
        """Add a row."""
        row = (self.position, *values)
        digest = digest_of(table, row)
        hash_ = link(self.hash, digest)
        self.connection.execute(insert(table), (*row, check_of(digest), hash_))
        self.position += 1
        self.hash = hash_
        if table in NUMBERED:
            self.next[table] = max(self.next[table], values[0] + 1)

    def add(self, record: R, **columns: Any) -> R:
        """Add a record; return it with its number, that of the decisions before it, and the time.

        Args:
            record: The record.
            columns: Columns of its table that it does not have, and fields that are to be others.

        Raises:
            JournalError: If a value of it cannot be kept.
        """
        kind: Any = type(record)
        table = TABLE_OF[kind]
        stamps: dict[str, Any] = {"recorded_at": now(), "after_decisions": self.next["decisions"]}
        if table in NUMBERED:
            stamps[NUMBERED[table]] = self.next[table]
        columns = stamps | columns
        fresh = {name: columns[name] for name in columns.keys() & field_names(kind)}
        stamped: Any = replace(record, **fresh) if fresh else record  # type: ignore[type-var]
        self.append(table, encode(table, stamped, **columns))
        return stamped  # type: ignore[no-any-return]


def bounds(connection: sqlite3.Connection) -> tuple[int, bytes, int, bytes]:
    """Where the chain begins and ended.

    Returns:
        Position of the first row in this file but for the header, and the hash before it; position and hash of the last
        row when the journal was last closed.

    Raises:
        JournalError: If it is damaged.
    """
    row: Any = connection.execute("SELECT position, hash, head, head_hash FROM bounds").fetchone()
    if row is None or [type(each) for each in row] != [int, bytes, int, bytes] or min(row[0], row[2]) < 0:
        raise fault("bounds", row, "does not say where the chain begins and ends")
    return row  # type: ignore[no-any-return]


def begin(connection: sqlite3.Connection, first: int = 0, before: bytes = GENESIS) -> None:
    """Say where a new file's part of the chain begins."""
    connection.execute("INSERT INTO bounds VALUES (0, ?, ?, 0, x'')", (first, before))


def seal(connection: sqlite3.Connection) -> None:
    """Say how far the chain has come, so that rows cut off at its end are missed."""
    tail = Tail(connection)
    connection.execute("UPDATE bounds SET head = ?, head_hash = ?", (tail.position - 1, tail.hash))


def verify(connection: sqlite3.Connection, since: int | None = None) -> Verified:
    """Check rows one after the other.

    Args:
        connection: The file, in a transaction if others write it.
        since: First position to check; all of the file by default.

    Raises:
        JournalError: If a row was changed, removed, added or moved; it is named.
    """
    first, previous, head, head_hash = bounds(connection)
    # The header is in every part of a journal, archives included, and rests on nothing before it.
    header = connection.execute(f"SELECT {select('header')} FROM header").fetchone()
    if header is None:
        raise fault("header", None, "is not there")
    _follow("header", header, GENESIS)
    beyond = newest_position(connection) + 1
    for table in TABLES:
        least = connection.execute(f"SELECT min(position) FROM {table}").fetchone()[0]
        if least is not None and not (first <= least or (table == "header" and least == 0)):
            raise fault(table, f"row at position {least}", "is outside of the chain")
    start = position = first if since is None else max(first, min(since, beyond))
    if position > first:
        previous = hash_at(connection, position - 1)
    for at, table, row in heapq.merge(*(_rows(connection, table, start) for table in TABLES)):
        if at < position:
            raise damaged(table, row, "has the position of another row")
        if at > position:
            raise fault("journal", f"position {position}", "has no row: it was removed")
        previous, position = _follow(table, row, previous), position + 1
    if head_hash and (head >= beyond or hash_at(connection, head) != head_hash):
        raise fault(
            "journal",
            f"position {beyond - 1}",
            f"does not hold what it held when it was last closed: the row at position {head} is missing or another",
        )
    return Verified(start, beyond - start, previous.hex(), archived=max(0, first - 1))


def _rows(connection: sqlite3.Connection, table: str, start: int) -> Iterator[tuple[int, str, Row]]:
    query = f"SELECT {select(table)} FROM {table} WHERE position >= ? ORDER BY position"
    return ((row[0], table, row) for row in connection.execute(query, (start,)))


def _follow(table: str, row: Row, previous: bytes) -> bytes:
    """Hash of a row, checked against what it holds and the hash of the row before it."""
    digest = digest_of(table, row[:-2])
    hash_ = link(previous, digest)
    if check_of(digest) != row[-2] or hash_ != row[-1]:
        # The column is named where it can be.
        decode(table, row)
        raise damaged(table, row, "does not follow from the row before it: its hash does not fit")
    return hash_


def hash_at(connection: sqlite3.Connection, position: int) -> bytes:
    """Hash of the row at a position, whatever its table.

    Raises:
        JournalError: If there is none.
    """
    for table in TABLES:
        row = connection.execute(f"SELECT hash FROM {table} WHERE position = ?", (position,)).fetchone()
        if row is not None:
            if type(row[0]) is not bytes:
                raise fault(table, f"row at position {position}", "has no hash")
            return row[0]
    raise fault("journal", f"position {position}", "has no row: it was removed")


def newest_position(connection: sqlite3.Connection) -> int:
    """Position of the newest row; -1 if there is none."""
    ends = ", ".join(f"(SELECT max(position) FROM {table})" for table in TABLES)
    return max(map(highest, connection.execute(f"SELECT {ends}").fetchone()))


def highest(value: Any) -> int:
    """The highest of a column; -1 for none."""
    if value is not None and type(value) is not int:
        raise fault("journal", value, "stands where a number should")
    return -1 if value is None else value
