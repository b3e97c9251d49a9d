"""Who is imitated before learning begins: a rule in every cluster at once, or plans that an optimiser wrote."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
)
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.scheduler.hi_ppo.decode import Choices
from attribution_sched.scheduler.hi_ppo.features import CANDIDATE_NAMES, GLOBAL_NAMES, State
from attribution_sched.scheduler.hi_ppo.partial_plans import (
    D_DOMAIN,
    D_FIRST,
    D_FORMAT,
    D_LAYOUT,
    D_LEVEL,
    DONE,
    PartialPlans,
)

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_HOURS = CANDIDATE_NAMES.index("nominal_hours")
_BASELINE = CANDIDATE_NAMES.index("baseline_hours")
_RUNS = CANDIDATE_NAMES.index("runs")
_TIME_NOW = CANDIDATE_NAMES.index("time_now")
_GAIN = CANDIDATE_NAMES.index("gain")
_SLOWED = CANDIDATE_NAMES.index("slowed")
_HELD = CANDIDATE_NAMES.index("devices_held")
_QUEUE = GLOBAL_NAMES.index("queue_length")

EARNING = 0.36
MUCH, SOME_HOURS, FEW = 0.3, 0.3, 12
MANY, LONG_HOURS, LARGE = 5, 0.9, 0.2
USE, CROWD, SOON = 1.2, 0.8, 1.1 / 64.0
"""Searched at random on training days of four worlds (seeds from 540,000 on): a broad optimum, so they are rounded."""

NOWHERE = 1.99
"""What ``slowed`` says of a task that no single domain holds now."""


class ShortestFirst:
    """The shortest task that fits, where and as it is worth most by itself.

    Short is a task by its hours alone in an empty domain over the 0.36th power of its hours on the baseline: of two
    that take as long, the one that earns more goes first. A task that only needs to wait for room in one domain is not
    cut over several; a model that no domain holds alone is cut where the domain that holds most of it can begin. Worth
    is utilisation less time, and devices cost more the more tasks wait for them, and a little for those that will come.
    Between domains of equal worth the fuller one is taken. A running task that has some time left is planned anew if it
    could be much faster and not many others wait, or if it holds much and many wait.
    """

    def task(self, state: State) -> IntArray:
        """The shortest waiting task, or a running one that is held up or stands in the way."""
        seen = state.candidates
        size = seen[:, :, _HOURS] - EARNING * seen[:, :, _BASELINE]
        runs = seen[:, 0, _RUNS] > 0
        # Hours as on the baseline mark a model that no domain holds even when empty: waiting would not help it.
        patient = (seen[:, :, _SLOWED] > NOWHERE) & (seen[:, :, _HOURS] != seen[:, :, _BASELINE]) & ~runs[:, None]
        size = np.where(state.mask[:, :-1] & ~patient, size, np.inf)
        hours_left = np.exp(4.0 * seen[:, 0, _BASELINE] + 2.0 * seen[:, 0, _TIME_NOW])
        waiting = 16.0 * state.globals[:, _QUEUE]
        held_up = (seen[:, 0, _GAIN] > MUCH) & (hours_left > SOME_HOURS) & (waiting <= FEW)
        in_the_way = (seen[:, 0, _HELD] >= LARGE) & (hours_left > LONG_HOURS) & (waiting >= MANY)
        # A model that no domain holds would hold as many devices after it was moved, and its state is sent for nothing.
        in_the_way &= seen[:, 0, _HOURS] != seen[:, 0, _BASELINE]
        nothing = ~np.isfinite(size).any(axis=1) | (runs & ~held_up & ~in_the_way)
        return np.asarray(np.where(nothing, size.shape[1], size.argmin(axis=1)), dtype=np.int64)

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """What is worth most."""
        if head == "cut":
            return np.asarray(offer.mask.argmax(axis=1), dtype=np.int64)
        if head == "domain":
            end = offer.mask[:, -1]
            room, part, holds, worth = (offer.choices[:, :, c] for c in (1, 3, 4, 15))
            score = np.where(offer.mask[:, :-1], 20.0 * holds + 2.0 * worth + part - 0.1 * room, -np.inf)
            return np.asarray(np.where(end, score.shape[1], score.argmax(axis=1)), dtype=np.int64)
        column = {"layout": 12, "format": 6, "level": 4}[head]
        worth = offer.choices[:, :, column]
        if head == "layout":
            seconds, log_size, use = (offer.choices[:, :, c] for c in (0, 4, 11))
            faster, busier, others = (drafts.wishes[rows, c][:, None] for c in range(3))
            crowded = 1.0 + (CROWD * others + SOON) * 2.0 ** (4.0 * log_size)
            # What the choices carry as their worth decides between layouts of the same devices.
            worth = USE * busier * use - faster * np.exp(2.0 * seconds) * crowded + 1e-3 * worth
        found: IntArray = np.where(offer.mask, worth, -np.inf).argmax(axis=1)
        return found


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
