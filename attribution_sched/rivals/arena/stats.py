"""Paired bootstrap: all policies of a scenario are resampled by the same episodes, so differences keep their pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attribution_sched.types import FloatArray

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval; NaN where there is nothing to estimate from.

    Attributes:
        value: The figure over all episodes.
        low: Lower end of the 95 % interval; NaN with fewer than two episodes.
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


UNKNOWN = Estimate(math.nan, math.nan, math.nan)
"""No figure."""


class PairedBootstrap:
    """Resampled episode weights that every policy and figure of a scenario shares.

    Args:
        episodes: How many episodes were played.
        seed: Seed of the resamples.
        resamples: How many.
    """

    def __init__(self, episodes: int, seed: int, resamples: int = RESAMPLES) -> None:
        self.episodes = episodes
        rng = np.random.default_rng([seed, episodes])
        counts = rng.multinomial(episodes, np.full(episodes, 1.0 / episodes), size=resamples)
        whole = np.ones((1, episodes))
        self._weights: FloatArray = np.vstack([whole, counts]) / episodes

    def means(self, values: FloatArray) -> FloatArray:
        """Mean over the episodes as played, then over every resample, shape ``(1 + resamples, ...)``.

        Args:
            values: One row per episode, shape ``(episodes, ...)``.
        """
        resampled: FloatArray = np.tensordot(self._weights, values, axes=1)
        return resampled

    def estimate(self, draws: FloatArray) -> Estimate:
        """Read figure and interval off draws made from :meth:`means`, shape ``(1 + resamples,)``.

        Percentiles of resampled means are too narrow for few episodes; they are widened so that the interval of
        a mean is as wide as Student's (the expanded percentile interval).
        """
        value = float(draws[0])
        if not math.isfinite(value):
            return UNKNOWN
        sampled = draws[1:]
        if self.episodes < 2 or not np.isfinite(sampled).all():
            return Estimate(value, math.nan, math.nan)
        tail = expanded_tail(self.episodes)
        low, high = np.quantile(sampled, [tail, 1.0 - tail])
        return Estimate(value, float(low), float(high))


def expanded_tail(episodes: int, confidence: float = CONFIDENCE) -> float:
    """Share of resamples to cut off on each side: ``Φ(−sqrt(n/(n−1))·t)`` with Student's quantile t at n − 1."""
    from scipy.special import ndtr, stdtrit

    t = float(stdtrit(episodes - 1, 0.5 + confidence / 2.0))
    return float(ndtr(-math.sqrt(episodes / (episodes - 1.0)) * t))


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide draw by draw; NaN where the denominator is not positive."""
    quotient: FloatArray = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient
