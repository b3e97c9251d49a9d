"""The baseline: tomorrow is as today. Every other predictor is scored against it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.cluster.wan import DEFAULT_REVERSION_PER_S, DEFAULT_SPREAD
from attribution_sched.scheduler.predictor.base import (
    FloatArray,
    Forecast,
    between_domains,
    checked_horizon,
    checked_links,
    checked_time,
    follows,
    no_reading,
)

PRIOR_VOLATILITY = DEFAULT_SPREAD * math.sqrt(2.0 * DEFAULT_REVERSION_PER_S)
"""Relative volatility per square root of a second before anything was seen: that of the network's default motion."""


class PersistencePredictor:
    """Forecasts the last value of every link.

    A constant forecast is that of a random walk, so its standard deviation grows with the square root of the horizon;
    the volatility is the mean square of the changes seen on the link so far, with the prior as one more change.

    Args:
        names: The K domains, for messages.
    """

    name = "persistence"

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self.names = names
        self.reset()

    def reset(self) -> None:
        """Forget every reading."""
        self._last: FloatArray | None = None
        self._time_s: FloatArray = np.asarray(-math.inf)
        self._squares: FloatArray = np.zeros(())
        self._changes: FloatArray = np.zeros(())

    def observe(self, time_s: ArrayLike, bandwidth_gbps: ArrayLike) -> None:
        """Read all links, see :class:`~attribution_sched.scheduler.predictor.base.LinkPredictor`."""
        links = checked_links(bandwidth_gbps, self.names)
        follows(links, self._last)
        times = checked_time(time_s, self._time_s, links)
        if self._last is None:
            self._squares = (PRIOR_VOLATILITY * links) ** 2
            self._changes = np.ones(times.shape)
            self._last = links.copy()
        else:
            step_s = times - self._time_s
            moved = step_s > 0
            change = np.where(moved, links - self._last, 0.0)
            self._squares = self._squares + change * change / np.where(moved, step_s, 1.0)
            self._changes = self._changes + moved
            self._last = np.where(moved, links, self._last)
        self._time_s = times

    def forecast(self, horizon_s: float) -> Forecast:
        """Forecast all links, see :class:`~attribution_sched.scheduler.predictor.base.LinkPredictor`."""
        if self._last is None:
            raise no_reading()
        horizon_s = checked_horizon(horizon_s)
        std = np.sqrt(self._squares / self._changes * horizon_s)
        return Forecast(self._last.copy(), np.where(between_domains(std), std, 0.0), horizon_s, self.name)
