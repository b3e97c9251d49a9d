"""Records and rows: one encoder and one decoder for all tables, and the bytes of a row that its digest covers."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import struct
from collections.abc import Sequence
from typing import Any, TypeVar

from attribution_sched.journal.faults import damaged, fault
from attribution_sched.journal.kinds import Broken, checked, number
from attribution_sched.journal.records import (
    ArchiveRecord,
    DecisionRecord,
    EventRecord,
    ExplanationRecord,
    FeedbackRecord,
    HandleRecord,
    IntentRecord,
    JournalHeader,
    OutcomeRecord,
    TaskRecord,
    WaitRecord,
)
from attribution_sched.journal.schema import TABLES, columns, select

Row = tuple[Any, ...]
R = TypeVar("R")

TABLE_OF: dict[type, str] = {
    JournalHeader: "header",
    TaskRecord: "tasks",
    DecisionRecord: "decisions",
    OutcomeRecord: "outcomes",
    ExplanationRecord: "explanations",
    FeedbackRecord: "feedback",
    EventRecord: "events",
    WaitRecord: "waits",
    HandleRecord: "handles",
    IntentRecord: "intents",
    ArchiveRecord: "archives",
}
"""Record → the table that holds it."""

WEIGHTS = ("w_eff", "w_util", "w_cost")


@functools.cache
def insert(table: str) -> str:
    """The statement that adds a row."""
    return f"INSERT INTO {table} ({select(table)}) VALUES ({', '.join('?' * len(columns(table)))})"


@functools.cache
def field_names(record: type) -> frozenset[str]:
    """Names of a record's fields."""
    return frozenset(each.name for each in dataclasses.fields(record))


def encode(table: str, record: Any, **changes: Any) -> Row:
    """The values of a new row.

    Args:
        table: Its table.
        record: Has the columns as attributes.
        changes: Columns it does not have, or that are to be others.

    Raises:
        JournalError: If a value cannot be kept; it is named.
    """
    if isinstance(record, DecisionRecord):
        weights: Sequence[Any] = (None,) * 3 if record.weights is None else record.weights
        if len(weights) != 3:
            raise fault("decision.weights", weights, "must be w_eff, w_util and w_cost", "Give three numbers, or None")
        if record.weights is not None:
            weights = [checked("decision.weights", number, each) for each in weights]
        changes |= zip(WEIGHTS, weights, strict=True)
    row = []
    for name, (field, kind, words) in TABLES[table].items():
        value = changes[name] if name in changes else getattr(record, name)
        row.append(None if value is None and "null" in words else checked(field, kind.write, value))
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
    values: dict[str, Any] = {}
    for (name, (_, kind, words)), value in zip(TABLES[table].items(), row[1:-2], strict=True):
        if value is None and "null" in words:
            values[name] = None
        elif name not in leave:
            try:
                values[name] = kind.read(value)
            except Broken as error:
                raise damaged(table, row, error.rule, name + error.part, error.value) from error
    check(table, row)
    return values


def read(kind: type[R], row: Row, leave: frozenset[str] = frozenset(), **more: Any) -> R:
    """The record of a row.

    Args:
        kind: Of what kind.
        row: As :func:`select` gives it.
        leave: Columns that nobody will look at.
        more: What other tables hold of it.

    Raises:
        JournalError: If the row is not what was written; it is named.
    """
    table = TABLE_OF[kind]
    values = decode(table, row, leave) | more
    if kind is DecisionRecord:
        weights: Any = tuple(values[name] for name in WEIGHTS)
        if None in weights and weights != (None, None, None):
            raise damaged(table, row, "must be three numbers or none", "weights", weights)
        values["weights"] = None if None in weights else weights
    elif kind is WaitRecord and (slots := values["slots"]) is not None:
        values["slots"] = struct.unpack(f"<{len(slots) // 4}i", slots)
    names = field_names(kind)  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})


def check(table: str, row: Sequence[Any]) -> None:
    """Check that a row is what was written.

    Raises:
        JournalError: If it is not.
    """
    if check_of(digest_of(table, row[:-2])) != row[-2]:
        raise damaged(table, row, "is not what was written: its digest does not fit")
    if type(row[-1]) is not bytes or len(row[-1]) != 32:
        raise damaged(table, row, "is no SHA-256", "hash", row[-1])


_double = struct.Struct("<d").pack


def canonical(values: Sequence[Any]) -> bytes:
    """Values as bytes, the same on every machine and unlike those of any other values.

    None is ``N``; a whole number ``I``, its digits and ``;``; a number ``R`` and its eight bytes as IEEE 754, the least
    significant first; text ``T`` and bytes ``B``, each with the number of bytes, ``:`` and the bytes.
    """
    parts: list[bytes] = []
    for value in values:
        kind = type(value)
        if value is None:
            parts.append(b"N")
        elif kind is float:
            parts.append(b"R" + _double(value))
        elif kind is int:
            parts.append(b"I%d;" % value)
        else:
            data = value.encode("utf-8", "surrogatepass") if kind is str else value
            parts.append(b"%c%d:%b" % (b"T" if kind is str else b"B", len(data), data))
    return b"".join(parts)


def digest_of(table: str, values: Sequence[Any]) -> bytes:
    """SHA-256 of a table's name and a row's values, its position included."""
    return hashlib.sha256(b"%b;%b" % (table.encode(), canonical(values))).digest()


def check_of(digest: bytes) -> int:
    """What a row keeps of its digest, so that it can be checked by itself."""
    return int.from_bytes(digest[:8], "little", signed=True)
