"""Episodes of the arena played by the workers of a Ray cluster: the same records, whoever plays them.

A task that is lost with its worker or node is played again by another one; with a folder an interrupted run goes on
from what was played. An episode depends on its seed alone, so who plays it, and when, changes nothing but latencies.
"""

from __future__ import annotations

import copyreg
import uuid
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attribution_sched.cluster.world import World
from attribution_sched.executors.ray import connect
from attribution_sched.scheduler.arena.play import Job, play_in_worker, read_only, start_worker
from attribution_sched.scheduler.arena.records import EpisodeRecord
from attribution_sched.scheduler.policy import Policy

RETRIES = 5
"""How often an episode is played again whose worker was lost."""


class RayWorkers:
    """Plays episodes on a Ray cluster.

    Args:
        address: Of the cluster; ``auto`` takes the one that this machine belongs to.
    """

    def __init__(self, address: str = "auto") -> None:
        self.address = address

    def __call__(
        self, jobs: Sequence[Job], worlds: Mapping[str, World], policies: Sequence[str | Policy]
    ) -> Iterator[EpisodeRecord]:
        """Play all; records come as they are ready, and the first failure stops the rest."""
        ray = connect(self.address)
        copyreg.pickle(MappingProxyType, _plain)
        shared = ray.put((uuid.uuid4().hex, dict(worlds), list(policies)))
        remote = ray.remote(max_retries=RETRIES, num_cpus=1)(_play)
        waiting = [remote.remote(shared, job) for job in jobs]
        try:
            while waiting:
                done, waiting = ray.wait(waiting, num_returns=1)
                for each in done:
                    try:
                        yield ray.get(each)
                    except ray.exceptions.RayTaskError as error:
                        raise error.cause from None
        finally:
            for each in waiting:
                ray.cancel(each, force=True)


def _plain(mapping: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return read_only, (dict(mapping),)


_known: dict[str, str] = {}


def _play(shared: tuple[str, Mapping[str, World], Sequence[str | Policy]], job: Job) -> EpisodeRecord:
    """One episode, in a worker that keeps its worlds and policies from one to the next."""
    run, worlds, policies = shared
    copyreg.pickle(MappingProxyType, _plain)
    if _known.get("run") != run:
        start_worker(worlds, policies)
        _known["run"] = run
    return play_in_worker(job)
