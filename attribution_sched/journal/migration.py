"""Older journals become today's: all of them, or nothing of them."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from attribution_sched.errors import JournalError, problem
from attribution_sched.journal import schema
from attribution_sched.journal.chain import Tail, begin, seal
from attribution_sched.journal.schema import KINDS, TABLES, Row

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
    found = schema.version(connection)
    schema.refuse_newer(found, path)
    if found == schema.VERSION:
        return found
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in range(found, schema.VERSION):
            for change in MIGRATIONS[step]:
                if isinstance(change, str):
                    connection.execute(change)
                else:
                    change(connection)
        connection.execute(f"PRAGMA user_version = {schema.VERSION}")
        schema.complete(connection, path)
        connection.execute("COMMIT")
    except (sqlite3.Error, KeyError, JournalError) as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        rule = f"could not be brought from version {found} to {schema.VERSION} ({error})"
        raise JournalError(problem("journal", path, rule, "It is unchanged: restore it from a copy")) from error
    return found


def _chained(connection: sqlite3.Connection) -> None:
    """Version 2 had no chain: every row is checked, gets its place and is written anew."""
    for table in FORMER:
        for event in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {table}_no_{event}")
        connection.execute(f"ALTER TABLE {table} RENAME TO former_{table}")
    for statement in schema.statements():
        connection.execute(statement)
    begin(connection)
    tail = Tail(connection)
    header = connection.execute(f"SELECT {_former('header')} FROM former_header").fetchone()
    if header is None:
        raise JournalError(problem("header", None, "has no header", schema.DAMAGED))
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
    width = len(schema.columns("decisions"))
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
    return ", ".join(prefix + name for name in schema.columns(table) if name != "journal_id")


def _checked(table: str, row: Sequence[object]) -> Row:
    """The values, which version 2 did not check when they were read."""
    for (name, words), value in zip(TABLES[table].items(), row, strict=True):
        kind, *more = words.split()
        if value is None and "null" in more:
            continue
        try:
            KINDS[kind][2](value)
        except ValueError as error:
            raise schema.damaged(table, (None, row[0]), str(error), name, value) from error
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
