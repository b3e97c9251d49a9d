"""How good forecasts are: error against persistence, continuous ranked probability score, coverage.

A recording is played to a predictor reading by reading; at every origin it forecasts each horizon, and what the
recording held then is the truth. Errors are relative to the base of the link, so fast and slow links weigh the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.errors import NetworkError, problem
from attribution_sched.scheduler.predictor.forecast import LinkPredictor
from attribution_sched.types import FloatArray

HORIZONS_S = (300.0, 900.0, 1800.0, 3600.0, 7200.0)
"""Horizons every predictor is scored at."""

_Z_90 = 1.6448536269514722


@dataclass(frozen=True, eq=False)
class HorizonErrors:
    """Forecasts of one horizon against what came; all arrays have shape ``(origins, ..., links)``.

    Attributes:
        method: Name of the predictor.
        horizon_s: How far ahead.
        error: Forecast minus truth, relative to the base of the link.
        crps: Continuous ranked probability score of the Gaussian forecast, relative to the base; lower is better.
        inside_90: Whether the truth fell in the central 90 % interval.
    """

    method: str
    horizon_s: float
    error: FloatArray
    crps: FloatArray
    inside_90: NDArray[np.bool_]

    @property
    def rmse(self) -> float:
        """Root mean square error."""
        return float(np.sqrt(np.mean(self.error**2)))

    @property
    def mean_crps(self) -> float:
        """Mean of the continuous ranked probability score."""
        return float(np.mean(self.crps))

    @property
    def coverage_90(self) -> float:
        """Share of truths in the 90 % interval."""
        return float(np.mean(self.inside_90))


@dataclass(frozen=True)
class Skill:
    """A predictor beside persistence at one horizon; a ratio below 1 is better than persistence.

    Attributes:
        method: Name of the predictor.
        horizon_s: How far ahead.
        rmse: Its root mean square error, relative to the base.
        rmse_ratio: Its error divided by that of persistence.
        rmse_ratio_interval: 95 % bootstrap interval over paths.
        crps_ratio: The same for the ranked probability score.
        coverage_90: Share of truths in its 90 % interval.
        forecasts: How many forecasts were scored.
    """

    method: str
    horizon_s: float
    rmse: float
    rmse_ratio: float
    rmse_ratio_interval: tuple[float, float]
    crps_ratio: float
    coverage_90: float
    forecasts: int


def play(
    predictor: LinkPredictor,
    times_s: ArrayLike,
    series_gbps: ArrayLike,
    base_gbps: ArrayLike,
    horizons_s: Sequence[float] = HORIZONS_S,
    *,
    warm_up: int = 12,
    every: int = 1,
    truth_gbps: ArrayLike | None = None,
) -> list[HorizonErrors]:
    """Play a recording to a predictor and collect its errors.

    Args:
        predictor: It is reset first.
        times_s: Times of the readings, shape ``(T,)``.
        series_gbps: The readings, shape ``(T, ..., K, K)``.
        base_gbps: What errors are relative to, broadcastable to a reading.
        horizons_s: How far ahead; origins without a reading at exactly that time are left out.
        warm_up: Readings before the first origin.
        every: Distance of origins, in readings.
        truth_gbps: What forecasts are held against, where readings are noisy; the readings themselves if not given.

    Returns:
        One entry per horizon, without the links inside domains.

    Raises:
        NetworkError: If the recording is too short for a horizon.
    """
    times = np.asarray(times_s, dtype=np.float64)
    series = np.asarray(series_gbps, dtype=np.float64)
    truth = series if truth_gbps is None else np.asarray(truth_gbps, dtype=np.float64)
    base = np.broadcast_to(np.asarray(base_gbps, dtype=np.float64), series.shape[1:])
    between = ~np.eye(series.shape[-1], dtype=bool)
    found: dict[float, list[tuple[FloatArray, FloatArray, FloatArray]]] = {float(h): [] for h in horizons_s}
    predictor.reset()
    for at, time_s in enumerate(times):
        predictor.observe(time_s, series[at])
        if at + 1 < warm_up or (at + 1 - warm_up) % every:
            continue
        for horizon_s, rows in found.items():
            then = int(np.searchsorted(times, time_s + horizon_s - 1e-6))
            if then == times.size or abs(times[then] - time_s - horizon_s) > 1e-6:
                continue
            forecast = predictor.forecast(horizon_s)
            error = ((forecast.mean_gbps - truth[then]) / base)[..., between]
            std = (forecast.std_gbps / base)[..., between]
            rows.append((error, crps_gaussian(error, std), np.abs(error) <= _Z_90 * std))
    for horizon_s, rows in found.items():
        if not rows:
            rule = f"must hold readings {horizon_s:g} s apart after a warm-up of {warm_up}"
            raise NetworkError(problem("times_s", times.tolist()[:5], rule, "Record for longer, or ask less far ahead"))
    return [
        HorizonErrors(predictor.name, horizon_s, *(np.stack(part) for part in zip(*rows, strict=True)))
        for horizon_s, rows in found.items()
    ]


def skill(
    errors: HorizonErrors,
    persistence: HorizonErrors,
    rng: np.random.Generator,
    *,
    path_axis: int = 1,
    resamples: int = 1000,
) -> Skill:
    """Compare a predictor with persistence on the same forecasts.

    Args:
        errors: Of the predictor.
        persistence: Of the baseline.
        rng: For the bootstrap.
        path_axis: Axis of independent paths, which are drawn with replacement.
        resamples: How often.
    """
    if errors.error.shape != persistence.error.shape or errors.horizon_s != persistence.horizon_s:
        rule = f"must match the baseline, {persistence.error.shape} at {persistence.horizon_s:g} s"
        given = (errors.error.shape, errors.horizon_s)
        raise NetworkError(problem("errors", given, rule, "Play the same recording to both"))
    ours, theirs = (_per_path(e.error**2, path_axis) for e in (errors, persistence))
    draws = rng.integers(ours.size, size=(resamples, ours.size))
    ratios = np.sqrt(ours[draws].mean(axis=1) / theirs[draws].mean(axis=1))
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Skill(
        errors.method,
        errors.horizon_s,
        errors.rmse,
        errors.rmse / persistence.rmse,
        (float(low), float(high)),
        errors.mean_crps / persistence.mean_crps,
        errors.coverage_90,
        errors.error.size,
    )


def crps_gaussian(error: FloatArray, std: FloatArray) -> FloatArray:
    """Continuous ranked probability score of ``N(mean, std²)`` in closed form; ``|error|`` where std is 0."""
    from scipy.special import ndtr

    sure = std <= 0
    scale = np.where(sure, 1.0, std)
    z = error / scale
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    score: FloatArray = scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / math.sqrt(math.pi))
    return np.where(sure, np.abs(error), score)


def _per_path(values: FloatArray, path_axis: int) -> FloatArray:
    others = tuple(axis for axis in range(values.ndim) if axis != path_axis)
    return np.asarray(values.mean(axis=others))
