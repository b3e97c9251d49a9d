"""The empirical kernel of Aas, Jullum and Løland: training rows weighted by how near their observed part is.

The distance is Mahalanobis over the observed features, divided by their number, and the kernel is Gaussian with
bandwidth sigma; the nearest rows that hold a share eta of the weight are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.algebra import condition
from attribution_sched.attribution.conditionals.base import LOG_2PI, Draws, State
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.types import BoolArray, FloatArray


class EmpiricalConditional:
    """Kernel-weighted training rows.

    Args:
        bandwidth: Kernel width sigma.
        share: Share of the total weight that is kept, nearest rows first.
    """

    kind = "empirical"

    def __init__(self, bandwidth: float = 0.1, share: float = 0.95) -> None:
        self.bandwidth = bandwidth
        self.share = share
        self.rows = np.zeros((0, 0))
        self.covariance = np.zeros((0, 0))

    def fit(self, x: FloatArray, rng: np.random.Generator) -> EmpiricalConditional:
        """Keep the rows and their covariance."""
        self.rows = x
        self.covariance = np.cov(x.T)
        return self

    def refit(self, x: FloatArray, rng: np.random.Generator) -> EmpiricalConditional:
        """The same kernel over other rows."""
        return EmpiricalConditional(self.bandwidth, self.share).fit(x, rng)

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features, each kept row smeared by a normal kernel, (n,)."""
        out = np.empty(len(x))
        width = 1.06 * self.rows.std(axis=0) * len(self.rows) ** -0.2
        for i, (row, mask) in enumerate(zip(x, observed, strict=True)):
            weight = self._weights(row[None], mask[None])[0, 0]
            z = ((row - self.rows) / width)[:, ~mask]
            log = -0.5 * np.square(z).sum(1) - np.log(width[~mask]).sum() - 0.5 * LOG_2PI * (~mask).sum()
            out[i] = np.logaddexp.reduce(np.where(weight > 0, np.log(np.maximum(weight, 1e-300)) + log, -np.inf))
        return out

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Rows picked evenly over the kernel's distribution function by the last coordinate of the points."""
        place = points.uniforms[:, :, -1].ravel()
        rows = np.empty((len(x), len(masks), points.replicates, points.n_draws, x.shape[1]))
        for m, mask in enumerate(masks):
            top = np.cumsum(self._weights(x, mask[None])[:, 0], axis=-1)
            for i in range(len(x)):
                index = np.minimum(np.searchsorted(top[i], place), len(self.rows) - 1)
                rows[i, m] = self.rows[index].reshape(rows.shape[2:])
        np.copyto(rows, x[:, None, None, None, :], where=masks[None, :, None, None, :])
        return Draws(rows)

    def _weights(self, x: FloatArray, masks: BoolArray) -> FloatArray:
        """Normalised kernel weights of all training rows, (n, n_masks, n_training)."""
        parts = condition(self.covariance[None], masks)
        out = np.empty((len(x), len(masks), len(self.rows)))
        for m, mask in enumerate(masks):
            size = max(int(mask.sum()), 1)
            white = parts.whitener[0, m]
            a, b = np.where(mask, x, 0.0) @ white.T, self.rows @ white.T
            square = np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T, 0.0) / size
            log = -square / (2 * self.bandwidth**2)
            weight = np.exp(log - log.max(axis=1, keepdims=True))
            out[:, m] = weight / weight.sum(axis=1, keepdims=True)
        return _trim(out, self.share)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        return {"bandwidth": self.bandwidth, "share": self.share}, {"rows": self.rows, "covariance": self.covariance}

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> EmpiricalConditional:
        """Build the fitted model back."""
        model = cls(float(settings["bandwidth"]), float(settings["share"]))
        model.rows, model.covariance = arrays["rows"], arrays["covariance"]
        return model


def _trim(weight: FloatArray, share: float) -> FloatArray:
    """Drop the farthest rows beyond ``share`` of the weight and normalise again."""
    order = np.argsort(-weight, axis=-1)
    ranked = np.take_along_axis(weight, order, axis=-1)
    before = np.cumsum(ranked, axis=-1) - ranked
    ranked = np.where(before < share, ranked, 0.0)
    out = np.zeros_like(weight)
    np.put_along_axis(out, order, ranked, axis=-1)
    return np.asarray(out / out.sum(axis=-1, keepdims=True))
