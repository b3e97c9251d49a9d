"""Two solvers of the assignment model; both give a feasible choice and a proven bound.

**Integer programme**, by HiGHS. Only admissible pairs become variables, constraints are sparse, and figures are scaled
by powers of two (which rounds nothing) to where HiGHS' absolute tolerances do no harm. Whatever HiGHS returns, or fails
to return in time, the answer is a feasible choice with a proven bound.

**Dual smoothing**: prices for the pools, then a choice that obeys them. Relaxing the capacities with prices μ >= 0
leaves one small problem per task, so that for every μ

    d(μ) = Σ_p μ_p c_p + Σ_i max(0, max_j (u_ij − μ_p(j) r_ij))

bounds the utility of any choice from above. d is convex but kinked. At temperature T its inner maximum becomes
T·log(1 + Σ_j exp(·/T)), whose gradient c_p − Σ_ij q_ij r_ij has the soft choice q: a softmax with "none" at 0.
Accelerated descent follows that gradient while T is annealed; the bound reported is the least *unsmoothed* d met on
the way. Draws from the soft choice are repaired and improved: the primal side. The duality gap lies between the two.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attribution_sched.errors import SettingsError, problem
from attribution_sched.rivals.assignment import NONE, Assignment, Repair, Solution, by_pool, repaired
from attribution_sched.types import FloatArray, IntArray

MILP = "milp"
UNLIMITED_S = 1e7
MOST_NODES = 2**31 - 1
TINY_PAIRS = 32
"""Problems of up to so many variables are presolved."""

EXACT = 1e-9
"""Relative gap below which two floating-point sums of utilities are the same."""


def check_limits(time_limit_s: float, relative_gap: float, nodes: int | None = None) -> None:
    """Raise ``SettingsError`` unless the limits make sense."""
    if nodes is not None and not nodes >= 1:
        raise SettingsError(problem("nodes", nodes, "must be >= 1", "Give HiGHS some nodes to look at"))
    if not time_limit_s > 0:
        raise SettingsError(problem("time_limit_s", time_limit_s, "must be > 0", "Give HiGHS some seconds"))
    if not 0 <= relative_gap < 1:
        raise SettingsError(problem("relative_gap", relative_gap, "must lie in [0, 1)", "Use 0.01 for one per cent"))


def solve_milp(
    programme: Assignment, time_limit_s: float = 60.0, relative_gap: float = 1e-4, nodes: int | None = None
) -> Solution:
    """Solve a problem to a relative gap, or as far as the limits allow.

    Args:
        programme: What to solve.
        time_limit_s: Wall time HiGHS may take; what is found by then differs from machine to machine.
        relative_gap: HiGHS stops when the bound lies within this share of the value; 0 asks for a proof.
        nodes: Nodes of the search that HiGHS may look at; what is found by then is always the same.
    """
    check_limits(time_limit_s, relative_gap, nodes)
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    start = time.perf_counter()
    tasks, columns = np.nonzero(programme.admissible)
    n, pairs = programme.shape[0], len(tasks)
    if pairs == 0:
        spent = time.perf_counter() - start
        return Solution(np.full(n, NONE), 0.0, 0.0, spent, "optimal", MILP, 0)
    pools = programme.pools[columns]
    scale = _power_of_two(programme.capacity)
    entries = np.concatenate([np.ones(pairs), programme.demand[tasks, columns] / scale[pools]])
    rows = np.concatenate([tasks, n + pools])
    matrix = csr_array((entries, (rows, np.tile(np.arange(pairs), 2))), shape=(n + len(scale), pairs))
    most = np.concatenate([np.ones(n), programme.capacity / scale])
    utility = programme.utility[tasks, columns]
    worth = float(_power_of_two(utility.max()))
    # Presolve settles tiny problems at once. Larger ones gain nothing from it, since inadmissible pairs are out
    # already, and HiGHS then writes to standard output when it maps solutions back.
    found = milp(
        -utility / worth,
        integrality=np.ones(pairs, dtype=np.int64),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, -np.inf, most),
        options={
            "time_limit": min(time_limit_s, UNLIMITED_S),
            "mip_rel_gap": relative_gap,
            "presolve": pairs <= TINY_PAIRS,
            "node_limit": MOST_NODES if nodes is None else nodes,
        },
    )
    choice = np.full(n, NONE)
    if found.x is not None:
        taken = found.x > 0.5
        choice[tasks[taken]] = columns[taken]
    bound = _milp_bound(programme, utility, tasks, found.mip_dual_bound, worth)
    # HiGHS may overstep a capacity by its own tolerance, or stop empty-handed: the repair settles both.
    if found.x is None or not programme.feasible(choice):
        choice = repaired(programme, choice)
    value = programme.value(choice)
    bound = max(bound, value)
    met = bound - value <= max(relative_gap, EXACT) * abs(value)
    looked_at = int(found.mip_node_count or 0)
    spent = time.perf_counter() - start
    left = "time limit" if nodes is None else "node limit"
    return Solution(choice, value, bound, spent, "optimal" if met else left, MILP, looked_at)


def _power_of_two(size: FloatArray) -> FloatArray:
    """Divisors that bring sizes into [512, 1024); 1 for 0."""
    exponent = np.floor(np.log2(np.where(size > 0, size, 1.0)))
    return np.where(size > 0, np.exp2(exponent - 9.0), 1.0)


def _milp_bound(
    programme: Assignment, utility: FloatArray, tasks: IntArray, reported: float | None, worth: float
) -> float:
    """The solver's bound, but never worse than every task in its favourite column."""
    best = np.zeros(programme.shape[0])
    np.maximum.at(best, tasks, utility)
    trivial = float(best.sum())
    return min(trivial, -reported * worth) if reported is not None and np.isfinite(reported) else trivial


SMOOTHED = "dual smoothing"

FLAT = 1e-3
"""Least curvature of a pool's price, as a share of the largest: an unused pool must not take endless steps."""

REBUILDING = 80_000_000
"""Most rounds of re-building times N²."""

SETTLED = 1e-6
"""Relative change of the prices below which a stage ends."""


@dataclass(frozen=True)
class Smoothing:
    """How far dual smoothing goes.

    Attributes:
        stages: Temperatures, falling geometrically; each has its own descent and one draw of the soft choice.
        steps: Most dual steps per stage.
        hottest: First temperature, as a share of the mean best utility of a task.
        coolest: Last temperature, likewise.
        rounds: Most rounds of re-building; above some 130 tasks they fall as 1/N², for they matter less and cost more.
        candidates: Columns per task that the repair considers.
        relative_gap: Stop as soon as the duality gap is this share of the bound.
        seed: Seed of the draws.
    """

    stages: int = 10
    steps: int = 40
    hottest: float = 0.3
    coolest: float = 0.001
    rounds: int = 5000
    candidates: int = 12
    relative_gap: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("stages", 1), ("steps", 1), ("rounds", 0), ("candidates", 1), ("relative_gap", 0.0)):
            value = getattr(self, name)
            if not value >= least:
                raise SettingsError(problem(name, value, f"must be >= {least}", "Raise it"))
        if not 0 < self.coolest <= self.hottest < np.inf:
            given = (self.hottest, self.coolest)
            raise SettingsError(problem("hottest, coolest", given, "must be finite, falling and > 0", "Use 0.3, 0.001"))


class _Point(NamedTuple):
    """The dual at one price vector: smoothed value, true bound, gradient and curvature of the smoothed one."""

    smooth: float
    bound: float
    gradient: FloatArray
    curvature: FloatArray


class Dual:
    """The dual function of one problem, with demands as shares of their pool's capacity.

    Args:
        programme: The problem.
    """

    def __init__(self, programme: Assignment) -> None:
        allowed, pools = programme.admissible, programme.pools
        scale = np.where(programme.capacity > 0, programme.capacity, 1.0)
        self.room = programme.capacity / scale
        self.pools = pools
        self.utility = np.where(allowed, programme.utility, -np.inf)
        self.demand = np.where(allowed, programme.demand / scale[pools], 0.0)
        self.square = self.demand**2

    def reduced(self, price: FloatArray) -> FloatArray:
        """Utility less the price of the demand, shape ``(N, M)``."""
        return self.utility - price[self.pools] * self.demand

    def at(self, price: FloatArray, temperature: float) -> _Point:
        """Evaluate the dual; prices have shape ``(C,)``, per whole pool."""
        score = self.reduced(price)
        top = np.maximum(score.max(axis=1), 0.0)
        base = float(price @ self.room)
        score -= top[:, None]
        score /= temperature
        np.exp(score, out=score)
        total = score.sum(axis=1) + np.exp(-top / temperature)
        score /= total[:, None]
        smooth = base + float((top + temperature * np.log(total)).sum())
        used = by_pool(self.pools, np.einsum("ij,ij->j", score, self.demand), len(self.room))
        # Each task's Hessian lies below its diagonal Σ_j q_ij r_ij² / T, so this bounds the local curvature.
        curvature = by_pool(self.pools, np.einsum("ij,ij->j", score, self.square), len(self.room)) / temperature
        return _Point(smooth, base + float(top.sum()), self.room - used, curvature)


class _Descent:
    """Accelerated projected descent in the metric of the curvature, restarted when momentum points uphill."""

    def __init__(self, dual: Dual) -> None:
        self.dual = dual
        self.price = np.zeros(len(dual.room))
        self.best_price = self.price
        self.bound = np.inf
        self.steps = 0

    def run(self, temperature: float, most: int) -> None:
        """Descend at one temperature, from where the last stage ended."""
        here, ahead = self.price, self.price
        momentum, stride, last = 1.0, 1.0, np.inf
        for _ in range(most):
            point = self.dual.at(ahead, temperature)
            self.steps += 1
            if point.bound < self.bound:
                self.bound, self.best_price = point.bound, ahead
            if point.smooth > last:
                momentum, stride, last, ahead = 1.0, 0.5 * stride, np.inf, here
                continue
            last = point.smooth
            steepest = float(point.curvature.max())
            if steepest <= 0.0:
                break
            metric = np.maximum(point.curvature, FLAT * steepest)
            reached = np.maximum(0.0, ahead - stride * point.gradient / metric)
            if point.gradient @ (reached - here) > 0.0:
                momentum = 1.0
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = np.maximum(0.0, reached + (momentum - 1.0) / following * (reached - here))
            settled = np.abs(reached - here).max() <= SETTLED * reached.max()
            here, momentum = reached, following
            if settled:
                break
        self.price = here


def solve_dual_smoothing(programme: Assignment, smoothing: Smoothing | None = None) -> Solution:
    """Find a good choice and a proven bound by annealed dual smoothing and repair.

    Args:
        programme: What to solve.
        smoothing: How far to go; the defaults aim at one per cent.
    """
    given = smoothing or Smoothing()
    start = time.perf_counter()
    rng = np.random.default_rng(given.seed)
    dual, repair = Dual(programme), Repair(programme, given.candidates)
    descent = _Descent(dual)
    choice, value = np.full(programme.shape[0], NONE), 0.0
    if repair.unit > 0.0:
        for temperature in repair.unit * np.geomspace(given.hottest, given.coolest, given.stages):
            descent.run(float(temperature), given.steps)
            drawn = repair.rounded(dual.reduced(descent.price), float(temperature), rng)
            if programme.value(drawn) > value:
                choice, value = drawn, programme.value(drawn)
            if descent.bound - value <= given.relative_gap * descent.bound:
                break
        target = descent.bound * (1.0 - given.relative_gap)
        rounds = min(given.rounds, REBUILDING // programme.shape[0] ** 2)
        choice = repair.rebuilt(choice, dual.reduced(descent.best_price), rounds, target, rng)
    value = programme.value(choice)
    bound = max(value, descent.bound) if repair.unit > 0.0 else 0.0
    met = bound - value <= given.relative_gap * bound
    spent = time.perf_counter() - start
    return Solution(choice, value, bound, spent, "optimal" if met else "gap left", SMOOTHED, descent.steps)
