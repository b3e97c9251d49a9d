"""The look-ahead bound: what nobody can earn more than in an episode, not even with the whole future known.

The network and the arrivals of an episode follow from its seed, whatever a policy does. Each task is taken by itself:
in an empty cluster, on the network as it will be, free to wait, start, move and stand idle at any moment. The best it
can earn there bounds what it earns among others, because they can only take away: devices, bandwidth (lower speed,
lower R_util, no lower bill) and latency. The sum over tasks bounds the return of every policy.

:func:`best_sequence` gives the other side: the best plans over time with changes at the network's ticks, a course that
can be carried out. What separates the two is in ``Lookahead.reward`` and ``Lookahead.bound``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from attribution_sched.cluster.arrivals import ArrivalKind, next_arrival
from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.engine.state import K_BASE_COST, K_BASE_STEP
from attribution_sched.cluster.incidents import I_END, I_START, cut_links, pack
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.streams import integers, seed_stream
from attribution_sched.cluster.wan import WanProcess
from attribution_sched.cluster.world import World
from attribution_sched.errors import PlanError, SettingsError, problem
from research.lookahead_plans import (
    MAX_PLANS,
    Prices,
    all_plans,
    extremes_worth_having,
    placements,
    price_plans,
    ways_to_work,
    worth_having,
)
from research.lookahead_search import FRONT, TOO_MANY_LABELS, Course, search

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CELL_S = 60.0
"""Longest cell of the bound's grid of time; pauses are rounded down to whole cells."""

SHORTEST_CELL_S = 15.0
"""Cells are as short as the shortest pause, but no shorter than this."""

LABELS = 2_000_000
"""Most labels of one search for a sequence."""


@dataclass(frozen=True)
class NetworkPath:
    """The network of an episode.

    Attributes:
        times_s: When bandwidth changes, the start included, shape ``(T,)``.
        bytes_per_s: Bandwidth from then on, shape ``(T, K, K)``.
    """

    times_s: FloatArray
    bytes_per_s: FloatArray


@dataclass(frozen=True)
class Arrival:
    """A task of an episode.

    Attributes:
        number: Its place in the order of arrival.
        time_s: When it arrives.
        kind_index: Its kind.
        pool: Its instance in the world's pool.
        steps: Its work.
    """

    number: int
    time_s: float
    kind_index: int
    pool: int
    steps: float


@dataclass(frozen=True)
class Lookahead:
    """What one task alone can earn with the future known.

    Attributes:
        arrival: The task.
        reward: Return of the best sequence with changes at ticks.
        bound: No sequence with changes at any time earns more.
        changes: Moments and plans of that sequence; empty if it never starts.
        plans: Plans the search could choose from, and how many of them it had to.
    """

    arrival: Arrival
    reward: float
    bound: float
    changes: tuple[tuple[float, Plan], ...]
    plans: tuple[int, int]

    def plan_at(self, time_s: float) -> Plan | None:
        """The plan in force (or moved to) at a time; None while the task waits."""
        begun = [plan for start_s, plan in self.changes if start_s <= time_s + 1e-6]
        return begun[-1] if begun else None


@dataclass(frozen=True)
class EpisodeLimit:
    """An upper bound on the return of every policy in one episode.

    Attributes:
        seed: The episode.
        reward: The bound.
        arrivals: Its tasks.
        bounds: What each task can contribute at most; their sum is ``reward``.
        plans: Plans each task could choose from, and how many of them the search had to.
    """

    seed: int
    reward: float
    arrivals: tuple[Arrival, ...]
    bounds: tuple[float, ...]
    plans: tuple[tuple[int, int], ...]


def network_path(world: World, seed: int) -> NetworkPath:
    """The bandwidth of every link over an episode; no policy can change it."""
    stream, _ = SeedSequence(seed).spawn(2)
    process = WanProcess(world.cluster.wan, stream)
    incidents = pack(world.incidents)
    times, links = [], []
    time_s = 0.0
    while time_s < world.horizon_s:
        now = np.array(process.bandwidth_gbps * BYTES_PER_GBIT)
        cut_links(incidents, time_s, now)
        times.append(time_s)
        links.append(now)
        time_s += world.tick_s
        process.step(world.tick_s)
    return NetworkPath(np.array(times), np.array(links))


def arrivals_of(world: World, seed: int) -> tuple[Arrival, ...]:
    """The tasks that arrive in an episode, whether or not the queue has room for them."""
    return _arrivals(Engine(world), seed)


def best_sequence(world: World, seed: int, arrival: Arrival, plans: Sequence[Plan] | None = None) -> Lookahead:
    """The best plans over time for one task alone in the cluster, with the network of the whole episode known.

    Changes happen at ticks of the network; the first plan may start at the arrival.

    Args:
        world: The scheduling problem.
        seed: The episode.
        arrival: The task, one of :func:`arrivals_of`.
        plans: Plans to choose from, as the cluster shares out their batch; every plan there is by default.

    Raises:
        SettingsError: If the world shares or caps devices, has prices that change, or pays by the decision.
        PlanError: If there are too many plans, or none fits.
    """
    return Clairvoyant(world).best_sequence(seed, arrival, plans)


def episode_limit(world: World, seed: int) -> EpisodeLimit:
    """Bound the return of every policy in an episode.

    Raises:
        SettingsError: If the world shares or caps devices, has prices that change, or pays by the decision.
        PlanError: If there are too many plans.
    """
    return Clairvoyant(world).limit(seed)


def episode_limits(world: World, seeds: Iterable[int]) -> tuple[float, ...]:
    """Bounds of many episodes of one world: what ``evaluate(..., bounds={scenario: ...})`` takes."""
    seer = Clairvoyant(world)
    return tuple(seer.limit(seed).reward for seed in seeds)


class Clairvoyant:
    """Looks ahead in episodes of one world.

    Args:
        world: A small scheduling problem without shared devices.
        max_plans: Most plans of a task kind.
        cell_s: Longest cell of the bound's grid; shorter is tighter and slower.
    """

    def __init__(self, world: World, max_plans: int = MAX_PLANS, cell_s: float = CELL_S) -> None:
        _check(world, cell_s)
        self.world = world
        self.engine = Engine(world)
        self.max_plans = max_plans
        pause_s = min(max(world.restart_s, SHORTEST_CELL_S), cell_s)
        self.cell_s = world.tick_s / math.ceil(world.tick_s / pause_s - 1e-9)
        self._plans: dict[int, PlanBatch] = {}
        self._useful: dict[int, PlanBatch] = {}
        self._extremes = _extremes(world)

    def limit(self, seed: int) -> EpisodeLimit:
        """Bound the return of every policy in an episode; see :func:`episode_limit`."""
        path = network_path(self.world, seed)
        arrivals = _arrivals(self.engine, seed)
        bounds, sizes = [], []
        for arrival in arrivals:
            batch, prices = self.candidates(path, arrival)
            most = self._never_placed(arrival) if len(batch) == 0 else self._bound(path, arrival, batch, prices)
            # A task that finds the queue full leaves at no cost. Before so many have come, it cannot.
            if arrival.number >= self.world.queue_capacity:
                most = max(most, 0.0)
            bounds.append(most)
            sizes.append((len(self.every_plan(arrival.kind_index)), len(batch)))
        return EpisodeLimit(seed, float(sum(bounds)), arrivals, tuple(bounds), tuple(sizes))

    def best_sequence(self, seed: int, arrival: Arrival, plans: Sequence[Plan] | None = None) -> Lookahead:
        """Find the best plans over time for one task; see :func:`best_sequence`."""
        path = network_path(self.world, seed)
        given = None if plans is None else PlanBatch.of(plans, self.world.max_segments)
        batch, prices = self.candidates(path, arrival, given)
        listed = len(plans) if plans is not None else len(self.every_plan(arrival.kind_index))
        if len(batch) == 0:
            fix = "Give other plans, or a larger cluster"
            raise PlanError(problem("plans", listed, "none of them fits the memory of the devices", fix))
        store = np.empty((LABELS, 3), dtype=np.int64)
        edges = np.append(path.times_s[path.times_s > arrival.time_s + 1e-6], self.world.horizon_s)
        course = self._course(path, arrival, batch, prices, edges, self.world.tick_s)
        longest = math.ceil(float(course.pause_s.max()) / self.world.tick_s)
        reward, label, last = search(course, False, longest + 3, store)
        _check_room(label)
        changes = _changes(course, store, int(label), int(last), batch)
        bound = self._bound(path, arrival, batch, prices)
        return Lookahead(arrival, float(reward), bound, changes, (listed, len(batch)))

    def every_plan(self, kind_index: int) -> PlanBatch:
        """All plans of a kind, listed once."""
        if kind_index not in self._plans:
            self._plans[kind_index] = all_plans(self.engine, kind_index, self.max_plans)
        return self._plans[kind_index]

    def candidates(
        self, path: NetworkPath, arrival: Arrival, plans: PlanBatch | None = None
    ) -> tuple[PlanBatch, Prices]:
        """Plans that fit and that no other can stand in for, with their prices at every tick from the arrival on."""
        kind = arrival.kind_index
        batch = self.every_plan(kind) if plans is None else plans
        factors = self.engine.pool.demands.factors[arrival.pool]
        base_s = float(self.engine.arrays.kinds[kind, K_BASE_STEP]) / self.world.reward.interval_s
        links = path.bytes_per_s[_first_tick(path, arrival) :]
        if len(batch) == 0:
            return batch, Prices(*(np.zeros((0, len(links))) for _ in range(3)))
        if plans is None:
            if arrival.pool not in self._useful:
                ends = [price_plans(self.engine, kind, factors, batch, end) for end in self._extremes]
                group, _ = placements(self.engine, kind, batch)
                self._useful[arrival.pool] = _pick(batch, extremes_worth_having(ends[0], ends[1], group, base_s))
            batch = self._useful[arrival.pool]
        prices = price_plans(self.engine, kind, factors, batch, links)
        group, _ = placements(self.engine, kind, batch)
        kept = worth_having(prices, group, base_s, self._idle() if plans is None else np.inf)
        return _pick(batch, kept), Prices(prices.speed[kept], prices.reward[kept], prices.extras[kept])

    def _idle(self) -> float:
        """Utility that a second of standing idle costs: as much as any slow-down by others would, or less."""
        reward = self.world.reward
        return reward.w_eff * min(1.0, -self.world.waiting_r_eff) / reward.interval_s

    def _never_placed(self, arrival: Arrival) -> float:
        reward = self.world.reward
        return self.world.waiting_r_eff * reward.w_eff * (self.world.horizon_s - arrival.time_s) / reward.interval_s

    def _bound(self, path: NetworkPath, arrival: Arrival, batch: PlanBatch, prices: Prices) -> float:
        cells = round(self.world.tick_s / self.cell_s)
        grid = np.concatenate([t + self.world.tick_s * np.arange(cells) / cells for t in path.times_s])
        inside = (grid > arrival.time_s + 1e-6) & (grid < self.world.horizon_s - 1e-6)
        edges = np.append(grid[inside], self.world.horizon_s)
        course = self._course(path, arrival, batch, prices, edges, self.cell_s)
        if _perfect(course):
            return course.gain * course.steps
        speed, loss = ways_to_work(course.speed[:, 0], course.loss[:, 0], course.groups, self._idle())
        course = course._replace(speed=speed, loss=loss, groups=np.arange(len(speed)))
        longest = int(float(course.pause_s.max()) / self.cell_s)
        reward, label, _ = search(course, True, longest + 2, np.empty((0, 3), dtype=np.int64))
        _check_room(label)
        return float(reward)

    def _course(
        self, path: NetworkPath, arrival: Arrival, batch: PlanBatch, prices: Prices, edges: FloatArray, cell_s: float
    ) -> Course:
        world, kind = self.world, self.engine.arrays.kinds[arrival.kind_index]
        weights = world.reward
        base_s = float(kind[K_BASE_STEP]) / weights.interval_s
        group, moved = placements(self.engine, arrival.kind_index, batch)
        links = path.bytes_per_s[_first_tick(path, arrival) :]
        seconds = (moved[None] / links[:, None, None]).max(axis=(3, 4))
        dollars = (moved * self.engine.cost.domains.price_usd_per_byte).sum(axis=(2, 3))
        per_usd = weights.w_cost / float(kind[K_BASE_COST]) * base_s if kind[K_BASE_COST] > 0.0 else 0.0
        # Not below 0: otherwise work that is left undone at the horizon would count for more than work done.
        best = max(0.0, float(prices.reward.max()))
        edges = np.concatenate([[arrival.time_s], edges])
        middle = (edges[:-1] + edges[1:]) / 2.0
        ticks = np.searchsorted(path.times_s, middle, side="right") - 1 - _first_tick(path, arrival)
        return Course(
            edges_s=edges,
            ticks=ticks.astype(np.int64),
            speed=prices.speed[:, None],
            loss=((best - prices.reward) * base_s * prices.speed)[:, None],
            groups=group,
            pause_s=world.restart_s + seconds,
            charge=dollars * per_usd,
            wait=-world.waiting_r_eff * weights.w_eff / weights.interval_s,
            steps=arrival.steps,
            gain=best * base_s,
            cell_s=cell_s,
        )


def _check(world: World, cell_s: float) -> None:
    if world.share_limit > 1:
        rule = "must be 1: a task that is slowed on a shared device is busier, so that sharing may raise its R_util"
        raise SettingsError(problem("share_limit", world.share_limit, rule, "Bound the world with share_limit=1"))
    if world.reward.per_decision:
        rule = "must be False: the bound adds up what work pays"
        raise SettingsError(problem("reward.per_decision", True, rule, "Use a world that pays as work gets done"))
    if world.cluster.cap_levels:
        rule = "must be empty: plans are listed without power caps of their own"
        fix = "Bound the world without cap levels"
        raise SettingsError(problem("cap_levels", list(world.cluster.cap_levels), rule, fix))
    by_hour = "electricity" if any(d.electricity is not None for d in world.cluster.domains) else ""
    if world.reward.carbon_usd_per_kg > 0.0 and any(d.carbon is not None for d in world.cluster.domains):
        by_hour = "carbon"
    if by_hour:
        rule = "must not change by the hour: plans are priced at one price of it"
        raise SettingsError(problem(f"domains.{by_hour}", "a signal", rule, "Bound the world with constant prices"))
    if world.waiting_r_eff > 0:
        rule = "must be <= 0: if waiting pays, there is no best sequence to look for"
        raise SettingsError(problem("waiting_r_eff", world.waiting_r_eff, rule, "Use -1"))
    if not cell_s > 0:
        raise SettingsError(problem("cell_s", cell_s, "must be > 0", f"Use {CELL_S:g} seconds"))


def _check_room(label: int) -> None:
    if label == TOO_MANY_LABELS:
        rule = f"more than {FRONT} on one plan at one moment, or {LABELS:,} in all"
        raise PlanError(
            problem("labels of the look-ahead search", f"> {FRONT}", rule, "Give fewer plans to choose from")
        )


def _perfect(course: Course) -> bool:
    """Whether some plan, kept from the arrival on, ends the work and loses nothing: nobody can earn more."""
    work = course.speed[:, 0, course.ticks] @ np.diff(course.edges_s)
    return bool(((course.loss[:, 0, course.ticks] == 0.0).all(axis=1) & (work >= course.steps)).any())


def _arrivals(engine: Engine, seed: int) -> tuple[Arrival, ...]:
    spec, pool = engine.world.arrivals.spec(), engine.pool
    _, tasks = SeedSequence(seed).spawn(2)
    stream = seed_stream(tasks)
    found: list[Arrival] = []
    time_s = float(next_arrival(*spec, 0, 0.0, stream))
    while time_s < engine.world.horizon_s:
        number = len(found)
        at = number % len(pool) if spec.kind == ArrivalKind.TRACE else int(integers(stream, len(pool)))
        found.append(Arrival(number, time_s, int(pool.kinds[at]), at, float(pool.steps[at])))
        time_s = float(next_arrival(*spec, number + 1, time_s, stream))
    return tuple(found)


def _extremes(world: World) -> tuple[FloatArray, FloatArray]:
    """The lowest and the highest bandwidth (bytes/s) that links can have in any episode, each ``(1, K, K)``."""
    wan = world.cluster.wan
    base = wan.bandwidth_gbps * BYTES_PER_GBIT
    if wan.trace is not None:
        multiplier = wan.trace.multiplier(wan.bandwidth_gbps)
        low, high = base * multiplier.min(axis=0), base * multiplier.max(axis=0)
    else:
        low, high = base * (1.0 - wan.bound), base * (1.0 + wan.bound)
    cuts = pack(world.incidents)
    # Whenever each cut is on, it is as if all were.
    cuts[:, I_START], cuts[:, I_END] = 0.0, np.inf
    low = np.array(low)
    cut_links(cuts, 0.0, low)
    return low[None], high[None]


def _first_tick(path: NetworkPath, arrival: Arrival) -> int:
    return int(np.searchsorted(path.times_s, arrival.time_s + 1e-6, side="right")) - 1


def _pick(batch: PlanBatch, chosen: NDArray[np.bool_]) -> PlanBatch:
    return PlanBatch(batch.segments[chosen], batch.counts[chosen], batch.schedules[chosen])


def _changes(
    course: Course, store: IntArray, label: int, last: int, batch: PlanBatch
) -> tuple[tuple[float, Plan], ...]:
    """Follow labels back to the placement; a plan is moved to at the moment of the label before it."""
    if label < 0:
        return ()
    found = [(float(course.edges_s[store[label, 2]]), last)] if last >= 0 else []
    while label >= 0:
        parent, plan, edge = (int(v) for v in store[label])
        if parent < 0 or store[parent, 1] != plan:
            begun = course.edges_s[edge if parent < 0 else store[parent, 2]]
            found.append((float(begun), plan))
        label = parent
    return tuple((time_s, batch.plan(plan)) for time_s, plan in reversed(found))
