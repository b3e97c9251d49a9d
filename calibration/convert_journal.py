"""Bring a journal of release 0.1 or before (schema versions 0 to 2) up to date, whole or not at all.

    python calibration/convert_journal.py run.sqlite

Version 0 did not know the slot, nor which change was taken back; version 1 kept reasons in one language; version 2 had
no chain, intents, handles, waits, snapshots and archives. The file is changed in one transaction: a process that dies
meanwhile leaves the old journal.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attribution_sched.errors import JournalError
from attribution_sched.journal.chain import Tail, begin, seal
from attribution_sched.journal.faults import damaged, fault, readable
from attribution_sched.journal.file import connect
from attribution_sched.journal.kinds import Broken
from attribution_sched.journal.lock import WriterLock
from attribution_sched.journal.rows import Row
from attribution_sched.journal.schema import APPLICATION_ID, TABLES, VERSION, complete, statements

FORMER: tuple[str, ...] = ("header", "tasks", "decisions", "outcomes", "explanations", "feedback", "events")
"""Tables of versions 0 to 2."""


def convert(path: Path) -> int:
    """Bring an older file to today's schema.

    Args:
        path: The journal; no other process writes it meanwhile.

    Returns:
        The version it had.

    Raises:
        JournalError: If it is no older journal, or a step fails; the file is as it was.
    """
    path = path.resolve()
    if not path.is_file():
        raise fault("journal", str(path), "does not exist", "Give the path of a journal")
    lock = WriterLock(path)
    try:
        with readable(path), contextlib.closing(connect(path, "rw")) as connection:
            application, version = (
                int(connection.execute(f"PRAGMA {each}").fetchone()[0]) for each in ("application_id", "user_version")
            )
            if application != APPLICATION_ID:
                fix = "Give the path of a journal"
                raise fault("journal", str(path), "is not a journal but a file of another application", fix)
            if version not in STEPS:
                fix = "There is nothing to be done: open it"
                raise fault("journal", str(path), f"has schema version {version}", fix)
            _convert(connection, version, str(path))
    finally:
        lock.release()
    return version


def _convert(connection: sqlite3.Connection, version: int, path: str) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in range(version, VERSION):
            for change in STEPS[step]:
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
        rule = f"could not be brought from version {version} to {VERSION} ({error})"
        raise fault("journal", path, rule, "It is unchanged: restore it from a copy") from error


def _chain(connection: sqlite3.Connection) -> None:
    """Version 2 had no chain: every row is checked, gets its place and is written anew."""
    for table in FORMER:
        for event in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {table}_no_{event}")
        connection.execute(f"ALTER TABLE {table} RENAME TO former_{table}")
    for statement in statements():
        connection.execute(statement)
    begin(connection)
    tail = Tail(connection)
    header = connection.execute(f"SELECT {_columns('header')} FROM former_header").fetchone()
    if header is None:
        raise fault("header", None, "has no header")
    tail.append("header", checked_row("header", (*header, secrets.token_hex(6))))
    # A fixed order, the same that a run would have given but for the tasks, which all come first.
    for table, row in _rows(connection):
        tail.append(table, checked_row(table, row))
    seal(connection)
    for table in reversed(FORMER):
        connection.execute(f"DROP TABLE former_{table}")


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[str, Row]]:
    for row in connection.execute(f"SELECT {_columns('tasks')} FROM former_tasks ORDER BY number"):
        yield "tasks", row
    width = len(TABLES["decisions"])
    both = (
        f"SELECT {_columns('decisions', 'd')}, {_columns('outcomes', 'o')} "
        "FROM former_decisions d LEFT JOIN former_outcomes o ON o.sequence = d.sequence ORDER BY d.sequence"
    )
    for row in connection.execute(both):
        yield "decisions", row[:width]
        if row[width] is not None:
            yield "outcomes", row[width:]
    for table, order in (("explanations", "sequence, target"), ("feedback", "number"), ("events", "number")):
        for row in connection.execute(f"SELECT {_columns(table)} FROM former_{table} ORDER BY {order}"):
            yield table, row


def _columns(table: str, alias: str = "") -> str:
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + name for name in TABLES[table] if name != "journal_id")


def checked_row(table: str, row: Sequence[object]) -> Row:
    """The values, which version 2 did not check when they were read."""
    for (name, (_, kind, words)), value in zip(TABLES[table].items(), row, strict=True):
        if value is None and "null" in words:
            continue
        try:
            kind.read(value)
        except Broken as error:
            raise damaged(table, (None, row[0]), error.rule, name + error.part, error.value) from error
    return tuple(row)


STEPS: dict[int, tuple[str | Callable[[sqlite3.Connection], None], ...]] = {
    0: (
        "ALTER TABLE decisions ADD COLUMN slot INTEGER",
        "ALTER TABLE feedback ADD COLUMN undoes INTEGER REFERENCES feedback (number)",
    ),
    1: ("ALTER TABLE feedback ADD COLUMN reason_zh TEXT NOT NULL DEFAULT ''",),
    2: (_chain,),
}
"""Version → what leads to the next."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journal", type=Path)
    chosen = parser.parse_args()
    try:
        sys.stdout.write(f"{chosen.journal}: version {convert(chosen.journal)} became {VERSION}\n")
    except JournalError as error:
        sys.exit(str(error))
