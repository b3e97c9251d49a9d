"""The exact optimum of one decision.

1. The best plan inside one domain.
2. Held–Karp over sets of domains: a bound on every pipeline, and the pipelines with the least bounds, priced by the
   recurrence; the best are improved by small changes.
3. A search of everything whose bound is below the best plan: it beats the plan or proves it the best. Replicas across
   domains are searched the same way.

If the budget of the third step runs out, the best plan is returned with the bound of the second: the optimum lies
between them.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.cost import BYTES_PER_GBIT, make_scratch
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    MAX_PP,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    SEGMENT_FIELDS,
    STOP,
    TP,
    Plan,
    PlanBatch,
)
from attribution_sched.cluster.validity import limits_of
from attribution_sched.errors import PlanError, problem
from attribution_sched.planning.exact.bounds import floors
from attribution_sched.planning.exact.chains import Listing, Space, search_chains
from attribution_sched.planning.exact.held_karp import held_karp
from attribution_sched.planning.exact.problem import Objective, Problem
from attribution_sched.planning.exact.profiles import SegmentProfiles
from attribution_sched.planning.exact.replicas import combine
from attribution_sched.planning.local_search import ONE_PIPELINE, Candidate, Neighbourhood, descend
from attribution_sched.planning.segment_table import hardware_classes
from attribution_sched.types import BoolArray, FloatArray, IntArray

ROUNDS = 40
"""Most rounds of small changes."""


def evaluate(task: Problem, rows: IntArray, counts: IntArray) -> FloatArray:
    """Objective of many single-pipeline plans; infinite for those that do not fit, shape ``(n,)``."""
    if len(rows) == 0:
        return np.zeros(0)
    batch = PlanBatch(rows, counts, np.zeros(len(rows), dtype=np.int64))
    priced = task.cost.score(
        batch, task.model, bandwidth_gbps=task.bandwidth / BYTES_PER_GBIT, latency_s=task.latency_s, breakdown=False
    )
    goal = task.objective
    used = np.arange(rows.shape[1]) < counts[:, None]
    devices = (rows[:, :, DP] * rows[:, :, TP] * rows[:, :, PP] * used).sum(axis=1)
    value = goal.time * priced.step_s * (1.0 + goal.queue_pressure * devices) - goal.utilisation * priced.utilisation
    value = value + goal.dollar * priced.bill_usd + goal.joule * priced.energy_j + goal.gram * priced.carbon_g
    return np.where(priced.fits & (priced.bill_usd <= goal.max_bill_usd), value, np.inf)


def single_plans(task: Problem, options: IntArray, allowed: BoolArray) -> tuple[IntArray, IntArray]:
    """Every plan inside one domain: rows ``(n, P, 11)`` and counts ``(n,)``."""
    levels = np.array(sorted(set(task.microbatches)))
    domain, option, level = (axis.ravel() for axis in np.indices((len(allowed), len(options), len(levels))))
    micro = levels[level]
    sound = allowed[domain, option] & (micro % options[option, 0] == 0)
    rows = np.zeros((int(sound.sum()), task.max_segments, len(SEGMENT_FIELDS)), dtype=np.int64)
    rows[:, 0, DOMAIN] = domain[sound]
    rows[:, 0, STOP] = task.n_layers
    rows[:, 0, [DP, TP, PP, PRECISION]] = options[option[sound]]
    rows[:, 0, MICROBATCH] = micro[sound]
    rows[:, 0, MICROBATCHES] = task.batch_size // micro[sound]
    return rows, np.ones(len(rows), dtype=np.int64)


def improve(task: Problem, options: IntArray, plan: IntArray, count: int, value: float) -> tuple[IntArray, int, float]:
    """Change one cut, layout, domain or the microbatch of a pipeline at a time while that lowers the objective."""
    layouts = options[options[:, 3] == options[0, 3], :3]
    near = Neighbourhood(task.free_devices, layouts, task.microbatches, np.unique(options[:, 3]).tolist())

    def worth(rows: IntArray, counts: IntArray) -> FloatArray:
        rows[:, :, MICROBATCHES] = task.batch_size // np.maximum(1, rows[:, :, MICROBATCH])
        return -evaluate(task, rows, counts)

    local_optimum = descend(
        Candidate(plan, count, -value), functools.partial(near.one_change, moves=ONE_PIPELINE),
        limits_of(task.cost, task.model, task.free_devices), worth, ROUNDS,
    )  # fmt: skip
    return local_optimum.rows, local_optimum.used, -local_optimum.reward


IMPROVED = 3
"""Pipelines of each microbatch size that are improved by small changes."""

EXPLORED = 1.5
"""How much slower a plan may be that is still looked at where utilisation counts."""

RANKED = 2_000
"""Pipelines with the least bounds that are priced after Held–Karp."""

COARSE_CUTS = 24
COARSE_LABELS = 2
"""Cuts tried and labels kept per state where a good plan is wanted fast."""

HOPELESS = 100_000
"""Labels of Held–Karp above which the exhaustive step is not tried: it does not merge, so it would not end."""

CHAIN_CAPACITY = 20_000
"""Most pipelines listed as possible replicas."""

SEGMENT_COLUMNS = len(SEGMENT_FIELDS)


@dataclass(frozen=True)
class Solution:
    """The best plan of a decision.

    Attributes:
        plan: The plan.
        value: Its objective J; smaller is better.
        step_s: Seconds per global batch.
        bill_usd: Cross-domain traffic per global batch.
        bound: No plan has a smaller objective than this.
        proven: Whether the search was exhaustive: no plan is better.
        tried: Segments and sets of pipelines looked at.
        priced: Plans priced by the cost kernel.
        seconds: Time taken.
    """

    plan: Plan
    value: float
    step_s: float
    bill_usd: float
    bound: float
    proven: bool
    tried: int
    priced: int
    seconds: float


class ExactSolver:
    """Finds the best plan of a decision, and proves it where its budget suffices.

    Args:
        budget: Segments the last step may look at before it gives up the proof; about ten million a second.
        labels: Most labels the Held–Karp step may keep.
        tolerance: Labels that are at most this share better than another may be left out by the Held–Karp step; the
            bound allows for it.
    """

    def __init__(self, budget: int = 5_000_000, labels: int = 1_000_000, tolerance: float = 1e-3) -> None:
        self.budget = budget
        self.labels = labels
        self.tolerance = tolerance
        self._profiles = SegmentProfiles()
        self._buffers: tuple[FloatArray, IntArray] | None = None

    def solve(self, task: Problem, start: Plan | None = None) -> Solution:
        """Return the best plan.

        Args:
            task: The decision.
            start: A plan known to be good, for instance the one in force.

        Raises:
            PlanError: No plan fits memory and free devices.
        """
        solution = self.try_solve(task, start)
        if solution is None:
            model = task.cost.models[task.model].name
            instance = f"{model} on {task.free_devices.tolist()} free devices"
            rule = f"no plan over at most {task.max_segments} domains was found that fits memory"
            if np.isfinite(task.objective.max_bill_usd):
                rule += f" for at most {task.objective.max_bill_usd:g} USD a step"
            raise PlanError(problem("placement", instance, rule, "Free devices, allow more domains, or let it wait"))
        return solution

    def try_solve(self, task: Problem, start: Plan | None = None) -> Solution | None:
        """As :meth:`solve`, but None where no plan is possible."""
        start_clock_s = time.perf_counter()
        options = task.options()
        search = _Search(task, options, task.allowed(options))
        self._single(search, start)
        self._explore(search)
        spaces = {micro: self._space(search, micro, task.batch_size // micro) for micro in search.levels()}
        bounds = dict.fromkeys(spaces, -np.inf)
        if task.objective.time_and_bill_only:
            for micro in search.levels():
                bounds[micro] = self._merge(search, spaces[micro], search.goal, search.value, coarse=False)
        proven = True
        for micro in sorted(spaces, key=lambda micro: bounds[micro]):
            hopeless = search.labels[micro] > HOPELESS
            if bounds[micro] < search.value and not hopeless and self._chains(search, spaces[micro]):
                bounds[micro] = search.value
            proven = proven and bounds[micro] >= search.value
        bound = min(bounds.values())
        if task.replicate and task.max_segments > 1:
            bound = min(bound, self._replicate(search))
            proven = proven and bound >= search.value
        plan = search.plan()
        if plan is None:
            return None
        cost = task.cost.score(
            plan, task.model, bandwidth_gbps=task.bandwidth / BYTES_PER_GBIT, latency_s=task.latency_s, breakdown=False
        )
        norm = task.batch_size / plan.samples
        return Solution(
            plan, search.value, float(cost.step_s[0]) * norm, float(cost.bill_usd[0]) * norm,
            min(bound, search.value), proven, search.tried, search.priced, time.perf_counter() - start_clock_s,
        )  # fmt: skip

    @staticmethod
    def _single(search: _Search, start: Plan | None) -> None:
        """Begin with the best plan inside one domain, and the plan in force."""
        task = search.task
        rows, counts = single_plans(task, search.options, search.allowed)
        if start is not None and _usable(search, start):
            batch = PlanBatch.of([start], task.max_segments)
            rows, counts = np.concatenate([rows, batch.segments]), np.append(counts, batch.counts)
        values = evaluate(task, rows, counts)
        if len(values) and np.isfinite(values.min()):
            best = int(np.argmin(values))
            search.offer(rows[best], int(counts[best]), float(values[best]))

    def _explore(self, search: _Search) -> None:
        """Look for good plans over several domains with few cuts and labels, by time and bill alone."""
        task, goal = search.task, search.task.objective
        if task.max_segments == 1:
            return
        by_time = task.with_objective(Objective(goal.time, 0.0, goal.dollar, max_bill_usd=goal.max_bill_usd))
        options = by_time.options()
        quick = _Search(by_time, options, by_time.allowed(options))
        for micro in search.levels():
            # Slower plans than the best one may still be worth more where utilisation counts.
            limit = np.inf
            if search.count and goal.time_and_bill_only:
                limit = search.value
            elif search.count:
                limit = EXPLORED * float(evaluate(by_time, search.rows[None], np.array([search.count]))[0])
            space = self._space(quick, micro, task.batch_size // micro)
            self._merge(search, space, quick.goal, limit, coarse=True)

    def _merge(self, search: _Search, space: Space, goal: FloatArray, limit: float, *, coarse: bool) -> float:
        """Run Held–Karp, price its labels, improve the best.

        Args:
            search: The search.
            space: Plans of one microbatch size.
            goal: What Held–Karp minimises, as an array.
            limit: Value a plan must beat by that goal.
            coarse: Whether to try a few cuts and keep a few labels, to find a good plan fast.

        Returns:
            A bound on all pipelines of this microbatch size; −∞ if there is none.
        """
        task = search.task
        if self._buffers is None:
            self._buffers = (np.zeros((self.labels, 4)), np.zeros((self.labels, 6), dtype=np.int64))
        ids = np.flatnonzero(task.free_devices > 0)
        masks, ranks = _subsets(len(ids), task.max_segments)
        stride, width = (-(-task.n_layers // COARSE_CUTS), COARSE_LABELS) if coarse else (1, self.labels)
        rows = np.zeros((RANKED, task.max_segments, SEGMENT_COLUMNS), dtype=np.int64)
        counts, bounds = np.zeros(RANKED, dtype=np.int64), np.zeros(RANKED)
        bound, written, made, complete = held_karp(
            task.pricing(), space, goal, limit, self.tolerance, stride, width, ids, masks, ranks,
            *self._buffers, rows, counts, bounds,
        )  # fmt: skip
        search.tried += made
        search.labels[space.micro] = made
        search.priced += written
        values = evaluate(task, rows[:written], counts[:written])
        for p in np.argsort(values, kind="stable")[:IMPROVED]:
            if np.isfinite(values[p]):
                search.offer(*improve(task, search.options, rows[p], int(counts[p]), float(values[p])))
        if coarse or not complete:
            return -np.inf
        return float(bound) / (1.0 + self.tolerance) ** (task.max_segments - 1)

    def _chains(self, search: _Search, space: Space) -> bool:
        """Search every pipeline of a microbatch size; says whether it could look at all."""
        task = search.task
        scratch = make_scratch(task.max_segments * MAX_PP, space.microbatches)
        rows = np.zeros((task.max_segments, SEGMENT_COLUMNS), dtype=np.int64)
        none = np.zeros(0)
        nothing = Listing(False, 0.0, 0.0, 0.0, 0.0, 0.0, none, rows[None][:0], none.astype(np.int64), none)
        value, tried, priced, complete, _ = search_chains(
            task.pricing(), space, search.goal, search.value, self.budget, rows, scratch, nothing, 0
        )
        search.tried += tried
        search.priced += priced
        search.offer(rows, int((rows[:, PP] > 0).sum()), value)
        return bool(complete)

    def _space(self, search: _Search, micro: int, microbatches: int, *, complete: bool = False) -> Space:
        task, options, allowed = search.task, search.options, search.allowed
        classes, representatives = hardware_classes(task.cost)
        profiles = [self._profiles.profile(task, options, micro, microbatches, int(k)) for k in representatives]
        divides = micro % options[:, 0] == 0
        index_of: dict[bytes, int] = {}
        groups = np.full(len(classes), -1, dtype=np.int64)
        lists: list[IntArray] = []
        for k in np.flatnonzero(task.free_devices > 0):
            usable = np.flatnonzero(allowed[k] & divides)
            key = bytes([int(classes[k])]) + usable.tobytes()
            if key not in index_of:
                index_of[key] = len(lists)
                domain = int(representatives[classes[k]])
                lists.append(self._profiles.choices(task, options, usable, micro, microbatches, domain, complete))
            groups[k] = index_of[key]
        widest = max(table.shape[-1] for table in lists)
        choices = np.zeros((len(lists), *lists[0].shape[:2], widest), dtype=np.int64)
        for g, table in enumerate(lists):
            choices[g, :, :, : table.shape[-1]] = table
        return Space(
            options, choices, groups, classes, np.stack(profiles) if len(profiles) > 1 else profiles[0][None],
            floors(task, options, allowed, micro), micro, microbatches, task.max_segments,
        )  # fmt: skip

    def _replicate(self, search: _Search) -> float:
        """Search plans that replicate the model across domains; returns a bound on those it could not look at."""
        task, goal = search.task, search.goal
        usable = np.flatnonzero(task.free_devices > 0)
        if len(usable) < 2:
            return np.inf
        sync_s, wait_s, sync_usd = _least_sync(task, search.options, usable)
        batch = float(task.batch_size)
        least_norm = batch / (batch + task.max_segments * max(task.microbatches))
        rates = _rates(task, search.options, search.allowed)
        # All the work, on all the domains a plan may use together, and the gradients.
        top = np.sort(_rates(task, search.options, search.allowed, backward=True))[::-1][: task.max_segments].sum()
        # Some replica has at most half of the segments.
        seconds = batch / top + sync_s / max(1, task.max_segments // 2) + wait_s
        least = least_norm * (task.objective.time * seconds + task.objective.dollar * sync_usd)
        least -= task.objective.utilisation
        if not least < search.value:
            return np.inf
        listing = Listing(
            True, batch, sync_s, wait_s, sync_usd, least_norm, rates.sum() - rates,
            np.zeros((CHAIN_CAPACITY, task.max_segments, SEGMENT_COLUMNS), dtype=np.int64),
            np.zeros(CHAIN_CAPACITY, dtype=np.int64), np.zeros(CHAIN_CAPACITY),
        )  # fmt: skip
        count, complete, pricing = 0, True, task.pricing()
        rows = np.zeros((task.max_segments, SEGMENT_COLUMNS), dtype=np.int64)
        scratch = make_scratch(task.max_segments * MAX_PP, task.batch_size // min(task.microbatches) + 1)
        # A slower layout takes a smaller share of the batch, which rounding can make the better choice: leave none out.
        options = task.options(complete=True)
        every = _Search(task, options, task.allowed(options))
        for micro in search.levels():
            space = self._space(every, micro, 1, complete=True)._replace(max_segments=task.max_segments - 1)
            _, tried, _, whole, count = search_chains(
                pricing, space, goal, search.value, self.budget, rows, scratch, listing, count
            )
            search.tried += tried
            complete = complete and whole
        value, tried, priced, whole = combine(pricing, goal, search.value, listing, count, self.budget, rows, scratch)
        search.tried += tried
        search.priced += priced
        search.offer(rows, int((rows[:, PP] > 0).sum()), value)
        return np.inf if complete and whole else least


class _Search:
    """The state of one search: the best plan so far and what has been looked at."""

    def __init__(self, task: Problem, options: IntArray, allowed: BoolArray) -> None:
        self.task, self.options, self.allowed = task, options, allowed
        self.goal = _goal(task.objective)
        self.rows = np.zeros((task.max_segments, SEGMENT_COLUMNS), dtype=np.int64)
        self.count, self.value = 0, float("inf")
        self.tried = self.priced = 0
        self.labels = dict.fromkeys(task.microbatches, 0)

    def offer(self, rows: IntArray, count: int, value: float) -> None:
        """Take a plan if it is better than the best so far."""
        if value < self.value:
            self.rows, self.count, self.value = rows, count, value

    def levels(self) -> list[int]:
        """Microbatch sizes, that of the best plan first."""
        return sorted(set(self.task.microbatches), key=lambda micro: (micro != self.rows[0, MICROBATCH], micro))

    def plan(self) -> Plan | None:
        """The best plan, or None."""
        if self.count == 0:
            return None
        return PlanBatch(self.rows[None], np.array([self.count]), np.zeros(1, dtype=np.int64)).plan(0)


def _usable(search: _Search, plan: Plan) -> bool:
    """Whether a plan is one of those the search chooses from."""
    task, layouts = search.task, {tuple(option): o for o, option in enumerate(search.options.tolist())}
    if len(plan.replicas) != 1 or len(plan.segments) > task.max_segments or plan.samples != task.batch_size:
        return False
    layout_index = [layouts.get((s.dp, s.tp, s.pp, s.precision.index), -1) for s in plan.segments]
    microbatch_offered = plan.replicas[0].microbatch in task.microbatches
    return microbatch_offered and all(
        o >= 0 and search.allowed[s.domain, o] for s, o in zip(plan.segments, layout_index, strict=True)
    )


@lru_cache(maxsize=16)
def _subsets(domains: int, most: int) -> tuple[IntArray, IntArray]:
    """Sets of at most ``most`` domains as bit masks, smallest first, and the row of each mask."""
    sizes = np.array([mask.bit_count() for mask in range(1 << domains)])
    masks = np.flatnonzero((sizes > 0) & (sizes <= most))
    masks = masks[np.argsort(sizes[masks], kind="stable")]
    ranks = np.full(1 << domains, -1, dtype=np.int64)
    ranks[masks] = np.arange(len(masks))
    return masks, ranks


def _goal(objective: Objective) -> FloatArray:
    return np.array(
        [objective.time, objective.utilisation, objective.dollar, objective.joule, objective.gram,
         objective.queue_pressure, objective.max_bill_usd]
    )  # fmt: skip


def _rates(task: Problem, options: IntArray, allowed: BoolArray, *, backward: bool = False) -> FloatArray:
    """Most samples per second of work every domain could do alone, layer by layer, shape ``(K,)``.

    Args:
        task: The decision.
        options: Layouts.
        allowed: Layouts each domain may use.
        backward: Whether to count both passes, or forward passes alone as the cluster does when it shares a batch.
    """
    n = task.n_layers
    columns = [0, 1, 4, 5] if backward and task.cost.training[task.model] else [0, 1]
    rates = np.zeros(len(task.free_devices))
    for k in np.flatnonzero(task.free_devices > 0):
        gpu = int(task.cost.domains.rows[k].gpu)
        pace = np.full(n, np.inf)
        for o in np.flatnonzero(allowed[k]):
            dp, tp, pp, q = (int(x) for x in options[o])
            times = task.cost.tables.times_s[task.model, gpu, q, TP_DEGREES.index(tp), columns, : n + 1]
            pace = np.minimum(pace, np.diff(times, axis=-1).sum(axis=0) / (dp * pp))
        rates[k] = 1.0 / pace.sum()
    return rates


def _least_sync(task: Problem, options: IntArray, usable: IntArray) -> tuple[float, float, float]:
    """Least seconds (all gradients over one link; latency) and dollars of averaging gradients over the network."""
    if not task.cost.training[task.model]:
        return 0.0, 0.0, 0.0
    sizes = task.cost.tables.sizes[task.model]
    volume = (4.0 if (options[:, 3] == 0).all() else 2.0) * float(sizes[0, -1] + sizes[1, -1])
    pairs = np.ix_(usable, usable)
    between = ~np.eye(len(usable), dtype=bool)
    fastest = float(task.bandwidth[pairs][between].max())
    nearest = float(task.latency_s[pairs][between].min())
    cheapest = float(task.cost.domains.price_usd_per_byte[pairs][between].min())
    return volume / fastest, 2.0 * nearest, 2.0 * volume * cheapest
