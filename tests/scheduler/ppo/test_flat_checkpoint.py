"""A flat agent resumes bit-equal to a run that never stopped; files of other agents are refused."""

from dataclasses import replace

import pytest
import torch

from attribution_sched.cluster.env import TestbedVectorEnv
from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.ppo.flat import FlatAgent
from attribution_sched.scheduler.ppo.policy import FlatPolicy
from tests.cluster.engine_worlds import testbed_world
from tests.scheduler.ppo.toys import QUICK, Cut, Identity

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
