"""The running scale of returns: what it remembers and how it converts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.scheduler.ppo.scale import MEMORY, ReturnScale


def test_the_first_rollout_is_taken_as_it_is():
    scale = ReturnScale(2)
    scale.add(np.array([[1.0, 10.0], [3.0, 30.0]]))
    assert scale.mean.tolist() == [2.0, 20.0]
    assert scale.deviation.tolist() == [1.0, 10.0]


def test_later_rollouts_count_with_their_weight():
    # Means 0 then 10, no spread inside: mean = 0.1·10 = 1; mean square = 0.9·(1² kept as unit) + 0.1·100, less 1.
    scale = ReturnScale(1)
    scale.add(np.zeros((4, 1)))
    assert scale.deviation.tolist() == [1.0]
    scale.add(np.full((4, 1), 10.0))
    assert scale.mean[0] == pytest.approx((1 - MEMORY) * 10.0)
    assert scale.deviation[0] == pytest.approx(np.sqrt(MEMORY * 1.0 + (1 - MEMORY) * 100.0 - 1.0))


@settings(deadline=None, max_examples=40)
@given(some.integers(0, 2**32 - 1), some.sampled_from([1e-3, 1.0, 1e5]))
def test_conversions_undo_each_other_and_equal_rollouts_change_nothing(seed, width):
    returns = np.random.default_rng(seed).standard_normal((50, 3)) * width + width
    scale = ReturnScale(3)
    scale.add(returns)
    np.testing.assert_allclose(scale.to_units(scale.from_units(returns)), returns, rtol=1e-9, atol=1e-12)
    assert np.abs(scale.from_units(returns).std(axis=0) - 1.0).max() < 1e-6
    mean, deviation = scale.mean.copy(), scale.deviation.copy()
    scale.add(returns)
    np.testing.assert_allclose(scale.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(scale.deviation, deviation, rtol=1e-6)
