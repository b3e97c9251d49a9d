"""Spaces, masks and actions of the two views."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.codecs import CrossDomainCodec, TestbedCodec
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain
from attribution_sched.errors import PlanError, SettingsError

from .engine_worlds import (
    BERT,
    SERVE,
    act,
    begun,
    chain,
    decide,
    random_actions,
    single,
    testbed_world,
    tiny_cluster,
    tiny_world,
    traced,
)

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)


def parts(codec, e=0):
    """The mask of the first segment, choice by choice."""
    row = codec.masks()[e][: sum(codec.choices)]
    return np.split(row, np.cumsum(codec.choices)[:-1])


def flat(engine, rows):
    return rows.reshape(engine.clusters, -1)


# The cross-domain view


def test_the_mask_has_one_entry_per_choice_of_every_segment():
    codec = CrossDomainCodec(begun(tiny_world(), clusters=3))
    assert codec.masks().shape == (3, int(codec.action_space.nvec.sum()))
    assert codec.masks().dtype == np.bool_
    first = codec.masks()[0].reshape(3, -1)
    assert (first == first[0]).all()


def test_masks_follow_the_task_and_the_free_devices():
    engine = begun(traced((0, LONG), (0, LONG), (0, SERVE), kinds=(LONG, SERVE), share_limit=1))
    codec = CrossDomainCodec(engine)
    domains, stops, layouts, precisions, batches = parts(codec)
    assert domains.all()
    assert np.flatnonzero(stops).tolist() == list(range(1, len(LONG.model) + 1))
    assert layouts.all()
    assert precisions.tolist() == [True, True, True, False]
    assert batches.all()
    decide(engine, single(LONG, 1, 4))
    assert parts(codec)[0].tolist() == [True, False, True, True]
    decide(engine, Plan((chain(LONG, (0, 6, 2), (2, -1, 2)),)))
    domains, _, layouts, precisions, _ = parts(codec)
    assert domains.tolist() == [True, False, True, True]
    assert (layouts == (engine.layouts[:, :3].prod(axis=1) <= 2)).all()
    assert precisions.all()


def test_with_sharing_a_busy_device_is_open_to_sharing_layouts_only():
    engine = begun(traced((0, LONG), (0, LONG), kinds=(LONG,), cluster=tiny_cluster(2, 2), max_segments=2))
    decide(engine, Plan((chain(LONG, (0, 6, 2), (1, -1, 2)),)))
    domains, _, layouts, _, _ = parts(CrossDomainCodec(engine))
    assert domains.all()
    assert (layouts == (engine.layouts[:, 3] == 1)).all()


def test_when_nothing_is_free_only_waiting_is_left():
    engine = begun(
        traced((0, LONG), (0, LONG), kinds=(LONG,), cluster=tiny_cluster(1, 1), max_segments=1, share_limit=1)
    )
    decide(engine, single(LONG))
    assert parts(CrossDomainCodec(engine))[0].tolist() == [False, True]


def test_a_running_task_may_stay_or_go_where_there_is_room_but_not_where_others_sit():
    late = replace(LONG, epoch_steps=10**6)
    engine = begun(traced((0, late), (0, LONG), kinds=(LONG, late), share_limit=1, max_running=2))
    engine.pool.kinds[:] = [1, 0]
    engine.arrays.pool[:, st.P_KIND] = [1, 0]
    decide(engine, single(late, 1, 4))
    decide(engine, single(LONG, 0, 4))
    assert engine.state.event[0, st.EVENT] == st.REPLAN
    domains, _, layouts, _, _ = parts(CrossDomainCodec(engine))
    assert domains.tolist() == [True, False, True, True]
    assert layouts.all()


def test_what_is_carried_out_was_never_masked_out():
    """The mask errs on the side of allowing: no accepted action uses a choice it forbids."""
    engine = begun(tiny_world(tiny_cluster(2, 4), max_segments=2), seed=3)
    codec, rng, accepted = CrossDomainCodec(engine), np.random.default_rng(5), 0
    for _ in range(150):
        if engine.state.event[0, st.DONE]:
            engine.reset()
            continue
        rows = random_actions(engine, rng, wild=0.3)
        mask = parts(codec)
        engine.step(rows)
        if engine.decisions()["code"][0] <= 0:
            continue
        accepted += 1
        for row in rows[0]:
            if row[0] == 2:
                break
            assert all(mask[c][row[c]] for c in range(5))
    assert accepted > 20


def test_precisions_no_domain_knows_are_masked():
    cluster = tiny_cluster(2)
    old = tuple(replace(domain, gpu=gpu("V100-32")) for domain in cluster.domains)
    world = traced((0, LONG), (1, SERVE), kinds=(LONG, SERVE), cluster=replace(cluster, domains=old))
    codec = CrossDomainCodec(begun(world))
    allowed = parts(codec)[3]
    assert not allowed[Precision.BF16.index]
    assert not allowed[Precision.INT8.index]
    assert allowed[Precision.FP16.index]


def test_observations_lie_in_their_space_even_on_very_fast_links():
    names = ("d0", "d1")
    wan = Wan.uniform(names, gbps=50_000.0, latency_s=0.02, usd_per_gb=0.08)
    cluster = Cluster(tuple(Domain(name, gpu("A100-80"), 6) for name in names), wan)
    codec = CrossDomainCodec(begun(tiny_world(cluster)))
    seen = {name: value[0] for name, value in codec.observe().items()}
    assert codec.observation_space.contains(seen)


@pytest.mark.parametrize(
    ("action", "rule"),
    [
        (np.zeros((1, 14), dtype=np.int64), r"must have shape \(1, 15\)"),
        (np.zeros((2, 15), dtype=np.int64), r"must have shape \(1, 15\)"),
        (np.full((1, 15), 0.5), "whole numbers"),
        (np.full((1, 15), np.nan), "whole numbers"),
    ],
)
def test_actions_of_the_wrong_form_are_one_clear_error(action, rule):
    with pytest.raises(PlanError, match=rule):
        CrossDomainCodec(begun(tiny_world())).decode(action)


def test_an_attributor_says_what_is_shown_and_without_one_it_is_nothing():
    engine = begun(tiny_world())
    assert (CrossDomainCodec(engine).observe()["attribution"] == 0.0).all()
    codec = CrossDomainCodec(engine, lambda counters: np.full((len(counters), 7), -0.5))
    assert (codec.observe()["attribution"] == -0.5).all()


@pytest.mark.parametrize("wrong", [np.zeros((3, 7)), np.zeros((1, 6)), np.full((64, 7), 1.5), np.full((64, 7), np.nan)])
def test_an_attributor_that_gives_something_else_is_refused(wrong):
    engine = begun(tiny_world())
    with pytest.raises(SettingsError, match=r"attributor = .*must give numbers in \[-1, 1\]"):
        CrossDomainCodec(engine, lambda counters: wrong)


# The four-device view


@pytest.mark.parametrize("budget_w", [None, 500.0])
def test_testbed_masks_are_exact(budget_w):
    """What the mask allows is carried out, what it forbids is refused, over many random steps."""
    small = tiny_cluster(1, node_devices=4, motion={"spread": 0.0}, power_budget_w=budget_w)
    small = replace(small, domains=(replace(small.domains[0], gpu=gpu("V100-16")),))
    engine = begun(testbed_world(cluster=small, arrivals=None), seed=1)
    codec, rng = TestbedCodec(engine), np.random.default_rng(0)
    every = np.ones(1, dtype=np.bool_)
    codec.settle(every)
    partly = 0
    for _ in range(120):
        if engine.state.event[0, st.DONE]:
            engine.reset()
            codec.settle(every)
        mask = codec.masks()[0]
        assert mask.any()
        partly += not mask.reshape(4, 16).any(axis=1).all()
        rows, devices = codec._rows(np.arange(64), np.repeat(engine.pending_kind(), 64))
        codes = engine.probe(0, rows, devices)["code"]
        assert ((codes == 1) == mask).all()
        chosen, forced = codec.decode(np.array([rng.choice(np.flatnonzero(mask))]))
        engine.step(chosen, forced)
        assert engine.decisions()["code"][0] == 1
        codec.settle(every)
    assert engine.totals()["rejected"][0] == 0
    assert partly > 0


def test_a_testbed_action_names_device_precision_and_batch():
    engine = begun(testbed_world(kinds=(LONG,)))
    codec = TestbedCodec(engine)
    rows, devices = codec.decode(np.array([2 * 16 + 1 * 4 + 3]))
    assert devices.tolist() == [2]
    assert rows[0, 0].tolist()[3:] == [1, 3]
    engine.step(rows, devices)
    assert engine.state.occupant[0, 0, 2, 0] == 0
    (segment,) = engine.running_plan(0, 0).segments
    assert segment.precision is Precision.FP16
    assert engine.running_plan(0, 0).replicas[0].microbatch == LONG.microbatches[3]


def test_settling_passes_over_reviews_and_over_tasks_nobody_can_take():
    full = traced(
        *[(0, LONG)] * 5, kinds=(LONG,), cluster=tiny_cluster(1, 4), share_limit=1, retry_s=100.0, max_segments=1
    )
    engine = begun(full)
    codec = TestbedCodec(engine)
    for device in range(4):
        engine.step(*codec.decode(np.array([device * 16])))
    assert engine.state.event[0, st.EVENT] == st.PLACE
    assert not codec.masks().any()
    rewards, terms = codec.settle(np.ones(1, dtype=np.bool_))
    # The devices stay full to the end, so the episode runs out; what it earned meanwhile is handed on.
    assert engine.state.event[0, st.DONE] == 1
    assert rewards[0] == pytest.approx(terms[0] @ [1.0, 0.5, -0.5])
    assert terms[0, 0] != 0.0


@pytest.mark.parametrize("action", [[64], [-1], [0, 1], [0.5]])
def test_a_testbed_action_out_of_range_is_one_clear_error(action):
    with pytest.raises(PlanError, match="actions"):
        TestbedCodec(begun(testbed_world())).decode(np.array(action))


def test_the_testbed_is_one_domain_of_four_devices():
    for cluster in (tiny_cluster(2), tiny_cluster(1, 8)):
        with pytest.raises(SettingsError, match="one domain of 4 devices"):
            TestbedCodec(Engine(tiny_world(cluster)))


def test_flat_actions_are_the_rows_of_the_engine():
    engine = begun(tiny_world())
    kind = engine.world.kinds[int(engine.pending_kind()[0])]
    rows = act(engine, single(kind))[None]
    assert np.array_equal(CrossDomainCodec(engine).decode(flat(engine, rows))[0], rows)
