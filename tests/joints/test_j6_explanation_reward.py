"""J6 explanation → reward: feedback with explanations against outcomes only, from the same run."""

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from tests.small_world import small

from .measure import NO_DEADLINE_S

TARGETS = {"step_ratio_at_most": 0.25}


def steps(explain, rounds, tasks, seed):
    """Weights after each step of feedback, and the run's step ratio: what the target is about."""
    system = System(small(), HiPpo(deadline_s=NO_DEADLINE_S), seed=seed, targets=TARGETS)
    weights = []
    for _ in range(rounds):
        system.run(tasks)
        system.feedback(explain=explain, episodes=0, decisions=1)
        reward = system.reward
        weights.append((reward.w_eff, reward.w_util, reward.w_cost))
    return np.array(weights)


def compared(tell, rounds, tasks, explained, seeds):
    apart = []
    for seed in seeds:
        with_reasons, without = steps(explained, rounds, tasks, seed), steps(0, rounds, tasks, seed)
        assert np.isfinite(with_reasons).all() and (without[-1] > 0).all()
        apart.append(float(np.abs(with_reasons[-1] - without[-1]).max()))
    tell("J6", rounds=rounds, explained=explained, runs=len(apart), weights_apart=float(np.mean(apart)))


def test_feedback_with_explanations_against_outcomes_only(tell):
    compared(tell, 1, 6, 2, (1,))


@pytest.mark.slow
def test_feedback_with_explanations_against_outcomes_only_over_runs(tell):
    compared(tell, 4, 20, 12, range(4))
