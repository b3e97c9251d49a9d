"""The decisions on which schedulers are compared are what their descriptions say."""

import numpy as np
import pytest
from memory_tight_gaps import any_degree, changes, even_over_all, rules
from sailor_regions import PLANNERS, event_step_s
from scheduler_instances import (
    SAILOR_INSTANCES,
    SHAKE,
    TIGHT,
    chain_instance,
    memory_tight,
    model_of,
    room_ratio,
    stretched,
    two_regions,
)

from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.models.catalogue import profiled_model
from attribution_sched.cluster.regions import wan_between
from attribution_sched.planning.exact.solver import ExactSolver


@pytest.mark.parametrize("layers", [26, 35, 101])
def test_models_have_as_many_layers_as_asked(layers):
    assert len(model_of(layers)) == layers


def test_a_stretched_model_keeps_size_and_work():
    model = profiled_model("LLAMA-3-8")
    longer = stretched(model, 101)
    assert longer.params == pytest.approx(model.params, rel=1e-12)
    assert longer.forward_flops == pytest.approx(model.forward_flops, rel=1e-12)
    assert longer.column("activation_elements").sum() == pytest.approx(model.column("activation_elements").sum())
    # What a cut must send does not shrink with the layer.
    assert longer.layers[50].output_elements == model.layers[10].output_elements
    assert longer.name != model.name


def test_links_stay_within_their_range_and_seeds_give_the_same_decision():
    one, again, other = (chain_instance(26, 4, seed, 4) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.bandwidth_gbps, again.bandwidth_gbps)
    assert not np.array_equal(one.bandwidth_gbps, other.bandwidth_gbps)
    measured = wan_between(one.cost.cluster.wan.names).bandwidth_gbps
    ratio = one.bandwidth_gbps / measured
    assert ratio.min() >= 1 - SHAKE and ratio.max() <= 1 + SHAKE


def test_single_cards_leave_only_order_and_cuts():
    decision = chain_instance(35, 6, 0, 6, single=True)
    assert decision.free_devices.tolist() == [1] * 6
    assert len(decision.problem().options()) == 1


@pytest.mark.parametrize("k", [3, 5])
def test_tight_pools_hold_the_model_once_but_not_twice(k):
    for seed in range(12):
        decision = memory_tight(k, seed)
        assert TIGHT[0] <= room_ratio(decision.cost) < TIGHT[1]
        assert all(list(domain.gpu.peak_flops) == [Precision.FP32] for domain in decision.cost.cluster.domains)
        assert decision.cost.tables.measured.all()


def test_no_replica_fits_tight_pools():
    for seed in range(4):
        decision = memory_tight(3, seed)
        cut, both = (ExactSolver(200_000).try_solve(decision.problem(replicate=r)) for r in (False, True))
        assert (cut is None) == (both is None)
        assert both is None or len(both.plan.replicas) == 1


def test_no_rule_beats_the_optimum():
    decision = memory_tight(3, 1)
    best = ExactSolver().solve(decision.problem(replicate=False))
    assert best.proven
    found = dict(rules(decision))
    assert len(found) == 9
    assert min(found.values()) >= best.step_s * (1 - 1e-12)
    assert np.isfinite(min(found.values()))


def test_the_best_split_is_no_worse_than_the_one_over_all_domains():
    for seed in range(6):
        decision = memory_tight(3, seed)
        whole = even_over_all(decision)
        if np.isfinite(whole):
            assert dict(rules(decision))["even, best subset and order"] <= whole
    assert any_degree(decision, even=False) > 0


def test_the_network_moves_as_its_label_says():
    links = memory_tight(3, 0).bandwidth_gbps
    moved = dict(changes(links, np.random.default_rng(0)))
    draws, lowered, single = moved.values()
    assert len(draws) == 20 and len(lowered) == 1 and len(single) == 3
    np.testing.assert_allclose(lowered[0], 0.7 * links)
    for change in single:
        assert (change < links).sum() == 2


@pytest.mark.parametrize("name", SAILOR_INSTANCES)
def test_two_regions_are_as_published(name):
    decision = two_regions(name)
    model, *pools = SAILOR_INSTANCES[name]
    assert decision.cost.models[0].name == f"profiled {model}"
    assert decision.free_devices.tolist() == [count for _, count in pools]
    assert decision.cost.tables.measured.all()
    assert 4.0 < decision.bandwidth_gbps[0, 1] < 6.5


def test_the_event_simulation_confirms_cuts_and_replicas():
    decision = two_regions("i5", blocking=True)
    replicated, cut = (PLANNERS[name](decision) for name in ("exact", "exact, cuts only"))
    assert len(replicated.replicas) == 2
    for plan in (replicated, cut, PLANNERS["even"](decision)):
        assert event_step_s(decision, plan) == pytest.approx(decision.step_s(plan), rel=1e-12)


def test_a_policy_can_decide_outside_a_world():
    decision = two_regions("i1")
    plan = PLANNERS["MAST-style"](decision)
    assert plan is not None
    assert np.isfinite(decision.step_s(plan))
    assert decision.price(None)[0] == np.inf
