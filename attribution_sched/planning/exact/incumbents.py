"""Profiles and choices of every task a cost model knows, made when first asked for and kept while there is room."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.precision import PRECISIONS
from attribution_sched.planning.exact.problem import Problem
from attribution_sched.planning.exact.profiles import FIELDS, MAX_TAIL, fill, keep_feasible, keep_undominated

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MEGABYTE = 1 << 20


class ProfileBook:
    """Keeps what was made; the least recently used goes first.

    Args:
        megabytes: Room for profiles and choices together.
    """

    def __init__(self, megabytes: int = 512) -> None:
        self.megabytes = megabytes
        self._kept: dict[tuple[object, ...], NDArray[np.generic]] = {}

    def _keep(self, key: tuple[object, ...], table: NDArray[np.generic]) -> None:
        self._kept.pop(key, None)
        self._kept[key] = table
        size = sum(kept.nbytes for kept in self._kept.values())
        while size > self.megabytes * MEGABYTE and len(self._kept) > 1:
            size -= self._kept.pop(next(iter(self._kept))).nbytes

    def profile(self, task: Problem, option_rows: IntArray, micro: int, microbatches: int, domain: int) -> FloatArray:
        """Profile of all layouts on a class of domains, shape ``(O, N + 1, N + 1, 10)``.

        Args:
            task: The search problem.
            option_rows: Layouts, shape ``(O, 4)``.
            micro: Samples of a microbatch.
            microbatches: Microbatches of a step (limits what is in flight).
            domain: A domain of the class.
        """
        key = (task.cost, task.model, option_rows.tobytes(), micro, microbatches, domain)
        found = self._kept.get(key)
        if found is None:
            found = self._make(task, option_rows, micro, microbatches, domain)
        self._keep(key, found)
        return found.view(np.float64)

    def choices(
        self,
        task: Problem,
        option_rows: IntArray,
        usable: IntArray,
        micro: int,
        microbatches: int,
        domain: int,
        complete: bool,
    ) -> IntArray:
        """Layouts to try for every segment, shape ``(N + 1, N + 1, 1 + len(usable))``: how many, then which.

        Where only time and traffic count, layouts that others beat in every stage are left out, unless the list is to
        be ``complete``.
        """
        cost, n, time_only = task.cost, task.n_layers, task.objective.time_and_bill_only and not complete
        lists = (option_rows.tobytes(), usable.tobytes())
        key = (cost, task.model, *lists, micro, microbatches, domain, time_only)
        known = self._kept.get(key)
        found = known.view(np.int64) if known is not None else None
        if found is None:
            found = np.zeros((n + 1, n + 1, 1 + len(usable)), dtype=np.int64)
            if time_only:
                keep_undominated(
                    cost.domains, cost.runtime, cost.power_law, cost.tables, cost.workload(task.model), domain,
                    option_rows, usable, micro, microbatches, found,
                )  # fmt: skip
            else:
                keep_feasible(self.profile(task, option_rows, micro, microbatches, domain), usable, found)
        self._keep(key, found)
        return found

    @staticmethod
    def _make(task: Problem, option_rows: IntArray, micro: int, microbatches: int, domain: int) -> FloatArray:
        cost, n = task.cost, task.n_layers
        table = np.full((len(option_rows), n + 1, n + 1, FIELDS), np.nan)
        table[..., MAX_TAIL] = -1.0
        gpu = cost.cluster.domains[domain].gpu
        supported = [q.index for q in PRECISIONS if gpu.supports(q)]
        for o, option in enumerate(option_rows):
            if micro % option[0] == 0 and option[3] in supported:
                fill(
                    cost.domains, cost.runtime, cost.power_law, cost.tables, cost.workload(task.model), domain,
                    option, micro, microbatches, table[o],
                )  # fmt: skip
        return table
