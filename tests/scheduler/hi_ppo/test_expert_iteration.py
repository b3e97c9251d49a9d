"""A round that does not help held-out episodes leaves no trace."""

import copy

import numpy as np
import torch

from attribution_sched.scheduler.hi_ppo import expert_iteration
from attribution_sched.scheduler.hi_ppo.cloning import watch
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.expert_iteration import improve
from attribution_sched.scheduler.hi_ppo.held_out import HeldOut, Measured
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

from . import worlds
from .tiny_courses import small_world


class Judge:
    """Says what it was told to say, one number after the other."""

    def __init__(self, *returns):
        self.returns = list(returns)

    def measure(self, network):
        return Measured((self.returns.pop(0),))


def run(monkeypatch, judge, rounds, network=None):
    monkeypatch.setattr(expert_iteration, "COPIES", 8)
    network = network or worlds.network(2, scale=10.0)
    field = ClusterBatch(small_world(), 4, 0, worlds.attributor)
    lesson = watch(ClusterBatch(small_world(), 4, 50, worlds.attributor), ShortestFirst(), 4, 0.99)
    told = []
    found = improve(
        network, [field], [lesson], judge, ShortestFirst(), rounds=rounds, decisions=8, epochs=2, lr=1e-3, hold=0.3,
        seed=0, told=told.append,
    )  # fmt: skip
    assert told == found
    return network, found


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_worse_rounds_are_undone_and_better_ones_kept(monkeypatch):
    begin = copy.deepcopy(worlds.network(2, scale=10.0).state_dict())
    network, found = run(monkeypatch, Judge(5.0, 4.0), 1)
    assert same(begin, network.state_dict()) and not found[0].kept
    network, found = run(monkeypatch, Judge(5.0, 6.0), 1)
    assert not same(begin, network.state_dict()) and found[0].kept
    _, found = run(monkeypatch, Judge(5.0, 4.0, 5.5), 2)
    assert [one.kept for one in found] == [False, True] and found[1].before == 5.0
    assert found[1].compared > found[0].compared


def test_the_same_seed_gives_the_same_weights(monkeypatch):
    held_out = HeldOut(small_world(), 2, worlds.attributor)
    (one, first), (other, again) = (run(monkeypatch, held_out, 1) for _ in range(2))
    assert first == again and same(one.state_dict(), other.state_dict())
    assert np.isfinite(first[0].after)
