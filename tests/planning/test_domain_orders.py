"""Pipelines over several domains: cuts, orders, layouts."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, MICROBATCHES, PP, STOP, TP, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.planning.domain_orders import (
    all_orders,
    best_by_domains,
    chain_plans,
    connected_orders,
    proportional_cuts,
    uniform_cuts,
)
from attribution_sched.planning.instance import Instance
from tests.cluster.engine_worlds import BERT, begun, tiny_cluster, traced
from tests.scheduler.states import mixed_cluster

SPEEDS = hs.lists(hs.floats(0.01, 100.0), min_size=1, max_size=6)


def instance_of(**changes):
    return Instance.of(view(begun(traced((0, BERT), kinds=(BERT,), **changes))))


@given(SPEEDS, hs.integers(6, 120))
@settings(deadline=None, max_examples=100)
def test_cuts_cover_the_model_and_leave_nobody_without_a_layer(speeds, n_layers):
    stops = proportional_cuts(speeds, n_layers)
    lengths = np.diff(stops, prepend=0)
    assert stops[-1] == n_layers
    assert (lengths >= 1).all()
    share = n_layers * np.array(speeds) / sum(speeds)
    if (share >= 1.5).all():
        assert (np.abs(lengths - share) <= 1.0).all()


def test_cuts_of_many_chains_at_once_are_the_cuts_of_each():
    speeds = np.random.default_rng(0).uniform(0.1, 3.0, size=(20, 4))
    together = proportional_cuts(speeds, 33)
    assert together.tolist() == [proportional_cuts(row, 33).tolist() for row in speeds]
    assert proportional_cuts([1.0, 3.0], 12).tolist() == [3, 12]


@given(hs.integers(1, 8), hs.integers(8, 100))
@settings(deadline=None)
def test_even_cuts_differ_by_one_layer_at_most(parts, n_layers):
    lengths = np.diff(uniform_cuts(parts, n_layers), prepend=0)
    assert lengths.sum() == n_layers
    assert lengths.max() - lengths.min() <= 1


def test_few_domains_give_every_order():
    instance = instance_of(cluster=tiny_cluster(4))
    found = connected_orders(instance, 3, 100)
    assert sorted(map(tuple, found.tolist())) == sorted(permutations(range(4), 3))
    assert sorted(map(tuple, all_orders(range(4), 3).tolist())) == sorted(permutations(range(4), 3))
    closed = replace(instance, free_devices=np.array([4, 0, 4, 0]))
    assert sorted(map(tuple, connected_orders(closed, 2, 100).tolist())) == [(0, 2), (2, 0)]


def test_of_many_orders_the_best_connected_stay():
    instance = instance_of(cluster=tiny_cluster(5))
    links = np.full((5, 5), 1.0)
    links[3, 1] = links[1, 3] = 9.0
    links[1, 4] = links[4, 1] = 8.0
    # A link that is wide one way only is no better than its narrow way.
    links[0, 2] = 50.0
    given = replace(instance, bandwidth_gbps=links)
    assert sorted(map(tuple, connected_orders(given, 2, 2).tolist())) == [(1, 3), (3, 1)]
    assert sorted(map(tuple, connected_orders(given, 3, 2).tolist())) == [(3, 1, 4), (4, 1, 3)]


@pytest.mark.parametrize("even", [True, False])
def test_plans_are_well_formed_and_fit_their_rooms(even):
    instance = replace(instance_of(cluster=mixed_cluster()), free_devices=np.array([3, 8, 2]))
    batch = chain_plans(instance, all_orders(range(3), 2), even=even)
    rows = batch.segments
    assert len(batch) > 50
    for i in range(0, len(batch), 7):
        batch.plan(i).check(instance.n_layers, 3)
    assert (rows[:, :, [DP, TP, PP]].prod(axis=2) <= instance.free_devices[rows[:, :, DOMAIN]]).all()
    assert (rows[:, :, TP] <= instance.nodes[rows[:, :, DOMAIN]]).all()
    assert (rows[:, :, MICROBATCH] * rows[:, :, MICROBATCHES] == 32).all()
    # Different GPU types may differ in tensor parallelism.
    assert (rows[:, 0, TP] != rows[:, 1, TP]).any()


def test_layers_follow_speed():
    instance = replace(instance_of(), free_devices=np.array([4, 1, 4]))
    rows = chain_plans(instance, np.array([[0, 1]])).segments
    deep = rows[(rows[:, 0, PP] == 4) & (rows[:, 0, DP] == 1)]
    layers = deep[0, :, STOP] - deep[0, :, FIRST]
    assert layers.tolist() == [11, 3]
    level = chain_plans(instance, np.array([[0, 1]]), even=True).segments
    assert (level[:, 0, STOP] == 7).all()


def test_faster_hardware_gets_more_layers():
    instance = replace(instance_of(cluster=mixed_cluster()), free_devices=np.array([1, 1, 1]))
    alike = chain_plans(instance, np.array([[0, 1], [1, 0]])).segments
    layers = alike[:, :, STOP] - alike[:, :, FIRST]
    newer = np.where(alike[:, :, DOMAIN] == 0, layers, 0).sum(axis=1)
    assert (newer > 0.6 * instance.n_layers).all()


def test_nothing_fits_where_there_is_no_room_or_too_few_layers():
    instance = instance_of()
    assert len(chain_plans(instance, np.empty((0, 2), dtype=np.int64))) == 0
    assert len(chain_plans(replace(instance, free_devices=np.array([4, 0, 4])), np.array([[0, 1]]))) == 0


def test_every_set_of_domains_has_its_own_best_cut_the_best_one_first():
    seen = view(begun(traced((0, BERT), kinds=(BERT,), cluster=tiny_cluster(3))))
    found = best_by_domains(seen)
    sets = [frozenset(plan.domains) for plan in found]
    assert sorted(map(sorted, sets)) == [[0, 1], [0, 1, 2], [0, 2], [1, 2]]
    worth = value(seen, PlanBatch.of(found, seen.max_segments)).reward
    assert (np.diff(worth) <= 0.0).all()
    instance = Instance.of(seen)
    for plan, own in zip(found, worth, strict=True):
        orders = all_orders(sorted(plan.domains), len(plan.domains))
        assert own == value(seen, chain_plans(instance, orders)).reward.max()


def test_a_domain_without_room_is_in_no_cut():
    seen = view(begun(traced((0, BERT), kinds=(BERT,), cluster=tiny_cluster(3))))
    free = np.array(seen.free_devices)
    free[1] = 0
    assert [sorted(plan.domains) for plan in best_by_domains(replace(seen, free_devices=free))] == [[0, 2]]
