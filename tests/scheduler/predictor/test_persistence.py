"""The baseline: the last value, and a spread that is the root mean square of what it missed."""

import math

import numpy as np

from attribution_sched.scheduler.predictor.persistence import PRIOR_VOLATILITY, PersistencePredictor


def two(gbps):
    return np.array([[100.0, gbps], [gbps, 100.0]])


def test_the_forecast_is_the_last_value_at_every_horizon():
    predictor = PersistencePredictor()
    predictor.observe(0.0, two(4.0))
    predictor.observe(300.0, two(5.0))
    for horizon_s in (0.0, 300.0, 86400.0):
        assert np.array_equal(predictor.forecast(horizon_s).mean_gbps, two(5.0))


def test_the_spread_is_that_of_a_random_walk_with_the_changes_seen():
    predictor = PersistencePredictor()
    predictor.observe(0.0, two(4.0))
    assert math.isclose(predictor.forecast(900.0).std_gbps[0, 1], 4.0 * PRIOR_VOLATILITY * 30.0)
    predictor.observe(100.0, two(5.0))
    predictor.observe(300.0, two(3.0))
    rate = ((4.0 * PRIOR_VOLATILITY) ** 2 + 1.0 / 100.0 + 4.0 / 200.0) / 3
    assert math.isclose(predictor.forecast(900.0).std_gbps[0, 1], math.sqrt(900.0 * rate))


def test_reset_forgets():
    predictor = PersistencePredictor()
    predictor.observe(900.0, two(4.0))
    predictor.reset()
    predictor.observe(0.0, two(6.0))
    assert predictor.forecast(300.0).mean_gbps[0, 1] == 6.0
