"""What ``attribution_sched/Testbed-v0`` shows and does, number by number: others have learnt on it."""

import gymnasium as gym
import numpy as np

from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine.engine import DOMAIN_FEATURES, TASK_FEATURES
from attribution_sched.cluster.envs.env import TestbedEnv
from attribution_sched.cluster.gpus import PRECISIONS

from .engine_worlds import testbed_world

SYSTEM = (
    "gpu_utilisation_0", "gpu_utilisation_1", "gpu_utilisation_2", "gpu_utilisation_3",
    "memory_utilisation_0", "memory_utilisation_1", "memory_utilisation_2", "memory_utilisation_3",
    "cpu_utilisation",
    "memory_bandwidth_0", "memory_bandwidth_1", "memory_bandwidth_2", "memory_bandwidth_3",
    "pcie_bandwidth_0", "pcie_bandwidth_1", "pcie_bandwidth_2", "pcie_bandwidth_3",
    "total_power", "queue_length", "power_budget",
)  # fmt: skip
TASK = ("task_type", "model_size", "input_height", "input_width", "batch_size")
ATTRIBUTIONS = ("cpu_cycles", "l3_misses", "memory_bandwidth", "pcie_bandwidth", "conv", "fc", "attention")


def test_the_observation_has_20_5_and_7_numbers_in_this_order():
    assert (DOMAIN_FEATURES, TASK_FEATURES, DEMAND_NAMES) == (SYSTEM, TASK, ATTRIBUTIONS)
    env = TestbedEnv(testbed_world())
    assert env.observation_space.shape == (20 + 5 + 7,) and env.observation_space.dtype == np.float32
    seen, _ = env.reset(seed=1)
    observed, pool = env.engine.observe(), int(env.engine.pending_pool()[0])
    assert np.array_equal(seen[:20], observed.domains[0, 0].astype(np.float32))
    assert np.array_equal(seen[20:25], observed.task[0].astype(np.float32))
    assert np.array_equal(seen[25:], env.codec.attributions[pool].astype(np.float32))


def test_the_64_actions_are_a_device_a_precision_and_a_batch_level():
    env = TestbedEnv(testbed_world())
    assert env.action_space == gym.spaces.Discrete(4 * 4 * 4)
    assert [precision.value for precision in PRECISIONS] == ["fp32", "fp16", "bf16", "int8"]
    env.reset(seed=1)
    for action in range(64):
        rows, devices = env.codec.decode(np.array([action]))
        (domain, stop, layout, precision, level), (device,) = rows[0, 0].tolist(), devices.tolist()
        assert 16 * device + 4 * precision + level == action and max(device, precision, level) < 4
        assert domain == 0 and stop == len(env.engine.world.kinds[int(env.engine.pending_kind()[0])].model)
        assert env.engine.layouts[layout, :3].tolist() == [1, 1, 1]


def test_an_action_is_carried_out_on_the_device_in_the_precision_and_batch_it_names():
    for at in range(3):
        env = TestbedEnv(testbed_world())
        _, info = env.reset(seed=1)
        allowed = np.flatnonzero(info["action_mask"])
        action = int(allowed[(at * len(allowed)) // 3])
        before = env.engine.observe().domains[0, 0, :4].copy()
        env.step(action)
        after = env.engine.observe().domains[0, 0, :4]
        assert int(np.argmax(after - before)) == action // 16
