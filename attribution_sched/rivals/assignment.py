"""The assignment model: tasks, the places each may take, what the places share; and the repair of a choice.

    max Σ_ij u_ij x_ij    s.t.    Σ_j x_ij <= 1,    Σ_i Σ_{j: pool_j = p} r_ij x_ij <= c_p,    x binary

With one pool per column (the default) this is the generalised assignment problem: column j is resource j. Several
columns of one pool are several ways to use the same resource, such as plans of different sizes in one domain.

``Repair`` leads from any choice to a good feasible one: drop what overloads, insert what fits, improve, tear down and
re-build. A task shifts to a better column with room, or it pushes another task out of a full pool, which goes wherever
it still can (a swap, if that is the place just left, or nowhere). When no move gains, half the tasks of a few pools are
taken out and put back in another order, and a choice that is a little worse may be kept for a while.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.errors import TaskError, problem
from attribution_sched.kernels import kernel
from attribution_sched.types import BoolArray, FloatArray, IntArray

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
        utility, demand, capacity = (
            np.array(each, dtype=np.float64) for each in (self.utility, self.demand, self.capacity)
        )
        n, m = utility.shape if utility.ndim == 2 and utility.size else (1, 1)
        pools = m if self.pool is None else capacity.size
        pool = np.arange(m) if self.pool is None else np.array(self.pool, dtype=np.int64)
        finite = "numbers that are finite and >= 0"
        for name, array, shape, sound, rule in (
            ("utility", utility, (n, m), utility < np.inf, "numbers below +inf; −inf forbids a pair"),
            ("demand", demand, (n, m), np.isfinite(demand) & (demand >= 0), finite),
            ("capacity", capacity, (pools,), np.isfinite(capacity) & (capacity >= 0), finite),
            ("pool", pool, (m,), (pool >= 0) & (pool < pools), f"positions in the {pools} capacities"),
        ):
            if array.shape != shape or not sound.all():
                rule = f"must have the shape {shape} and hold {rule}"
                raise TaskError(problem(name, array.tolist(), rule, "Give a number per task and column"))
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
        return by_pool(self.pools[choice[rows]], self.demand[rows, choice[rows]], len(self.capacity))

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
        status: ``optimal`` (the bound is met within the gap asked for), ``time limit``, ``node limit``, or ``gap left``
            (a heuristic that ended with a positive gap).
    """

    choice: IntArray
    value: float
    bound: float
    seconds: float
    status: str

    @property
    def relative_gap(self) -> float:
        """Bound less value as a share of the bound; 0 where nothing can be gained."""
        return max(0.0, 1.0 - self.value / self.bound) if self.bound > 0 else 0.0


def by_pool(pools: IntArray, amounts: FloatArray, n_pools: int) -> FloatArray:
    """Sum amounts of the same pool, shape ``(n_pools,)``."""
    total: FloatArray = np.bincount(pools, weights=amounts, minlength=n_pools).astype(np.float64)
    return total


PASSES = 50
"""Most passes of improvement over all tasks; a handful is usual."""

POOLS_HIT, SHARE_TAKEN = 3, 0.5
"""Pools drawn for a re-building round, and the share of their tasks that is taken out."""

NOISE = 0.2
"""Noise on the scores of re-insertion, as a share of a task's mean best utility."""

ACCEPT, ACCEPT_LAST = 0.45, 0.022
"""Loss that a round may bring and still be built upon, as a share of a task's mean best utility over √N: in the first
round and, falling geometrically, in the last. Larger problems get fewer rounds and so must settle sooner."""

LEAST_GAIN = 1e-9
"""Share of a task's mean best utility below which a gain is rounding."""

CANDIDATES = 12
"""Columns per task that are tried."""


class Repair:
    """Mends choices of one problem.

    Args:
        programme: The problem.
        candidates: Columns per task that are considered.
    """

    def __init__(self, programme: Assignment, candidates: int = CANDIDATES) -> None:
        self.programme = programme
        self.utility = np.where(programme.admissible, programme.utility, -np.inf)
        # Half the tolerance is left to the rounding of running sums.
        self.limit = programme.capacity * (1.0 + 0.5 * TOLERANCE)
        self.width = min(candidates, programme.shape[1])
        self.unit = float(np.maximum(self.utility.max(axis=1), 0.0).mean())

    def mended(self, choice: IntArray, scores: FloatArray) -> IntArray:
        """Make a choice feasible and improve it: what has the best scores goes first, and only these columns count.

        Args:
            choice: Column of every task, shape ``(N,)``.
            scores: What a column promises, shape ``(N, M)``; −∞ where a pair is not admissible.
        """
        choice, demand, pools = choice.astype(np.int64), self.programme.demand, self.programme.pools
        columns = np.argsort(-scores, axis=1, kind="stable")[:, : self.width]
        best = np.take_along_axis(scores, columns, axis=1)
        columns = np.where(np.isfinite(best), columns, NONE)
        order = np.argsort(-best, axis=None, kind="stable")
        _mend(
            order, columns, self.utility, demand, pools, self.limit, LEAST_GAIN * self.unit, choice,
            self.programme.load(choice),
        )  # fmt: skip
        return choice

    def rebuilt(
        self, choice: IntArray, reduced: FloatArray, rounds: int, target: float, rng: np.random.Generator
    ) -> IntArray:
        """Tear parts of a feasible choice down and build them anew, for some rounds or until a target is met."""
        programme = self.programme
        n, best, kept = len(choice), choice, choice
        best_value = kept_value = programme.value(choice)
        for done in range(rounds):
            if best_value >= target:
                break
            hit = rng.integers(len(self.limit), size=POOLS_HIT)
            torn = np.isin(programme.pools[kept], hit) & (rng.random(n) < SHARE_TAKEN)
            noisy = reduced + NOISE * self.unit * rng.gumbel(size=reduced.shape)
            tried = self.mended(np.where(torn, NONE, kept), noisy)
            value = programme.value(tried)
            if value > best_value:
                best, best_value = tried, value
            loss = self.unit / np.sqrt(n) * ACCEPT * (ACCEPT_LAST / ACCEPT) ** (done / rounds)
            if value >= kept_value - loss:
                kept, kept_value = tried, value
        return best


def repaired(programme: Assignment, choice: IntArray) -> IntArray:
    """Make a choice feasible without any prices: utilities alone say what is worth trying."""
    repair = Repair(programme, programme.shape[1])
    return repair.mended(choice, repair.utility)


@kernel(allocates=True)
def _place(i: int, k: int, demand: FloatArray, pools: IntArray, choice: IntArray, load: FloatArray) -> None:
    if choice[i] >= 0:
        load[pools[choice[i]]] -= demand[i, choice[i]]
    if k >= 0:
        load[pools[k]] += demand[i, k]
    choice[i] = k


@kernel(allocates=True)
def _mend(
    order: IntArray, columns: IntArray, utility: FloatArray, demand: FloatArray, pools: IntArray, limit: FloatArray,
    least: float, choice: IntArray, load: FloatArray,
) -> None:  # fmt: skip
    """Drop overloads, insert who has no place in the order of flat positions in ``columns``, shift and push."""
    n, width = columns.shape
    for p in range(limit.shape[0]):
        while load[p] > limit[p]:
            # Least utility per unit of demand goes first.
            worst, least_worth = -1, np.inf
            for i in range(n):
                k = choice[i]
                if k >= 0 and pools[k] == p and demand[i, k] > 0.0 and utility[i, k] / demand[i, k] < least_worth:
                    worst, least_worth = i, utility[i, k] / demand[i, k]
            if worst < 0:
                break
            _place(worst, -1, demand, pools, choice, load)
    for at in order:
        i, k = at // width, columns[at // width, at % width]
        if choice[i] < 0 and k >= 0 and load[pools[k]] + demand[i, k] <= limit[pools[k]]:
            _place(i, k, demand, pools, choice, load)
    for _ in range(PASSES):
        better = False
        for i in range(n):
            own = choice[i]
            home = pools[own] if own >= 0 else -1
            worth = utility[i, own] if own >= 0 else 0.0
            best, best_k, pushed, pushed_k = least, -1, -1, -1
            for k in columns[i]:
                if k < 0:
                    break
                gain, p = utility[i, k] - worth, pools[k]
                if gain <= best:
                    continue
                over = load[p] + demand[i, k] - limit[p]
                if p == home:
                    over -= demand[i, own]
                if over <= 0.0:
                    best, best_k, pushed, pushed_k = gain, k, -1, -1
                    continue
                for t in range(n):
                    had = choice[t]
                    if t == i or had < 0 or pools[had] != p or demand[t, had] < over:
                        continue
                    rest = gain - utility[t, had]
                    if rest > best:
                        best, best_k, pushed, pushed_k = rest, k, t, -1
                    for kt in columns[t]:
                        if kt < 0:
                            break
                        if rest + utility[t, kt] <= best:
                            continue
                        q = pools[kt]
                        if q == p:
                            fits = demand[t, had] - demand[t, kt] >= over
                        else:
                            fits = demand[t, kt] <= limit[q] - load[q] + (demand[i, own] if q == home else 0.0)
                        if fits:
                            best, best_k, pushed, pushed_k = rest + utility[t, kt], k, t, kt
            if best_k >= 0:
                better = True
                if pushed >= 0:
                    _place(pushed, pushed_k, demand, pools, choice, load)
                _place(i, best_k, demand, pools, choice, load)
        if not better:
            break
