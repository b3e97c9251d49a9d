"""The flat agent: it learns, decides, and goes on from disk as if it had never stopped."""

import hashlib
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch

from attribution_sched.cluster.envs.env import TestbedEnv, TestbedVectorEnv
from attribution_sched.errors import CheckpointError, ModelFitError, PlanError, SettingsError
from attribution_sched.scheduler.ppo.flat import FlatAgent
from attribution_sched.scheduler.ppo.policy import FlatPolicy
from attribution_sched.scheduler.ppo.settings import PpoSettings
from tests.cluster.engine_worlds import testbed_world
from tests.scheduler.ppo.toys import QUICK, Counting, Cut, Identity, Terms


def weights_hash(agent):
    digest = hashlib.sha256()
    for weight in agent.policy.parameters():
        digest.update(weight.detach().numpy().tobytes())
    return digest.hexdigest()


def last_reward(agent, total):
    rewards = []
    agent.train(total, lambda progress: rewards.append(progress.reward_mean))
    return rewards[-1]


def test_the_identity_task_is_solved():
    env = Identity()
    agent = FlatAgent(env, QUICK, seed=1)
    assert last_reward(agent, 512) < 0.7
    assert last_reward(agent, 15_000) > 0.97
    right = np.arange(4)
    obs, every = np.eye(4, dtype=np.float32), np.ones((4, 4), dtype=bool)
    assert agent.act(obs, every).tolist() == right.tolist()
    assert env.resets > 1000


def test_a_cut_in_time_is_not_taken_for_the_end():
    with_value, without = (last_reward(FlatAgent(Cut(), QUICK, 0, bootstrap=b), 15_000) for b in (True, False))
    assert with_value > 0.95
    assert without < 0.6


@pytest.mark.parametrize("make", [Identity, lambda: TestbedVectorEnv(testbed_world(), 16)])
def test_the_same_seed_gives_the_same_weights(make):
    runs = [FlatAgent(make(), QUICK, seed) for seed in (3, 3, 4)]
    for agent in runs:
        agent.train(2048)
    one, again, other = (weights_hash(agent) for agent in runs)
    assert one == again and one != other


def test_training_leaves_global_randomness_and_threads_alone():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    np_state = np.random.get_state()[1].copy()  # noqa: NPY002 (to see that nobody touched it)
    FlatAgent(Identity(), QUICK, 3).train(1024)
    assert torch.equal(state, torch.get_rng_state()) and threads == torch.get_num_threads()
    assert (np_state == np.random.get_state()[1]).all()  # noqa: NPY002


class Watched(TestbedVectorEnv):
    """Counts what the cluster refused."""

    refused = played = 0

    def step(self, actions):
        active = ~self._over
        out = super().step(actions)
        self.refused += int((out[4]["decision"]["code"][active] <= 0).sum())
        self.played += int(active.sum())
        return out


def test_the_testbed_refuses_no_action_while_an_agent_learns():
    env = Watched(testbed_world(), 16)
    agent = FlatAgent(env, QUICK, 0)
    agent.train(4096)
    assert env.played > 4000 and env.refused == 0
    assert list(agent.collector.components) == ["r_eff", "r_util", "r_cost"]
    assert agent.scale.mean.shape == (3,)


def test_single_environments_side_by_side_give_the_same_run():
    world = testbed_world()
    names = [lambda: TestbedEnv(world)] * 8
    settings = replace(QUICK, num_steps=256, minibatch_size=64)
    weights = {"r_eff": world.reward.w_eff, "r_util": world.reward.w_util, "r_cost": -world.reward.w_cost}
    runs = []
    for env in (TestbedVectorEnv(world, 8), gym.vector.SyncVectorEnv(names)):
        agent = FlatAgent(env, settings, 5, components=weights, stagger=False)
        agent.train(1024)
        runs.append(weights_hash(agent))
    assert runs[0] == runs[1]


def test_values_learn_each_component_in_its_own_unit():
    # With γ → 0 a value is the step's own reward: the count plus one, whatever the action.
    settings = replace(QUICK, gamma=1e-3, gae_lambda=0.0)
    agent = FlatAgent(Terms(), settings, 0, components={"a": 1.0, "b": -2.0})
    agent.train(30_000)
    obs = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    values = agent.scale.to_units(agent.policy.values(obs).detach().numpy())
    np.testing.assert_allclose(values @ [1.0, -2.0], [1.0, 2.0, 3.0], atol=0.25)
    np.testing.assert_allclose(values[:, 1], 0.5, atol=0.15)


class Sideways(torch.nn.Module):
    """Another policy with the same three methods."""

    def __init__(self):
        super().__init__()
        self.inner = FlatPolicy(4, 4, 1, torch.Generator().manual_seed(1), hidden=(16,))

    def sample(self, obs, mask, generator):
        return self.inner.sample(obs, mask, generator)

    def evaluate(self, obs, mask, action):
        return self.inner.evaluate(obs, mask, action)

    def values(self, obs):
        return self.inner.values(obs)


def test_any_policy_with_the_three_methods_learns():
    assert last_reward(FlatAgent(Identity(), QUICK, 0, policy=Sideways()), 15_000) > 0.95


def test_progress_can_end_the_training():
    agent = FlatAgent(Identity(), QUICK, 0)
    agent.train(100_000, lambda progress: progress.steps >= 1024)
    assert agent.steps == 1024 and agent.rollouts == 2


def test_one_observation_and_many_are_decided_alike():
    agent = FlatAgent(Identity(), QUICK, 0)
    obs = np.eye(4, dtype=np.float32)
    mask = np.array([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]], dtype=bool)
    many = agent.act(obs, mask)
    assert [int(agent.act(o, m)) for o, m in zip(obs, mask, strict=True)] == many.tolist()
    drawn = {tuple(agent.act(obs, mask, deterministic=False)) for _ in range(30)}
    assert len(drawn) > 5 and all(mask[i, a] for row in drawn for i, a in enumerate(row))


@pytest.mark.parametrize(
    ("obs", "mask", "kind", "message"),
    [
        (np.zeros(32), np.ones(4, bool), ModelFitError, r"observation\.shape = \(32,\): must be \(4,\)"),
        (np.full(4, np.nan), np.ones(4, bool), ModelFitError, r"observation\[0\] = nan"),
        (np.zeros(4), np.zeros(4, bool), PlanError, "at least one action"),
        (np.zeros(4), np.ones(64, bool), ModelFitError, r"mask\.shape = \(64,\)"),
    ],
)
def test_bad_input_is_refused_by_name(obs, mask, kind, message):
    with pytest.raises(kind, match=message):
        FlatAgent(Identity(), QUICK, 0).act(obs, mask)


def test_steps_must_be_shared_out_evenly():
    with pytest.raises(SettingsError, match="multiple of the 10 environments"):
        FlatAgent(Counting(10), PpoSettings(num_steps=256, minibatch_size=64))


def test_other_spaces_are_refused():
    env = Counting(4)
    env.single_action_space = gym.spaces.MultiDiscrete([2, 2])
    with pytest.raises(SettingsError, match=r"env\.action_space"):
        FlatAgent(env, QUICK)
    env = Counting(4)
    env.single_observation_space = gym.spaces.Dict({})
    with pytest.raises(SettingsError, match=r"env\.observation_space"):
        FlatAgent(env, QUICK)


WORLD = testbed_world(horizon_s=1500.0)
SETTINGS = replace(QUICK, num_steps=256, minibatch_size=64, target_kl=0.02)


def clusters(number=8):
    return TestbedVectorEnv(WORLD, number)


def test_a_resumed_run_equals_one_that_never_stopped(tmp_path):
    whole = FlatAgent(clusters(), SETTINGS, 3)
    whole.train(5 * 256)
    whole.save(tmp_path / "half")
    whole.train(12 * 256)
    resumed = FlatAgent.load(tmp_path / "half", clusters())
    assert resumed.steps == 5 * 256 and resumed.settings == SETTINGS
    resumed.train(12 * 256)
    for a, b in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    whole.save(tmp_path / "one")
    resumed.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_run_elsewhere_goes_on_in_new_episodes_the_same_every_time(tmp_path):
    agent = FlatAgent(Identity(), QUICK, 3)
    agent.train(1024)
    agent.save(tmp_path / "half")
    ends = []
    for _ in range(2):
        again = FlatAgent.load(tmp_path / "half", Identity())
        again.train(3072)
        ends.append(torch.cat([w.detach().ravel() for w in again.policy.parameters()]))
    assert torch.equal(*ends)


def test_another_module_can_be_given(tmp_path):
    def small(seed):
        return FlatPolicy(4, 4, 1, torch.Generator().manual_seed(seed), hidden=(8,))

    agent = FlatAgent(Identity(), QUICK, 3, policy=small(0))
    agent.save(tmp_path / "small")
    again = FlatAgent.load(tmp_path / "small", Identity())
    given = FlatAgent.load(tmp_path / "small", Identity(), policy=small(5))
    for loaded in (again, given):
        assert torch.equal(loaded.policy.actor[0].weight, agent.policy.actor[0].weight)


class Other(FlatPolicy):
    """A policy of another name."""


@pytest.mark.parametrize(
    ("env", "policy", "message"),
    [
        (Cut, None, r"observation_shape = \(2,\): the checkpoint has \(4,\)"),
        (lambda: Identity(8), None, "num_envs = 8: the checkpoint has 16"),
        (Identity, Other(4, 4, 1, torch.Generator()), "policy = 'Other': the checkpoint has 'FlatPolicy'"),
        (Identity, FlatPolicy(4, 4, 1, torch.Generator(), (8,)), "checkpoint weights = 'actor.4.bias'"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, env, policy, message):
    FlatAgent(Identity(), QUICK, 3).save(tmp_path / "agent")
    with pytest.raises(CheckpointError, match=message):
        FlatAgent.load(tmp_path / "agent", env(), policy)


def test_clusters_of_another_world_are_refused(tmp_path):
    FlatAgent(clusters(), SETTINGS, 3).save(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="is not the world"):
        FlatAgent.load(tmp_path / "agent", TestbedVectorEnv(testbed_world(), 8))


def test_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "agent"
    FlatAgent(Identity(), QUICK, 3).save(path)
    content = bytearray(path.read_bytes())
    content[-20] ^= 4
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="changed after it was written"):
        FlatAgent.load(path, Identity())
