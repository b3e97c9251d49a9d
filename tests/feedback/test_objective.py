"""The user's objective: their own reward less what missed targets cost."""

from __future__ import annotations

import pytest

from attribution_sched.errors import SettingsError
from attribution_sched.feedback.objective import Objective
from attribution_sched.feedback.targets import Targets
from attribution_sched.feedback.window import Window
from tests.feedback.factory import REWARD, outcome

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
