"""A packer in the manner of Lucid (Hu et al., ASPLOS 2023): glass-box scores instead of a model of interference.

Our own re-implementation of the published idea: a job gets a sharing score by how busy it keeps a device and its
memory (0 light, 1 medium, 2 heavy); two jobs are packed if their scores add up to two at most, if they ask for the same
number of devices, and only when nothing is free. Shortest believed work first.
"""

from __future__ import annotations

from collections.abc import Iterator

from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import Decision, Neighbour
from attribution_sched.scheduler.pairing import Packing, can_join
from attribution_sched.types import Task

LIGHT, MEDIUM = 0.25, 0.6
"""Below these shares of busy time a job scores 0 and 1."""

MOST = 2
"""Largest sum of scores that is packed."""

_SM, _DRAM = (COUNTER_NAMES.index(name) for name in ("sm_active", "dram_active"))


def sharing_score(task: Task) -> int:
    """0, 1 or 2 by the busier of arithmetic and memory; 2 for a job that nobody measured."""
    if not task.counters.size:
        return 2
    busy = max(float(task.counters[_SM]), float(task.counters[_DRAM]))
    return 0 if busy < LIGHT else 1 if busy < MEDIUM else 2


class Lucid(Packing):
    """Packs by scores that can be read aloud; results say nothing about its authors' own system."""

    name = "lucid"

    def offers(self, view: Decision, task: Task) -> Iterator[tuple[float, Neighbour]]:
        """Neighbours whose score leaves room, lightest first; their work counts as 2 less half the scores."""
        mine = sharing_score(task)
        for neighbour in view.neighbours:
            if self.refused(task, neighbour):
                continue
            scores = mine + sharing_score(neighbour.task)
            if scores <= MOST and neighbour.task.kind_index == task.kind_index and can_join(view, task, neighbour):
                yield 2.0 - 0.5 * scores, neighbour
