"""The tables of a journal, an SQLite file with :data:`APPLICATION_ID` and, as ``user_version``, :data:`VERSION`.

Besides its own columns every row has ``position``, its place in the one chain of all rows, ``digest``, the first eight
bytes of the SHA-256 of its values, and ``hash``, which links it to the row before (:mod:`.chain`).
"""

from __future__ import annotations

import functools
import sqlite3
from typing import NamedTuple

from attribution_sched.journal.faults import fault
from attribution_sched.journal.kinds import KINDS, ColumnKind

APPLICATION_ID = 0x41545353
"""``ATSS`` at byte 68 of the file: tells a journal from anybody else's SQLite file."""

ARCHIVE_ID = 0x41545341
"""``ATSA``: an archive, which is read like a journal and never written."""

VERSION = 3

SCHEMA = """
header
    preset word
    policy word
    settings mapping
    seeds seeds
    package_version word
    created_at word
    journal_id word
epochs
    epoch whole unique
    writer word
    opened_at word
tasks
    number whole unique
    id word unique
    kind word
    steps whole
    submitted_s number
    counters mapping
    meta mapping
decisions
    sequence whole unique
    id word unique
    task_id word null
    cluster_time_s number
    policy word
    source word
    plan mapping null
    attribution mapping null
    action json
    view_digest text
    latencies_s numbers
    w_eff number null
    w_util number null
    w_cost number null
    provenance mapping
    recorded_at word
    slot whole null
outcomes
    sequence whole unique
    r_eff number null
    r_util number null
    r_cost number null
    reward number null
    step_s number null
    bill_usd number null
    energy_j number null
    code integer
    provenance provenance
    details mapping
explanations
    sequence whole index
    target word
    explanation mapping
feedback
    number whole unique
    changed word
    before json
    after json
    reason word
    after_decisions whole
    recorded_at word
    undoes whole null
    reason_zh text
events
    number whole unique
    kind word
    details mapping
    cluster_time_s number null
    recorded_at word
waits
    after_decisions whole index
    cluster_time_s number
    count whole
    reasons counts
    slots slots null
handles
    key word index
    executor word
    handle json
    recorded_at word
intents
    number whole unique
    kind word
    details mapping
    after_decisions whole
    recorded_at word
effects
    number whole unique
    details mapping
    recorded_at word
snapshots
    number whole unique
    sequence whole index
    facts mapping
    size whole
    sha256 word
    recorded_at word
archives
    path word
    first whole
    stop whole
    before whole
    last_hash word
    recorded_at word
"""
"""Tables, and below each its columns: a kind of :data:`.KINDS`, whether it may be empty, and how it is looked up."""

BESIDE: tuple[str, ...] = (
    "CREATE TABLE bounds (id INTEGER PRIMARY KEY CHECK (id = 0), position INTEGER NOT NULL, hash BLOB NOT NULL, "
    "head INTEGER NOT NULL, head_hash BLOB NOT NULL)",
    "CREATE TABLE snapshot_data (position INTEGER PRIMARY KEY, data BLOB NOT NULL)",
)
"""Outside the chain: where this file's part of it begins, and how far it had come when it was last closed, so that rows
cut off at its end are missed; the bytes of snapshots, whose hash is in the chain, so that old ones can be dropped."""


class TableColumn(NamedTuple):
    """A column.

    Attributes:
        field: What messages call it.
        kind: What it holds.
        words: Whether it may be empty (``null``), and how it is looked up (``unique``, ``index``).
    """

    field: str
    kind: ColumnKind
    words: list[str]


def _tables() -> dict[str, dict[str, TableColumn]]:
    tables: dict[str, dict[str, TableColumn]] = {}
    table = ""
    for line in SCHEMA.split("\n")[1:-1]:
        name, *words = line.split()
        if words:
            tables[table][name] = TableColumn(f"{table.removesuffix('s')}.{name}", KINDS[words[0]], words)
        else:
            table = name
            tables[table] = {}
    return tables


TABLES = _tables()
"""Table → column → what it holds, as :data:`SCHEMA` says."""


@functools.cache
def columns(table: str) -> tuple[str, ...]:
    """Names of a table's columns, as :func:`select` gives them."""
    return ("position", *TABLES[table], "digest", "hash")


@functools.cache
def select(table: str, alias: str = "") -> str:
    """All columns of a table, for a query."""
    return ", ".join(f"{alias}.{name}" if alias else name for name in columns(table))


def statements() -> list[str]:
    """What makes all tables, indexes and triggers."""
    texts = list(BESIDE)
    for table, holds in TABLES.items():
        items, indexes = ["position INTEGER PRIMARY KEY"], []
        for name, (_, kind, more) in holds.items():
            null, unique = "" if "null" in more else " NOT NULL", " UNIQUE" if "unique" in more else ""
            items.append(f"{name} {kind.sql}{null}{unique}")
            if "index" in more:
                indexes.append(f"CREATE INDEX {table}_{name} ON {table} ({name})")
        items += ["digest INTEGER NOT NULL", "hash BLOB NOT NULL"]
        texts += [f"CREATE TABLE {table} ({', '.join(items)})", *indexes, *guards(table)]
    return texts


def guards(table: str) -> list[str]:
    """Triggers that let the file itself refuse changes to what was recorded, whoever asks."""
    return [
        f"CREATE TRIGGER {table}_no_{event.lower()} BEFORE {event} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'a journal is append-only'); END"
        for event in ("UPDATE", "DELETE")
    ]


def create_tables(connection: sqlite3.Connection) -> None:
    """Make all tables, inside the caller's transaction."""
    marks = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION}")
    for statement in (*statements(), *marks):
        connection.execute(statement)


def complete(connection: sqlite3.Connection, path: str) -> None:
    """Check that every table, index and trigger is there as this version makes it, and no other trigger.

    Raises:
        JournalError: If one is missing or different.
    """
    objects = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    for statement in statements():
        kind, name = statement.split()[1:3]
        if objects.pop(name, "") != statement:
            raise fault("journal", path, f"has no {kind.lower()} {name} as it was made")
    for name, sql in objects.items():
        if str(sql).upper().startswith("CREATE TRIGGER"):
            raise fault("journal", path, f"has a trigger of others ({name})")
