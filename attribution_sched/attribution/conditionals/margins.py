"""Smooth one-dimensional margins: map every feature to normal scores and back.

Each margin is a one-dimensional Gaussian mixture whose size is chosen by the Bayesian information criterion, so a
normal margin stays exactly linear. The map ``score = Phi^-1(F(x))`` is tabulated on a fine even grid of scores and
continued by straight lines, so both directions are plain interpolation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp, stdtr, stdtrit

from attribution_sched.attribution.conditionals.base import LOG_2PI
from attribution_sched.types import FloatArray

_REACH = 5.5
_STEPS = 1100
_COMPONENTS = 4
_FLOOR = 0.05
"""Smallest spread of a margin's component, in standard deviations of the column."""


@dataclass(frozen=True)
class Margins:
    """Monotone maps of d features to scores.

    Attributes:
        table: (d, steps + 1), feature value at evenly spaced grid points from -reach to reach, strictly increasing.
        reach: End of the grid.
        heavy: False: the grid is of the scores themselves, which are normal. True: of their inverse hyperbolic sine,
            for scores with the long tails of a t.
    """

    table: FloatArray
    reach: float = _REACH
    heavy: bool = False

    @property
    def step(self) -> float:
        """Distance between two grid points."""
        return float(2 * self.reach / (self.table.shape[1] - 1))

    def to_scores(self, x: FloatArray) -> FloatArray:
        """Scores of rows (..., d)."""
        grid = np.linspace(-self.reach, self.reach, self.table.shape[1])
        out = np.empty_like(x)
        for j, knots in enumerate(self.table):
            column = x[..., j]
            inner = np.interp(column, knots, grid)
            below = np.minimum(column - knots[0], 0.0) * self.step / (knots[1] - knots[0])
            above = np.maximum(column - knots[-1], 0.0) * self.step / (knots[-1] - knots[-2])
            out[..., j] = inner + below + above
        return np.asarray(np.sinh(out)) if self.heavy else out

    def to_features(self, z: FloatArray) -> FloatArray:
        """Feature values of scores (..., d); the inverse of :meth:`to_scores`."""
        position = ((np.arcsinh(z) if self.heavy else z) + self.reach) / self.step
        index = np.clip(position, 0, self.table.shape[1] - 2).astype(np.int64)
        position -= index
        offset = np.arange(self.table.shape[0]) * self.table.shape[1]
        index += offset
        rise = np.append(np.diff(self.table.ravel()), 0.0)
        position *= rise[index]
        position += self.table.ravel()[index]
        return position

    def log_slope(self, x: FloatArray) -> FloatArray:
        """Log derivative of the score with respect to the feature, (..., d)."""
        out = np.empty_like(x)
        for j, knots in enumerate(self.table):
            index = np.clip(np.searchsorted(knots, x[..., j]) - 1, 0, len(knots) - 2)
            out[..., j] = np.log(self.step) - np.log(np.diff(knots)[index])
        if self.heavy:
            # d score / d grid of a hyperbolic sine.
            out += 0.5 * np.log1p(np.square(self.to_scores(x)))
        return out


def fit_margins(x: FloatArray) -> Margins:
    """Fit smooth margins to rows (n, d)."""
    return Margins(np.stack([_one_margin(x[:, j]) for j in range(x.shape[1])]))


def student_margins(normal: Margins, dof: float) -> Margins:
    """The same margins, with scores of a t instead of normal ones."""
    reach = float(np.arcsinh(stdtrit(dof, float(ndtr(_REACH - 1e-3)))))
    grid = np.linspace(-reach, reach, 2 * _STEPS + 1)
    scores = -np.sign(grid) * ndtri(np.clip(stdtr(dof, -np.abs(np.sinh(grid))), 1e-300, 0.5))
    return Margins(normal.to_features(np.repeat(scores[:, None], len(normal.table), axis=1)).T.copy(), reach, True)


def _one_margin(column: FloatArray) -> FloatArray:
    """Feature values at the grid scores for one column."""
    best, best_bic = _em_1d(column, 1), np.inf
    for k in range(1, _COMPONENTS + 1):
        weight, mean, spread = _em_1d(column, k)
        log = np.logaddexp.reduce(_log_parts(column, weight, mean, spread), axis=1).sum()
        bic = -2 * log + (3 * k - 1) * np.log(len(column))
        if bic >= best_bic:
            break
        best, best_bic = (weight, mean, spread), bic
    weight, mean, spread = best
    grid = np.linspace(-_REACH, _REACH, _STEPS + 1)
    if len(weight) == 1:
        return np.asarray(mean[0] + spread[0] * grid)
    reach = np.linspace((mean - 7 * spread).min(), (mean + 7 * spread).max(), 8 * _STEPS)
    # Log distribution functions from both ends keep the far tails exact.
    parts = (reach[:, None] - mean) / spread
    lower = np.logaddexp.reduce(np.log(weight) + log_ndtr(parts), axis=1)
    upper = np.logaddexp.reduce(np.log(weight) + log_ndtr(-parts), axis=1)
    score = np.where(lower < upper, ndtri_exp(np.minimum(lower, -1e-300)), -ndtri_exp(np.minimum(upper, -1e-300)))
    keep = np.concatenate([[True], np.diff(np.maximum.accumulate(score)) > 1e-9])
    table = np.interp(grid, score[keep], reach[keep])
    # Grid scores beyond the table would repeat its ends; a tiny slope keeps the map invertible there.
    return np.asarray(np.maximum.accumulate(table + 1e-9 * np.arange(len(grid))))


def _log_parts(column: FloatArray, weight: FloatArray, mean: FloatArray, spread: FloatArray) -> FloatArray:
    """Log weighted component densities, (n, k)."""
    z = (column[:, None] - mean) / spread
    return np.asarray(np.log(weight) - np.log(spread) - 0.5 * z * z - 0.5 * LOG_2PI)


def _em_1d(column: FloatArray, k: int, rounds: int = 200) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Expectation maximisation of a one-dimensional mixture, started at the column's quantiles."""
    edges = np.quantile(column, (np.arange(k) + 0.5) / k)
    floor = _FLOOR * column.std()
    weight, mean = np.full(k, 1.0 / k), edges.astype(np.float64)
    spread = np.full(k, max(column.std() / k, floor)) if k > 1 else np.array([column.std()])
    if k == 1:
        return weight, np.array([column.mean()]), spread
    last = -np.inf
    for _ in range(rounds):
        logs = _log_parts(column, weight, mean, spread)
        total = np.logaddexp.reduce(logs, axis=1)
        share = np.exp(logs - total[:, None])
        mass = share.sum(axis=0) + 1e-10
        weight = mass / mass.sum()
        mean = share.T @ column / mass
        spread = np.sqrt(np.maximum((share * np.square(column[:, None] - mean)).sum(0) / mass, floor**2))
        if total.mean() - last < 1e-6:
            break
        last = float(total.mean())
    return weight, mean, spread
