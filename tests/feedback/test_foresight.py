"""How far to turn the weights, by what the decisions would have been with others."""

from __future__ import annotations

import json

import numpy as np
import pytest

from attribution_sched.feedback.foresight import LEAST_CREDIT, credited
from attribution_sched.feedback.loop import Feedback
from attribution_sched.feedback.targets import FeedbackSettings, Targets
from tests.feedback.factory import REWARD, outcome, plain

TARGET = "utilisation_at_least"
SETTINGS = FeedbackSettings()


def following(gain, decisions=20, level=0.6, follows=lambda i: 1.0):
    """Decisions whose utilisation is ``level`` plus ``gain`` times the share of w_util beyond the user's own."""
    own = REWARD.w_util / 2.0

    def revisit(rewards):
        shares = [each.w_util / (each.w_eff + each.w_util + each.w_cost) - own for each in rewards]
        rng = np.random.default_rng(0)
        noise = 0.01 * rng.normal(size=decisions)
        return [
            [outcome(r_util=level + noise[i] + follows(i) * gain * share) for share in shares] for i in range(decisions)
        ]

    return revisit


def share(reward):
    return reward.w_util / (reward.w_eff + reward.w_util + reward.w_cost)


def test_the_turn_is_as_far_as_the_decisions_follow():
    window = plain(r_util=0.6)
    for gain in (0.5, 1.0, 2.0):
        change = Feedback(REWARD).step(window, Targets(utilisation_at_least=0.7), revisit=following(gain))
        needed = 0.1 / gain
        turned = share(change.reward) - share(REWARD)
        assert turned >= needed - 1e-6, gain
        # Turns are tried on a grid: the next smaller one would not have been enough, so at most some steps too far.
        assert turned <= needed + 0.12, gain


def test_without_answers_it_feels_its_way():
    window, targets = plain(r_util=0.6), Targets(utilisation_at_least=0.7)
    by_outcomes = Feedback(REWARD).step(window, targets).reward
    for revisit in (following(0.0), lambda rewards: [[None] * len(rewards)] * 20, following(1.0, decisions=3)):
        assert Feedback(REWARD).step(window, targets, revisit=revisit).reward == by_outcomes
    assert share(Feedback(REWARD).step(window, targets, revisit=following(0.5)).reward) > share(by_outcomes)


def test_a_few_decisions_that_happen_to_follow_are_no_promise():
    window, targets = plain(r_util=0.6), Targets(utilisation_at_least=0.7)
    by_outcomes = Feedback(REWARD).step(window, targets).reward
    mixed = following(1.0, follows=lambda i: 4.0 if i == 0 else -3.0 if i == 1 else 0.0)
    assert Feedback(REWARD).step(window, targets, revisit=mixed).reward == by_outcomes


def test_what_cannot_be_reached_is_approached_within_the_bound():
    change = Feedback(REWARD).step(
        plain(r_util=0.6), Targets(utilisation_at_least=0.99), revisit=following(0.2)
    )  # fmt: skip
    turned = share(change.reward) - share(REWARD)
    assert 0.1 < turned <= SETTINGS.explained_step + 1e-9
    assert share(change.reward) <= SETTINGS.most + 1e-9


def test_broken_promises_cost_credit_and_with_it_the_length_of_the_step():
    feedback = Feedback(REWARD)
    feedback.step(plain(r_util=0.6), Targets(utilisation_at_least=0.7), revisit=following(1.0))
    assert feedback.state.promised and feedback.state.credit == 1.0
    first = share(feedback.reward) - share(REWARD)
    restored = Feedback.from_dict(REWARD, json.loads(json.dumps(feedback.to_dict())))
    assert restored.state == feedback.state
    # Nothing came of it.
    feedback.step(plain(r_util=0.6, seed=1), Targets(utilisation_at_least=0.7), revisit=following(1.0))
    assert feedback.state.credit == pytest.approx(0.5, abs=0.1)
    for seed in range(2, 8):
        feedback.step(plain(r_util=0.6, seed=seed), Targets(utilisation_at_least=0.7), revisit=following(1.0))
    assert LEAST_CREDIT <= feedback.state.credit < 0.2
    assert first > 0.0


def test_kept_promises_keep_the_credit():
    before, expected = {TARGET: 0.2}, {TARGET: 0.0}
    feedback = Feedback(REWARD)
    misses = feedback._misses(plain(r_util=0.7, n=400), Targets(utilisation_at_least=0.7))
    assert credited(1.0, before, expected, misses) == pytest.approx(1.0, abs=0.02)
    assert credited(0.4, before, expected, misses) == pytest.approx(0.7, abs=0.02)
    assert credited(0.4, {}, {}, misses) == 0.4


def test_states_of_before_are_read():
    record = Feedback(REWARD).to_dict()
    del record["credit"], record["promised"]
    assert Feedback.from_dict(REWARD, record).state.credit == 1.0


def test_the_reason_says_what_was_asked_and_is_expected():
    change = Feedback(REWARD).step(plain(r_util=0.6), Targets(utilisation_at_least=0.7), revisit=following(1.0))
    assert "asked again with these weights, the policy would have decided 20 of 20" in change.reason
    assert "重新询问" in change.reason_zh
