"""Bootstrap over decisions: intervals of means of shares where not every decision has every player."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.types import FloatArray

RESAMPLES = 2000

LEAST_DECISIONS = 5
"""With fewer decisions nothing is said about the spread between them."""


def resampled_means(values: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Means over resampled decisions; NaN entries are left out of them.

    Args:
        values: Shape ``(N, K)``; NaN where a decision lacks a number.
        resamples: Draws B of N decisions with replacement.
        rng: Source of randomness.

    Returns:
        Shape ``(B, K)``; NaN where a draw holds no decision that has the number.
    """
    n = len(values)
    if resamples < 1:
        raise ExplanationError(problem("resamples", resamples, "must be >= 1", f"Use {RESAMPLES}"))
    counts = rng.multinomial(n, np.full(n, 1.0 / n), size=resamples).astype(np.float64)
    present = np.isfinite(values)
    weight = counts @ present.astype(np.float64)
    sums = counts @ np.where(present, values, 0.0)
    return np.divide(sums, weight, out=np.full_like(sums, np.nan), where=weight > 0)


def mean(values: FloatArray) -> FloatArray:
    """Means over the first axis; NaN entries are left out, and a column without any number is NaN."""
    present = np.isfinite(values)
    count = present.sum(axis=0)
    sums = np.where(present, values, 0.0).sum(axis=0)
    found: FloatArray = np.divide(sums, count, out=np.full(sums.shape, np.nan), where=count > 0)
    return found


def limits(values: FloatArray, draws: FloatArray, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Confidence limits of means, each of shape ``(K,)``.

    Percentiles of the draws are spread around the mean by what few decisions make them too narrow (Student's quantile
    over the normal one, times √(n/(n−1))). A mean of fewer than :data:`LEAST_DECISIONS` has no limits: they are NaN.

    Args:
        values: What was resampled, shape ``(N, K)``.
        draws: Its resampled means, shape ``(B, K)``.
        level: Confidence.
    """
    middle, count = mean(values), np.isfinite(values).sum(axis=0)
    return widened(middle, count, draws, level)


def widened(
    middle: FloatArray, count: NDArray[np.int64], draws: FloatArray, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """As :func:`limits`, of draws around ``middle`` that rest on ``count`` decisions each."""
    from scipy.stats import norm, t

    low, high = np.full(len(middle), np.nan), np.full(len(middle), np.nan)
    known = (count >= LEAST_DECISIONS) & np.isfinite(draws).any(axis=0)
    if known.any():
        n = count[known].astype(np.float64)
        upper = 0.5 + level / 2
        wider = t.ppf(upper, n - 1) / norm.ppf(upper) * np.sqrt(n / (n - 1))
        bottom, top = np.nanquantile(draws[:, known], [1.0 - upper, upper], axis=0)
        low[known] = middle[known] - wider * (middle[known] - bottom)
        high[known] = middle[known] + wider * (top - middle[known])
    return low, high
