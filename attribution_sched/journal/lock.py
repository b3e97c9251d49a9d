"""One writer per journal: a lock that the operating system takes back when its holder dies.

The lock is ``flock`` on a file beside the journal, so a killed process leaves the file but not the lock. The file says
who holds it, for the message only. It is removed on release; whoever locked a removed file notices and tries again.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
import weakref
from pathlib import Path

from attribution_sched.errors import JournalError, problem

SUFFIX = ".lock"


class WriterLock:
    """The right to write a journal, from construction to :meth:`release`.

    Args:
        journal: Path of the journal, symbolic links resolved.

    Raises:
        JournalError: If another writer holds it, or the folder cannot be written.
    """

    def __init__(self, journal: Path) -> None:
        self.path = journal.with_name(journal.name + SUFFIX)
        self._pid = os.getpid()
        self._file = _take(self.path, journal)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{self._pid}\n{now}\n{socket.gethostname()}\n".encode(), 0)
        _HELD.add(self)

    def release(self) -> None:
        """Let the next writer in; harmless when done twice."""
        if self._file < 0 or self._pid != os.getpid():
            return
        # Removed while still locked: nobody can be between opening this file and believing to hold it.
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


def _take(path: Path, journal: Path) -> int:
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
