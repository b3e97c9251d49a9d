"""RLlib's PPO on our games of several agents: it trains a little, stands in the arena, schedules and is explained."""

import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="RLlib is not installed; pip install 'attribution-sched[ray]'")

from attribution_sched import System
from attribution_sched.cluster.envs.registration import AGENTS, make_agents, register_rllib
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError
from attribution_sched.rivals.arena.by_preset import evaluate
from attribution_sched.rivals.rllib import MaskedModule, masked, trained

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # RLlib warns about itself


@pytest.fixture(scope="module")
def settings():
    short = load_settings("cross-domain-easy").model_dump(mode="json")
    short["episode"]["horizon_s"] = 6 * 3600.0
    return load_settings(short)


@pytest.fixture(scope="module")
def ray_here_alone():
    import ray

    ray.shutdown()  # Engines tested before in this process may have left a connection to clusters that are gone.
    ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
    register_rllib()
    yield
    ray.shutdown()


def random_episode(env, seed):
    rng, paid, asked = np.random.default_rng(seed), dict.fromkeys(env.possible_agents, 0.0), 0
    shown, _ = env.reset(seed=seed)
    over = False
    while not over:
        asked += 1
        actions = {}
        for agent, observation in shown.items():
            assert env.observation_spaces[agent].contains(observation)
            rows = observation[-env.game.choices * 7 :].reshape(env.game.choices, 7)
            actions[agent] = int(rng.choice(np.flatnonzero(rows[:, -1] > 0.5)))
        shown, rewards, terminated, truncated, _ = env.step(actions)
        for agent, reward in rewards.items():
            paid[agent] += reward
        over = truncated["__all__"] or terminated["__all__"]
    return paid, asked


@pytest.mark.parametrize("game", ["domains", "levels"])
def test_every_agent_earns_the_one_return_and_a_seed_repeats_it(game, settings):
    env = make_agents({"preset": settings, "game": game})
    paid, asked = random_episode(env, 4)
    assert asked > 5
    assert max(paid.values()) - min(paid.values()) < 1e-9
    assert paid[env.possible_agents[0]] != 0.0
    assert random_episode(env, 4) == (paid, asked)


def test_an_unknown_game_names_the_nearest(settings):
    with pytest.raises(SettingsError, match="levels"):
        make_agents({"preset": settings, "game": "level"})


@pytest.mark.parametrize("game", ["domains", "levels", None])
def test_ppo_learns_a_little_plays_and_is_explained(game, settings, ray_here_alone):
    from ray.rllib.algorithms.ppo import PPOConfig

    asked = {"preset": settings} | ({"game": game, "seed": 1} if game else {})
    config = (
        PPOConfig()
        .environment(AGENTS if game else "attribution_sched/CrossDomainPlans-v0", env_config=asked)
        .env_runners(num_env_runners=0)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=2)
        .debugging(seed=1, log_level="ERROR")
    )
    algorithm = masked(config, game).build_algo()
    try:
        network = algorithm.get_module("upper" if game == "levels" else game or "default_policy")
        assert isinstance(network, MaskedModule)
        before = [p.detach().clone() for p in network.parameters()]
        algorithm.train()
        after = algorithm.get_module("upper" if game == "levels" else game or "default_policy").parameters()
        assert any(not (a == b).all() for a, b in zip(before, after, strict=True))
        policy = trained(algorithm, make_agents(asked).game if game else None)
        found = evaluate([policy, "fcfs"], settings, episodes=1, scenarios=["steady"])
        assert all(record.summary.refused_plans == 0 for record in found.records)
        with System(settings, policy=policy, explain=True) as system:
            result = system.schedule_next_task()
            assert result.decision.policy == "rllib"
            assert result.explanation is not None
    finally:
        algorithm.stop()
