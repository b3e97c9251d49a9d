"""Parameters from a recording: found again where they are known, one clear error where there is nothing to find."""

import math

import numpy as np
import pytest

from attribution_sched.errors import ModelFitError
from attribution_sched.scheduler.predictor.forecast import KalmanParams
from research.kalman_fit import JUMP_CHANCE, autoregression, fit, log_likelihood


def simulate(rng, params, times, links, base=5.0):
    """The filter's own model: level, deviation and noise."""
    x, level, series = params.spread * rng.standard_normal(links), np.ones(links), []
    for step_s in np.diff(times, prepend=times[0]):
        a = math.exp(-params.reversion_per_s * step_s)
        x = a * x + params.spread * math.sqrt(1.0 - a * a) * rng.standard_normal(links)
        level = level + params.drift_per_sqrt_s * math.sqrt(step_s) * rng.standard_normal(links)
        series.append(base * (level + x + params.noise * rng.standard_normal(links)))
    return np.array(series)


@pytest.mark.parametrize(
    ("truth", "base"), [(KalmanParams(1 / 1800.0, 0.12), None), (KalmanParams(1 / 900.0, 0.06, 0.03), 5.0)]
)
def test_it_finds_the_parameters_again(truth, base):
    rng = np.random.default_rng(4)
    times = np.cumsum(rng.choice([200.0, 300.0, 600.0], 100))
    found = fit(times, simulate(rng, truth, times, 120), base, max_evaluations=360)
    assert abs(math.log(found.params.reversion_per_s / truth.reversion_per_s)) < 0.2
    assert abs(math.log(found.params.spread / truth.spread)) < 0.1
    assert abs(found.params.noise - truth.noise) < 0.012
    assert found.log_likelihood >= found.start_log_likelihood
    assert found.readings == 100 * 120


def test_no_other_parameters_near_explain_the_recording_better():
    rng = np.random.default_rng(6)
    times = 300.0 * np.arange(70)
    series = simulate(rng, KalmanParams(1 / 1200.0, 0.1, 0.02), times, 80)
    found = fit(times, series)
    best = log_likelihood(found.params, times, series, None)
    assert math.isclose(best, found.log_likelihood)
    for factor in (0.8, 1.25):
        for field in ("reversion_per_s", "spread", "noise"):
            values = {name: getattr(found.params, name) for name in ("reversion_per_s", "spread", "noise")}
            other = KalmanParams(**(values | {field: values[field] * factor}))
            assert log_likelihood(other, times, series, None) < best


def test_a_cut_does_not_pass_for_spread():
    rng = np.random.default_rng(8)
    truth, times = KalmanParams(1 / 1800.0, 0.1), 300.0 * np.arange(80)
    series = simulate(rng, truth, times, 80)
    series[30:55] *= 0.2
    found = fit(times, series, 5.0, max_evaluations=300)
    assert abs(math.log(found.params.spread / truth.spread)) < 0.15
    assert abs(math.log(found.params.reversion_per_s / truth.reversion_per_s)) < 0.3


def test_a_level_that_drifts_does_not_pass_for_slow_reversion():
    rng = np.random.default_rng(12)
    truth, times = KalmanParams(1 / 900.0, 0.08, 0.0, 0.06 / 60.0), 300.0 * np.arange(100)
    found = fit(times, simulate(rng, truth, times, 100))
    assert abs(math.log(found.params.drift_per_sqrt_s / truth.drift_per_sqrt_s)) < 0.3
    assert abs(math.log(found.params.reversion_per_s / truth.reversion_per_s)) < 0.3


def test_a_jump_costs_its_chance_and_a_level_of_which_nothing_is_known():
    params = KalmanParams(1 / 1800.0, 0.1, 0.01)
    kept = params.spread**2 * params.noise**2 / (params.spread**2 + params.noise**2)
    a = math.exp(-300.0 / 1800.0)
    ordinary = a * a * kept + params.spread**2 * (1 - a * a) + params.noise**2

    def density(var):
        return -0.5 * math.log(2.0 * math.pi * var)

    times, first = np.array([0.0, 300.0]), density(params.spread**2 + params.noise**2)
    for second, expected in ((5.0, density(ordinary)), (1.0, math.log(JUMP_CHANCE) + density(1.0 + ordinary))):
        found = log_likelihood(params, times, np.array([[5.0], [second]]), np.array([5.0]))
        assert math.isclose(found, first + expected, rel_tol=1e-12)


def test_the_closed_form_start_is_that_of_the_autoregression():
    rng = np.random.default_rng(9)
    times = 300.0 * np.arange(400)
    series = simulate(rng, KalmanParams(1 / 1800.0, 0.1), times, 100)
    start = autoregression(times, series, np.full(100, 5.0), 4.5)
    assert abs(start.reversion_per_s * 1800.0 - 1.0) < 0.1
    assert abs(start.spread / 0.1 - 1.0) < 0.05


def test_a_single_link_may_be_given_as_one_row():
    rng = np.random.default_rng(10)
    times = 300.0 * np.arange(60)
    series = simulate(rng, KalmanParams(), times, 1)
    assert fit(times, series[:, 0]).params == fit(times, series).params


@pytest.mark.parametrize(
    ("times", "series", "message"),
    [
        (np.arange(4.0), np.ones(4), r"times_s.size = 4: must be >= 8"),
        (np.arange(10.0), np.ones((9, 2)), r"series_gbps.shape"),
        (np.zeros(10), np.ones(10), r"must increase strictly"),
        (np.arange(10.0), np.ones(10), r"constant.*stands still"),
        (np.arange(10.0), np.where(np.arange(10) == 3, math.nan, 5.0), r"series_gbps\[3\] = nan"),
        (np.arange(10.0), np.where(np.arange(10) == 3, -1.0, 5.0), r"series_gbps\[3\] = -1.0"),
    ],
)
def test_a_recording_with_nothing_to_learn_is_refused(times, series, message):
    with pytest.raises(ModelFitError, match=message):
        fit(times, series)
