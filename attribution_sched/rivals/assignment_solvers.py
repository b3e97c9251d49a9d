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
from attribution_sched.types import FloatArray

UNLIMITED_S = 1e7
MOST_NODES = 2**31 - 1
TINY_PAIRS = 32
"""Problems of up to so many variables are presolved."""

EXACT = 1e-9
"""Relative gap below which two floating-point sums of utilities are the same."""


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
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    if not (time_limit_s > 0 and 0 <= relative_gap < 1 and (nodes is None or nodes >= 1)):
        given = (time_limit_s, relative_gap, nodes)
        rule = "must be > 0, in [0, 1) and >= 1"
        raise SettingsError(problem("time_limit_s, relative_gap, nodes", given, rule, "Use 60, 1e-4 and 1000"))
    start = time.perf_counter()
    tasks, columns = np.nonzero(programme.admissible)
    n, pairs = programme.shape[0], len(tasks)
    choice = np.full(n, NONE)
    if pairs == 0:
        return Solution(choice, 0.0, 0.0, time.perf_counter() - start, "optimal")
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
            "node_limit": nodes or MOST_NODES,
        },
    )
    if found.x is not None:
        taken = found.x > 0.5
        choice[tasks[taken]] = columns[taken]
    # HiGHS may overstep a capacity by its own tolerance, or stop empty-handed: the repair settles both.
    if found.x is None or not programme.feasible(choice):
        choice = repaired(programme, choice)
    value, reported = programme.value(choice), found.mip_dual_bound
    # Its bound is never worse than every task in its favourite column.
    bound = float(np.where(programme.admissible, programme.utility, 0.0).max(axis=1).sum())
    if reported is not None and np.isfinite(reported):
        bound = min(bound, -reported * worth)
    bound = max(bound, value)
    status = "time limit" if nodes is None else "node limit"
    if bound - value <= max(relative_gap, EXACT) * abs(value):
        status = "optimal"
    return Solution(choice, value, bound, time.perf_counter() - start, status)


def _power_of_two(size: FloatArray) -> FloatArray:
    """Divisors that bring sizes into [512, 1024); 1 for 0."""
    exponent = np.floor(np.log2(np.where(size > 0, size, 1.0)))
    return np.where(size > 0, np.exp2(exponent - 9.0), 1.0)


FLAT = 1e-3
"""Least curvature of a pool's price, as a share of the largest: an unused pool must not take endless steps."""

REBUILDING = 8_000_000
"""Most rounds of re-building times N²."""

SETTLED = 1e-6
"""Relative change of the prices below which a stage ends."""


HOTTEST, COOLEST = 0.3, 0.001
"""First and last temperature, as shares of the mean best utility of a task."""


@dataclass(frozen=True)
class Smoothing:
    """How far dual smoothing goes.

    Attributes:
        stages: Temperatures, falling geometrically; each has its own descent and one draw of the soft choice.
        steps: Most dual steps per stage.
        rounds: Most rounds of re-building; above some 60 tasks they fall as 1/N², for they matter less and cost more.
        relative_gap: Stop as soon as the duality gap is this share of the bound.
        seed: Seed of the draws.
    """

    stages: int = 10
    steps: int = 40
    rounds: int = 2000
    relative_gap: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.stages >= 1 and self.steps >= 1 and self.rounds >= 0 and self.relative_gap >= 0.0):
            rule = "needs stages and steps >= 1, rounds and relative_gap >= 0"
            raise SettingsError(problem("smoothing", self, rule, "Use Smoothing()"))


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
        self.price = self.best_price = np.zeros(len(dual.room))
        self.bound = np.inf

    def run(self, temperature: float, most: int) -> None:
        """Descend at one temperature, from where the last stage ended."""
        here, ahead = self.price, self.price
        momentum, stride, last = 1.0, 1.0, np.inf
        for _ in range(most):
            point = self.dual.at(ahead, temperature)
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
    dual, repair = Dual(programme), Repair(programme)
    descent = _Descent(dual)
    n = programme.shape[0]
    choice, value, bound = np.full(n, NONE), 0.0, 0.0
    if repair.unit > 0.0:
        for temperature in repair.unit * np.geomspace(HOTTEST, COOLEST, given.stages):
            descent.run(float(temperature), given.steps)
            # Gumbel noise turns "the best" into a draw from the softmax; "none" stands at 0.
            reduced = dual.reduced(descent.price)
            noisy = reduced + temperature * rng.gumbel(size=reduced.shape)
            drawn = np.where(noisy.max(axis=1) > temperature * rng.gumbel(size=n), noisy.argmax(axis=1), NONE)
            drawn = repair.mended(drawn, noisy)
            if programme.value(drawn) > value:
                choice, value = drawn, programme.value(drawn)
            if descent.bound - value <= given.relative_gap * descent.bound:
                break
        rounds, target = min(given.rounds, REBUILDING // n**2), descent.bound * (1.0 - given.relative_gap)
        choice = repair.rebuilt(choice, dual.reduced(descent.best_price), rounds, target, rng)
        value = programme.value(choice)
        bound = max(value, descent.bound)
    met = bound - value <= given.relative_gap * bound
    return Solution(choice, value, bound, time.perf_counter() - start, "optimal" if met else "gap left")
