"""GAE for the ranker: advantages by hand, rollouts that draw, and a step toward what pays."""

import numpy as np
import pytest

from attribution_sched.config import load_settings
from attribution_sched.scheduler.hi_ppo.candidate_features import FEATURES
from attribution_sched.scheduler.hi_ppo.checkpoint import load
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.ranked_follower import RankedFollower
from attribution_sched.scheduler.registry import RANKED
from research.ranker_gae import GaePpo, advantages, learn_by_gae, roll

WEIGHTS = load(RANKED)


@pytest.fixture(scope="module")
def days():
    return Days(load_settings("testbed").build_world(), 3, WEIGHTS)


def test_advantages_are_those_worked_out_by_hand():
    # δ = (1 + 0.5·2 − 1, 3 − 2 | 4 − 5), Â_0 = 1 + 0.5·0.8·1; nothing passes from one day to the one before.
    found = advantages(np.array([1.0, 3.0, 4.0]), np.array([1.0, 2.0, 5.0]), np.array([False, True, True]), 0.5, 0.8)
    np.testing.assert_allclose(found, [1.4, 1.0, -1.0])


def test_a_rollout_holds_whole_days_as_they_were_drawn(days):
    by = RankedFollower(days.planner, days.world, WEIGHTS.theta, WEIGHTS.ranker, None)
    cold = roll(days, by, 5, 1e-6)
    reward = days.world.reward
    own = days.played(by, 5)
    np.testing.assert_allclose(cold.returns, own[:, 2:5] @ [reward.w_eff, reward.w_util, -reward.w_cost])
    warm, again = roll(days, by, 5, 100.0), roll(days, by, 5, 100.0)
    assert warm.last.sum() == 3 and len(warm.reward) == len(warm.taken) == len(warm.candidates)
    assert np.array_equal(warm.taken, again.taken) and (warm.taken > 0).mean() > 0.1
    assert (warm.there[np.arange(len(warm.taken)), warm.taken] == 1.0).all()
    assert (warm.candidates[:, 0, FEATURES.index("own")] == 1.0).all() and (warm.returns != cold.returns).all()


def test_learning_keeps_to_its_budget_and_moves_the_numbers(days):
    first = {name: np.asarray(array, dtype=np.float32) for name, array in WEIGHTS.ranker.arrays.items()}
    told = []
    ranker, followed = learn_by_gae(
        days, WEIGHTS.theta, first, GaePpo(iterations=2, batch=256), 1_500, told=lambda at, one: told.append(at)
    )
    assert 1_500 <= followed < 3_000 and told == [0, 1]
    assert not np.array_equal(ranker.arrays["policy_3"], WEIGHTS.ranker.arrays["policy_3"])
    assert np.array_equal(ranker.arrays["centre"], WEIGHTS.ranker.arrays["centre"].astype(np.float32))
