"""A Gaussian mixture: every conditional is again a mixture, in closed form, and is drawn stratum by stratum.

Given x_S, component k weighs ``w_k N(x_S; m_k, C_k)`` and moves by the Gaussian rule. Draws are shared out
to the components in proportion to those weights and re-weighted exactly, so the component itself adds no noise.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.algebra import (
    Conditioning,
    condition,
    conditional_means,
    joint_and_observed,
    observed_log_density,
)
from attribution_sched.attribution.conditionals.base import BoolArray, Draws, FloatArray, State
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.errors import ModelFitError, problem

_NEGLIGIBLE = 1e-3
"""A component whose conditional weight is below this gets no draw; the others are re-normalised."""


class MixtureConditional:
    """Gaussian mixture whose number of components is chosen by the Bayesian information criterion.

    Args:
        components: Candidate numbers of components, tried in this order.
        restarts: Starts of expectation maximisation for each number of components.
    """

    kind = "mixture"

    def __init__(self, components: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10), restarts: int = 3) -> None:
        self.components = components
        self.restarts = restarts
        self.weights = np.zeros(0)
        self.means = np.zeros((0, 0))
        self.covariances = np.zeros((0, 0, 0))
        self._cache: tuple[bytes, Conditioning] | None = None

    def fit(self, x: FloatArray, rng: np.random.Generator) -> MixtureConditional:
        """Fit every candidate number of components by expectation maximisation and keep the best."""
        best, model, worse = np.inf, None, 0
        for k in self.components:
            # Each component needs enough rows of its own to carry a full covariance.
            if k > 1 and len(x) < 2 * k * (x.shape[1] + 1):
                break
            candidate = _fit_em(x, k, rng, self.restarts)
            score = float(candidate.bic(x))
            worse = 0 if score < best else worse + 1
            if score < best:
                best, model = score, candidate
            elif worse == 2:
                break
        if model is None:
            rule = f"no number of components in {self.components} can be fitted to {len(x)} rows"
            raise ModelFitError(problem("components", self.components, rule, "Include 1 component."))
        self.weights = np.asarray(model.weights_, dtype=np.float64)
        self.means = np.asarray(model.means_, dtype=np.float64)
        self.covariances = np.asarray(model.covariances_, dtype=np.float64)
        self._cache = None
        return self

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, (n,)."""
        joint, seen = joint_and_observed(self.means, self.covariances, x, observed)
        prior = np.log(self.weights)
        return np.asarray(np.logaddexp.reduce(joint + prior, axis=1) - np.logaddexp.reduce(seen + prior, axis=1))

    def posterior(self, x: FloatArray, masks: BoolArray) -> FloatArray:
        """Weight of every component given the observed features, (n, n_masks, k)."""
        logs = observed_log_density(self._condition(masks), self.means, x) + np.log(self.weights)
        logs -= logs.max(axis=-1, keepdims=True)
        weight = np.exp(logs)
        return np.asarray(weight / weight.sum(-1, keepdims=True))

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Share the mirrored pairs of points out to the components, and weigh each by its exact share."""
        parts = self._condition(masks)
        n, m, k = len(x), len(masks), len(self.weights)
        replicates, n_draws, d = points.normals.shape
        half = n_draws // 2
        weight = self.posterior(x, masks)
        weight = np.where(weight < _NEGLIGIBLE, 0.0, weight)
        weight /= weight.sum(-1, keepdims=True)
        share = allot(weight, half)
        owner = (np.arange(half)[:, None] >= np.cumsum(share, axis=-1)[:, :, None, :]).sum(-1)
        each = np.take_along_axis(weight / np.maximum(2 * share, 1), owner, axis=-1)

        means = conditional_means(parts, self.means, x)
        # The noise is exactly zero on observed features, so they are kept bit for bit.
        np.copyto(means, x[:, None, None, :], where=masks[None, :, None, :])
        centre = np.take_along_axis(means, owner[..., None], axis=2)
        flat = points.normals[:, :half].reshape(replicates * half, d)
        noise = (flat @ np.swapaxes(parts.factor, -1, -2)).reshape(k, m, replicates, half, d)
        noise = noise.transpose(1, 3, 0, 2, 4)
        chosen = noise[np.arange(m)[None, :, None], np.arange(half)[None, None, :], owner]
        chosen = chosen.transpose(0, 1, 3, 2, 4)
        rows = np.empty((n, m, replicates, n_draws, d))
        np.add(centre[:, :, None], chosen, out=rows[:, :, :, :half])
        np.subtract(centre[:, :, None], chosen, out=rows[:, :, :, half:])
        weights = np.broadcast_to(np.concatenate([each, each], axis=-1)[:, :, None], rows.shape[:-1])
        return Draws(rows, weights)

    def _condition(self, masks: BoolArray) -> Conditioning:
        key = masks.tobytes()
        if self._cache is None or self._cache[0] != key:
            self._cache = (key, condition(self.covariances, masks))
        return self._cache[1]

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        settings = {"components": list(self.components), "restarts": self.restarts}
        return settings, {"weights": self.weights, "means": self.means, "covariances": self.covariances}

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> MixtureConditional:
        """Build the fitted model back."""
        model = cls(tuple(settings["components"]), int(settings["restarts"]))
        model.weights, model.means = arrays["weights"], arrays["means"]
        model.covariances = arrays["covariances"]
        return model


def allot(weight: FloatArray, total: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Share ``total`` draws out in proportion to weights (..., k), at least one wherever the weight is not zero."""
    base = (weight > 0).astype(np.int64)
    # More live components than draws: only the heaviest keep theirs.
    rank = np.argsort(np.argsort(-weight, axis=-1, kind="stable"), axis=-1, kind="stable")
    base *= rank < total
    free = total - base.sum(-1, keepdims=True)
    share = base + np.floor(weight * free).astype(np.int64)
    heaviest = rank == 0
    return np.asarray(share + heaviest * (total - share.sum(-1, keepdims=True)))


def _fit_em(x: FloatArray, k: int, rng: np.random.Generator, restarts: int = 1) -> Any:
    """Fit a full-covariance mixture of k components with scikit-learn."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(
        k,
        reg_covar=1e-6,
        max_iter=300,
        tol=1e-4,
        n_init=restarts if k > 1 else 1,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x)
