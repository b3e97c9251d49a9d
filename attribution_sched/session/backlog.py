"""The part of the queue behind the window that a policy sees: any length, found by kind, urgency and age.

A policy compares the tasks of a window, as Slurm tests a bounded number of jobs per cycle; what waits behind it costs a
decision nothing. Tasks lie here by kind, so that when devices fall free the first task they could hold is found without
a look at the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attribution_sched.types import FloatArray, Task

if TYPE_CHECKING:
    from attribution_sched.cluster.demands import Demands

MOST = 1_000_000
"""Tasks that may wait in all: some gigabytes, and hours of anybody's patience."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """A task that waits behind the window.

    Attributes:
        task: The task, with its name, number and time of arrival.
        demands: Its latent demands, a batch of one.
        row: The same as the engine's pool keeps it, shape ``(9,)``.
        left: Work left, in steps; less than the task's own if it was at work before.
    """

    task: Task
    demands: Demands
    row: FloatArray
    left: float


class Backlog:
    """Tasks by kind, the most urgent first, of those the oldest."""

    def __init__(self) -> None:
        self._tasks: dict[str, Waiting] = {}
        self._order: dict[int, list[tuple[int, int, str]]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[Waiting]:
        """All of them, in order of arrival."""
        return iter(sorted(self._tasks.values(), key=lambda each: each.task.number))

    def add(self, waiting: Waiting) -> None:
        """One more."""
        name = waiting.task.id
        self._tasks[name] = waiting
        entry = (-waiting.task.priority, waiting.task.number, name)
        heapq.heappush(self._order.setdefault(waiting.task.kind_index, []), entry)

    def remove(self, name: str) -> Waiting:
        """Take a task out by its name; its place in the order goes when it is come across."""
        return self._tasks.pop(name)

    def kinds(self) -> list[int]:
        """Kinds that some task here is of."""
        return [kind for kind in self._order if self._first(kind) is not None]

    def most_urgent(self) -> Waiting | None:
        """The first task of all, by urgency and age; None if there is none."""
        entries = [entry for kind in self._order if (entry := self._first(kind)) is not None]
        return self._tasks[min(entries)[2]] if entries else None

    def pop(self, kinds: Collection[int]) -> Waiting | None:
        """Take out the first task that is of one of these kinds; None if there is none."""
        entries = [entry for kind in kinds if (entry := self._first(kind)) is not None]
        return self.remove(min(entries)[2]) if entries else None

    def _first(self, kind: int) -> tuple[int, int, str] | None:
        order = self._order.get(kind, [])
        while order:
            known = self._tasks.get(order[0][2])
            if known is not None and known.task.number == order[0][1]:
                return order[0]
            heapq.heappop(order)
        return None
