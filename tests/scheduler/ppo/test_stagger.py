"""Staggered clusters: each is restarted once, at its share of the first episode, and then they cover all phases."""

import numpy as np
import torch

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.env import TestbedVectorEnv
from attribution_sched.scheduler.ppo.collect import Collector, reward_components
from attribution_sched.scheduler.ppo.policy import FlatPolicy
from attribution_sched.scheduler.ppo.stagger import Stagger
from tests.cluster.engine_worlds import testbed_world
from tests.scheduler.ppo.toys import Counting


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
