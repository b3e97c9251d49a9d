"""The best plan for a task by itself: a wide search around what the policy proposes.

For a model that no single domain holds, or a task that nothing else competes with, the snapshot is all there is to
judge by: nothing is gained by keeping devices free inside the domains, so the search may change everything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.plan import DOMAIN, Plan, PlanBatch
from attribution_sched.planning.local_search import IteratedLocalSearch, LocalSearch

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

STARTS, KEEP = 48, 24
"""Starts of the local search times domains, and how many of these it goes on with."""

LOOKS = 5_000
"""Plans per domain that the local search looks at; few of them are priced."""

MOST_DOMAINS = 8
"""Domains that the local search looks at: those of the likeliest plan, then those of the plans drawn."""

KNOWN = 512
"""Searches of a cluster whose results are kept."""


class SearchMemo:
    """What searches came to, by all that they read; copies of a policy share it.

    A search is a function of what it is given. Copies of one moment, and coalitions of inputs of which few reach it,
    ask for the same one many times.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[CostModel, dict[Hashable, Plan | None]] = WeakKeyDictionary()

    def of(
        self, cost: CostModel, key: Hashable, search: Callable[[], Plan | None], complete: Callable[[], bool]
    ) -> Plan | None:
        """The plan that was found, or is found now.

        Args:
            cost: The cluster.
            key: All else that the search reads.
            search: It.
            complete: Whether it had all the time it wanted; what a deadline cut short is not kept.
        """
        known = self._known.setdefault(cost, {})
        if key in known:
            return known[key]
        plan = search()
        if complete():
            if len(known) >= KNOWN:
                known.pop(next(iter(known)), None)
            known[key] = plan
        return plan

    def __deepcopy__(self, memo: dict[int, Any]) -> SearchMemo:
        return self


def search_around(
    rows: IntArray,
    counts: IntArray,
    search: LocalSearch,
    *,
    thorough: bool = True,
    seed: int = 0,
    expired: Callable[[], bool] | None = None,
) -> Plan | None:
    """Search around proposals, likeliest first, and give the best plan found; None if there is none.

    Args:
        rows: Segment rows of the proposals, shape ``(P, S, 11)``.
        counts: Segments of each, shape ``(P,)``; 0 for a proposal to do nothing, which is left out.
        search: Prices plans of that task, and lists changes; it must allow all kinds of changes. Domains that are not
            looked at are left out of it from then on.
        thorough: Whether the search goes on from several plans and perturbs the best; else it descends from few, which
            takes a fifth of the time.
        seed: Of the search.
        expired: Says when there is no time left; what was found until then counts.
    """
    rows, counts = rows[counts > 0], counts[counts > 0]
    if len(rows) == 0:
        return None
    search.look_only_at(_wanted(rows, counts, search.free_devices))
    domains = max(1, int((search.free_devices > 0).sum()))
    starts, keep, looks = max(4, STARTS // domains), max(3, KEEP // domains), LOOKS * domains
    if not thorough:
        starts, keep, looks = 4, 1, 0
    found = IteratedLocalSearch(search, seed).best_of(rows, counts, starts, keep, looks, expired)
    if found is None:
        return None
    return PlanBatch(found.rows[None], np.array([found.used]), np.zeros(1, dtype=np.int64)).plan(0)


def _wanted(rows: IntArray, counts: IntArray, free_devices: IntArray) -> BoolArray:
    """Domains to look at, shape ``(K,)``: all with room if few have, else those of the first plans."""
    chosen = free_devices > 0
    if chosen.sum() <= MOST_DOMAINS:
        return chosen
    chosen = np.zeros_like(chosen)
    for plan, count in zip(rows, counts, strict=True):
        more = chosen.copy()
        more[plan[:count, DOMAIN]] = True
        if more.sum() <= MOST_DOMAINS or not chosen.any():
            chosen = more
    return chosen
