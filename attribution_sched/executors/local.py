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
from pathlib import Path

from attribution_sched.errors import ExecutorError, LaunchRefused, problem
from attribution_sched.executors import local_job
from attribution_sched.executors.executor import check_job
from attribution_sched.executors.job_folder import JobFolder, locked
from attribution_sched.executors.records import Handle, Inventory, JobSpec
from attribution_sched.executors.submission import submit


class LocalExecutor(JobFolder):
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
        super().__init__(domain, root, grace_s)
        self.devices, self._submitter = devices, submitter
        try:
            (self.root / "devices").mkdir(exist_ok=True)
            existing = sum(1 for _ in (self.root / "devices").iterdir())
            if existing not in (0, devices):
                rule = f"{self.root} was made for {existing} devices"
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
            free = sum(not locked(place) for place in (self.root / "devices").iterdir())
        version = f"local processes, Python {sys.version_info.major}.{sys.version_info.minor}"
        return Inventory(self.domain, self.devices, free, {os.uname().nodename: "up"}, version, time.time())

    def launch(self, key: str, job: JobSpec) -> Handle:
        """Start a job under a key, once; see :meth:`~attribution_sched.executors.executor.Executor.launch`."""
        check_job(self, job)
        earlier = self.find(key)
        if earlier is not None:
            return earlier
        if job.component.devices > self.devices:
            rule = f"domain {self.domain} has {self.devices} devices"
            raise LaunchRefused(problem("job.devices", job.component.devices, rule, "Place it on fewer devices"))
        spec = self._spec(key, job, job.component.devices)
        lock = -1 if self.lock_file is None else self.lock_file
        script = str(Path(local_job.__file__).resolve())
        command = [*self._submitter, sys.executable, "-I", "-S", script, str(self.root), key, str(lock)]
        process = submit(command, lock_file=self.lock_file, told=json.dumps(spec))
        handle = self.find(key)
        if process.returncode != 0 or handle is None:
            message = (process.stderr or process.stdout).strip()[-200:]
            rule = f"could not be handed in ({message or f'exit code {process.returncode}'})"
            raise ExecutorError(problem("job", key, rule, f"See whether {self.root} can be written"))
        return handle
