"""A job-level scheduler in the manner of MAST (Choudhury et al., OSDI 2024).

No code of MAST is public. This is our own re-implementation of the idea its authors state: a global scheduler
decides which region a whole job goes to, so that demand over supply is balanced between regions, and leaves the
rest to the region. It plans with the bandwidth a link has on paper and does not follow the network.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import DOMAIN, Plan
from attribution_sched.cluster.reward import value
from attribution_sched.planning.candidates import best_of
from attribution_sched.planning.domain_orders import chain_plans, connected_orders
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.segment_table import first_twins, plans_inside
from attribution_sched.scheduler.rules import first_with_room
from attribution_sched.types import IntArray

REGION_SETS = 24
"""Most ordered sets of regions looked at for each number of regions."""


class Mast:
    """Our re-implementation of MAST's published idea; results say nothing about Meta's own system.

    A job's demand is the number of devices of its best plan in an empty region. Regions are ranked by projected
    demand over supply: devices held plus the job's demand, over all devices; a tie goes to the region with more
    bandwidth on paper. The job goes, whole, to the first region of the list that can hold it. If none can, it is
    split evenly over the smallest set of regions that can, sets being ranked by their narrowest link on paper.
    Nothing is ever re-planned.
    """

    name = "mast"

    def decide(self, view: Decision) -> Plan | None:
        """Give the job a region, or let it wait; a running job stays where it is."""
        if view.replanning:
            return None
        wan = view.cost.cluster.wan
        on_paper = replace(view, bandwidth_gbps=np.array(wan.bandwidth_gbps), latency_s=np.array(wan.latency_s))
        plan = first_with_room(on_paper, view.kind_index, self.ranking(on_paper))
        return _smallest_set(on_paper) if plan is None else plan

    def ranking(self, view: Decision) -> list[int]:
        """Regions by projected demand over supply, least first."""
        supply = np.asarray(view.cost.domains.rows.devices)
        projected = (supply - view.free_devices + _demand(view, supply)) / supply
        bandwidth = view.bandwidth_gbps.sum(axis=1) - np.diagonal(view.bandwidth_gbps)
        return [int(d) for d in np.lexsort((-bandwidth, projected))]


def _demand(view: Decision, supply: IntArray) -> int:
    """Devices of the best plan in an empty region; all of the largest region if none holds the job."""
    empty = replace(Instance.of(view), free_devices=supply.astype(np.int64))
    plan = best_of(view, plans_inside(empty, first_twins(empty)))
    return int(supply.max()) if plan is None else sum(segment.device_count for segment in plan.segments)


def _smallest_set(view: Decision) -> Plan | None:
    """Split evenly over the fewest regions that hold the job, the best-connected set of that size."""
    instance = Instance.of(view)
    for regions in range(2, min(view.max_segments, len(instance.open_domains)) + 1):
        orders = connected_orders(instance, regions, REGION_SETS)
        batch = chain_plans(instance, orders, even=True)
        if len(batch) == 0:
            continue
        reward = value(view, batch).reward
        for order in orders:
            own = np.where((batch.segments[:, :, DOMAIN] == order).all(axis=1), reward, -np.inf)
            best = int(np.argmax(own))
            if np.isfinite(own[best]):
                return batch.plan(best)
    return None
