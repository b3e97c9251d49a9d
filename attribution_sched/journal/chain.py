"""One chain over all rows: no row can be changed, removed, added or moved without every later hash telling.

Each row's hash is SHA-256(hash of the row before, SHA-256(table, values)), in the order of positions, over all tables.
Whoever keeps the last hash elsewhere can show later that nothing before it was changed; the file alone shows all but a
chain that somebody computed anew from the change on.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any

from attribution_sched.errors import JournalError, problem
from attribution_sched.journal.records import Verified
from attribution_sched.journal.schema import (
    DAMAGED,
    TABLES,
    Row,
    check_of,
    damaged,
    decode,
    digest_of,
    insert,
    select,
)

GENESIS = hashlib.sha256(b"attribution_sched journal").digest()
"""Hash before the first row."""

WINDOW = 4096
"""Positions that are checked at once."""

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

_sha256 = hashlib.sha256


class Tail:
    """The end of the chain, where the next row goes.

    Args:
        connection: The file; what it holds is taken to be right.

    Attributes:
        position: Of the next row.
        hash: Of the last row.
        next: Table → next number of its records.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.position, self.hash = start(connection)
        parts = [f"SELECT max(position), '{name}' FROM {name}" for name in TABLES]
        found = connection.execute(" UNION ALL ".join(parts)).fetchall()
        newest, table = max((_whole(row[0]), row[1]) for row in found)
        if newest >= self.position or self.position == 0:
            self.position = newest + 1
            if newest >= 0:
                self.hash = connection.execute(f"SELECT hash FROM {table} WHERE position = ?", (newest,)).fetchone()[0]
        highest = ", ".join(f"(SELECT max({column}) FROM {name})" for name, column in NUMBERED.items())
        counts = connection.execute(f"SELECT {highest}").fetchone()
        self.next = {name: _whole(count) + 1 for name, count in zip(NUMBERED, counts, strict=True)}
        before = _whole(connection.execute("SELECT max(before) FROM archives").fetchone()[0])
        self.next["decisions"] = max(self.next["decisions"], before)

    def append(self, connection: sqlite3.Connection, table: str, values: Row) -> None:
        """Add a row."""
        row = (self.position, *values)
        digest = digest_of(table, row)
        linked = _sha256(self.hash + digest).digest()
        connection.execute(insert(table), (*row, check_of(digest), linked))
        self.position += 1
        self.hash = linked
        if table in NUMBERED:
            self.next[table] = max(self.next[table], values[0] + 1)


def start(connection: sqlite3.Connection) -> tuple[int, bytes]:
    """Position of the first row in this file but for the header, and the hash before it."""
    return bounds(connection)[:2]


def bounds(connection: sqlite3.Connection) -> tuple[int, bytes, int, bytes]:
    """Where the chain begins and ended.

    Returns:
        Position of the first row in this file but for the header, and the hash before it; position and hash of the last
        row when the journal was last closed.

    Raises:
        JournalError: If it is damaged.
    """
    found = connection.execute("SELECT position, hash, head, head_hash FROM bounds").fetchone()
    if found is None or [type(each) for each in found] != [int, bytes, int, bytes] or min(found[0], found[2]) < 0:
        raise JournalError(problem("bounds", found, "does not say where the chain begins and ends", DAMAGED))
    first, before, head, head_hash = found
    return first, before, head, head_hash


def begin(connection: sqlite3.Connection, first: int = 0, before: bytes = GENESIS) -> None:
    """Say where a new file's part of the chain begins."""
    connection.execute("INSERT INTO bounds VALUES (0, ?, ?, ?, ?)", (first, before, 0, b""))


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
    _header(connection)
    beyond = max(_whole(connection.execute(f"SELECT max(position) FROM {table}").fetchone()[0]) for table in TABLES) + 1
    for table in TABLES:
        least = connection.execute(f"SELECT min(position) FROM {table}").fetchone()[0]
        if least is not None and not (first <= least or (table == "header" and least == 0)):
            raise JournalError(problem(table, f"row at position {least}", "is outside of the chain", DAMAGED))
    position = first if since is None else max(first, min(since, beyond))
    began = position
    if position > first:
        previous = hash_at(connection, position - 1)
    queries = {table: f"SELECT {select(table)} FROM {table} WHERE position >= ? AND position < ?" for table in TABLES}
    while position < beyond:
        stop = min(position + WINDOW, beyond)
        rows: list[tuple[str, Row] | None] = [None] * (stop - position)
        for table, query in queries.items():
            for row in connection.execute(query, (position, stop)):
                there = rows[row[0] - position]
                if there is not None:
                    raise damaged(table, row, f"has the position of a row of {there[0]}")
                rows[row[0] - position] = (table, row)
        previous = _window(rows, position, previous)
        position = stop
    if head_hash and (head >= beyond or hash_at(connection, head) != head_hash):
        rule = f"does not hold what it held when it was last closed: the row at position {head} is missing or another"
        raise JournalError(problem("journal", f"position {beyond - 1}", rule, DAMAGED))
    return Verified(began, beyond - began, previous.hex(), archived=max(0, first - 1))


def _window(rows: list[tuple[str, Row] | None], position: int, previous: bytes) -> bytes:
    for at, found in enumerate(rows):
        if found is None:
            rule = "has no row: it was removed"
            raise JournalError(problem("journal", f"position {position + at}", rule, DAMAGED))
        table, row = found
        digest = digest_of(table, row[:-2])
        previous = _sha256(previous + digest).digest()
        if check_of(digest) != row[-2] or previous != row[-1]:
            # The column is named where it can be.
            decode(table, row)
            raise damaged(table, row, "does not follow from the row before it: its hash does not fit")
    return previous


def _header(connection: sqlite3.Connection) -> None:
    """The header is in every part of a journal, archives included, and rests on nothing before it."""
    row = connection.execute(f"SELECT {select('header')} FROM header").fetchone()
    if row is None:
        raise JournalError(problem("header", None, "is not there", DAMAGED))
    digest = digest_of("header", row[:-2])
    if check_of(digest) != row[-2] or _sha256(GENESIS + digest).digest() != row[-1]:
        decode("header", row)
        raise damaged("header", row, "is not what was written: its hash does not fit")


def hash_at(connection: sqlite3.Connection, position: int) -> bytes:
    """Hash of the row at a position, whatever its table.

    Raises:
        JournalError: If there is none.
    """
    for table in TABLES:
        found = connection.execute(f"SELECT hash FROM {table} WHERE position = ?", (position,)).fetchone()
        if found is not None:
            if type(found[0]) is not bytes:
                raise JournalError(problem(table, f"row at position {position}", "has no hash", DAMAGED))
            return found[0]
    raise JournalError(problem("journal", f"position {position}", "has no row: it was removed", DAMAGED))


def _whole(value: Any) -> int:
    """The highest of a column; -1 for none."""
    if value is None:
        return -1
    if type(value) is not int:
        raise JournalError(problem("journal", value, "stands where a number should", DAMAGED))
    return value
