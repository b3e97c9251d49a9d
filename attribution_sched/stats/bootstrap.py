"""The paired bootstrap: all figures of one set of rows are resampled alike, so that differences keep their pairs.

Percentiles of resampled means are too narrow for few rows. Their distances to the figure are stretched by Student's
quantile over the normal one, times √(n/(n−1)), so that the interval of a mean is as wide as Student's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.errors import SettingsError, problem
from attribution_sched.stats.interval import LEVEL, quantile
from attribution_sched.types import FloatArray

RESAMPLES = 10_000


@dataclass(frozen=True)
class BootstrapInterval:
    """A figure with its interval; NaN where there is nothing to estimate from.

    Attributes:
        value: The figure over all rows.
        low: Lower end of the 95 % interval; NaN with fewer than two rows.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is a figure at all."""
        return math.isfinite(self.value)

    @property
    def bounded(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)


UNKNOWN = BootstrapInterval(math.nan, math.nan, math.nan)
"""No figure."""


class PairedBootstrap:
    """Resampled weights of rows (episodes, decisions) that every figure about them shares.

    Args:
        rows: How many there are.
        seed: Seed of the resamples.
        resamples: How many.
    """

    def __init__(self, rows: int, seed: int, resamples: int = RESAMPLES) -> None:
        for field, value in (("rows", rows), ("resamples", resamples)):
            if value < 1:
                raise SettingsError(problem(field, value, "must be >= 1", f"Use for example {RESAMPLES}"))
        self.rows = rows
        rng = np.random.default_rng([seed, rows])
        counts = rng.multinomial(rows, np.full(rows, 1.0 / rows), size=resamples)
        self._weights: FloatArray = np.vstack([np.ones((1, rows)), counts]) / rows

    def means(self, values: FloatArray) -> FloatArray:
        """Mean over the rows as they are, then over every resample, shape ``(1 + resamples, ...)``.

        Args:
            values: One entry per row, shape ``(rows, ...)``; NaN entries are left out. A mean of none is NaN.
        """
        present = np.isfinite(values)
        if present.all():
            return np.asarray(np.tensordot(self._weights, values, axes=1))
        weight = np.tensordot(self._weights, present.astype(np.float64), axes=1)
        sums = np.tensordot(self._weights, np.where(present, values, 0.0), axes=1)
        return np.asarray(np.divide(sums, weight, out=np.full_like(sums, np.nan), where=weight > 0))

    def estimate(self, draws: FloatArray) -> BootstrapInterval:
        """Read figure and interval off draws made from :meth:`means`, shape ``(1 + resamples,)``."""
        value = float(draws[0])
        if not math.isfinite(value):
            return UNKNOWN
        if not np.isfinite(draws).all():
            return BootstrapInterval(value, math.nan, math.nan)
        low, high = limits(draws[:, None], [self.rows])
        return BootstrapInterval(value, float(low[0]), float(high[0]))


def limits(draws: FloatArray, rows: ArrayLike, level: float = LEVEL) -> tuple[FloatArray, FloatArray]:
    """Ends of the intervals of K figures, shape ``(K,)`` each.

    Args:
        draws: From :meth:`PairedBootstrap.means`, shape ``(1 + resamples, K)``; NaN draws are left out.
        rows: How many rows each figure rests on, shape ``(K,)``; of fewer than two there is no interval, but NaN.
        level: Of the intervals.
    """
    low, high = np.full((2, draws.shape[1]), np.nan)
    count = np.asarray(rows)
    known = (count >= 2) & np.isfinite(draws[0]) & np.isfinite(draws[1:]).any(axis=0)
    if known.any():
        middle, upper = draws[0, known], 0.5 + level / 2.0
        stretch = np.array([stretched(int(n), level) for n in count[known]])
        bottom, top = np.nanquantile(draws[1:, known], [1.0 - upper, upper], axis=0)
        low[known], high[known] = middle - stretch * (middle - bottom), middle + stretch * (top - middle)
    return low, high


def stretched(rows: int, level: float = LEVEL) -> float:
    """By how much the percentiles of a mean of so few rows are too near to it."""
    upper = 0.5 + level / 2.0
    return quantile(rows - 1.0, upper) / quantile(math.inf, upper) * math.sqrt(rows / (rows - 1.0))


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide draw by draw; NaN where the denominator is not positive."""
    quotient: FloatArray = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient
