"""States that the network meets in many clusters at once are states it decides on."""

import numpy as np
import pytest

from attribution_sched.errors import PlanError
from attribution_sched.explain.background import Background
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from research.appraisal_states import _own_first, meet
from tests.scheduler.hi_ppo import worlds


def policy():
    return HiPpo(network=worlds.network(0, scale=4.0), attributor=worlds.attributor)


def test_placements_with_the_task_placed_first_and_its_own_counters():
    asked, world = policy(), worlds.worlds()["mixed"]
    states, counters = meet(asked, world, 40, seed=3, clusters=8)
    assert len(states) == 40 and counters.shape == (40, 12)
    assert not states.replanning.any() and (states.kind[:, 0] >= 0).all()
    states.check()
    told = worlds.attributor(counters).astype(np.float32)
    assert np.allclose(states.attribution[:, 0], told, atol=1e-6)
    assert len(Background(states, counters, "met").like(states.take(np.array([0])))) >= 1


def test_the_same_seed_meets_the_same_and_another_something_else():
    world = worlds.worlds()["mixed"]
    first, again, other = (meet(policy(), world, 20, seed=seed, clusters=4)[0] for seed in (3, 3, 4))
    assert np.array_equal(first.links, again.links) and not np.array_equal(first.links, other.links)


def test_the_chosen_candidate_goes_first_and_the_others_keep_their_order():
    states, _ = meet(policy(), worlds.worlds()["mixed"], 10, seed=3, clusters=4)
    width = states.kind.shape[1]
    task = np.arange(10) % width
    moved = _own_first(states, task)
    for row in range(10):
        order = [task[row], *[q for q in range(width) if q != task[row]]]
        assert moved.left[row].tolist() == states.left[row, order].tolist()
        assert np.array_equal(moved.attribution[row], states.attribution[row, order])


def test_nothing_asked_for_is_refused():
    with pytest.raises(PlanError, match=">= 1"):
        meet(policy(), worlds.worlds()["mixed"], 0, seed=1)
