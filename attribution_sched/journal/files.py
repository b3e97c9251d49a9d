"""Journals as files: made whole or not at all, and looked at before they are touched."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from attribution_sched.errors import JournalError, nearest, problem
from attribution_sched.journal import rows, schema
from attribution_sched.journal.records import JournalHeader

WAIT_S = 10.0
"""How long to wait for SQLite's own short locks, for example while a reader recovers the log of a dead writer."""

RESTORE = "Restore it from a copy"


def create(path: Path, header: JournalHeader) -> None:
    """Make a new journal; the caller holds its lock.

    It is built under another name and renamed, so that a killed process leaves a journal or none.

    Raises:
        JournalError: If something is there already, or the folder cannot be written.
    """
    log = beside(path, "-wal")
    # The log of a journal that was removed would be taken for the new one's.
    for taken in (path, log):
        if taken.exists() and (taken is path or taken.stat().st_size > 0):
            fix = "Open it with Journal.open, choose another path, or move it away"
            raise JournalError(problem("journal", str(taken), "is there already", fix))
    draft = path.with_name(f".{path.name}.new")
    try:
        for stale in (draft, beside(draft, "-journal"), beside(draft, "-wal")):
            stale.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            fill(connection, header)
            connection.execute("PRAGMA journal_mode = WAL")
        sync(draft)
        draft.rename(path)
        sync(path.parent)
    except (OSError, sqlite3.Error) as error:
        draft.unlink(missing_ok=True)
        rule = f"cannot be made ({error})"
        raise JournalError(problem("journal", str(path), rule, "Use a folder with room that can be written")) from error


def fill(connection: sqlite3.Connection, header: JournalHeader) -> None:
    """Make tables and header in an empty database."""
    written = rows.header_row(header)
    connection.execute("BEGIN IMMEDIATE")
    schema.create(connection)
    connection.execute(rows.insert("header"), (0, *written))
    connection.execute("COMMIT")


def writing(path: Path) -> sqlite3.Connection:
    """Connect for writing, every commit on disk before it returns; the caller holds the lock.

    The file is looked at first, and changed only once nothing was found wrong.

    Raises:
        JournalError: If it is damaged, foreign or newer than this package.
    """
    inspect(path)
    with contextlib.closing(_reading(path)) as connection, readable(path):
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise JournalError(problem("journal", str(path), f"is damaged ({found.strip()})", RESTORE))
        if schema.version(connection) == schema.VERSION:
            _judge(connection, path)
    with readable(path):
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=WAIT_S, isolation_level=None, check_same_thread=False
        )
    try:
        with readable(path):
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if schema.migrate(connection, str(path)) != schema.VERSION:
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
    connection = _reading(path)
    try:
        with readable(path):
            found = schema.version(connection)
            if found < schema.VERSION:
                fix = "Open it once with Journal.open, which brings it up to date"
                rule = f"has schema version {found}, reading needs {schema.VERSION}"
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
        fix = hint if hint.startswith("Did you mean") else "Make it with Journal.create"
        raise JournalError(problem("journal", str(path), "does not exist", fix))
    with contextlib.closing(_reading(path)) as connection, readable(path):
        if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
            rule = "is not a journal but a file of another application"
            fix = "Give the path of a journal, or make one with Journal.create"
            raise JournalError(problem("journal", str(path), rule, fix))
        schema.refuse_newer(schema.version(connection), str(path))
        # SQLite takes a page cut off for one that ends in zeros. With a log, the file may rightly be too short.
        page, pages = (int(connection.execute(f"PRAGMA page_{each}").fetchone()[0]) for each in ("size", "count"))
        size, log = path.stat().st_size, beside(path, "-wal")
        if size < page * pages and not (log.is_file() and log.stat().st_size > 0):
            rule = f"is damaged: {size} of {page * pages} bytes are there"
            raise JournalError(problem("journal", str(path), rule, RESTORE))


def beside(path: Path, ending: str) -> Path:
    """A file that belongs to the journal."""
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
    except sqlite3.Error as error:
        raise unreadable(path, error) from error


def unreadable(path: Path | str, error: sqlite3.Error) -> JournalError:
    """The one clear error for a complaint of SQLite."""
    if type(error) is sqlite3.DatabaseError:
        return JournalError(problem("journal", str(path), f"is damaged ({error})", RESTORE))
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return JournalError(problem("journal", str(path), "is closed", "Open it again with Journal.open"))
    fix = "Check its folder, the free room and who may write"
    return JournalError(problem("journal", str(path), f"cannot be used ({error})", fix))


def _reading(path: Path) -> sqlite3.Connection:
    with readable(path):
        return sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, timeout=WAIT_S, isolation_level=None, check_same_thread=False
        )


def _judge(connection: sqlite3.Connection, path: Path) -> None:
    """Check tables, header and that no decision is missing."""
    schema.complete(connection, str(path))
    header = connection.execute(f"SELECT {rows.select('header')} FROM header").fetchone()
    if header is None:
        raise JournalError(problem("journal", str(path), "has no header", RESTORE))
    rows.read_header(header)
    # Three queries in one: each is then answered from an index.
    counts = ", ".join(f"(SELECT {found} FROM decisions)" for found in ("count(*)", "min(sequence)", "max(sequence)"))
    number, least, most = connection.execute(f"SELECT {counts}").fetchone()
    if number and (least, most) != (0, number - 1):
        rule = f"has {number} decisions numbered {least} to {most}: some are missing"
        raise JournalError(problem("journal", str(path), rule, RESTORE))
