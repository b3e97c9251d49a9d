"""Takes the choices that lead to a given plan: which plans the masks leave on offer."""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, PP, PRECISION, REPLICA, STOP, TP
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.scheduler.hi_ppo.action_masks import (
    D_DOMAIN,
    D_FIRST,
    D_FORMAT,
    D_LAYOUT,
    D_LEVEL,
    DONE,
    PartialPlans,
)
from attribution_sched.scheduler.hi_ppo.decode import Choices
from attribution_sched.scheduler.hi_ppo.features import State
from attribution_sched.types import BoolArray, IntArray


class PlanFollower:
    """Takes the choices that lead to given plans, and says for which decisions they were all on offer.

    Args:
        tables: The cluster.
        task: The candidate each plan is for, shape ``(B,)``.
        plans: Segment rows of the plans, ``(segments, 11)`` each.
        kind: Kind of task of each, shape ``(B,)``.
    """

    def __init__(self, tables: PlannerTables, task: IntArray, plans: list[IntArray], kind: IntArray) -> None:
        self._task = task
        self._targets = [_backwards(tables, rows, int(k)) for rows, k in zip(plans, kind, strict=True)]
        self.followed: BoolArray = np.array([target is not None for target in self._targets])

    def task(self, state: State) -> IntArray:
        """The task of the plan."""
        allowed = state.mask[np.arange(len(self._task)), self._task]
        self.followed &= allowed
        return np.where(allowed, self._task, state.mask.shape[1] - 1)

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """The plan's own choice; anything if that is not on offer."""
        column = {"domain": D_DOMAIN, "cut": D_FIRST, "layout": D_LAYOUT, "format": D_FORMAT, "level": D_LEVEL}[head]
        found: IntArray = offer.mask.argmax(axis=1)
        for i, r in enumerate(rows):
            target = self._targets[r]
            if target is None or not self.followed[r]:
                continue
            written = int(drafts.written[r])
            if written == len(target):
                wanted = offer.mask.shape[1] - 1 if head == "domain" else -1
            else:
                wanted = int(target[written, column])
            if wanted >= 0 and offer.mask[i, wanted]:
                found[i] = wanted
            else:
                self.followed[r] = False
        return found

    def compare(self, drafts: PartialPlans) -> None:
        """Let go of plans that were not written after all: where there is one choice only, nobody is asked."""
        for r, target in enumerate(self._targets):
            if target is not None and self.followed[r]:
                written = drafts.rows[r, : drafts.written[r]]
                self.followed[r] = drafts.status[r] == DONE and np.array_equal(written, target)


def _backwards(tables: PlannerTables, rows: IntArray, kind: int) -> IntArray | None:
    """A plan as rows of a draft, in the order of writing; None if it has a layout that drafts do not know."""
    written = []
    for replica in dict.fromkeys(int(r) for r in rows[:, REPLICA]):
        for row in rows[rows[:, REPLICA] == replica][::-1]:
            layout = np.flatnonzero((tables.layouts == row[[DP, TP, PP]]).all(axis=1))
            level = np.flatnonzero(tables.micro[kind] == row[MICROBATCH])
            if len(layout) == 0 or len(level) == 0:
                return None
            written.append((row[DOMAIN], row[FIRST], row[STOP], layout[0], row[PRECISION], level[0], replica))
    return np.array(written, dtype=np.int64)
