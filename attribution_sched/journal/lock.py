"""One writer at a time: ``flock`` on a file beside the journal, which the system takes back when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
import weakref
from pathlib import Path

from attribution_sched.journal.faults import fault
from attribution_sched.journal.records import now

LOCK_SUFFIX = ".lock"
LOCK_POLL_S = 0.02
"""Pause between two tries for a lock that is waited for."""


class WriterLock:
    """The right to write a journal, from construction to :meth:`release`.

    The file says who holds it, for the message only. It is removed on release; whoever locked a removed file notices
    and tries again.

    Args:
        journal: Path of the journal, symbolic links resolved.
        wait_s: How long to wait for another that holds it: a child of a dead writer may, until it has submitted.

    Attributes:
        file: The open file. A child that inherits it keeps the lock held until it ends as well.

    Raises:
        JournalError: If another writer holds it, or the folder cannot be written.
    """

    def __init__(self, journal: Path, wait_s: float = 0.0) -> None:
        self.path = journal.with_name(journal.name + LOCK_SUFFIX)
        self._pid = os.getpid()
        self.file = self._take(journal, time.monotonic() + wait_s)
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, f"{self._pid}\n{now()}\n{socket.gethostname()}\n".encode(), 0)
        _HELD.add(self)

    def release(self) -> None:
        """Let the next writer in; harmless when done twice."""
        if self._pid != os.getpid():
            return
        # Removed while still locked: nobody can be between opening this file and believing to hold it. A file that
        # another writer made after ours was deleted is left alone.
        if self.file >= 0 and self._is_at_its_path(self.file):
            self.path.unlink(missing_ok=True)
        self.forget()

    def forget(self) -> None:
        """Drop the handle a forked child inherited; else it would keep the lock after its parent's death."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def _take(self, journal: Path, until_s: float) -> int:
        while True:
            try:
                file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise fault(
                    "journal",
                    str(journal),
                    f"cannot be written: no lock file can be made beside it ({error.strerror})",
                    "Use a folder that exists and can be written",
                ) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_at_its_path(file):
                    return file
                os.close(file)
            except OSError as error:
                holder = _holder(file)
                os.close(file)
                if time.monotonic() >= until_s:
                    raise fault(
                        "journal",
                        str(journal),
                        f"is being written by {holder}",
                        "End that process or close its journal, choose another path, or look at it with Journal.read",
                    ) from error
                time.sleep(LOCK_POLL_S)

    def _is_at_its_path(self, file: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file), self.path.stat())
        return False


_HELD: weakref.WeakSet[WriterLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: list(map(WriterLock.forget, _HELD)))


def _holder(file: int) -> str:
    pid, since, host, *_ = (*os.pread(file, 1000, 0).decode(errors="replace").split("\n"), "", "")
    if not host:
        return "a process that is just starting"
    who = "this process" if pid == str(os.getpid()) else f"process {pid}"
    return f"{who} on {host} since {since}"
