"""A restored batch of clusters goes on exactly as the one it was taken from."""

import numpy as np
import pytest

from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.env import TestbedVectorEnv
from attribution_sched.cluster.world import Reward
from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.ppo.snapshot import env_arrays, restore_engine, restore_env, state_to_tensors
from tests.cluster.engine_worlds import testbed_world
from tests.scheduler.ppo.toys import Counting

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
