"""What every forecast of link bandwidth has in common: the protocol, its record, the checks; and the baseline.

A predictor reads the bandwidth of all links at moments of its caller's choosing, usually the ticks of the network, and
is asked for the bandwidth a horizon later: ``B̂_ij(t + Δ) = f(B_ij(t − w : t))``. Links inside a domain (the diagonal)
do not fluctuate; their forecast is their last value, with certainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.cluster.wan import DEFAULT_REVERSION_PER_S, DEFAULT_SPREAD
from attribution_sched.errors import NetworkError, problem
from attribution_sched.types import FloatArray


@dataclass(frozen=True, eq=False)
class Forecast:
    """The bandwidth of every link a while after the last reading.

    Attributes:
        mean_gbps: Expected bandwidth, shape ``(..., K, K)``, source then destination, Gb/s.
        std_gbps: Standard deviation of what will be found, same shape, Gb/s; 0 on the diagonal.
        horizon_s: Seconds from the last reading to the moment that is forecast.
        method: Name of the predictor.
    """

    mean_gbps: FloatArray
    std_gbps: FloatArray
    horizon_s: float
    method: str

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        self.mean_gbps.setflags(write=False)
        self.std_gbps.setflags(write=False)


class LinkPredictor(Protocol):
    """Forecasts the bandwidth of every link of one cluster or of a batch of them."""

    @property
    def name(self) -> str:
        """Short name of the method."""
        ...

    def reset(self) -> None:
        """Forget every reading, as at the start of an episode."""
        ...

    def observe(self, time_s: ArrayLike, bandwidth_gbps: ArrayLike) -> None:
        """Read all links.

        Args:
            time_s: When, never before the reading before it; a number, or one per cluster of a batch. A cluster
                that is read twice at the same time keeps its first reading.
            bandwidth_gbps: Shape ``(..., K, K)``, the same for every reading.

        Raises:
            NetworkError: If a figure is not finite and positive, or shape or time do not follow the last reading.
        """
        ...

    def forecast(self, horizon_s: float) -> Forecast:
        """Forecast all links ``horizon_s`` seconds after the last reading.

        Raises:
            NetworkError: If nothing was read yet, or the horizon is negative or not finite.
        """
        ...


def checked_links(bandwidth_gbps: ArrayLike, names: Sequence[str] | None = None) -> FloatArray:
    """Return bandwidth as an array of shape ``(..., K, K)``, or name the first link whose figure is wrong."""
    links = np.asarray(bandwidth_gbps, dtype=np.float64)
    if links.ndim < 2 or links.shape[-1] != links.shape[-2] or links.size == 0:
        rule = "must be (..., K, K), source then destination"
        raise NetworkError(problem("bandwidth_gbps.shape", links.shape, rule, "Give one square matrix per cluster"))
    # A NaN makes the smallest value NaN, so one pass clears the usual case.
    lowest = links.min()
    if lowest > 0 and links.max() < math.inf:
        return links
    inside = np.eye(links.shape[-1], dtype=bool)
    wrong = ~(np.isfinite(links) & ((links > 0) | (inside & (links == 0))))
    if wrong.any():
        at = tuple(int(index) for index in np.argwhere(wrong)[0])
        i, j = (str(index) if names is None else names[index] for index in at[-2:])
        where = f"cluster {at[0] if len(at) == 3 else at[:-2]}, " if len(at) > 2 else ""
        fix = "Write a dead link as a small number such as 0.001, and leave out readings that failed"
        field = f"bandwidth_gbps[{where}{i} → {j}]"
        raise NetworkError(problem(field, float(links[at]), "must be a finite number > 0", fix))
    return links


def checked_time(time_s: ArrayLike, last_s: FloatArray | float, links: FloatArray) -> FloatArray:
    """Return the time of a reading, a number or shaped like the batch with two axes more for the links.

    Raises:
        NetworkError: If it is not finite, of another shape, or before the last reading.
    """
    times = np.asarray(time_s, dtype=np.float64)
    if times.shape not in ((), links.shape[:-2]):
        rule = f"must be one number, or one per cluster, {links.shape[:-2]}"
        raise NetworkError(problem("time_s.shape", times.shape, rule, "Give the time at which the links were read"))
    if not np.all(np.isfinite(times)):
        raise NetworkError(problem("time_s", time_s, "must be finite", "Give the seconds since the episode began"))
    times = times[..., None, None] if times.ndim else times
    earlier = np.asarray(times < last_s)
    if earlier.any():
        rule = f"must not lie before the last reading, {float(np.max(last_s)):g}"
        raise NetworkError(problem("time_s", float(np.min(times)), rule, "Call reset() where a new episode begins"))
    return times


def no_reading() -> NetworkError:
    """Build the error of a forecast before the first reading."""
    fix = "Call observe(time_s, bandwidth_gbps) first"
    return NetworkError(problem("readings", 0, "a forecast needs at least one", fix))


def checked_horizon(horizon_s: float) -> float:
    """Return a horizon, or say what is wrong with it."""
    if not (math.isfinite(horizon_s) and horizon_s >= 0):
        fix = "Give the seconds to look ahead"
        raise NetworkError(problem("horizon_s", horizon_s, "must be finite and >= 0", fix))
    return float(horizon_s)


def checked_base(base_gbps: ArrayLike | None, links: FloatArray) -> FloatArray | None:
    """Return the base bandwidth fitted to the shape of the readings, ``None`` where it is not known."""
    if base_gbps is None:
        return None
    base = checked_links(base_gbps)
    try:
        return np.broadcast_to(base, links.shape)
    except ValueError:
        rule = f"must fit the readings, {links.shape}"
        fix = "Give the base bandwidth of the same domains"
        raise NetworkError(problem("base_gbps.shape", base.shape, rule, fix)) from None


def follows(links: FloatArray, before: FloatArray | None) -> None:
    """Refuse a reading of another shape than the one before it."""
    if before is not None and links.shape != before.shape:
        rule = f"must stay {before.shape}, the shape of the reading before"
        fix = "Call reset() where another cluster begins"
        raise NetworkError(problem("bandwidth_gbps.shape", links.shape, rule, fix))


def between_domains(links: FloatArray) -> NDArray[np.bool_]:
    """Mark the links that fluctuate, shape ``(K, K)``: all but the diagonal."""
    return ~np.eye(links.shape[-1], dtype=bool)


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
