"""Local search around a plan, everything priced in batches: change one thing at a time while that helps.

The network decides who goes where and with how many devices, which a snapshot cannot judge; the search settles what a
snapshot can: where exactly to cut, which layout of the same devices, which of two equal domains, which microbatch.
With ``widen`` it may also take other numbers of devices, for a decision that stands alone.

:func:`descend` is the search itself, whatever plans are judged by; :class:`LocalSearch` judges them by the reward of a
decision. Which changes there are is :mod:`attribution_sched.planning.local_search`' business.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import (
    BILL_USD,
    BYTES_PER_GBIT,
    CARBON_G,
    ENERGY_J,
    PLAN_COLUMNS,
    SEGMENT_COLUMNS,
    STEP_S,
    UTILISATION,
    CostModel,
    DomainArrays,
    PowerArrays,
    RuntimeArrays,
    Scratch,
    Workload,
    make_scratch,
    plan_cost,
    share_batch,
    split_stages,
    tp_index,
)
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MAX_PP,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
    Plan,
    PlanBatch,
)
from attribution_sched.cluster.reward import (
    cost_usd_kernel,
    r_cost_kernel,
    r_eff_kernel,
    step_at_kernel,
    total_kernel,
    usd_per_g,
    usd_per_j,
    worth,
)
from attribution_sched.cluster.validity import VALID, Limits, limits_of, segment_fault, validity
from attribution_sched.cluster.world import within_budgets
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.planning.segment_table import (
    BACKWARD_S,
    END_S,
    FIXED_BYTES,
    FORWARD_S,
    HELD_BYTES,
    STAGE_COLUMNS,
    write_stage,
)
from attribution_sched.types import BoolArray, FloatArray, IntArray

# ------ Plans one change away from a plan: the only neighbourhood there is, by named moves
#
# A move changes one thing (or two that mostly go together) in the rows of a plan, ``(P, 11)`` with ``count`` in use,
# and
# lists every way to do so as copies ``(n, P, 11)``, valid or not: that is for :mod:`attribution_sched.cluster.plan`
# to say. Who searches picks the moves: a search that may not take more devices than it was given (``SAME_DEVICES``),
# one
# that may change everything (``ANY_DEVICES`` and :meth:`Neighbourhood.restructured`), one that keeps formats.

Plans = tuple[IntArray, IntArray]
"""Rows of plans, shape ``(n, P, 11)``, and how many of them are in use, shape ``(n,)``."""

T = TypeVar("T")

Neighbours = Callable[[IntArray, int], Plans]
"""From a plan's rows and their number to plans one change away."""

SHIFTS = np.array((-8, -4, -2, -1, 1, 2, 4, 8))
"""How far a cut is moved."""

FAR = 2
"""Most layers that are handed to a segment that is not the next."""


class Move(enum.Flag):
    """One kind of change."""

    LAYOUT = enum.auto()
    """Another layout of as many devices."""
    SIZE = enum.auto()
    """Another layout of any number of devices the domain has free."""
    LAYOUT_AND_FORMAT = enum.auto()
    """Another layout of any number of devices, in any format."""
    FORMAT = enum.auto()
    """Another numeric format of one segment."""
    DOMAIN = enum.auto()
    """One segment moves to a domain that is not in use."""
    SWAP = enum.auto()
    """Two segments exchange their domains, with or without their layouts."""
    CUT = enum.auto()
    """The cut between two segments moves."""
    LAYOUT_AND_CUT = enum.auto()
    """Another layout of a segment mostly wants another cut beside it."""
    TWO_CUTS = enum.auto()
    """Two cuts that follow each other move together."""
    MICROBATCH = enum.auto()
    """Another microbatch of a replica."""
    LAYOUT_AND_MICROBATCH = enum.auto()
    """A layout that trades data-parallel ranks for stages mostly wants another microbatch."""


SAME_DEVICES = Move.LAYOUT | Move.FORMAT | Move.DOMAIN | Move.SWAP | Move.CUT | Move.MICROBATCH
"""What a snapshot can judge of a plan whose devices somebody else has decided on."""

ANY_DEVICES = (
    Move.SIZE | Move.FORMAT | Move.DOMAIN | Move.SWAP | Move.CUT | Move.LAYOUT_AND_CUT | Move.TWO_CUTS
    | Move.MICROBATCH | Move.LAYOUT_AND_MICROBATCH
)  # fmt: skip
"""All changes that keep the number of segments."""

SAME_FORMATS = Move.SIZE | Move.DOMAIN | Move.SWAP | Move.CUT | Move.MICROBATCH
"""One thing at a time, formats as they are."""

ONE_PIPELINE = Move.LAYOUT_AND_FORMAT | Move.DOMAIN | Move.SWAP | Move.CUT | Move.MICROBATCH
"""What is tried around a pipeline that an exact search found on the way."""

_LAYOUT = [DP, TP, PP]


class Neighbourhood:
    """Lists changes of plans of one task.

    Args:
        free_devices: Devices that may be used, shape ``(K,)``; a segment moves only to domains that have some.
        layouts: Layouts to choose from, shape ``(L, 3)``: dp, tp, pp.
        microbatches: Microbatch sizes to choose from.
        formats: Rows of the formats to choose from on the precision axis.
    """

    def __init__(
        self, free_devices: IntArray, layouts: IntArray, microbatches: Sequence[int] | IntArray, formats: Sequence[int]
    ) -> None:
        self.free_devices, self.layouts, self.sizes = free_devices, layouts, layouts.prod(axis=1)
        self.microbatches = np.unique(np.asarray(microbatches, dtype=np.int64))
        self.formats = np.asarray(formats, dtype=np.int64)

    def idle(self, rows: IntArray, count: int) -> IntArray:
        """Domains with free devices that a plan does not use."""
        return np.setdiff1d(np.flatnonzero(self.free_devices > 0), rows[:count, DOMAIN])

    def one_change(self, rows: IntArray, count: int, moves: Move = SAME_DEVICES) -> Plans:
        """Plans of the same segments one of the moves away."""
        changes: list[IntArray] = []
        sizes = rows[:count, DP] * rows[:count, TP] * rows[:count, PP]
        idle = self.idle(rows, count)
        for p in range(count):
            room = self.layouts[self.sizes <= self.free_devices[rows[p, DOMAIN]]]
            if Move.LAYOUT in moves or Move.SIZE in moves:
                changes.append(_laid_out(rows, p, room if Move.SIZE in moves else self.layouts[self.sizes == sizes[p]]))
            if Move.LAYOUT_AND_FORMAT in moves:
                both = _laid_out(rows, p, np.repeat(room, len(self.formats), axis=0))
                both[:, p, PRECISION] = np.tile(self.formats, len(room))
                changes.append(both)
            if Move.DOMAIN in moves:
                changes.append(_changed(rows, p, DOMAIN, idle))
            if Move.FORMAT in moves:
                changes.append(_changed(rows, p, PRECISION, self.formats))
            if Move.SWAP in moves:
                changes += [_exchanged(rows, p, q) for q in range(p + 1, count)]
            if p + 1 < count and rows[p, REPLICA] == rows[p + 1, REPLICA]:
                changes += self._cut_behind(rows, count, p, moves)
        for inside in replicas(rows, count):
            if Move.MICROBATCH in moves:
                others = _copies(rows, len(self.microbatches))
                others[:, inside, MICROBATCH] = self.microbatches[:, None]
                changes.append(others)
            if Move.LAYOUT_AND_MICROBATCH in moves:
                for segment_domain in inside:
                    same = self.layouts[
                        (self.sizes == sizes[segment_domain]) & (self.layouts[:, 0] != rows[segment_domain, DP])
                    ]
                    both = _laid_out(rows, segment_domain, np.repeat(same, len(self.microbatches), axis=0))
                    both[:, inside, MICROBATCH] = np.tile(self.microbatches, len(same))[:, None]
                    changes.append(both)
        return _same(np.concatenate(changes), count)

    def _cut_behind(self, rows: IntArray, count: int, p: int, moves: Move) -> list[IntArray]:
        """Plans whose cut behind segment ``p`` is elsewhere."""
        changes = []
        if Move.CUT in moves:
            changes.append(_shifted(_copies(rows, len(SHIFTS)), p, SHIFTS))
        if Move.LAYOUT_AND_CUT in moves:
            for at in (p, p + 1):
                room = self.layouts[self.sizes <= self.free_devices[rows[at, DOMAIN]]]
                both = _laid_out(rows, at, np.repeat(room, len(SHIFTS), axis=0))
                changes.append(_shifted(both, p, np.tile(SHIFTS, len(room))))
        if Move.TWO_CUTS in moves and p + 2 < count and rows[p + 1, REPLICA] == rows[p + 2, REPLICA]:
            changes.append(_shifted(_shifted(_copies(rows, len(SHIFTS)), p, SHIFTS), p + 1, SHIFTS))
        return changes

    def cuts(self, rows: IntArray, count: int) -> Plans:
        """Plans in which one segment hands layers to another of its replica; the cuts between them move along."""
        changes = [rows[None][:0]]
        for inside in replicas(rows, count):
            handed = _handed(len(inside))
            moved = _copies(rows, len(handed))
            moved[:, inside, STOP] += handed
            moved[:, inside[1:], FIRST] += handed[:, :-1]
            changes.append(moved)
        return _same(np.concatenate(changes), count)

    def orders(self, rows: IntArray, count: int) -> Plans:
        """Plans whose segments stand in another order within a replica, with their layers' number or in its place."""
        changes = [rows[None][:0]]
        for inside in replicas(rows, count):
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
            changes += [moved, stays]
        return _same(np.concatenate(changes), count)

    def restructured(self, rows: IntArray, count: int) -> Plans:
        """Plans with one segment less, or with one more in an idle domain."""
        changes: list[IntArray] = []
        counts: list[IntArray] = []
        for p in range(count):
            for heir in (p - 1, p + 1):
                if not 0 <= heir < count or rows[heir, REPLICA] != rows[p, REPLICA]:
                    continue
                fewer = _copies(rows, 1)
                fewer[0, heir, FIRST] = min(rows[p, FIRST], rows[heir, FIRST])
                fewer[0, heir, STOP] = max(rows[p, STOP], rows[heir, STOP])
                fewer[0, p:-1] = fewer[0, p + 1 :].copy()
                changes.append(fewer)
                counts.append(np.array([count - 1]))
        if count < rows.shape[0]:
            for idle in self.idle(rows, count):
                most = 2 ** int(np.log2(self.free_devices[idle]))
                layouts = self.layouts[self.sizes == most]
                for p in range(count):
                    length = int(rows[p, STOP] - rows[p, FIRST])
                    for share in (length // 4, length // 2, 3 * length // 4):
                        for before in (True, False):
                            changes.append(_split(rows, p, share, before, int(idle), layouts))
                            counts.append(np.full(len(layouts), count + 1, dtype=np.int64))
        if not changes:
            return rows[None][:0], np.zeros(0, dtype=np.int64)
        return np.concatenate(changes), np.concatenate(counts)

    def everything(self, rows: IntArray, count: int) -> Plans:
        """Plans with another layout, domain, format or number of segments."""
        near, counts = self.one_change(rows, count, ANY_DEVICES)
        others, other_counts = self.restructured(rows, count)
        return np.concatenate([near, others]), np.concatenate([counts, other_counts])


def replicas(rows: IntArray, count: int) -> list[IntArray]:
    """Rows of each replica."""
    return [np.flatnonzero(rows[:count, REPLICA] == replica) for replica in range(int(rows[count - 1, REPLICA]) + 1)]


@functools.cache
def orders_near(count: int) -> IntArray:
    """Orders one step away: one taken out and put in elsewhere, two exchanged, or a stretch turned round."""
    orders: dict[tuple[int, ...], None] = {}
    for a in range(count):
        for b in range(count):
            rest = [i for i in range(count) if i != a]
            orders[(*rest[:b], a, *rest[b:])] = None
            if a < b:
                order = list(range(count))
                order[a], order[b] = b, a
                orders[tuple(order)] = None
                orders[(*range(a), *range(b, a - 1, -1), *range(b + 1, count))] = None
    orders.pop(tuple(range(count)))
    return np.array(list(orders), dtype=np.int64)


@functools.cache
def _handed(count: int) -> IntArray:
    """How far the end of every segment moves when one hands layers to another, shape ``(n, count)``."""
    shifts: list[list[int]] = []
    for p in range(count):
        for q in range(p + 1, count):
            far = SHIFTS[-1] if q == p + 1 else FAR
            shifts += [[by if p <= i < q else 0 for i in range(count)] for by in SHIFTS[np.abs(SHIFTS) <= far].tolist()]
    return np.array(shifts, dtype=np.int64).reshape(-1, count)


def _same(rows: IntArray, count: int) -> Plans:
    return rows, np.full(len(rows), count, dtype=np.int64)


def _copies(rows: IntArray, count: int) -> IntArray:
    return np.repeat(rows[None], count, axis=0)


def _changed(rows: IntArray, p: int, column: int, values: IntArray) -> IntArray:
    changed = _copies(rows, len(values))
    changed[:, p, column] = values
    return changed


def _laid_out(rows: IntArray, p: int, layouts: IntArray) -> IntArray:
    changed = _copies(rows, len(layouts))
    changed[:, p, _LAYOUT] = layouts
    return changed


def _exchanged(rows: IntArray, p: int, q: int) -> IntArray:
    """Two segments in each other's domain: with their own layouts, and with those of the other."""
    both = _copies(rows, 2)
    both[:, p, DOMAIN], both[:, q, DOMAIN] = rows[q, DOMAIN], rows[p, DOMAIN]
    both[1, p, _LAYOUT], both[1, q, _LAYOUT] = rows[q, _LAYOUT], rows[p, _LAYOUT]
    return both


def _shifted(plans: IntArray, p: int, by: IntArray) -> IntArray:
    """Move the cut behind segment ``p``."""
    plans[:, p, STOP] += by
    plans[:, p + 1, FIRST] += by
    return plans


def _split(rows: IntArray, p: int, share: int, before: bool, idle: int, layouts: IntArray) -> IntArray:
    """Segment ``p`` hands its first or last layers to an idle domain."""
    more = _copies(rows, len(layouts))
    more[:, p + 1 :] = more[:, p:-1].copy()
    own, other = (p, p + 1) if before else (p + 1, p)
    cut = int(rows[p, FIRST]) + (share if before else int(rows[p, STOP] - rows[p, FIRST]) - share)
    more[:, p, STOP] = more[:, p + 1, FIRST] = cut
    more[:, p, FIRST], more[:, p + 1, STOP] = rows[p, FIRST], rows[p, STOP]
    more[:, own, DOMAIN] = idle
    more[:, own, _LAYOUT] = layouts
    more[:, other, DOMAIN] = rows[p, DOMAIN]
    return more


# ------ Local search around a plan, everything priced in batches: change one thing at a time while that helps

ROUNDS = 12
"""Most rounds of small changes."""

NOMINAL = (1.0, 1.0, 1.0)
"""Factors of a nominal task."""

LEAST_GAIN = 1e-12
"""A plan is better than another by more than this, else by rounding."""


class Candidate(NamedTuple):
    """A plan under search.

    Attributes:
        rows: Its rows, shape ``(P, 11)``.
        used: How many of them are in use.
        reward: What it is worth.
    """

    rows: IntArray
    used: int
    reward: float


Worth = Callable[[IntArray, IntArray], FloatArray]
"""What plans are worth, larger is better, −∞ where they do not fit; from rows ``(n, P, 11)`` and counts ``(n,)``."""


def best_neighbour(candidate: Candidate, neighbours: Neighbours, limits: Limits, worth: Worth) -> Candidate:
    """The best valid plan one change away if it is better, else the plan itself."""
    rows, counts = neighbours(candidate.rows, candidate.used)
    valid = validity(limits, rows, counts) == VALID
    rows, counts = rows[valid], counts[valid]
    if len(rows) == 0:
        return candidate
    reward = worth(rows, counts)
    at = int(np.argmax(reward))
    if not reward[at] > candidate.reward + LEAST_GAIN:
        return candidate
    return Candidate(rows[at], int(counts[at]), float(reward[at]))


def descend(
    candidate: Candidate,
    neighbours: Neighbours,
    limits: Limits,
    worth: Worth,
    rounds: int = ROUNDS,
    expired: Callable[[], bool] | None = None,
) -> Candidate:
    """Take the best change again and again while that helps and no time has ``expired``."""
    for _ in range(rounds):
        if expired is not None and expired():
            break
        better = best_neighbour(candidate, neighbours, limits, worth)
        if better is candidate:
            break
        candidate = better
    return candidate


class LocalSearch:
    """Improves plans of one decision.

    Args:
        view: The decision; its reward is what counts.
        tables: The cluster.
        kind: Kind of task to place; the pending one by default.
        widen: Whether segments may change their number of devices.
        queue_pressure: What holding a device costs others, as a share of the time it is held.
        factors: What is believed of this very task's compute, memory and host time, over a nominal task's.
    """

    def __init__(
        self,
        view: Decision,
        tables: PlannerTables,
        kind: int | None = None,
        *,
        widen: bool = False,
        queue_pressure: float = 0.0,
        factors: tuple[float, float, float] = NOMINAL,
    ) -> None:
        self.factors = factors
        self.view, self.tables, self.widen, self.queue_pressure = view, tables, widen, queue_pressure
        self.kind = view.kind_index if kind is None else kind
        free_devices = within_budgets(view.cost.cluster, np.asarray(view.free_devices, dtype=np.int64))
        formats = tables.formats[self.kind][tables.domain_class]
        self.neighbourhood = Neighbourhood(
            free_devices, tables.layouts, tables.micro[self.kind], [precision.index for precision in PRECISIONS]
        )
        self.limits = limits_of(view.cost, self.kind, free_devices, formats=formats)
        self.priced = 0

    @property
    def free_devices(self) -> IntArray:
        """Devices that may be used, shape ``(K,)``."""
        return self.neighbourhood.free_devices

    def look_only_at(self, domains: BoolArray) -> None:
        """Leave other domains than these out of the search."""
        free_devices = np.where(domains, self.free_devices, 0)
        self.neighbourhood.free_devices = free_devices
        self.limits = self.limits._replace(devices=free_devices)

    def worth(self, rows: IntArray, counts: IntArray) -> FloatArray:
        """Worth of plans, −∞ where they do not fit; microbatches are shared out as the cluster does."""
        batch = PlanBatch(rows, counts, np.zeros(len(rows), dtype=np.int64))
        batch_size = self.view.kinds[self.kind].batch_size
        rows[:, :, MICROBATCHES] = self.view.cost.microbatch_counts(self.kind, batch_size, batch)
        self.priced += len(rows)
        view = self.view
        costs = view.cost.score(
            batch, self.kind, bandwidth_gbps=view.bandwidth_gbps, latency_s=view.latency_s, breakdown=False,
            factors=self.factors,
        )  # fmt: skip
        priced = worth(view, batch, costs, self.kind)
        if self.queue_pressure == 0.0:
            return priced.reward
        used = np.arange(rows.shape[1]) < counts[:, None]
        devices = (rows[:, :, DP] * rows[:, :, TP] * rows[:, :, PP] * used).sum(axis=1)
        # A plan that does not fit takes forever and is worth −∞ already.
        time = np.where(np.isfinite(priced.step_s), priced.step_s, 0.0) / self.view.base_step_s[self.kind]
        charged: FloatArray = priced.reward - self.view.reward.w_eff * self.queue_pressure * devices * time
        return charged

    def improve(
        self,
        rows: IntArray,
        count: int,
        reward: float,
        rounds: int = ROUNDS,
        expired: Callable[[], bool] | None = None,
    ) -> Candidate:
        """Change one thing at a time while that helps and no time has ``expired``."""
        near = self.neighbourhood.everything if self.widen else self.neighbourhood.one_change
        return descend(Candidate(rows, count, reward), near, self.limits, self.worth, rounds, expired)


# ------ The best of many plans, found without pricing most of them
#
# A plan that is not well formed or overflows memory is out. For the others a lower bound on the step time, from the
# same
# stage times as the cost model's, gives an upper bound on the reward; plans are priced in order of that bound, best
# first, until it is no better than what was found. What comes out is what pricing all of them would give.

ROUNDING = 1e-9
"""Share by which a bound is loosened: it adds the same times up in another order than the recurrence does."""


MEMORY_BITS = 15
"""Stages remembered are 2 to the power of this; one that falls on another's place takes it."""

MIX, MASK = 0x1E3779B97F4A7C15, 2**63 - 1
"""Spread keys over places (Fibonacci hashing)."""


@by_reference
class StageMemory(NamedTuple):
    """Stages that were priced before.

    Attributes:
        keys: Which stage a place holds, shape ``(2^b,)``; 0 for none.
        stages: Its times and memory, shape ``(2^b, 6)``, columns ``STAGE_COLUMNS``.
    """

    keys: IntArray
    stages: FloatArray


@by_reference
class PlanJudge(NamedTuple):
    """What a decision's plans are judged by.

    Attributes:
        domains: The cluster.
        runtime: Framework behaviour.
        power_law: Constants of the power laws.
        tables: Layer cost tables.
        workload: The task.
        bandwidth: Bytes per second between domains, shape ``(K, K)``.
        latency_s: Shape ``(K, K)``.
        free_devices: Devices that may be used, shape ``(K,)``.
        formats: Formats worth using, shape ``(K, 4)``.
        batch: Samples per step.
        base_s: Step time of the baseline.
        per_device_second: What a second of step time of one device costs beside that.
        w_eff: Weight of efficiency.
        w_util: Weight of utilisation.
        w_cost: Weight of cost.
        base_usd: Cost of a step of the baseline.
        usd_per_j: Price of energy.
        usd_per_g: Price of carbon.
    """

    domains: DomainArrays
    runtime: RuntimeArrays
    power_law: PowerArrays
    tables: CostTables
    workload: Workload
    bandwidth: FloatArray
    latency_s: FloatArray
    free_devices: IntArray
    formats: BoolArray
    batch: float
    base_s: float
    per_device_second: float
    w_eff: float
    w_util: float
    w_cost: float
    base_usd: float
    usd_per_j: float
    usd_per_g: float


@kernel(inline="always")
def place_of(domain: int, a: int, z: int, dp: int, tp: int, precision: int, micro: int) -> tuple[int, int]:
    """Where a stage is remembered, and by which key; plans one change apart share most of their stages."""
    key = ((((domain << 10 | a) << 10 | z) << 12 | dp) << 4 | tp) << 18 | precision << 16 | micro
    return ((key * MIX) & MASK) >> (63 - MEMORY_BITS), key


@kernel
def remember(k: PlanJudge, memory: StageMemory, slot: int, key: int, row: IntArray, a: int, z: int) -> None:
    """Price a stage and write down its times and memory."""
    memory.keys[slot] = key
    write_stage(
        k.domains, k.runtime, k.power_law, k.tables, k.workload, row[DOMAIN], a, z, row[DP], row[TP], row[PRECISION],
        row[MICROBATCH], 0, memory.stages[slot],
    )  # fmt: skip


class Screen:
    """Finds the best of many plans of one decision.

    Args:
        view: The decision; its reward is what counts.
        tables: The cluster.
        kind: Kind of task to place.
        free_devices: Devices that may be used, shape ``(K,)``.
        queue_pressure: What holding a device costs others, as a share of the time it is held.
    """

    def __init__(
        self, view: Decision, tables: PlannerTables, kind: int, free_devices: IntArray, queue_pressure: float = 0.0
    ) -> None:
        cost, reward = view.cost, view.reward
        base_s = float(view.base_step_s[kind])
        self.judge = PlanJudge(
            domains=cost.domains,
            runtime=cost.runtime,
            power_law=cost.power_law,
            tables=cost.tables,
            workload=cost.workload(kind),
            bandwidth=BYTES_PER_GBIT * np.array(view.bandwidth_gbps, dtype=np.float64),
            latency_s=np.array(view.latency_s, dtype=np.float64),
            free_devices=np.array(free_devices, dtype=np.int64),
            formats=np.ascontiguousarray(tables.formats[kind][tables.domain_class]),
            batch=float(view.kinds[kind].batch_size),
            base_s=base_s,
            per_device_second=float(reward.w_eff * queue_pressure / base_s),
            w_eff=float(reward.w_eff),
            w_util=float(reward.w_util),
            w_cost=float(reward.w_cost),
            base_usd=float(view.base_cost_usd[kind]),
            usd_per_j=float(usd_per_j(reward)),
            usd_per_g=float(usd_per_g(reward)),
        )
        self.scratch = make_scratch(view.max_segments * MAX_PP, int(view.kinds[kind].batch_size))
        places = 2**MEMORY_BITS
        self.memory = StageMemory(np.zeros(places, dtype=np.int64), np.zeros((places, len(STAGE_COLUMNS))))
        self.seen = self.priced = 0

    def best(
        self, rows: IntArray, counts: IntArray, owner: IntArray, reached: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Find the best plan of every owner.

        Args:
            rows: Plans, shape ``(n, P, 11)``; the number of microbatches is written into those that may be the best.
            counts: Rows in use, shape ``(n,)``.
            owner: Whose plan each is, in order, shape ``(n,)``.
            reached: Reward that every owner has already, shape ``(n_owners,)``.

        Returns:
            Index of the best plan of every owner, −1 where none is better than what it has, and its reward.
        """
        self.seen += len(rows)
        edges = np.searchsorted(owner, np.arange(len(reached) + 1))
        at = np.full(len(reached), -1, dtype=np.int64)
        best = np.array(reached, dtype=np.float64)
        # One layout: a kernel for rows with gaps between them would be compiled beside the one for rows without.
        packed = np.ascontiguousarray(rows)
        self.priced += _best(self.judge, self.scratch, self.memory, packed, counts, edges, at, best)
        if packed is not rows:
            rows[...] = packed
        return at, best

    def recut(self, rows: IntArray, counts: IntArray) -> None:
        """Cut the layers anew between the segments of each plan, in place: the slowest stage is as fast as can be.

        A plan whose segments cannot hold the model stays as it is.
        """
        self.seen += len(rows)
        packed = np.ascontiguousarray(rows)
        _recut(self.judge, self.scratch.layers[0], self.memory, packed, counts)
        if packed is not rows:
            rows[...] = packed


@kernel(allocates=True)
def _best(
    k: PlanJudge,
    scratch: Scratch,
    memory: StageMemory,
    rows: IntArray,
    counts: IntArray,
    edges: IntArray,
    at: IntArray,
    best: FloatArray,
) -> int:
    """Write index and reward of the best plan of each owner; returns how many plans were priced."""
    # Each pass is a loop of its own: handing all these arrays to a function costs more than the work on a plan.
    samples = _shared(k, rows, counts)
    longest_s = np.full(counts.size, np.inf)
    if k.w_eff > 0.0:
        for o in range(best.size):
            for p in range(edges[o], edges[o + 1]):
                # Were its devices always busy and free of charge, this step time would do.
                worth_s = step_at_kernel((best[o] - max(0.0, k.w_util)) / k.w_eff, k.base_s)
                longest_s[p] = worth_s * samples[p] / k.batch * (1.0 + ROUNDING)
    bound = _bounds(k, scratch.layers[0], memory, rows, counts, samples, longest_s)
    priced = 0
    for o in range(best.size):
        own = bound[edges[o] : edges[o + 1]]
        while own.size:
            following = np.argmax(own)
            if not own[following] > best[o] + LEAST_GAIN:
                break
            own[following] = -np.inf
            p = edges[o] + following
            reward = _reward(k, scratch, rows[p], counts[p], samples[p])
            priced += 1
            if reward > best[o] + LEAST_GAIN:
                at[o], best[o] = p, reward
    return priced


@kernel(allocates=True)
def _shared(k: PlanJudge, rows: IntArray, counts: IntArray) -> FloatArray:
    """Let replicas share the batch as the cluster does; samples of a step, 0 for a plan that is not well formed."""
    samples = np.zeros(counts.size)
    for n in range(counts.size):
        count, sound = counts[n], True
        for p in range(count):
            row, domain = rows[n, p], rows[n, p, DOMAIN]
            fault = segment_fault(
                row[STOP] - row[FIRST], row[DP], row[TP], row[PP], row[MICROBATCH], k.free_devices[domain],
                k.domains.rows[domain].node_devices, k.formats[domain, row[PRECISION]], True,
            )  # fmt: skip
            sound &= fault == VALID
        if not sound:
            continue
        if rows[n, count - 1, REPLICA] == 0:
            number = max(1, round(k.batch / rows[n, 0, MICROBATCH]))
            for p in range(count):
                rows[n, p, MICROBATCHES] = number
        else:
            replicas = rows[n, count - 1, REPLICA] + 1
            share_batch(k.tables, k.domains, k.workload.model, k.batch, rows[n], count, replicas)
        for p in range(count):
            if p == 0 or rows[n, p, REPLICA] != rows[n, p - 1, REPLICA]:
                samples[n] += rows[n, p, MICROBATCH] * rows[n, p, MICROBATCHES]
    return samples


@kernel
def _devices(rows: IntArray, count: int) -> int:
    devices = 0
    for p in range(count):
        devices += rows[p, DP] * rows[p, TP] * rows[p, PP]
    return devices


@kernel(allocates=True)
def _bounds(
    k: PlanJudge,
    cuts: IntArray,
    memory: StageMemory,
    rows: IntArray,
    counts: IntArray,
    samples: FloatArray,
    longest_s: FloatArray,
) -> FloatArray:
    """At most what each plan is worth; −∞ if it does not fit or its step takes longer than ``longest_s``.

    A replica is walked through from its last stage to its first; the bounds are those of ``exact/bounds.py``.
    """
    training, model, times, links = k.workload.training, k.workload.model, k.tables.times_s, k.bandwidth
    found = np.full(counts.size, -np.inf)
    for n in range(counts.size):
        least_s, busy_s, out = 0.0, 0.0, samples[n] == 0.0
        tail_s, round_s, forward_s, there_s, after = 0.0, 0.0, 0.0, 0.0, 0
        for p in range(counts[n] - 1, -1, -1):
            if out:
                break
            domain, first, stop = rows[n, p, DOMAIN], rows[n, p, FIRST], rows[n, p, STOP]
            dp, tp, pp, precision = rows[n, p, DP], rows[n, p, TP], rows[n, p, PP], rows[n, p, PRECISION]
            micro, m = rows[n, p, MICROBATCH], rows[n, p, MICROBATCHES]
            here = k.domains.rows[domain]
            cuts[0], cuts[1] = first, stop
            if pp > 1:
                split_stages(times[model, here.gpu, precision, tp_index(tp), 0], first, stop, pp, 0, cuts)
            for part in range(pp - 1, -1, -1):
                a, z = cuts[part], cuts[part + 1]
                slot, key = place_of(domain, a, z, dp, tp, precision, micro)
                if memory.keys[slot] != key:
                    remember(k, memory, slot, key, rows[n, p], a, z)
                stage = memory.stages
                there, back = 0.0, 0.0
                if after > 0:
                    volume = micro * (4.0 if precision == 0 else 2.0) * k.tables.boundary[model, z]
                    if part + 1 < pp:
                        there = here.fabric_latency_s + volume / dp / here.fabric_bytes_per_s
                        back = there
                    else:
                        other = rows[n, p + 1, DOMAIN]
                        there = k.latency_s[domain, other] + volume / links[domain, other]
                        back = k.latency_s[other, domain] + volume / links[other, domain]
                    if not training:
                        back = 0.0
                forward, backward = stage[slot, FORWARD_S], stage[slot, BACKWARD_S]
                wait, work = there + round_s + back, forward + backward
                ahead = min(m, after + 1) if training else m
                opening = max(0.0, wait - (ahead - 1) * forward)
                closing = max(0.0, wait - (ahead - 1) * backward)
                bound = m * work + (opening + closing if training and m - 1 >= ahead else max(opening, closing))
                if training:
                    bound = max(bound, np.ceil(m / ahead) * (work + wait))
                if after > 0:
                    bound = max(bound, work + wait + (m - 1) * max(there, back))
                    bound = max(bound, work + there + back + tail_s)
                    # The interface of the stage behind sends both ways, one message at a time.
                    bound = max(bound, work + there + forward_s + m * (there_s + back))
                held = stage[slot, FIXED_BYTES] + min(m, after + 1) * stage[slot, HELD_BYTES]
                out |= held > here.memory_bytes or bound > longest_s[n]
                tail_s, round_s, forward_s, there_s = bound, work + wait, forward, there
                after += 1
                busy_s += m * work / pp
                if p == 0 or rows[n, p - 1, REPLICA] != rows[n, p, REPLICA]:
                    least_s = max(least_s, tail_s + (stage[slot, END_S] if part == 0 else 0.0))
            if p > 0 and rows[n, p - 1, REPLICA] != rows[n, p, REPLICA]:
                tail_s, round_s, forward_s, there_s, after = 0.0, 0.0, 0.0, 0.0, 0
        if not out:
            least_s *= 1.0 - ROUNDING
            utilisation = min(1.0, busy_s / (counts[n] * least_s))
            least_s *= k.batch / samples[n]
            found[n] = total_kernel(r_eff_kernel(least_s, k.base_s), utilisation, 0.0, k.w_eff, max(0.0, k.w_util), 0.0)
            found[n] -= k.per_device_second * _devices(rows[n], counts[n]) * least_s
    return found


@kernel(allocates=True)
def _recut(k: PlanJudge, cuts: IntArray, memory: StageMemory, rows: IntArray, counts: IntArray) -> None:
    """Dynamic program over segments and layers: least time of the slowest stage, then least time of all."""
    model = k.workload.model
    layers, times = k.tables.n_layers[model], k.tables.times_s
    slowest, total = np.empty((rows.shape[1] + 1, layers + 1)), np.empty((rows.shape[1] + 1, layers + 1))
    before = np.zeros((rows.shape[1] + 1, layers + 1), dtype=np.int64)
    samples = _shared(k, rows, counts)
    for n in range(counts.size):
        begin = 0
        while begin < counts[n]:
            stop = begin
            after = 0
            while stop < counts[n] and rows[n, stop, REPLICA] == rows[n, begin, REPLICA]:
                after += rows[n, stop, PP]
                stop += 1
            slowest[begin : stop + 1], total[begin : stop + 1] = np.inf, np.inf
            slowest[begin, 0], total[begin, 0] = 0.0, 0.0
            for p in range(begin, stop):
                domain, dp, tp = rows[n, p, DOMAIN], rows[n, p, DP], rows[n, p, TP]
                pp, precision = rows[n, p, PP], rows[n, p, PRECISION]
                micro, m = rows[n, p, MICROBATCH], rows[n, p, MICROBATCHES]
                here = k.domains.rows[domain]
                after -= pp
                ends = range(layers, layers + 1) if p == stop - 1 else range(1, layers + 1)
                for z in ends:
                    # A longer segment needs more memory: the first that overflows is the last to look at.
                    for a in range(z - pp, -1, -1):
                        if slowest[p, a] == np.inf:
                            continue
                        cuts[0], cuts[1] = a, z
                        if pp > 1:
                            split_stages(times[model, here.gpu, precision, tp_index(tp), 0], a, z, pp, 0, cuts)
                        worst, work, fits = slowest[p, a], total[p, a], True
                        for part in range(pp):
                            slot, key = place_of(domain, cuts[part], cuts[part + 1], dp, tp, precision, micro)
                            if memory.keys[slot] != key:
                                remember(k, memory, slot, key, rows[n, p], cuts[part], cuts[part + 1])
                            stage = memory.stages
                            held = min(m, after + pp - part) * stage[slot, HELD_BYTES]
                            fits &= stage[slot, FIXED_BYTES] + held <= here.memory_bytes
                            passes = stage[slot, FORWARD_S] + stage[slot, BACKWARD_S]
                            worst, work = max(worst, passes), work + passes
                        if not fits:
                            break
                        if (worst, work) < (slowest[p + 1, z], total[p + 1, z]):
                            slowest[p + 1, z], total[p + 1, z], before[p + 1, z] = worst, work, a
            if samples[n] > 0.0 and slowest[stop, layers] < np.inf:
                z = layers
                for p in range(stop - 1, begin - 1, -1):
                    rows[n, p, STOP] = z
                    z = before[p + 1, z]
                    rows[n, p, FIRST] = z
            begin = stop


@kernel(allocates=True)
def _reward(k: PlanJudge, scratch: Scratch, rows: IntArray, count: int, samples: float) -> float:
    """What a plan that fits is worth: ``reward.worth`` for one plan."""
    plan_out, segment_out = np.zeros(len(PLAN_COLUMNS)), np.zeros((count, len(SEGMENT_COLUMNS)))
    traffic = np.zeros(k.bandwidth.shape)
    plan_cost(
        k.domains, k.runtime, k.power_law, k.tables, k.workload, k.bandwidth, k.latency_s, rows, count, 0,
        np.ones(count), False, scratch, plan_out, segment_out, traffic,
    )  # fmt: skip
    norm = k.batch / samples
    step_s = plan_out[STEP_S] * norm
    dollars = norm * cost_usd_kernel(
        plan_out[BILL_USD], plan_out[ENERGY_J], plan_out[CARBON_G], k.usd_per_j, k.usd_per_g
    )
    eff, cost = r_eff_kernel(step_s, k.base_s), r_cost_kernel(dollars, k.base_usd)
    reward = total_kernel(eff, plan_out[UTILISATION], cost, k.w_eff, k.w_util, k.w_cost)
    return float(reward - k.per_device_second * _devices(rows, count) * step_s)


# ------ Iterated local search for a decision that stands alone: descents from several plans, perturbations of where
# they end
#
# A descent takes small changes first: cuts, then orders, then everything. Where it ends, the best plan is perturbed:
# its
# segments are put in an order some changes away, some get another layout, domain or microbatch, and the layers are cut
# anew between them. The best of many such plans are searched around again, until so many plans were looked at. Nothing
# depends on a clock unless somebody says that time has expired: the same seed finds the same plan.

PERTURBED, SEARCHED = 24, 4
"""Plans perturbed at a time, and how many of these, the best, are searched around."""

PROMISING = 0.05
"""Share by which a plan may be worse than the best and still be looked at with all kinds of changes."""

ITERATED_ROUNDS = 60
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
        near, tables = search.neighbourhood, search.tables
        self._microbatches: list[int] = near.microbatches.tolist()
        self._free: list[int] = np.asarray(near.free_devices).tolist()
        # Layouts of as many devices as each domain has, a power of two.
        nodes = np.asarray(tables.domains.rows.node_devices).tolist()
        largest = [1 << free.bit_length() - 1 if free > 0 else 0 for free in self._free]
        self._layouts: list[list[list[int]]] = [
            tables.layouts[(tables.sizes == most) & (tables.layouts[:, 1] <= node)].tolist()
            for most, node in zip(largest, nodes, strict=True)
        ]
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
            rows: Plans to begin with, shape ``(n, P, 11)``.
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
        proposals = self.priced(np.concatenate([rows, again]), np.concatenate([counts, counts]))
        chosen: dict[bytes, Candidate] = {}
        for plan in proposals:
            if len(chosen) < starts:
                chosen.setdefault(plan.rows[: plan.used, DOMAIN].tobytes(), plan)
        if not chosen:
            return None
        optima = _distinct(self.descend(list(chosen.values()), few))
        best = _distinct(self.descend(optima[:keep], [*few, near.everything]))[0]
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
        for _ in range(ITERATED_ROUNDS):
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
        # A handful of numbers: arrays would take ten times as long as lists.
        rows, count, draw = plan.rows.tolist(), plan.used, self.source
        replica = draw.integers(rows[count - 1][REPLICA] + 1)
        inside = [p for p in range(count) if rows[p][REPLICA] == replica]
        changes = draw.random(3)
        if changes[0] < 0.25:
            microbatch = self._drawn(self._microbatches)
            for p in inside:
                rows[p][MICROBATCH] = microbatch
        if changes[1] < 0.25:
            used = [row[DOMAIN] for row in rows[:count]]
            idle = [k for k, free in enumerate(self._free) if free > 0 and k not in used]
            if idle:
                row = rows[self._drawn(inside)]
                row[DOMAIN] = self._drawn(idle)
                self._lay_out(row)
        if changes[2] < 0.5:
            self._lay_out(rows[self._drawn(inside)])
        for p in inside:
            if rows[p][MICROBATCH] % rows[p][DP]:
                self._lay_out(rows[p])
        order, near = list(range(len(inside))), _listed_orders(len(inside))
        for _ in range(int(draw.integers(1, 4)) if near else 0):
            order = [order[at] for at in self._drawn(near)]
        stop = 0
        for p, row in zip(inside, [rows[inside[at]] for at in order], strict=True):
            first, stop = stop, stop + row[STOP] - row[FIRST]
            rows[p] = row
            row[FIRST], row[STOP] = first, stop
        return np.array(rows, dtype=np.int64), count

    def _lay_out(self, row: list[int]) -> None:
        """Give a segment another layout of as many devices as its domain has, by chance."""
        length = row[STOP] - row[FIRST]
        fits = [each for each in self._layouts[row[DOMAIN]] if row[MICROBATCH] % each[0] == 0 and each[2] <= length]
        if fits:
            row[DP], row[TP], row[PP] = self._drawn(fits)

    def _drawn(self, among: Sequence[T]) -> T:
        """One of some by chance."""
        return among[int(self.source.integers(len(among)))]


@functools.cache
def _listed_orders(count: int) -> list[list[int]]:
    listed: list[list[int]] = orders_near(count).tolist()
    return listed


def _never() -> bool:
    return False


def _distinct(plans: list[Candidate]) -> list[Candidate]:
    """Different plans, best first."""
    distinct: dict[bytes, Candidate] = {}
    for plan in sorted(plans, key=lambda each: -each.reward):
        distinct.setdefault(plan.rows[: plan.used].tobytes(), plan)
    return list(distinct.values())


# ------ The best plan for a task by itself: a wide search around what the policy proposes
#
# For a model that no single domain holds, or a task that nothing else competes with, the snapshot is all there is to
# judge by: nothing is gained by keeping devices free inside the domains, so the search may change everything.

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
