"""The environments keep Gymnasium's contract and the words of their docstring.

The batched twin is its single environments, bit for bit, across episode ends.
"""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine.engine import DOMAIN_FEATURES, TASK_FEATURES
from attribution_sched.cluster.envs.env import CrossDomainEnv, CrossDomainVectorEnv, TestbedEnv, TestbedVectorEnv
from attribution_sched.cluster.world import Reward
from attribution_sched.errors import PlanError, SettingsError

from .engine_worlds import random_actions, testbed_world, tiny_cluster, tiny_world

WEIGHTS = Reward(w_eff=0.9, w_util=0.4, w_cost=0.3)


@pytest.fixture(scope="module")
def cross():
    return CrossDomainEnv(tiny_world(tiny_cluster(motion={"spread": 0.2}), reward=WEIGHTS))


@pytest.fixture(scope="module")
def bed():
    reward = Reward(energy_usd_per_kwh=0.1, per_decision=True)
    return TestbedEnv(testbed_world(reward=reward))


def masked_sample(env, rng, mask):
    if isinstance(env, TestbedEnv):
        return int(rng.choice(np.flatnonzero(mask)))
    return random_actions(env.engine, rng).ravel()


@pytest.mark.parametrize("name", ["cross", "bed"])
def test_the_checker_has_nothing_to_say(name, request):
    env = request.getfixturevalue(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)


@pytest.mark.parametrize("name", ["cross", "bed"])
def test_every_observation_of_random_rollouts_lies_in_the_space(name, request):
    env, rng = request.getfixturevalue(name), np.random.default_rng(2)
    for seed in range(3):
        seen, info = env.reset(seed=seed)
        over = False
        while not over:
            assert env.observation_space.contains(seen)
            assert info["action_mask"].dtype == np.bool_
            seen, reward, terminated, over, info = env.step(masked_sample(env, rng, info["action_mask"]))
            assert not terminated
            terms, world = info["reward_terms"], env.engine.world.reward
            weighed = world.w_eff * terms["r_eff"] + world.w_util * terms["r_util"] - world.w_cost * terms["r_cost"]
            assert reward == pytest.approx(weighed, rel=1e-12, abs=1e-15)
        assert env.observation_space.contains(seen)


def test_the_testbed_has_32_numbers_by_name_and_index(bed):
    seen, info = bed.reset(seed=1)
    assert seen.shape == (32,)
    assert bed.action_space == gym.spaces.Discrete(64)
    assert info["action_mask"].shape == (64,)
    names = [*DOMAIN_FEATURES, *TASK_FEATURES, *DEMAND_NAMES]
    assert len(names) == 32
    assert [names.index(n) for n in ("gpu_utilisation_0", "memory_utilisation_0", "cpu_utilisation")] == [0, 4, 8]
    assert [names.index(n) for n in ("memory_bandwidth_0", "pcie_bandwidth_0", "total_power")] == [9, 13, 17]
    assert [names.index(n) for n in ("queue_length", "power_budget", "task_type", "batch_size")] == [18, 19, 20, 24]
    assert names[25:] == list(DEMAND_NAMES)
    kind = bed.engine.world.kinds[int(bed.engine.pending_kind()[0])]
    assert seen[21] == pytest.approx(np.log10(kind.model.params) / 12, rel=1e-6)
    assert np.array_equal(seen[25:], bed.codec.attributions[int(bed.engine.pending_pool()[0])])


def test_no_action_the_testbed_allows_is_refused(bed):
    rng, placed = np.random.default_rng(0), 0
    for seed in range(3):
        _, info = bed.reset(seed=seed)
        over = False
        while not over:
            action = masked_sample(bed, rng, info["action_mask"])
            _, _, _, over, info = bed.step(action)
            assert info["decision"]["outcome"] == "placed"
            placed += 1
        assert info["totals"]["rejected"] == 0
    assert placed > 60


def test_the_testbed_pays_a_decision_at_once(bed):
    _, info = bed.reset(seed=3)
    action = int(np.flatnonzero(info["action_mask"])[0])
    _, _, _, _, after = bed.step(action)
    for name in ("r_eff", "r_util", "r_cost"):
        assert after["reward_terms"][name] == after["decision"][name]


def test_info_says_what_was_decided_and_what_it_was_worth(cross):
    cross.reset(seed=0)
    _, _, _, _, info = cross.step(np.full(15, 0))
    assert info["decision"]["code"] == -1
    assert info["decision"]["outcome"] == "the segments do not cover the model in order"
    assert info["r_low"].shape == (3,)
    assert info["totals"]["rejected"] == 1
    assert info["time_s"] > 0


def test_a_step_outside_the_space_is_one_clear_error(cross):
    cross.reset(seed=0)
    with pytest.raises(PlanError, match="action domain = 9"):
        cross.step(np.array([9] + [0] * 14))
    with pytest.raises(PlanError, match="must have shape"):
        cross.step(np.zeros(3, dtype=np.int64))


def test_a_seed_fixes_an_episode_and_none_goes_on():
    env = TestbedEnv(testbed_world())
    first, _ = env.reset(seed=7)
    again, _ = env.reset(seed=7)
    later, _ = env.reset()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, later)


def test_an_episode_in_which_nothing_arrives_is_truncated_with_its_first_step():
    env = CrossDomainEnv(tiny_world(arrivals=Poisson(1e-9)))
    seen, _ = env.reset(seed=0)
    assert env.observation_space.contains(seen)
    _, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["totals"]["decisions"] == 0


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
