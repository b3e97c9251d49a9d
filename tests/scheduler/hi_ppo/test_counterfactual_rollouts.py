"""Choices are compared under the same luck, and what was worth more is preferred."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attribution_sched.cluster.reward import SIGNS
from attribution_sched.scheduler.hi_ppo import candidates, counterfactual_rollouts
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch, field_arrays, restore_field
from attribution_sched.scheduler.hi_ppo.counterfactual_rollouts import MOST, UNIT, compare, prefer
from attribution_sched.scheduler.hi_ppo.decode import decode
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor, judge
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

from . import worlds
from .tiny_courses import small_world


@pytest.fixture(scope="module")
def stage():
    """A network, clusters in the middle of their episodes, and copies to play in."""
    world = small_world()
    field = ClusterBatch(world, 6, 0, worlds.attributor)
    for _ in range(5):
        field.step(ShortestFirst())
    return worlds.network(1, scale=10.0), field, ClusterBatch(world, 16, 99, worlds.attributor)


def compared(stage, seed=0, **options):
    network, field, copies = stage
    found = compare(network, field, copies, ShortestFirst(), np.random.default_rng(seed), **options)
    assert found is not None
    return found


def test_every_decision_has_its_own_choice_first_and_others_that_differ(stage):
    network, field, _ = stage
    found = compared(stage)
    own = decode(field.planner, field.decisions(), NetworkActor(network, None))
    sizes = np.diff(found.starts)
    assert (sizes >= 2).all() and found.starts[-1] == len(found.worth) == len(found.trace.task)
    assert (found.worth[found.starts[:-1]] == 0.0).all()
    assert set(found.trace.task[found.starts[:-1]]) <= set(own.trace.task)
    assert np.abs(found.worth).max() <= MOST and (found.worth != 0.0).any()


def test_clusters_stay_as_they_are_and_the_same_seed_gives_the_same(stage):
    before = field_arrays(stage[1])
    first, again, other = compared(stage, 3), compared(stage, 3), compared(stage, 4)
    after = field_arrays(stage[1])
    assert all(np.array_equal(before[name], after[name]) for name in before if not name.startswith("forecast"))
    assert np.array_equal(first.worth, again.worth)
    assert not np.array_equal(first.worth, other.worth)


def test_choices_meet_the_same_arrivals(stage):
    """Copies that go on alike earn alike to the last bit, whatever number they have; other streams earn otherwise."""
    _, field, copies = stage
    kept, rows = field_arrays(field), np.zeros(copies.clusters, dtype=np.int64)
    streams = np.random.default_rng(0).integers(1, 2**63, size=(1, 2, 4), dtype=np.uint64)
    counterfactual_rollouts._set(copies, kept, rows, streams)
    _, total = counterfactual_rollouts._play(copies, ShortestFirst(), ShortestFirst(), 8.0)
    assert (total == total[0]).all()
    counterfactual_rollouts._set(
        copies, kept, rows, streams + np.arange(copies.clusters, dtype=np.uint64)[:, None, None]
    )
    _, total = counterfactual_rollouts._play(copies, ShortestFirst(), ShortestFirst(), 8.0)
    assert len(set(total.tolist())) > 1


def test_worth_is_what_is_earned_more(stage, monkeypatch):
    """Doing nothing, played by hand in copies of the copies."""
    monkeypatch.setattr(counterfactual_rollouts, "TRIED", np.array([counterfactual_rollouts.OWN, candidates.NOTHING]))
    monkeypatch.setattr(counterfactual_rollouts, "MOST", np.inf)
    network, field, copies = stage
    found = compared(stage, 5, futures=1)
    rng = np.random.default_rng(5)
    rng.random(2 * field.clusters)
    streams = rng.integers(1, 2**63, size=(field.clusters, 1, 2, 4), dtype=np.uint64)
    own = decode(field.planner, field.decisions(), NetworkActor(network, None)).trace.task
    acting = np.flatnonzero(own < field.decisions().kind.shape[1])
    assert len(found.starts) - 1 == len(acting) > 0

    class Idle(NetworkActor):
        def task(self, state):
            return np.full(len(super().task(state)), state.mask.shape[1] - 1)

    earned = []
    for first in (NetworkActor(network, None), Idle(network, None)):
        # Every copy of the batch stands for the first cluster that acts.
        rows = np.full(copies.clusters, acting[0])
        counterfactual_rollouts._set(copies, field_arrays(field), rows, streams[rows, 0])
        until = copies.engine.state.clock[0, 0] + 8 * 3600.0
        move, total = copies.step(first), 0.0
        total += float((SIGNS * copies.engine.weights[0] * move.terms[0]).sum())
        while not move.ended[0] and copies.engine.state.clock[0, 0] < until:
            move = copies.step(ShortestFirst())
            total += float((SIGNS * copies.engine.weights[0] * move.terms[0]).sum())
        earned.append(total)
    assert found.worth[1] == pytest.approx((earned[1] - earned[0]) / UNIT)


def test_what_is_worth_more_becomes_likelier_and_holding_keeps_the_own_choice(stage):
    found = compared(stage)
    liked = np.full(len(found.worth), -0.1)
    liked[found.starts[:-1] + 1], liked[found.starts[:-1]] = 0.5, 0.0

    def share(network):
        with torch.no_grad():
            told = judge(network, found.trace)
        return (told.upper + told.lower).numpy()

    for hold, wins in ((0.0, True), (5.0, False)):
        network = worlds.network(1, scale=10.0)
        before = share(network)
        reached = prefer(network, [replace(found, worth=liked)], [], 30, 3e-3, np.random.default_rng(0), hold=hold)
        after = share(network)
        gain = (after - before)[found.starts[:-1] + 1] - (after - before)[found.starts[:-1]]
        assert (gain.mean() > 0.1) == wins
        assert (reached[-1] > reached[0]) == wins


def test_a_field_without_choices_compares_nothing(stage, monkeypatch):
    monkeypatch.setattr(counterfactual_rollouts, "TRIED", np.array([counterfactual_rollouts.OWN]))
    network, field, copies = stage
    kept = field_arrays(field)
    assert compare(network, field, copies, ShortestFirst(), np.random.default_rng(0)) is None
    restore_field(field, kept)
