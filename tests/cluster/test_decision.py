"""Decisions as records, and plans as actions."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.attribution.vector import AttributionVector
from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import encode, from_view, pend, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.plan import Plan
from attribution_sched.errors import PlanError

from .engine_worlds import BERT, GPT2, begun, chain, decide, random_actions, single, tiny_world, traced

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)


def test_a_view_says_what_waits_and_what_is_free():
    engine = begun(traced((0, LONG), (0, GPT2), kinds=(LONG, GPT2)))
    seen = view(engine)
    assert seen.kind is LONG
    assert not seen.replanning
    assert seen.current_plan is None
    assert [(task.slot, task.kind_index, task.waited_s) for task in seen.queue] == [(seen.slot, 0, 0.0)]
    assert seen.free_devices.tolist() == [4, 4, 4]
    assert seen.steps_left == 100_000
    assert seen.samples_per_s == engine.pool.samples_per_s[engine.pending_pool()[0]] > 0.0
    decide(engine, single(LONG, 1, 2))
    after = view(engine)
    assert (after.kind_index, after.free_devices.tolist()) == (1, [4, 2, 4])
    assert np.array_equal(after.bandwidth_gbps[0, 1:], [5.0, 5.0])


def test_a_task_under_review_counts_its_own_devices_as_free():
    engine = begun(traced((0, LONG), kinds=(LONG,)))
    plan = Plan((chain(LONG, (0, 6, 2), (1, -1)),))
    decide(engine, plan)
    seen = view(engine)
    assert seen.replanning
    assert seen.current_plan == plan
    assert seen.free_devices.tolist() == [4, 4, 4]
    assert engine.free_devices()[0].tolist() == [2, 3, 4]
    assert engine.free_devices(own=True)[0].tolist() == [4, 4, 4]
    # Its own traffic does not stand in its way.
    assert seen.latency_s[0, 1] == seen.latency_s[0, 2] == 0.02
    assert seen.bandwidth_gbps[0, 1] == seen.bandwidth_gbps[0, 2] == 5.0


def test_the_traffic_of_others_takes_bandwidth_and_adds_latency():
    engine = begun(traced((0, LONG), (0, GPT2), kinds=(LONG, GPT2)))
    decide(engine, Plan((chain(LONG, (0, 6, 2), (1, -1)),)))
    seen = view(engine)
    assert seen.kind is GPT2
    assert seen.latency_s[0, 1] > 0.02 == seen.latency_s[0, 2]
    assert seen.bandwidth_gbps[0, 1] < 5.0 == seen.bandwidth_gbps[0, 2]


def test_a_policy_may_choose_whom_to_place_first():
    engine = begun(traced((0, LONG), (0, LONG), (0, GPT2), kinds=(LONG, GPT2)))
    # All three arrive at once but one after the other: the first two wait until the third is in.
    for _ in range(2):
        engine.step(encode(engine, None, 0)[None])
    seen = view(engine)
    last = seen.queue[-1]
    assert len(seen.queue) == 3
    pend(engine, last.slot)
    assert view(engine).kind is seen.kinds[last.kind_index]
    with pytest.raises(PlanError, match="must be a waiting task"):
        pend(engine, 11)


def test_with_nothing_to_decide_there_is_no_view():
    assert view(begun(tiny_world(arrivals=Poisson(1e-9)))) is None


def test_a_view_holds_counters_and_no_demand():
    engine, rng = begun(tiny_world()), np.random.default_rng(0)
    latent = np.unique(engine.pool.demands.factors)
    for _ in range(30):
        seen = view(engine)
        if seen is None:
            break
        assert np.array_equal(seen.counters, engine.pool.counters.values[int(engine.pending_pool()[0])])
        for field in dataclasses.fields(seen):
            value = getattr(seen, field.name)
            if isinstance(value, np.ndarray | float):
                assert not np.isin(value, latent).any(), field.name
        # What it prices plans with is the nominal task, the same for every instance.
        assert "demands" not in vars(seen.cost)
        engine.step(random_actions(engine, rng))


def test_a_plan_survives_the_way_through_an_action():
    engine = begun(traced((0, LONG), (0, LONG), kinds=(LONG,)))
    plan = Plan((chain(LONG, (2, 6, 2, 1, 2), (0, -1, 1, 2)), chain(LONG, (1, -1, 4), micro=8)))
    rows = encode(engine, plan, 0)
    assert rows.shape == (3, 5)
    engine.step(rows[None])
    kept = engine.running_plan(0, 0)
    assert kept.segments == plan.segments
    assert [r.microbatch for r in kept.replicas] == [32, 8]


def test_no_plan_ends_the_list_at_once():
    engine = begun(tiny_world())
    rows = encode(engine, None, 0)
    assert (rows[:, 0] == 3).all()
    engine.step(rows[None])
    assert engine.decisions()["code"][0] == 0
    assert engine.state.event[0, st.EVENT] != st.NO_EVENT


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        (Plan((chain(BERT, (0, 2), (1, 2), (2, 2), (0, -1)),)), "this world allows 3"),
        (Plan((chain(BERT, (0, -1, 3), micro=32),)), "not in this world's table"),
        (Plan((replace(chain(BERT, (0, -1)), microbatch=5),)), "must be one of"),
    ],
)
def test_a_plan_the_world_cannot_express_is_one_clear_error(plan, rule):
    with pytest.raises(PlanError, match=rule):
        encode(begun(tiny_world()), plan, 0)


def test_every_waiting_task_is_seen_with_its_own_attribution():
    """A queue in which each task were given the vector of the one that is up would decide otherwise, and silently."""
    engine = begun(traced((0.0, BERT), (0.0, GPT2), (0.0, BERT), (1.0, GPT2)))
    while len(view(engine).queue) < 3:
        engine.step(encode(engine, None, 0)[None])
    seen = view(engine)
    vectors = [
        AttributionVector(
            np.ones(7), COUNTER_NAMES[:7], 0.0, np.array(7.0), np.zeros(7), state=np.full(7, 0.1 * at, np.float32),
            schema="told",
        )
        for at in range(len(seen.queue))
    ]  # fmt: skip
    queue = tuple(replace(task, attribution=vector) for task, vector in zip(seen.queue, vectors, strict=True))
    own = next(at for at, task in enumerate(seen.queue) if task.slot == seen.slot)
    read = from_view(replace(seen, queue=queue, attribution=vectors[own]))
    shown = dict(zip(read.slot[0].tolist(), read.attribution[0], strict=True))
    for task, vector in zip(queue, vectors, strict=True):
        np.testing.assert_allclose(shown[task.slot], vector.state, rtol=1e-6)
