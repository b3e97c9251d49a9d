"""Scores: against quadrature, against figures by hand, and a better forecast must score better."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from attribution_sched.cluster.wan import Wan, WanProcess
from attribution_sched.errors import NetworkError
from attribution_sched.scheduler.predictor.forecast import KalmanPredictor, PersistencePredictor
from research.link_score import HORIZONS_S, crps_gaussian, play, skill

WAN = Wan.uniform(("a", "b", "c"), gbps=5.0, latency_s=0.02, usd_per_gb=0.1)
TIMES_S = 300.0 * np.arange(72)


@pytest.fixture(scope="module")
def series():
    networks = [WanProcess(WAN, seed) for seed in range(30)]
    rows = []
    for _ in TIMES_S:
        rows.append(np.stack([network.bandwidth_gbps for network in networks]))
        for network in networks:
            network.step(300.0)
    return np.stack(rows)


@settings(deadline=None, max_examples=40)
@given(error=st.floats(-3.0, 3.0), std=st.floats(0.05, 2.0))
def test_the_ranked_probability_score_is_its_integral(error, std):
    def squared(x):
        return (norm.cdf(x, error, std) - (x >= 0.0)) ** 2

    low, high = min(error, 0.0) - 10 * std, max(error, 0.0) + 10 * std
    expected = quad(squared, low, 0.0)[0] + quad(squared, 0.0, high)[0]
    assert math.isclose(float(crps_gaussian(np.array(error), np.array(std))), expected, rel_tol=1e-4, abs_tol=1e-6)


def test_a_sure_forecast_scores_its_error():
    assert crps_gaussian(np.array([-0.5, 0.0]), np.zeros(2)).tolist() == [0.5, 0.0]


def test_errors_of_persistence_by_hand(series):
    for errors in play(PersistencePredictor(), TIMES_S, series, WAN.bandwidth_gbps, warm_up=5, every=2):
        steps = round(errors.horizon_s / 300.0)
        origins = np.arange(4, TIMES_S.size - steps, 2)
        between = ~np.eye(3, dtype=bool)
        expected = ((series[origins] - series[origins + steps]) / 5.0)[..., between]
        np.testing.assert_allclose(errors.error, expected, atol=1e-12)
        assert math.isclose(errors.rmse, math.sqrt(np.mean(expected**2)))


def test_the_filter_beats_persistence_and_more_so_further_ahead(series):
    base = WAN.bandwidth_gbps
    baseline = play(PersistencePredictor(), TIMES_S, series, base)
    ours = play(KalmanPredictor.of_network(WAN), TIMES_S, series, base)
    skills = [skill(a, b, np.random.default_rng(0)) for a, b in zip(ours, baseline, strict=True)]
    assert [s.horizon_s for s in skills] == list(HORIZONS_S)
    ratios = [s.rmse_ratio for s in skills]
    assert ratios == sorted(ratios, reverse=True)
    for s in skills:
        low, high = s.rmse_ratio_interval
        assert low < s.rmse_ratio < high < 1.0
        assert s.crps_ratio < 1.0
        assert abs(s.coverage_90 - 0.9) < 0.04


def test_persistence_against_itself_has_no_skill(series):
    errors = play(PersistencePredictor(), TIMES_S, series, WAN.bandwidth_gbps, (900.0,))[0]
    found = skill(errors, errors, np.random.default_rng(0))
    assert (found.rmse_ratio, found.crps_ratio, found.rmse_ratio_interval) == (1.0, 1.0, (1.0, 1.0))


def test_the_truth_may_differ_from_noisy_readings(series):
    noisy = series * (1.0 + 0.05 * np.random.default_rng(1).standard_normal(series.shape))
    base = WAN.bandwidth_gbps
    against_truth = play(PersistencePredictor(), TIMES_S, noisy, base, (300.0,), truth_gbps=series)[0].rmse
    assert against_truth < play(PersistencePredictor(), TIMES_S, noisy, base, (300.0,))[0].rmse


def test_a_recording_too_short_for_a_horizon_is_refused(series):
    with pytest.raises(NetworkError, match="readings 3600 s apart after a warm-up of 12"):
        play(PersistencePredictor(), TIMES_S[:20], series[:20], 5.0)


def test_only_the_same_forecasts_compare(series):
    a, b = play(PersistencePredictor(), TIMES_S, series, 5.0, (300.0, 900.0))
    with pytest.raises(NetworkError, match="must match the baseline"):
        skill(a, b, np.random.default_rng(0))
