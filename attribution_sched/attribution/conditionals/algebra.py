"""Conditioning of Gaussians on every coalition at once, by batched Cholesky factors.

For a component with mean m and covariance C, and observed features S:
``E[x | x_S] = m + G (x - m)`` with ``G = C[:, S] C[S, S]^-1``, and the covariance that is left is
``C - G C[S, :]``. Observed rows and columns are padded with the identity, so all subsets have one shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.attribution.conditionals.base import LOG_2PI
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.types import BoolArray, FloatArray


@dataclass(frozen=True)
class Conditioning:
    """Everything a set of Gaussians needs to be conditioned on a set of masks.

    Attributes:
        gain: (k, n_masks, d, d); maps ``x - mean`` to ``E[x | x_S] - mean``, identity on observed features.
        factor: (k, n_masks, d, d); lower Cholesky factor of the covariance left, zero on observed features.
        whitener: (k, n_masks, d, d); inverse Cholesky factor of C[S, S], zero on hidden features.
        log_scale: (k, n_masks); log normaliser of the observed features' density.
    """

    gain: FloatArray
    factor: FloatArray
    whitener: FloatArray
    log_scale: FloatArray


def condition(covariances: FloatArray, masks: BoolArray, fixed: BoolArray | None = None) -> Conditioning:
    """Condition covariances (k, d, d) on masks (n_masks, d), where True is observed.

    Args:
        covariances: One for each component; identity in the rows and columns of its fixed features.
        masks: Observed features.
        fixed: (k, d) features that a component knows anyway, so that they count as observed for it.
    """
    d = masks.shape[1]
    conditioned_on = masks[None] if fixed is None else masks[None] | fixed[:, None]
    observed = conditioned_on.astype(np.float64)
    hidden = 1.0 - observed
    eye = np.eye(d)
    both = observed[..., :, None] * observed[..., None, :]
    cov = covariances[:, None]
    lower = _cholesky(cov * both + eye * hidden[..., :, None])
    inverse = np.linalg.inv(lower) * both
    precision = np.swapaxes(inverse, -1, -2) @ inverse
    cross = cov * hidden[..., :, None] * observed[..., None, :]
    regression = cross @ precision
    conditional_cov = cov * (hidden[..., :, None] * hidden[..., None, :]) - regression @ np.swapaxes(cross, -1, -2)
    # The unit diagonal on observed features only makes the factor exist; it is removed again at once.
    factor = _cholesky(conditional_cov + eye * observed[..., :, None]) * hidden[..., :, None] * hidden[..., None, :]
    diagonal = np.diagonal(lower, axis1=-2, axis2=-1)
    log_scale = -np.log(diagonal).sum(-1) - 0.5 * LOG_2PI * observed.sum(-1)
    return Conditioning(regression + eye * observed[..., :, None], factor, inverse, log_scale)


def _cholesky(matrices: FloatArray) -> FloatArray:
    """Lower factors; matrices that are singular to rounding get the smallest ridge that makes them factorable."""
    try:
        return np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        pass
    scale = np.diagonal(matrices, axis1=-2, axis2=-1).mean(-1)[..., None, None] * np.eye(matrices.shape[-1])
    for ridge in (1e-13, 1e-11, 1e-9, 1e-7, 1e-5):
        try:
            return np.asarray(np.linalg.cholesky(matrices + ridge * scale), dtype=np.float64)
        except np.linalg.LinAlgError:
            continue
    rule = "some counters are functions of each other to the last digit"
    raise ModelFitError(problem("covariance", "singular", rule, "Drop the redundant counters."))


def conditional_means(
    parts: Conditioning, means: FloatArray, x: FloatArray, fixed: BoolArray | None = None
) -> FloatArray:
    """Conditional means (n, n_masks, k, d) of rows (n, d) under every mask and component."""
    offset = _offsets(means, x, fixed)
    k, m, d, _ = parts.gain.shape
    flat = parts.gain.reshape(k, m * d, d) @ np.swapaxes(offset, -1, -2)
    moved = flat.reshape(k, m, d, len(x)).transpose(3, 1, 0, 2)
    return np.ascontiguousarray(moved + means[None, None])


def observed_distance(
    parts: Conditioning, means: FloatArray, x: FloatArray, fixed: BoolArray | None = None
) -> FloatArray:
    """Squared Mahalanobis distance of the observed features under every mask and component, (n, n_masks, k)."""
    offset = _offsets(means, x, fixed)
    k, m, d, _ = parts.whitener.shape
    flat = parts.whitener.reshape(k, m * d, d) @ np.swapaxes(offset, -1, -2)
    square = np.square(flat.reshape(k, m, d, len(x))).sum(2)
    return np.ascontiguousarray(square.transpose(2, 1, 0))


def observed_log_density(parts: Conditioning, means: FloatArray, x: FloatArray) -> FloatArray:
    """Log density of the observed features of each row under every mask and component, (n, n_masks, k)."""
    return np.ascontiguousarray(parts.log_scale.T - 0.5 * observed_distance(parts, means, x))


def _offsets(means: FloatArray, x: FloatArray, fixed: BoolArray | None) -> FloatArray:
    """Rows less the means of each component, (k, n, d); zero where a component holds the feature fixed."""
    offset = x[None, :, :] - means[:, None, :]
    return offset if fixed is None else np.where(fixed[:, None, :], 0.0, offset)


def joint_and_observed(
    means: FloatArray, covariances: FloatArray, x: FloatArray, observed: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Log densities of whole rows and of their observed part, each (n, k); masks differ from row to row."""
    patterns, which = np.unique(observed, axis=0, return_inverse=True)
    parts = condition(covariances, patterns)
    full = condition(covariances, np.ones((1, x.shape[1]), dtype=bool))
    observed_log = np.empty((len(x), len(means)))
    hidden_free = np.where(observed, x, 0.0)
    for p in range(len(patterns)):
        rows = np.flatnonzero(which == p)
        one = Conditioning(
            parts.gain[:, p : p + 1],
            parts.factor[:, p : p + 1],
            parts.whitener[:, p : p + 1],
            parts.log_scale[:, p : p + 1],
        )
        observed_log[rows] = observed_log_density(one, means, hidden_free[rows])[:, 0]
    return observed_log_density(full, means, x)[:, 0], observed_log
