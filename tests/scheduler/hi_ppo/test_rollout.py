"""Advantages of a rollout, truncation included, by hand."""

import numpy as np
import torch

from attribution_sched.scheduler.hi_ppo import rollout
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.constraints import DualAscent, Multipliers

from . import worlds
from .tiny_courses import small_world


def test_targets_are_bootstrapped_by_the_final_state_where_an_episode_is_cut_off(monkeypatch):
    told = {}
    real = rollout.gae

    def spy(rewards, values, ended, final, gamma, lam):
        told.update(rewards=rewards, values=values, ended=ended, final=final)
        return real(rewards, values, ended, final, gamma, lam)

    monkeypatch.setattr(rollout, "gae", spy)
    field = ClusterBatch(small_world(), 3, 0)
    source, free = torch.Generator().manual_seed(0), Multipliers.start(("bandwidth", "balance"))
    found = rollout.collect(worlds.network(0), field, 40, source, 0.9, 0.8, 0.0, free)
    ended, final, values, rewards = told["ended"], told["final"], told["values"], told["rewards"]
    assert ended.any() and final[ended].any() and not final[~ended].any()
    later, expected = np.zeros(rewards.shape[1:]), np.empty_like(rewards)
    for t in range(39, -1, -1):
        over = ended[t][:, None]
        after = np.where(over, final[t], values[t + 1])
        later = rewards[t] + 0.9 * after - values[t] + 0.9 * 0.8 * np.where(over, 0.0, later)
        expected[t] = later
    assert np.allclose(found.returns, (expected + values[:-1]).reshape(-1, 3))
    weights = np.array([1.0, 0.5, -0.5])
    assert np.allclose(found.advantage, (expected * weights).sum(axis=-1).ravel())
    assert np.allclose(found.lower_advantage, found.advantage)


def test_prices_of_constraints_tell_plans_apart_and_never_favour_doing_nothing(monkeypatch):
    seen = []
    real = ClusterBatch.step

    def spy(field, chooser):
        seen.append(real(field, chooser))
        return seen[-1]

    monkeypatch.setattr(ClusterBatch, "step", spy)

    def told(price):
        seen.clear()
        multipliers = Multipliers.start(("bandwidth", "balance"), DualAscent(cap=10.0), value=price)
        source = torch.Generator().manual_seed(0)
        found = rollout.collect(
            worlds.network(0), ClusterBatch(small_world(), 3, 0), 60, source, 0.9, 0.8, 0.0, multipliers
        )
        return found.advantage, np.array([move.agents > 0 for move in seen]).ravel(), list(seen)

    free, some, _ = told(0.0)
    priced, again, moves = told(5.0)
    assert np.array_equal(some, again) and some.any() and not some.all()
    taken_off = free - priced
    assert not taken_off[~some].any()
    assert np.isclose(taken_off[some].mean(), 0.0)
    broken = np.array([5.0 * (move.violations["bandwidth"] + move.violations["balance"]) for move in moves]).ravel()
    assert broken[some].std() > 0.1
    assert np.allclose(taken_off[some], broken[some] - broken[some].mean())
