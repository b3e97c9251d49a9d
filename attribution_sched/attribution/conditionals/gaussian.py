"""One Gaussian with the sample moments: closed-form conditionals, exact for linear functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.algebra import (
    Conditioning,
    condition,
    conditional_means,
    joint_and_observed,
)
from attribution_sched.attribution.conditionals.base import Draws, State
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.types import BoolArray, FloatArray


class GaussianConditional:
    """``x_hidden | x_S ~ N(m + G (x_S - m_S), C_left)`` with the sample mean and covariance.

    No shrinkage: with antisymmetric points the coalition values of a linear function are then exact for the
    sample moments.
    """

    kind = "gaussian"

    def __init__(self) -> None:
        self.mean = np.zeros(0)
        self.covariance = np.zeros((0, 0))
        self._cache: tuple[bytes, Conditioning] | None = None

    def fit(self, x: FloatArray, rng: np.random.Generator) -> GaussianConditional:
        """Take the sample moments of the rows."""
        self.mean = x.mean(axis=0)
        centred = x - self.mean
        self.covariance = centred.T @ centred / len(x)
        self._cache = None
        return self

    def refit(self, x: FloatArray, rng: np.random.Generator) -> GaussianConditional:
        """The same model of other rows."""
        return GaussianConditional().fit(x, rng)

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, (n,)."""
        joint, observed_log = joint_and_observed(self.mean[None], self.covariance[None], x, observed)
        return np.asarray(joint[:, 0] - observed_log[:, 0])

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Conditional mean plus the same correlated noise for every row."""
        parts = self._condition(masks)
        means = conditional_means(parts, self.mean[None], np.asarray(x, dtype=np.float64))[:, :, 0]
        r, k, d = points.normals.shape
        noise = points.normals.reshape(r * k, d) @ np.swapaxes(parts.factor[0], -1, -2)
        # The noise is exactly zero on observed features, so they are kept bit for bit.
        np.copyto(means, x[:, None, :], where=masks[None])
        rows = means[:, :, None, :] + noise[None]
        return Draws(rows.reshape(len(x), len(masks), r, k, d))

    def _condition(self, masks: BoolArray) -> Conditioning:
        key = masks.tobytes()
        if self._cache is None or self._cache[0] != key:
            self._cache = (key, condition(self.covariance[None], masks))
        return self._cache[1]

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        return {}, {"mean": self.mean, "covariance": self.covariance}

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> GaussianConditional:
        """Build the fitted model back."""
        model = cls()
        model.mean, model.covariance = arrays["mean"], arrays["covariance"]
        return model
