"""The assignment model: tasks, the places each may take, what the places share; and the repair of a choice.

    max Σ_ij u_ij x_ij    s.t.    Σ_j x_ij <= 1,    Σ_i Σ_{j: pool_j = p} r_ij x_ij <= c_p,    x binary

With one pool per column (the default) this is the generalised assignment problem: column j is resource j. Several
columns of one pool are several ways to use the same resource, such as plans of different sizes in one domain.

``Repair`` leads from any choice to a good feasible one: drop what overloads, insert what fits, improve, tear down and
re-build. The improvement looks at two kinds of move: a task shifts to a better column with room, or it pushes another
task out of a full pool, which goes wherever it still can (a swap, if that is the place just left, or nowhere). When no
move gains, half the tasks of a few pools are taken out and put back in another order, and a choice that is a little
worse may be kept for a while. Prices of the pools (``assignment_solvers``) say which columns are worth trying.
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
        status: ``optimal`` (the bound is met within the gap asked for), ``time limit``, ``node limit``, or ``gap left``
            (a heuristic that ended with a positive gap).
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


PASSES = 50
"""Most passes of improvement over all tasks; a handful is usual."""

POOLS_HIT, SHARE_TAKEN = 3, 0.5
"""Pools drawn for a re-building round, and the share of their tasks that is taken out."""

NOISE = 0.1
"""Noise on the order of re-insertion, as a share of a task's mean best utility."""

ACCEPT, ACCEPT_LAST = 0.45, 0.022
"""Loss that a round may bring and still be built upon, as a share of a task's mean best utility over √N: in the first
round and, falling geometrically, in the last. Larger problems get fewer rounds and so must settle sooner."""

LEAST_GAIN = 1e-9
"""Share of a task's mean best utility below which a gain is rounding."""


class Repair:
    """Mends choices of one problem; holds the arrays in the form the compiled code wants.

    Args:
        programme: The problem.
        candidates: Columns per task that are considered.
    """

    def __init__(self, programme: Assignment, candidates: int) -> None:
        self.programme = programme
        allowed = programme.admissible
        self.utility = np.where(allowed, programme.utility, -np.inf)
        self.demand = np.array(programme.demand)
        self.pools = np.array(programme.pools)
        # Half the tolerance is left to the rounding of running sums.
        self.limit = programme.capacity * (1.0 + 0.5 * TOLERANCE)
        self.width = min(candidates, programme.shape[1])
        self.unit = float(np.maximum(self.utility.max(axis=1), 0.0).mean())

    def rounded(self, reduced: FloatArray, temperature: float, rng: np.random.Generator) -> IntArray:
        """Draw every task's column from its soft choice, mend the overloads and improve the result.

        Args:
            reduced: Utility less the price of the demand, shape ``(N, M)``; −∞ where a pair is not admissible.
            temperature: Of the soft choice, a softmax over the columns and "none" at 0.
            rng: Feeds the draw.
        """
        # Gumbel noise turns "the best" into a draw from the softmax, "the best few" into draws without return.
        noisy = reduced + temperature * rng.gumbel(size=reduced.shape)
        first = noisy.argmax(axis=1)
        none = temperature * rng.gumbel(size=len(first))
        choice = np.where(noisy[np.arange(len(first)), first] > none, first, NONE)
        return self.mended(choice, reduced, self.columns(noisy))

    def mended(self, choice: IntArray, reduced: FloatArray, columns: IntArray) -> IntArray:
        """Make a choice feasible and improve it."""
        choice = choice.astype(np.int64)
        rows = np.arange(len(choice))
        at = np.maximum(choice, 0)
        demand = self.demand[rows, at]
        per_unit = np.where(demand > 0, self.utility[rows, at] / np.where(demand > 0, demand, 1.0), np.inf)
        load = self.programme.load(choice)
        _drop_overloads(per_unit, self.demand, self.pools, self.limit, choice, load)
        scores = np.where(columns >= 0, np.take_along_axis(reduced, np.maximum(columns, 0), axis=1), -np.inf)
        order = np.argsort(-scores, axis=None, kind="stable")
        _insert(order, columns, self.demand, self.pools, self.limit, choice, load)
        stamp, seen = np.ones(len(self.limit), np.int64), np.zeros(len(choice), np.int64)
        _improve(
            columns, self.utility, self.demand, self.pools, self.limit, LEAST_GAIN * self.unit,
            choice, load, stamp, seen, 1,
        )  # fmt: skip
        return choice

    def rebuilt(
        self, choice: IntArray, reduced: FloatArray, rounds: int, target: float, rng: np.random.Generator
    ) -> IntArray:
        """Tear parts of a feasible choice down and build them anew, for some rounds or until a target is met."""
        columns = self.columns(reduced + LEAST_GAIN * self.unit * rng.random(reduced.shape))
        best = choice.copy()
        state = rng.integers(2**63, size=1).astype(np.uint64)
        _rebuild(
            rounds, target, self.unit, state, columns, reduced, self.utility, self.demand, self.pools, self.limit, best
        )
        return best

    def columns(self, scores: FloatArray) -> IntArray:
        """The columns of highest score per task, best first, −1 where there are no more, shape ``(N, width)``."""
        if self.width < scores.shape[1]:
            few = np.argpartition(-scores, self.width - 1, axis=1)[:, : self.width]
        else:
            few = np.tile(np.arange(self.width), (len(scores), 1))
        kept = np.take_along_axis(scores, few, axis=1)
        order = np.argsort(-kept, axis=1, kind="stable")
        ranked = np.take_along_axis(few, order, axis=1)
        finite = np.isfinite(np.take_along_axis(kept, order, axis=1))
        return np.ascontiguousarray(np.where(finite, ranked, NONE), dtype=np.int64)


def repaired(programme: Assignment, choice: IntArray) -> IntArray:
    """Make a choice feasible without any prices: utilities alone say what is worth trying."""
    repair = Repair(programme, programme.shape[1])
    return repair.mended(choice, repair.utility, repair.columns(repair.utility))


@kernel(allocates=True)
def _place(i: int, k: int, demand: FloatArray, pools: IntArray, choice: IntArray, load: FloatArray) -> None:
    if choice[i] >= 0:
        load[pools[choice[i]]] -= demand[i, choice[i]]
    if k >= 0:
        load[pools[k]] += demand[i, k]
    choice[i] = k


@kernel(allocates=True)
def _drop_overloads(
    per_unit: FloatArray, demand: FloatArray, pools: IntArray, limit: FloatArray, choice: IntArray, load: FloatArray
) -> None:
    """Take tasks out of overloaded pools, lowest utility per unit of demand first."""
    for p in range(limit.shape[0]):
        while load[p] > limit[p]:
            worst = -1
            for i in range(choice.shape[0]):
                k = choice[i]
                if k >= 0 and pools[k] == p and demand[i, k] > 0.0 and (worst < 0 or per_unit[i] < per_unit[worst]):
                    worst = i
            if worst < 0:
                break
            _place(worst, -1, demand, pools, choice, load)


@kernel(allocates=True)
def _insert(
    order: IntArray, columns: IntArray, demand: FloatArray, pools: IntArray, limit: FloatArray, choice: IntArray,
    load: FloatArray,
) -> None:  # fmt: skip
    """Put unassigned tasks where they fit, in the order of flat positions in ``columns``."""
    width = columns.shape[1]
    for at in order:
        i, k = at // width, columns[at // width, at % width]
        if choice[i] < 0 and k >= 0 and load[pools[k]] + demand[i, k] <= limit[pools[k]]:
            _place(i, k, demand, pools, choice, load)


@kernel(allocates=True)
def _members(pools: IntArray, n_pools: int, choice: IntArray) -> tuple[IntArray, IntArray]:
    """List tasks pool by pool: those of pool p are ``member[first[p]:first[p + 1]]``."""
    first = np.zeros(n_pools + 1, np.int64)
    for i in range(choice.shape[0]):
        if choice[i] >= 0:
            first[pools[choice[i]] + 1] += 1
    first = np.cumsum(first)
    fill = first.copy()
    member = np.empty(max(1, first[-1]), np.int64)
    for i in range(choice.shape[0]):
        if choice[i] >= 0:
            p = pools[choice[i]]
            member[fill[p]] = i
            fill[p] += 1
    return first, member


@kernel(allocates=True)
def _improve(
    columns: IntArray, utility: FloatArray, demand: FloatArray, pools: IntArray, limit: FloatArray, least: float,
    choice: IntArray, load: FloatArray, stamp: IntArray, seen: IntArray, clock: int,
) -> int:  # fmt: skip
    """Shift and push until nothing gains.

    ``stamp`` says when a pool last changed, ``seen`` when a task was last looked at: moves between pools that have
    not changed since are not tried again. Returns the clock.
    """
    n, width = columns.shape
    for _ in range(PASSES):
        better = False
        first, member = _members(pools, limit.shape[0], choice)
        for i in range(n):
            own = choice[i]
            home = pools[own] if own >= 0 else -1
            worth = utility[i, own] if own >= 0 else 0.0
            left_changed = home >= 0 and stamp[home] > seen[i]
            best, best_k, pushed, pushed_k = least, -1, -1, -1
            for a in range(width):
                k = columns[i, a]
                if k < 0:
                    break
                p = pools[k]
                gain = utility[i, k] - worth
                if gain <= best or not (left_changed or stamp[p] > seen[i]):
                    continue
                over = load[p] + demand[i, k] - limit[p]
                if p == home:
                    over -= demand[i, own]
                if over <= 0.0:
                    best, best_k, pushed, pushed_k = gain, k, -1, -1
                    continue
                for at in range(first[p], first[p + 1]):
                    t = member[at]
                    had = choice[t]
                    # The list is from the beginning of the pass: tasks may have left since.
                    if t == i or had < 0 or pools[had] != p or demand[t, had] < over:
                        continue
                    rest = gain - utility[t, had]
                    if rest > best:
                        best, best_k, pushed, pushed_k = rest, k, t, -1
                    for b in range(width):
                        kt = columns[t, b]
                        if kt < 0:
                            break
                        if rest + utility[t, kt] <= best:
                            continue
                        q = pools[kt]
                        if q == p:
                            fits = demand[t, had] - demand[t, kt] >= over
                        else:
                            room = limit[q] - load[q] + (demand[i, own] if q == home else 0.0)
                            fits = demand[t, kt] <= room
                        if fits:
                            best, best_k, pushed, pushed_k = rest + utility[t, kt], k, t, kt
            seen[i] = clock
            if best_k < 0:
                continue
            better = True
            clock += 1
            stamp[pools[best_k]] = clock
            if home >= 0:
                stamp[home] = clock
            if pushed >= 0:
                _place(pushed, pushed_k, demand, pools, choice, load)
                seen[pushed] = 0
                if pushed_k >= 0:
                    stamp[pools[pushed_k]] = clock
            _place(i, best_k, demand, pools, choice, load)
        if not better:
            break
    return clock


@kernel(allocates=True)
def _uniform(state: FloatArray) -> float:
    """Draw from [0, 1) by the splitmix64 generator, whose state the caller owns."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) / 9007199254740992.0


@kernel(allocates=True)
def _recreate(
    noise: float, state: FloatArray, columns: IntArray, reduced: FloatArray, demand: FloatArray, pools: IntArray,
    limit: FloatArray, choice: IntArray, load: FloatArray, seen: IntArray,
) -> None:  # fmt: skip
    """Insert unassigned tasks, most promising first but with noise, each into its best column with room."""
    n, width = columns.shape
    waiting, key = np.empty(n, np.int64), np.empty(n)
    count = 0
    for i in range(n):
        if choice[i] < 0 and columns[i, 0] >= 0:
            seen[i] = 0
            waiting[count] = i
            key[count] = noise * np.log(1e-12 + _uniform(state)) - reduced[i, columns[i, 0]]
            count += 1
    for at in np.argsort(key[:count]):
        i = waiting[at]
        best, best_k = -np.inf, -1
        for b in range(width):
            k = columns[i, b]
            if k < 0:
                break
            if load[pools[k]] + demand[i, k] <= limit[pools[k]]:
                score = reduced[i, k] + noise * _uniform(state)
                if score > best:
                    best, best_k = score, k
        if best_k >= 0:
            _place(i, best_k, demand, pools, choice, load)


@kernel(allocates=True)
def _measure(utility: FloatArray, demand: FloatArray, pools: IntArray, choice: IntArray, load: FloatArray) -> float:
    """Sum the utility, and the loads afresh so that rounding does not build up."""
    value = 0.0
    load[:] = 0.0
    for i in range(choice.shape[0]):
        if choice[i] >= 0:
            value += utility[i, choice[i]]
            load[pools[choice[i]]] += demand[i, choice[i]]
    return value


@kernel(allocates=True)
def _rebuild(
    rounds: int, target: float, unit: float, state: FloatArray, columns: IntArray, reduced: FloatArray,
    utility: FloatArray, demand: FloatArray, pools: IntArray, limit: FloatArray, best: IntArray,
) -> None:  # fmt: skip
    """Tear down and re-build; ``best`` is read as the start and holds the best choice met at the end."""
    n, n_pools = best.shape[0], limit.shape[0]
    choice, load = best.copy(), np.zeros(n_pools)
    kept, kept_value = best.copy(), _measure(utility, demand, pools, best, load)
    kept_load, best_value = load.copy(), kept_value
    stamp, seen = np.ones(n_pools, np.int64), np.zeros(n, np.int64)
    hit = np.empty(n_pools, np.bool_)
    clock = 1
    for done in range(rounds):
        if best_value >= target:
            break
        clock += 1
        hit[:] = False
        for _ in range(POOLS_HIT):
            p = int(_uniform(state) * n_pools)
            hit[p] = True
            stamp[p] = clock
        for i in range(n):
            if choice[i] >= 0 and hit[pools[choice[i]]] and _uniform(state) < SHARE_TAKEN:
                _place(i, -1, demand, pools, choice, load)
        _recreate(NOISE * unit, state, columns, reduced, demand, pools, limit, choice, load, seen)
        clock = _improve(
            columns, utility, demand, pools, limit, LEAST_GAIN * unit, choice, load, stamp, seen, clock
        )  # fmt: skip
        value = _measure(utility, demand, pools, choice, load)
        if value > best_value:
            best[:] = choice
            best_value = value
        if value >= kept_value - unit / np.sqrt(n) * ACCEPT * (ACCEPT_LAST / ACCEPT) ** (done / rounds):
            kept[:] = choice
            kept_load[:] = load
            kept_value = value
        else:
            choice[:] = kept
            load[:] = kept_load
