"""Environments whose actions are candidate plans: masks that hold, learners that play and are explained."""

import warnings
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import attribution_sched.cluster.envs.registration  # noqa: F401
from attribution_sched.cluster.envs.registration import PLANS
from attribution_sched.config import load_settings
from attribution_sched.errors import ModelFitError, PlanError
from attribution_sched.rivals.arena.by_preset import evaluate
from attribution_sched.rivals.candidate_env import AHEAD_S, AgentPolicy, CandidateCluster, CandidateEnv, SB3Policy
from attribution_sched.scheduler.episode import play
from tests.scheduler.test_pairing import crowded


def small(preset):
    settings = load_settings(preset).model_dump(mode="json")
    settings["episode"]["horizon_s"] = min(settings["episode"]["horizon_s"], 6 * 3600.0)
    return load_settings(settings)


@pytest.mark.parametrize("name", PLANS)
def test_what_the_mask_allows_is_carried_out(name):
    env = gym.make(name, preset=small(PLANS[name])).unwrapped
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    fits = placed = 0
    for _ in range(60):
        allowed = np.flatnonzero(env.action_masks())
        plans = allowed[allowed > 0]
        action = int(rng.choice(plans)) if len(plans) else 0
        _, _, _, over, info = env.step(action)
        if len(plans):
            fits += 1
            placed += info["placed"]
        if over:
            env.reset()
    assert fits > 10
    assert placed >= 0.95 * fits


@pytest.mark.parametrize("name", PLANS)
def test_masked_random_actions_place_what_fits_where_waiting_is_no_choice(name):
    env = gym.make(name, preset=small(PLANS[name]), waits=False).unwrapped
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=0)
    must = placed = 0
    for _ in range(120):
        allowed = np.flatnonzero(info["action_mask"])
        fits = allowed[0] > 0
        _, _, _, over, info = env.step(int(rng.choice(allowed)))
        must, placed = must + fits, placed + (fits and info["placed"])
        if over:
            _, info = env.reset()
    assert must > 10 and placed >= 0.95 * must


@pytest.mark.parametrize("name", PLANS)
def test_the_checker_has_nothing_to_say(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(name, preset=small(PLANS[name])).unwrapped, skip_render_check=True)


def test_carbon_and_prices_may_be_observed_with_forecasts_and_their_errors():
    tariff = {"kind": "day", "values": [0.05] * 6 + [0.2] * 18}
    settings = load_settings({"extends": "cross-domain", "domain_defaults": {"electricity": tariff}})
    env = gym.make("attribution_sched/CrossDomainPlans-v0", preset=settings, signals=True).unwrapped
    plain = gym.make("attribution_sched/CrossDomainPlans-v0", preset=settings).unwrapped
    seen, _ = env.reset(seed=0)
    without, _ = plain.reset(seed=0)
    assert env.observation_space.shape == (plain.observation_space.shape[0] + 4 * 6,)
    assert np.array_equal(seen[: len(without)], without)
    told, now_s = seen[len(without) :].reshape(4, 6), env.cluster.time_s
    for row, domain in zip(told, env.cluster.engine.world.cluster.domains, strict=True):
        ahead = domain.carbon.forecast(now_s, AHEAD_S)
        assert row[:3] == pytest.approx(1e-3 * np.array([domain.carbon.at(now_s), *ahead]), rel=1e-5)
        assert row[2] > 0.0 and row[3] == pytest.approx(domain.electricity.at(now_s))
    assert told[:, 0].std() > 0.01
    agent = AgentPolicy(lambda observation, mask: int(np.flatnonzero(mask)[-1]), signals=True)
    assert play(small(settings).build_world(), agent, 0).placed > 0


def test_plans_beside_neighbours_are_among_the_choices():
    env = CandidateEnv(crowded(6.0, 40.0))
    env.reset(seed=3)
    shared = 0
    for _ in range(200):
        shared += any(plan.beside is not None for plan in env._plans)
        allowed = np.flatnonzero(env.action_masks())
        if env.step(int(allowed[min(1, len(allowed) - 1)]))[3]:
            break
    assert shared > 5


def test_a_reading_that_is_missing_is_no_reading_of_nought():
    """NaN was shown to learners as 0."""
    cluster = CandidateCluster(load_settings("testbed").build_world())
    cluster.reset(0)
    seen, _ = cluster.look()
    policy = AgentPolicy(lambda shown, allowed: 0)
    policy.decide(seen)
    for changed in (
        {"observed": np.full_like(seen.observed, np.nan)},
        {"steps_left": float("nan")},
        {"samples_per_s": float("nan")},
        {"free_devices": seen.free_devices * np.nan},
    ):
        with pytest.raises(PlanError, match=f"{next(iter(changed))}.* = nan: must be finite"):
            policy.decide(replace(seen, **changed))


@pytest.mark.parametrize("space", [None, gym.spaces.MultiDiscrete([3, 3]), gym.spaces.Box(0.0, 1.0, (2,))])
def test_what_has_learnt_other_actions_is_one_clear_error(space):
    """It was an AttributeError of Gymnasium's."""

    class Learnt:
        action_space = space

    with pytest.raises(ModelFitError, match=r"must be a model whose action space is Discrete\. Train it on"):
        SB3Policy(Learnt() if space is not None else "model.zip")


def test_a_learner_of_another_library_plays_in_the_arena_and_is_explained():
    sb3_contrib = pytest.importorskip("sb3_contrib")
    import torch

    settings = small("testbed")
    torch.set_num_threads(1)
    env = CandidateEnv(settings.build_world())
    model = sb3_contrib.MaskablePPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    model.learn(128)
    found = evaluate([SB3Policy(model), "fcfs"], settings, episodes=2, scenarios=["steady"])
    assert {record.policy for record in found.records} == {"sb3", "fcfs"}
    assert all(record.summary.refused_plans == 0 for record in found.records)

    cluster = CandidateCluster(load_settings("cross-domain").build_world())
    cluster.reset(0)
    with pytest.raises(ModelFitError, match=r"observation size = 215: sb3 has learnt with 152 numbers"):
        SB3Policy(model).decide(cluster.look()[0])
    from attribution_sched import System

    with System(settings, policy=SB3Policy(model), explain=True) as system:
        result = system.schedule_next_task()
        assert result.decision.policy == "sb3"
        assert result.explanation is not None
