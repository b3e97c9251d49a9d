"""The paired bootstrap: laws, and the coverage it promises."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.errors import SettingsError
from attribution_sched.stats.bootstrap import PairedBootstrap, limits, ratio, stretched

VALUES = some.lists(some.floats(-1e3, 1e3), min_size=2, max_size=12)


def estimated(values, seed=0, resamples=400):
    bootstrap = PairedBootstrap(len(values), seed, resamples)
    return bootstrap.estimate(bootstrap.means(np.asarray(values, dtype=float)))


@settings(deadline=None, max_examples=40)
@given(VALUES, some.floats(0.1, 10.0), some.floats(-100.0, 100.0))
def test_units_and_offsets_pass_through(values, scale, offset):
    plain, moved = estimated(values), estimated([scale * v + offset for v in values])
    for one, other in zip((plain.value, plain.low, plain.high), (moved.value, moved.low, moved.high), strict=True):
        assert other == pytest.approx(scale * one + offset, rel=1e-9, abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(VALUES)
def test_the_interval_lies_around_the_mean(values):
    found = estimated(values)
    assert found.value == pytest.approx(np.mean(values), abs=1e-9)
    assert found.low <= found.value + 1e-9 and found.value - 1e-9 <= found.high


@settings(deadline=None, max_examples=40)
@given(VALUES, some.floats(-50.0, 50.0))
def test_a_constant_lead_is_certain_however_the_episodes_vary(values, lead):
    bootstrap = PairedBootstrap(len(values), 3, 400)
    ours = bootstrap.means(np.array(values) + lead)
    found = bootstrap.estimate(ours - bootstrap.means(np.array(values)))
    assert (found.low, found.high) == pytest.approx((lead, lead), abs=1e-9)
    assert estimated(values).low <= estimated(values).high


def test_intervals_of_few_normal_samples_hold_the_mean_as_often_as_promised():
    rng = np.random.default_rng(1)
    held, widths = 0, []
    trials, n = 1500, 8
    bootstrap = PairedBootstrap(n, 0, 1000)
    student = 2.3646  # quantile 0.975 of Student's t with 7 degrees of freedom
    for _ in range(trials):
        sample = rng.normal(size=n)
        found = bootstrap.estimate(bootstrap.means(sample))
        held += found.low <= 0.0 <= found.high
        widths.append((found.high - found.low) / (2 * student * sample.std(ddof=1) / math.sqrt(n)))
    assert 0.93 < held / trials < 0.97
    assert np.mean(widths) == pytest.approx(1.0, abs=0.06)


def test_many_episodes_need_no_widening():
    assert stretched(100_000) == pytest.approx(1.0, abs=1e-4)
    assert stretched(5) > stretched(20) > 1.0


def test_the_same_seed_gives_the_same_interval():
    values = np.arange(9.0) ** 2
    assert estimated(values, seed=4) == estimated(values, seed=4)
    assert estimated(values, seed=4) != estimated(values, seed=5)


def test_one_episode_has_a_figure_and_no_interval():
    found = estimated([3.5])
    assert found.value == 3.5
    assert found.known
    assert not found.bounded


def test_a_quotient_without_a_positive_divisor_is_unknown():
    found = ratio(np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0, -1.0]))
    assert found[0] == 0.5
    assert np.isnan(found[1:]).all()
    bootstrap = PairedBootstrap(4, 0, 50)
    assert not bootstrap.estimate(ratio(bootstrap.means(np.ones(4)), bootstrap.means(np.zeros(4)))).known


def test_means_leave_out_what_is_absent():
    values = np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan]])
    draws = PairedBootstrap(3, 0, 500).means(values)
    np.testing.assert_array_equal(draws[0], [2.0, np.nan])
    known = draws[np.isfinite(draws[:, 0]), 0]
    assert (known.min(), known.max()) == (1.0, 3.0)
    assert np.isnan(draws[:, 1]).all()


def test_draws_agree_with_resampling_by_hand():
    values = np.random.default_rng(1).normal(size=(30, 1))
    draws = PairedBootstrap(30, 2, 20_000).means(values)[1:]
    assert draws.mean() == pytest.approx(values.mean(), abs=0.01)
    assert draws.std() == pytest.approx(values.std() / np.sqrt(30), rel=0.03)


@pytest.mark.parametrize("n", [6, 15, 60])
def test_intervals_cover_the_truth(n):
    values = np.random.default_rng(n).normal(1.0, 2.0, size=(n, 600))
    low, high = limits(PairedBootstrap(n, 0, 400).means(values), np.full(600, n))
    assert 0.92 <= np.mean((low < 1.0) & (high > 1.0)) <= 0.985


def test_few_rows_have_no_interval():
    values = np.random.default_rng(0).normal(size=(5, 2))
    low, high = limits(PairedBootstrap(5, 0, 50).means(values), [5, 1])
    assert np.isfinite(low[0]) and np.isfinite(high[0])
    assert np.isnan(low[1]) and np.isnan(high[1])


@pytest.mark.parametrize("wish", [{"rows": 0}, {"resamples": 0}])
def test_nothing_to_resample_is_refused(wish):
    with pytest.raises(SettingsError, match=f"{next(iter(wish))} = 0"):
        PairedBootstrap(**({"rows": 3, "seed": 0} | wish))
