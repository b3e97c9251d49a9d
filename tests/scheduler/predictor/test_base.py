"""What every predictor shares: one clear error per mistake, the diagonal passed through, a batch equal to its parts."""

import math

import numpy as np
import pytest

from attribution_sched.cluster.wan import Wan
from attribution_sched.errors import NetworkError
from attribution_sched.scheduler.predictor.forecast import (
    PRIOR_VOLATILITY,
    KalmanParams,
    KalmanPredictor,
    LinkPredictor,
    PersistencePredictor,
    checked_links,
)
from attribution_sched.scheduler.predictor.gru import GruPredictor

BASE = np.array([[0.0, 8.0, 7.0], [6.0, 100.0, 5.0], [4.0, 3.0, 100.0]])
MAKERS = {
    "persistence": lambda: PersistencePredictor(names=("a", "b", "c")),
    "kalman": lambda: KalmanPredictor(base_gbps=BASE, names=("a", "b", "c")),
    "kalman-noise": lambda: KalmanPredictor(KalmanParams(noise=0.05), BASE, ("a", "b", "c")),
    "kalman-no-base": lambda: KalmanPredictor(names=("a", "b", "c")),
    "gru": lambda: GruPredictor(base_gbps=BASE, names=("a", "b", "c")),
    "gru-no-base": lambda: GruPredictor(names=("a", "b", "c")),
}


@pytest.fixture(params=MAKERS)
def maker(request):
    return MAKERS[request.param]


def readings(rng, shape=(), ticks=9):
    return BASE * (1.0 + 0.1 * rng.standard_normal((ticks, *shape, 3, 3)))


def test_forecast_before_any_reading_is_refused(maker):
    with pytest.raises(NetworkError, match=r"readings = 0: .*observe"):
        maker().forecast(300.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_a_wrong_figure_names_the_link(maker, value):
    wrong = BASE.copy()
    wrong[1, 2] = value
    predictor = maker()
    with pytest.raises(NetworkError, match=r"bandwidth_gbps\[b → c\] = .*finite number > 0"):
        predictor.observe(0.0, wrong)
    with pytest.raises(NetworkError, match="readings = 0"):
        predictor.forecast(300.0)


def test_a_wrong_figure_of_a_batch_names_the_cluster():
    wrong = np.stack([BASE, BASE])
    wrong[1, 0, 2] = math.nan
    with pytest.raises(NetworkError, match=r"bandwidth_gbps\[cluster 1, 0 → 2\] = nan"):
        checked_links(wrong)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 0)])
def test_a_shape_without_links_is_refused(maker, shape):
    with pytest.raises(NetworkError, match=r"bandwidth_gbps\.shape"):
        maker().observe(0.0, np.ones(shape))


def test_shape_and_time_must_follow_the_last_reading(maker):
    predictor = maker()
    predictor.observe(600.0, BASE)
    with pytest.raises(NetworkError, match=r"must stay \(3, 3\)"):
        predictor.observe(900.0, np.stack([BASE, BASE]))
    with pytest.raises(NetworkError, match=r"time_s = 300.0: must not lie before the last reading, 600"):
        predictor.observe(300.0, BASE)
    with pytest.raises(NetworkError, match="must be finite"):
        predictor.observe(math.nan, BASE)
    with pytest.raises(NetworkError, match=r"time_s\.shape"):
        predictor.observe(np.array([900.0, 900.0]), BASE)
    predictor.reset()
    predictor.observe(0.0, np.stack([BASE, BASE]))


@pytest.mark.parametrize("horizon_s", [-1.0, math.nan, math.inf])
def test_a_wrong_horizon_is_refused(maker, horizon_s):
    predictor = maker()
    predictor.observe(0.0, BASE)
    with pytest.raises(NetworkError, match="horizon_s"):
        predictor.forecast(horizon_s)


@pytest.mark.parametrize("kind", [KalmanPredictor, GruPredictor])
def test_a_base_of_other_domains_is_refused(kind):
    predictor = kind(base_gbps=np.ones((4, 4)))
    with pytest.raises(NetworkError, match=r"base_gbps\.shape = \(4, 4\)"):
        predictor.observe(0.0, BASE)


def test_links_inside_a_domain_keep_their_value_for_sure(maker):
    predictor = maker()
    for tick, reading in enumerate(readings(np.random.default_rng(0))):
        predictor.observe(300.0 * tick, np.where(np.eye(3, dtype=bool), BASE, reading))
    forecast = predictor.forecast(1800.0)
    assert np.array_equal(np.diag(forecast.mean_gbps), np.diag(BASE))
    assert not np.diag(forecast.std_gbps).any()
    assert (forecast.std_gbps[~np.eye(3, dtype=bool)] > 0).all()
    assert forecast.horizon_s == 1800.0
    assert forecast.method == predictor.name


def test_a_batch_equals_one_by_one_with_clocks_of_their_own(maker):
    rng = np.random.default_rng(1)
    series = readings(rng, (2, 2))
    times = np.cumsum(rng.uniform(60.0, 900.0, (9, 2, 2)), axis=0)
    batch = maker()
    singles = {(i, j): maker() for i in range(2) for j in range(2)}
    for time_s, reading in zip(times, series, strict=True):
        batch.observe(time_s, reading)
        for at, single in singles.items():
            single.observe(time_s[at], reading[at])
    together = batch.forecast(900.0)
    for at, single in singles.items():
        alone = single.forecast(900.0)
        np.testing.assert_allclose(together.mean_gbps[at], alone.mean_gbps, rtol=1e-5)
        np.testing.assert_allclose(together.std_gbps[at], alone.std_gbps, rtol=1e-5)


def test_a_cluster_read_twice_at_the_same_time_keeps_its_first_reading(maker):
    rng = np.random.default_rng(2)
    series = readings(rng, (2,))
    often, once = maker(), maker()
    for tick, reading in enumerate(series):
        often.observe(np.full(2, 300.0 * tick), reading)
        # The second cluster has moved on by less than a tick, the first not at all.
        once.observe(300.0 * tick, reading[0])
        often.observe(np.array([300.0 * tick, 300.0 * tick + 100.0]), reading * 1.1)
    many, one = often.forecast(900.0), once.forecast(900.0)
    np.testing.assert_allclose(many.mean_gbps[0], one.mean_gbps, rtol=1e-6)
    np.testing.assert_allclose(many.std_gbps[0], one.std_gbps, rtol=1e-6)


def test_when_the_clock_began_does_not_matter(maker):
    series = readings(np.random.default_rng(3))
    early, late = maker(), maker()
    for tick, reading in enumerate(series):
        early.observe(300.0 * tick, reading)
        late.observe(1e6 + 300.0 * tick, reading)
    np.testing.assert_allclose(late.forecast(900.0).mean_gbps, early.forecast(900.0).mean_gbps, rtol=1e-9)
    np.testing.assert_allclose(late.forecast(900.0).std_gbps, early.forecast(900.0).std_gbps, rtol=1e-9)


def test_a_forecast_cannot_be_written_to_and_owns_its_figures(maker):
    predictor: LinkPredictor = maker()
    given = BASE.copy()
    predictor.observe(0.0, given)
    given[:] = 1.0
    forecast = predictor.forecast(0.0)
    np.testing.assert_allclose(forecast.mean_gbps, BASE, rtol=0.25)
    with pytest.raises(ValueError, match="read-only"):
        forecast.mean_gbps[0, 1] = 0.0


def test_the_predictor_of_a_network_takes_its_motion():
    wan = Wan.uniform(("a", "b"), gbps=5.0, latency_s=0.01, usd_per_gb=0.1, spread=0.07, reversion_per_s=1e-3)
    predictor = KalmanPredictor.of_network(wan)
    assert (predictor.params.spread, predictor.params.reversion_per_s) == (0.07, 1e-3)
    predictor.observe(0.0, wan.bandwidth_gbps)
    assert predictor.forecast(600.0).mean_gbps[0, 1] == 5.0


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
