"""The interval of a mean: against scipy, its coverage, and numbers that say nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from attribution_sched.errors import SettingsError
from attribution_sched.stats.interval import half_width, mean_interval, quantile, standard_error

NUMBERS = some.lists(some.integers(-1000, 1000).map(float), min_size=2, max_size=30)


@given(NUMBERS, some.floats(0.5, 0.999))
def test_it_is_that_of_scipy(numbers, level):
    found = mean_interval(numbers, level)
    assert found.n == len(numbers) and found.mean == pytest.approx(np.mean(numbers))
    if min(numbers) == max(numbers):
        assert found.low == found.mean == found.high
        return
    low, high = stats.t.interval(level, len(numbers) - 1, np.mean(numbers), stats.sem(numbers))
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9, abs=1e-6)
    assert found.half_width == pytest.approx((high - low) / 2, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("n", [3, 8, 40])
def test_it_holds_the_mean_as_often_as_promised(n):
    rng = np.random.default_rng(n)
    found = [mean_interval(rng.normal(2.0, 3.0, n)) for _ in range(2000)]
    assert 0.94 < np.mean([one.low <= 2.0 <= one.high for one in found]) < 0.96


def test_an_interval_without_zero_is_certain():
    assert mean_interval([1.0, 1.1, 0.9]).certain and mean_interval([-1.0, -1.1, -0.9]).certain
    assert not mean_interval([-1.0, 1.1, 0.2]).certain and not mean_interval([0.0, 0.0]).certain


def test_one_number_has_no_ends():
    found = mean_interval([3.0])
    assert (found.mean, found.low, found.high, found.n) == (3.0, -np.inf, np.inf, 1)
    assert not found.certain


@pytest.mark.parametrize("numbers", [[], [[1.0, 2.0]]])
def test_what_has_no_mean_is_refused(numbers):
    with pytest.raises(SettingsError, match="one or more numbers"):
        mean_interval(numbers)


def test_errors_are_over_the_first_axis_and_known_ones_are_normal():
    numbers = np.random.default_rng(0).normal(size=(9, 4))
    np.testing.assert_allclose(standard_error(numbers), stats.sem(numbers, axis=0))
    assert quantile(np.inf, 0.975) == pytest.approx(1.959963984540054)
    np.testing.assert_allclose(half_width(np.ones(2), 2.0), 4.302652729911275)
    with pytest.raises(SettingsError, match="level = 1"):
        half_width(np.ones(2), 2.0, 1.0)
