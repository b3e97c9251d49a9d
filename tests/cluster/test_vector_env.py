"""The batched twin is its single environments, bit for bit, across episode ends."""

import numpy as np
import pytest

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.env import CrossDomainEnv, TestbedEnv
from attribution_sched.cluster.vector_env import CrossDomainVectorEnv, TestbedVectorEnv
from attribution_sched.cluster.world import Reward
from attribution_sched.errors import SettingsError

from .engine_worlds import random_actions, testbed_world, tiny_cluster, tiny_world

CLUSTERS = 3


def equal(batched, single, e):
    if isinstance(batched, dict):
        return all(equal(batched[name], single[name], e) for name in single if name != "outcome")
    return np.array_equal(np.asarray(batched)[e], np.asarray(single))


def pair(name):
    if name == "cross":
        world = tiny_world(tiny_cluster(motion={"spread": 0.2}), horizon_s=1500.0)
        return CrossDomainVectorEnv(world, CLUSTERS), [CrossDomainEnv(world) for _ in range(CLUSTERS)]
    world = testbed_world(horizon_s=1500.0, reward=Reward(per_decision=name == "bed"))
    return TestbedVectorEnv(world, CLUSTERS), [TestbedEnv(world) for _ in range(CLUSTERS)]


@pytest.mark.parametrize("name", ["cross", "bed", "bed over time"])
def test_batched_and_single_environments_follow_the_same_path(name):
    batched, singles = pair(name)
    rng = np.random.default_rng(4)
    seen, info = batched.reset(seed=20)
    over = [False] * CLUSTERS
    ends = 0
    for e, env in enumerate(singles):
        single_seen, single_info = env.reset(seed=20 + e)
        assert equal(seen, single_seen, e)
        assert equal(info, single_info, e)
    for _ in range(150):
        if name == "cross":
            actions = random_actions(batched.engine, rng).reshape(CLUSTERS, -1)
        else:
            actions = np.array([rng.choice(np.flatnonzero(m)) if m.any() else 0 for m in info["action_mask"]])
        seen, rewards, terminated, truncated, info = batched.step(actions)
        assert not terminated.any()
        for e, env in enumerate(singles):
            if over[e]:
                single_seen, single_info = env.reset()
                reward, over[e] = 0.0, False
                ends += 1
                single_info = {key: single_info[key] for key in ("action_mask", "time_s", "totals")}
            else:
                single_seen, reward, _, over[e], single_info = env.step(actions[e])
            assert equal(seen, single_seen, e)
            assert rewards[e] == reward
            assert truncated[e] == over[e]
            assert equal(info, single_info, e)
    assert ends >= CLUSTERS


def test_every_batch_of_observations_lies_in_the_batched_space():
    env = CrossDomainVectorEnv(tiny_world(), 2)
    seen, info = env.reset(seed=0)
    assert env.observation_space.contains(seen)
    assert info["action_mask"].shape == (2, int(env.single_action_space.nvec.sum()))
    seen, rewards, *_ = env.step(env.action_space.sample())
    assert env.observation_space.contains(seen)
    assert rewards.shape == (2,)


def test_seeds_may_be_listed_and_numpy_integers_are_integers():
    env = CrossDomainVectorEnv(tiny_world(), 2)
    first, _ = env.reset(seed=5)
    listed, _ = env.reset(seed=[5, 6])
    numpy_seed, _ = env.reset(seed=np.int64(5))
    for name in first:
        assert np.array_equal(first[name], listed[name])
        assert np.array_equal(first[name], numpy_seed[name])
    with pytest.raises(SettingsError, match="there are 2 clusters"):
        env.reset(seed=[1])


def test_earlier_observations_are_not_overwritten():
    env = CrossDomainVectorEnv(tiny_world(), 2)
    seen, _ = env.reset(seed=0)
    kept = {name: value.copy() for name, value in seen.items()}
    for _ in range(5):
        env.step(random_actions(env.engine, np.random.default_rng(0)).reshape(2, -1))
    assert all(np.array_equal(kept[name], seen[name]) for name in kept)


def test_episodes_in_which_nothing_arrives_end_one_by_one():
    env = CrossDomainVectorEnv(tiny_world(arrivals=Poisson(1e-9)), 2)
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[3].tolist() for _ in range(4)]
    # An end, then the reset that follows it, then the next end.
    assert ends == [[True, True], [False, False], [True, True], [False, False]]
