"""The connection of a journal: a record is whole or not there, also where it is interrupted at any line.

One connection behind one lock: threads take turns. An epoch in the journal itself stops a writer that another one got
past in spite of the lock on the file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

from attribution_sched.errors import JournalError
from attribution_sched.journal.chain import Tail, seal
from attribution_sched.journal.faults import DAMAGED, fault, readable, unreadable
from attribution_sched.journal.file import connect, disposable
from attribution_sched.journal.kinds import whole
from attribution_sched.journal.lock import WriterLock
from attribution_sched.journal.records import now
from attribution_sched.journal.rows import Row

PAGE = 256
"""Rows that are in memory at once while reading."""

GROUP = 1024
"""Records per commit inside :meth:`Store.batch`."""

T = TypeVar("T")


class Store:
    """One connection behind one lock: threads take turns, statement by statement.

    Args:
        connection: Autocommitting, usable from any thread.
        path: The file, also an attribute; None in memory.
        lock: The right to write; None for a journal in memory or for reading.
        writable: Whether records may be added.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None, lock: WriterLock | None, *, writable: bool = True
    ) -> None:
        self.name = "in memory" if path is None else str(path)
        self.writable = writable
        self.path = path
        self._lock = lock
        self._throwaway = path is not None and disposable(path)
        with readable(self.name):
            self._file = _identity(path)
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
        # "single" or "grouped" while a record is being written: what an interrupt leaves half done is taken back.
        self._progress = SimpleNamespace(record="")
        # Also when it is forgotten rather than closed: nothing recorded is lost and the next writer gets in.
        self._end = weakref.finalize(self, _end, connection, lock, self._pid, self._progress)

    @property
    def lock_file(self) -> int | None:
        """Open file of the writer's lock; None in memory or for reading.

        Whoever starts a child that does something for this writer, and cannot be taken back, lets the child inherit
        it: should this process be killed, the next writer waits until the child has ended.
        """
        return None if self._lock is None else self._lock.file

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
            self._roll_back()

    def rows(self, query: str, *values: object) -> list[Row]:
        """All rows of a query."""
        with self._mine():
            try:
                return self._connection.execute(query, values).fetchall()
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise unreadable(self.name, error) from error

    def row(self, query: str, *values: object) -> Row | None:
        """First row of a query."""
        return next(iter(self.rows(query, *values)), None)

    def pages(self, query: str, start: int, stop: int) -> Iterator[list[Row]]:
        """Rows of a long query, a page at a time; no lock is held between pages.

        Args:
            query: With a first column that grows, and the parameters start, stop and limit, in this order.
            start: First value of that column.
            stop: One past the last.
        """
        while start < stop:
            page = self.rows(query, start, stop, PAGE)
            if page:
                yield page
            if len(page) < PAGE:
                return
            last = page[-1][0]
            if type(last) is not int or last < start:
                raise fault("journal", last, "stands where a number should", DAMAGED)
            start = last + 1

    def consistent(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read several things as of one moment, without holding up those who write."""
        with self._mine(), readable(self.name):
            if self.path is None:
                return work(self._connection)
        with readable(self.name), contextlib.closing(connect(self.path)) as connection:
            connection.execute("BEGIN")
            return work(connection)

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[int]:
        """Everything read inside the block is as of one moment, without holding up those who write.

        Only for a journal that was opened for reading.

        Yields:
            A number that changes whenever somebody has written.

        Raises:
            JournalError: If this is the writer, whose records would not be on disk before the block ends.
        """
        if self.writable:
            raise self.fault("is open for writing", "Open it with Journal.read to look at one moment")
        with self._mine(), readable(self.name):
            version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            self._connection.execute("BEGIN")
            try:
                yield version
            finally:
                self._connection.execute("ROLLBACK")

    def copy_to(self, target: Path) -> None:
        """Copy the file as it is now; its writer is not held up."""
        with contextlib.closing(sqlite3.connect(target)) as copy, readable(self.name):
            if disposable(target):
                copy.execute("PRAGMA synchronous = OFF")
            # One step: pages that a writer changes meanwhile would make SQLite begin anew.
            self.consistent(lambda connection: connection.backup(copy))

    def write(self, record: Callable[[Tail], T], *, soon: bool = False) -> T:
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
                raise self.fault("is open for reading only", "Open it with Journal.open to add records")
            if self._progress.record:
                self._take_back()
            if self._epoch is None:
                self.claim()
            grouped = self._depth > 0

            def attempt() -> T:
                if not self._connection.in_transaction:
                    self._sync(full=grouped or not soon)
                    self._connection.execute("BEGIN IMMEDIATE")
                    self._fence()
                if self._tail is None:
                    self._tail = Tail(self._connection)
                self._held += 1
                if grouped:
                    self._connection.execute("SAVEPOINT record")
                result = record(self._tail)
                if grouped:
                    self._connection.execute("RELEASE record")
                if self._held >= (self._every if grouped else 1):
                    self._commit()
                return result

            return self._attempt("grouped" if grouped else "single", attempt)

    def claim(self, *, unseen: bool = False) -> None:
        """Become the one that writes: whoever wrote before is refused from now on.

        Args:
            unseen: Whether nothing was read of it yet, so that what another wrote since it was opened is no matter.

        Raises:
            JournalError: If another has written since this one opened the journal.
        """

        def attempt() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            tail = Tail(self._connection)
            if tail.hash != self._claim:
                if tail.hash != self._seen and not unseen:
                    raise self.fault("was written by another since it was opened here", "Close it and open it again")
                who = f"process {self._pid} on {socket.gethostname()}"
                tail.append("epochs", (tail.next["epochs"], who, now()))
            # Kept before it is on disk: an interrupt after the commit must not make this writer a stranger.
            self._claim = tail.hash
            self._commit()
            self._epoch, self._tail = tail.next["epochs"] - 1, tail

        with self._mine():
            self._attempt("single", attempt)

    def _attempt(self, progress: str, work: Callable[[], T]) -> T:
        """Do something whole: where it fails or is interrupted, it is taken back."""
        self._progress.record = progress
        try:
            result = work()
            self._progress.record = ""
        except BaseException as error:
            held = self._held
            intact = self._take_back()
            if isinstance(error, sqlite3.Error):
                number = 1 if intact else held
                last = "the last record is" if number <= 1 else f"the last {number} records are"
                raise self.fault(
                    f"could not be written ({error}): {last} not in it", "Make room on the disk and record them again"
                ) from error
            raise
        return result

    @contextlib.contextmanager
    def batch(self, every: int = GROUP) -> Iterator[None]:
        """Commit in groups, for fast simulated runs: ``with journal.batch(): ...``.

        Inside, a record is on disk only once its group is full or the block ends, also by an error. A killed process
        loses at most the last ``every`` − 1 records, the newest and no others: what is left is an earlier state of the
        same run. This holds for all threads that share the journal. A batch inside a batch changes nothing.

        Args:
            every: Records in a group.
        """
        whole("every", every, least=1)
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
                    self._attempt("", self._commit)

    @contextlib.contextmanager
    def as_one(self) -> Iterator[None]:
        """Record several things, all or none: ``with journal.as_one(): ...``, also when an exception ends the block."""
        with self.batch(sys.maxsize):
            with self._mine():
                saved = self._connection.in_transaction
                if saved:
                    self._connection.execute("SAVEPOINT as_one")
            try:
                yield
            except BaseException:
                with self._turn:
                    self._tail, self._progress.record = None, ""
                    if not self.closed and self._connection.in_transaction:
                        # Without a savepoint, the transaction began inside the block.
                        self._connection.execute("ROLLBACK TO as_one" if saved else "ROLLBACK")
                    if not saved:
                        self._held = 0
                raise

    def alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something that SQLite does outside of transactions only, as the one writer."""
        with self._mine():
            if self._depth:
                raise self.fault("is inside a batch", "Do it after the batch")
            self.write(lambda _: None)
            with readable(self.name):
                return work(self._connection)

    def _sync(self, *, full: bool) -> None:
        """Whether the next commit waits for the disk; what it waits for are all commits before it, too."""
        if self._throwaway or full != self._soon:
            return
        # First: an interrupt must not leave a connection that is thought to wait and does not.
        self._soon = True
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        self._soon = not full

    def _fence(self) -> None:
        """Inside the transaction: is this still the writer?"""
        query = "SELECT epoch, writer, opened_at FROM epochs ORDER BY epoch DESC LIMIT 1"
        newest, who, since = self._connection.execute(query).fetchone()
        if newest != self._epoch:
            raise self.fault(
                f"was taken over by another writer ({who} since {since}): this one may write no more",
                "Let one process write it; close this one and go on with Journal.open, or System.resume",
            )

    def _commit(self) -> None:
        if not self._connection.in_transaction:
            return
        try:
            if self._file != _identity(self.path):
                raise self.fault(
                    "was deleted or replaced while it was open: what is recorded would be lost with it",
                    "Restore the file, then open it again",
                )
            self._connection.execute("COMMIT")
        except (sqlite3.Error, JournalError):
            self._roll_back()
            raise
        self._held = 0

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _take_back(self) -> bool:
        """Drop a record that failed or was interrupted; a group keeps those before it, unless SQLite dropped them.

        Returns:
            Whether the group was kept.
        """
        self._tail = None
        intact = self._progress.record == "grouped" and self._depth > 0 and self._connection.in_transaction
        if intact:
            # Interrupted before the record was begun, or when it was whole, there is no such savepoint.
            with contextlib.suppress(sqlite3.OperationalError):
                self._connection.execute("ROLLBACK TO record")
                self._connection.execute("RELEASE record")
        else:
            self._roll_back()
        self._held = max(0, self._held - 1) if intact else 0
        self._progress.record = ""
        return intact

    def fault(self, rule: str, fix: str = DAMAGED) -> JournalError:
        """The error for a rule that this journal breaks."""
        return fault("journal", self.name, rule, fix)

    def _mine(self) -> threading.RLock:
        """This thread's turn, to be waited for."""
        # Asked first: in a forked child, the turn may be held by a thread that does not exist there.
        if self._pid != os.getpid():
            raise self.fault(
                f"was opened by process {self._pid}, this is a fork of it", "Open it with Journal.read in the child"
            )
        if self.closed:
            raise self.fault("is closed", "Open it again with Journal.open")
        return self._turn


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Which file has this name; None if there is none."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)


def _end(connection: sqlite3.Connection, lock: WriterLock | None, pid: int, progress: SimpleNamespace) -> None:
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
