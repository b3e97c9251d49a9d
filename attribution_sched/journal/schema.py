"""The tables of a journal, their version, and how older ones become today's.

A journal is an SQLite file with :data:`APPLICATION_ID` in its header and the schema's version in ``user_version``.
"""

from __future__ import annotations

import functools
import sqlite3

from attribution_sched.errors import JournalError, problem

APPLICATION_ID = 0x41545353
"""``ATSS`` at byte 68 of the file: tells a journal from anybody else's SQLite file."""

VERSION = 2

TABLES: dict[str, tuple[str, ...]] = {
    "header": (
        "id INTEGER PRIMARY KEY CHECK (id = 0)",
        "preset TEXT NOT NULL",
        "policy TEXT NOT NULL",
        "settings TEXT NOT NULL",
        "seeds TEXT NOT NULL",
        "package_version TEXT NOT NULL",
        "created_at TEXT NOT NULL",
    ),
    "tasks": (
        "number INTEGER PRIMARY KEY",
        "id TEXT NOT NULL UNIQUE",
        "kind TEXT NOT NULL",
        "steps INTEGER NOT NULL",
        "submitted_s REAL NOT NULL",
        "counters TEXT NOT NULL",
        "meta TEXT NOT NULL",
    ),
    "decisions": (
        "sequence INTEGER PRIMARY KEY",
        "id TEXT NOT NULL UNIQUE",
        "task_id TEXT REFERENCES tasks (id)",
        "cluster_time_s REAL NOT NULL",
        "policy TEXT NOT NULL",
        "source TEXT NOT NULL",
        "plan TEXT",
        "attribution TEXT",
        "action TEXT NOT NULL",
        "view_digest TEXT NOT NULL",
        "latencies_s TEXT NOT NULL",
        "w_eff REAL",
        "w_util REAL",
        "w_cost REAL",
        "provenance TEXT NOT NULL",
        "recorded_at TEXT NOT NULL",
        "slot INTEGER",
    ),
    "outcomes": (
        "sequence INTEGER PRIMARY KEY REFERENCES decisions (sequence)",
        "r_eff REAL",
        "r_util REAL",
        "r_cost REAL",
        "reward REAL",
        "step_s REAL",
        "bill_usd REAL",
        "energy_j REAL",
        "code INTEGER NOT NULL",
        "provenance TEXT NOT NULL",
        "details TEXT NOT NULL",
    ),
    "explanations": (
        "sequence INTEGER NOT NULL REFERENCES decisions (sequence)",
        "target TEXT NOT NULL",
        "explanation TEXT NOT NULL",
        "PRIMARY KEY (sequence, target)",
    ),
    "feedback": (
        "number INTEGER PRIMARY KEY",
        "changed TEXT NOT NULL",
        "before TEXT NOT NULL",
        "after TEXT NOT NULL",
        "reason TEXT NOT NULL",
        "after_decisions INTEGER NOT NULL",
        "recorded_at TEXT NOT NULL",
        "undoes INTEGER REFERENCES feedback (number)",
        "reason_zh TEXT NOT NULL DEFAULT ''",
    ),
    "events": (
        "number INTEGER PRIMARY KEY",
        "kind TEXT NOT NULL",
        "details TEXT NOT NULL",
        "cluster_time_s REAL",
        "recorded_at TEXT NOT NULL",
    ),
}
"""Table → its columns and constraints."""

APPEND_ONLY: tuple[str, ...] = ("header", "tasks", "decisions", "outcomes", "feedback", "events")
"""Tables whose rows nobody changes; of explanations, rows may be replaced but not removed."""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    0: (
        "ALTER TABLE decisions ADD COLUMN slot INTEGER",
        "ALTER TABLE feedback ADD COLUMN undoes INTEGER REFERENCES feedback (number)",
    ),
    1: ("ALTER TABLE feedback ADD COLUMN reason_zh TEXT NOT NULL DEFAULT ''",),
}
"""Version → statements that lead to the next. Version 0 did not know the slot, nor which change was taken back;
version 1 kept reasons in one language."""


@functools.cache
def columns(table: str) -> tuple[str, ...]:
    """Names of a table's columns."""
    names = (item.split()[0] for item in TABLES[table])
    return tuple(name for name in names if name != "PRIMARY")


def version(connection: sqlite3.Connection) -> int:
    """Version of the schema in a file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def create(connection: sqlite3.Connection) -> None:
    """Make all tables, inside the caller's transaction."""
    for name, items in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(items)})")
    _guard(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def migrate(connection: sqlite3.Connection, path: str) -> int:
    """Bring an older file to today's schema: all of it, or nothing.

    Args:
        connection: Open for writing, no transaction under way.
        path: Name of the file, for messages.

    Returns:
        The version it had.

    Raises:
        JournalError: If the file is newer than this package, or a step fails; the file is as it was.
    """
    found = version(connection)
    refuse_newer(found, path)
    if found == VERSION:
        return found
    connection.execute("BEGIN IMMEDIATE")
    try:
        for table in TABLES:
            for event in ("UPDATE", "DELETE"):
                connection.execute(f"DROP TRIGGER IF EXISTS {table}_no_{event.lower()}")
        for step in range(found, VERSION):
            for statement in MIGRATIONS[step]:
                connection.execute(statement)
        _guard(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        complete(connection, path)
        connection.execute("COMMIT")
    except (sqlite3.Error, KeyError, JournalError) as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        rule = f"could not be brought from version {found} to {VERSION} ({error})"
        raise JournalError(problem("journal", path, rule, "It is unchanged: restore it from a copy")) from error
    return found


def refuse_newer(found: int, path: str) -> None:
    """Refuse a version this package does not know.

    Raises:
        JournalError: If it is newer, or negative.
    """
    if not 0 <= found <= VERSION:
        rule = f"has schema version {found}; this package knows versions up to {VERSION}"
        raise JournalError(problem("journal", path, rule, "Upgrade the package"))


def complete(connection: sqlite3.Connection, path: str) -> None:
    """Check that every table and column is there.

    Raises:
        JournalError: If one is missing.
    """
    for table in TABLES:
        found = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        missing = [name for name in columns(table) if name not in found]
        if missing:
            rule = f"has no column {table}.{missing[0]}" if found else f"has no table {table}"
            raise JournalError(problem("journal", path, rule, "It is damaged: restore it from a copy"))


def _guard(connection: sqlite3.Connection) -> None:
    """Let the file itself refuse changes to what was recorded, whoever asks."""
    for table in TABLES:
        for event in ("UPDATE", "DELETE"):
            if event == "DELETE" or table in APPEND_ONLY:
                connection.execute(
                    f"CREATE TRIGGER {table}_no_{event.lower()} BEFORE {event} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, 'a journal is append-only'); END"
                )
