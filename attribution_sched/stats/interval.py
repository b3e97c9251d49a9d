"""The interval of a mean: ``mean ± t(n − 1) · std(ddof=1) / √n``, Student's, of independent numbers.

Where the degrees of freedom are infinite (an error that is known, not estimated) t is the normal quantile.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.errors import SettingsError, problem
from attribution_sched.types import FloatArray

LEVEL = 0.95


@dataclass(frozen=True)
class MeanInterval:
    """A mean with its interval.

    Attributes:
        mean: Of the numbers.
        low: Lower end of the interval.
        high: Upper end.
        n: How many numbers.
    """

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2.0

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0.0 or self.high < 0.0


def quantile(freedom: float, chance: float) -> float:
    """Student's quantile: what a standard t stays below with a chance; the normal one for infinite freedom."""
    # A third of a second to load: whoever only decides does without.
    from scipy.special import ndtri, stdtrit

    return float(ndtri(chance) if isinf(freedom) else stdtrit(freedom, chance))


def half_width(standard_error: ArrayLike, freedom: float, level: float = LEVEL) -> FloatArray:
    """Half the width of a two-sided interval, of the shape of the standard errors.

    Raises:
        SettingsError: If the level is no share between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise SettingsError(problem("level", level, "must lie between 0 and 1", "Use 0.95 for a 95 % interval"))
    return np.asarray(quantile(freedom, 0.5 + level / 2.0) * np.asarray(standard_error))


def standard_error(values: ArrayLike) -> FloatArray:
    """Standard errors of means over the first axis; at least two numbers."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.asarray(numbers.std(axis=0, ddof=1) / np.sqrt(len(numbers)))


def mean_interval(values: ArrayLike, level: float = LEVEL) -> MeanInterval:
    """Mean of numbers ``(n,)`` with its interval: a point where all are equal, without ends for a single one.

    Raises:
        SettingsError: If there are no numbers.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        rule = "a mean is of one or more numbers, shape (n,)"
        raise SettingsError(problem("values", numbers.shape, rule, "Pass at least one number"))
    n, mean = len(numbers), float(numbers.mean())
    if n == 1:
        return MeanInterval(mean, -np.inf, np.inf, n)
    # Equal numbers are known without error, whatever rounding makes of their mean.
    error = 0.0 if numbers.min() == numbers.max() else float(standard_error(numbers))
    half = float(half_width(error, n - 1.0, level)) if error else 0.0
    return MeanInterval(mean, mean - half, mean + half, n)
