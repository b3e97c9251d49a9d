"""A folder for each job, ``ROOT/DOMAIN/jobs/KEY``: what its keeper writes there, and what is asked of it there.

Executors whose jobs are kept by :mod:`~attribution_sched.executors.local_job` differ in how a keeper is started and in
how its end is noticed. What they share is here: events and steps are lines that the keeper and the command write,
``release`` and ``cancel`` are files that the keeper looks for.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attribution_sched.errors import ExecutorError, problem
from attribution_sched.executors.executor import check_domain, check_key
from attribution_sched.executors.records import (
    CANCELLED,
    FAILED,
    FINISHED,
    GRANTED,
    LOST,
    QUEUED,
    RUNNING,
    STEP,
    Event,
    Handle,
    Inventory,
    JobSpec,
    Observed,
    Reason,
)

OVER = (FINISHED, FAILED, CANCELLED)
"""States that a keeper writes last."""

MIGRATE_S = 60.0
"""Longest wait for a job to save itself and end before it is started elsewhere."""


class JobFolder:
    """What executors share that keep their jobs in folders.

    Args:
        domain: Name of the domain.
        root: Folder that holds the domains; it stays when the process ends, and keepers share it.
        grace_s: Seconds between asking a job to end and ending it.

    Raises:
        ExecutorError: If the folder cannot be used.
    """

    missing = "the process that kept it is gone"
    """Why a job is lost."""

    def __init__(self, domain: str, root: str | os.PathLike[str], grace_s: float) -> None:
        self.domain, self.grace_s = check_domain(domain), grace_s
        self.lock_file: int | None = None
        self.root = Path(root).resolve() / domain
        try:
            (self.root / "jobs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            rule = f"cannot be used as the folder of a domain ({error.strerror})"
            raise ExecutorError(problem("folder", str(root), rule, "Give a folder that can be written")) from error

    # --- How executors differ ---

    def inventory(self) -> Inventory:
        """What there is, as the engine says it now."""
        raise NotImplementedError

    def launch(self, key: str, job: JobSpec) -> Handle:
        """Start a job under a key, once."""
        raise NotImplementedError

    def _unkept(self, key: str) -> bool:
        """Whether nobody keeps a job whose folder is there."""
        return not locked(self._folder(key) / "alive")

    def _name(self, key: str) -> str:
        """The engine's own name of a job."""
        return str(self._folder(key))

    def _over(self, key: str) -> None:
        """The end of a job was seen."""

    def _queued(self, key: str) -> Reason:
        """Why a job waits that has no devices yet."""
        stock = self.inventory()
        return Reason("Resources", "devices", f"{stock.free} of {stock.devices} devices are free")

    # --- What they share ---

    def _folder(self, key: str) -> Path:
        return self.root / "jobs" / check_key(key)

    def _spec(self, key: str, job: JobSpec, devices: int) -> dict[str, Any]:
        """A job as its keeper is told it."""
        return {
            "command": list(job.command), "environment": job.variables(key), "devices": devices, "held": job.held,
            "hold_s": job.hold_s, "grace_s": self.grace_s, "task": job.task,
        }  # fmt: skip

    def find(self, key: str) -> Handle | None:
        """What the job's folder says; None if there is none."""
        folder = self._folder(key)
        if not folder.is_dir():
            return None
        lines = lines_of(folder / "events.jsonl", 0)[0]
        lost = not _ends(lines) and self._unkept(key)
        if lost:
            # A keeper that ended in between had written its last line before.
            lines = lines_of(folder / "events.jsonl", 0)[0]
            lost = not _ends(lines)
        where = next((line["devices"] for line in reversed(lines) if "devices" in line), "")
        started = next((line["unix_s"] for line in lines if line["kind"] == RUNNING), None)
        last = lines[-1] if _ends(lines) else {}
        state = LOST if lost else lines[-1]["kind"] if lines else QUEUED
        return Handle(
            key, self.domain, self._name(key), state, started, last.get("unix_s"), last.get("exit_code"),
            last.get("cpu_s"), last.get("max_rss_bytes"), tuple(each for each in where.split(",") if each),
            self.missing if lost else str(last.get("reason", "")),
        )  # fmt: skip

    def _known(self, since: Mapping[str, Any]) -> list[str]:
        """Keys to look at."""
        return sorted(folder.name for folder in (self.root / "jobs").iterdir() if folder.name[0] != ".")

    def observe(self, since: Mapping[str, Any]) -> Observed:
        """What the folders of jobs say since; a cursor is bytes read of events and of steps, by key."""
        events: list[Event] = []
        cursor: dict[str, Any] = {}
        for key in self._known(since):
            offsets = list(since.get(key) or (0, 0, 0))
            cursor[key] = offsets
            if offsets[2]:
                continue
            folder, now = self._folder(key), time.time()
            # Asked before its events are read: a keeper that ends in between has written its last line by then.
            lost = self._unkept(key)
            steps, offsets[1] = lines_of(folder / "steps.jsonl", offsets[1])
            happened, offsets[0] = lines_of(folder / "events.jsonl", offsets[0])
            events.extend(Event(key, self.domain, STEP, float(line.get("unix_s", now)), line) for line in steps)
            for line in happened:
                data = {name: value for name, value in line.items() if name not in ("kind", "unix_s")}
                events.append(Event(key, self.domain, line["kind"], line["unix_s"], data))
            if lost and not _ends(happened):
                events.append(Event(key, self.domain, LOST, time.time(), {"reason": self.missing}))
            if lost or _ends(happened):
                offsets[2] = 1
                self._over(key)
        return Observed(tuple(events), cursor)

    def release(self, key: str) -> None:
        """Open the gate of a job."""
        self._leave(key, "release")

    def cancel(self, key: str) -> None:
        """Ask a job to end (TERM), and end it after the grace."""
        self._leave(key, "cancel")

    def migrate(self, key: str, job: JobSpec) -> Handle:
        """Stop a job so that it can save itself, and start it as another attempt of the same key."""
        self.cancel(key)
        until = time.monotonic() + self.grace_s + MIGRATE_S
        while (handle := self.find(key)) is not None and not handle.ended:
            if time.monotonic() > until:
                rule = f"did not end within {self.grace_s + MIGRATE_S:g} s of being asked to"
                raise ExecutorError(problem("job", key, rule, "Let the command end on SIGTERM"))
            time.sleep(0.02)
        self._over(key)
        return self.launch(f"{key}-{max(1, job.attempt)}", job)

    def why_waiting(self, key: str) -> Reason | None:
        """A job waits for devices, or at its gate for the other parts of its gang."""
        handle = self.find(key)
        if handle is None or handle.state not in (QUEUED, GRANTED):
            return None
        return AT_GATE if handle.state == GRANTED else self._queued(key)

    def _leave(self, key: str, word: str) -> None:
        folder = self._folder(key)
        if folder.is_dir():
            (folder / word).touch()


AT_GATE = Reason("JobHeld", "gang", "it has its devices and waits for the other parts of its gang")
"""Why a job waits that has its devices."""


def _ends(lines: list[dict[str, Any]]) -> bool:
    return bool(lines) and lines[-1]["kind"] in OVER


def locked(path: Path) -> bool:
    """Whether somebody holds the lock on a file; True where that cannot be told."""
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True


def lines_of(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Whole lines of JSON after an offset, and where they end; a line that is no mapping is passed over."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read(8_000_000)
    except OSError:
        return [], offset
    whole = text[: text.rfind(b"\n") + 1]
    return list(_mappings(whole)), offset + len(whole)


def _mappings(text: bytes) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            parsed = json.loads(line)
        except ValueError:
            continue
        if isinstance(parsed, dict):
            yield parsed
