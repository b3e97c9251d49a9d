"""A cheap local search around a proposed plan, everything priced in batches.

The network decides who goes where and with how many devices, which a snapshot cannot judge; the search settles what a
snapshot can: where exactly to cut, which layout of the same devices, which of two equal domains, which microbatch.
With ``widen`` it may also take other numbers of devices, for a decision that stands alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
    PlanBatch,
)
from attribution_sched.cluster.precision import PRECISIONS
from attribution_sched.cluster.view import DecisionView
from attribution_sched.scheduler.candidates import microbatch_counts
from attribution_sched.scheduler.hi_ppo.tables import PlannerTables
from attribution_sched.scheduler.instance import within_budgets
from attribution_sched.scheduler.objective import value

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SHIFTS = np.array((-8, -4, -2, -1, 1, 2, 4, 8))
"""How far a cut is moved."""

ROUNDS = 12
"""Most rounds of small changes."""


class Polisher:
    """Improves plans of one decision.

    Args:
        view: The decision; its reward is what counts.
        tables: The cluster.
        kind: Kind of task to place; the pending one by default.
        widen: Whether segments may change their number of devices.
    """

    def __init__(
        self, view: DecisionView, tables: PlannerTables, kind: int | None = None, *, widen: bool = False
    ) -> None:
        self.view, self.tables, self.widen = view, tables, widen
        self.kind = view.kind_index if kind is None else kind
        self.rooms = within_budgets(view.cost.cluster, np.asarray(view.free_devices, dtype=np.int64))
        self.priced = 0

    def value(self, rows: IntArray, counts: IntArray) -> FloatArray:
        """Reward of plans, −∞ where they do not fit; microbatches are shared out as the cluster does."""
        batch = PlanBatch(rows, counts, np.zeros(len(rows), dtype=np.int64))
        batch_size = self.view.kinds[self.kind].batch_size
        rows[:, :, MICROBATCHES] = microbatch_counts(self.view.cost, self.kind, batch_size, batch)
        self.priced += len(rows)
        found: FloatArray = value(self.view, batch, self.kind).reward
        return found

    def improve(self, rows: IntArray, count: int, best: float, rounds: int = ROUNDS) -> tuple[IntArray, float]:
        """Change one thing at a time while that helps; returns the plan's rows ``(P, 10)`` and its reward."""
        for _ in range(rounds):
            near = self._neighbours(rows, count)
            if len(near) == 0:
                break
            reward = self.value(near, np.full(len(near), count, dtype=np.int64))
            at = int(np.argmax(reward))
            if not reward[at] > best + 1e-12:
                break
            rows, best = near[at], float(reward[at])
        return rows, best

    def _neighbours(self, rows: IntArray, count: int) -> IntArray:
        """All sound plans one small change away, shape ``(n, P, 10)``."""
        t = self.tables
        found: list[IntArray] = []
        used = rows[:count, DOMAIN]
        sizes = rows[:count, DP] * rows[:count, TP] * rows[:count, PP]
        idle = np.setdiff1d(np.flatnonzero(self.rooms > 0), used)
        for p in range(count):
            fits = t.sizes == sizes[p]
            if self.widen:
                fits = t.sizes <= self.rooms[rows[p, DOMAIN]]
            layouts = t.layouts[fits]
            changed = np.repeat(rows[None], len(layouts), axis=0)
            changed[:, p, [DP, TP, PP]] = layouts
            moved = np.repeat(rows[None], len(idle), axis=0)
            moved[:, p, DOMAIN] = idle
            formats = np.repeat(rows[None], len(PRECISIONS), axis=0)
            formats[:, p, PRECISION] = np.arange(len(PRECISIONS))
            found += [changed, moved, formats]
            for q in range(p + 1, count):
                swapped = rows[None].copy()
                swapped[0, [p, q], DOMAIN] = rows[[q, p], DOMAIN]
                found.append(swapped)
            if p + 1 < count and rows[p, REPLICA] == rows[p + 1, REPLICA]:
                shifted = np.repeat(rows[None], len(SHIFTS), axis=0)
                shifted[:, p, STOP] += SHIFTS
                shifted[:, p + 1, FIRST] += SHIFTS
                found.append(shifted)
        levels = np.unique(t.micro[self.kind])
        for replica in np.unique(rows[:count, REPLICA]):
            inside = np.flatnonzero(rows[:count, REPLICA] == replica)
            others = np.repeat(rows[None], len(levels), axis=0)
            others[:, inside, MICROBATCH] = levels[:, None]
            found.append(others)
        near = np.concatenate(found)
        return near[self._sound(near[:, :count])]

    def _sound(self, rows: IntArray) -> BoolArray:
        """Which plans are well formed and have the devices, shape ``(n,)``; memory is the cost model's business."""
        t = self.tables
        domain = rows[:, :, DOMAIN]
        size = rows[:, :, DP] * rows[:, :, TP] * rows[:, :, PP]
        length = rows[:, :, STOP] - rows[:, :, FIRST]
        node = np.asarray(t.domains.rows.node_devices)[domain]
        known = t.formats[self.kind][t.domain_class[domain], rows[:, :, PRECISION]]
        sound: BoolArray = (
            (size <= self.rooms[domain])
            & (rows[:, :, TP] <= node)
            & (length >= rows[:, :, PP])
            & (rows[:, :, MICROBATCH] % rows[:, :, DP] == 0)
            & known
        ).all(axis=1)
        return sound
