"""Jobs as processes of this machine: the reference executor, which needs no root, no engine and no daemon.

A domain is a folder: ``devices/0 …`` are files that a job locks, ``jobs/KEY/`` is what is known of a job. Jobs outlive
whoever launched them. Devices are places, not hardware: they bound how much runs at once, and a job is told which ones
it got. Whoever fits is started; nobody is kept waiting for a larger job.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attribution_sched.errors import ExecutorError, LaunchRefused, problem
from attribution_sched.executors import local_job
from attribution_sched.executors.executor import check_job, check_key
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
from attribution_sched.executors.submission import submit

MIGRATE_S = 60.0
"""Longest wait for a job to save itself and end before it is started elsewhere."""


class LocalExecutor:
    """Runs the jobs of one domain as processes of this machine.

    Args:
        domain: Name of the domain.
        devices: How many places for jobs it has.
        root: Folder that holds the domains; it stays when the process ends.
        grace_s: Seconds between asking a job to end and ending it.
        submitter: Words before the command that hands in a job.

    Raises:
        ExecutorError: If the folder cannot be used, or holds another number of devices.
    """

    name = "local"

    def __init__(
        self,
        domain: str,
        devices: int,
        root: str | os.PathLike[str],
        *,
        grace_s: float = 10.0,
        submitter: tuple[str, ...] = (),
    ) -> None:
        check_key(domain)
        self.domain, self.devices, self.grace_s = domain, devices, grace_s
        self.lock_file: int | None = None
        self._submitter = submitter
        self.root = Path(root).resolve() / domain
        try:
            (self.root / "jobs").mkdir(parents=True, exist_ok=True)
            (self.root / "devices").mkdir(exist_ok=True)
            found = sum(1 for _ in (self.root / "devices").iterdir())
            if found not in (0, devices):
                rule = f"{self.root} was made for {found} devices"
                raise ExecutorError(problem("devices", devices, rule, "Use another folder, or as many devices"))
            for number in range(devices):
                (self.root / "devices" / str(number)).touch()
        except OSError as error:
            rule = f"cannot be used as the folder of a local domain ({error.strerror})"
            raise ExecutorError(problem("root", str(root), rule, "Give a folder that can be written")) from error

    def inventory(self) -> Inventory:
        """Devices, and those that nobody has locked."""
        free = 0
        with (self.root / "grant.lock").open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            free = sum(not _locked(place) for place in (self.root / "devices").iterdir())
        version = f"local processes, Python {sys.version_info.major}.{sys.version_info.minor}"
        return Inventory(self.domain, self.devices, free, {os.uname().nodename: "up"}, version, time.time())

    def launch(self, key: str, job: JobSpec) -> Handle:
        """Start a job under a key, once; see :meth:`~attribution_sched.executors.executor.Executor.launch`."""
        check_job(self, job)
        known = self.find(key)
        if known is not None:
            return known
        if job.component.devices > self.devices:
            rule = f"domain {self.domain} has {self.devices} devices"
            raise LaunchRefused(problem("job.devices", job.component.devices, rule, "Place it on fewer devices"))
        told = {
            "command": list(job.command), "environment": job.variables(key), "devices": job.component.devices,
            "held": job.held, "hold_s": job.hold_s, "grace_s": self.grace_s, "task": job.task,
        }  # fmt: skip
        lock = -1 if self.lock_file is None else self.lock_file
        script = str(Path(local_job.__file__).resolve())
        command = [*self._submitter, sys.executable, "-I", "-S", script, str(self.root), key, str(lock)]
        done = submit(command, lock_file=self.lock_file, told=json.dumps(told))
        found = self.find(key)
        if done.returncode != 0 or found is None:
            said = (done.stderr or done.stdout).strip()[-200:]
            rule = f"could not be handed in ({said or f'exit code {done.returncode}'})"
            raise ExecutorError(problem("job", key, rule, f"See whether {self.root} can be written"))
        return found

    def find(self, key: str) -> Handle | None:
        """What the job's folder says; None if there is none."""
        folder = self.root / "jobs" / check_key(key)
        if not folder.is_dir():
            return None
        told: dict[str, Any] = {}
        state, where, started, ended = QUEUED, "", None, None
        # Asked before its events are read: a keeper that ends in between has written its last line by then.
        kept = _locked(folder / "alive")
        for line in _lines(folder / "events.jsonl", 0)[0]:
            state, where = line["kind"], line.get("devices", where)
            if state == RUNNING:
                started = line["unix_s"]
            if state in (FINISHED, FAILED, CANCELLED):
                told, ended = line, line["unix_s"]
        if ended is None and not kept:
            state = LOST
        return Handle(
            key, self.domain, str(folder), state, started, ended, told.get("exit_code"), told.get("cpu_s"),
            told.get("max_rss_bytes"), tuple(each for each in where.split(",") if each),
            "the process that kept it is gone" if state == LOST else told.get("reason", ""),
        )  # fmt: skip

    def observe(self, since: Mapping[str, Any]) -> Observed:
        """What the folders of jobs say since; a cursor is bytes read of events and of steps, by key."""
        events: list[Event] = []
        cursor: dict[str, Any] = {}
        for folder in sorted((self.root / "jobs").iterdir()):
            key = folder.name
            if key.startswith("."):
                continue
            seen = list(since.get(key) or (0, 0, 0))
            if seen[2]:
                cursor[key] = seen
                continue
            kept = _locked(folder / "alive")
            steps, seen[1] = _lines(folder / "steps.jsonl", seen[1])
            happened, seen[0] = _lines(folder / "events.jsonl", seen[0])
            now = time.time()
            events.extend(Event(key, self.domain, STEP, float(line.get("unix_s", now)), line) for line in steps)
            last = ""
            for line in happened:
                last = line["kind"]
                data = {name: value for name, value in line.items() if name not in ("kind", "unix_s")}
                events.append(Event(key, self.domain, last, line["unix_s"], data))
            if last in (FINISHED, FAILED, CANCELLED):
                seen[2] = 1
            elif not kept:
                seen[2] = 1
                gone = {"reason": "the process that kept it is gone"}
                events.append(Event(key, self.domain, LOST, time.time(), gone))
            cursor[key] = seen
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
        while (known := self.find(key)) is not None and not known.ended:
            if time.monotonic() > until:
                rule = f"did not end within {self.grace_s + MIGRATE_S:g} s of being asked to"
                raise ExecutorError(problem("job", key, rule, "Let the command end on SIGTERM"))
            time.sleep(0.02)
        return self.launch(f"{key}-{max(1, job.attempt)}", job)

    def why_waiting(self, key: str) -> Reason | None:
        """A job waits here for devices, or at its gate for the other parts of its gang."""
        known = self.find(key)
        if known is None or known.state not in (QUEUED, GRANTED):
            return None
        if known.state == GRANTED:
            return Reason("JobHeld", "gang", "it has its devices and waits for the other parts of its gang")
        inventory = self.inventory()
        return Reason("Resources", "devices", f"{inventory.free} of {inventory.devices} devices are free")

    def _leave(self, key: str, word: str) -> None:
        folder = self.root / "jobs" / check_key(key)
        if folder.is_dir():
            (folder / word).touch()


def _locked(path: Path) -> bool:
    """Whether somebody holds the lock on a file."""
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _lines(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
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
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
