"""The Gymnasium names, and that what they make passes Gymnasium's own checks without a word."""

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from attribution_sched.cluster.envs.env import CrossDomainVectorEnv, TestbedVectorEnv
from attribution_sched.cluster.envs.registration import CROSS_DOMAIN, PLANS, TESTBED, register
from attribution_sched.errors import SettingsError


@pytest.mark.parametrize("name", [TESTBED, CROSS_DOMAIN])
def test_the_named_environment_passes_the_checker_with_no_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(name)
        check_env(env.unwrapped, skip_render_check=True)
        seen, info = env.reset(seed=0)
        assert env.observation_space.contains(seen)
        assert {"action_mask", "reward_terms"} <= info.keys()


def test_the_names_are_the_documented_ones():
    assert (TESTBED, CROSS_DOMAIN) == ("attribution_sched/Testbed-v0", "attribution_sched/CrossDomain-v0")
    register()  # a second time changes nothing
    assert TESTBED in gym.registry


def test_the_testbed_has_32_numbers_and_64_actions():
    env = gym.make(TESTBED)
    assert env.observation_space.shape == (32,)
    assert env.action_space.n == 64


@pytest.mark.parametrize(("name", "kind"), [(TESTBED, TestbedVectorEnv), (CROSS_DOMAIN, CrossDomainVectorEnv)])
def test_make_vec_gives_the_batched_twin(name, kind):
    env = gym.make_vec(name, num_envs=2, vectorization_mode="vector_entry_point")
    assert isinstance(env.unwrapped, kind)
    _, info = env.reset(seed=0)
    _, rewards, *_ = env.step(env.action_space.sample())
    assert info["action_mask"].shape[0] == 2
    assert np.isfinite(rewards).all()


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(SettingsError, match="testbed"):
        gym.make(TESTBED, preset="testbad")


@pytest.mark.parametrize(
    "first",
    [
        "import attribution_sched; import gymnasium as gym",
        "import gymnasium as gym; import attribution_sched",
        "from attribution_sched import registration; import gymnasium as gym",
        "import attribution_sched; from gymnasium.spaces import Box; import gymnasium as gym",
    ],
)
def test_importing_both_in_any_order_is_enough(first):
    names = [TESTBED, CROSS_DOMAIN, *PLANS]
    probe = f"{first}; print(*(gym.spec(name).id for name in {names}))"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.split() == names


def test_the_package_as_a_prefix_is_enough_without_an_import():
    probe = f"import gymnasium as gym; print(gym.make('attribution_sched:{TESTBED}').spec.id)"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [TESTBED]


def test_importing_the_package_does_not_load_gymnasium():
    probe = "import sys, attribution_sched; print('gymnasium' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False"]
