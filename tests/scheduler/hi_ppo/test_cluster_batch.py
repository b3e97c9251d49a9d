"""A field earns what the same policy earns when it is played event by event."""

import numpy as np
import pytest

from attribution_sched.cluster.incidents import DomainLoss
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor

from ...cluster.engine_worlds import tiny_cluster, tiny_world
from . import worlds


def field_return(world, net, seed, predict):
    field = ClusterBatch(world, 1, seed, worlds.attributor, predict=predict)
    while not field.returns:
        field.step(NetworkActor(net, None))
    return field.returns[0]


def played_return(world, net, seed, predict):
    policy = HiPpo(network=net, attributor=worlds.attributor, search=False, predict=predict, deadline_s=np.inf)
    summary = play(world, policy, seed)
    assert summary.refused_plans == 0
    return summary.reward


@pytest.mark.parametrize("predict", [False, True])
@pytest.mark.parametrize(("name", "seed"), [("equal", 2), ("incidents", 3), ("mixed", 3), ("tight", 2)])
def test_returns_are_those_of_an_episode_played_event_by_event(name, seed, predict):
    world, net = worlds.worlds()[name], worlds.network(seed, scale=10.0)
    field, played = (f(world, net, 51 + seed, predict) for f in (field_return, played_return))
    assert field == pytest.approx(played, abs=1e-6)


def test_what_is_earned_before_the_first_real_decision_counts():
    """Both domains are away at first: tasks wait, and nothing can be done about it."""
    lost = (DomainLoss(0, 0.0, 1800.0), DomainLoss(1, 0.0, 1800.0))
    world, net = tiny_world(tiny_cluster(2, 4, motion=worlds.MOVING), incidents=lost), worlds.network(2, scale=10.0)
    field = ClusterBatch(world, 1, 5, worlds.attributor, predict=False)
    assert field._running[0] < 0.0
    assert field_return(world, net, 5, False) == pytest.approx(played_return(world, net, 5, False), abs=1e-6)


def test_terms_add_up_to_the_return():
    field, net = ClusterBatch(worlds.worlds()["pair"], 1, 4, worlds.attributor), worlds.network(0, scale=10.0)
    total = field._running[0]
    while not field.returns:
        terms = field.step(NetworkActor(net, None)).terms[0] * field.scale
        total += (terms * field.engine.weights[0] * [1.0, 1.0, -1.0]).sum()
    assert field.returns[0] == pytest.approx(total, abs=1e-9)
