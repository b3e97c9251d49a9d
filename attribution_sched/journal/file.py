"""The file of a journal: made whole or not at all, looked at before it is touched."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from attribution_sched.errors import nearest
from attribution_sched.journal.chain import Tail, begin, seal, verify
from attribution_sched.journal.faults import fault, readable
from attribution_sched.journal.rows import Row, decode
from attribution_sched.journal.schema import APPLICATION_ID, ARCHIVE_ID, VERSION, complete, create_tables, select

WAIT_S = 10.0
"""How long to wait for SQLite's own short locks, for example while a reader recovers the log of a dead writer."""

QUICK_CHECK_BYTES = 64_000_000
"""Files up to this size have all their pages looked at when they are opened for writing; it takes about 0.1 s."""

UNANCHORED_ROWS = 5_000
"""Newest rows that are checked when a journal without a snapshot is opened for writing."""

DRAFT = re.compile(r"\..+\.(\d+)\.new(-journal|-wal|-shm)?")


def create(path: Path, header: Row) -> None:
    """Make a new journal; the caller holds its lock.

    It is built under another name and renamed, so that a killed process leaves a journal or none.

    Raises:
        JournalError: If something is there already, or the folder cannot be written.
    """
    # The log of a journal that was removed would be taken for the new one's.
    for file, taken in ((path, path.exists()), (log := beside(path, "-wal"), _size(log) > 0)):
        if taken:
            raise fault(
                "journal",
                str(file),
                "is there already",
                "Go on with it by System.resume(path) or run --resume, choose another path, or move it away",
            )
    try:
        with draft_of(path) as draft, contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            fill(connection, header)
            connection.execute("PRAGMA journal_mode = WAL")
    except (OSError, sqlite3.Error) as error:
        raise fault(
            "journal", str(path), f"cannot be made ({error})", "Use a folder with room that can be written"
        ) from error


def fill(connection: sqlite3.Connection, header: Row) -> None:
    """Make tables and header in an empty database."""
    connection.execute("BEGIN IMMEDIATE")
    create_tables(connection)
    begin(connection)
    Tail(connection).append("header", header)
    seal(connection)
    connection.execute("COMMIT")


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A file to be filled, which takes its name when it is whole and on disk; drafts of dead processes are removed."""
    sweep(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        yield draft
        sync(draft)
        draft.replace(path)
        sync(path.parent)
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            beside(draft, ending).unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove what processes that were killed while they wrote a file left in its folder."""
    with contextlib.suppress(OSError):
        for other in folder.glob(".*.new*"):
            match = DRAFT.fullmatch(other.name)
            if match and not _alive(int(match[1])):
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
        JournalError: If it is damaged, foreign or of another version.
    """
    with contextlib.closing(reading(path)) as connection, readable(path):
        if connection.execute("PRAGMA application_id").fetchone()[0] == ARCHIVE_ID:
            raise fault(
                "journal",
                str(path),
                "is an archive, which is not written any more",
                "Look at it with Journal.read; go on with the journal it was taken from",
            )
        if path.stat().st_size <= QUICK_CHECK_BYTES:
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise fault("journal", str(path), f"is damaged ({verdict.strip()})")
        verify(connection, _anchor(connection))
    connection = connect(path, "rw")
    try:
        with readable(path):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'OFF' if disposable(path) else 'FULL'}")
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
            _judge(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def inspect(path: Path) -> None:
    """Look, without changing anything: an SQLite file of ours, of this version?

    Through SQLite: closing any other handle on the file would drop the locks of this process's own connections to it.

    Raises:
        JournalError: If it is not.
    """
    name = str(path)
    if not path.is_file():
        if path.exists():
            raise fault("journal", name, "is not a file", "Give the path of a journal")
        hint = nearest(path.name, [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else [])
        fix = hint if hint.startswith("Did") else "attribution-sched run writes one, as System(journal=path) does"
        raise fault("journal", name, "does not exist", fix)
    with contextlib.closing(connect(path)) as connection, readable(path):
        application, schema, page, pages = (
            int(connection.execute(f"PRAGMA {each}").fetchone()[0])
            for each in ("application_id", "user_version", "page_size", "page_count")
        )
    if application not in (APPLICATION_ID, ARCHIVE_ID):
        raise fault(
            "journal",
            name,
            "is not a journal but a file of another application",
            "Give the path of a journal; attribution-sched run writes one",
        )
    if schema != VERSION:
        older = "Bring it up to date: python calibration/convert_journal.py PATH, in the repository of this package"
        fix = older if 0 <= schema < VERSION else "Upgrade the package"
        raise fault("journal", name, f"has schema version {schema}, this package needs {VERSION}", fix)
    # SQLite takes a page cut off for one that ends in zeros. With a log, the file may rightly be too short.
    size = _size(path)
    if size < page * pages and not _size(beside(path, "-wal")):
        raise fault("journal", name, f"is damaged: {size} of {page * pages} bytes are there")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


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


def _judge(connection: sqlite3.Connection, path: Path) -> None:
    """Check tables, header and that no decision is missing."""
    complete(connection, str(path))
    header = connection.execute(f"SELECT {select('header')} FROM header").fetchone()
    if header is None:
        raise fault("journal", str(path), "has no header")
    decode("header", header)
    # Three queries in one: each is then answered from an index.
    counts = ", ".join(f"(SELECT {each} FROM decisions)" for each in ("count(*)", "min(sequence)", "max(sequence)"))
    number, least, most = connection.execute(f"SELECT {counts}").fetchone()
    if number and not (type(least) is type(most) is int and most - least == number - 1 and least >= 0):
        raise fault("journal", str(path), f"has {number} decisions numbered {least} to {most}: some are missing")


def _anchor(connection: sqlite3.Connection) -> int | None:
    """The first row after the newest snapshot's decisions: from there on the chain is checked at once."""
    newest = connection.execute("SELECT position, sequence FROM snapshots ORDER BY position DESC LIMIT 1").fetchone()
    if newest is None:
        return Tail(connection).position - UNANCHORED_ROWS
    first = connection.execute("SELECT position FROM decisions WHERE sequence = ?", newest[1:]).fetchone()
    return min((row[0] for row in (newest, first) if row is not None and type(row[0]) is int), default=None)
