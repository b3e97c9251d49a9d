"""The paired bootstrap: laws, and the coverage it promises."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.rivals.arena.stats import PairedBootstrap, expanded_tail, ratio

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
def test_the_interval_lies_within_the_data_and_around_the_mean(values):
    found = estimated(values)
    assert found.value == pytest.approx(np.mean(values), abs=1e-9)
    assert min(values) - 1e-9 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= max(values) + 1e-9


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
    assert expanded_tail(100_000) == pytest.approx(0.025, abs=1e-4)
    assert expanded_tail(5) < expanded_tail(20) < 0.025


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
