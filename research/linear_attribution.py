"""EmSHAP in closed form: a linear energy model over Gaussian log counters, one matrix product for each batch of tasks.

With ``z`` the standardised log counters, ``f(z) = base + b·z`` and ``Z ~ N(0, R)``, the value of a coalition is

    v(S) = E[f(Z) | z_S] = base + bᵀ G_S z,   G_S = [identity on S; R_hS R_SS⁻¹ on the hidden rest]

and Shapley values are linear in the values, so all 2^d coalitions fold into ``phi = A z`` once and for all. The
contributions add up to ``f(z) - base`` because the columns of ``A`` add up to ``b``.

This made the seven numbers that the shipped networks learnt from (``attribution/closed_form.json``); as an account of
joules it is superseded by ``attribution_sched.attribution.accounting``: rates know no pace, a mean task is no machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.checks import check_finite
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import CheckpointError, ModelFitError, problem
from attribution_sched.shapley.exact import all_coalitions, shapley_matrix

if TYPE_CHECKING:
    from attribution_sched.cluster.world import World

FloatArray = NDArray[np.float64]

ENOUGH_TASKS = 512
"""A smaller pool is filled up to this with further tasks of the same kinds."""

UNIT_SHARES = (1.0, 0.1, 0.01)
"""Units tried for the logarithm, as shares of a counter's median: counters over many decades need a small one."""

SMALLEST_EIGENVALUE = 1e-6
RIDGE = 1e-3
"""Ridge on the standardised counters, taken only where their correlation has an eigenvalue below the smallest."""

_ARRAYS = ("matrix", "mean", "scale", "unit", "spread")


@dataclass(frozen=True, eq=False)
class LinearAttribution:
    """A fitted attributor: counters to contributions, and to seven numbers in [-1, 1] for a scheduler's state.

    A counter enters as ``x = log(1 + counter / unit)``, which a counter of zero (convolutions of a language model)
    passes as zero. The energy model explains ``log energy`` or the energy itself.

    Attributes:
        matrix: (d, d), ``phi = matrix @ z`` of a row of standardised log counters.
        mean: (d,) mean of the log counters.
        scale: (d,) their standard deviation; 1 where a counter never moved.
        unit: (d,) the counter values that count as one under the logarithm.
        spread: (d,) root mean square of each contribution over the training rows; 1 where there was none.
        base: Mean of the energy model: of ``log`` joules, or of joules.
        log_energy: Whether the model explains the logarithm of the energy.
        r_squared: Share of the variance of its target that the energy model explains; 0 where there was none.
        rows: Tasks it was fitted on.
        names: Names of the d counters.
    """

    matrix: FloatArray
    mean: FloatArray
    scale: FloatArray
    unit: FloatArray
    spread: FloatArray
    base: float
    log_energy: bool
    r_squared: float
    rows: int
    names: tuple[str, ...] = DEMAND_NAMES

    def __post_init__(self) -> None:
        """Freeze the arrays and refuse shapes and values that no fit gives."""
        d = len(self.names)
        for name in _ARRAYS:
            array = np.array(getattr(self, name), dtype=np.float64)
            shape = (d, d) if name == "matrix" else (d,)
            if array.shape != shape:
                fix = "Take all arrays from one fit."
                raise ModelFitError(problem(f"{name}.shape", array.shape, f"must be {shape} for {d} counters", fix))
            positive = name in ("scale", "unit", "spread")
            if not np.isfinite(array).all() or (positive and (array <= 0).any()):
                rule = "must be finite" + (" and > 0" if positive else "")
                raise ModelFitError(problem(name, array.tolist(), rule, "Fit the attributor again."))
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if not np.isfinite(self.base):
            raise ModelFitError(problem("base", self.base, "must be finite", "Fit the attributor again."))

    @classmethod
    def fit(
        cls, counters: Any, energy_j: Any, *, log_energy: bool = True, names: tuple[str, ...] = DEMAND_NAMES
    ) -> Self:
        """Fit energy model and distribution on tasks whose energy was metered.

        Args:
            counters: (n, 7) counters, or (n, 12) of which the first seven are taken; none negative.
            energy_j: (n,) joules of each task, in one unit of work for all.
            log_energy: Explain the logarithm of the energy, as suits tasks that differ by orders of magnitude.
            names: Names of the counters, for other sets than the seven.
        """
        given = _columns(counters, names)
        target = _target(energy_j, len(given), log_energy)
        if len(given) < len(names) + 2:
            rule = f"{len(names)} counters need at least {len(names) + 2} tasks"
            raise ModelFitError(problem("counters rows", len(given), rule, "Record more before fitting."))
        middle = np.array([np.median(column[column > 0]) if (column > 0).any() else 1.0 for column in given.T])
        tries = [_regress(given, middle * share, target) for share in UNIT_SHARES]
        best = max(tries, key=lambda fit: fit.explained)
        matrix = shapley_operator(best.slope, best.z.T @ best.z / len(given))
        size = np.sqrt(np.mean((best.z @ matrix.T) ** 2, axis=0))
        total = float(np.abs(matrix).max())
        return cls(
            matrix=matrix,
            mean=best.mean,
            scale=best.scale,
            unit=best.unit,
            spread=np.where(size > 1e-9 * max(total, 1e-300), size, 1.0),
            base=float(target.mean()),
            log_energy=log_energy,
            r_squared=best.explained,
            rows=len(given),
            names=tuple(names),
        )

    @property
    def slope(self) -> FloatArray:
        """Coefficients of the energy model on the standardised log counters, (d,)."""
        return np.asarray(self.matrix.sum(axis=0))

    def standardised(self, counters: Any) -> FloatArray:
        """Standardised log counters, (n, d)."""
        return (np.log1p(_columns(counters, self.names) / self.unit) - self.mean) / self.scale

    def predict(self, counters: Any) -> FloatArray:
        """Energy of each task by the linear model, (n,): log joules, or joules."""
        return self.base + self.standardised(counters) @ self.slope

    def contributions(self, counters: Any) -> FloatArray:
        """Conditional Shapley values of ``predict``, (n, d); with ``base`` they add up to it."""
        return self.standardised(counters) @ self.matrix.T

    def joules(self, counters: Any) -> FloatArray:
        """Contributions in joules above the typical task, (n, d).

        A model of joules gives them directly. Contributions to the logarithm are weighted with the logarithmic mean
        ``(E - E0) / (ln E - ln E0)`` of the task's energy and the typical one, so that they add up to ``E - E0``.
        """
        phi = self.contributions(counters)
        if not self.log_energy:
            return phi
        gap = phi.sum(axis=1)
        weight = np.ones_like(gap)
        np.divide(np.expm1(gap), gap, out=weight, where=gap != 0)
        return np.asarray(phi * (np.exp(self.base) * weight)[:, None])

    def __call__(self, counters: Any) -> FloatArray:
        """Attributions for a scheduler's state, (n, d) in [-1, 1]: ``tanh`` of each contribution over its spread."""
        return np.tanh(self.contributions(counters) / self.spread)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Everything but the names as arrays, to be kept inside a checkpoint."""
        facts = np.array([self.base, float(self.log_energy), self.r_squared, float(self.rows)])
        return {**{name: getattr(self, name).copy() for name in _ARRAYS}, "facts": facts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], names: tuple[str, ...] = DEMAND_NAMES) -> Self:
        """Build an attributor back from :meth:`to_arrays`."""
        wanted = {*_ARRAYS, "facts"}
        if set(arrays) != wanted:
            rule = f"must be exactly {sorted(wanted)}"
            raise CheckpointError(problem("arrays", sorted(arrays), rule, "Pass what to_arrays() gave."))
        facts = np.asarray(arrays["facts"], dtype=np.float64)
        if facts.shape != (4,) or not np.isfinite(facts).all():
            fix = "The file is damaged; fit the attributor again."
            raise CheckpointError(problem("facts", facts.tolist(), "must be four finite numbers", fix))
        base, log_energy, r_squared, rows = (float(v) for v in facts)
        try:
            return cls(
                matrix=np.asarray(arrays["matrix"]),
                mean=np.asarray(arrays["mean"]),
                scale=np.asarray(arrays["scale"]),
                unit=np.asarray(arrays["unit"]),
                spread=np.asarray(arrays["spread"]),
                base=base,
                log_energy=bool(log_energy),
                r_squared=r_squared,
                rows=int(rows),
                names=tuple(names),
            )
        except ModelFitError as error:
            raise CheckpointError(str(error)) from error

    def __eq__(self, other: object) -> bool:
        """Whether all numbers and names are the same."""
        if not isinstance(other, LinearAttribution):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    __hash__ = None  # type: ignore[assignment]


def shapley_operator(slope: FloatArray, correlation: FloatArray) -> FloatArray:
    """The matrix A of ``phi = A z`` for ``f = slope · z`` and ``Z ~ N(0, correlation)``, (d, d).

    Args:
        slope: (d,) coefficients.
        correlation: (d, d) covariance of the standardised rows; a row of zeros is a counter that never moves, and a
            singular one (a repeated counter) is conditioned on by its pseudo-inverse.
    """
    alive = np.flatnonzero(correlation.diagonal() > 0)
    masks = all_coalitions(len(alive))
    b, r = slope[alive], correlation[np.ix_(alive, alive)]
    value = np.zeros(masks.shape)
    for row, seen in zip(value, masks, strict=True):
        hidden = ~seen
        row[seen] = b[seen]
        if seen.any() and hidden.any():
            inverse = np.linalg.pinv(r[np.ix_(seen, seen)], rcond=1e-10, hermitian=True)
            row[seen] += b[hidden] @ r[np.ix_(hidden, seen)] @ inverse
    # What never moves reveals nothing and is revealed by nothing: it keeps its own term.
    operator = np.diag(slope).astype(np.float64)
    if alive.size:
        operator[np.ix_(alive, alive)] = shapley_matrix(len(alive)).T @ value
    return operator


@dataclass(frozen=True)
class _Regression:
    """Least squares of the target on standardised log counters."""

    unit: FloatArray
    mean: FloatArray
    scale: FloatArray
    z: FloatArray
    slope: FloatArray
    explained: float


def _regress(given: FloatArray, unit: FloatArray, target: FloatArray) -> _Regression:
    x = np.log1p(given / unit)
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    moves = deviation > 1e-9 * np.maximum(np.abs(mean), 1.0)
    scale = np.where(moves, deviation, 1.0)
    # A counter that never moves takes no part: rounding must not give it a slope.
    z = np.where(moves, (x - mean) / scale, 0.0)
    correlation, centred = z.T @ z / len(z), target - target.mean()
    slope = np.zeros(len(unit))
    if moves.any():
        own = correlation[np.ix_(moves, moves)]
        if np.linalg.eigvalsh(own)[0] < SMALLEST_EIGENVALUE:
            own = own + RIDGE * np.eye(len(own))
        slope[moves] = np.linalg.solve(own, z[:, moves].T @ centred / len(z))
    whole, rest = float(centred @ centred), float(np.square(centred - z @ slope).sum())
    reach = len(target) * (1e-12 * max(1.0, float(np.abs(target).max()))) ** 2
    return _Regression(unit, mean, scale, z, slope, 1.0 - rest / whole if whole > reach else 0.0)


def _columns(counters: Any, names: tuple[str, ...]) -> FloatArray:
    """The counters to attribute to as (n, d) floats; one clear error for anything else."""
    try:
        given = np.asarray(counters, dtype=np.float64)
    except (TypeError, ValueError) as error:
        rule = "every counter must be a number"
        raise ModelFitError(problem("counters", type(counters).__name__, rule, "Pass an array (n, 12).")) from error
    d = len(names)
    widths = (d, len(COUNTER_NAMES)) if names == DEMAND_NAMES else (d,)
    if given.ndim != 2 or given.shape[1] not in widths:
        rule = "must be (n, " + " or ".join(str(w) for w in widths) + ")"
        raise ModelFitError(problem("counters.shape", given.shape, rule, "Pass one row for each task."))
    given = given[:, :d]
    check_finite(given, names)
    if (given < 0).any():
        row, column = (int(i) for i in np.argwhere(given < 0)[0])
        where = f"counters[{row}, {names[column]!r}]"
        raise ModelFitError(problem(where, float(given[row, column]), "must be >= 0", "Repair or drop that reading."))
    return given


def _target(energy_j: Any, rows: int, log_energy: bool) -> FloatArray:
    """What the energy model explains, (n,)."""
    energy = np.asarray(energy_j, dtype=np.float64)
    if energy.shape != (rows,):
        fix = "Pass the joules of every task."
        raise ModelFitError(problem("energy_j.shape", energy.shape, f"must be ({rows},), one for each row", fix))
    wrong = ~np.isfinite(energy) | (energy <= 0)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        rule = "must be finite and > 0"
        raise ModelFitError(problem(f"energy_j[{at}]", float(energy[at]), rule, "Repair or drop that reading."))
    return np.log(energy) if log_energy else energy


def simulated_attributor(world: World, *, log_energy: bool = True) -> LinearAttribution:
    """Fit EmSHAP's closed form on the tasks of a world.

    Args:
        world: Its pool of tasks gives the counters, its cost model the energies.
        log_energy: Explain the logarithm of the joules per sample.
    """
    from attribution_sched.attribution.simulated_meter import task_energy_j
    from attribution_sched.cluster.counters import counters
    from attribution_sched.cluster.demands import draw_demands
    from attribution_sched.cluster.world import build_pool

    pool = build_pool(world)
    readings, energy = pool.counters.values, task_energy_j(world, pool.kinds, pool.demands)
    missing = ENOUGH_TASKS - len(pool)
    if missing > 0:
        rng = np.random.default_rng([world.pool_seed, 1])
        kinds = np.resize(pool.kinds, missing)
        more = draw_demands(
            [world.kinds[k].model for k in kinds], rng, world.idiosyncrasy,
            training=[world.kinds[k].training for k in kinds],
        )  # fmt: skip
        readings = np.vstack([readings, counters(more, rng).values])
        energy = np.concatenate([energy, task_energy_j(world, kinds, more)])
    return LinearAttribution.fit(readings, energy, log_energy=log_energy)
