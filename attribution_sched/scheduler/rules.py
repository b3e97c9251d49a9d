"""Rules that place a task once: who goes first, and into which domain.

All of them take the plan of highest reward inside the domain they choose, fall back to a pipeline over the fewest
domains that hold the model when none holds it alone, let a task wait when nothing does, and never move one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.planning.candidates import best_of
from attribution_sched.planning.domain_orders import chain_plans, connected_orders
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.segment_table import first_twins, plans_inside, twins
from attribution_sched.types import IntArray

ORDERS = 24
"""Most orders of domains a fall-back tries for each number of domains."""


def first_with_room(view: Decision, kind_index: int, domains: Iterable[int]) -> Plan | None:
    """Take the best plan inside the first of these domains that holds the task alone."""
    instance = Instance.of(view, kind_index)
    if not instance.free_devices.any():
        return None
    twin_of = twins(instance)
    too_small: set[int] = set()
    for domain in domains:
        if instance.free_devices[domain] == 0 or int(twin_of[domain]) in too_small:
            continue
        plan = best_of(view, plans_inside(instance, [domain]), kind_index)
        if plan is not None:
            return plan
        too_small.add(int(twin_of[domain]))
    return None


def fewest_domains(view: Decision, kind_index: int) -> Plan | None:
    """Cut a model over as few domains as hold it, in proportion to their speed, best plan by reward."""
    instance = Instance.of(view, kind_index)
    for segments in range(2, min(view.max_segments, len(instance.open_domains)) + 1):
        orders = connected_orders(instance, segments, ORDERS)
        plan = best_of(view, chain_plans(instance, orders), kind_index)
        if plan is not None:
            return plan
    return None


class _PlacedOnce:
    """What the rules share: a list of domains in order of preference, and no second thoughts."""

    plays_copies = False

    def decide(self, view: Decision) -> Plan | None:
        """Place the task, or let it wait; a running task stays where it is."""
        return None if view.replanning else self.place(view, view.kind_index)

    def place(self, view: Decision, kind_index: int) -> Plan | None:
        """Plan a waiting task of any kind; None if it does not fit now."""
        plan = first_with_room(view, kind_index, self.preference(view))
        return fewest_domains(view, kind_index) if plan is None else plan

    def preference(self, view: Decision) -> Iterable[int]:
        """Domains in the order in which they are tried."""
        return range(len(view.free_devices))


class FirstComeFirstServed(_PlacedOnce):
    """Strictly in order of arrival, priorities ignored.

    The task that has waited longest is placed in the first domain by index that holds it (over the fewest
    domains if none does). While it does not fit, it waits and so does everybody behind it.
    """

    name = "fcfs"

    def select(self, view: Decision) -> int:
        """Choose the task that arrived first if it fits now; else leave the pending one, which will wait."""
        head = view.queue[0]
        return head.slot if self.place(view, head.kind_index) is not None else view.slot

    def decide(self, view: Decision) -> Plan | None:
        """Place the task if it is the first in line."""
        if view.replanning or view.slot != view.queue[0].slot:
            return None
        return self.place(view, view.kind_index)


class ShortestJobFirst(_PlacedOnce):
    """The waiting task with the least work left goes first, among those that fit now.

    Work is steps left times the step time of the best plan in one empty domain (of the baseline, where no domain
    holds the model), for a nominal task. The task goes into the first domain by index that holds it. A short task
    that does not fit does not hold up longer ones.
    """

    name = "sjf"

    def __init__(self) -> None:
        self._nominal: WeakKeyDictionary[CostModel, dict[int, float]] = WeakKeyDictionary()

    def select(self, view: Decision) -> int:
        """Choose the shortest task that can be placed; the pending one if none can."""
        fits: dict[int, bool] = {}
        for task in sorted(view.queue, key=lambda task: task.steps_left * self.nominal_step_s(view, task.kind_index)):
            kind = task.kind_index
            if kind not in fits:
                fits[kind] = self.place(view, kind) is not None
            if fits[kind]:
                return task.slot
        return view.slot

    def nominal_step_s(self, view: Decision, kind_index: int) -> float:
        """Step time of a kind of task on its fastest plan in one empty domain."""
        known = self._nominal.setdefault(view.cost, {})
        if kind_index not in known:
            kind, rows = view.kinds[kind_index], view.cost.domains.rows
            empty = Instance(
                view.cost, kind_index, kind.batch_size, kind.microbatches, np.array(rows.devices),
                view.bandwidth_gbps, view.latency_s, 1,
            )  # fmt: skip
            priced = empty.score(plans_inside(empty, first_twins(empty)))
            fastest = float(np.where(priced.fits, priced.step_s, np.inf).min())
            known[kind_index] = fastest if np.isfinite(fastest) else float(view.base_step_s[kind_index])
        return known[kind_index]


class CleanestFirst(ShortestJobFirst):
    """Shortest job first, into the domain whose grid is cleanest by its annual mean and that holds the task.

    What carbon-aware placement by a published table does; the hour of the day is not looked at.
    """

    name = "cleanest-first"

    def preference(self, view: Decision) -> Iterable[int]:
        """Domains by grams of carbon per kWh, as the table has them."""
        return [int(d) for d in np.argsort(np.asarray(view.cost.domains.rows.carbon_g_per_j), kind="stable")]


class RoundRobin(_PlacedOnce):
    """Domains take turns: the search for room begins one past the domain that got the last task."""

    name = "round-robin"

    def __init__(self) -> None:
        self._next = 0

    def reset(self, seed: int) -> None:
        """Begin with the first domain again."""
        self._next = 0

    def memory(self) -> dict[str, NDArray[np.float64]]:
        """Whose turn it is."""
        return {"next": np.array([float(self._next)])}

    def recall(self, memory: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on with the domain whose turn it was."""
        self._next = int(memory["next"][0])

    def decide(self, view: Decision) -> Plan | None:
        """Place the task and pass the turn on."""
        plan = super().decide(view)
        if plan is not None:
            self._next = (plan.domains[-1] + 1) % len(view.free_devices)
        return plan

    def preference(self, view: Decision) -> Iterable[int]:
        """All domains, from the one whose turn it is."""
        k = len(view.free_devices)
        return [(self._next + d) % k for d in range(k)]


class LeastLoaded(_PlacedOnce):
    """The domain with the largest share of free devices that holds the task; lower index on a tie."""

    name = "least-loaded"

    def preference(self, view: Decision) -> Iterable[int]:
        """Domains by share of free devices, emptiest first."""
        share = view.free_devices / np.asarray(view.cost.domains.rows.devices)
        return [int(d) for d in np.argsort(-share, kind="stable")]


class GreedyBandwidth(_PlacedOnce):
    """The best-connected domains first, by what other tasks leave of the links now.

    One domain if one holds the task: the one whose links to the others are widest in sum. Otherwise a pipeline
    that begins with the widest link between two domains with room and grows at whichever end has the widest
    link to another one, until the model fits; layers are cut in proportion to the segments' speed.
    """

    name = "greedy-bandwidth"

    def preference(self, view: Decision) -> Iterable[int]:
        """Domains by the sum of their links' bandwidth, both ways."""
        links = _links(view)
        return [int(d) for d in np.argsort(-links.sum(axis=1), kind="stable")]

    def place(self, view: Decision, kind_index: int) -> Plan | None:
        """Plan a waiting task of any kind; None if it does not fit now."""
        plan = first_with_room(view, kind_index, self.preference(view))
        instance = Instance.of(view, kind_index)
        opened = instance.open_domains
        chain: list[int] = []
        while plan is None and max(1, len(chain)) < min(view.max_segments, len(opened)):
            chain = _grown(_links(view), chain, opened)
            # The pipeline may run either way along the chain.
            orders = np.array([chain, chain[::-1]], dtype=np.int64)
            plan = best_of(view, chain_plans(instance, orders), kind_index)
        return plan


def _links(view: Decision) -> np.ndarray:
    """Bandwidth of every pair of domains, the slower way of the two; 0 to itself."""
    links = np.minimum(view.bandwidth_gbps, view.bandwidth_gbps.T)
    np.fill_diagonal(links, 0.0)
    return links


def _grown(links: np.ndarray, chain: list[int], opened: IntArray) -> list[int]:
    """Add the domain with the widest link to an end of the chain; the widest pair to an empty one."""
    if not chain:
        among = links[np.ix_(opened, opened)]
        i, j = np.unravel_index(int(np.argmax(among)), among.shape)
        return [int(opened[i]), int(opened[j])]
    others = [int(d) for d in opened if d not in chain]
    front = max(others, key=lambda d: links[chain[0], d])
    back = max(others, key=lambda d: links[chain[-1], d])
    if links[chain[0], front] > links[chain[-1], back]:
        return [front, *chain]
    return [*chain, back]
