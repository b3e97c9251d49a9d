"""Hands in and keeps one job of a local domain; a script of its own, which needs nothing but Python.

    python -I -S local_job.py ROOT KEY LOCK_FILE [stay] < job.json

The process that is started here is the submission: it makes a draft of the job's folder and forks the keeper, which
closes the journal's lock. The keeper's first act is to rename the draft to ``jobs/KEY``: of two that hand in the same
key one succeeds, and a job whose folder is there has a keeper. It then takes devices (files that it locks, and its
command inherits, so that they are busy for as long as anybody uses them), waits at the gate if the job is held, runs
the command and writes down what came of it. Locks go with their holder: a keeper that dies is noticed by that.

With ``stay`` the process itself is the keeper, and it and its command end with whoever started it: so an engine that
has devices of its own keeps a job.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from typing import Any

POLL_S = 0.02
SLOWEST_POLL_S = 0.1
"""How often a keeper looks at its gate, its devices and its command: soon at first, then more rarely."""


def write_event(folder: str, kind: str, **data: Any) -> None:
    """One more line of what happened, whole or not there."""
    line = json.dumps({"kind": kind, "unix_s": time.time(), **data}) + "\n"
    file = os.open(os.path.join(folder, "events.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)  # noqa: PTH118
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def take_devices(root: str, count: int) -> list[tuple[int, int]] | None:
    """Lock so many free devices of a domain: number and open file of each; None if too few are free."""
    folder = os.path.join(root, "devices")  # noqa: PTH118
    with open(os.path.join(root, "grant.lock"), "a") as turn:  # noqa: PTH118, PTH123
        fcntl.flock(turn, fcntl.LOCK_EX)
        locks: list[tuple[int, int]] = []
        for name in sorted(os.listdir(folder), key=int):  # noqa: PTH208
            if len(locks) == count:
                break
            file = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CLOEXEC)  # noqa: PTH118
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locks.append((int(name), file))
            except OSError:
                os.close(file)
        if len(locks) == count:
            return locks
        for _, file in locks:
            os.close(file)
    return None


class Keeper:
    """Keeps one job from its claim to its end.

    Args:
        root: Folder of the domain.
        folder: Folder of the job.
        job: What was handed in.
    """

    def __init__(self, root: str, folder: str, job: dict[str, Any]) -> None:
        self.root, self.folder, self.job = root, folder, job

    def asked(self, word: str) -> bool:
        """Whether somebody left a word in the job's folder: ``cancel`` or ``release``."""
        return os.path.exists(os.path.join(self.folder, word))  # noqa: PTH110, PTH118

    def run(self) -> None:
        """From the queue to the end."""
        write_event(self.folder, "queued")
        pause_s, devices = POLL_S, None
        while devices is None:
            if self.asked("cancel"):
                write_event(self.folder, "cancelled")
                return
            devices = take_devices(self.root, self.job["devices"])
            if devices is None:
                time.sleep(pause_s)
                pause_s = min(1.5 * pause_s, SLOWEST_POLL_S)
        names = ",".join(str(number) for number, _ in devices)
        if self.job["held"] and not self.released(names):
            return
        self.work([file for _, file in devices], names)

    def released(self, names: str) -> bool:
        """Wait at the gate with the devices in hand; False if the job ends here."""
        write_event(self.folder, "granted", devices=names)
        began, pause_s = time.monotonic(), POLL_S
        while not self.asked("release"):
            late = time.monotonic() - began > self.job["hold_s"]
            if self.asked("cancel") or late:
                write_event(self.folder, "cancelled", **({"reason": "never released"} if late else {}))
                return False
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, SLOWEST_POLL_S)
        return True

    def work(self, files: list[int], names: str) -> None:
        """Run the command."""
        variables = {**os.environ, **self.job["environment"], "ATTR_DEVICES": names}
        variables["ATTR_REPORT"] = os.path.join(self.folder, "steps.jsonl")  # noqa: PTH118
        variables["ATTR_FOLDER"] = self.folder
        began = time.time()
        child = os.fork()
        if child == 0:
            self.become(files, variables)
        write_event(self.folder, "running", devices=names, pid=child)
        status, usage, cancelled = self.watch(child)
        code = os.waitstatus_to_exitcode(status)
        spent = {
            "exit_code": code, "cpu_s": usage.ru_utime + usage.ru_stime, "max_rss_bytes": usage.ru_maxrss * 1024,
            "wall_s": time.time() - began,
        }  # fmt: skip
        write_event(self.folder, "cancelled" if cancelled else "finished" if code == 0 else "failed", **spent)

    def become(self, files: list[int], variables: dict[str, str]) -> None:
        """In the child: the command itself, in a group of its own, with the devices' locks and without ours."""
        try:
            os.setpgid(0, 0)
            if self.job.get("tied"):
                end_with_parent()
            output = os.open(os.path.join(self.folder, "output"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)  # noqa: PTH118
            os.dup2(output, 1)
            os.dup2(output, 2)
            for file in files:
                os.set_inheritable(file, True)
            if self.job.get("folder"):
                os.chdir(self.job["folder"])
            os.execvpe(self.job["command"][0], self.job["command"], variables)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(2, f"{self.job['command'][0]}: {error}\n".encode())
            os._exit(127)

    def watch(self, child: int) -> tuple[int, Any, bool]:
        """Wait for the command's end, or bring it about: TERM, so that it can save itself, then KILL."""
        pause_s, asked_at = POLL_S, 0.0
        while True:
            pid, status, usage = os.wait4(child, os.WNOHANG)
            if pid:
                if asked_at:
                    self.signal(child, signal.SIGKILL)
                return status, usage, asked_at > 0.0
            if self.asked("cancel") and not asked_at:
                asked_at, pause_s = time.monotonic(), POLL_S
                self.signal(child, signal.SIGTERM)
            elif asked_at and time.monotonic() - asked_at > self.job["grace_s"]:
                self.signal(child, signal.SIGKILL)
            time.sleep(pause_s)
            pause_s = min(1.2 * pause_s, SLOWEST_POLL_S)

    def signal(self, child: int, number: int) -> None:
        """To the command and all it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, number)


def keep(root: str, key: str, draft: str, job: dict[str, Any], answer: int) -> None:
    """The keeper: claim the key, say so, keep the job."""
    folder = os.path.join(root, "jobs", key)  # noqa: PTH118
    alive = os.open(os.path.join(draft, "alive"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)  # noqa: PTH118
    fcntl.flock(alive, fcntl.LOCK_EX)
    try:
        os.rename(draft, folder)  # noqa: PTH104
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        os.write(answer, b"taken")
        return
    os.write(answer, b"claimed")
    os.close(answer)
    Keeper(root, folder, job).run()


def end_with_parent() -> None:
    """Let this process be killed when the thread that started it ends, however that comes about; only on Linux."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def main() -> int:
    """The command; it ends once the key is claimed."""
    root, key, lock_file = sys.argv[1], sys.argv[2], int(sys.argv[3])
    job = json.load(sys.stdin)
    stay = sys.argv[4:] == ["stay"]
    if stay:
        end_with_parent()
        os.makedirs(os.path.join(root, "jobs"), exist_ok=True)  # noqa: PTH103, PTH118
        os.makedirs(os.path.join(root, "devices"), exist_ok=True)  # noqa: PTH103, PTH118
    draft = os.path.join(root, "jobs", f".{key}.{os.getpid()}")  # noqa: PTH118
    os.mkdir(draft)  # noqa: PTH102
    with open(os.path.join(draft, "job.json"), "w") as file:  # noqa: PTH118, PTH123
        json.dump(job, file)
    heard, answer = os.pipe()
    if stay:
        keep(root, key, draft, {**job, "tied": True}, answer)
        return 0
    if os.fork() == 0:
        os.setsid()
        os.close(heard)
        if lock_file >= 0:
            os.close(lock_file)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        try:
            keep(root, key, draft, job, answer)
        finally:
            os._exit(0)
    os.close(answer)
    signal_text = os.read(heard, 16).decode()
    sys.stdout.write(signal_text + "\n")
    return 0 if signal_text else 1


if __name__ == "__main__":
    sys.exit(main())
