"""Mixtures of Gaussians and of Student t: every conditional is again a mixture, in closed form, by strata.

Given x_S, component k weighs ``w_k p_k(x_S)`` and moves by the Gaussian rule; a t keeps its form, with |S| more degrees
of freedom and a spread that follows the distance of x_S. A component may hold some features fixed at an atom: it then
explains a row only if the row reads exactly that there, and its draws read it exactly. Draws are shared out to the
components in proportion to their weights and re-weighted exactly, so the component itself adds no noise.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.special import gammaincinv, gammaln

from attribution_sched.attribution.conditionals.algebra import (
    Conditioning,
    condition,
    conditional_means,
    observed_distance,
)
from attribution_sched.attribution.conditionals.base import LOG_2PI, Draws, State
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.types import BoolArray, FloatArray

_NEGLIGIBLE = 1e-3
"""A component whose conditional weight is below this gets no draw; the others are re-normalised."""

_FEW = 12
"""Up to this many components the noise of all is made at once, for all rows; above, only what each draw needs."""

MISMATCH = -60.0
"""Log density of a component at a value it cannot have: it loses against any that can, and is finite where none can."""


class Components:
    """Weighted Gaussian or t components, some of whose features may be fixed.

    Attributes:
        weights: (k,) summing to one.
        means: (k, d).
        covariances: (k, d, d); scatter matrices where ``dof`` is finite. Rows and columns of fixed features are those
            of the identity.
        dof: (k,) degrees of freedom; infinite for a Gaussian.
        fixed: (k, d), True where the component holds the feature at its mean exactly.
    """

    def __init__(
        self,
        weights: FloatArray,
        means: FloatArray,
        covariances: FloatArray,
        dof: FloatArray | None = None,
        fixed: BoolArray | None = None,
    ) -> None:
        self.weights, self.means, self.covariances = weights, means, covariances
        self.dof = np.full(len(weights), np.inf) if dof is None else dof
        self.fixed = np.zeros(means.shape, dtype=bool) if fixed is None else fixed
        self._cache: dict[bytes, Conditioning] = {}

    def log_densities(self, x: FloatArray, masks: BoolArray, codes: BoolArray | None = None) -> FloatArray:
        """Log density of the observed features of each row under every mask and component, (n, n_masks, k).

        Args:
            x: (n, d) rows.
            masks: (n_masks, d), True where observed.
            codes: (n, k, d), True where a component can have the row's value; default wherever nothing is fixed.
        """
        parts = self._condition(masks)
        free = masks[:, None, :] & ~self.fixed
        square = observed_distance(parts, self.means, x, self.fixed)
        size = free.sum(-1).astype(np.float64)
        log = parts.log_scale.T + 0.5 * LOG_2PI * (self.fixed[None] | masks[:, None, :]).sum(-1)
        log = log + _log_kernel(square, size, self.dof)
        if codes is not None:
            wrong = np.einsum("md,nkd->nmk", masks.astype(np.float64), (~codes).astype(np.float64))
            log = log + MISMATCH * wrong
        return np.asarray(log)

    def log_joint(self, x: FloatArray) -> FloatArray:
        """Log density of whole rows (n, d) of components without fixed features, (n,): one matrix product."""
        d = x.shape[1]
        i, j = np.triu_indices(d)
        precision = np.linalg.inv(self.covariances)
        twice = np.where(i == j, 1.0, 2.0)
        pull = np.einsum("kij,kj->ki", precision, self.means)
        constant = np.einsum("ki,ki->k", pull, self.means)
        square = (x[:, i] * x[:, j]) @ (precision[:, i, j] * twice).T - 2.0 * x @ pull.T + constant
        half_log = -0.5 * np.linalg.slogdet(self.covariances)[1]
        log = half_log + _log_kernel(np.maximum(square, 0.0), np.full(len(constant), float(d)), self.dof)
        log += np.log(self.weights)
        top = log.max(axis=1)
        return np.asarray(np.log(np.exp(log - top[:, None]).sum(axis=1)) + top)

    def posterior(self, x: FloatArray, masks: BoolArray, codes: BoolArray | None = None) -> FloatArray:
        """Weight of every component given the observed features, (n, n_masks, k)."""
        logs = self.log_densities(x, masks, codes) + np.log(self.weights)
        logs -= logs.max(axis=-1, keepdims=True)
        weight = np.exp(logs)
        return np.asarray(weight / weight.sum(-1, keepdims=True))

    def log_likelihood(self, x: FloatArray, observed: BoolArray, codes: BoolArray | None = None) -> FloatArray:
        """Log density of each row's hidden features given its observed ones, (n,); masks differ from row to row."""
        prior = np.log(self.weights)
        everything = np.ones((1, x.shape[1]), dtype=bool)
        out = np.logaddexp.reduce(self.log_densities(x, everything, codes)[:, 0] + prior, axis=1)
        patterns, which = np.unique(observed, axis=0, return_inverse=True)
        visible = np.where(observed, x, 0.0)
        for p in range(len(patterns)):
            rows = np.flatnonzero(which.ravel() == p)
            row_codes = None if codes is None else codes[rows]
            observed_log = self.log_densities(visible[rows], patterns[p : p + 1], row_codes)[:, 0]
            out[rows] -= np.logaddexp.reduce(observed_log + prior, axis=1)
        return np.asarray(out)

    def draws(self, x: FloatArray, masks: BoolArray, points: Points, codes: BoolArray | None = None) -> Draws:
        """Share the mirrored pairs of points out to the components, and weigh each by its exact share."""
        parts = self._condition(masks)
        n, m, k = len(x), len(masks), len(self.weights)
        replicates, n_draws, d = points.normals.shape
        half = n_draws // 2
        weight = self.posterior(x, masks, codes)
        weight = np.where(weight < _NEGLIGIBLE, 0.0, weight)
        weight /= weight.sum(-1, keepdims=True)
        share = allot(weight, half)
        owner = (np.arange(half)[:, None] >= np.cumsum(share, axis=-1)[:, :, None, :]).sum(-1)
        each = np.take_along_axis(weight / np.maximum(2 * share, 1), owner, axis=-1)

        means = conditional_means(parts, self.means, x, self.fixed)
        # The noise is exactly zero on observed features, so they are kept bit for bit.
        np.copyto(means, x[:, None, None, :], where=masks[None, :, None, :])
        centre = np.take_along_axis(means, owner[..., None], axis=2)
        normals = points.normals[:, :half]
        if k <= _FEW:
            flat = normals.reshape(replicates * half, d)
            noise = (flat @ np.swapaxes(parts.factor, -1, -2)).reshape(k, m, replicates, half, d)
            noise = noise.transpose(1, 3, 0, 2, 4)
            chosen = noise[np.arange(m)[None, :, None], np.arange(half)[None, None, :], owner]
        else:
            owner_factor = parts.factor[owner, np.arange(m)[None, :, None]]
            chosen = np.swapaxes(owner_factor @ normals.transpose(1, 2, 0), -1, -2)
        chosen = chosen.transpose(0, 1, 3, 2, 4)
        if np.isfinite(self.dof).any():
            chosen = chosen * self._stretch(x, masks, points, owner, parts)[..., None]
        rows = np.empty((n, m, replicates, n_draws, d))
        np.add(centre[:, :, None], chosen, out=rows[:, :, :, :half])
        np.subtract(centre[:, :, None], chosen, out=rows[:, :, :, half:])
        weights = np.broadcast_to(np.concatenate([each, each], axis=-1)[:, :, None], rows.shape[:-1])
        return Draws(rows, weights)

    def _stretch(self, x: FloatArray, masks: BoolArray, points: Points, owner: Any, parts: Conditioning) -> FloatArray:
        """Factor that turns normal noise into a t's, (n, n_masks, replicates, half)."""
        half = points.n_draws // 2
        size = (masks[:, None, :] & ~self.fixed).sum(-1)
        dof = np.where(np.isfinite(self.dof), self.dof, 1e6)
        square = observed_distance(parts, self.means, x, self.fixed)
        wide = np.sqrt((dof + square) / (dof + size))
        wide = np.where(np.isfinite(self.dof), wide, 1.0)
        # Chi-square quantiles at the last coordinate of the points, one set for each number of degrees of freedom.
        total = np.where(np.isfinite(self.dof), self.dof + size, np.inf)
        different, code = np.unique(total, return_inverse=True)
        table = np.ones((len(different), points.replicates, half))
        for i, degrees in enumerate(different):
            if np.isfinite(degrees):
                key = f"chi {degrees:.6f}"
                if key not in points.memory:
                    uniform = points.uniforms[:, :half, -1]
                    points.memory[key] = np.sqrt(degrees / (2.0 * gammaincinv(degrees / 2, uniform)))
                table[i] = points.memory[key]
        which = np.take_along_axis(np.broadcast_to(code.reshape(total.shape), wide.shape), owner, axis=-1)
        tail = table[which, :, np.arange(half)]
        return np.asarray(np.take_along_axis(wide, owner, axis=-1)[:, :, None] * tail.transpose(0, 1, 3, 2))

    def _condition(self, masks: BoolArray) -> Conditioning:
        key = masks.tobytes()
        if key not in self._cache:
            # Blocks of coalitions come one after another; whole rows are asked about in between.
            if len(self._cache) > 3:
                self._cache.clear()
            self._cache[key] = condition(self.covariances, masks, self.fixed)
        return self._cache[key]

    def arrays(self) -> State:
        """Arrays that restore the components."""
        return {
            "weights": self.weights,
            "means": self.means,
            "covariances": self.covariances,
            # One over the degrees of freedom: 0 is a Gaussian, and files hold finite numbers only.
            "tail": 1.0 / self.dof,
            "fixed": self.fixed,
        }

    @classmethod
    def of(cls, arrays: State) -> Components:
        """Build the components back; mixtures saved before there were tails or atoms have neither."""
        with np.errstate(divide="ignore"):
            dof = 1.0 / np.asarray(arrays["tail"], dtype=np.float64) if "tail" in arrays else None
        return cls(arrays["weights"], arrays["means"], arrays["covariances"], dof, arrays.get("fixed"))


def _log_kernel(square: FloatArray, size: FloatArray, dof: FloatArray) -> FloatArray:
    """Log density up to the scatter's determinant: Gaussian, or a t of ``size`` features."""
    finite = np.isfinite(dof)
    gauss = -0.5 * square - 0.5 * LOG_2PI * size
    if not finite.any():
        return np.asarray(gauss)
    nu = np.where(finite, dof, 5.0)
    front = gammaln((nu + size) / 2) - gammaln(nu / 2) - 0.5 * size * np.log(nu * np.pi)
    return np.asarray(np.where(finite, front - 0.5 * (nu + size) * np.log1p(square / nu), gauss))


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
        self.parts = Components(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)))

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
        self.parts = Components(
            np.asarray(model.weights_, dtype=np.float64),
            np.asarray(model.means_, dtype=np.float64),
            np.asarray(model.covariances_, dtype=np.float64),
        )
        return self

    def refit(self, x: FloatArray, rng: np.random.Generator) -> MixtureConditional:
        """The same model of other rows, started at this one's components."""
        twin = MixtureConditional(self.components, self.restarts)
        model = _fit_em(x, len(self.parts.weights), rng, 1, self.parts)
        twin.parts = Components(model.weights_, model.means_, model.covariances_)
        return twin

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, (n,)."""
        return self.parts.log_likelihood(x, observed)

    def posterior(self, x: FloatArray, masks: BoolArray) -> FloatArray:
        """Weight of every component given the observed features, (n, n_masks, k)."""
        return self.parts.posterior(x, masks)

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Draw the hidden features of every row under every mask jointly."""
        return self.parts.draws(x, masks, points)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        return {"components": list(self.components), "restarts": self.restarts}, self.parts.arrays()

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> MixtureConditional:
        """Build the fitted model back."""
        model = cls(tuple(settings["components"]), int(settings["restarts"]))
        model.parts = Components.of(arrays)
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


def _fit_em(
    x: FloatArray,
    k: int,
    rng: np.random.Generator,
    restarts: int = 1,
    start: Components | None = None,
    rounds: int = 300,
) -> Any:
    """Fit a full-covariance mixture of k components with scikit-learn, from ``start`` where one is given."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(
        k,
        reg_covar=1e-6,
        max_iter=rounds,
        tol=1e-4,
        n_init=restarts if k > 1 else 1,
        random_state=int(rng.integers(2**31)),
        weights_init=None if start is None else start.weights,
        means_init=None if start is None else start.means,
        precisions_init=None if start is None else np.linalg.inv(start.covariances),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x)
