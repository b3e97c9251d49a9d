"""The tables of a journal: what each column holds, checked on the way in and on the way out.

A journal is an SQLite file with :data:`APPLICATION_ID` in its header and the schema's version in ``user_version``.
Besides its own columns every row has ``position``, its place in the one chain of all rows, ``digest``, the first eight
bytes of the SHA-256 of its values, and ``hash``, which links it to the row before (:mod:`.chain`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import operator
import sqlite3
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attribution_sched.errors import JournalError, problem

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
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise JournalError(problem(field, value, "must be finite", "Give None if it is not known"))
    # SQLite keeps no sign of zero; the digest must not know it either.
    return found + 0.0


def whole(field: str, value: Any, *, least: int = 0) -> int:
    """A whole number from ``least`` on that 64 bits can hold."""
    try:
        found = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = least - 1
    if isinstance(value, bool) or not least <= found <= LARGEST_INTEGER:
        rule = f"must be a whole number of at least {least}, in 64 bits"
        raise JournalError(problem(field, value, rule, "Give an integer in that range"))
    return found


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
    found = _parsed(value)
    if type(found) is not dict:
        raise ValueError("is no mapping")
    return found


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


def encode(table: str, record: Any, **given: Any) -> Row:
    """The values of a new row.

    Args:
        table: Its table.
        record: Has the columns as attributes.
        given: Columns it does not have, or that are to be others.

    Raises:
        JournalError: If a value cannot be kept; it is named.
    """
    row = []
    for name, field, null, write, _ in _specification(table):
        value = given[name] if name in given else getattr(record, name)
        row.append(None if null and value is None else write(field, value))
    return tuple(row)


def decode(table: str, row: Sequence[Any]) -> dict[str, Any]:
    """A row as it was written: column → value.

    Args:
        table: Its table.
        row: As :func:`select` gives it.

    Raises:
        JournalError: If a value is not of its column's kind, or the row is not what was written. It is named.
    """
    found: dict[str, Any] = {}
    for (name, _, null, _, read), value in zip(_specification(table), row[1:-2], strict=True):
        if value is None and null:
            found[name] = None
            continue
        try:
            found[name] = read(value)
        except ValueError as error:
            raise damaged(table, row, str(error), name, value) from error
    check(table, row)
    return found


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


def create(connection: sqlite3.Connection) -> None:
    """Make all tables, inside the caller's transaction."""
    for statement in statements():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def version(connection: sqlite3.Connection) -> int:
    """Version of the schema in a file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def refuse_newer(found: int, path: str) -> None:
    """Refuse a version this package does not know.

    Raises:
        JournalError: If it is newer, or negative.
    """
    if not 0 <= found <= VERSION:
        rule = f"has schema version {found}; this package knows versions up to {VERSION}"
        raise JournalError(problem("journal", path, rule, "Upgrade the package"))


def complete(connection: sqlite3.Connection, path: str) -> None:
    """Check that every table, column, index and trigger is there as this version makes it, and no other trigger.

    Raises:
        JournalError: If one is missing or different.
    """
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    fix = "It is damaged: restore it from a copy"
    for statement in statements():
        kind, name = statement.split()[1:3]
        if found.pop(name, None) == statement:
            continue
        rule = f"has no {kind.lower()} {name} as it was made"
        if name in TABLES:
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
            missing = [column for column in columns(name) if column not in there]
            if missing:
                rule = f"has no column {name}.{missing[0]}" if there else f"has no table {name}"
        raise JournalError(problem("journal", path, rule, fix))
    strange = [name for name, sql in found.items() if str(sql).upper().startswith("CREATE TRIGGER")]
    if strange:
        raise JournalError(problem("journal", path, f"has a trigger of others ({strange[0]})", fix))
