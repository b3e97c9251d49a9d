"""The single-level search in the manner of Sailor."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.decision import view
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime
from attribution_sched.planning.instance import Instance
from attribution_sched.rivals.sailor import Sailor, estimate_s, region_order, search
from tests.scheduler.states import GIANT, mixed_cluster

from ..cluster.engine_worlds import BERT, begun, chain, decide, single, tiny_cluster, traced

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)
STILL = {"spread": 0.0}


def pending(kind=LONG, **changes):
    return view(begun(traced((0, kind), kinds=(kind,), **changes)))


def alone(seen, free, **options):
    instance = replace(Instance.of(seen), free_devices=np.array(free), max_segments=len(free), **options)
    found = search(instance)
    return None if found is None else found.plan


def test_layers_are_split_evenly_over_stages():
    plan = alone(pending(GIANT, cluster=tiny_cluster(3, 4, motion=STILL)), [2, 2, 2])
    assert len(plan.segments) > 1
    n, stages = len(GIANT.model), sum(s.pp for s in plan.segments)
    at = 0
    for segment in plan.segments:
        assert segment.first == n * at // stages
        at += segment.pp
    assert len({s.dp for s in plan.segments}) == 1


def test_it_runs_alone_as_in_a_world():
    seen = pending(GIANT, cluster=tiny_cluster(3, 4, motion=STILL))
    assert alone(seen, seen.free_devices) == Sailor().decide(seen)


def test_what_it_returns_fits_the_cost_models_memory():
    for free in ([2, 2, 2], [4, 1, 1], [1, 8, 2], [0, 8, 0]):
        seen = pending(GIANT, cluster=mixed_cluster())
        plan = alone(seen, free)
        assert plan is None or seen.cost.score(plan, 0).fits[0]


def test_a_plan_that_only_even_stages_fit_is_left_out():
    # The best estimate deals layers evenly over two stages; cut by work, one of them outgrows its device.
    wan = Wan.uniform(("a",), gbps=5.0, latency_s=0.02, usd_per_gb=0.02)
    cluster = Cluster((Domain("a", gpu("V100-16"), 4, node_devices=4),), wan, Runtime())
    cost = CostModel(cluster, [model("gpt2-xl")])
    links = (np.array(wan.bandwidth_gbps), np.array(wan.latency_s))
    plan = search(Instance(cost, 0, 64, (1, 2, 4, 8, 16, 32), np.array([4]), *links, 1)).plan
    assert cost.score(plan).fits[0]


def test_nothing_that_fits_is_no_plan():
    seen = pending(GIANT, cluster=tiny_cluster(3, 1, motion=STILL))
    assert alone(seen, [1, 0, 0]) is None
    assert alone(seen, [0, 0, 0]) is None
    assert Sailor().decide(replace(seen, free_devices=np.array([1, 0, 0]))) is None


def test_the_format_may_be_given():
    seen = pending(cluster=mixed_cluster())
    assert {s.precision for s in alone(seen, [4, 8, 2], precision=Precision.FP32).segments} == {Precision.FP32}
    assert {s.precision for s in alone(seen, [4, 8, 2]).segments} == {Precision.FP16}


def test_the_best_estimate_is_that_of_the_blocking_formula():
    instance = Instance.of(pending(GIANT, cluster=tiny_cluster(3, 2, motion=STILL)))
    found = search(instance)
    assert found.step_s == pytest.approx(estimate_s(instance, found.plan), rel=1e-9)


def test_regions_are_visited_along_the_widest_links():
    instance = Instance.of(pending(cluster=tiny_cluster(4, motion=STILL)))
    links = np.full((4, 4), 1.0)
    for i, j, gbps in ((2, 0, 6.0), (2, 3, 5.0), (3, 1, 4.0)):
        links[i, j] = links[j, i] = gbps
    given = replace(instance, bandwidth_gbps=links)
    assert region_order(given).tolist() == [2, 0, 1, 3]
    assert region_order(replace(given, free_devices=np.array([1, 1, 0, 1]))).tolist() == [1, 3, 0]
    assert region_order(replace(given, free_devices=np.zeros(4, dtype=np.int64))).size == 0


def test_a_running_task_is_planned_again_only_when_resources_have_changed():
    engine = begun(traced((0, LONG), kinds=(LONG,)))
    rule = Sailor()
    first = rule.decide(view(engine))
    assert first is not None
    slow = Plan((chain(LONG, (0, 6), (1, -1), micro=4),))
    decide(engine, slow)
    seen = view(engine)
    assert seen.replanning
    # The same devices are free as when it was placed.
    assert rule.decide(seen) is None
    other = replace(seen, free_devices=np.array([4, 4, 3]))
    assert rule.decide(other) == first
    assert rule.decide(other) is None
    rule.reset(0)
    assert rule.decide(other) is not None


def test_it_moves_for_its_own_estimate():
    engine = begun(traced((0, LONG), kinds=(LONG,)))
    decide(engine, Plan((chain(LONG, (0, 6), (1, -1), micro=4),)))
    seen = view(engine)
    assert search(Instance.of(seen)).step_s < estimate_s(Instance.of(seen), seen.current_plan)
    assert Sailor().decide(seen) is not None
    best = search(Instance.of(seen)).plan
    assert Sailor().decide(replace(seen, current_plan=best)) is None


def test_small_models_stay_in_one_region():
    assert len(alone(pending(), [4, 4, 4]).segments) == 1
    assert single(LONG).samples == alone(pending(), [4, 4, 4]).samples
