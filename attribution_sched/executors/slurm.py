"""Jobs of a Slurm partition, through Slurm's own commands: submit held, release, cancel, requeue elsewhere, find.

A domain is a partition of one controller; domains of several controllers have an executor each, told apart by their
configuration file. Slurm has no keys of its own: the key is the job's name and stands in its comment, `squeue` knows it
while the job lives and `sacct` for good. A job of a gang takes its devices and waits at a gate, which is a loop in its
script that reads its own comment; letting it go is writing ``go`` there, which may be done twice. Text output with few
columns is read, because the JSON of Slurm changes between versions.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attribution_sched.errors import ExecutorError, LaunchRefused, problem
from attribution_sched.executors.executor import check_domain, check_job, check_key
from attribution_sched.executors.job_folder import AT_GATE, lines_of
from attribution_sched.executors.records import (
    CANCELLED,
    ENDED,
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

STATES: Mapping[str, str] = {
    "PENDING": QUEUED, "REQUEUED": QUEUED, "REQUEUE_HOLD": QUEUED, "REQUEUE_FED": QUEUED, "SPECIAL_EXIT": QUEUED,
    "RESV_DEL_HOLD": QUEUED, "CONFIGURING": QUEUED, "RUNNING": RUNNING, "COMPLETING": RUNNING, "SIGNALING": RUNNING,
    "STAGE_OUT": RUNNING, "STOPPED": RUNNING, "SUSPENDED": RUNNING, "RESIZING": RUNNING, "COMPLETED": FINISHED,
    "CANCELLED": CANCELLED, "REVOKED": CANCELLED, "FAILED": FAILED, "TIMEOUT": FAILED, "OUT_OF_MEMORY": FAILED,
    "BOOT_FAIL": FAILED, "DEADLINE": FAILED, "NODE_FAIL": LOST, "PREEMPTED": LOST,
}  # fmt: skip
"""Slurm's states in ours."""

CAUSES: Mapping[str, str] = {
    "Resources": "devices", "Priority": "priority", "Dependency": "dependency", "BeginTime": "begin time",
    "JobHeldUser": "held", "JobHeldAdmin": "held", "ReqNodeNotAvail": "node not available", "Licenses": "licenses",
    "QOSMaxGRESPerUser": "quota", "QOSMaxJobsPerUserLimit": "quota", "QOSGrpGRES": "quota", "AssocGrpGRES": "quota",
    "AssocMaxJobsLimit": "quota", "PartitionTimeLimit": "never", "PartitionNodeLimit": "never",
    "BadConstraints": "never",
    "PartitionDown": "partition down", "PartitionInactive": "partition down", "Reservation": "reservation",
    "NodeDown": "node not available", "Cleaning": "cleaning", "None": "",
}  # fmt: skip
"""Slurm's reasons for waiting, and what they mean among our causes. Others are shown in Slurm's own word."""

REFUSALS = (
    "invalid partition", "invalid account", "requested node configuration is not available", "more processors",
    "permission denied", "access/permission", "invalid generic resource", "invalid feature", "qos", "node count",
    "requested time limit", "unsupported", "violates", "invalid node name", "not permitted", "invalid qos",
)  # fmt: skip
"""Words of Slurm by which a job is refused for good; any other failure of a submission is looked into again."""

WAIT_S = 20.0
"""Longest that a question to Slurm may take."""

MEMORY_DAYS = 30
"""How far back accounting is asked for a key."""

SEPARATOR = "\x1f"
HELD, GO = "held", "go"
"""Last word of a job's comment: it waits at its gate, or may begin."""


class SlurmExecutor:
    """Runs the jobs of one domain in a Slurm partition.

    Args:
        domain: Name of the domain.
        partition: Its partition; the domain's name by default.
        folder: Where jobs leave their output and report their steps; nodes and this machine must share it.
        conf: Path of ``slurm.conf`` if it is not the machine's own: of another controller.
        gpus: Type of GPU to ask for, ``any``, or empty to ask for processors instead.
        options: More options of ``sbatch``.
        accounting: Whether ``sacct`` is asked for jobs that ``squeue`` has forgotten.
        submitter: Words before ``sbatch``.
    """

    name = "slurm"

    def __init__(
        self,
        domain: str,
        partition: str = "",
        *,
        folder: str | os.PathLike[str],
        conf: str | os.PathLike[str] | None = None,
        gpus: str = "any",
        options: Sequence[str] = (),
        accounting: bool = True,
        submitter: Sequence[str] = (),
    ) -> None:
        self.domain, self.partition = check_domain(domain), partition or domain
        self.folder = Path(folder).resolve() / domain
        self.conf, self.gpus, self.options, self.accounting = conf, gpus, tuple(options), accounting
        self.lock_file: int | None = None
        self._submitter = tuple(submitter)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            rule = f"cannot be made ({error.strerror})"
            raise ExecutorError(problem("folder", str(folder), rule, "Give a folder that nodes share")) from error

    # --- Slurm's commands ---

    @property
    def _environment(self) -> dict[str, str]:
        return environment_of(self.conf)

    def _ask(self, *command: str) -> str:
        return ask_slurm(command, self.conf)

    # --- The protocol ---

    def version(self) -> str:
        """Of Slurm."""
        return self._ask("sinfo", "--version").strip()

    def inventory(self) -> Inventory:
        """Nodes of the partition with their states, devices, and those that no job holds on nodes that work."""
        fields = "NodeList:60,StateLong:30,Gres:120,GresUsed:120,CPUsState:40"
        nodes: dict[str, str] = {}
        devices = free = 0
        for line in self._ask("sinfo", "-h", "-N", "-p", self.partition, "-O", fields).splitlines():
            host, state, gres, used, cpus = (line[a:b].strip() for a, b in _cuts(60, 30, 120, 120, 40))
            if host in nodes:
                continue
            nodes[host] = state
            if self.gpus:
                has, takes = _gpus(gres, self.gpus), _gpus(used, self.gpus)
            else:
                busy, _, _, has = (int(part) for part in cpus.split("/"))
                takes = busy
            devices += has
            free += has - takes if state.rstrip("*~#!%$@^-") in ("idle", "mixed", "allocated", "completing") else 0
        if not nodes:
            rule = "has no nodes, or there is no such partition"
            partitions = ", ".join(sorted(set(self._ask("sinfo", "-h", "-o", "%R").split())))
            raise ExecutorError(problem("partition", self.partition, rule, f"Slurm has: {partitions}"))
        return Inventory(self.domain, devices, free, nodes, self.version(), time.time())

    def launch(self, key: str, job: JobSpec) -> Handle:
        """Submit a job under a key, once; see :meth:`~attribution_sched.executors.executor.Executor.launch`."""
        check_job(self, job)
        earlier = self.find(key)
        if earlier is not None:
            return earlier
        command = [
            *self._submitter, "sbatch", "--parsable", f"--job-name={key}", f"--partition={self.partition}",
            f"--comment={self._comment(key, HELD if job.held else GO)}", f"--output={self.folder}/{key}.out",
            "--open-mode=append", "--no-requeue", *self._devices(job), *self.options,
        ]  # fmt: skip
        if job.time_limit_s is not None:
            command.append(f"--time={max(1, round(job.time_limit_s / 60.0))}")
        process = submit(command, lock_file=self.lock_file, told=self._script(key, job), environment=self._environment)
        if process.returncode != 0:
            message = " ".join((process.stderr or process.stdout).split())[-300:]
            if any(word in message.lower() for word in REFUSALS):
                rule = f"Slurm refuses it in partition {self.partition} ({message})"
                raise LaunchRefused(problem("job", key, rule, "Mend the partition, the rights or the request"))
            raise failure_of("sbatch", message)
        number = process.stdout.strip().split(";")[0]
        return Handle(key, self.domain, number, QUEUED)

    def _devices(self, job: JobSpec) -> list[str]:
        count = job.component.devices
        if not self.gpus:
            return [f"--ntasks={count}"]
        return [f"--gpus={count}" if self.gpus == "any" else f"--gpus={self.gpus}:{count}"]

    def _script(self, key: str, job: JobSpec) -> str:
        exported = job.variables(key) | {
            "ATTR_REPORT": f"{self.folder}/{key}.steps.jsonl",
            "ATTR_FOLDER": str(self.folder),
        }
        lines = ["#!/bin/sh", *(f"export {name}={shlex.quote(value)}" for name, value in exported.items())]
        if self.conf is not None:
            lines.append(f"export SLURM_CONF={shlex.quote(str(self.conf))}")
        lines.append('export ATTR_RESTARTS="${SLURM_RESTART_COUNT:-0}"')
        if job.held:
            lines += [
                f"waited=0; until scontrol -o show job $SLURM_JOB_ID | grep -q 'Comment=[^ ]*:{GO}'; do",
                f"  [ $waited -ge {round(job.hold_s)} ] && exit 75",
                "  waited=$((waited + 1)); sleep 1",
                "done",
                f"date +%s > {shlex.quote(f'{self.folder}/{key}.began')}",
            ]
        # The command takes the script's place, so that Slurm's signals reach it.
        return "\n".join([*lines, f"exec {shlex.join(job.command)}", ""])

    def find(self, key: str) -> Handle | None:
        """Ask the queue, then accounting."""
        return self._queue(check_key(key)).get(key) or self._accounted([key]).get(key)

    def _queue(self, key: str = "") -> dict[str, Handle]:
        """Jobs of ours that the controller still knows, by key."""
        shape = SEPARATOR.join(("%i", "%j", "%T", "%r", "%N", "%S", "%e", "%k"))
        only = ["--name", key] if key else []
        listing = self._ask("squeue", "-h", "-t", "all", "-u", getpass.getuser(), *only, "-o", shape)
        handles: dict[str, Handle] = {}
        for line in listing.splitlines():
            parts = line.split(SEPARATOR)
            if len(parts) != 8:
                continue
            number, name, word, reason, nodes, start, end, comment = parts
            if not self._ours(name, comment):
                continue
            state = STATES.get(word, QUEUED)
            if state == RUNNING and comment.endswith(f":{HELD}"):
                state = GRANTED
            began, ended = _seconds(start), _seconds(end)
            handle = Handle(
                name, self.domain, number, state, None if state in (QUEUED, GRANTED) else began,
                ended if state in ENDED else None, where=(nodes,) if nodes else (), reason=reason,
            )  # fmt: skip
            # After a move the newest job of a key counts.
            if name not in handles or int(re.sub(r"\D.*", "", number) or 0) > int(
                re.sub(r"\D.*", "", handles[name].id) or 0
            ):
                handles[name] = handle
        return handles

    def _comment(self, key: str, gate: str) -> str:
        return f"attr:{key}:{self.domain}:{gate}"

    def _ours(self, name: str, comment: str) -> bool:
        return comment.split(":")[:3] == ["attr", name, self.domain]

    def _accounted(self, keys: Sequence[str]) -> dict[str, Handle]:
        """Jobs that accounting remembers, by key."""
        if not self.accounting or not keys:
            return {}
        shape = "JobIDRaw,JobName,State,ExitCode,Start,End,TotalCPU,NodeList,Comment"
        listing = self._ask(
            # Root is told of everybody's; a job of somebody else is never ours, whatever it is called.
            "sacct", "-n", "-P", "-X", "-D", "-u", getpass.getuser(), f"--starttime=now-{MEMORY_DAYS}days",
            f"--name={','.join(keys)}", f"--delimiter={SEPARATOR}", "-o", shape,
        )  # fmt: skip
        handles: dict[str, Handle] = {}
        for line in listing.splitlines():
            parts = line.split(SEPARATOR)
            if len(parts) != 9:
                continue
            number, name, word, code, start, end, cpu, nodes, comment = parts
            if name not in keys or (comment and not self._ours(name, comment)):
                continue
            state = STATES.get(word.split(" ")[0], QUEUED)
            ended = _seconds(end)
            handles[name] = Handle(
                name, self.domain, number, state, _seconds(start), ended,
                int(code.split(":")[0]) if state in ENDED and code[:1].isdecimal() else None, _cpu_s(cpu),
                where=(nodes,) if nodes else (), reason=word,
            )  # fmt: skip
        return handles

    def observe(self, since: Mapping[str, Any]) -> Observed:
        """What changed since; a cursor is the last state and the bytes read of steps, by key."""
        cursors = {key: list(value or ("", 0)) for key, value in since.items()}
        queue = self._queue()
        gone = [key for key, (state, _) in cursors.items() if key not in queue and state not in ENDED]
        handles = {**self._accounted(gone), **queue}
        events: list[Event] = []
        now = time.time()
        for key, handle in handles.items():
            state, offset = cursors.get(key, ("", 0))
            if state in ENDED:
                continue
            steps, offset = lines_of(self.folder / f"{key}.steps.jsonl", int(offset))
            events.extend(Event(key, self.domain, STEP, float(line.get("unix_s", now)), line) for line in steps)
            if handle.state != state:
                if handle.state in (FINISHED, FAILED) and state != RUNNING:
                    # It began and ended between two looks.
                    events.append(Event(key, self.domain, RUNNING, handle.started_unix_s or now, {}))
                events.append(self._event(handle, now))
            cursors[key] = [handle.state, offset]
        return Observed(tuple(events), cursors)

    def _event(self, handle: Handle, now: float) -> Event:
        at = handle.ended_unix_s if handle.ended else handle.started_unix_s
        data: dict[str, Any] = {"reason": handle.reason} if handle.reason not in ("", "None") else {}
        if handle.ended:
            accounted = self._accounted([handle.key]).get(handle.key, handle)
            for name in ("exit_code", "cpu_s"):
                if getattr(accounted, name) is not None:
                    data[name] = getattr(accounted, name)
        began = self.folder / f"{handle.key}.began"
        if handle.state == RUNNING and began.is_file():
            at = _seconds(began.read_text().strip()) or at
        return Event(handle.key, self.domain, handle.state, at or now, data)

    def release(self, key: str) -> None:
        """Let a job of a gang through its gate."""
        handle = self.find(key)
        if handle is not None and not handle.ended:
            self._ask("scontrol", "update", f"jobid={handle.id}", f"comment={self._comment(key, GO)}")

    def cancel(self, key: str) -> None:
        """Cancel a job: TERM first, then KILL after Slurm's own ``KillWait``."""
        handle = self.find(key)
        if handle is not None and not handle.ended:
            self._ask("scancel", handle.id)

    def migrate(self, key: str, job: JobSpec) -> Handle:
        """Requeue a job in this executor's partition, in Slurm's own way: TERM, then it starts again, same number."""
        handle = self.find(key)
        if handle is None or handle.ended:
            raise ExecutorError(problem("job", key, "does not run, so it cannot be moved", "Launch it anew"))
        number = handle.id
        self._ask("scontrol", "update", f"jobid={number}", "requeue=1")
        self._ask("scontrol", "requeuehold", number)
        self._until_pending(number)
        # Without a start time of its own a requeued job waits some two minutes.
        self._ask("scontrol", "update", f"jobid={number}", f"partition={self.partition}", "starttime=now")
        self._ask("scontrol", "release", number)
        return Handle(key, self.domain, number, QUEUED)

    def _until_pending(self, number: str) -> None:
        until = time.monotonic() + WAIT_S + 60.0
        while "PENDING" not in self._ask("squeue", "-h", "-t", "all", "-j", number, "-o", "%T"):
            if time.monotonic() > until:
                raise ExecutorError(problem("job", number, "was not requeued in time", "See Slurm's own log"))
            time.sleep(0.1)

    def why_waiting(self, key: str) -> Reason | None:
        """Slurm's reason, what it means, and when Slurm expects to start the job."""
        handle = self._queue(check_key(key)).get(key)
        if handle is None or handle.state not in (QUEUED, GRANTED):
            return None
        if handle.state == GRANTED:
            return AT_GATE
        token = re.split(r"[,(]", handle.reason)[0].strip()
        start_text = self._ask("squeue", "-h", "--start", "-j", handle.id, "-o", "%S").strip()
        return Reason(token, CAUSES.get(token, ""), handle.reason, _seconds(start_text))


def environment_of(conf: str | os.PathLike[str] | None) -> dict[str, str]:
    """Variables for Slurm's commands: times as seconds, and whose configuration."""
    variables = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    return variables if conf is None else variables | {"SLURM_CONF": str(conf)}


def ask_slurm(command: Sequence[str], conf: str | os.PathLike[str] | None = None) -> str:
    """What a command of Slurm says.

    Args:
        command: Its words.
        conf: ``slurm.conf`` of another controller.

    Raises:
        ExecutorError: If it is not installed, fails, or does not answer.
    """
    try:
        process = subprocess.run(
            list(command), capture_output=True, text=True, timeout=WAIT_S, env=environment_of(conf), check=False
        )
    except FileNotFoundError as error:
        fix = "Install Slurm's commands, or run where they are"
        raise ExecutorError(problem("slurm", command[0], "is not installed here", fix)) from error
    except subprocess.TimeoutExpired as error:
        rule = f"did not answer within {WAIT_S:g} s"
        raise ExecutorError(problem("slurm", command[0], rule, "See whether slurmctld runs")) from error
    if process.returncode != 0:
        raise failure_of(command[0], process.stderr or process.stdout)
    return process.stdout


def failure_of(command: str, said: str) -> ExecutorError:
    """One clear error for what a command of Slurm complains of."""
    words = " ".join(said.split())[-300:]
    if "Unable to contact" in said or "Connection refused" in said or "configuration source" in said:
        fix = "See whether slurmctld runs, and which slurm.conf is meant"
        return ExecutorError(problem("slurm", command, f"does not reach its controller ({words})", fix))
    if "permission" in said.lower() or "Invalid user" in said:
        fix = "Ask for the right, or run as the owner of the job"
        return ExecutorError(problem("slurm", command, f"is not allowed ({words})", fix))
    return ExecutorError(problem("slurm", command, f"failed ({words})", "See Slurm's own log"))


def _cuts(*widths: int) -> list[tuple[int, int]]:
    ends = [sum(widths[: at + 1]) for at in range(len(widths))]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _gpus(words: str, wanted: str) -> int:
    """GPUs in ``gpu:a100:4(S:0-1),gpu:h100:2``, of one type or of any."""
    total = 0
    for name, kind, count in re.findall(r"(\w+)(?::([A-Za-z][\w.-]*))?:(\d+)", re.sub(r"\([^)]*\)", "", words)):
        if name == "gpu" and (wanted == "any" or kind == wanted):
            total += int(count)
    return total


def _number(job: str) -> int:
    """Of a job, without its place in an array or a heterogeneous job."""
    return int(re.split(r"[_+.]", job)[0] or 0)


def _seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() and int(text) > 0 else None


def _cpu_s(text: str) -> float | None:
    """Seconds in ``[days-][hours:]minutes:seconds``."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0.0) for part in match.groups())
    return ((days * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds


def executor_of(domain: str, devices: int, folder: Path) -> SlurmExecutor:
    """The executor of a domain whose partition bears its name; how many devices there are the partition says."""
    return SlurmExecutor(domain, folder=folder)
