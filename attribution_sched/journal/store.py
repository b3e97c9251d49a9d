"""A connection that threads may share: whole transactions, groups of them, and reading page by page."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from attribution_sched.errors import JournalError, problem
from attribution_sched.journal.files import readable, unreadable
from attribution_sched.journal.lock import WriterLock

PAGE = 256
"""Rows that are in memory at once while reading."""


class Store:
    """One connection behind one lock: threads take turns, statement by statement.

    Args:
        connection: Autocommitting, usable from any thread.
        name: Name of the file, for messages.
        lock: The right to write; None for a journal in memory or for reading.
        writable: Whether records may be added.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, lock: WriterLock | None, *, writable: bool) -> None:
        self.name = name
        self.writable = writable
        self._connection = connection
        self._turn = threading.RLock()
        self._pid = os.getpid()
        self._depth = 0
        self._every = 1
        self._held = 0
        # Also when it is forgotten rather than closed: nothing recorded is lost and the next writer gets in.
        self._end = weakref.finalize(self, _end, connection, lock, self._pid)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._end.alive

    def close(self) -> None:
        """Commit what a group still holds back, and let the next writer in; harmless when done twice."""
        if self._pid != os.getpid():
            return
        with self._turn, readable(self.name):
            self._end()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._mine():
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
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
            start = found[-1][0] + 1

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All that is executed inside becomes one record: whole or not there. Outside a group it is on disk after."""
        with self._mine():
            if not self.writable:
                rule = "is open for reading only"
                raise JournalError(problem("journal", self.name, rule, "Open it with Journal.open to add records"))
            grouped = self._depth > 0
            with readable(self.name):
                if not self._connection.in_transaction:
                    self._connection.execute("BEGIN IMMEDIATE")
                if grouped:
                    self._connection.execute("SAVEPOINT record")
            with self._undone(grouped):
                yield self._connection
                if grouped:
                    self._connection.execute("RELEASE record")
            self._held += 1
            if self._held >= (self._every if grouped else 1):
                self._commit()

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
                self._depth -= 1
                if self._depth == 0 and not self.closed:
                    self._commit()

    def _commit(self) -> None:
        if not self._connection.in_transaction:
            return
        held, self._held = self._held, 0
        try:
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._lost(held, error) from error
            raise

    @contextlib.contextmanager
    def _undone(self, grouped: bool) -> Iterator[None]:
        """Take back a record that failed; a group keeps those before it, unless SQLite had to drop them."""
        try:
            yield
        except BaseException as error:
            kept = grouped and self._connection.in_transaction
            if kept:
                self._connection.execute("ROLLBACK TO record")
                self._connection.execute("RELEASE record")
            elif self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if not isinstance(error, sqlite3.Error):
                raise
            lost = 1 if kept else self._held + 1
            if not kept:
                self._held = 0
            raise self._lost(lost, error) from error

    def _lost(self, number: int, error: sqlite3.Error) -> JournalError:
        last = "the last record is" if number == 1 else f"the last {number} records are"
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


def _end(connection: sqlite3.Connection, lock: WriterLock | None, pid: int) -> None:
    # A forked child must not touch its parent's connection.
    if pid != os.getpid():
        return
    with contextlib.ExitStack() as last:
        if lock is not None:
            last.callback(lock.release)
        last.callback(connection.close)
        if connection.in_transaction:
            connection.execute("COMMIT")
