"""The Kalman filter: against the closed form, a textbook filter of dense matrices, and links that are cut."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.wan import Wan, WanProcess
from attribution_sched.errors import NetworkError
from attribution_sched.scheduler.predictor.forecast import (
    UNKNOWN_LEVEL,
    KalmanParams,
    KalmanPredictor,
    kalman_forecast,
    kalman_start,
    kalman_step,
    kalman_update,
)


def two(gbps):
    return np.array([[100.0, gbps], [gbps, 100.0]])


def test_without_noise_and_drift_it_is_the_conditional_mean_of_the_process():
    wan = Wan.uniform(("a", "b", "c"), gbps=5.0, latency_s=0.02, usd_per_gb=0.1, spread=0.1, bound=0.99)
    process, predictor = WanProcess(wan, 3), KalmanPredictor.of_network(wan)
    between = ~np.eye(3, dtype=bool)
    for step_s in (300.0, 10.0, 2000.0, 300.0, 1.0, 450.0):
        process.step(step_s)
        predictor.observe(process.time_s, process.bandwidth_gbps)
        for horizon_s in (0.0, 300.0, 1800.0, 7200.0):
            keeps = math.exp(-wan.reversion_per_s * horizon_s)
            forecast = predictor.forecast(horizon_s)
            mean = 5.0 * (1.0 + keeps * process.latent)[between]
            np.testing.assert_allclose(forecast.mean_gbps[between], mean, rtol=0, atol=1e-9)
            std = 5.0 * wan.spread * math.sqrt(1.0 - keeps**2)
            np.testing.assert_allclose(forecast.std_gbps[between], std, rtol=0, atol=1e-9)


def textbook(params, base, times, values, horizon_s):
    """Filter and forecast one link with the matrices of a textbook."""
    x = np.zeros(2)
    known = base is not None
    reference = base if known else values[0]
    p = np.diag([0.0 if known else UNKNOWN_LEVEL**2, params.spread**2])
    h = np.ones((1, 2))
    for at, value in enumerate(values):
        if at:
            dt = times[at] - times[at - 1]
            a = math.exp(-params.reversion_per_s * dt)
            f = np.diag([1.0, a])
            q = np.diag([params.drift_per_sqrt_s**2 * dt, params.spread**2 * (1.0 - a * a)])
            x, p = f @ x, f @ p @ f.T + q
        s = h @ p @ h.T + params.noise**2
        gain = p @ h.T / s
        x = x + (gain * (value / reference - 1.0 - h @ x)).ravel()
        p = (np.eye(2) - gain @ h) @ p
    a = math.exp(-params.reversion_per_s * horizon_s)
    row = np.array([1.0, a])
    gained = params.spread**2 * (1.0 - a * a) + params.drift_per_sqrt_s**2 * horizon_s
    return reference * (1.0 + row @ x), reference * math.sqrt(row @ p @ row + gained)


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 10_000),
    log_rate=st.floats(-9.0, -5.0),
    spread=st.floats(0.02, 0.3),
    noise=st.floats(0.001, 0.1),
    drift=st.floats(0.0, 0.002),
    known=st.booleans(),
    horizon_s=st.floats(0.0, 10_000.0),
)
def test_it_equals_the_textbook_filter(seed, log_rate, spread, noise, drift, known, horizon_s):
    rng = np.random.default_rng(seed)
    params = KalmanParams(math.exp(log_rate), spread, noise, drift, gate=math.inf)
    times = np.cumsum(rng.uniform(1.0, 3000.0, 12))
    values = 4.0 * np.exp(0.1 * rng.standard_normal((12, 3)))
    state = kalman_start(params, (3,), 4.0 if known else None)
    for time_s, value in zip(times, values, strict=True):
        state = kalman_update(state, params, time_s, value)
    mean, std = kalman_forecast(state, params, horizon_s)
    for link in range(3):
        expected = textbook(params, 4.0 if known else None, times, values[:, link], horizon_s)
        np.testing.assert_allclose((mean[link], std[link]), expected, rtol=1e-8, atol=1e-10)


def test_the_variance_is_the_mean_square_error_with_noise_and_unknown_base():
    params = KalmanParams(1 / 1200.0, 0.1, 0.05, 0.0004)
    rng = np.random.default_rng(5)
    links, step_s, a = 4000, 300.0, math.exp(-0.25)
    level = np.ones(links)
    x = params.spread * rng.standard_normal(links)
    state = kalman_start(params, (links,))
    for tick in range(40):
        state = kalman_update(state, params, step_s * tick, level + x + params.noise * rng.standard_normal(links))
        mean, std = kalman_forecast(state, params, step_s)
        level = level + params.drift_per_sqrt_s * math.sqrt(step_s) * rng.standard_normal(links)
        x = a * x + params.spread * math.sqrt(1 - a * a) * rng.standard_normal(links)
    z = (level + x - mean) / std
    assert abs(float(np.mean(np.abs(z) < 1.645)) - 0.9) < 0.02
    assert abs(float(np.mean(z**2)) - 1.0) < 0.08


@pytest.mark.parametrize("horizon_s", [300.0, 1800.0, 7200.0])
def test_nine_intervals_in_ten_hold_the_truth(horizon_s):
    wan = Wan.uniform(tuple("abcdefgh"), gbps=5.0, latency_s=0.02, usd_per_gb=0.1)
    between = ~np.eye(8, dtype=bool)
    inside = []
    for seed in range(12):
        process, predictor = WanProcess(wan, seed), KalmanPredictor.of_network(wan)
        for _ in range(12):
            predictor.observe(process.time_s, process.bandwidth_gbps)
            process.step(300.0)
        forecast = predictor.forecast(horizon_s)
        process.step(horizon_s - 300.0)
        miss = np.abs(process.bandwidth_gbps - forecast.mean_gbps)[between]
        inside.append(miss <= 1.645 * forecast.std_gbps[between])
    assert abs(np.mean(inside) - 0.9) < 0.04


@pytest.mark.parametrize("base", [None, two(5.0)])
@pytest.mark.parametrize("factor", [0.2, 0.05, 0.4])
def test_a_cut_link_stays_cut_in_the_forecast_until_it_is_mended(base, factor):
    predictor = KalmanPredictor(base_gbps=base)
    rng = np.random.default_rng(7)
    x, a = 0.0, math.exp(-1 / 6)
    for tick in range(72):
        cut = 24 <= tick < 48
        predictor.observe(300.0 * tick, two(5.0 * (factor if cut else 1.0) * (1.0 + np.clip(x, -0.3, 0.3))))
        settled = tick >= 24
        if settled:
            # From the first reading after the cut, or the repair, on.
            share = predictor.forecast(3600.0).mean_gbps[0, 1] / 5.0
            assert abs(share / (factor if cut else 1.0) - 1.0) < 0.4
        x = a * x + 0.12 * math.sqrt(1 - a * a) * rng.standard_normal()
    if base is not None:
        keeps = math.exp(-2.0)
        last = predictor.state.reference_gbps[0, 1], predictor.state.level_var[0, 1]
        assert last == (5.0, 0.0), "mended: the reference is the base again, for certain"
        assert abs(predictor.forecast(3600.0).mean_gbps[0, 1] / 5.0 - 1.0) < 0.31 * keeps


def test_without_a_gate_a_cut_link_is_said_to_recover_at_once():
    """What the gate is for."""
    predictor = KalmanPredictor(KalmanParams(gate=math.inf), two(5.0))
    for tick in range(40):
        predictor.observe(300.0 * tick, two(5.0 if tick < 20 else 1.0))
    assert predictor.forecast(7200.0).mean_gbps[0, 1] > 4.5


def test_a_repair_that_is_foreseen_is_a_mixture_of_staying_and_being_back():
    cut = {name: KalmanPredictor(KalmanParams(repair_s=mean_s), two(5.0)) for name, mean_s in
           (("never", math.inf), ("hour", 3600.0))}  # fmt: skip
    for predictor in cut.values():
        for tick in range(30):
            predictor.observe(300.0 * tick, two(5.0 if tick < 20 else 1.0))
    never, hour = (predictor.forecast(1800.0) for predictor in cut.values())
    back = 1.0 - math.exp(-0.5)
    stays, std = never.mean_gbps[0, 1], never.std_gbps[0, 1]
    rng = np.random.default_rng(0)
    mended = rng.random(400_000) < back
    drawn = np.where(mended, rng.normal(5.0, 0.6, mended.size), rng.normal(stays, std, mended.size))
    assert abs(stays - 1.0) < 0.02
    assert abs(hour.mean_gbps[0, 1] - drawn.mean()) < 0.02
    assert abs(hour.std_gbps[0, 1] - drawn.std()) < 0.02
    healthy = KalmanPredictor(KalmanParams(repair_s=3600.0), two(5.0))
    healthy.observe(0.0, two(4.5))
    assert abs(healthy.forecast(1800.0).mean_gbps[0, 1] - (5.0 - 0.5 * math.exp(-1.0))) < 1e-9


def test_a_wandering_network_seldom_jumps():
    wan = Wan.uniform(tuple("abcdefgh"), gbps=5.0, latency_s=0.02, usd_per_gb=0.1)
    process, params = WanProcess(wan, 11), KalmanParams()
    state = kalman_start(params, (8, 8), wan.bandwidth_gbps)
    jumps = 0
    for _ in range(288):
        state, _, _, jumped = kalman_step(state, params, process.time_s, process.bandwidth_gbps)
        jumps += int(jumped.sum())
        process.step(300.0)
    assert jumps <= 2


def test_the_state_is_left_as_it_was():
    params = KalmanParams()
    before = kalman_start(params, (4,), 5.0)
    before = kalman_update(before, params, 0.0, np.full(4, 5.5))
    copies = [np.array(part) for part in before]
    kalman_update(before, params, 300.0, np.array([5.0, 1.0, 6.0, 5.5]))
    kalman_forecast(before, params, 600.0)
    assert all(np.array_equal(old, new, equal_nan=True) for old, new in zip(copies, before, strict=True))


def test_every_cluster_of_a_batch_has_its_own_clock():
    params = KalmanParams()
    state = kalman_start(params, (3, 2, 2), two(5.0), (3, 1, 1))
    state = kalman_update(state, params, np.full((3, 1, 1), 900.0), np.full((3, 2, 2), 4.0))
    with pytest.raises(NetworkError, match="must not lie before the last reading"):
        kalman_update(state, params, np.zeros((3, 1, 1)), np.full((3, 2, 2), 4.0))
    together = kalman_update(state, params, 1200.0, np.full((3, 2, 2), 4.0))
    assert together.time_s.shape == (3, 1, 1), "one time for all leaves every cluster its clock"


def test_an_update_of_256_clusters_takes_less_than_a_millisecond():
    params = KalmanParams()
    rng = np.random.default_rng(0)
    readings = 5.0 * (1.0 + 0.1 * rng.uniform(-1, 1, (60, 256, 8, 8)))
    state = kalman_start(params, (256, 8, 8), 5.0, (256, 1, 1))
    spent = []
    for tick, reading in enumerate(readings):
        began = time.process_time()
        state = kalman_update(state, params, np.full((256, 1, 1), 300.0 * tick), reading)
        spent.append(time.process_time() - began)
    assert np.median(spent) < 1e-3


@pytest.mark.parametrize(
    ("field", "value"),
    [("reversion_per_s", 0.0), ("spread", 0.0), ("spread", math.nan), ("noise", -0.1), ("drift_per_sqrt_s", -1.0)],
)
def test_parameters_that_mean_nothing_are_refused(field, value):
    with pytest.raises(NetworkError, match=rf"{field} = {value}: must be finite"):
        KalmanParams(**{field: value})


@pytest.mark.parametrize("field", ["gate", "repair_s"])
def test_a_gate_or_repair_of_nothing_is_refused(field):
    with pytest.raises(NetworkError, match=rf"{field} = 0: must be > 0"):
        KalmanParams(**{field: 0})
