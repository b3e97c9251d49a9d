"""The child that submits: it holds the journal's lock for as long as it lives.

A process that is killed while it submits leaves that child behind, and the child may still hand in its job after the
next process has asked whether it did. With the lock's open file inherited, the next process cannot take the journal
over before the orphan is gone, and then sees what it did.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from attribution_sched.errors import ExecutorError, problem

SUBMIT_S = 60.0
"""Longest that a submission may take. Whoever takes a journal over waits as long for the orphan of a dead process."""


def submit(
    command: Sequence[str],
    *,
    lock_file: int | None,
    told: str = "",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = SUBMIT_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command that hands in a job.

    Args:
        command: Its words.
        lock_file: Open file of the journal's lock, which the command inherits; the job that it hands in must not.
        told: What it reads.
        environment: Its variables; this process's by default.
        timeout_s: When it is given up. The engine is asked then what became of it.

    Raises:
        ExecutorError: If it cannot be run, or does not end in time.
    """
    inherited = () if lock_file is None or lock_file < 0 else (lock_file,)
    try:
        return subprocess.run(
            list(command), input=told, capture_output=True, text=True, timeout=timeout_s, pass_fds=inherited,
            env=None if environment is None else dict(environment), check=False,
            # An interrupt from the keyboard is ours, not the submission's.
            start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        rule = f"did not end within {timeout_s:g} s"
        raise ExecutorError(problem("submission", command[0], rule, "See whether the engine answers")) from error
    except OSError as error:
        rule = f"cannot be run ({os.strerror(error.errno or 0)})"
        raise ExecutorError(problem("submission", command[0], rule, "Install the engine's commands")) from error
