"""Has the held-out return fallen: paired, beyond chance, by more than allowed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attribution_sched.errors import ModelFitError
from attribution_sched.feedback.held_out import judge, read

EPISODES = np.random.default_rng(0).normal(1.0, 0.5, 40)


def verdict(now, tolerance=0.02):
    return judge(tuple(EPISODES), tuple(now), tolerance, 0.95)


def test_pairing_sees_a_fall_that_the_spread_of_episodes_would_hide():
    noise = 0.05 * np.random.default_rng(1).normal(size=40)
    found = verdict(EPISODES - 0.1 + noise)
    assert found.fallen
    assert found.high < 0.0
    spread = EPISODES.std() / math.sqrt(40)
    assert abs(found.change) < 2 * spread


def test_a_fall_within_the_tolerance_or_by_chance_is_put_up_with():
    assert not verdict(EPISODES - 0.01).fallen
    wild = np.random.default_rng(2).normal(size=40)
    assert not verdict(EPISODES - 0.1 + wild - wild.mean()).fallen
    assert not verdict(EPISODES + 0.5).fallen


def test_no_false_alarms_beyond_the_level():
    rng = np.random.default_rng(3)
    alarms = [judge(tuple(a), tuple(b), 0.0, 0.95).fallen for a, b in rng.normal(size=(400, 2, 20))]
    assert 0.02 <= np.mean(alarms) <= 0.09


def test_one_number_is_held_against_the_tolerance_only():
    assert judge((1.0,), (0.9,), 0.02, 0.95).fallen
    assert not judge((1.0,), (0.99,), 0.02, 0.95).fallen
    assert math.isnan(judge((1.0,), (0.9,), 0.02, 0.95).high)


def test_returns_may_be_played_on_demand():
    assert read(lambda: [1.0, 2.0]) == (1.0, 2.0)
    assert read(0.5) == (0.5,)


def test_bad_returns_are_refused():
    with pytest.raises(ModelFitError, match=r"held_out\[1\] = nan: must be finite"):
        read([1.0, math.nan])
    with pytest.raises(ModelFitError, match="there must be at least one"):
        read([])
    with pytest.raises(ModelFitError, match="held_out episodes = 1: must be 2 as before"):
        judge((1.0, 2.0), (1.0,), 0.02, 0.95)
