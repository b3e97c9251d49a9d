"""Space sharing in the manner of Gavel (Narayanan et al., OSDI 2020), and the best matching on any belief.

Our own re-implementations. Gavel's estimator finds the reference job nearest to a new one and takes its row of the
table of measured pairs; its policies then fill the allocation that does most work. :class:`Matching` solves that for
all waiting tasks and all neighbours at once, as an assignment of highest believed work; :class:`GavelSharing` takes
each task's best neighbour in turn.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.scheduler.pairing import LawBelief, Packing, ReferenceBelief, plan_beside
from attribution_sched.types import Task

MOST_WAITING = 32
"""Waiting tasks that are matched at once, shortest believed work first."""


class GavelSharing(Packing):
    """Each task beside the neighbour with which the measured table promises most work."""

    name = "gavel-sharing"

    def __init__(self) -> None:
        super().__init__(ReferenceBelief())


class Matching(Packing):
    """All waiting tasks to neighbours at once, by highest believed work; who is matched goes there.

    Args:
        reference: Believe the measured table by the nearest reference job, instead of the law on the counters.
    """

    name = "matching"

    def __init__(self, reference: bool = False) -> None:
        super().__init__(ReferenceBelief() if reference else LawBelief())

    def choose(self, view: Decision, task: Task) -> Plan | None:
        """The task's part of the best assignment."""
        from scipy.optimize import linear_sum_assignment

        waiting = sorted(view.queue, key=lambda each: (each.slot != task.slot, each.steps_left))[:MOST_WAITING]
        at = {neighbour.slot: column for column, neighbour in enumerate(view.neighbours)}
        gain = np.zeros((len(waiting), len(view.neighbours)))
        for row, each in enumerate(waiting):
            for work, neighbour in self.offers(view, each):
                gain[row, at[neighbour.slot]] = work - 1.0
        rows, columns = linear_sum_assignment(-gain)
        chosen = dict(zip(rows.tolist(), columns.tolist(), strict=True)).get(0)
        if chosen is None or not gain[0, chosen] > 0.0:
            return None
        return plan_beside(view, task.kind_index, task, view.neighbours[chosen])
