"""The assignment model as an integer programme, solved by HiGHS.

Only admissible pairs become variables, constraints are sparse, and figures are scaled by powers of two (which rounds
nothing) to where HiGHS' absolute tolerances do no harm. Whatever HiGHS returns, or fails to return in time, the answer
is a feasible choice with a proven bound.
"""

from __future__ import annotations

import time

import numpy as np

from attribution_sched.errors import SettingsError, problem
from attribution_sched.scheduler.assignment import NONE, Assignment, FloatArray, IntArray, Solution
from attribution_sched.scheduler.assignment_repair import repaired

METHOD = "milp"
UNLIMITED_S = 1e7
TINY_PAIRS = 32
"""Problems of up to so many variables are presolved."""

EXACT = 1e-9
"""Relative gap below which two floating-point sums of utilities are the same."""


def check_limits(time_limit_s: float, relative_gap: float) -> None:
    """Raise ``SettingsError`` unless the limits make sense."""
    if not time_limit_s > 0:
        raise SettingsError(problem("time_limit_s", time_limit_s, "must be > 0", "Give HiGHS some seconds"))
    if not 0 <= relative_gap < 1:
        raise SettingsError(problem("relative_gap", relative_gap, "must lie in [0, 1)", "Use 0.01 for one per cent"))


def solve_milp(programme: Assignment, time_limit_s: float = 60.0, relative_gap: float = 1e-4) -> Solution:
    """Solve a problem to a relative gap, or as far as the time limit allows.

    Args:
        programme: What to solve.
        time_limit_s: Wall time HiGHS may take.
        relative_gap: HiGHS stops when the bound lies within this share of the value; 0 asks for a proof.
    """
    check_limits(time_limit_s, relative_gap)
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    start = time.perf_counter()
    tasks, columns = np.nonzero(programme.admissible)
    n, pairs = programme.shape[0], len(tasks)
    if pairs == 0:
        spent = time.perf_counter() - start
        return Solution(np.full(n, NONE), 0.0, 0.0, spent, "optimal", METHOD, 0)
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
        },
    )
    choice = np.full(n, NONE)
    if found.x is not None:
        taken = found.x > 0.5
        choice[tasks[taken]] = columns[taken]
    bound = _bound(programme, utility, tasks, found.mip_dual_bound, worth)
    # HiGHS may overstep a capacity by its own tolerance, or stop empty-handed: the repair settles both.
    if found.x is None or not programme.feasible(choice):
        choice = repaired(programme, choice)
    value = programme.value(choice)
    bound = max(bound, value)
    met = bound - value <= max(relative_gap, EXACT) * abs(value)
    nodes = int(found.mip_node_count or 0)
    spent = time.perf_counter() - start
    return Solution(choice, value, bound, spent, "optimal" if met else "time limit", METHOD, nodes)


def _power_of_two(size: FloatArray) -> FloatArray:
    """Divisors that bring sizes into [512, 1024); 1 for 0."""
    exponent = np.floor(np.log2(np.where(size > 0, size, 1.0)))
    return np.where(size > 0, np.exp2(exponent - 9.0), 1.0)


def _bound(programme: Assignment, utility: FloatArray, tasks: IntArray, reported: float | None, worth: float) -> float:
    """The solver's bound, but never worse than every task in its favourite column."""
    best = np.zeros(programme.shape[0])
    np.maximum.at(best, tasks, utility)
    trivial = float(best.sum())
    return min(trivial, -reported * worth) if reported is not None and np.isfinite(reported) else trivial
