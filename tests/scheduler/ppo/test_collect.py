"""Rollouts of a batched environment, and episodes that do not run in step."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.envs.env import TestbedVectorEnv
from attribution_sched.errors import ModelFitError, PlanError, SettingsError
from attribution_sched.scheduler.ppo.collect import Collector, Stagger, checked_observation, reward_components
from attribution_sched.scheduler.ppo.policy import FlatPolicy
from tests.cluster.engine_worlds import testbed_world
from tests.scheduler.ppo.toys import Counting, Identity, Terms


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def collected(env, steps, components=None, policy=None):
    collector = Collector(env, components or {}, 0)
    count = len(collector.weights)
    policy = policy or FlatPolicy(env.inputs, env.actions, count, seeded())
    return collector, collector.collect(policy, steps, seeded(1)), policy


def test_steps_that_only_reset_are_marked_and_nothing_else():
    # Episodes of three steps and one that resets: the pattern has period four.
    _, steps, _ = collected(Counting(2), 9)
    assert steps.valid[:, 0].tolist() == [True, True, True, False] * 2 + [True]
    assert steps.obs[:, 0, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert steps.rewards[:, 0, 0].tolist() == [1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert steps.ended[:, 0].tolist() == [False, False, True, False] * 2 + [False]


def test_only_ends_by_time_are_marked_as_such():
    _, steps, _ = collected(Counting(2), 4)
    assert steps.ended[2].tolist() == [True, True]
    assert steps.truncated[2].tolist() == [True, False]


def test_values_stand_beside_the_observation_they_are_of():
    collector, steps, policy = collected(Counting(4), 7)
    with torch.inference_mode():
        again = policy.values(torch.from_numpy(np.concatenate([steps.obs, collector.obs[None]]).reshape(-1, 2)))
    np.testing.assert_allclose(steps.values.reshape(-1, 1), again.numpy(), rtol=1e-5, atol=1e-6)


def test_log_probabilities_are_those_of_the_actions_taken():
    _, steps, policy = collected(Identity(8), 12)
    said = policy.evaluate(
        *(torch.from_numpy(a.reshape(96, *a.shape[2:])) for a in (steps.obs, steps.mask, steps.action))
    )
    np.testing.assert_allclose(steps.log_prob.reshape(-1), said.log_prob.detach().numpy(), rtol=1e-4, atol=1e-6)
    taken = np.take_along_axis(steps.mask, steps.action[..., None], axis=2)
    assert taken.all()


def test_two_rollouts_are_one_long_one():
    whole = collected(Counting(4), 10)[1]
    collector = Collector(Counting(4), {}, 0)
    policy, generator = FlatPolicy(2, 2, 1, seeded()), seeded(1)
    parts = [collector.collect(policy, n, generator) for n in (4, 6)]
    for name in ("obs", "mask", "action", "log_prob", "rewards", "ended", "valid"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(getattr(whole, name), joined)
    np.testing.assert_allclose(parts[0].values[-1], parts[1].values[0], rtol=1e-6)


def test_the_mean_reward_is_over_decisions():
    _, steps, _ = collected(Counting(2), 8)
    assert steps.reward_mean == 2.0


def test_components_are_kept_in_the_order_given():
    _, steps, _ = collected(Terms(4), 8, {"a": 1.0, "b": -2.0})
    total = steps.rewards @ np.array([1.0, -2.0])
    assert steps.rewards.shape == (8, 4, 2)
    np.testing.assert_allclose(total[steps.valid], (steps.obs[..., 0] + 1.0)[steps.valid])


def test_weights_that_do_not_give_the_reward_are_refused():
    with pytest.raises(SettingsError, match=r"components = .*must add up to the reward"):
        collected(Terms(4), 8, {"a": 1.0, "b": 2.0})


def test_unknown_components_are_refused():
    with pytest.raises(SettingsError, match=r"components = \['c'\].*offers: b, a"):
        collected(Terms(4), 8, {"a": 1.0, "c": 2.0})


def test_other_environments_have_no_components():
    assert reward_components(Counting(1)) == {}


def test_another_way_of_resetting_is_refused():
    env = Counting(2)
    env.metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    with pytest.raises(SettingsError, match="must be next-step"):
        Collector(env, {}, 0)


def test_an_environment_without_masks_is_refused():
    env = Counting(2)
    env.reset = lambda seed=None: (np.zeros((2, 2), np.float32), {})
    with pytest.raises(SettingsError, match=r'info\["action_mask"\] shape = None: must be \(2, 2\)'):
        Collector(env, {}, 0)


def test_a_running_environment_that_allows_nothing_is_named():
    env = Counting(3)
    collector = Collector(env, {}, 0)
    collector.mask[1] = False
    with pytest.raises(PlanError, match=r"mask\[1\].*at least one action"):
        collector.collect(FlatPolicy(2, 2, 1, seeded()), 2, seeded())


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (np.zeros((2, 7)), r"observation\.shape = \(2, 7\): must be \(2, 3\)"),
        (np.array([[0.0, 1.0, 2.0], [0.0, np.nan, 0.0]]), r"observation\[1, 1\] = nan: must be finite"),
        (np.array([[np.inf, 1.0, 2.0], [-np.inf, 0.0, 0.0]]), r"observation\[0, 0\] = inf"),
    ],
)
def test_bad_observations_are_refused(obs, message):
    with pytest.raises(ModelFitError, match=message):
        checked_observation(obs, (2, 3))


def phases(env):
    return env.engine.state.clock[:, st.NOW] / env.engine.world.horizon_s


def collector(stagger, clusters=16):
    env = TestbedVectorEnv(testbed_world(), clusters)
    policy = FlatPolicy(32, 64, 3, torch.Generator().manual_seed(0))
    return Collector(env, reward_components(env), 0, stagger), policy, torch.Generator().manual_seed(1)


def test_after_one_episode_all_phases_are_there():
    spread = {}
    for wanted in (True, False):
        played, policy, generator = collector(wanted)
        while played.stagger.waiting.any() or phases(played.env).max() < 0.8:
            played.collect(policy, 4, generator)
        spread[wanted] = np.sort(phases(played.env))
    # Sixteen clusters: no gap above a quarter of an episode, against all of them in the same half.
    edges = np.concatenate([spread[True], [1.0 + spread[True][0]]])
    assert np.diff(edges).max() < 0.25
    assert np.ptp(spread[False]) < 0.5


def test_each_cluster_is_restarted_once_when_its_share_has_passed():
    played, policy, generator = collector(True)
    restarts, number = np.zeros(16, dtype=int), 0
    while played.stagger.waiting.any():
        before, arrived = played.stagger.waiting.copy(), played.env.engine.state.event[:, st.TAKEN].copy()
        steps = played.collect(policy, 2, generator)
        gone = before & ~played.stagger.waiting & ~steps.ended.any(axis=0)
        restarts += gone
        assert (played.env.engine.state.event[gone, st.TAKEN] < np.maximum(arrived[gone], 3)).all()
        number += 1
        assert number < 200
    assert restarts.max() == 1 and restarts.sum() >= 14


def test_a_restart_shows_the_new_episode_and_its_mask():
    played, policy, generator = collector(True)
    while not (played.stagger.waiting.any() and not played.stagger.waiting.all()):
        played.collect(policy, 2, generator)
    np.testing.assert_array_equal(played.obs, played.env.codec.observe())
    np.testing.assert_array_equal(played.mask, played.env.codec.masks())
    assert not played.over.any()


def test_nothing_happens_to_other_environments_or_where_it_is_not_wanted():
    assert not Stagger(Counting(4)).waiting.any()
    env = TestbedVectorEnv(testbed_world(), 4)
    assert not Stagger(env, False).waiting.any()
    assert Stagger(env, False).restart_due(np.zeros(4, dtype=bool)) is None
