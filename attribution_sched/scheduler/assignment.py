"""The assignment model: tasks, the places each may take, and what the places share.

    max Σ_ij u_ij x_ij    s.t.    Σ_j x_ij <= 1,    Σ_i Σ_{j: pool_j = p} r_ij x_ij <= c_p,    x binary

With one pool per column (the default) this is the generalised assignment problem: column j is resource j. Several
columns of one pool are several ways to use the same resource, such as plans of different sizes in one domain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import TaskError, problem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NONE = -1
"""Choice of a task that is assigned to nothing."""

TOLERANCE = 1e-9
"""A pool is overloaded beyond its capacity times ``1 + TOLERANCE``: sums of floating-point demands round."""


@dataclass(frozen=True)
class Assignment:
    """One problem. Arrays are copied, checked and made read-only.

    Attributes:
        utility: Worth of task i in column j, shape ``(N, M)``; −∞ forbids the pair.
        demand: What task i takes of the pool of column j, shape ``(N, M)``.
        capacity: What each pool has, shape ``(C,)``.
        pool: Pool each column draws on, shape ``(M,)``; column j draws on pool j by default.
    """

    utility: FloatArray
    demand: FloatArray
    capacity: FloatArray
    pool: IntArray | None = None

    def __post_init__(self) -> None:
        utility = _numbers("utility", self.utility, 2)
        demand = _numbers("demand", self.demand, 2)
        capacity = _numbers("capacity", self.capacity, 1)
        if utility.size == 0:
            rule = "a problem needs at least one task and one column"
            raise TaskError(problem("utility.shape", utility.shape, rule, "Do not solve an empty queue"))
        if demand.shape != utility.shape:
            rule = f"must be that of utility, {utility.shape}"
            raise TaskError(problem("demand.shape", demand.shape, rule, "Give one demand per task and column"))
        columns = np.arange(utility.shape[1]) if self.pool is None else np.array(self.pool)
        if self.pool is None and capacity.shape != columns.shape:
            rule = f"must be ({len(columns)},), one per column of utility"
            raise TaskError(
                problem("capacity.shape", capacity.shape, rule, "Give the pool of every column, or mend it")
            )
        if columns.shape != (utility.shape[1],) or not np.issubdtype(columns.dtype, np.integer):
            rule = f"must be {utility.shape[1]} integers, one per column of utility"
            raise TaskError(problem("pool", columns.tolist(), rule, "Say which capacity each column draws on"))
        outside = (columns < 0) | (columns >= len(capacity))
        if outside.any():
            rule = f"must lie in 0..{len(capacity) - 1}, there are {len(capacity)} capacities"
            at = int(np.argmax(outside))
            raise TaskError(problem(f"pool[{at}]", int(columns[at]), rule, "Point it at a capacity"))
        _check("utility", utility, np.isnan(utility) | np.isposinf(utility), "must be a number below +inf")
        _check("demand", demand, ~(np.isfinite(demand) & (demand >= 0)), "must be finite and >= 0")
        _check("capacity", capacity, ~(np.isfinite(capacity) & (capacity >= 0)), "must be finite and >= 0")
        for name, array in (
            ("utility", utility),
            ("demand", demand),
            ("capacity", capacity),
            ("pool", columns.astype(np.int64)),
        ):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def shape(self) -> tuple[int, int]:
        """Tasks and columns, ``(N, M)``."""
        return self.utility.shape[0], self.utility.shape[1]

    @property
    def pools(self) -> IntArray:
        """Pool of every column, shape ``(M,)``."""
        return self.pool if self.pool is not None else np.arange(self.utility.shape[1])

    @property
    def limit(self) -> FloatArray:
        """Capacities with the rounding tolerance, shape ``(C,)``."""
        return self.capacity * (1.0 + TOLERANCE)

    @property
    def admissible(self) -> BoolArray:
        """Pairs worth a thought, shape ``(N, M)``: the task gains something and fits the empty pool."""
        fits: BoolArray = self.demand <= self.limit[self.pools]
        return fits & (self.utility > 0)

    def value(self, choice: IntArray) -> float:
        """Utility of a choice of columns, shape ``(N,)``, −1 for none."""
        rows = np.flatnonzero(choice != NONE)
        return float(self.utility[rows, choice[rows]].sum())

    def load(self, choice: IntArray) -> FloatArray:
        """What a choice takes of every pool, shape ``(C,)``."""
        rows = np.flatnonzero(choice != NONE)
        taken = self.demand[rows, choice[rows]]
        return by_pool(self.pools[choice[rows]], taken, len(self.capacity))

    def feasible(self, choice: IntArray) -> bool:
        """Whether a choice names columns that exist, is allowed and overloads no pool."""
        if choice.shape != (self.shape[0],) or ((choice < NONE) | (choice >= self.shape[1])).any():
            return False
        return bool(np.isfinite(self.value(choice)) and (self.load(choice) <= self.limit).all())


@dataclass(frozen=True)
class Solution:
    """A feasible choice and what is known about the best one.

    Attributes:
        choice: Column of every task, −1 for none, shape ``(N,)``.
        value: Utility of the choice.
        bound: Proven upper bound on any choice's utility.
        seconds: Wall time it took.
        status: ``optimal`` (the bound is met within the gap asked for), ``time limit``, or ``gap left`` (a heuristic
            that ended with a positive gap).
        method: Who solved it.
        iterations: Nodes or dual steps.
    """

    choice: IntArray
    value: float
    bound: float
    seconds: float
    status: str
    method: str
    iterations: int

    @property
    def gap(self) -> float:
        """Duality gap, in units of utility: bound minus value, never negative."""
        return max(0.0, self.bound - self.value)

    @property
    def relative_gap(self) -> float:
        """Gap as a share of the bound; 0 where nothing can be gained."""
        return self.gap / self.bound if self.bound > 0 else 0.0


def by_pool(pools: IntArray, amounts: FloatArray, n_pools: int) -> FloatArray:
    """Sum amounts of the same pool, shape ``(n_pools,)``."""
    total: FloatArray = np.bincount(pools, weights=amounts, minlength=n_pools).astype(np.float64)
    return total


def _numbers(name: str, given: object, axes: int) -> FloatArray:
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        rule = f"must be an array of numbers with {axes} axes"
        raise TaskError(problem(name, type(given).__name__, rule, "Give a rectangular array")) from error
    if array.ndim != axes:
        rule = "must be (tasks, columns)" if axes == 2 else "must have one axis, the pools"
        raise TaskError(problem(f"{name}.shape", array.shape, rule, "Reshape it"))
    return array


def _check(name: str, array: FloatArray, wrong: BoolArray, rule: str) -> None:
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        fix = "Use −inf to forbid a pair" if name == "utility" else "Mend the figure"
        raise TaskError(problem(f"{name}{list(at)}", float(array[at]), rule, fix))
