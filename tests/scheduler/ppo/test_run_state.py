"""A run as arrays and back: the learner and its clusters."""

import numpy as np
import pytest
import torch

from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.envs.env import TestbedVectorEnv
from attribution_sched.cluster.world import Reward
from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.ppo.policy import FlatPolicy
from attribution_sched.scheduler.ppo.run_state import (
    env_arrays,
    generator_array,
    module_arrays,
    optimiser_arrays,
    restore_engine,
    restore_env,
    restore_generator,
    restore_module,
    restore_optimiser,
    state_to_tensors,
)
from attribution_sched.storage import take
from tests.cluster.engine_worlds import testbed_world
from tests.scheduler.ppo.toys import Counting


def learner(seed=0, hidden=(8,)):
    policy = FlatPolicy(3, 4, 2, torch.Generator().manual_seed(seed), hidden)
    return policy, torch.optim.Adam(policy.parameters(), lr=0.01, fused=True)


def learn(policy, optimiser, generator, steps):
    for _ in range(steps):
        optimiser.zero_grad()
        noise = torch.randn(5, 3, generator=generator)
        (policy.actor(noise).square().sum() + policy.critic(noise).square().sum()).backward()
        optimiser.step()


def test_a_restored_learner_goes_on_bit_for_bit():
    policy, optimiser = learner(0)
    generator = torch.Generator().manual_seed(1)
    learn(policy, optimiser, generator, 3)
    arrays = {**module_arrays(policy, "p."), **optimiser_arrays(optimiser, "o."), "g": generator_array(generator)}
    other, other_optimiser = learner(9)
    other_generator = torch.Generator()
    restore_module(other, take(arrays, "p."))
    restore_optimiser(other_optimiser, take(arrays, "o."))
    restore_generator(other_generator, arrays["g"])
    learn(policy, optimiser, generator, 4)
    learn(other, other_optimiser, other_generator, 4)
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), other.parameters(), strict=True))


def test_arrays_are_copies():
    policy, optimiser = learner()
    arrays = module_arrays(policy, "")
    before = arrays["actor.0.weight"].copy()
    learn(policy, optimiser, torch.Generator().manual_seed(0), 1)
    assert (arrays["actor.0.weight"] == before).all()


def test_another_network_is_refused_and_left_alone():
    policy, optimiser = learner()
    wider, wider_optimiser = learner(hidden=(16,))
    deeper, _ = learner(hidden=(8, 8))
    learn(policy, optimiser, torch.Generator().manual_seed(0), 1)
    before = wider.actor[0].weight.clone()
    with pytest.raises(CheckpointError, match=r"weight actor\.0\.weight.*must be \(16, 3\) of float32"):
        restore_module(wider, module_arrays(policy, ""))
    assert torch.equal(before, wider.actor[0].weight)
    with pytest.raises(CheckpointError, match=r"differ in .* weights"):
        restore_module(deeper, module_arrays(policy, ""))
    with pytest.raises(CheckpointError, match=r"optimiser entry 0\.exp_avg"):
        restore_optimiser(wider_optimiser, optimiser_arrays(optimiser, ""))


def test_entries_of_unknown_weights_are_refused():
    policy, optimiser = learner()
    learn(policy, optimiser, torch.Generator().manual_seed(0), 1)
    arrays = {f"1{name}": array for name, array in optimiser_arrays(optimiser, "").items()}
    with pytest.raises(CheckpointError, match="number of one of 8 weights"):
        restore_optimiser(optimiser, arrays)


def test_another_kind_of_generator_state_is_refused():
    with pytest.raises(CheckpointError, match="does not fit this device"):
        restore_generator(torch.Generator(), generator_array(torch.Generator())[:100])


WORLD = testbed_world(horizon_s=1500.0)


def played(env, rng, steps, masks):
    seen = []
    for _ in range(steps):
        masks[~masks.any(axis=1)] = True
        action = (rng.random(masks.shape) * masks).argmax(axis=1)
        obs, reward, _, truncated, info = env.step(action)
        masks = info["action_mask"]
        seen.append((obs, reward, truncated, masks.copy()))
    return seen


def test_a_restored_environment_goes_on_exactly_through_ends_and_resets():
    env = TestbedVectorEnv(WORLD, 6)
    _, info = env.reset(seed=3)
    before = played(env, np.random.default_rng(0), 40, info["action_mask"])
    # Stop where at least one cluster is over and only waits for its reset.
    while not before[-1][2].any():
        before += played(env, np.random.default_rng(len(before)), 1, before[-1][3].copy())
    arrays = env_arrays(env)
    other = TestbedVectorEnv(WORLD, 6)
    other.reset(seed=99)
    restore_env(other, arrays)
    masks = before[-1][3]
    on, resumed = (played(e, np.random.default_rng(1), 80, masks.copy()) for e in (env, other))
    assert any(step[2].any() for step in on)
    for one, two in zip(on, resumed, strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
    assert all(np.array_equal(a, b) for a, b in zip(env.engine.state, other.engine.state, strict=True))


def test_arrays_are_copies_and_hold_every_part_of_the_state():
    engine = Engine(WORLD, 2)
    engine.seed([0, 1])
    arrays = state_to_tensors(engine)
    assert {f"state.{name}" for name in engine.state._fields} < set(arrays)
    engine.state.clock[:] = 7.0
    assert (arrays["state.clock"] != 7.0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("state.links"), "cluster state = 'state.links': is missing or not known"),
        (lambda a: a.update(surplus=np.zeros(1)), "'surplus': is missing or not known"),
        (lambda a: a.update({"state.event": a["state.event"].astype(np.int32)}), "cluster state.event"),
        (lambda a: a.update({"state.clock": a["state.clock"][:1]}), "number of clusters"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(change, message):
    engine, other = Engine(WORLD, 2), Engine(WORLD, 2)
    engine.seed([0, 1])
    engine.reset()
    arrays = state_to_tensors(engine)
    change(arrays)
    before = state_to_tensors(other)
    with pytest.raises(CheckpointError, match=message):
        restore_engine(other, arrays)
    assert all(np.array_equal(before[name], array) for name, array in state_to_tensors(other).items())


@pytest.mark.parametrize("changes", [{"horizon_s": 3600.0}, {"reward": Reward(per_decision=True)}])
def test_another_world_of_the_same_size_is_refused(changes):
    arrays = state_to_tensors(Engine(WORLD, 2))
    with pytest.raises(CheckpointError, match="is not the world of this environment"):
        restore_engine(Engine(testbed_world(**{"horizon_s": 1500.0} | changes), 2), arrays)


def test_other_environments_have_no_snapshot():
    assert env_arrays(Counting(2)) is None


def test_another_number_of_clusters_is_refused():
    env = TestbedVectorEnv(WORLD, 3)
    with pytest.raises(CheckpointError, match=r"finished clusters = \(3,\): must be \(4,\)"):
        restore_env(TestbedVectorEnv(WORLD, 4), env_arrays(env))
