"""Iterated local search for a decision that stands alone: descents from several plans, perturbations of where they end.

A descent takes small changes first: cuts, then orders, then everything. Where it ends, the best plan is perturbed: its
segments are put in an order some changes away, some get another layout, domain or microbatch, and the layers are cut
anew between them. The best of many such plans are searched around again, until so many plans were looked at. Nothing
depends on a clock unless somebody says that time has expired: the same seed finds the same plan.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, PP, REPLICA, STOP, TP
from attribution_sched.planning.bounds import Screen
from attribution_sched.planning.local_search import Candidate, LocalSearch
from attribution_sched.planning.neighbours import Neighbours, orders_near

IntArray = NDArray[np.int64]

PERTURBED, SEARCHED = 24, 4
"""Plans perturbed at a time, and how many of these, the best, are searched around."""

PROMISING = 0.05
"""Share by which a plan may be worse than the best and still be looked at with all kinds of changes."""

ROUNDS = 60
"""Most rounds of a descent."""


class IteratedLocalSearch:
    """Searches around plans of one decision with all kinds of changes.

    Args:
        search: Knows the decision and lists changes.
        seed: Of the perturbations.
    """

    def __init__(self, search: LocalSearch, seed: int = 0) -> None:
        self.search = search
        self.screen = Screen(search.view, search.tables, search.kind, search.free_devices, search.queue_pressure)
        self.source = np.random.default_rng(seed)
        self.expired: Callable[[], bool] = _never
        self.trail: list[tuple[int, float]] = []
        """Plans looked at and best reward so far, after the descents and after every perturbation."""

    def best_of(
        self,
        rows: IntArray,
        counts: IntArray,
        starts: int,
        keep: int,
        budget: int,
        expired: Callable[[], bool] | None = None,
    ) -> Candidate | None:
        """Search around several plans, few changes first, around the best few of what comes out, and perturb the best.

        Args:
            rows: Plans to begin with, shape ``(n, P, 10)``.
            counts: Rows in use, shape ``(n,)``.
            starts: How many of them, the best in different domains, are searched around.
            keep: How many of the results are worth a look at the many changes.
            budget: Plans to look at before the last perturbation.
            expired: Says when to stop where it is.

        Returns:
            The best plan; None if no plan fits.
        """
        near = self.search.neighbourhood
        self.expired = expired or _never
        few: list[Neighbours] = [near.cuts, near.orders]
        again = rows.copy()
        self.screen.recut(again, counts)
        known = self.priced(np.concatenate([rows, again]), np.concatenate([counts, counts]))
        chosen: dict[bytes, Candidate] = {}
        for plan in known:
            if len(chosen) < starts:
                chosen.setdefault(plan.rows[: plan.used, DOMAIN].tobytes(), plan)
        if not chosen:
            return None
        found = _distinct(self.descend(list(chosen.values()), few))
        best = _distinct(self.descend(found[:keep], [*few, near.everything]))[0]
        self.trail.append((self.screen.seen, best.reward))
        while self.screen.seen < budget and not self.expired():
            perturbed = [self.perturbed(best) for _ in range(PERTURBED)]
            rows, counts = np.stack([each[0] for each in perturbed]), np.array([each[1] for each in perturbed])
            self.screen.recut(rows, counts)
            tried = self.priced(rows, counts)[:SEARCHED]
            if tried:
                top = max(self.descend(tried, few), key=lambda each: each.reward)
                if top.reward > best.reward - PROMISING * abs(best.reward):
                    top = self.descend([top], [*few, near.everything])[0]
                best = max(best, top, key=lambda each: each.reward)
            self.trail.append((self.screen.seen, best.reward))
        return best

    def priced(self, rows: IntArray, counts: IntArray) -> list[Candidate]:
        """The plans that fit, best first."""
        at, reward = self.screen.best(rows, counts, np.arange(len(rows)), np.full(len(rows), -np.inf))
        return _distinct([Candidate(rows[i], int(counts[i]), float(reward[i])) for i in at[at >= 0]])

    def descend(self, states: list[Candidate], kinds: list[Neighbours]) -> list[Candidate]:
        """Improve each of several plans by the first kind of change that still does, until none does."""
        states, level = list(states), [0] * len(states)
        for _ in range(ROUNDS):
            turn = min(level)
            if turn == len(kinds) or self.expired():
                break
            active = [i for i, own in enumerate(level) if own == turn]
            moved = self.round([states[i] for i in active], kinds[turn])
            for i, state in zip(active, moved, strict=True):
                level[i] = 0 if state.reward > states[i].reward else turn + 1
                states[i] = state
        return states

    def round(self, states: list[Candidate], neighbours: Neighbours) -> list[Candidate]:
        """Replace each plan by the best of those one change away, if that is better; all looked at together."""
        near = [neighbours(rows, count) for rows, count, _ in states]
        owner = np.repeat(np.arange(len(states)), [len(each[0]) for each in near])
        rows, counts = (np.concatenate(both) for both in zip(*near, strict=True))
        at, reward = self.screen.best(rows, counts, owner, np.array([state.reward for state in states]))
        return [
            state if i < 0 else Candidate(rows[i], int(counts[i]), float(now))
            for state, i, now in zip(states, at, reward, strict=True)
        ]

    def perturbed(self, plan: Candidate) -> tuple[IntArray, int]:
        """The plan with one replica in another order, often with some layouts, its microbatch or a domain changed."""
        rows, count = plan.rows.copy(), plan.used
        draw = self.source
        inside = np.flatnonzero(rows[:count, REPLICA] == draw.integers(rows[count - 1, REPLICA] + 1))
        changes = draw.random(3)
        if changes[0] < 0.25:
            rows[inside, MICROBATCH] = draw.choice(self.search.neighbourhood.microbatches)
        if changes[1] < 0.25:
            idle = self.search.neighbourhood.idle(rows, count)
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
        t = self.search.tables
        most = 2 ** int(np.log2(self.search.free_devices[row[DOMAIN]]))
        node = int(t.domains.rows[row[DOMAIN]].node_devices)
        fits = (t.sizes == most) & (row[MICROBATCH] % t.layouts[:, 0] == 0) & (t.layouts[:, 1] <= node)
        fits &= t.layouts[:, 2] <= row[STOP] - row[FIRST]
        if fits.any():
            row[[DP, TP, PP]] = t.layouts[self.source.choice(np.flatnonzero(fits))]


def _never() -> bool:
    return False


def _distinct(plans: list[Candidate]) -> list[Candidate]:
    """Different plans, best first."""
    kept: dict[bytes, Candidate] = {}
    for plan in sorted(plans, key=lambda each: -each.reward):
        kept.setdefault(plan.rows[: plan.used].tobytes(), plan)
    return list(kept.values())
