"""The beeswarm: points where the shares are, apart from one another, coloured by what the input was."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attribution_sched.explain.plots import beeswarm
from attribution_sched.explain.plots.beeswarm import ROW_HALF, offsets, relative
from attribution_sched.explain.stacking import stack
from tests.explain.factory import episode


@settings(deadline=None, max_examples=50)
@given(arrays(np.float64, st.integers(1, 80), elements=st.floats(-5, 5)))
def test_points_stay_in_their_row_and_apart(shares):
    found = offsets(shares, float(np.ptp(shares)))
    assert np.abs(found).max() <= ROW_HALF
    for value in np.unique(shares):
        alike = found[shares == value]
        if len(alike) > 1 and np.ptp(shares) > 0:
            assert len(np.unique(alike.round(9))) == len(alike)


def test_readings_are_against_what_is_usual():
    found = relative(np.array([1.0, 2.0, 3.0, np.nan]), np.array([2.0, 2.0, 2.0, 2.0]))
    assert found[0] < 0 == found[1] < found[2]
    assert np.isnan(found[3])
    np.testing.assert_array_equal(relative(np.array([2.0]), np.array([2.0])), [0.0])
    assert np.isnan(relative(np.array([np.nan]), np.array([1.0]))).all()


def test_points_are_the_shares():
    listed = episode(15)
    found = stack(listed)
    ax = beeswarm(listed, most=4)
    for cloud, i in zip(ax.collections, found.order(4), strict=True):
        np.testing.assert_allclose(cloud.get_offsets()[:, 0], found.shares[found.present[:, i], i])


def test_high_readings_are_teal_and_low_ones_brown():
    listed = episode(24)
    ax = beeswarm(listed, most=1)
    found = stack(listed)
    i = found.order(1)[0]
    gap = (found.numbers - found.usual)[:, i]
    colours = ax.collections[0].get_facecolors()
    high, low = colours[gap.argmax()], colours[gap.argmin()]
    assert high[1] > high[0]
    assert low[0] > low[2]
    assert pytest.approx(1.0) == high[3]
