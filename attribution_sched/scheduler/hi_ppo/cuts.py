"""The upper agent's cuts: over which domains a model goes that no single one holds, in which order, cut where.

A snapshot ranks cuts by R now, but they differ in what it cannot see: two regions with cheap traffic between them are
slow and leave two others free, all four are fast and leave nobody room. So the best cut over every set of domains is a
candidate of its own, and thinking compares them.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import DOMAIN, Plan
from attribution_sched.cluster.reward import value
from attribution_sched.planning.domain_orders import chain_plans, connected_orders
from attribution_sched.planning.instance import Instance

ORDERS = 24
"""Most orders of domains that are priced for each number of domains, the best connected ones."""


def cuts(view: Decision, kind_index: int, most: int) -> list[Plan]:
    """The best cut of a kind over each set of free domains, worthiest first, at most so many."""
    instance = Instance.of(view, kind_index)
    best: dict[frozenset[int], tuple[float, Plan]] = {}
    for segments in range(2, min(view.max_segments, len(instance.open_domains)) + 1):
        batch = chain_plans(instance, connected_orders(instance, segments, ORDERS))
        if len(batch) == 0:
            continue
        reward = value(view, batch, kind_index).reward
        for at in np.argsort(-reward, kind="stable").tolist():
            if not np.isfinite(reward[at]):
                break
            where = frozenset(batch.segments[at, : batch.counts[at], DOMAIN].tolist())
            if where not in best:
                best[where] = float(reward[at]), batch.plan(at)
    ranked = sorted(best.values(), key=lambda found: -found[0])
    return [plan for _, plan in ranked[:most]]
