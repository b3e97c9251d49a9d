"""The lower agent on the testbed's 64 actions."""

import numpy as np
import pytest
import torch

from attribution_sched.cluster.env import TestbedVectorEnv
from attribution_sched.config import load_settings
from attribution_sched.errors import PlanError
from attribution_sched.scheduler.hi_ppo.testbed import TestbedPolicy
from attribution_sched.scheduler.ppo.flat import FlatAgent
from attribution_sched.scheduler.ppo.settings import PpoSettings


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


@pytest.fixture
def states():
    rng = np.random.default_rng(3)
    obs = torch.from_numpy(rng.uniform(size=(200, 32))).float()
    mask = torch.from_numpy(rng.uniform(size=(200, 64)) < 0.2)
    mask[:, 5] = True
    return obs, mask


def test_never_takes_a_masked_action(states):
    obs, mask = states
    policy = TestbedPolicy(seeded())
    for number in range(50):
        action = policy.sample(obs, mask, seeded(number)).action
        assert mask[torch.arange(200), action].all()


def test_probabilities_of_all_64_actions_sum_to_one(states):
    obs, mask = states
    policy = TestbedPolicy(seeded())
    total = torch.zeros(200)
    for action in range(64):
        rows = mask[:, action].nonzero()[:, 0]
        asked = torch.full((len(rows),), action)
        total[rows] += policy.evaluate(obs[rows], mask[rows], asked).log_prob.exp()
    assert torch.allclose(total, torch.ones(200), atol=1e-5)


def test_evaluation_agrees_with_sampling(states):
    obs, mask = states
    policy = TestbedPolicy(seeded())
    drawn = policy.sample(obs, mask, seeded(1))
    assert torch.allclose(drawn.log_prob, policy.evaluate(obs, mask, drawn.action).log_prob, atol=1e-6)


def test_devices_are_exchangeable(states):
    """Two devices that look alike are as likely as each other, wherever they stand."""
    obs, _ = states
    obs = obs[:20].clone()
    for group in (0, 4, 9, 13):
        obs[:, group + 3] = obs[:, group]
    policy = TestbedPolicy(seeded())
    everything = torch.ones(20, 64, dtype=torch.bool)
    first = policy.evaluate(obs, everything, torch.full((20,), 7)).log_prob
    last = policy.evaluate(obs, everything, torch.full((20,), 3 * 16 + 7)).log_prob
    assert torch.allclose(first, last, atol=1e-5)


def test_all_masked_raises(states):
    obs, mask = states
    mask[17] = False
    with pytest.raises(PlanError, match="at least one"):
        TestbedPolicy(seeded()).sample(obs, mask, seeded())


def test_learns_on_the_testbed():
    world = load_settings("testbed").build_world()
    settings = PpoSettings(lr=3e-3, gamma=0.2, num_steps=1024, update_epochs=2, minibatch_size=256, target_kl=None)
    agent = FlatAgent(TestbedVectorEnv(world, 64), settings, seed=0, policy=TestbedPolicy(seeded()))

    def worth() -> float:
        env = TestbedVectorEnv(world, 32)
        obs, info = env.reset(seed=700_000)
        total = []
        for _ in range(40):
            obs, reward, _, _, info = env.step(agent.act(obs, info["action_mask"], True))
            total.append(reward.mean())
        return float(np.mean(total))

    before = worth()
    agent.train(16 * 1024)
    assert worth() > before + 0.3
