"""The wide search for a decision that stands alone: descents from several plans, then kicks out of where they end.

A descent takes small changes first: cuts, then orders, then everything. Where it ends, the best plan is kicked: its
segments are put in an order some changes away, some get another layout, domain or microbatch, and the layers are cut
anew between them. The best of many kicked plans are searched around again, until so many plans were looked at. Nothing
depends on a clock unless somebody says that time has expired: the same seed finds the same plan.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, PP, REPLICA, STOP, TP
from attribution_sched.planning.bounds import Screen
from attribution_sched.planning.local_search import Found, Neighbours, Polisher, orders_near

IntArray = NDArray[np.int64]

KICKED, SEARCHED = 24, 4
"""Plans kicked at a time, and how many of these, the best, are searched around."""

PROMISING = 0.05
"""Share by which a plan may be worse than the best and still be looked at with all kinds of changes."""

ROUNDS = 60
"""Most rounds of a descent."""


class WideSearch:
    """Searches around plans of one decision with all kinds of changes.

    Args:
        polisher: Knows the decision and lists changes.
        seed: Of the kicks.
    """

    def __init__(self, polisher: Polisher, seed: int = 0) -> None:
        self.polisher = polisher
        self.screen = Screen(polisher.view, polisher.tables, polisher.kind, polisher.rooms, polisher.crowding)
        self.source = np.random.default_rng(seed)
        self.levels = np.unique(polisher.tables.micro[polisher.kind])
        self.expired: Callable[[], bool] = _never
        self.trail: list[tuple[int, float]] = []
        """Plans looked at and best reward so far, after the descents and after every kick."""

    def best_of(
        self,
        rows: IntArray,
        counts: IntArray,
        starts: int,
        keep: int,
        budget: int,
        expired: Callable[[], bool] | None = None,
    ) -> Found | None:
        """Search around several plans, few changes first, around the best few of what comes out, and kick the best.

        Args:
            rows: Plans to begin with, shape ``(n, P, 10)``.
            counts: Rows in use, shape ``(n,)``.
            starts: How many of them, the best in different domains, are searched around.
            keep: How many of the results are worth a look at the many changes.
            budget: Plans to look at before the last kick.
            expired: Says when to stop where it is.

        Returns:
            The best plan; None if no plan fits.
        """
        p = self.polisher
        self.expired = expired or _never
        few: list[Neighbours] = [p.cuts, p.orders]
        again = rows.copy()
        self.screen.recut(again, counts)
        known = self.priced(np.concatenate([rows, again]), np.concatenate([counts, counts]))
        chosen: dict[bytes, Found] = {}
        for plan in known:
            if len(chosen) < starts:
                chosen.setdefault(plan[0][: plan[1], DOMAIN].tobytes(), plan)
        if not chosen:
            return None
        found = _distinct(self.descend(list(chosen.values()), few))
        best = _distinct(self.descend(found[:keep], [*few, p.many]))[0]
        self.trail.append((self.screen.seen, best[2]))
        while self.screen.seen < budget and not self.expired():
            kicked = [self.kicked(best) for _ in range(KICKED)]
            rows, counts = np.stack([each[0] for each in kicked]), np.array([each[1] for each in kicked])
            self.screen.recut(rows, counts)
            tried = self.priced(rows, counts)[:SEARCHED]
            if tried:
                top = max(self.descend(tried, few), key=lambda each: each[2])
                if top[2] > best[2] - PROMISING * abs(best[2]):
                    top = self.descend([top], [*few, p.many])[0]
                best = max(best, top, key=lambda each: each[2])
            self.trail.append((self.screen.seen, best[2]))
        return best

    def priced(self, rows: IntArray, counts: IntArray) -> list[Found]:
        """The plans that fit, best first."""
        at, reward = self.screen.best(rows, counts, np.arange(len(rows)), np.full(len(rows), -np.inf))
        return _distinct([(rows[i], int(counts[i]), float(reward[i])) for i in at[at >= 0]])

    def descend(self, states: list[Found], kinds: list[Neighbours]) -> list[Found]:
        """Improve each of several plans by the first kind of change that still does, until none does."""
        states, level = list(states), [0] * len(states)
        for _ in range(ROUNDS):
            turn = min(level)
            if turn == len(kinds) or self.expired():
                break
            active = [i for i, own in enumerate(level) if own == turn]
            moved = self.round([states[i] for i in active], kinds[turn])
            for i, state in zip(active, moved, strict=True):
                level[i] = 0 if state[2] > states[i][2] else turn + 1
                states[i] = state
        return states

    def round(self, states: list[Found], neighbours: Neighbours) -> list[Found]:
        """Replace each plan by the best of those one change away, if that is better; all looked at together."""
        near = [neighbours(rows, count) for rows, count, _ in states]
        owner = np.repeat(np.arange(len(states)), [len(each[0]) for each in near])
        rows, counts = (np.concatenate(both) for both in zip(*near, strict=True))
        at, reward = self.screen.best(rows, counts, owner, np.array([state[2] for state in states]))
        return [
            state if i < 0 else (rows[i], int(counts[i]), float(now))
            for state, i, now in zip(states, at, reward, strict=True)
        ]

    def kicked(self, plan: Found) -> tuple[IntArray, int]:
        """The plan with one replica in another order, often with some layouts, its microbatch or a domain changed."""
        rows, count = plan[0].copy(), plan[1]
        draw = self.source
        inside = np.flatnonzero(rows[:count, REPLICA] == draw.integers(rows[count - 1, REPLICA] + 1))
        changes = draw.random(3)
        if changes[0] < 0.25:
            rows[inside, MICROBATCH] = draw.choice(self.levels)
        if changes[1] < 0.25:
            idle = np.setdiff1d(np.flatnonzero(self.polisher.rooms > 0), rows[:count, DOMAIN])
            if len(idle):
                at = draw.choice(inside)
                rows[at, DOMAIN] = draw.choice(idle)
                self._lay_out(rows[at])
        if changes[2] < 0.5:
            self._lay_out(rows[draw.choice(inside)])
        for at in inside[rows[inside, MICROBATCH] % rows[inside, DP] != 0]:
            self._lay_out(rows[at])
        order = np.arange(len(inside))
        near = orders_near(len(inside))
        for _ in range(int(draw.integers(1, 4)) if len(near) else 0):
            order = order[near[draw.integers(len(near))]]
        lengths = (rows[:, STOP] - rows[:, FIRST])[inside[order]]
        rows[inside] = rows[inside[order]]
        rows[inside, STOP] = np.cumsum(lengths)
        rows[inside, FIRST] = rows[inside, STOP] - lengths
        return rows, count

    def _lay_out(self, row: IntArray) -> None:
        """Give a segment another layout of as many devices as its domain has, by chance."""
        t = self.polisher.tables
        most = 2 ** int(np.log2(self.polisher.rooms[row[DOMAIN]]))
        node = int(t.domains.rows[row[DOMAIN]].node_devices)
        fits = (t.sizes == most) & (row[MICROBATCH] % t.layouts[:, 0] == 0) & (t.layouts[:, 1] <= node)
        fits &= t.layouts[:, 2] <= row[STOP] - row[FIRST]
        if fits.any():
            row[[DP, TP, PP]] = t.layouts[self.source.choice(np.flatnonzero(fits))]


def _never() -> bool:
    return False


def _distinct(plans: list[Found]) -> list[Found]:
    """Different plans, best first."""
    kept: dict[bytes, Found] = {}
    for plan in sorted(plans, key=lambda each: -each[2]):
        kept.setdefault(plan[0][: plan[1]].tobytes(), plan)
    return list(kept.values())
