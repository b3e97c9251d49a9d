"""Running scale of the returns: critics learn numbers around 1 whatever the unit and the discount."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

MEMORY = 0.9
"""Weight of the past against the newest rollout."""


class ReturnScale:
    """Mean and deviation of each reward component's returns, with an exponential memory.

    Args:
        components: Number of reward components.
    """

    def __init__(self, components: int) -> None:
        self.mean: FloatArray = np.zeros(components)
        self.deviation: FloatArray = np.ones(components)
        self.rollouts = 0

    def add(self, returns: FloatArray) -> None:
        """Take in the returns of a rollout, shape ``(n, C)``."""
        mean, square = returns.mean(axis=0), returns.var(axis=0)
        if self.rollouts > 0:
            old = self.deviation**2 + self.mean**2
            square = MEMORY * old + (1.0 - MEMORY) * (square + mean**2)
            mean = MEMORY * self.mean + (1.0 - MEMORY) * mean
            square = square - mean**2
        self.mean = mean
        # A component that never varies keeps its unit instead of being blown up.
        self.deviation = np.where(square > 1e-12, np.sqrt(np.maximum(square, 1e-12)), 1.0)
        self.rollouts += 1

    def to_units(self, values: NDArray[np.float32] | FloatArray) -> FloatArray:
        """Values of the critic in units of the reward."""
        return np.asarray(values * self.deviation + self.mean, dtype=np.float64)

    def from_units(self, returns: FloatArray) -> FloatArray:
        """Returns in the units of the critic."""
        return (returns - self.mean) / self.deviation
