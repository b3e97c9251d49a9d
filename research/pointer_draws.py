"""Decisions to learn from and to be judged on, and the plan the exact search gave each: one JSON line per decision.

Decisions are drawn at random: real regions, named models, any number of free devices. A :class:`WorldDraw` is a small
record that rebuilds a cluster and its kinds of tasks; a :class:`DrawnDecision` is one moment in it. Both are plain
numbers and names, so that a file of them can be read by anybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.models import Model, model
from attribution_sched.cluster.plan import DOMAIN, Plan, PlanBatch
from attribution_sched.cluster.regions import region_names, wan_between
from attribution_sched.cluster.reward import baseline_costs, value
from attribution_sched.cluster.world import Cluster, Domain, Reward, Runtime, TaskKind, World
from attribution_sched.errors import SettingsError, TaskError, nearest, problem
from attribution_sched.planning.exact.problem import problem_of
from attribution_sched.planning.exact.solver import ExactSolver, evaluate, improve
from attribution_sched.rivals.splits import SpeedProportional
from attribution_sched.types import FloatArray, IntArray

TRAINED_MODELS = (
    "llama-2-70b", "opt-66b", "llama-3-70b", "opt-30b", "gpt3-13b", "llama-2-13b", "llama-2-7b", "gpt3-6.7b",
    "llama-3-8b", "gpt3-2.7b", "gpt2-xl", "bert-large", "vit-l-16",
)  # fmt: skip
"""Models of 26 to 82 layers."""

LARGE = 4
"""So many of them, the first, fill a domain or more; every drawn world has at least one."""

STRETCH = "stretched:"
"""Prefix of a model whose blocks are repeated: ``stretched:llama-2-70b:124`` has 124 layers."""

MOTION = 0.3
"""Links wander by at most this share of their base."""


@dataclass(frozen=True)
class WorldDraw:
    """A cluster and its kinds of tasks, by name.

    Attributes:
        regions: Where the domains are.
        gpus: Device type of every domain.
        devices: Devices of every domain.
        kinds: Model, batch size and smallest microbatch of every kind of task; the other three microbatches are
            twice, four and eight times as large.
        max_segments: Most domains a plan may use.
    """

    regions: tuple[str, ...]
    gpus: tuple[str, ...]
    devices: tuple[int, ...]
    kinds: tuple[tuple[str, int, int], ...]
    max_segments: int


@dataclass(frozen=True, eq=False)
class DrawnDecision:
    """One moment in a drawn world.

    Attributes:
        kind: Row of the task to place.
        free: Free devices of every domain.
        bandwidth_gbps: Links of the moment, shape ``(K, K)``.
        weights: w_eff, w_util and w_cost.
    """

    kind: int
    free: tuple[int, ...]
    bandwidth_gbps: FloatArray
    weights: tuple[float, float, float]


@dataclass(frozen=True)
class Range:
    """From where worlds and decisions are drawn.

    Attributes:
        domains: Fewest and most domains.
        models: Models to draw from; the first ``large`` of them fill a domain or more.
        large: How many do.
        max_segments: Segments a plan may have, drawn with equal chance.
        sizes: Devices of the domains of a world; 0 draws 4, 8 or 16 for each.
        size_odds: How often each is drawn.
    """

    domains: tuple[int, int] = (3, 6)
    models: tuple[str, ...] = TRAINED_MODELS
    large: int = LARGE
    max_segments: tuple[int, ...] = (4, 4, 4, 3, 2)
    sizes: tuple[int, ...] = (0, 8, 16, 32)
    size_odds: tuple[float, ...] = (0.15, 0.2, 0.55, 0.1)


def named_model(name: str) -> Model:
    """Look up a model of the zoo, or a stretched one."""
    if not name.startswith(STRETCH):
        return model(name)
    base, count = name.removeprefix(STRETCH).split(":")
    known = model(base)
    kinds = [layer.kind for layer in known.layers]
    first = kinds.index("block")
    extra = int(count) - len(known)
    layers = known.layers[:first] + (known.layers[first],) * extra + known.layers[first:]
    return replace(known, name=name, layers=layers, published_params=float(sum(layer.params for layer in layers)))


def draw_world(rng: np.random.Generator, among: Range | None = None) -> WorldDraw:
    """Draw a world that holds at least two of its kinds of tasks."""
    among = among or Range()
    while True:
        k = int(rng.integers(among.domains[0], among.domains[1] + 1))
        regions = tuple(str(name) for name in rng.choice(region_names(), k, replace=False))
        hardware = rng.choice(["A100-80", "H100-80", "mixed"], p=[0.5, 0.25, 0.25])
        pool = ("V100-32", "A100-40", "A100-80", "H100-80")
        gpus = tuple(str(g) for g in rng.choice(pool, k)) if hardware == "mixed" else (str(hardware),) * k
        size = int(rng.choice(among.sizes, p=among.size_odds))
        devices = tuple(int(n) for n in rng.choice([4, 8, 16], k)) if size == 0 else (size,) * k
        large = [str(n) for n in rng.choice(among.models[: among.large], min(2, among.large), replace=False)]
        rest = among.models[among.large :]
        small = [str(n) for n in rng.choice(rest, min(2, len(rest)), replace=False)]
        kinds = tuple(_draw_kind(rng, name) for name in (*large, *small))
        draw = WorldDraw(regions, gpus, devices, kinds, min(k, int(rng.choice(among.max_segments))))
        kept = tuple(kind for kind in kinds if _fits(draw, kind))
        if len(kept) >= min(2, len(kinds)):
            return replace(draw, kinds=kept)


def _draw_kind(rng: np.random.Generator, name: str) -> tuple[str, int, int]:
    params = named_model(name).params
    if params > 2e10:
        smallest = int(rng.choice([2, 4, 8]))
        return name, smallest * int(rng.choice([32, 64, 128])), smallest
    if params > 1e9:
        smallest = int(rng.choice([2, 4, 8, 16]))
        return name, smallest * int(rng.choice([32, 64])), smallest
    smallest = int(rng.choice([8, 16, 32, 64]))
    return name, smallest * int(rng.choice([16, 32])), smallest


def task_kind(name: str, batch_size: int, smallest: int) -> TaskKind:
    """Make a kind of training task with four microbatch sizes."""
    levels = (smallest, 2 * smallest, 4 * smallest, 8 * smallest)
    return TaskKind(named_model(name), batch_size, levels, (60, 600), 60)


def _cluster(draw: WorldDraw) -> Cluster:
    domains = tuple(
        Domain(region, gpu(name), count, min(8, count))
        for region, name, count in zip(draw.regions, draw.gpus, draw.devices, strict=True)
    )
    runtime = Runtime(recompute=True, zero_stage=1, sequence_parallel=True, flash_attention=True)
    return Cluster(domains, wan_between(draw.regions), runtime)


def _fits(draw: WorldDraw, kind: tuple[str, int, int]) -> bool:
    try:
        World(_cluster(draw), (task_kind(*kind),), Poisson(1.0), max_segments=draw.max_segments)
    except TaskError:
        return False
    return True


def build_view(draw: WorldDraw) -> Decision:
    """Build the world of a draw, empty and with its links at their base; :func:`at` sets the moment."""
    cluster = _cluster(draw)
    kinds = tuple(task_kind(*kind) for kind in draw.kinds)
    world = World(cluster, kinds, Poisson(1.0), max_segments=draw.max_segments)
    cost = CostModel(cluster, [kind.model for kind in kinds])
    base_step_s, base_cost_usd = baseline_costs(world, cost)
    return Decision(
        kind=kinds[0], kind_index=0, counters=np.zeros(len(COUNTER_NAMES)), replanning=False, current_plan=None,
        steps_left=100.0, time_s=0.0, slot=0, queue=(), free_devices=np.array(draw.devices, dtype=np.int64),
        bandwidth_gbps=np.array(cluster.wan.bandwidth_gbps), latency_s=np.array(cluster.wan.latency_s), cost=cost,
        kinds=kinds, reward=world.reward, base_step_s=base_step_s, base_cost_usd=base_cost_usd,
        restart_s=world.restart_s, max_segments=world.max_segments,
    )  # fmt: skip


def draw_decision(rng: np.random.Generator, draw: WorldDraw, base_gbps: FloatArray) -> DrawnDecision:
    """Draw a moment: which task, what is free, how the links are, what is wanted."""
    kind = int(rng.integers(len(draw.kinds)))
    free = []
    for count in draw.devices:
        how = rng.random()
        if how < 0.5:
            # Tasks take powers of two, so what they leave is often a round share.
            free.append(int(count * rng.choice([0.0, 0.25, 0.5, 0.75, 1.0, 1.0])))
        else:
            free.append(int(rng.integers(1, count + 1)))
    if not any(free):
        free[0] = draw.devices[0]
    links = base_gbps * rng.uniform(1.0 - MOTION, 1.0 + MOTION, base_gbps.shape)
    np.fill_diagonal(links, np.diag(base_gbps))
    how = rng.random()
    weights = (1.0, 0.5, 0.5)
    if how < 0.25:
        weights = (1.0, 0.0, 0.0)
    elif how < 0.4:
        weights = (1.0, float(np.round(rng.uniform(0.0, 1.0), 3)), float(np.round(rng.uniform(0.0, 1.0), 3)))
    return DrawnDecision(kind, tuple(free), np.round(links, 4), weights)


def at(view: Decision, decision: DrawnDecision) -> Decision:
    """Set the moment of a built world."""
    return replace(
        view,
        kind=view.kinds[decision.kind],
        kind_index=decision.kind,
        free_devices=np.array(decision.free, dtype=np.int64),
        bandwidth_gbps=np.array(decision.bandwidth_gbps),
        reward=Reward(*decision.weights),
    )


TEACHER_BUDGET = 50_000
"""Effort of the teacher's proof: as much as the policy that solves exactly spends on one decision."""

PER_WORLD = 16
"""Decisions drawn in one world before the next is drawn."""


@dataclass(frozen=True, eq=False)
class Trace:
    """What the teacher did at one decision.

    Attributes:
        world: The world.
        decision: The moment.
        rows: The teacher's plan as segment rows, shape ``(segments, 11)``.
        reward: What its plan is worth.
        step_s: Step time of its plan.
        proven: Whether no plan is better.
        seconds: Time it took.
    """

    world: WorldDraw
    decision: DrawnDecision
    rows: IntArray
    reward: float
    step_s: float
    proven: bool
    seconds: float


class Teacher(Protocol):
    """Solves decisions."""

    def solve(self, view: Decision) -> tuple[Plan, bool] | None:
        """Return a plan and whether no plan is better; None if nothing fits."""
        ...


class ExactTeacher:
    """The exact search.

    Args:
        budget: Effort of the proof.
    """

    def __init__(self, budget: int = TEACHER_BUDGET) -> None:
        self._solver = ExactSolver(budget)

    def solve(self, view: Decision) -> tuple[Plan, bool] | None:
        """Search everything."""
        found = self._solver.try_solve(problem_of(view))
        return None if found is None else (found.plan, bool(found.proven))


class SearchTeacher:
    """Speed-proportional plans improved by small changes: thirty times faster, and nearly always the same plan.

    Args:
        starts: Plans over different domains that are improved.
    """

    def __init__(self, starts: int = 4) -> None:
        self._starts = starts
        self._rule = SpeedProportional()

    def solve(self, view: Decision) -> tuple[Plan, bool] | None:
        """Improve the best plans of the rule and take the best."""
        task = problem_of(view)
        options = task.options()
        batch = self._rule.candidates(view)
        if len(batch) == 0:
            return None
        reward = value(view, batch).reward
        best: tuple[float, IntArray, int] | None = None
        seen: set[tuple[int, ...]] = set()
        for p in np.argsort(-reward, kind="stable"):
            if not np.isfinite(reward[p]) or len(seen) == self._starts:
                break
            count = int(batch.counts[p])
            key = tuple(int(d) for d in batch.segments[p, :count, DOMAIN])
            if key in seen:
                continue
            seen.add(key)
            rows = np.zeros((task.max_segments, batch.segments.shape[2]), dtype=np.int64)
            rows[:count] = batch.segments[p, :count]
            first = float(evaluate(task, rows[None], np.array([count]))[0])
            rows, count, reached = improve(task, options, rows, count, first)
            if best is None or reached < best[0]:
                best = reached, rows, count
        if best is None:
            return None
        plan = PlanBatch(best[1][None], np.array([best[2]]), np.zeros(1, dtype=np.int64)).plan(0)
        return plan, False


TEACHERS: dict[str, Callable[[], Teacher]] = {"exact": ExactTeacher, "search": SearchTeacher}


def teach(seed: int, among: Range | None = None, per_world: int = PER_WORLD, teacher: str = "exact") -> Iterator[Trace]:
    """Draw decisions without end and solve each; those where nothing fits are left out.

    Args:
        seed: The same seed gives the same decisions.
        among: From where to draw.
        per_world: Decisions in one world.
        teacher: ``exact`` or ``search``.
    """
    if teacher not in TEACHERS:
        raise SettingsError(problem("teacher", teacher, "is not known", nearest(teacher, TEACHERS)))
    rng = np.random.default_rng(seed)
    while True:
        world = draw_world(rng, among)
        view = build_view(world)
        solver = TEACHERS[teacher]()
        for _ in range(per_world):
            decision = draw_decision(rng, world, view.bandwidth_gbps)
            moment = at(view, decision)
            began = time.perf_counter()
            found = solver.solve(moment)
            if found is not None:
                spent_s = time.perf_counter() - began
                batch = PlanBatch.of([found[0]])
                worth = value(moment, batch)
                rows = batch.segments[0, : int(batch.counts[0])]
                reward, step_s = float(worth.reward[0]), float(worth.step_s[0])
                yield Trace(world, decision, rows, reward, step_s, found[1], spent_s)


def views_of(traces: Iterable[Trace]) -> Iterator[tuple[Trace, Decision]]:
    """Pair each trace with its decision as a policy would see it; a world is built once per run of its traces."""
    last: WorldDraw | None = None
    view: Decision | None = None
    for trace in traces:
        if view is None or trace.world != last:
            view, last = build_view(trace.world), trace.world
        yield trace, at(view, trace.decision)
