"""Strata of atoms times closed forms: the model for counters that read exact zeros and integers.

A stratum is a pattern of exact values (which operators read zero, which level an integer has). Each has its chance, and
within it the other counters, on a power scale, are a mixture of Gaussians or t whose means follow the integers along a
line:

    p(x) = P(stratum) · p(counters between the atoms | stratum)      with respect to atoms plus Lebesgue measure.

Given x_S only strata that read the same atoms there remain, weighed by the density of the rest of x_S, so conditionals
are closed forms again and draws read the atoms exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from attribution_sched.attribution.conditionals.atoms import Column, find_atoms
from attribution_sched.attribution.conditionals.base import Draws, State, pick
from attribution_sched.attribution.conditionals.mixture import Components
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.attribution.conditionals.student import Fitted, fit_mixture, grow
from attribution_sched.types import BoolArray, FloatArray

POWERS = (1.0, 0.5, 1.0 / 3.0, 0.0)
"""Box-Cox powers tried for a column that is nowhere below zero; 0 is the logarithm."""

MOST_COMPONENTS = 600
_SENTINEL = 1e9


class StrataConditional:
    """Patterns of atoms with a mixture in each.

    Args:
        components: Candidate numbers of components within a stratum.
        tails: Let the components be t rather than Gaussian.
        origin: (d,) where raw zero lies in the columns given to :meth:`fit`, NaN where a column goes below it.
    """

    def __init__(
        self, components: tuple[int, ...] = (1, 2, 3, 4, 6), tails: bool = False, origin: FloatArray | None = None
    ) -> None:
        self.components = components
        self.tails = tails
        self.origin = origin
        self.columns: list[Column] = []
        self.power = np.zeros(0)
        self.parts = Components(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)))
        self.codes = np.zeros((0, 0), dtype=np.intp)
        self._groups: list[tuple[FloatArray, Fitted]] = []

    @property
    def kind(self) -> str:
        """``strata`` of Gaussians, ``strata-student`` of t."""
        return "strata-student" if self.tails else "strata"

    def fit(self, x: FloatArray, rng: np.random.Generator) -> StrataConditional:
        """Find the atoms and the power scale, then fit each stratum."""
        self.columns = find_atoms(x)
        if self.origin is None:
            self.origin = np.full(x.shape[1], np.nan)
        codes = self._codes(x)
        self.power = np.array([self._best_power(x[:, j], codes, j) for j in range(x.shape[1])])
        self._fit_strata(x, codes, rng, None)
        return self

    def refit(self, x: FloatArray, rng: np.random.Generator) -> StrataConditional:
        """The same model of other rows: atoms, scale and numbers of components as here."""
        twin = StrataConditional(self.components, self.tails, self.origin)
        twin.columns, twin.power = self.columns, self.power
        groups = {key.tobytes(): fitted for key, fitted in self._groups}
        twin._fit_strata(x, self._codes(x), rng, groups)
        return twin

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, atoms by probability, (n,)."""
        codes = self._codes(x)
        slope = np.where(observed | (codes >= 0), 0.0, self._log_slope(x)).sum(-1)
        y = self._forward(x)
        return np.asarray(self.parts.log_likelihood(y, observed, self._agree(codes)) + slope)

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Draw strata, then what lies between their atoms; atoms are exact."""
        codes = self._codes(x)
        score_draws = self.parts.draws(self._forward(x), masks, points, self._agree(codes))
        return Draws(self._backward(score_draws.rows), score_draws.weights)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        settings = {
            "components": list(self.components),
            "tails": self.tails,
            "discrete": [c.discrete for c in self.columns],
            "gridded": [c.grid is not None for c in self.columns],
        }
        arrays: State = {f"parts.{key}": value for key, value in self.parts.arrays().items()}
        origin = np.asarray(self.origin)
        arrays |= {"power": self.power, "codes": self.codes}
        arrays |= {"origin": np.nan_to_num(origin), "above_origin": np.isfinite(origin)}
        for j, column in enumerate(self.columns):
            arrays[f"atoms{j}"] = column.atoms
            if column.grid is not None:
                arrays[f"grid{j}"] = column.grid
        return settings, arrays

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> StrataConditional:
        """Build the fitted model back."""
        model = cls(tuple(settings["components"]), bool(settings["tails"]))
        model.origin = np.where(arrays["above_origin"], arrays["origin"], np.nan)
        both = zip(settings["discrete"], settings["gridded"], strict=True)
        model.columns = [
            Column(arrays[f"atoms{j}"], bool(only), arrays[f"grid{j}"] if grid else None)
            for j, (only, grid) in enumerate(both)
        ]
        model.power, model.codes = arrays["power"], np.asarray(arrays["codes"], dtype=np.intp)
        model.parts = Components.of(pick(arrays, "parts."))
        return model

    def _fit_strata(
        self, x: FloatArray, codes: NDArray[np.intp], rng: np.random.Generator, known: dict[bytes, Fitted] | None
    ) -> None:
        """Fit every pattern of atoms and put all components into one list."""
        n, d = x.shape
        y = self._forward(x)
        discrete = np.array([c.discrete for c in self.columns])
        pattern = np.where(discrete, -2, codes)
        patterns, which = np.unique(pattern, axis=0, return_inverse=True)
        which = which.ravel()
        pooled = self._pooled(y, codes, discrete, which)
        rows: list[tuple[float, FloatArray, FloatArray, float, NDArray[np.intp]]] = []
        self._groups = []
        for g, key in enumerate(patterns):
            mine = np.flatnonzero(which == g)
            free = np.flatnonzero(key == -1)
            levels, level = np.unique(codes[mine][:, discrete], axis=0, return_inverse=True)
            level = level.ravel()
            t = y[np.ix_(mine, discrete)]
            chances = _independent(codes[mine][:, discrete], levels)
            prior = (pooled[0][:, free], pooled[1][np.ix_(free, free)])
            start = None if known is None else known.get(key.tobytes())
            if start is not None and start.levels.shape[1] != len(levels):
                start = None
            if len(free) == 0:
                count = np.bincount(level, minlength=len(levels)) / len(mine)
                mixture = Fitted(
                    np.ones(1), count[None], np.zeros((1, t.shape[1] + 1, 0)), np.zeros((1, 0, 0)), np.inf, 0, 0
                )
            elif start is not None:
                size = len(start.weights)
                mixture = fit_mixture(
                    y[np.ix_(mine, free)],
                    t,
                    level,
                    len(levels),
                    size,
                    rng,
                    tails=self.tails,
                    start=start,
                    prior=prior,
                    level_prior=chances,
                )
            else:
                sizes = self.components if len(mine) >= 40 else (1,)
                mixture = grow(
                    y[np.ix_(mine, free)],
                    t,
                    level,
                    len(levels),
                    sizes,
                    rng,
                    tails=self.tails,
                    prior=prior,
                    level_prior=chances,
                )
            self._groups.append((key, mixture))
            where = np.stack([t[np.flatnonzero(level == a)[0]] for a in range(len(levels))])
            for m in range(len(mixture.weights)):
                for a in range(len(levels)):
                    code = key.copy()
                    code[discrete] = levels[a]
                    mean = np.zeros(d)
                    mean[free] = np.concatenate([[1.0], where[a]]) @ mixture.slopes[m]
                    fixed = np.flatnonzero(code >= 0)
                    mean[fixed] = _SENTINEL + code[fixed]
                    cov = np.eye(d)
                    cov[np.ix_(free, free)] = mixture.scatters[m]
                    weight = len(mine) / n * mixture.weights[m] * mixture.levels[m, a]
                    rows.append((weight, mean, cov, mixture.dof, code))
        rows.sort(key=lambda r: -r[0])
        rows = rows[:MOST_COMPONENTS]
        weights = np.array([r[0] for r in rows])
        self.codes = np.stack([r[4] for r in rows])
        self.parts = Components(
            weights / weights.sum(),
            np.stack([r[1] for r in rows]),
            np.stack([r[2] for r in rows]),
            np.array([r[3] for r in rows]),
            self.codes >= 0,
        )

    def _pooled(
        self, y: FloatArray, codes: NDArray[np.intp], discrete: BoolArray, which: NDArray[np.intp]
    ) -> tuple[FloatArray, FloatArray]:
        """Slopes (1 + q, d) and scatter (d, d) common to all strata, each with a mean of its own."""
        n, d = y.shape
        q = int(discrete.sum())
        slopes, residuals = np.zeros((1 + q, d)), np.full((n, d), np.nan)
        t = y[:, discrete]
        for j in np.flatnonzero(~discrete):
            rows = np.flatnonzero(codes[:, j] < 0)
            if len(rows) < 2 + q:
                continue
            group = which[rows]
            size = np.maximum(np.bincount(group), 1)
            centre = np.stack([np.bincount(group, v) / size for v in (y[rows, j], *t[rows].T)], axis=1)
            off = np.column_stack([y[rows, j], t[rows]]) - centre[group]
            if q:
                gram = off[:, 1:].T @ off[:, 1:] + 1e-6 * np.eye(q)
                slopes[1:, j] = np.linalg.solve(gram, off[:, 1:].T @ off[:, 0])
            slopes[0, j] = y[rows, j].mean() - t[rows].mean(axis=0) @ slopes[1:, j]
            residuals[rows, j] = off[:, 0] - off[:, 1:] @ slopes[1:, j]
        present = (~np.isnan(residuals)).astype(np.float64)
        filled = np.nan_to_num(residuals)
        scatter = filled.T @ filled / np.maximum(present.T @ present, 1.0)
        size, direction = np.linalg.eigh(scatter)
        scatter = (direction * np.maximum(size, 1e-4 * max(float(size.max()), 1e-9))) @ direction.T
        return slopes, np.asarray(scatter)

    def _best_power(self, column: FloatArray, codes: NDArray[np.intp], j: int) -> float:
        """The power under which the column is most nearly normal within each pattern of atoms."""
        zero = float(np.asarray(self.origin)[j])
        rows = np.flatnonzero(codes[:, j] < 0) if not self.columns[j].discrete else np.arange(len(column))
        if len(rows) < 20 or not np.isfinite(zero) or column[rows].min() <= zero:
            return 1.0
        u = column[rows] - zero
        others = codes[rows].copy()
        others[:, [c.discrete for c in self.columns]] = 0
        _, group = np.unique(others, axis=0, return_inverse=True)
        group = group.ravel()
        count = np.bincount(group)
        scores = []
        for power in POWERS:
            v = np.log(u) if power == 0 else u**power / power
            centre = np.bincount(group, v) / count
            spread = np.square(v - centre[group]).mean()
            scores.append(-0.5 * len(u) * np.log(spread) + (power - 1.0) * np.log(u).sum())
        return POWERS[int(np.argmax(scores))]

    def _codes(self, x: FloatArray) -> NDArray[np.intp]:
        return np.stack([c.codes(x[..., j]) for j, c in enumerate(self.columns)], axis=-1)

    def _agree(self, codes: NDArray[np.intp]) -> BoolArray:
        """Whether each component can have each row's values, (n, k, d)."""
        return np.asarray(codes[:, None, :] == self.codes[None])

    def _forward(self, x: FloatArray) -> FloatArray:
        """Rows on the power scale; at or below zero the smallest value that has a logarithm stands in."""
        y = x.copy()
        for j, power in enumerate(self.power):
            if power != 1.0:
                u = np.maximum(x[..., j] - np.asarray(self.origin)[j], 1e-12)
                y[..., j] = np.log(u) if power == 0 else u**power / power
        return y

    def _backward(self, y: FloatArray) -> FloatArray:
        """Rows on their own scale, atoms exact and the rest of gridded columns rounded to the grid; in place."""
        for j, (power, column) in enumerate(zip(self.power, self.columns, strict=True)):
            v = y[..., j]
            if len(column.atoms):
                exact = v > _SENTINEL / 2
                atom = column.atoms[np.where(exact, v - _SENTINEL, 0).astype(np.intp)]
                v = np.where(exact, 0.0, v)
            if power != 1.0:
                zero = np.asarray(self.origin)[j]
                v = zero + (np.exp(np.minimum(v, 50.0)) if power == 0 else np.maximum(power * v, 0.0) ** (1 / power))
            if column.grid is not None:
                v = column.grid[np.searchsorted((column.grid[1:] + column.grid[:-1]) / 2, v)]
            y[..., j] = np.where(exact, atom, v) if len(column.atoms) else v
        return y

    def _log_slope(self, x: FloatArray) -> FloatArray:
        out = np.zeros_like(x)
        for j, power in enumerate(self.power):
            if power != 1.0:
                u = np.maximum(x[..., j] - np.asarray(self.origin)[j], 1e-12)
                out[..., j] = (power - 1.0) * np.log(u)
        return out


def _independent(codes: NDArray[np.intp], levels: NDArray[np.intp]) -> FloatArray:
    """Rows that the levels of several discrete columns start with: many where these look independent, else few.

    Levels of independent columns have the product of their chances, which a table of counts only reaches with noise.
    """
    n, q = codes.shape
    few = np.full(len(levels), 0.02)
    if q < 2:
        return few
    chance = np.ones(len(levels))
    for j in range(q):
        count = np.bincount(codes[:, j], minlength=int(levels[:, j].max()) + 1) / n
        chance *= count[levels[:, j]]
    counts = np.array([(codes == level).all(axis=1).sum() for level in levels])
    expected = n * chance
    statistic = float((np.square(counts - expected) / expected).sum() + (n - expected.sum()))
    sizes = [len(np.unique(codes[:, j])) for j in range(q)]
    degrees = int(np.prod(sizes)) - 1 - sum(size - 1 for size in sizes)
    return few + n * chance if chdtrc(max(degrees, 1), statistic) > 0.05 else few
