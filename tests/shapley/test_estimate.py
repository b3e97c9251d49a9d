"""Means by state and their errors against the formulas written out."""

import numpy as np
import pytest

from attribution_sched.shapley.estimate import StateMeans, StateSums, error_of_base, error_of_mean

RNG = np.random.default_rng(0)


def test_sums_in_rounds_equal_means_written_out():
    walks, empty = RNG.normal(size=(2, 9, 3, 1)), RNG.normal(size=(2, 4, 1))
    slots = np.array([0, 1, 2, 3, 2, 0, 1, 3, 3])
    sums = StateSums((2, 4, 3, 1))
    for part in (slice(0, 4), slice(4, 9)):
        sums.add(walks[:, part], empty[:, slots[part]], slots[part])
    means, base = sums.means()
    want = np.stack([walks[:, slots == s].mean(axis=1) for s in range(4)], axis=1)
    np.testing.assert_allclose(means.values, want)
    np.testing.assert_array_equal(base, empty)
    inside = sum(np.square(walks[:, slots == s] - want[:, s : s + 1]).sum(axis=1) for s in range(4)) / 5
    np.testing.assert_allclose(means.within, inside * np.mean([1 / 2, 1 / 2, 1 / 2, 1 / 3]))
    assert means.freedom == 5
    sums.keep(np.array([False, True]))
    np.testing.assert_allclose(sums.means()[0].values, want[1:])


def test_equal_walks_have_no_spread_at_all():
    sums = StateSums((1, 1, 2, 1))
    walk = np.full((1, 3, 2, 1), 0.1 + 1e8)
    sums.add(walk, np.zeros((1, 3, 1)), np.zeros(3, dtype=int))
    assert (sums.means()[0].within == 0.0).all()


@pytest.mark.parametrize(
    ("reading", "n_background", "want", "freedom"),
    [
        ("sample", 4, lambda between, within: between / 4, 3),
        ("sample", 40, lambda between, within: between / 4, 3),
        ("population", 4, lambda between, within: within / 4, 7),
        ("population", 8, lambda between, within: (0.5 * between + 0.5 * within) / 4, 3),
    ],
)
def test_the_error_of_the_mean(reading, n_background, want, freedom):
    means = StateMeans(RNG.normal(size=(1, 4, 2, 1)), np.full((1, 2, 1), 0.01), 7.0)
    error, found = error_of_mean(means, n_background, reading)
    between = means.values.var(axis=1, ddof=1)
    np.testing.assert_allclose(np.square(error), want(between, means.within))
    assert found == freedom


def test_one_walk_per_state_is_read_conservatively():
    means = StateMeans(RNG.normal(size=(1, 4, 2, 1)), None, 0.0)
    np.testing.assert_array_equal(error_of_mean(means, 4, "population")[0], error_of_mean(means, 4, "sample")[0])


def test_the_base_of_the_whole_population_is_known():
    empty = RNG.normal(size=(1, 5, 2))
    assert (error_of_base(empty, 5, "population") == 0.0).all()
    np.testing.assert_allclose(error_of_base(empty, 5, "sample"), empty.std(axis=1, ddof=1) / np.sqrt(5))
