"""How links move, learnt from a recording by maximum likelihood.

The likelihood is that of the filter's innovations. A jump costs the likelihood of a level of which nothing is known
and the chance of a jump, so jumps cannot be used to explain ordinary motion. The search starts from the closed form of
a first-order autoregression, once with a level that hardly drifts and once with one that does: a slow swing of the
level looks like slow reversion, and one search alone stays with whichever it began with. The better end is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.errors import ModelFitError, problem
from attribution_sched.scheduler.predictor.forecast import KalmanParams, kalman_start, kalman_step
from attribution_sched.types import FloatArray

JUMP_CHANCE = 1e-3
"""Assumed chance that a reading is a jump: about one in three days of readings every five minutes."""

LEAST_READINGS = 8
_LOWEST = 1e-7


@dataclass(frozen=True)
class KalmanFit:
    """Fitted parameters and how they were got.

    Attributes:
        params: The parameters.
        log_likelihood: Of the recording under them, in nats.
        start: The closed form from which the search began.
        start_log_likelihood: Its likelihood.
        readings: How many readings of how many links were used, all together.
        evaluations: How often the likelihood was computed.
        converged: Whether the search stopped of its own.
    """

    params: KalmanParams
    log_likelihood: float
    start: KalmanParams
    start_log_likelihood: float
    readings: int
    evaluations: int
    converged: bool


def fit(
    times_s: ArrayLike,
    series_gbps: ArrayLike,
    base_gbps: ArrayLike | None = None,
    *,
    gate: float = KalmanParams.gate,
    max_evaluations: int = 500,
) -> KalmanFit:
    """Fit one set of parameters to all links of a recording.

    Args:
        times_s: When the links were read, shape ``(T,)``, increasing; steps may be unequal.
        series_gbps: Shape ``(T, ...)``: links that fluctuate, on any axes. Leave the links inside domains out.
        base_gbps: Base bandwidth of the links where it is known; otherwise levels are learnt from the series.
        gate: Standard deviations from which on a reading is a jump.
        max_evaluations: Limit of the two searches together.

    Raises:
        ModelFitError: If the recording is too short, does not move, or holds figures that are no bandwidths.
    """
    from scipy.optimize import minimize

    times, series = _checked(times_s, series_gbps)
    base = None if base_gbps is None else np.broadcast_to(np.asarray(base_gbps, np.float64), series.shape[1:])
    start = autoregression(times, series, base, gate)
    wandering = (
        1.4 * start.reversion_per_s,
        0.9 * start.spread,
        0.3 * start.noise,
        0.5 * start.spread / math.sqrt(3600.0),
    )
    settled = (start.reversion_per_s, start.spread, start.noise, start.drift_per_sqrt_s)

    def params_of(point: FloatArray) -> KalmanParams:
        reversion, spread, noise, drift = (float(value) for value in np.exp(np.clip(point, -25.0, 3.0)))
        return KalmanParams(reversion, spread, _or_zero(noise), _or_zero(drift), gate)

    def loss(point: FloatArray) -> float:
        return -log_likelihood(params_of(point), times, series, base)

    runs = []
    for begin in (settled, wandering):
        unit = np.log(begin)
        simplex = np.vstack([unit, unit + np.diag([0.5, 0.3, -1.5, 1.5 if begin is settled else -0.7])])
        run = minimize(
            loss,
            unit,
            method="Nelder-Mead",
            options={"maxfev": max_evaluations // 2, "xatol": 5e-3, "fatol": 1e-3, "initial_simplex": simplex},
        )
        runs.append(run)
    found = min(runs, key=lambda run: float(run.fun))
    first = log_likelihood(start, times, series, base)
    best = params_of(found.x) if -found.fun >= first else start
    return KalmanFit(
        best,
        max(-float(found.fun), first),
        start,
        first,
        series.size,
        sum(int(run.nfev) for run in runs) + 1,
        bool(found.success),
    )


def log_likelihood(
    params: KalmanParams, times_s: FloatArray, series_gbps: FloatArray, base_gbps: FloatArray | None
) -> float:
    """Sum the log density of every innovation, relative to the reference, over all links."""
    state = kalman_start(params, series_gbps.shape[1:], base_gbps)
    total = 0.0
    for time_s, links in zip(times_s, series_gbps, strict=True):
        first = np.isnan(state.reference_gbps)
        state, innovation, var, jumped = kalman_step(state, params, time_s, links)
        density = -0.5 * (innovation * innovation / var + np.log(2.0 * math.pi * var))
        density = np.where(jumped, math.log(JUMP_CHANCE) + density, density)
        # The reading that sets an unknown reference says nothing of the motion.
        total += float(np.where(first, 0.0, density).sum())
    return total


def autoregression(
    times_s: FloatArray, series_gbps: FloatArray, base_gbps: FloatArray | None, gate: float
) -> KalmanParams:
    """Solve the first-order autoregression in closed form over the steps of usual length."""
    centre = np.median(series_gbps, axis=0) if base_gbps is None else base_gbps
    # Medians, because a cut must not pass for spread.
    deviation = np.clip(series_gbps / centre - 1.0, -1.0, 1.0)
    spread = max(float(np.median(np.abs(deviation)) / 0.6745), 1e-4)
    inside = np.clip(deviation, -3.0 * spread, 3.0 * spread)
    steps_s = np.diff(times_s)
    usual_s = float(np.median(steps_s))
    usual = np.abs(steps_s - usual_s) <= 0.2 * usual_s
    before, after = inside[:-1][usual], inside[1:][usual]
    keeps = float((before * after).sum() / max((before * before).sum(), 1e-300))
    keeps = min(max(keeps, 0.01), 0.999)
    return KalmanParams(-math.log(keeps) / usual_s, spread, 0.1 * spread, 0.01 * spread / math.sqrt(86400.0), gate)


def _or_zero(value: float) -> float:
    return value if value > _LOWEST else 0.0


def _checked(times_s: ArrayLike, series_gbps: ArrayLike) -> tuple[FloatArray, FloatArray]:
    times = np.asarray(times_s, dtype=np.float64)
    series = np.asarray(series_gbps, dtype=np.float64)
    if times.ndim != 1 or series.ndim < 1 or series.shape[:1] != times.shape:
        rule = f"must begin with the number of times, {times.shape}"
        raise ModelFitError(problem("series_gbps.shape", series.shape, rule, "Give one reading of all links per time"))
    if times.size < LEAST_READINGS:
        raise ModelFitError(problem("times_s.size", times.size, f"must be >= {LEAST_READINGS}", "Record for longer"))
    if not (np.all(np.isfinite(times)) and np.all(np.diff(times) > 0)):
        raise ModelFitError(problem("times_s", times.tolist()[:5], "must increase strictly", "Sort, drop repeats"))
    wrong = ~(np.isfinite(series) & (series > 0))
    if wrong.any():
        at = tuple(int(index) for index in np.argwhere(wrong)[0])
        field = f"series_gbps{list(at)}"
        raise ModelFitError(problem(field, float(series[at]), "must be a finite number > 0", "Drop failed readings"))
    if np.all(series == series[0]):
        rule = "must change at least once: a network that stands still has no motion to learn"
        raise ModelFitError(problem("series_gbps", "constant", rule, "Record links that fluctuate"))
    return times, series.reshape(series.shape[0], -1) if series.ndim == 1 else series
