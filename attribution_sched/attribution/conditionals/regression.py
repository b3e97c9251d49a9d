"""Separate regressions: training rows weighed so that their sum is a ridge regression on the observed features.

``E[f(x_S, X_hidden) | x_S]`` is the regression of ``f(x_S, X_hidden)`` on lines, squares and products of X_S, read at
x_S. Ridge regression is linear in f, so it is a weighted sum over training rows whose weights depend on x_S alone; they
may be negative. It knows no density.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.base import Draws, State
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.types import BoolArray, FloatArray


class RegressionConditional:
    """Quadratic ridge regression on the observed features, one for each coalition.

    Args:
        ridge: Penalty, in rows.
    """

    kind = "regression"

    def __init__(self, ridge: float = 3.0) -> None:
        self.ridge = ridge
        self.rows = np.zeros((0, 0))

    def fit(self, x: FloatArray, rng: np.random.Generator) -> RegressionConditional:
        """Keep the rows."""
        self.rows = x
        return self

    def refit(self, x: FloatArray, rng: np.random.Generator) -> RegressionConditional:
        """The same regression over other rows."""
        return RegressionConditional(self.ridge).fit(x, rng)

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """A regression has no density."""
        raise ModelFitError(problem("model", self.kind, "has no density", "Compare it by the error of E[f | x_S]."))

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Rows picked evenly over the training set, weighed by the regression at x_S."""
        index = (points.uniforms[:, :, -1] * len(self.rows)).astype(np.int64)
        picked = self.rows[index]
        centre, spread = self.rows.mean(axis=0), self.rows.std(axis=0) + 1e-12
        z, at = (picked - centre) / spread, np.clip((x - centre) / spread, -4.0, 4.0)
        z = np.clip(z, -4.0, 4.0)
        rows = np.where(masks[None, :, None, None, :], x[:, None, None, None, :], picked[None, None])
        weights = np.full(rows.shape[:-1], 1.0 / points.n_draws)
        for m, mask in enumerate(masks):
            if not mask.any():
                continue
            for r in range(points.replicates):
                design = _quadratic(z[r][:, mask])
                middle = design.mean(axis=0)
                off = design - middle
                gram = off.T @ off + self.ridge * np.eye(off.shape[1])
                query = _quadratic(at[:, mask]) - middle
                weights[:, m, r] += np.linalg.solve(gram, query.T).T @ off.T
        return Draws(rows, weights)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        return {"ridge": self.ridge}, {"rows": self.rows}

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> RegressionConditional:
        """Build the fitted model back."""
        model = cls(float(settings["ridge"]))
        model.rows = arrays["rows"]
        return model


def _quadratic(z: FloatArray) -> FloatArray:
    """Lines, squares and products of columns."""
    i, j = np.triu_indices(z.shape[1])
    return np.column_stack([z, z[:, i] * z[:, j]])
