"""Plans inside one domain, the cluster's share rule, and why plans are refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import decode
from attribution_sched.cluster.gpus import PRECISIONS, Precision
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    MICROBATCH,
    MICROBATCHES,
    PP,
    TP,
    Plan,
    PlanBatch,
    Replica,
    Segment,
)
from attribution_sched.cluster.reward import value
from attribution_sched.errors import PlanError
from attribution_sched.planning.candidates import as_carried_out, best_of, feasible, join
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.segment_table import first_twins, single_domain_plans
from tests.cluster.engine_worlds import (
    BERT,
    GPT2,
    SERVE,
    begun,
    chain,
    decide,
    random_actions,
    random_plan,
    single,
    tiny_cluster,
    traced,
)
from tests.scheduler.states import mixed_cluster, small_worlds


def at_start(kind=BERT, **changes):
    return view(begun(traced((0, kind), kinds=(kind,), **changes)))


def test_every_layout_and_level_is_there_once():
    seen = at_start()
    plans = {single_domain_plans(seen).plan(i) for i in range(len(single_domain_plans(seen)))}
    expected = {
        Plan((Replica((Segment(d, 0, len(BERT.model), dp, tp, pp, Precision.BF16),), micro, 32 // micro),))
        for d in range(3)
        for micro in BERT.microbatches
        for dp in (1, 2, 4)
        for tp in (1, 2)
        for pp in (1, 2, 4)
        if dp * tp * pp <= 4
    }
    assert plans == expected
    assert len(single_domain_plans(seen)) == len(expected)


@given(hs.lists(hs.integers(0, 9), min_size=3, max_size=3))
@settings(deadline=None, max_examples=30)
def test_plans_keep_to_the_free_devices(free):
    seen = replace(at_start(GPT2), free_devices=np.array(free))
    rows = single_domain_plans(seen).segments[:, 0]
    assert (rows[:, [DP, TP, PP]].prod(axis=1) <= np.array(free)[rows[:, DOMAIN]]).all()
    assert (rows[:, MICROBATCH] % rows[:, DP] == 0).all()
    assert set(rows[:, DOMAIN].tolist()) == {d for d in range(3) if free[d]}


def test_inference_tries_every_format_and_training_the_best_half():
    serving = single_domain_plans(at_start(SERVE))
    assert {serving.plan(i).segments[0].precision for i in range(len(serving))} == set(Precision)
    mixed = at_start(cluster=mixed_cluster())
    batch = single_domain_plans(mixed)
    formats = {s.domain: s.precision for i in range(len(batch)) for s in batch.plan(i).segments}
    assert formats == {0: Precision.BF16, 1: Precision.FP16, 2: Precision.BF16}


def test_another_kind_and_chosen_domains():
    engine = begun(traced((0, BERT), (0, GPT2), kinds=(BERT, GPT2)))
    batch = single_domain_plans(view(engine), kind_index=1, domains=[2])
    assert set(batch.segments[:, 0, DOMAIN].tolist()) == {2}
    assert set(batch.segments[:, 0, MICROBATCH].tolist()) == set(GPT2.microbatches)


@pytest.mark.parametrize("world", ["equal", "mixed"])
def test_the_share_rule_is_the_clusters(world):
    engine = begun(small_worlds()[world])
    rng = np.random.default_rng(5)
    several = 0
    for _ in range(200):
        index = int(rng.integers(len(engine.world.kinds)))
        kind = engine.world.kinds[index]
        plan = random_plan(rng, engine.world, kind)
        rows = np.zeros((engine.world.max_segments, 11), dtype=np.int64)
        count, code = decode(engine.arrays, index, encode(engine, plan, index), rows)
        if code < 0:
            continue
        found = engine.cost.microbatch_counts(index, kind.batch_size, PlanBatch.of([plan]))
        assert found[0].tolist() == rows[:count, MICROBATCHES].tolist()
        carried = as_carried_out(engine.cost, index, kind.batch_size, plan)
        assert [r.microbatches for r in carried.replicas] == [
            int(rows[rows[:count, 7].tolist().index(r), MICROBATCHES]) for r in range(len(plan.replicas))
        ]
        several += len(plan.replicas) > 1
    assert several > 20


def verdict(engine, plan, kind_index):
    """Whether the cluster would carry a plan out."""
    try:
        rows = encode(engine, plan, kind_index)
    except PlanError:
        return False
    return bool(engine.probe(0, rows[None])["code"][0] >= 0)


@pytest.mark.parametrize("world", ["equal", "mixed", "giant"])
def test_it_is_feasible_exactly_when_the_cluster_says_so(world):
    engine, rng = begun(small_worlds()[world]), np.random.default_rng(11)
    seen_both = set()
    for _ in range(150):
        if engine.state.event[0, st.DONE]:
            engine.reset()
            continue
        seen = view(engine)
        plan = random_plan(rng, engine.world, seen.kind)
        if rng.random() < 0.5:
            first = plan.replicas[0]
            dp, precision = 2 ** int(rng.integers(4)), PRECISIONS[rng.integers(4)]
            changed = replace(first.segments[0], dp=dp, precision=precision)
            plan = Plan((replace(first, segments=(changed, *first.segments[1:])), *plan.replicas[1:]))
        accepted = verdict(engine, plan, seen.kind_index)
        assert (feasible(seen, plan) is None) == accepted, feasible(seen, plan)
        seen_both.add(accepted)
        engine.step(random_actions(engine, rng))
    assert seen_both == {True, False}


def test_refusals_name_the_reason():
    seen = at_start()
    assert feasible(seen, single(BERT)) is None
    assert "devices wanted in d0" in feasible(seen, single(BERT, 0, 8, 1, 1))
    assert "layout" in feasible(seen, single(BERT, 0, 1, 4, 1))
    assert "INT8" in feasible(seen, Plan((Replica((Segment(0, 0, 14, precision=Precision.INT8),), 32, 1),)))
    assert "microbatch 16" in feasible(
        replace(seen, kind=replace(BERT, microbatches=(1, 2, 4, 8))), single(BERT, micro=16)
    )
    assert "segments" in feasible(replace(seen, max_segments=1), Plan((chain(BERT, (0, 5), (1, -1)),)))
    assert "must divide" in feasible(seen, single(BERT, 0, 3, 1, 1))
    giant = at_start(small_worlds()["giant"].kinds[1])
    assert "memory" in feasible(giant, single(giant.kind, 0))
    old = at_start(cluster=mixed_cluster())
    assert "no hardware" in feasible(old, Plan((Replica((Segment(1, 0, 14, precision=Precision.BF16),), 32, 1),)))
    tight = at_start(cluster=tiny_cluster(2, 4, power_budget_w=300.0))
    assert "power" in feasible(tight, single(BERT, 0, 4, 1, 1))


def test_the_best_is_the_one_of_highest_reward():
    seen = at_start()
    batch = single_domain_plans(seen)
    reward = value(seen, batch).reward
    assert best_of(seen, batch) == batch.plan(int(reward.argmax()))
    assert best_of(seen, single_domain_plans(seen, domains=[])) is None
    giant = at_start(small_worlds()["giant"].kinds[1])
    assert best_of(giant, PlanBatch.of([single(giant.kind)])) is None


def test_batches_of_different_width_join():
    narrow, wide = single(BERT, 1), Plan((chain(BERT, (0, 4), (2, -1)),))
    both = join([PlanBatch.of([narrow]), PlanBatch.of([wide, wide])])
    assert [both.plan(i) for i in range(3)] == [narrow, wide, wide]


def test_twins_have_the_same_prices():
    engine = begun(traced((0, BERT), (0, BERT), kinds=(BERT,)))
    decide(engine, single(BERT, 1))
    seen = view(engine)
    assert first_twins(Instance.of(seen)) == [0, 1]
    prices = [value(seen, single_domain_plans(seen, domains=[d])).reward for d in (0, 2)]
    assert np.array_equal(*prices)
    full = replace(seen, free_devices=np.array([0, 3, 3]))
    assert first_twins(Instance.of(full)) == [1]
