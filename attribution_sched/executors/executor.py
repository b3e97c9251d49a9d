"""The seam to a real cluster: one executor for each domain, which knows nothing of policies.

A decision is launched under its key, ``<journal id>-<decision id>[-attempt]``. Whoever launches has the intent on disk
before and the handle after, and asks :meth:`Executor.find` before anything is launched again. Executors make
:meth:`~Executor.launch` idempotent by asking it themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from attribution_sched.errors import ExecutorError, problem
from attribution_sched.executors.records import Handle, Inventory, JobSpec, Observed, Reason

LONGEST_KEY = 120
"""Characters of a key: engines cut longer names of jobs, and a name cut short is another name."""


@runtime_checkable
class Executor(Protocol):
    """Runs the jobs of one domain.

    Attributes:
        name: Of the engine, for example ``local`` or ``slurm``.
        domain: Name of the domain.
        lock_file: Open file of the journal's lock. The child that submits inherits it, the job never does: a process
            that takes the journal over waits until an orphaned submission has ended.
    """

    name: str
    domain: str
    lock_file: int | None

    def inventory(self) -> Inventory:
        """What there is, as the engine says it now."""

    def launch(self, key: str, job: JobSpec) -> Handle:
        """Start a job under a key, once: a second time gives the handle of the first.

        Raises:
            LaunchRefused: If the engine will never start it as it is.
            ExecutorError: If the engine does not answer; whether it was started is then asked with :meth:`find`.
        """

    def find(self, key: str) -> Handle | None:
        """Ask the engine, not our memory, for a job; None if it never had one under this key."""

    def observe(self, since: Mapping[str, Any]) -> Observed:
        """What happened since.

        Args:
            since: A cursor; ``{}`` is the beginning. A key with None in it is asked for by name, however long ago it
                ended.
        """

    def release(self, key: str) -> None:
        """Open the gate of a job that was launched held; harmless when done twice."""

    def cancel(self, key: str) -> None:
        """Stop a job; harmless when it has ended or never was."""

    def migrate(self, key: str, job: JobSpec) -> Handle:
        """Stop a job so that it can save itself, and start it as another attempt of the same key."""

    def why_waiting(self, key: str) -> Reason | None:
        """Why a job waits, in the engine's own word; None if it does not wait."""


def check_key(key: str) -> str:
    """A key that is safe as the name of a job and of a folder.

    Raises:
        ExecutorError: If it is none.
    """
    allowed = all(each.isascii() and (each.isalnum() or each in "-_.") for each in key)
    if not key or not allowed or len(key) > LONGEST_KEY or key[0] in "-.":
        rule = f"must be 1 to {LONGEST_KEY} letters, digits, - and _, as Journal.key makes them"
        raise ExecutorError(problem("key", key, rule, "Give the key of a decision"))
    return key


def check_domain(domain: str) -> str:
    """A domain's name that is safe as the name of a folder; names of cloud regions are none.

    Raises:
        ExecutorError: If it is none.
    """
    try:
        return check_key(domain)
    except ExecutorError:
        rule = (
            f"must be 1 to {LONGEST_KEY} letters, digits, - and _ where jobs are really started: it names their folder"
        )
        fix = "Take a preset of your own machines, as `attribution-sched init` writes one, or testbed"
        raise ExecutorError(problem("domain", domain, rule, fix)) from None


def check_job(executor: Executor, job: JobSpec) -> None:
    """Whether a job can be meant for a domain.

    Raises:
        ExecutorError: If it is another domain's, or has no command.
    """
    if job.component.domain != executor.domain:
        rule = f"this executor runs jobs of domain {executor.domain}"
        raise ExecutorError(problem("job.domain", job.component.domain, rule, "Give it to its own domain's executor"))
    if not job.command or not all(isinstance(word, str) and "\0" not in word for word in job.command):
        fix = "For example command=('python', 'train.py')"
        raise ExecutorError(problem("job.command", job.command, "must be one word or more", fix))
