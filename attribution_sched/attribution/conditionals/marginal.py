"""The marginal game: hidden features come from training rows, whatever is observed. What KernelSHAP does."""

from __future__ import annotations

from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.base import LOG_2PI, Draws, State
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.types import BoolArray, FloatArray


class MarginalConditional:
    """Hidden features jointly from a random training row, independent of the observed ones."""

    kind = "marginal"

    def __init__(self) -> None:
        self.rows = np.zeros((0, 0))

    def fit(self, x: FloatArray, rng: np.random.Generator) -> MarginalConditional:
        """Keep the rows."""
        self.rows = x
        return self

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density under independent features, each a normal kernel estimate over the training rows, (n,)."""
        out = np.zeros(len(x))
        width = 1.06 * self.rows.std(axis=0) * len(self.rows) ** -0.2
        for j in range(x.shape[1]):
            z = (x[:, j, None] - self.rows[None, :, j]) / width[j]
            log = np.logaddexp.reduce(-0.5 * z * z, axis=1) - np.log(len(self.rows) * width[j]) - 0.5 * LOG_2PI
            out += np.where(observed[:, j], 0.0, log)
        return out

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Rows picked evenly over the training set by the last coordinate of the points."""
        index = (points.uniforms[:, :, -1] * len(self.rows)).astype(np.int64)
        picked = self.rows[index]
        rows = np.where(masks[None, :, None, None, :], x[:, None, None, None, :], picked[None, None])
        return Draws(rows)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        return {}, {"rows": self.rows}

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> MarginalConditional:
        """Build the fitted model back."""
        model = cls()
        model.rows = arrays["rows"]
        return model
