"""A cheap local search around a proposed plan, everything priced in batches.

The network decides who goes where and with how many devices, which a snapshot cannot judge; the search settles what a
snapshot can: where exactly to cut, which layout of the same devices, which of two equal domains, which microbatch.
With ``widen`` it may also take other numbers of devices, for a decision that stands alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.domains import within_budgets
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
from attribution_sched.cluster.reward import value
from attribution_sched.planning.candidates import microbatch_counts
from attribution_sched.planning.memory_feasibility import PlannerTables

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

Found = tuple[IntArray, int, float]
"""A plan's rows ``(P, 10)``, how many of them are in use, and its reward."""

Neighbours = Callable[[IntArray, int], tuple[IntArray, IntArray]]
"""From a plan's rows and their number to plans one change away and their numbers of rows."""

SHIFTS = np.array((-8, -4, -2, -1, 1, 2, 4, 8))
"""How far a cut is moved."""

FAR = 2
"""Most layers that are handed to a segment that is not the next."""

ROUNDS = 12
"""Most rounds of small changes."""


class Polisher:
    """Improves plans of one decision.

    Args:
        view: The decision; its reward is what counts.
        tables: The cluster.
        kind: Kind of task to place; the pending one by default.
        widen: Whether segments may change their number of devices.
        crowding: What holding a device costs others, as a share of the time it is held.
    """

    def __init__(
        self,
        view: DecisionView,
        tables: PlannerTables,
        kind: int | None = None,
        *,
        widen: bool = False,
        crowding: float = 0.0,
    ) -> None:
        self.view, self.tables, self.widen, self.crowding = view, tables, widen, crowding
        self.kind = view.kind_index if kind is None else kind
        self.rooms = within_budgets(view.cost.cluster, np.asarray(view.free_devices, dtype=np.int64))
        self.priced = 0

    def value(self, rows: IntArray, counts: IntArray) -> FloatArray:
        """Worth of plans, −∞ where they do not fit; microbatches are shared out as the cluster does."""
        batch = PlanBatch(rows, counts, np.zeros(len(rows), dtype=np.int64))
        batch_size = self.view.kinds[self.kind].batch_size
        rows[:, :, MICROBATCHES] = microbatch_counts(self.view.cost, self.kind, batch_size, batch)
        self.priced += len(rows)
        priced = value(self.view, batch, self.kind)
        if self.crowding == 0.0:
            return priced.reward
        used = np.arange(rows.shape[1]) < counts[:, None]
        devices = (rows[:, :, DP] * rows[:, :, TP] * rows[:, :, PP] * used).sum(axis=1)
        # A plan that does not fit takes forever and is worth −∞ already.
        time = np.where(np.isfinite(priced.step_s), priced.step_s, 0.0) / self.view.base_step_s[self.kind]
        charged: FloatArray = priced.reward - self.view.reward.w_eff * self.crowding * devices * time
        return charged

    def improve(
        self,
        rows: IntArray,
        count: int,
        best: float,
        rounds: int = ROUNDS,
        expired: Callable[[], bool] | None = None,
    ) -> tuple[IntArray, int, float]:
        """Change one thing at a time while that helps and no time has ``expired``.

        Returns:
            The plan's rows ``(P, 10)``, how many of them are in use, and its reward.
        """
        for _ in range(rounds):
            if expired is not None and expired():
                break
            ((rows, count, now),) = self._round([(rows, count, best)], self.many if self.widen else self._neighbours)
            if not now > best:
                break
            best = now
        return rows, count, best

    def _round(self, states: list[Found], neighbours: Neighbours) -> list[Found]:
        """Replace each plan by the best of those one change away, if that is better; all priced at once."""
        near = [neighbours(rows, count) for rows, count, _ in states]
        owner = np.repeat(np.arange(len(states)), [len(each[0]) for each in near])
        rows, counts = (np.concatenate(both) for both in zip(*near, strict=True))
        sound = self._sound(rows, counts)
        rows, counts, owner = rows[sound], counts[sound], owner[sound]
        reward = self.value(rows, counts) if len(rows) else np.zeros(0)
        moved = []
        for i, state in enumerate(states):
            own = np.flatnonzero(owner == i)
            at = own[int(np.argmax(reward[own]))] if len(own) else -1
            better = at >= 0 and reward[at] > state[2] + 1e-12
            moved.append((rows[at], int(counts[at]), float(reward[at])) if better else state)
        return moved

    def cuts(self, rows: IntArray, count: int) -> tuple[IntArray, IntArray]:
        """Plans in which one segment hands layers to another of its replica; the cuts between them move along."""
        found = [rows[None][:0]]
        for inside in _replicas(rows, count):
            handed = _handed(len(inside))
            moved = _copies(rows, len(handed))
            moved[:, inside, STOP] += handed
            moved[:, inside[1:], FIRST] += handed[:, :-1]
            found.append(moved)
        return _same(np.concatenate(found), count)

    def orders(self, rows: IntArray, count: int) -> tuple[IntArray, IntArray]:
        """Plans whose segments stand in another order within a replica, with their layers' number or in its place."""
        found = [rows[None][:0]]
        for inside in _replicas(rows, count):
            if len(inside) < 2:
                continue
            orders = inside[orders_near(len(inside))]
            moved = _copies(rows, len(orders))
            lengths = (rows[:, STOP] - rows[:, FIRST])[orders]
            moved[:, inside] = rows[orders]
            moved[:, inside, STOP] = np.cumsum(lengths, axis=1)
            moved[:, inside, FIRST] = moved[:, inside, STOP] - lengths
            stays = moved.copy()
            stays[:, inside, FIRST], stays[:, inside, STOP] = rows[inside, FIRST], rows[inside, STOP]
            found += [moved, stays]
        return _same(np.concatenate(found), count)

    def many(self, rows: IntArray, count: int) -> tuple[IntArray, IntArray]:
        """Plans with another layout, domain, precision or number of segments, and their counts, sound or not."""
        near, counts = self._neighbours(rows, count)
        others, other_counts = self._restructured(rows, count)
        return np.concatenate([near, others]), np.concatenate([counts, other_counts])

    def _neighbours(self, rows: IntArray, count: int) -> tuple[IntArray, IntArray]:
        """Plans of the same segments one small change away, shape ``(n, P, 10)``, and their counts, sound or not."""
        t = self.tables
        found: list[IntArray] = []
        used = rows[:count, DOMAIN]
        sizes = rows[:count, DP] * rows[:count, TP] * rows[:count, PP]
        idle = np.setdiff1d(np.flatnonzero(self.rooms > 0), used)
        for p in range(count):
            layouts = t.layouts[t.sizes <= self.rooms[rows[p, DOMAIN]] if self.widen else t.sizes == sizes[p]]
            changed = _copies(rows, len(layouts))
            changed[:, p, [DP, TP, PP]] = layouts
            moved = _copies(rows, len(idle))
            moved[:, p, DOMAIN] = idle
            formats = _copies(rows, len(PRECISIONS))
            formats[:, p, PRECISION] = np.arange(len(PRECISIONS))
            found += [changed, moved, formats]
            for q in range(p + 1, count):
                swapped = _copies(rows, 1)
                swapped[0, [p, q], DOMAIN] = rows[[q, p], DOMAIN]
                exchanged = _copies(swapped[0], 1)
                exchanged[0, p, [DP, TP, PP]], exchanged[0, q, [DP, TP, PP]] = (
                    rows[q, [DP, TP, PP]],
                    rows[p, [DP, TP, PP]],
                )
                found += [swapped, exchanged]
            if p + 1 < count and rows[p, REPLICA] == rows[p + 1, REPLICA]:
                found.append(_shifted(_copies(rows, len(SHIFTS)), p, SHIFTS))
                if self.widen:
                    # Another layout of a segment mostly wants another cut beside it.
                    for at in (p, p + 1):
                        fits = t.layouts[t.sizes <= self.rooms[rows[at, DOMAIN]]]
                        both = _copies(rows, len(fits) * len(SHIFTS))
                        both[:, at, [DP, TP, PP]] = np.repeat(fits, len(SHIFTS), axis=0)
                        found.append(_shifted(both, p, np.tile(SHIFTS, len(fits))))
                    if p + 2 < count and rows[p + 1, REPLICA] == rows[p + 2, REPLICA]:
                        found.append(_shifted(_shifted(_copies(rows, len(SHIFTS)), p, SHIFTS), p + 1, SHIFTS))
        levels = np.unique(t.micro[self.kind])
        for replica in np.unique(rows[:count, REPLICA]):
            inside = np.flatnonzero(rows[:count, REPLICA] == replica)
            others = _copies(rows, len(levels))
            others[:, inside, MICROBATCH] = levels[:, None]
            found.append(others)
            if self.widen:
                # A layout that trades data-parallel ranks for stages mostly wants another microbatch.
                for own in inside:
                    same = t.layouts[(t.sizes == sizes[own]) & (t.layouts[:, 0] != rows[own, DP])]
                    both = _copies(rows, len(same) * len(levels))
                    both[:, own, [DP, TP, PP]] = np.repeat(same, len(levels), axis=0)
                    both[:, inside, MICROBATCH] = np.tile(levels, len(same))[:, None]
                    found.append(both)
        return _same(np.concatenate(found), count)

    def _restructured(self, rows: IntArray, count: int) -> tuple[IntArray, IntArray]:
        """Plans with one segment less, or with one more in an idle domain, and their counts."""
        t = self.tables
        found: list[IntArray] = []
        counts: list[IntArray] = []
        for p in range(count):
            for heir in (p - 1, p + 1):
                if not 0 <= heir < count or rows[heir, REPLICA] != rows[p, REPLICA]:
                    continue
                fewer = _copies(rows, 1)
                fewer[0, heir, FIRST] = min(rows[p, FIRST], rows[heir, FIRST])
                fewer[0, heir, STOP] = max(rows[p, STOP], rows[heir, STOP])
                fewer[0, p:-1] = fewer[0, p + 1 :].copy()
                found.append(fewer)
                counts.append(np.array([count - 1]))
        if count < rows.shape[0]:
            for idle in np.setdiff1d(np.flatnonzero(self.rooms > 0), rows[:count, DOMAIN]):
                room = 2 ** int(np.log2(self.rooms[idle]))
                layouts = t.layouts[t.sizes == room]
                for p in range(count):
                    length = int(rows[p, STOP] - rows[p, FIRST])
                    for share in (length // 4, length // 2, 3 * length // 4):
                        for before in (True, False):
                            more = _copies(rows, len(layouts))
                            more[:, p + 1 :] = more[:, p:-1].copy()
                            own, other = (p, p + 1) if before else (p + 1, p)
                            cut = int(rows[p, FIRST]) + (share if before else length - share)
                            more[:, p, STOP] = more[:, p + 1, FIRST] = cut
                            more[:, p, FIRST], more[:, p + 1, STOP] = rows[p, FIRST], rows[p, STOP]
                            more[:, own, DOMAIN] = idle
                            more[:, own, [DP, TP, PP]] = layouts
                            more[:, other, DOMAIN] = rows[p, DOMAIN]
                            found.append(more)
                            counts.append(np.full(len(layouts), count + 1, dtype=np.int64))
        if not found:
            return rows[None][:0], np.zeros(0, dtype=np.int64)
        return np.concatenate(found), np.concatenate(counts)

    def _sound(self, rows: IntArray, counts: IntArray) -> BoolArray:
        """Which plans are well formed and have the devices, shape ``(n,)``; memory is the cost model's business."""
        t = self.tables
        domain = rows[:, :, DOMAIN]
        size = rows[:, :, DP] * rows[:, :, TP] * rows[:, :, PP]
        length = rows[:, :, STOP] - rows[:, :, FIRST]
        node = np.asarray(t.domains.rows.node_devices)[domain]
        known = t.formats[self.kind][t.domain_class[domain], rows[:, :, PRECISION]]
        sound = (
            (size <= self.rooms[domain])
            & (rows[:, :, TP] <= node)
            & (length >= np.maximum(1, rows[:, :, PP]))
            & (rows[:, :, MICROBATCH] % np.maximum(1, rows[:, :, DP]) == 0)
            & known
        )
        unused = np.arange(rows.shape[1]) >= counts[:, None]
        return np.asarray((sound | unused).all(axis=1))


def _same(rows: IntArray, count: int) -> tuple[IntArray, IntArray]:
    return rows, np.full(len(rows), count, dtype=np.int64)


def _replicas(rows: IntArray, count: int) -> list[IntArray]:
    """Rows of each replica."""
    return [np.flatnonzero(rows[:count, REPLICA] == replica) for replica in range(int(rows[count - 1, REPLICA]) + 1)]


@functools.cache
def _handed(count: int) -> IntArray:
    """How far the end of every segment moves when one hands layers to another, shape ``(n, count)``."""
    found: list[list[int]] = []
    for p in range(count):
        for q in range(p + 1, count):
            far = SHIFTS[-1] if q == p + 1 else FAR
            found += [[by if p <= i < q else 0 for i in range(count)] for by in SHIFTS[np.abs(SHIFTS) <= far].tolist()]
    return np.array(found, dtype=np.int64).reshape(-1, count)


@functools.cache
def orders_near(count: int) -> IntArray:
    """Orders one step away: one taken out and put in elsewhere, two exchanged, or a stretch turned round."""
    found: dict[tuple[int, ...], None] = {}
    for a in range(count):
        for b in range(count):
            rest = [i for i in range(count) if i != a]
            found[(*rest[:b], a, *rest[b:])] = None
            if a < b:
                order = list(range(count))
                order[a], order[b] = b, a
                found[tuple(order)] = None
                found[(*range(a), *range(b, a - 1, -1), *range(b + 1, count))] = None
    found.pop(tuple(range(count)))
    return np.array(list(found), dtype=np.int64)


def _copies(rows: IntArray, count: int) -> IntArray:
    return np.repeat(rows[None], count, axis=0)


def _shifted(plans: IntArray, p: int, by: IntArray) -> IntArray:
    """Move the cut behind segment ``p``."""
    plans[:, p, STOP] += by
    plans[:, p + 1, FIRST] += by
    return plans
