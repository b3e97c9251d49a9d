"""Learning that goes on while the policy is in use."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.hi_ppo.online_learning import learn_on

from . import worlds


def world():
    return replace(load_settings("testbed").build_world(), horizon_s=900.0)


def learnt(**changes):
    weights = worlds.weights()
    before = weights.theta.copy()
    found = learn_on(weights, world(), **({"decisions": 400, "days": 4, "episodes": 16} | changes))
    assert np.array_equal(before, weights.theta)
    return weights, found


def test_it_never_gives_back_anything_worse_and_says_whether_it_changed():
    weights, found = learnt()
    assert found.after >= found.before and found.decisions >= 400
    assert found.improved != np.array_equal(found.weights.theta, weights.theta)


def test_the_same_seed_learns_the_same():
    first, again = learnt(seed=3)[1], learnt(seed=3)[1]
    assert first.after == again.after and np.array_equal(first.weights.theta, again.weights.theta)


def test_it_stops_when_it_is_told_to():
    _, stopped = learnt(stop=lambda: True)
    assert stopped.decisions == 0 and not stopped.improved


@pytest.mark.parametrize(("changes", "rule"), [({"decisions": 0}, "decisions = 0"), ({"days": 0}, "days = 0")])
def test_numbers_out_of_range_are_refused(changes, rule):
    with pytest.raises(SettingsError, match=rule):
        learnt(**changes)


class Judged:
    """Days whose held-out returns are told: what decides now earns nothing, what was learnt a little, with noise."""

    gains = np.zeros(0)

    def __init__(self, world, days, weights):
        self.begun, self.decided = weights.theta, 0

    def returns(self, theta, seed):
        self.decided += 1
        return np.zeros(len(self.gains)) if np.array_equal(theta, self.begun) else self.gains


@pytest.mark.parametrize(("gains", "improved"), [((3.0, -2.0, 2.0, -1.0), False), ((1.0, 1.1, 0.9, 1.0), True)])
def test_a_gain_counts_only_beyond_its_interval(monkeypatch, gains, improved):
    monkeypatch.setattr("attribution_sched.scheduler.hi_ppo.online_learning.Days", Judged)
    monkeypatch.setattr(Judged, "gains", np.array(gains))
    weights, found = learnt(decisions=1)
    assert found.improved == improved
    assert np.array_equal(found.weights.theta, weights.theta) != improved
    assert found.after == pytest.approx(np.mean(gains) if improved else 0.0)
