"""Room for a task: the best plan in a domain, over several, on fewer or more devices, and whether any plan fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import DP, FIRST, PP, STOP, TP, Plan, PlanBatch
from attribution_sched.planning.candidates import best_of, taken
from attribution_sched.planning.domain_orders import ORDERS, all_orders, chain_plans, connected_orders
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.segment_table import plans_inside
from attribution_sched.types import BoolArray, IntArray

FAR = 8
"""A cut is elsewhere if it is at least this part of the layers away."""


def sizes(batch: PlanBatch) -> IntArray:
    """Devices that each plan takes, shape ``(n,)``."""
    rows = batch.segments
    used = np.arange(rows.shape[1]) < batch.counts[:, None]
    found: IntArray = (rows[:, :, DP] * rows[:, :, TP] * rows[:, :, PP] * used).sum(axis=1)
    return found


def best_inside(view: Decision, domain: int, *, least: int = 1, most: int | None = None) -> Plan | None:
    """The plan of highest reward inside one domain on ``least`` to ``most`` devices; None if none fits."""
    batch = plans_inside(Instance.of(view), [domain])
    devices = sizes(batch)
    wanted = np.flatnonzero((devices >= least) & (devices <= (devices.max(initial=0) if most is None else most)))
    return best_of(view, taken(batch, wanted))


def best_across(
    view: Decision, domain: int | None = None, *, fewest: bool = False, most: int | None = None
) -> Plan | None:
    """The plan of highest reward that is cut over several domains; None if none fits.

    Args:
        view: The decision.
        domain: One of the domains that must take part, if any.
        fewest: Stop at the fewest domains that hold the model.
        most: Devices that it may take in all; any by default.
    """
    instance = Instance.of(view)
    found: list[Plan] = []
    for segments in range(2, min(view.max_segments, len(instance.open_domains)) + 1):
        orders = connected_orders(instance, segments, ORDERS)
        if domain is not None:
            orders = orders[(orders == domain).any(axis=1)]
        batch = chain_plans(instance, orders)
        if most is not None:
            batch = taken(batch, np.flatnonzero(sizes(batch) <= most))
        plan = best_of(view, batch)
        if plan is not None:
            found.append(plan)
            if fewest:
                break
    return best_of(view, PlanBatch.of(found, view.max_segments)) if found else None


def best_over(view: Decision, domains: frozenset[int], *, least: int = 1, most: int | None = None) -> Plan | None:
    """The plan of highest reward over exactly these domains, on ``least`` to ``most`` devices; None if none fits."""
    instance = Instance.of(view)
    if not domains <= set(instance.open_domains.tolist()) or len(domains) > view.max_segments:
        return None
    batch = chain_plans(instance, all_orders(sorted(domains), len(domains)))
    devices = sizes(batch)
    wanted = (devices >= least) & (devices <= (devices.max(initial=0) if most is None else most))
    return best_of(view, taken(batch, np.flatnonzero(wanted)))


def cut_elsewhere(view: Decision, plan: Plan) -> Plan | None:
    """A plan over several domains with its first cut well away from where it is: the best such; None if none fits."""
    if len(plan.segments) < 2 or len(plan.replicas) > 1:
        return None
    batch = PlanBatch.of([plan], view.max_segments)
    row, n_layers = batch.segments[0], plan.segments[-1].stop
    away, low, high = max(1, n_layers // FAR), plan.segments[0].pp, plan.segments[1].stop - plan.segments[1].pp
    cuts = [cut for cut in range(low, high + 1) if abs(cut - plan.segments[0].stop) >= away]
    if not cuts:
        return None
    rows = np.repeat(row[None], len(cuts), axis=0)
    rows[:, 0, STOP] = rows[:, 1, FIRST] = cuts
    repeated = [np.repeat(each, len(cuts)) for each in (batch.counts, batch.schedules)]
    return best_of(view, PlanBatch(rows, *repeated))


def fits_at_all(view: Decision, most: int | None = None) -> bool:
    """Whether any plan for the task fits the free devices, on at most so many of them."""
    open_domains = np.flatnonzero(np.asarray(view.free_devices) > 0)
    if any(best_inside(view, int(domain), most=most) is not None for domain in open_domains):
        return True
    return best_across(view, fewest=True, most=most) is not None


def empty_cluster(view: Decision) -> Decision:
    """The decision as it would be if nothing else ran."""
    return replace(view, free_devices=np.array(view.cost.domains.rows.devices, dtype=np.int64))


class RoomTable:
    """Whether anything fits, worked out once for every constellation of free devices.

    Args:
        view: The decision; only how many devices are free is varied.
    """

    def __init__(self, view: Decision) -> None:
        self._view = view
        self._known: dict[tuple[int, ...], bool] = {}
        # Whether a domain by itself holds the task hangs on its own free devices alone.
        self._inside: dict[tuple[int, int], bool] = {}
        self._devices = np.asarray(view.cost.domains.rows.devices)

    def __call__(self, situations: Decisions) -> BoolArray:
        """Whether any plan for the task fits in each situation, shape ``(n,)``."""
        free, at = np.unique(np.clip(situations.free, 0, self._devices), axis=0, return_inverse=True)
        answers = []
        for row in free:
            key = tuple(int(n) for n in row)
            if key not in self._known:
                there = replace(self._view, free_devices=row)
                alone = any(self._holds(there, domain, n) for domain, n in enumerate(key) if n > 0)
                self._known[key] = alone or best_across(there, fewest=True) is not None
            answers.append(self._known[key])
        return np.array(answers, dtype=np.bool_)[at.reshape(-1)]

    def _holds(self, view: Decision, domain: int, free: int) -> bool:
        if (domain, free) not in self._inside:
            self._inside[domain, free] = best_inside(view, domain) is not None
        return self._inside[domain, free]
