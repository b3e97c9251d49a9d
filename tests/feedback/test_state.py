"""The state of feedback survives JSON, and nothing else passes for it."""

from __future__ import annotations

import json

import pytest

from attribution_sched.errors import CheckpointError
from attribution_sched.feedback.loop import Feedback
from attribution_sched.feedback.state import FeedbackState
from attribution_sched.feedback.targets import Targets
from tests.feedback.factory import REWARD, explained, plain

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
