"""Intervals over decisions: they cover, and say nothing of too few."""

from __future__ import annotations

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.overview import LEAST_DECISIONS, limits, mean, resampled_means


def test_means_leave_out_what_is_absent():
    values = np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(mean(values), [2.0, np.nan])
    draws = resampled_means(values, 500, np.random.default_rng(0))
    known = draws[np.isfinite(draws[:, 0]), 0]
    assert known.min() == 1.0
    assert known.max() == 3.0
    assert np.isnan(draws[:, 1]).all()


def test_draws_agree_with_resampling_by_hand():
    values = np.random.default_rng(1).normal(size=(30, 1))
    draws = resampled_means(values, 20_000, np.random.default_rng(2))
    assert draws.mean() == pytest.approx(values.mean(), abs=0.01)
    assert draws.std() == pytest.approx(values.std() / np.sqrt(30), rel=0.03)


@pytest.mark.parametrize("n", [6, 15, 60])
def test_intervals_cover_the_truth(n):
    rng = np.random.default_rng(n)
    values = rng.normal(1.0, 2.0, size=(n, 600))
    low, high = limits(values, resampled_means(values, 400, rng))
    assert 0.92 <= np.mean((low < 1.0) & (high > 1.0)) <= 0.985


def test_few_decisions_have_no_interval():
    values = np.random.default_rng(0).normal(size=(LEAST_DECISIONS, 2))
    values[0, 1] = np.nan
    low, high = limits(values, resampled_means(values, 50, np.random.default_rng(0)))
    assert np.isfinite(low[0]) and np.isfinite(high[0])
    assert np.isnan(low[1]) and np.isnan(high[1])


def test_the_same_seed_gives_the_same_draws():
    values = np.random.default_rng(0).normal(size=(9, 3))
    one, other = (resampled_means(values, 40, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    with pytest.raises(ExplanationError, match="resamples = 0"):
        resampled_means(values, 0, np.random.default_rng(0))
