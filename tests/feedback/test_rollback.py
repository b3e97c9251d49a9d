"""What changes are judged by and go back to: the objective, paired held-out returns, a state that survives JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from attribution_sched.errors import CheckpointError, ModelFitError, SettingsError
from attribution_sched.feedback.loop import Feedback
from attribution_sched.feedback.rollback import FeedbackState, Objective, judge, read
from attribution_sched.feedback.targets import Targets
from attribution_sched.feedback.window import Window
from tests.feedback.factory import REWARD, explained, outcome, plain

WINDOW = Window((outcome(0.2, 0.6, 1.0), outcome(0.4, 0.6, 0.5)))


def test_it_is_the_reward_while_targets_are_met():
    own = 1.0 * 0.3 + 0.6 * 0.6 - 0.4 * 0.75
    assert Objective(REWARD, Targets()).score(WINDOW) == pytest.approx(own)
    assert Objective(REWARD, Targets(utilisation_at_least=0.5)).score(WINDOW) == pytest.approx(own)


def test_a_missed_target_costs_its_violation():
    own = 1.0 * 0.3 + 0.6 * 0.6 - 0.4 * 0.75
    missed = Objective(REWARD, Targets(utilisation_at_least=0.8, cost_ratio_at_most=0.5), penalty=2.0)
    assert missed.score(WINDOW) == pytest.approx(own - 2.0 * (0.25 + 0.5))


def test_a_negative_penalty_is_refused():
    with pytest.raises(SettingsError, match=r"penalty = -1\.0"):
        Objective(REWARD, Targets(), penalty=-1.0)


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


TARGETS = Targets(cost_ratio_at_most=0.8)


def some_steps(feedback, first, last):
    """Windows and held-out returns of a few steps, with a planted driver and a fall on the way."""
    found = []
    for i in range(first, last):
        window = explained(30, seed=i, planted=("queue", "R_util", 0.3), truth=-1.0)
        found.append(feedback.step(window, TARGETS, [1.0 - 0.3 * (2 <= i <= 3), 0.9 - 0.3 * (2 <= i <= 3)]))
    return found


def told(changes):
    return [(one.kind, one.reason, one.reason_zh, one.records(), one.reward) for one in changes]


def test_a_run_goes_on_after_json_as_if_nothing_had_happened():
    whole, first = Feedback(REWARD), Feedback(REWARD)
    expected = told(some_steps(whole, 0, 8))
    before = told(some_steps(first, 0, 4))
    again = Feedback.from_dict(REWARD, json.loads(json.dumps(first.to_dict(), allow_nan=False)))
    assert again.state == first.state
    assert before + told(some_steps(again, 4, 8)) == expected
    assert again.state == whole.state
    assert {kind for kind, *_ in expected} >= {"changed", "rolled back"}


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"version": 2},
        {"shares": [0.5, 0.5]},
        {"shares": [0.9, 0.9, 0.9]},
        {"shares": [float("nan"), 0.5, 0.5]},
        {"multipliers": 3},
        {"pending": [{"number": 1}]},
        {"anchor": {"returns": []}},
    ],
)
def test_anything_else_is_refused(broken):
    feedback = Feedback(REWARD)
    feedback.step(plain(r_cost=1.2), TARGETS, [1.0, 2.0])
    given = feedback.to_dict() | broken if broken else {}
    with pytest.raises(CheckpointError, match="is not a state of feedback"):
        FeedbackState.from_dict(given)
