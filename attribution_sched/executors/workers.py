"""Our own heavy work side by side: in processes of this machine, or on the workers of a Ray cluster.

A job is done from what it is given and from nothing else, so whoever does it gives the same bytes. On Ray one that is
lost with its worker or node is done again by another one; nodes need this package, and memory for what is shared.
"""

from __future__ import annotations

import copyreg
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import parent_process
from threading import Thread
from types import MappingProxyType
from typing import Any, TypeVar

from attribution_sched.errors import SettingsError, problem
from attribution_sched.executors.ray import connect

MOST_WORKERS = 256

RETRIES = 5
"""How often a job is done again whose worker was lost."""

Job = TypeVar("Job")
Done = TypeVar("Done")
Work = Callable[[str, Any, Job], Done]
"""The name of a run, what is shared in it, and one job. Who knows the run may keep what was made of what is shared."""


def check_workers(workers: Any) -> int | str:
    """How many processes, or the address of a Ray cluster: ``ray`` is the one that this machine belongs to.

    Raises:
        SettingsError: If it is neither.
    """
    if isinstance(workers, int) and not isinstance(workers, bool):
        if not 1 <= workers <= MOST_WORKERS:
            rule = f"must lie in 1..{MOST_WORKERS}: each is a process with libraries of its own"
            raise SettingsError(problem("workers", workers, rule, "Use 1"))
        return workers
    if not isinstance(workers, str) or not (workers == "ray" or ":" in workers):
        rule = "must be a number, 'ray' or the address of a Ray cluster"
        raise SettingsError(problem("workers", workers, rule, "Use 2, or 'ray'"))
    return "auto" if workers == "ray" else workers


def spread(workers: int | str, work: Work[Job, Done], shared: Any, jobs: Sequence[Job]) -> Iterator[tuple[int, Done]]:
    """Do jobs side by side; they come as they are ready, with their numbers. The first failure stops the rest.

    Args:
        workers: As :func:`check_workers` gives it.
        work: A function of a module.
        shared: Sent to every process or node once.
        jobs: What to do.

    Raises:
        ExecutorError: If a cluster is meant and does not answer.
    """
    run = uuid.uuid4().hex
    if isinstance(workers, str):
        return _on_ray(workers, work, run, shared, jobs)
    return _in_processes(workers, work, run, shared, jobs)


def _in_processes(
    workers: int, work: Work[Job, Done], run: str, shared: Any, jobs: Sequence[Job]
) -> Iterator[tuple[int, Done]]:
    """In fresh processes, to which read-only mappings go as plain ones."""
    from multiprocessing import get_context
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.register(MappingProxyType, _plain)
    with ProcessPoolExecutor(min(workers, len(jobs)), get_context("spawn"), _begin, (work, run, shared)) as pool:
        futures = {pool.submit(_do, job): number for number, job in enumerate(jobs)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()


_begun: dict[str, Any] = {}


def _begin(work: Work[Job, Done], run: str, shared: Any) -> None:
    _begun["all"] = work, run, shared
    # A worker waits for jobs for ever; who started it may have been killed and can tell it nothing any more.
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(job: Job) -> Any:
    work, run, shared = _begun["all"]
    return work(run, shared, job)


def _on_ray(
    address: str, work: Work[Job, Done], run: str, shared: Any, jobs: Sequence[Job]
) -> Iterator[tuple[int, Done]]:
    ray = connect(address)
    copyreg.pickle(MappingProxyType, _plain)
    shared_ref = ray.put(shared)
    remote = ray.remote(max_retries=RETRIES, num_cpus=1)(_work)
    waiting = {remote.remote(work, run, shared_ref, job): number for number, job in enumerate(jobs)}
    try:
        while waiting:
            for each in ray.wait(list(waiting), num_returns=1)[0]:
                number = waiting.pop(each)
                try:
                    yield number, ray.get(each)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
    finally:
        for each in waiting:
            ray.cancel(each, force=True)


def _work(work: Work[Job, Done], run: str, shared: Any, job: Job) -> Done:
    # What comes back may hold such mappings too.
    copyreg.pickle(MappingProxyType, _plain)
    return work(run, shared, job)


def _plain(mapping: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return read_only, (dict(mapping),)


def read_only(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """A mapping that nobody writes to, as another process was sent it."""
    return MappingProxyType(mapping)
