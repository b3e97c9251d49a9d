"""The file of a journal: made whole or not at all, looked at before it is touched, written by one at a time.

One connection behind one lock: threads take turns, a record is whole or not there, also where it is interrupted at any
line. One process writes: ``flock`` on a file beside the journal, which the operating system takes back when its holder
dies, keeps others out; an epoch in the journal itself stops a writer that another one got past all the same.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import functools
import hashlib
import json
import math
import operator
import os
import re
import secrets
import socket
import sqlite3
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attribution_sched.errors import JournalError, nearest, problem
from attribution_sched.journal.records import Verified

# ------ The tables of a journal: what each column holds, checked on the way in and on the way out
#
# A journal is an SQLite file with :data:`APPLICATION_ID` in its header and the schema's version in ``user_version``.
# Besides its own columns every row has ``position``, its place in the one chain of all rows, ``digest``, the first
# eight
# bytes of the SHA-256 of its values, and ``hash``, which links it to the row before (:mod:`.chain`).

APPLICATION_ID = 0x41545353
"""``ATSS`` at byte 68 of the file: tells a journal from anybody else's SQLite file."""

ARCHIVE_ID = 0x41545341
"""``ATSA``: an archive, which is read like a journal and never written."""

VERSION = 3

LARGEST_INTEGER = 2**63 - 1
DAMAGED = "The journal is damaged: restore it from a copy"

Row = tuple[Any, ...]

TABLES: dict[str, dict[str, str]] = {
    "header": {
        "preset": "word",
        "policy": "word",
        "settings": "mapping",
        "seeds": "mapping",
        "package_version": "word",
        "created_at": "word",
        "journal_id": "word",
    },
    "epochs": {"epoch": "whole unique", "writer": "word", "opened_at": "word"},
    "tasks": {
        "number": "whole unique",
        "id": "word unique",
        "kind": "word",
        "steps": "whole",
        "submitted_s": "number",
        "counters": "mapping",
        "meta": "mapping",
    },
    "decisions": {
        "sequence": "whole unique",
        "id": "word unique",
        "task_id": "word null",
        "cluster_time_s": "number",
        "policy": "word",
        "source": "word",
        "plan": "mapping null",
        "attribution": "mapping null",
        "action": "json",
        "view_digest": "text",
        "latencies_s": "mapping",
        "w_eff": "number null",
        "w_util": "number null",
        "w_cost": "number null",
        "provenance": "mapping",
        "recorded_at": "word",
        "slot": "whole null",
    },
    "outcomes": {
        "sequence": "whole unique",
        "r_eff": "number null",
        "r_util": "number null",
        "r_cost": "number null",
        "reward": "number null",
        "step_s": "number null",
        "bill_usd": "number null",
        "energy_j": "number null",
        "code": "integer",
        "provenance": "word",
        "details": "mapping",
    },
    "explanations": {"sequence": "whole index", "target": "word", "explanation": "mapping"},
    "feedback": {
        "number": "whole unique",
        "changed": "word",
        "before": "json",
        "after": "json",
        "reason": "word",
        "after_decisions": "whole",
        "recorded_at": "word",
        "undoes": "whole null",
        "reason_zh": "text",
    },
    "events": {
        "number": "whole unique",
        "kind": "word",
        "details": "mapping",
        "cluster_time_s": "number null",
        "recorded_at": "word",
    },
    "waits": {
        "after_decisions": "whole index",
        "cluster_time_s": "number",
        "count": "whole",
        "reasons": "mapping",
        "slots": "bytes null",
    },
    "handles": {"key": "word index", "executor": "word", "handle": "json", "recorded_at": "word"},
    "intents": {
        "number": "whole unique",
        "kind": "word",
        "details": "mapping",
        "after_decisions": "whole",
        "recorded_at": "word",
    },
    "effects": {"number": "whole unique", "details": "mapping", "recorded_at": "word"},
    "snapshots": {
        "number": "whole unique",
        "sequence": "whole index",
        "facts": "mapping",
        "size": "whole",
        "sha256": "word",
        "recorded_at": "word",
    },
    "archives": {
        "path": "word",
        "first": "whole",
        "stop": "whole",
        "before": "whole",
        "last_hash": "word",
        "recorded_at": "word",
    },
}
"""Table → column → what it holds: a kind of :data:`KINDS`, whether it may be empty, and whether it is looked up by."""

BESIDE: tuple[str, ...] = (
    "CREATE TABLE bounds (id INTEGER PRIMARY KEY CHECK (id = 0), position INTEGER NOT NULL, hash BLOB NOT NULL, "
    "head INTEGER NOT NULL, head_hash BLOB NOT NULL)",
    "CREATE TABLE snapshot_data (position INTEGER PRIMARY KEY, data BLOB NOT NULL)",
)
"""Outside the chain: where this file's part of it begins, and how far it had come when it was last closed, so that rows
cut off at its end are missed; the bytes of snapshots, whose hash is in the chain, so that old ones can be dropped."""

FIELDS: dict[str, str] = {
    "header": "header",
    "feedback": "feedback",
    "explanations": "explanation",
} | {name: name.removesuffix("s") for name in TABLES if name not in ("header", "feedback")}
"""Table → how messages to those who record call one of its records."""


@functools.cache
def columns(table: str) -> tuple[str, ...]:
    """Names of a table's own columns."""
    return tuple(TABLES[table])


@functools.cache
def select(table: str, alias: str = "") -> str:
    """All columns of a table, position first, digest and hash last, for a query."""
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + name for name in ("position", *columns(table), "digest", "hash"))


@functools.cache
def insert(table: str) -> str:
    """The statement that adds a row."""
    return f"INSERT INTO {table} ({select(table)}) VALUES ({', '.join('?' * (len(columns(table)) + 3))})"


# --- What a column may hold ---------------------------------------------------------------------------------------


def text(field: str, value: object, *, empty: bool = True) -> str:
    """A word or sentence.

    Raises:
        JournalError: If it is none, or empty where that means nothing.
    """
    if not isinstance(value, str) or not (value or empty):
        raise JournalError(problem(field, _short(value), "must be a word", "Give a string that is not empty"))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise JournalError(problem(field, value, "cannot be written as UTF-8", "Leave out lone surrogates")) from error
    return value


def word(field: str, value: object) -> str:
    """A text that is not empty."""
    return text(field, value, empty=False)


def number(field: str, value: Any) -> float:
    """A finite number."""
    if value is None:
        raise JournalError(problem(field, value, "must be a number", "Give a finite number"))
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise JournalError(problem(field, value, "must be a number", "Give a number, or None if it is not known"))
    try:
        real = float(value)
    except (TypeError, ValueError, OverflowError):
        real = math.nan
    if not math.isfinite(real):
        raise JournalError(problem(field, value, "must be finite", "Give None if it is not known"))
    # SQLite keeps no sign of zero; the digest must not know it either.
    return real + 0.0


def whole(field: str, value: Any, *, least: int = 0) -> int:
    """A whole number from ``least`` on that 64 bits can hold."""
    try:
        integer = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        integer = least - 1
    if isinstance(value, bool) or not least <= integer <= LARGEST_INTEGER:
        rule = f"must be a whole number of at least {least}, in 64 bits"
        raise JournalError(problem(field, value, rule, "Give an integer in that range"))
    return integer


def integer(field: str, value: Any) -> int:
    """A whole number of either sign that 64 bits can hold."""
    return whole(field, value, least=-(2**63))


def dump(field: str, value: Any) -> str:
    """JSON without spaces; floating-point numbers to the last digit.

    Raises:
        JournalError: If it holds NaN, infinity or something that JSON has no form for.
    """
    try:
        written = ENCODER.encode(value)
        written.encode()
    except (TypeError, ValueError, RecursionError) as error:
        rule = f"cannot be written as JSON ({error})"
        fix = "Give finite numbers, words, lists and mappings, and None for what is not known"
        raise JournalError(problem(field, _short(value), rule, fix)) from error
    return written


def dump_mapping(field: str, value: Any) -> str:
    """JSON of a mapping."""
    if not isinstance(value, Mapping):
        raise JournalError(problem(field, _short(value), "must be a mapping", "Give a dict whose keys are words"))
    return "{}" if not value else dump(field, value)


def data(field: str, value: Any) -> bytes:
    """Bytes."""
    if not isinstance(value, bytes):
        raise JournalError(problem(field, _short(value), "must be bytes", "Give bytes"))
    return value


def load(field: str, written: Any) -> Any:
    """The inverse of :func:`dump`; None stays None.

    Raises:
        JournalError: If the text is damaged.
    """
    if written is None:
        return None
    try:
        return _parsed(written)
    except ValueError as error:
        raise JournalError(problem(field, _short(written), str(error), DAMAGED)) from error


def _plain(value: Any) -> Any:
    """Arrays and their scalars as lists and numbers, views of mappings as mappings."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _short(value: object) -> object:
    """A value for a message: itself, or the beginning of what it looks like."""
    shown = value if isinstance(value, str) else repr(value)
    return value if len(shown) <= 80 else shown[:77] + "..."


ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=_plain)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


DECODER = json.JSONDecoder(parse_constant=_refused)


# --- Reading: each raises ValueError with the rule that was broken -----------------------------------------------


def _parsed(value: Any) -> Any:
    if type(value) is not str:
        raise ValueError("is not text")
    try:
        return DECODER.decode(value)
    except (ValueError, RecursionError) as error:
        raise ValueError("is not JSON") from error


def _read_mapping(value: Any) -> Any:
    mapping = _parsed(value)
    if type(mapping) is not dict:
        raise ValueError("is no mapping")
    return mapping


def _read_number(value: Any) -> Any:
    if type(value) is not float or not math.isfinite(value):
        raise ValueError("is no finite number")
    return value


def _read_whole(value: Any) -> Any:
    if type(value) is not int or value < 0:
        raise ValueError("is no whole number of at least 0")
    return value


def _read_integer(value: Any) -> Any:
    if type(value) is not int:
        raise ValueError("is no whole number")
    return value


def _read_text(value: Any) -> Any:
    if type(value) is not str:
        raise ValueError("is not text")
    return value


def _read_word(value: Any) -> Any:
    if type(value) is not str or not value:
        raise ValueError("is no word")
    return value


def _read_bytes(value: Any) -> Any:
    if type(value) is not bytes:
        raise ValueError("is not bytes")
    return value


Write = Callable[[str, Any], Any]
Read = Callable[[Any], Any]

KINDS: dict[str, tuple[str, Write, Read]] = {
    "whole": ("INTEGER", whole, _read_whole),
    "integer": ("INTEGER", integer, _read_integer),
    "number": ("REAL", number, _read_number),
    "text": ("TEXT", text, _read_text),
    "word": ("TEXT", word, _read_word),
    "mapping": ("TEXT", dump_mapping, _read_mapping),
    "json": ("TEXT", dump, _parsed),
    "bytes": ("BLOB", data, _read_bytes),
}
"""Kind → its type in SQLite, how it is checked on the way in, and on the way out."""


@functools.cache
def _specification(table: str) -> tuple[tuple[str, str, bool, Write, Read], ...]:
    """Of each column: name, name in messages, whether it may be empty, and how it is written and read."""
    made = []
    for name, words in TABLES[table].items():
        kind, *more = words.split()
        made.append((name, f"{FIELDS[table]}.{name}", "null" in more, *KINDS[kind][1:]))
    return tuple(made)


def encode(table: str, record: Any, **changes: Any) -> Row:
    """The values of a new row.

    Args:
        table: Its table.
        record: Has the columns as attributes.
        changes: Columns it does not have, or that are to be others.

    Raises:
        JournalError: If a value cannot be kept; it is named.
    """
    row = []
    for name, field, null, write, _ in _specification(table):
        value = changes[name] if name in changes else getattr(record, name)
        row.append(None if null and value is None else write(field, value))
    return tuple(row)


def decode(table: str, row: Sequence[Any], leave: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A row as it was written: column → value.

    Args:
        table: Its table.
        row: As :func:`select` gives it.
        leave: Columns that nobody will look at; they count in the row's digest and are not read.

    Raises:
        JournalError: If a value is not of its column's kind, or the row is not what was written. It is named.
    """
    fields: dict[str, Any] = {}
    for (name, _, null, _, read), value in zip(_specification(table), row[1:-2], strict=True):
        if value is None and null:
            fields[name] = None
            continue
        if name in leave:
            continue
        try:
            fields[name] = read(value)
        except ValueError as error:
            raise damaged(table, row, str(error), name, value) from error
    check(table, row)
    return fields


def check(table: str, row: Sequence[Any]) -> None:
    """Check that a row is what was written.

    Raises:
        JournalError: If it is not.
    """
    if check_of(digest_of(table, row[:-2])) != row[-2]:
        raise damaged(table, row, "is not what was written: its digest does not fit")
    if type(row[-1]) is not bytes or len(row[-1]) != 32:
        raise damaged(table, row, "is no SHA-256", "hash", row[-1])


def damaged(table: str, row: Sequence[Any], rule: str, column: str = "", value: object = "") -> JournalError:
    """The one error for a row that is not as it was written."""
    field = f"{table}[{_short(row[1])}]" + (f".{column}" if column else "")
    shown = _short(value) if column else f"row at position {_short(row[0])}"
    return JournalError(problem(field, shown, rule, DAMAGED))


# --- A row's bytes ------------------------------------------------------------------------------------------------

_double = struct.Struct("<d").pack


def canonical(values: Sequence[Any]) -> bytes:
    """Values as bytes, the same on every machine and unlike those of any other values.

    None is ``N``; a whole number ``I``, its digits and ``;``; a number ``R`` and its eight bytes as IEEE 754, the least
    significant first; text ``T`` and bytes ``B``, each with the number of bytes, ``:`` and the bytes.
    """
    parts: list[bytes] = []
    add = parts.append
    for value in values:
        kind = type(value)
        if kind is str:
            written = value.encode("utf-8", "surrogatepass")
            add(b"T%d:" % len(written))
            add(written)
        elif kind is float:
            add(b"R" + _double(value))
        elif kind is int:
            add(b"I%d;" % value)
        elif value is None:
            add(b"N")
        else:
            add(b"B%d:" % len(value))
            add(value)
    return b"".join(parts)


_sha256 = hashlib.sha256
_NAMES = {table: f"{table};".encode() for table in TABLES}


def digest_of(table: str, values: Sequence[Any]) -> bytes:
    """SHA-256 of a table's name and a row's values, its position included."""
    return _sha256(_NAMES[table] + canonical(values)).digest()


def check_of(digest: bytes) -> int:
    """What a row keeps of its digest, so that it can be checked by itself."""
    return int.from_bytes(digest[:8], "little", signed=True)


# --- The file's tables --------------------------------------------------------------------------------------------


def statements() -> list[str]:
    """What makes all tables, indexes and triggers."""
    made = list(BESIDE)
    for table, holds in TABLES.items():
        items, indexes = ["position INTEGER PRIMARY KEY"], []
        for name, words in holds.items():
            kind, *more = words.split()
            items.append(
                f"{name} {KINDS[kind][0]}{'' if 'null' in more else ' NOT NULL'}{' UNIQUE' if 'unique' in more else ''}"
            )
            if "index" in more:
                indexes.append(f"CREATE INDEX {table}_{name} ON {table} ({name})")
        items += ["digest INTEGER NOT NULL", "hash BLOB NOT NULL"]
        made += [f"CREATE TABLE {table} ({', '.join(items)})", *indexes, *guards(table)]
    return made


def guards(table: str) -> list[str]:
    """Triggers that let the file itself refuse changes to what was recorded, whoever asks."""
    return [
        f"CREATE TRIGGER {table}_no_{event.lower()} BEFORE {event} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'a journal is append-only'); END"
        for event in ("UPDATE", "DELETE")
    ]


def create_tables(connection: sqlite3.Connection) -> None:
    """Make all tables, inside the caller's transaction."""
    for statement in statements():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def version(connection: sqlite3.Connection) -> int:
    """Version of the schema in a file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def refuse_newer(schema: int, path: str) -> None:
    """Refuse a version this package does not know.

    Raises:
        JournalError: If it is newer, or negative.
    """
    if not 0 <= schema <= VERSION:
        rule = f"has schema version {schema}; this package knows versions up to {VERSION}"
        raise JournalError(problem("journal", path, rule, "Upgrade the package"))


def complete(connection: sqlite3.Connection, path: str) -> None:
    """Check that every table, column, index and trigger is there as this version makes it, and no other trigger.

    Raises:
        JournalError: If one is missing or different.
    """
    objects = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    fix = "It is damaged: restore it from a copy"
    for statement in statements():
        kind, name = statement.split()[1:3]
        if objects.pop(name, None) == statement:
            continue
        rule = f"has no {kind.lower()} {name} as it was made"
        if name in TABLES:
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
            missing = [column for column in columns(name) if column not in there]
            if missing:
                rule = f"has no column {name}.{missing[0]}" if there else f"has no table {name}"
        raise JournalError(problem("journal", path, rule, fix))
    strange = [name for name, sql in objects.items() if str(sql).upper().startswith("CREATE TRIGGER")]
    if strange:
        raise JournalError(problem("journal", path, f"has a trigger of others ({strange[0]})", fix))


# ------ One chain over all rows: no row can be changed, removed, added or moved without every later hash telling
#
# Each row's hash is SHA-256(hash of the row before, SHA-256(table, values)), in the order of positions, over all
# tables.
# Whoever keeps the last hash elsewhere can show later that nothing before it was changed; the file alone shows all but
# a
# chain that somebody computed anew from the change on.

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
    row = connection.execute("SELECT position, hash, head, head_hash FROM bounds").fetchone()
    if row is None or [type(each) for each in row] != [int, bytes, int, bytes] or min(row[0], row[2]) < 0:
        raise JournalError(problem("bounds", row, "does not say where the chain begins and ends", DAMAGED))
    first, before, head, head_hash = row
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
    for at, entry in enumerate(rows):
        if entry is None:
            rule = "has no row: it was removed"
            raise JournalError(problem("journal", f"position {position + at}", rule, DAMAGED))
        table, row = entry
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
        row = connection.execute(f"SELECT hash FROM {table} WHERE position = ?", (position,)).fetchone()
        if row is not None:
            if type(row[0]) is not bytes:
                raise JournalError(problem(table, f"row at position {position}", "has no hash", DAMAGED))
            return row[0]
    raise JournalError(problem("journal", f"position {position}", "has no row: it was removed", DAMAGED))


def _whole(value: Any) -> int:
    """The highest of a column; -1 for none."""
    if value is None:
        return -1
    if type(value) is not int:
        raise JournalError(problem("journal", value, "stands where a number should", DAMAGED))
    return value


# ------ Older journals become today's: all of them, or nothing of them

FORMER: tuple[str, ...] = ("header", "tasks", "decisions", "outcomes", "explanations", "feedback", "events")
"""Tables of versions 0 to 2."""


def migrate(connection: sqlite3.Connection, path: str) -> int:
    """Bring an older file to today's schema.

    Args:
        connection: Open for writing, no transaction under way, foreign keys off.
        path: Name of the file, for messages.

    Returns:
        The version it had.

    Raises:
        JournalError: If the file is newer than this package, or a step fails; the file is as it was.
    """
    schema = version(connection)
    refuse_newer(schema, path)
    if schema == VERSION:
        return schema
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in range(schema, VERSION):
            for change in MIGRATIONS[step]:
                if isinstance(change, str):
                    connection.execute(change)
                else:
                    change(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        complete(connection, path)
        connection.execute("COMMIT")
    except (sqlite3.Error, KeyError, JournalError) as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        rule = f"could not be brought from version {schema} to {VERSION} ({error})"
        raise JournalError(problem("journal", path, rule, "It is unchanged: restore it from a copy")) from error
    return schema


def _chained(connection: sqlite3.Connection) -> None:
    """Version 2 had no chain: every row is checked, gets its place and is written anew."""
    for table in FORMER:
        for event in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {table}_no_{event}")
        connection.execute(f"ALTER TABLE {table} RENAME TO former_{table}")
    for statement in statements():
        connection.execute(statement)
    begin(connection)
    tail = Tail(connection)
    header = connection.execute(f"SELECT {_former('header')} FROM former_header").fetchone()
    if header is None:
        raise JournalError(problem("header", None, "has no header", DAMAGED))
    tail.append(connection, "header", _checked("header", (*header, secrets.token_hex(6))))
    # A fixed order, the same that a run would have given but for the tasks, which all come first.
    for table, row in _rows(connection):
        tail.append(connection, table, _checked(table, row))
    seal(connection)
    for table in reversed(FORMER):
        connection.execute(f"DROP TABLE former_{table}")


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[str, Row]]:
    orders = {"tasks": "number", "decisions": "sequence", "explanations": "sequence, target"}
    for row in connection.execute(f"SELECT {_former('tasks')} FROM former_tasks ORDER BY number"):
        yield "tasks", row
    width = len(columns("decisions"))
    both = (
        f"SELECT {_former('decisions', 'd')}, {_former('outcomes', 'o')} "
        "FROM former_decisions d LEFT JOIN former_outcomes o ON o.sequence = d.sequence ORDER BY d.sequence"
    )
    for row in connection.execute(both):
        yield "decisions", row[:width]
        if row[width] is not None:
            yield "outcomes", row[width:]
    for table in ("explanations", "feedback", "events"):
        order = orders.get(table, "number")
        for row in connection.execute(f"SELECT {_former(table)} FROM former_{table} ORDER BY {order}"):
            yield table, row


def _former(table: str, alias: str = "") -> str:
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + name for name in columns(table) if name != "journal_id")


def _checked(table: str, row: Sequence[object]) -> Row:
    """The values, which version 2 did not check when they were read."""
    for (name, words), value in zip(TABLES[table].items(), row, strict=True):
        kind, *more = words.split()
        if value is None and "null" in more:
            continue
        try:
            KINDS[kind][2](value)
        except ValueError as error:
            raise damaged(table, (None, row[0]), str(error), name, value) from error
    return tuple(row)


Change = str | Callable[[sqlite3.Connection], None]

MIGRATIONS: dict[int, tuple[Change, ...]] = {
    0: (
        "ALTER TABLE decisions ADD COLUMN slot INTEGER",
        "ALTER TABLE feedback ADD COLUMN undoes INTEGER REFERENCES feedback (number)",
    ),
    1: ("ALTER TABLE feedback ADD COLUMN reason_zh TEXT NOT NULL DEFAULT ''",),
    2: (_chained,),
}
"""Version → what leads to the next. Version 0 did not know the slot, nor which change was taken back; version 1 kept
reasons in one language; version 2 had no chain, intents, handles, waits, snapshots and archives."""


# ------ The file of a journal: made whole or not at all, looked at before it is touched, written by one at a time

WAIT_S = 10.0
"""How long to wait for SQLite's own short locks, for example while a reader recovers the log of a dead writer."""

PAGE = 256
"""Rows that are in memory at once while reading."""

QUICK_CHECK_BYTES = 64_000_000
"""Files up to this size have all their pages looked at when they are opened for writing; it takes about 0.1 s."""

UNANCHORED_ROWS = 5_000
"""Newest rows that are checked when a journal without a snapshot is opened for writing."""

LOCK_SUFFIX = ".lock"
LOCK_POLL_S = 0.02
"""Pause between two tries for a lock that is waited for."""

RESTORE = "Restore it from a copy"

T = TypeVar("T")


def now() -> str:
    """UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


# --- One writer ---------------------------------------------------------------------------------------------------


class WriterLock:
    """The right to write a journal, from construction to :meth:`release`.

    The file says who holds it, for the message only. It is removed on release; whoever locked a removed file notices
    and tries again.

    Args:
        journal: Path of the journal, symbolic links resolved.
        wait_s: How long to wait for another that holds it: a child of a dead writer may, until it has submitted.

    Raises:
        JournalError: If another writer holds it, or the folder cannot be written.
    """

    def __init__(self, journal: Path, wait_s: float = 0.0) -> None:
        self.path = beside(journal, LOCK_SUFFIX)
        self._pid = os.getpid()
        self._file = _take(self.path, journal, wait_s)
        since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{self._pid}\n{since}\n{socket.gethostname()}\n".encode(), 0)
        _HELD.add(self)

    @property
    def file(self) -> int:
        """The open file. A child that inherits it keeps the lock held until it ends as well."""
        return self._file

    def release(self) -> None:
        """Let the next writer in; harmless when done twice."""
        if self._file < 0 or self._pid != os.getpid():
            return
        # Removed while still locked: nobody can be between opening this file and believing to hold it. A file that
        # another writer made after ours was deleted is left alone.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file), self.path.stat()):
                self.path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = -1

    def forget(self) -> None:
        """Drop the handle a forked child inherited; else it would keep the lock after its parent's death."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


_HELD: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_HELD):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)


def _take(path: Path, journal: Path, wait_s: float) -> int:
    until = time.monotonic() + wait_s
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            rule = f"cannot be written: no lock file can be made beside it ({error.strerror})"
            fix = "Use a folder that exists and can be written"
            raise JournalError(problem("journal", str(journal), rule, fix)) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(file)
            os.close(file)
            if time.monotonic() < until:
                time.sleep(LOCK_POLL_S)
                continue
            rule = f"is being written by {holder}"
            fix = "End that process or close its journal, choose another path, or look at it with Journal.read"
            raise JournalError(problem("journal", str(journal), rule, fix)) from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)


def _holder(file: int) -> str:
    lines = os.pread(file, 1000, 0).decode(errors="replace").split("\n")
    if len(lines) < 3:
        return "a process that is just starting"
    pid, since, host = lines[:3]
    who = "this process" if pid == str(os.getpid()) else f"process {pid}"
    return f"{who} on {host} since {since}"


# --- The file -----------------------------------------------------------------------------------------------------


def create(path: Path, header: Row) -> None:
    """Make a new journal; the caller holds its lock.

    It is built under another name and renamed, so that a killed process leaves a journal or none.

    Raises:
        JournalError: If something is there already, or the folder cannot be written.
    """
    log = beside(path, "-wal")
    # The log of a journal that was removed would be taken for the new one's.
    for taken in (path, log):
        if taken.exists() and (taken is path or taken.stat().st_size > 0):
            fix = "Go on with it by System.resume(path) or run --resume, choose another path, or move it away"
            raise JournalError(problem("journal", str(taken), "is there already", fix))
    try:
        with draft_of(path) as draft, contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            fill(connection, header)
            connection.execute("PRAGMA journal_mode = WAL")
    except (OSError, sqlite3.Error) as error:
        rule = f"cannot be made ({error})"
        raise JournalError(problem("journal", str(path), rule, "Use a folder with room that can be written")) from error


def fill(connection: sqlite3.Connection, header: Row) -> None:
    """Make tables and header in an empty database."""
    connection.execute("BEGIN IMMEDIATE")
    create_tables(connection)
    begin(connection)
    Tail(connection).append(connection, "header", header)
    seal(connection)
    connection.execute("COMMIT")


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A file to be filled, which takes its name when it is whole and on disk; drafts of dead processes are removed."""
    sweep(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        yield draft
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    finally:
        for left in (draft, beside(draft, "-journal"), beside(draft, "-wal"), beside(draft, "-shm")):
            left.unlink(missing_ok=True)


DRAFT = re.compile(r"\..+\.(\d+)\.new(-journal|-wal|-shm)?")


def sweep(path: Path) -> None:
    """Remove what processes that were killed while they wrote a file left in its folder."""
    with contextlib.suppress(OSError):
        for other in path.parent.glob(".*.new*"):
            match = DRAFT.fullmatch(other.name)
            # Release 0.1 gave the drafts of journals no process id; whoever makes this journal holds its lock.
            if (match and not _alive(int(match[1]))) or other.name in (
                f".{path.name}.new",
                f".{path.name}.new-journal",
            ):
                other.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


_disposable: set[Path] = set()


def dispose_of(folder: Path) -> None:
    """Journals in this folder are copies that are thrown away: none of their commits waits for the disk.

    The disk is one, and whoever decides waits for it: copies that others look into must not make that longer.
    """
    _disposable.add(folder.resolve())


def disposable(path: Path) -> bool:
    """Whether a journal is a copy that is thrown away."""
    return path.parent.resolve() in _disposable


def writing(path: Path) -> sqlite3.Connection:
    """Connect for writing, every commit on disk before it returns; the caller holds the lock.

    The file is looked at first, and changed only once nothing was found wrong.

    Raises:
        JournalError: If it is damaged, foreign or newer than this package.
    """
    inspect(path)
    with contextlib.closing(connect(path)) as connection, readable(path):
        if connection.execute("PRAGMA application_id").fetchone()[0] == ARCHIVE_ID:
            fix = "Look at it with Journal.read; go on with the journal it was taken from"
            raise JournalError(problem("journal", str(path), "is an archive, which is not written any more", fix))
        if path.stat().st_size <= QUICK_CHECK_BYTES:
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise JournalError(problem("journal", str(path), f"is damaged ({verdict.strip()})", RESTORE))
        if version(connection) == VERSION:
            _judge(connection, path)
            verify(connection, _anchor(connection))
    with readable(path):
        connection = connect(path, "rw")
    try:
        with readable(path):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'OFF' if disposable(path) else 'FULL'}")
            if migrate(connection, str(path)) != VERSION:
                _judge(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def reading(path: Path) -> sqlite3.Connection:
    """Connect for reading only, also while another process writes.

    Raises:
        JournalError: If it is damaged, foreign, or of another version.
    """
    inspect(path)
    connection = connect(path)
    try:
        with readable(path):
            schema = version(connection)
            if schema < VERSION:
                fix = "Open it once with Journal.open, which brings it up to date"
                rule = f"has schema version {schema}, reading needs {VERSION}"
                raise JournalError(problem("journal", str(path), rule, fix))
            _judge(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def inspect(path: Path) -> None:
    """Look, without changing anything: an SQLite file of ours, of a version that is known?

    Through SQLite: closing any other handle on the file would drop the locks of this process's own connections to it.

    Raises:
        JournalError: If it is not.
    """
    if not path.is_file():
        if path.exists():
            raise JournalError(problem("journal", str(path), "is not a file", "Give the path of a journal"))
        names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = nearest(path.name, names)
        fix = (
            hint
            if hint.startswith("Did you mean")
            else "attribution-sched run writes one, as System(journal=path) does"
        )
        raise JournalError(problem("journal", str(path), "does not exist", fix))
    with contextlib.closing(connect(path)) as connection, readable(path):
        known = (APPLICATION_ID, ARCHIVE_ID)
        if connection.execute("PRAGMA application_id").fetchone()[0] not in known:
            rule = "is not a journal but a file of another application"
            fix = "Give the path of a journal; attribution-sched run writes one"
            raise JournalError(problem("journal", str(path), rule, fix))
        refuse_newer(version(connection), str(path))
        # SQLite takes a page cut off for one that ends in zeros. With a log, the file may rightly be too short.
        page, pages = (int(connection.execute(f"PRAGMA page_{each}").fetchone()[0]) for each in ("size", "count"))
        size, log = path.stat().st_size, beside(path, "-wal")
        if size < page * pages and not (log.is_file() and log.stat().st_size > 0):
            rule = f"is damaged: {size} of {page * pages} bytes are there"
            raise JournalError(problem("journal", str(path), rule, RESTORE))


def connect(path: Path, mode: str = "ro") -> sqlite3.Connection:
    """A connection to a file that is there, autocommitting and usable from any thread."""
    with readable(path):
        return sqlite3.connect(
            f"{path.as_uri()}?mode={mode}", uri=True, timeout=WAIT_S, isolation_level=None, check_same_thread=False
        )


def beside(path: Path, ending: str) -> Path:
    """A file that belongs to another."""
    return path.with_name(path.name + ending)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Turn SQLite's complaints into one clear error."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path | str, error: sqlite3.Error | UnicodeDecodeError) -> JournalError:
    """The one clear error for a complaint of SQLite; it may quote what is damaged, and that may be no text at all."""
    if (
        type(error) in (sqlite3.DatabaseError, UnicodeDecodeError)
        or "decode to UTF-8" in str(error)
        or "malformed" in str(error)
    ):
        return JournalError(problem("journal", str(path), f"is damaged ({error})", RESTORE))
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return JournalError(problem("journal", str(path), "is closed", "Open it again with Journal.open"))
    fix = "Check its folder, the free room and who may write"
    return JournalError(problem("journal", str(path), f"cannot be used ({error})", fix))


def _judge(connection: sqlite3.Connection, path: Path) -> None:
    """Check tables, header and that no decision is missing."""
    complete(connection, str(path))
    header = connection.execute(f"SELECT {select('header')} FROM header").fetchone()
    if header is None:
        raise JournalError(problem("journal", str(path), "has no header", RESTORE))
    decode("header", header)
    # Three queries in one: each is then answered from an index.
    counts = ", ".join(
        f"(SELECT {aggregate} FROM decisions)" for aggregate in ("count(*)", "min(sequence)", "max(sequence)")
    )
    number, least, most = connection.execute(f"SELECT {counts}").fetchone()
    if number and not (type(least) is type(most) is int and most - least == number - 1 and least >= 0):
        rule = f"has {number} decisions numbered {least} to {most}: some are missing"
        raise JournalError(problem("journal", str(path), rule, RESTORE))


def _anchor(connection: sqlite3.Connection) -> int | None:
    """The first row after the newest snapshot's decisions: from there on the chain is checked at once."""
    newest = connection.execute("SELECT position, sequence FROM snapshots ORDER BY position DESC LIMIT 1").fetchone()
    if newest is None:
        return Tail(connection).position - UNANCHORED_ROWS
    first = connection.execute("SELECT position FROM decisions WHERE sequence = ?", newest[1:]).fetchone()
    positions = [row[0] for row in (newest, first) if row is not None and type(row[0]) is int]
    return min(positions, default=None)


# --- The connection -----------------------------------------------------------------------------------------------


class _Progress:
    """What is under way, so that what an interrupt leaves half done is known and taken back.

    Attributes:
        record: ``single`` or ``grouped`` while a record is being written.
    """

    __slots__ = ("record",)

    def __init__(self) -> None:
        self.record = ""


class Store:
    """One connection behind one lock: threads take turns, statement by statement.

    Args:
        connection: Autocommitting, usable from any thread.
        path: The file; None in memory.
        lock: The right to write; None for a journal in memory or for reading.
        writable: Whether records may be added.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None, lock: WriterLock | None, *, writable: bool
    ) -> None:
        self.name = "in memory" if path is None else str(path)
        self.writable = writable
        self._path = path
        self._throwaway = path is not None and disposable(path)
        self.lock = lock
        with readable(self.name):
            self._file = None if path is None else _identity(path)
            # Of two that opened it, the one that claims it first goes on and the other is told.
            self._seen = Tail(connection).hash if writable else b""
        self._claim = b""
        self._epoch: int | None = None
        self._tail: Tail | None = None
        self._connection = connection
        self._turn = threading.RLock()
        self._soon = False
        self._pid = os.getpid()
        self._depth = 0
        self._every = 1
        self._held = 0
        self._progress = _Progress()
        # Also when it is forgotten rather than closed: nothing recorded is lost and the next writer gets in.
        self._end = weakref.finalize(self, _end, connection, lock, self._pid, self._progress)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._end.alive

    def close(self) -> None:
        """Commit what a group still holds back, and let the next writer in; harmless when done twice."""
        if self._pid != os.getpid():
            return
        with self._turn, readable(self.name):
            if not self.closed and self._epoch is not None:
                self._seal()
            self._end()

    def _seal(self) -> None:
        """Keep how far the chain has come; one that cannot, for want of room, is closed all the same."""
        if self._progress.record:
            self._take_back()
        try:
            self._commit()
            self._connection.execute("BEGIN IMMEDIATE")
            self._fence()
            seal(self._connection)
            self._commit()
        except (sqlite3.Error, JournalError):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._mine():
            try:
                return self._connection.execute(query, values).fetchall()
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise unreadable(self.name, error) from error

    def row(self, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """First row of a query."""
        rows = self.rows(query, values)
        return rows[0] if rows else None

    def pages(self, query: str, start: int, stop: int) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of a long query, a page at a time; no lock is held between pages.

        Args:
            query: With a first column that grows, and the parameters start, stop and limit, in this order.
            start: First value of that column.
            stop: One past the last.
        """
        while start < stop:
            found = self.rows(query, (start, stop, PAGE))
            if found:
                yield found
            if len(found) < PAGE:
                return
            last = found[-1][0]
            if type(last) is not int or last < start:
                raise JournalError(problem("journal", last, "stands where a number should", DAMAGED))
            start = last + 1

    def consistent(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read several things as of one moment, without holding up those who write."""
        if self._path is None:
            with self._mine(), readable(self.name):
                return work(self._connection)
        with self._mine():
            pass
        with contextlib.closing(connect(self._path)) as connection, readable(self.name):
            connection.execute("BEGIN")
            return work(connection)

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[int]:
        """Everything read inside the block is as of one moment, without holding up those who write.

        Yields:
            A number that changes whenever somebody has written.

        Raises:
            JournalError: If this is the writer, whose records would not be on disk before the block ends.
        """
        if self.writable:
            rule = "is open for writing"
            raise JournalError(problem("journal", self.name, rule, "Open it with Journal.read to look at one moment"))
        with self._mine(), readable(self.name):
            version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            self._connection.execute("BEGIN")
            try:
                yield version
            finally:
                self._connection.execute("ROLLBACK")

    def backup(self, target: Path) -> None:
        """Copy the file as it is now; its writer is not held up."""
        with contextlib.closing(sqlite3.connect(target)) as copy, readable(self.name):
            if disposable(target):
                copy.execute("PRAGMA synchronous = OFF")
            # One step: pages that a writer changes meanwhile would make SQLite begin anew.
            self.consistent(lambda connection: connection.backup(copy))

    def write(self, record: Callable[[sqlite3.Connection, Tail], T], *, soon: bool = False) -> T:
        """Let something be written as one record: whole or not there. Outside a group it is on disk after.

        Args:
            record: Writes it.
            soon: Whether it is enough that it is on disk with the next record that is not of this kind: nobody who
                decides then waits for the disk because of it. A process that is killed loses nothing, a machine that
                loses power may lose the newest of these, from the end.

        Raises:
            JournalError: If it cannot be written, or another writer has taken over.
        """
        with self._mine():
            if not self.writable:
                rule = "is open for reading only"
                raise JournalError(problem("journal", self.name, rule, "Open it with Journal.open to add records"))
            if self._progress.record:
                self._take_back()
            if self._epoch is None:
                self.claim()
            grouped = self._depth > 0
            self._progress.record = "grouped" if grouped else "single"
            try:
                if not self._connection.in_transaction:
                    self._sync(full=grouped or not soon)
                    self._connection.execute("BEGIN IMMEDIATE")
                    self._fence()
                if self._tail is None:
                    self._tail = Tail(self._connection)
                self._held += 1
                if grouped:
                    self._connection.execute("SAVEPOINT record")
                made = record(self._connection, self._tail)
                if grouped:
                    self._connection.execute("RELEASE record")
                if self._held >= (self._every if grouped else 1):
                    self._commit()
                self._progress.record = ""
            except BaseException as error:
                held = self._held
                intact = self._take_back()
                if isinstance(error, sqlite3.Error):
                    raise self._lost(1 if intact else held, error) from error
                raise
            return made

    def claim(self, *, unseen: bool = False) -> None:
        """Become the one that writes: whoever wrote before is refused from now on.

        Args:
            unseen: Whether nothing was read of it yet, so that what another wrote since it was opened is no matter.

        Raises:
            JournalError: If another has written since this one opened the journal.
        """
        with self._mine():
            self._progress.record = "single"
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                tail = Tail(self._connection)
                if tail.hash != self._claim:
                    if tail.hash != self._seen and not unseen:
                        rule = "was written by another since it was opened here"
                        raise JournalError(problem("journal", self.name, rule, "Close it and open it again"))
                    who = f"process {self._pid} on {socket.gethostname()}"
                    tail.append(self._connection, "epochs", (tail.next["epochs"], who, now()))
                # Kept before it is on disk: an interrupt after the commit must not make this writer a stranger.
                self._claim = tail.hash
                self._commit()
                self._epoch, self._tail = tail.next["epochs"] - 1, tail
                self._progress.record = ""
            except BaseException as error:
                self._take_back()
                if isinstance(error, sqlite3.Error):
                    raise self._lost(1, error) from error
                raise

    @contextlib.contextmanager
    def group(self, every: int) -> Iterator[None]:
        """Commit after every so many records, and at the end."""
        with self._mine():
            if self._depth == 0:
                self._every = every
            self._depth += 1
        try:
            yield
        finally:
            with self._turn:
                if self._progress.record and not self.closed:
                    self._take_back()
                self._depth -= 1
                if self._depth == 0 and not self.closed:
                    held = self._held
                    try:
                        self._commit()
                    except BaseException as error:
                        self._take_back()
                        if isinstance(error, sqlite3.Error):
                            raise self._lost(held, error) from error
                        raise

    @contextlib.contextmanager
    def as_one(self) -> Iterator[None]:
        """All records of the block, or, if an exception ends it, none of them; a group around it stays."""
        with self._mine():
            outermost, saved = self._depth == 0, False
            if outermost:
                self._every = sys.maxsize
            elif self._connection.in_transaction:
                self._connection.execute("SAVEPOINT as_one")
                saved = True
            self._depth += 1
        try:
            yield
        except BaseException:
            with self._turn:
                self._depth -= 1
                self._tail, self._progress.record = None, ""
                if not self.closed and self._connection.in_transaction and (outermost or saved):
                    self._connection.execute("ROLLBACK" if outermost else "ROLLBACK TO as_one")
                    if saved:
                        self._connection.execute("RELEASE as_one")
                self._held = 0 if outermost else self._held
            raise
        with self._turn:
            self._depth -= 1
            if outermost and not self.closed:
                self._commit()

    def alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something that SQLite does outside of transactions only, as the one writer."""
        with self._mine():
            if self._depth:
                raise JournalError(problem("journal", self.name, "is inside a batch", "Do it after the batch"))
            self.write(lambda *_: None)
            with readable(self.name):
                return work(self._connection)

    def _sync(self, *, full: bool) -> None:
        """Whether the next commit waits for the disk; what it waits for are all commits before it, too."""
        if self._throwaway:
            return
        if full and self._soon:
            self._connection.execute("PRAGMA synchronous = FULL")
            self._soon = False
        elif not full and not self._soon:
            self._soon = True  # First: an interrupt must not leave a connection that is thought to wait and does not.
            self._connection.execute("PRAGMA synchronous = NORMAL")

    def _fence(self) -> None:
        """Inside the transaction: is this still the writer?"""
        newest = self._connection.execute("SELECT max(epoch) FROM epochs").fetchone()[0]
        if newest != self._epoch:
            query = "SELECT writer, opened_at FROM epochs ORDER BY epoch DESC LIMIT 1"
            who, since = self._connection.execute(query).fetchone()
            rule = f"was taken over by another writer ({who} since {since}): this one may write no more"
            fix = "Let one process write it; close this one and go on with Journal.open, or System.resume"
            raise JournalError(problem("journal", self.name, rule, fix))

    def _commit(self) -> None:
        if not self._connection.in_transaction:
            return
        try:
            if self._path is not None and self._file != _identity(self._path):
                rule = "was deleted or replaced while it was open: what is recorded would be lost with it"
                raise JournalError(problem("journal", self.name, rule, "Restore the file, then open it again"))
            self._connection.execute("COMMIT")
        except (sqlite3.Error, JournalError):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._held = 0

    def _take_back(self) -> bool:
        """Drop a record that failed or was interrupted; a group keeps those before it, unless SQLite dropped them.

        Returns:
            Whether the group was kept.
        """
        intact, self._tail = False, None
        grouped = self._progress.record == "grouped" and self._depth > 0
        if self._connection.in_transaction:
            if grouped:
                try:
                    self._connection.execute("ROLLBACK TO record")
                    self._connection.execute("RELEASE record")
                except sqlite3.OperationalError:
                    # Interrupted before the record was begun, or when it was whole.
                    pass
                intact = True
            else:
                self._connection.execute("ROLLBACK")
        self._held = max(0, self._held - 1) if intact else 0
        self._progress.record = ""
        return intact

    def _lost(self, number: int, error: sqlite3.Error) -> JournalError:
        last = "the last record is" if number <= 1 else f"the last {number} records are"
        rule = f"could not be written ({error}): {last} not in it"
        return JournalError(problem("journal", self.name, rule, "Make room on the disk and record them again"))

    def _mine(self) -> threading.RLock:
        """This thread's turn, to be waited for."""
        # Asked first: in a forked child, the turn may be held by a thread that does not exist there.
        if self._pid != os.getpid():
            rule = f"was opened by process {self._pid}, this is a fork of it"
            raise JournalError(problem("journal", self.name, rule, "Open it with Journal.read in the child"))
        if self.closed:
            raise JournalError(problem("journal", self.name, "is closed", "Open it again with Journal.open"))
        return self._turn


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file has this name; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _end(connection: sqlite3.Connection, lock: WriterLock | None, pid: int, progress: _Progress) -> None:
    # A forked child must not touch its parent's connection.
    if pid != os.getpid():
        return
    with contextlib.ExitStack() as last:
        if lock is not None:
            last.callback(lock.release)
        last.callback(connection.close)
        if connection.in_transaction:
            if progress.record == "grouped":
                with contextlib.suppress(sqlite3.OperationalError):
                    connection.execute("ROLLBACK TO record")
            connection.execute("ROLLBACK" if progress.record == "single" else "COMMIT")
