"""Simulated paths have the law they claim."""

import math

import numpy as np
import pytest

from research.link_paths import PathRange, draw_paths, draw_readings

CALM = PathRange((1 / 1800.0, 1 / 1800.0), (0.1, 0.1), bound=10.0, swing=0.0, cuts_per_day=0.0, noise=0.0)


def test_without_swing_and_cuts_it_is_the_process_of_the_network():
    paths = draw_paths(np.random.default_rng(0), 4000, 60, 300.0, CALM) - 1.0
    assert abs(float(paths.std()) / 0.1 - 1.0) < 0.02
    for lag in (1, 6, 12):
        kept = float((paths[:, lag:] * paths[:, :-lag]).mean() / (paths**2).mean())
        assert abs(kept - math.exp(-lag / 6)) < 0.02


def test_cuts_leave_what_they_say_for_as_long_as_they_say():
    within = PathRange((1e-3, 1e-3), (1e-6, 1e-6), swing=0.0, cuts_per_day=2.0, cut_factor=(0.2, 0.2), cut_s=(3e3, 3e3))
    paths = draw_paths(np.random.default_rng(1), 2000, 288, 300.0, within)
    assert set(np.round(np.unique(paths.round(3)), 3)) == {0.2, 1.0}
    # Half of the paths have two cuts a day, each for 3000 s.
    assert abs(float((paths < 0.5).mean()) - 0.5 * 2 * 3000 / 86400) < 0.006


def test_the_swing_is_daily_and_bounded():
    within = PathRange((1e-3, 1e-3), (1e-6, 1e-6), swing=0.2, cuts_per_day=0.0)
    paths = draw_paths(np.random.default_rng(2), 600, 289, 300.0, within)
    amplitude = (paths.max(axis=1) - paths.min(axis=1)) / 2
    assert amplitude.max() < 0.201
    assert abs(float((amplitude > 1e-3).mean()) - 1 / 3) < 0.06
    np.testing.assert_allclose(paths[:, 0], paths[:, 288], atol=1e-4)


def test_readings_are_in_order_and_what_the_path_held():
    rng = np.random.default_rng(3)
    paths = draw_paths(rng, 500, 96, 150.0, CALM)
    at, values = draw_readings(rng, paths, 24, CALM)
    assert (at[:, 0] == 0).all()
    assert (np.diff(at, axis=1) >= 1).all()
    assert at.max() < 96
    assert np.array_equal(values, np.take_along_axis(paths, at, axis=1))
    steps = np.diff(at, axis=1)
    assert ((steps == 2).all(axis=1)).mean() > 0.5, "half of the paths at the tick of the network"
    assert (steps.std(axis=1) > 0).mean() > 0.2, "a quarter at unequal steps"


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_paths(seed):
    first, second = (draw_paths(np.random.default_rng(seed), 50, 40, 300.0, PathRange()) for _ in range(2))
    assert np.array_equal(first, second)
