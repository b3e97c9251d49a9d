"""Where the page gets what it shows: from two processes beside it, or, in tests, from this one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

LINE_BYTES = 64 * 2**20
"""Longest view that is read from the process that follows."""
ANSWER_S = 180.0
"""Longest that an answer may take."""
IN_LINE = 8
"""Questions that may wait for their turn; more are turned away."""


class Busy(Exception):
    """Too many questions at once, or an answer took too long."""


class Source(Protocol):
    """What a page shows, and who answers its questions."""

    version: int
    stale: str

    async def start(self) -> None:
        """Begin to follow."""

    async def stop(self) -> None:
        """End what was begun."""

    @property
    def view(self) -> Mapping[str, Any]:
        """The newest view; empty before there is one."""

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """An answer; ``error`` is in it if the question is wrong.

        Raises:
            Busy: If too many are waiting.
        """


class Workers:
    """Two processes: one follows the journal, one answers questions and is started with the first of them.

    Args:
        path: The journal.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.version, self.stale = 0, ""
        self._view: Mapping[str, Any] = {}
        self._following: asyncio.subprocess.Process | None = None
        self._answering: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    @property
    def view(self) -> Mapping[str, Any]:
        """The newest view."""
        return self._view

    async def start(self) -> None:
        """Start the process that follows."""
        self._following = await self._worker("follow")
        self._reading = asyncio.create_task(self._read(self._following))

    async def stop(self) -> None:
        """End both processes, by the end of what they read."""
        for each in (self._following, self._answering):
            await _end(each)
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the process that answers; see :meth:`Source.ask`."""
        if self._waiting >= IN_LINE:
            raise Busy(f"{IN_LINE} questions are waiting already; ask again in a minute")
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.wait_for(self._asked(question), ANSWER_S)
        except TimeoutError:
            worker, self._answering = self._answering, None
            await _end(worker)
            raise Busy(f"no answer within {ANSWER_S:.0f} s; ask again in a minute") from None
        finally:
            self._waiting -= 1

    async def _asked(self, question: Mapping[str, Any]) -> dict[str, Any]:
        worker = self._answering
        if worker is None or worker.returncode is not None:
            worker = self._answering = await self._worker("answer")
        assert worker.stdin is not None and worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(dict(question)).encode() + b"\n")
            await worker.stdin.drain()
            line = await worker.stdout.readline()
        except (ConnectionError, BrokenPipeError):
            line = b""
        if not line:
            self._answering = None
            return {"error": "the process that answers has ended; ask again"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _worker(self, what: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "attribution_sched.serve.worker", what, str(self.path),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES,
        )  # fmt: skip

    async def _read(self, worker: asyncio.subprocess.Process) -> None:
        assert worker.stdout is not None
        while line := await worker.stdout.readline():
            message = json.loads(line)
            if "error" in message:
                self.stale = str(message["error"])
            else:
                self._view = message
            self.version += 1
        self.stale = self.stale or "it was ended from outside"
        self.version += 1


async def _end(worker: asyncio.subprocess.Process | None) -> None:
    if worker is None or worker.returncode is not None:
        return
    assert worker.stdin is not None
    worker.stdin.close()
    try:
        await asyncio.wait_for(worker.wait(), 5.0)
    except TimeoutError:
        worker.kill()
        await worker.wait()
