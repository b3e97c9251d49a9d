"""The named baseline: the static uniform split, against which R_eff is 0 and R_cost is 1."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as hs

from attribution_sched.cluster.baseline import baseline_plan, uniform_split
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.precision import Precision
from attribution_sched.cluster.world import Reward

from .engine_worlds import BERT, GPT2, begun, decide, single, testbed_world, tiny_cluster, tiny_world, traced


@given(hs.integers(1, 120), hs.integers(1, 64))
def test_a_uniform_split_covers_the_chain_in_parts_of_nearly_equal_length(layers, parts):
    parts = min(layers, parts)
    runs = uniform_split(layers, parts)
    assert runs[0][0] == 0
    assert runs[-1][1] == layers
    assert all(before[1] == after[0] for before, after in pairwise(runs))
    lengths = [stop - first for first, stop in runs]
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 2


def test_the_baseline_uses_every_domain_with_data_parallelism_first():
    world = tiny_world()
    plan = baseline_plan(world, BERT)
    plan.check(len(BERT.model), 3)
    assert plan.domains == (0, 1, 2)
    assert [(s.dp, s.tp, s.pp) for s in plan.segments] == [(4, 1, 1)] * 3
    assert {s.precision for s in plan.segments} == {Precision.FP16}
    assert plan.samples == BERT.batch_size


def test_with_more_domains_than_layers_the_first_ones_are_used():
    layers = len(BERT.model)
    world = tiny_world(tiny_cluster(layers + 3, 1))
    plan = baseline_plan(world, BERT)
    plan.check(layers, layers + 3)
    assert plan.domains == tuple(range(layers))


def test_on_one_domain_a_task_runs_on_one_device_in_single_precision():
    plan = baseline_plan(testbed_world(), BERT)
    (segment,) = plan.segments
    assert (segment.device_count, segment.precision) == (1, Precision.FP32)


@pytest.mark.parametrize("kind", [BERT, GPT2])
@pytest.mark.parametrize("priced", [False, True])
def test_the_baseline_itself_earns_no_efficiency_and_costs_one(kind, priced):
    reward = Reward(energy_usd_per_kwh=0.1 * priced, carbon_usd_per_kg=0.05 * priced, per_decision=True)
    engine = begun(traced((0, kind), reward=reward, max_segments=3))
    _, terms = decide(engine, baseline_plan(engine.world, kind))
    assert engine.decisions()["code"][0] == 1
    assert terms[0, 0] == pytest.approx(0.0, abs=1e-12)
    assert terms[0, 2] == pytest.approx(1.0, rel=1e-12)


def test_where_no_traffic_leaves_and_energy_has_no_price_there_is_no_cost():
    for price in (0.0, 0.2):
        reward = Reward(per_decision=True, energy_usd_per_kwh=price)
        still = tiny_cluster(1, motion={"spread": 0.0})
        engine = begun(traced((0, BERT), cluster=still, reward=reward, max_segments=1))
        assert (engine.arrays.kinds[0, st.K_BASE_COST] > 0.0) == (price > 0.0)
        _, terms = decide(engine, single(BERT))
        assert (terms[0, 2] > 0.0) == (price > 0.0)


def test_the_baseline_knows_nothing_of_the_present_network():
    slow = tiny_cluster(motion={"spread": 0.25})
    first = begun(tiny_world(slow), seed=1).arrays.kinds
    second = begun(replace(tiny_world(slow), idiosyncrasy=0.0), seed=2).arrays.kinds
    assert (first[:, st.K_BASE_STEP] == second[:, st.K_BASE_STEP]).all()
