"""The file of a journal: made whole or not at all, looked at before it is touched, written by one at a time.

One connection behind one lock: threads take turns, a record is whole or not there, also where it is interrupted at any
line. One process writes: ``flock`` on a file beside the journal, which the operating system takes back when its holder
dies, keeps others out; an epoch in the journal itself stops a writer that another one got past all the same.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import re
import socket
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attribution_sched.errors import JournalError, nearest, problem
from attribution_sched.journal import chain, migration, schema
from attribution_sched.journal.chain import Tail

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


def create(path: Path, header: schema.Row) -> None:
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
    try:
        with draft_of(path) as draft, contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            fill(connection, header)
            connection.execute("PRAGMA journal_mode = WAL")
    except (OSError, sqlite3.Error) as error:
        rule = f"cannot be made ({error})"
        raise JournalError(problem("journal", str(path), rule, "Use a folder with room that can be written")) from error


def fill(connection: sqlite3.Connection, header: schema.Row) -> None:
    """Make tables and header in an empty database."""
    connection.execute("BEGIN IMMEDIATE")
    schema.create(connection)
    chain.begin(connection)
    Tail(connection).append(connection, "header", header)
    chain.seal(connection)
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
            found = DRAFT.fullmatch(other.name)
            # Release 0.1 gave the drafts of journals no process id; whoever makes this journal holds its lock.
            if (found and not _alive(int(found[1]))) or other.name in (
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


def writing(path: Path) -> sqlite3.Connection:
    """Connect for writing, every commit on disk before it returns; the caller holds the lock.

    The file is looked at first, and changed only once nothing was found wrong.

    Raises:
        JournalError: If it is damaged, foreign or newer than this package.
    """
    inspect(path)
    with contextlib.closing(connect(path)) as connection, readable(path):
        if connection.execute("PRAGMA application_id").fetchone()[0] == schema.ARCHIVE_ID:
            fix = "Look at it with Journal.read; go on with the journal it was taken from"
            raise JournalError(problem("journal", str(path), "is an archive, which is not written any more", fix))
        if path.stat().st_size <= QUICK_CHECK_BYTES:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise JournalError(problem("journal", str(path), f"is damaged ({found.strip()})", RESTORE))
        if schema.version(connection) == schema.VERSION:
            _judge(connection, path)
            chain.verify(connection, _anchor(connection))
    with readable(path):
        connection = connect(path, "rw")
    try:
        with readable(path):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if migration.migrate(connection, str(path)) != schema.VERSION:
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
    with contextlib.closing(connect(path)) as connection, readable(path):
        known = (schema.APPLICATION_ID, schema.ARCHIVE_ID)
        if connection.execute("PRAGMA application_id").fetchone()[0] not in known:
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
    schema.complete(connection, str(path))
    header = connection.execute(f"SELECT {schema.select('header')} FROM header").fetchone()
    if header is None:
        raise JournalError(problem("journal", str(path), "has no header", RESTORE))
    schema.decode("header", header)
    # Three queries in one: each is then answered from an index.
    counts = ", ".join(f"(SELECT {found} FROM decisions)" for found in ("count(*)", "min(sequence)", "max(sequence)"))
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
            chain.seal(self._connection)
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
        found = self.rows(query, values)
        return found[0] if found else None

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
                raise JournalError(problem("journal", last, "stands where a number should", schema.DAMAGED))
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
            # One step: pages that a writer changes meanwhile would make SQLite begin anew.
            self.consistent(lambda connection: connection.backup(copy))

    def write(self, record: Callable[[sqlite3.Connection, Tail], T]) -> T:
        """Let something be written as one record: whole or not there. Outside a group it is on disk after.

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
                kept = self._take_back()
                if isinstance(error, sqlite3.Error):
                    raise self._lost(1 if kept else held, error) from error
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
        kept, self._tail = False, None
        grouped = self._progress.record == "grouped" and self._depth > 0
        if self._connection.in_transaction:
            if grouped:
                try:
                    self._connection.execute("ROLLBACK TO record")
                    self._connection.execute("RELEASE record")
                except sqlite3.OperationalError:
                    # Interrupted before the record was begun, or when it was whole.
                    pass
                kept = True
            else:
                self._connection.execute("ROLLBACK")
        self._held = max(0, self._held - 1) if kept else 0
        self._progress.record = ""
        return kept

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
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
