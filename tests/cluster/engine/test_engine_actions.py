"""Placing, moving and refusing; the decision's own reward, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import enact
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import Plan, Segment
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Reward, TaskKind
from tests.cluster.engine_worlds import (
    BERT,
    GPT2,
    SERVE,
    act,
    begun,
    chain,
    decide,
    random_actions,
    same,
    single,
    snapshot,
    tiny_cluster,
    tiny_world,
    traced,
)

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)
SHORT = replace(GPT2, steps=(50, 50), epoch_steps=10_000)
LAYERS = len(BERT.model)
STATE_BYTES = 16.0
"""Weights, gradients and Adam's states of one parameter in mixed precision: 2 + 2 + 12."""

LINK_BYTES_PER_S = 5e9 / 8
USD_PER_BYTE = 0.08e-9


def code_of(engine, rows):
    return int(engine.probe(0, rows[None])["code"][0])


# Refusals


def mixed_cluster():
    names = ("d0", "d1")
    wan = Wan.uniform(names, gbps=5.0, latency_s=0.02, usd_per_gb=0.08)
    return Cluster((Domain("d0", gpu("V100-16"), 4), Domain("d1", gpu("A100-80"), 4, power_budget_w=400.0)), wan)


@pytest.fixture(scope="module")
def mixed():
    giant = TaskKind(model("gpt3-13b"), 32, (2, 4, 8, 16), (10, 10), 10)
    return begun(traced((0, giant), (0, BERT), kinds=(giant, BERT), cluster=mixed_cluster(), max_segments=2))


def refused(engine, code):
    """An action for the pending task that must be refused with ``code``."""
    kind = engine.world.kinds[int(engine.pending_kind()[0])]
    n = len(kind.model)
    whole = act(engine, Plan((chain(kind, (1, -1)),)))
    halves = act(engine, Plan((chain(kind, (0, n // 2), (1, -1)),)))
    if code == -1:
        whole[0, 1] = n - 1
        return whole
    if code == -2:
        halves[1, 0] = 0
        return halves
    if code == -4:
        whole[0, 0], whole[0, 3] = 0, Precision.BF16.index
        return whole
    if code == -5:
        whole[0, 4] = 0
        return _layout(engine, whole, (4, 1, 1))
    if code == -6:
        return whole
    if code == -8:
        halves[0, 1] = 1
        return _layout(engine, halves, (1, 1, 2))
    if code == -9:
        whole[0, 3] = Precision.INT8.index
        return whole
    halves[1, 4] = 0
    return halves


def _layout(engine, rows, wanted):
    found = np.flatnonzero((engine.layouts[:, :3] == wanted).all(axis=1))
    rows = rows.copy()
    rows[0, 2] = found[0] if found.size else 0
    return rows


@pytest.mark.parametrize("code", [-1, -2, -4, -5, -6, -8, -9, -10])
def test_every_reason_to_refuse_has_its_code_and_changes_nothing(mixed, code):
    rows = refused(mixed, code)
    before = snapshot(mixed)
    assert code_of(mixed, rows) == code
    assert same(before, mixed.state)
    found = enact(mixed.arrays, mixed.state, 0, rows, -1, mixed._scratch)
    assert found == code
    # The worth of the decision is written; nothing else of the world is touched.
    for name, array, kept in zip(mixed.state._fields, mixed.state, before, strict=True):
        if name not in ("outcome", "r_low"):
            assert np.array_equal(array, kept), name
    assert mixed.state.outcome[0, st.D_CODE] == code
    assert mixed.state.outcome[0, st.D_EFF] == mixed.world.waiting_r_eff


def test_too_few_devices_and_too_much_power_are_refused():
    engine = begun(traced((0, BERT), (0, BERT), (0, BERT), kinds=(LONG, BERT), cluster=mixed_cluster(), max_segments=2))
    before = snapshot(engine)
    assert code_of(engine, act(engine, single(BERT, 1, 4))) == -7
    assert same(before, engine.state)
    decide(engine, single(BERT, 0, 4))
    assert engine.decisions()["code"][0] == 1
    before = snapshot(engine)
    assert code_of(engine, act(engine, single(BERT, 0))) == -3
    assert same(before, engine.state)


def test_every_code_has_words():
    assert set(st.CODES) == {2, 1, 0, *range(-10, 0)}


@settings(deadline=None, max_examples=15)
@given(seed=hs.integers(0, 2**32 - 1))
def test_a_probe_foretells_the_step_and_changes_nothing(seed):
    engine, rng = PROBED, np.random.default_rng(seed)
    engine.seed([seed])
    engine.reset()
    for _ in range(25):
        if engine.state.event[0, st.DONE]:
            break
        rows = random_actions(engine, rng, wild=0.3)
        before = snapshot(engine)
        foretold = engine.probe(0, np.concatenate([rows, random_actions(engine, rng)]))
        assert same(before, engine.state)
        engine.step(rows)
        for name, value in engine.decisions().items():
            assert value[0] == foretold[name][0]


PROBED = begun(tiny_world(tiny_cluster(motion={"spread": 0.2})))


# Rewards by hand


def test_terms_of_a_cut_plan_by_hand():
    reward = Reward(lambda_fragmentation=5.0, lambda_intra_comm=7.0, per_decision=True)
    engine = begun(traced((0, LONG), kinds=(LONG,), reward=reward))
    plan = Plan((chain(LONG, (0, 6, 2), (1, -1)),))
    base_s = engine.arrays.kinds[0, st.K_BASE_STEP]
    base_usd = engine.arrays.kinds[0, st.K_BASE_COST]
    decide(engine, plan)
    own = {name: v[0] for name, v in engine.decisions().items()}
    # Activations of every sample cross the cut forwards, gradients backwards, two bytes each.
    crossing = 2 * 2.0 * LONG.batch_size * engine.arrays.tables.boundary[0, 6]
    assert own["bill_usd"] == pytest.approx(crossing * USD_PER_BYTE, rel=1e-12)
    priced = engine.cost.score(plan, 0, breakdown=False)
    assert own["step_s"] == pytest.approx(priced.step_s[0], rel=1e-12)
    assert own["r_eff"] == pytest.approx((base_s - own["step_s"]) / base_s, rel=1e-12)
    assert own["r_cost"] == pytest.approx(own["bill_usd"] / base_usd, rel=1e-12)
    busy = priced.segment("busy_s")[0, :2]
    assert own["r_util"] == pytest.approx((busy / own["step_s"]).mean(), rel=1e-12)


def test_the_lower_agents_pay_for_fragments_and_for_talk_inside():
    reward = Reward(lambda_fragmentation=5.0, lambda_intra_comm=7.0)
    engine = begun(traced((0, LONG), (0, LONG), kinds=(LONG,), reward=reward))
    decide(engine, Plan((chain(LONG, (0, 6, 2), (1, -1)),)))
    row = engine.arrays.domains.rows[0]
    params = sum(layer.params for layer in LONG.model.layers[:6])
    ring_s = 2 * 0.5 * params * 2.0 / row.nvlink_bytes_per_s + 2 * row.fabric_latency_s
    # Domain 0 gave a whole node of two: nothing broken. Domain 1 has one of its three free devices in a half node.
    low = engine.state.r_low[0]
    assert low[0] == pytest.approx(-7.0 * ring_s, rel=1e-9)
    assert low[1] == pytest.approx(-5.0 / 3.0, rel=1e-12)
    assert low[2] == 0.0


def test_a_deferred_task_is_worth_the_waiting_rate():
    engine = begun(traced((0, BERT), waiting_r_eff=-0.5))
    decide(engine, None)
    own = {name: v[0] for name, v in engine.decisions().items()}
    assert (own["code"], own["r_eff"], own["r_util"], own["r_cost"]) == (0.0, -0.5, 0.0, 0.0)


# Moving


def move(plan, after, **changes):
    engine = begun(traced((0, LONG), kinds=(LONG,), **changes))
    decide(engine, plan)
    assert engine.state.event[0, st.EVENT] == st.REPLAN
    decide(engine, after)
    return engine, {name: v[0] for name, v in engine.decisions().items()}


def params(first, stop):
    return sum(layer.params for layer in LONG.model.layers[first:stop])


def test_moving_a_whole_task_sends_its_state_and_restarts():
    engine, own = move(single(LONG), single(LONG, 1))
    sent = params(0, LAYERS) * STATE_BYTES
    assert own["code"] == 2
    assert own["migration_s"] == pytest.approx(sent / LINK_BYTES_PER_S + 60.0, rel=1e-12)
    assert own["migration_usd"] == pytest.approx(sent * USD_PER_BYTE, rel=1e-12)
    assert engine.totals()["migrations"][0] == 1
    assert engine.totals()["bill_usd"][0] == pytest.approx(own["migration_usd"])
    assert (engine.state.occupant[0, 0] == -1).all()
    # The decision bears its move, spread over the steps until the next review.
    base_s = engine.arrays.kinds[0, st.K_BASE_STEP]
    at_rest = engine.state.tasks[0, 0, st.STEP]
    assert own["step_s"] == pytest.approx(at_rest + own["migration_s"] / 1000)
    assert own["r_eff"] == pytest.approx((base_s - own["step_s"]) / base_s)
    assert own["bill_usd"] == pytest.approx(own["migration_usd"] / 1000)


def test_only_layers_that_a_domain_does_not_hold_are_sent():
    _, own = move(Plan((chain(LONG, (0, 6), (1, -1)),)), Plan((chain(LONG, (0, 8), (1, -1)),)))
    sent = params(6, 8) * STATE_BYTES
    assert own["migration_usd"] == pytest.approx(sent * USD_PER_BYTE, rel=1e-12)
    assert own["migration_s"] == pytest.approx(sent / LINK_BYTES_PER_S + 60.0, rel=1e-12)


def test_added_replicas_get_their_copies_side_by_side():
    copies = Plan((chain(LONG, (0, -1)), chain(LONG, (1, -1)), chain(LONG, (2, -1))))
    _, own = move(single(LONG), copies)
    sent = params(0, LAYERS) * STATE_BYTES
    assert own["migration_usd"] == pytest.approx(2 * sent * USD_PER_BYTE, rel=1e-12)
    assert own["migration_s"] == pytest.approx(sent / LINK_BYTES_PER_S + 60.0, rel=1e-12)


def test_a_new_layout_in_place_only_restarts():
    _, own = move(single(LONG), single(LONG, 0, 2))
    assert (own["code"], own["migration_s"], own["migration_usd"]) == (2.0, 60.0, 0.0)


@pytest.mark.parametrize("explicit", [True, False])
def test_keeping_a_plan_costs_nothing(explicit):
    engine, own = move(single(LONG), single(LONG) if explicit else None)
    assert (own["code"], own["migration_s"], own["migration_usd"]) == (0.0, 0.0, 0.0)
    assert own["step_s"] == engine.state.tasks[0, 0, st.STEP]
    assert engine.totals()["migrations"][0] == 0


def test_a_task_on_the_move_makes_no_progress_and_draws_idle_power():
    # Another task arrives halfway through the pause, so that we can look.
    engine = begun(traced((0, LONG), kinds=(LONG,)))
    decide(engine, single(LONG))
    at_s = float(engine.state.clock[0, st.NOW])
    pause_s = params(0, LAYERS) * STATE_BYTES / LINK_BYTES_PER_S + 60.0
    engine = begun(traced((0, LONG), (at_s + pause_s / 2, LONG), kinds=(LONG,), waiting_r_eff=-1.0))
    decide(engine, single(LONG))
    left, joules = engine.state.tasks[0, 0, st.LEFT], engine.totals()["task_j"][0]
    _, terms = decide(engine, single(LONG, 1))
    idle_w = engine.world.cluster.domains[0].gpu.idle_w
    assert engine.state.clock[0, st.NOW] == at_s + pause_s / 2
    assert engine.state.tasks[0, 0, st.LEFT] == left
    assert engine.totals()["task_j"][0] - joules == pytest.approx(idle_w * pause_s / 2)
    assert terms[0, 0] == pytest.approx(-pause_s / 2 / 3600.0)
    # The queue's task waits; afterwards the moved one works at full draw again.
    decide(engine, None)
    watts = engine.state.tasks[0, 0, st.POWER]
    assert watts > 1.5 * idle_w


# Sharing the batch and the devices


def test_replicas_share_the_batch_by_speed():
    names = ("d0", "d1")
    wan = Wan.uniform(names, gbps=5.0, latency_s=0.02, usd_per_gb=0.08, spread=0.0)
    cluster = Cluster((Domain("d0", gpu("A100-80"), 4), Domain("d1", gpu("A100-80"), 4)), wan)
    engine = begun(traced((0, LONG), kinds=(LONG,), cluster=cluster, max_segments=2))
    decide(engine, Plan((chain(LONG, (0, -1, 2, 1, 1), micro=4), chain(LONG, (1, -1), micro=4))))
    plan = engine.running_plan(0, 0)
    # Twice the devices, twice the speed: 32 samples as 21.3 and 10.7, in microbatches of four.
    assert [replica.microbatches for replica in plan.replicas] == [5, 3]
    assert plan.samples == LONG.batch_size


def test_step_time_is_per_global_batch_whatever_the_microbatches_come_to():
    engine = begun(traced((0, LONG), kinds=(LONG,)))
    decide(engine, Plan((chain(LONG, (0, -1), micro=32), chain(LONG, (1, -1), micro=32))))
    plan = engine.running_plan(0, 0)
    assert plan.samples == 64
    raw = engine.cost.score(plan, 0, breakdown=False)
    assert engine.decisions()["step_s"][0] == pytest.approx(raw.step_s[0] / 2, rel=1e-9)
    assert engine.decisions()["bill_usd"][0] == pytest.approx(raw.bill_usd[0] / 2, rel=1e-9)


def test_a_co_runner_never_speeds_a_task_up_and_leaves_no_trace():
    kind = replace(LONG, epoch_steps=100_000)
    engine = begun(traced((0, kind), (10, SHORT), (500, SHORT), kinds=(kind, SHORT), idiosyncrasy=1.0))
    decide(engine, single(kind))
    alone_s = engine.state.tasks[0, 0, st.STEP]
    rows = act(engine, single(SHORT), share=True)
    foretold = engine.probe(0, rows[None])["step_s"][0]
    apart = engine.probe(0, act(engine, single(SHORT, 1))[None])["step_s"][0]
    assert foretold > apart
    assert enact(engine.arrays, engine.state, 0, rows, -1, engine._scratch) == 1
    assert sorted(engine.state.occupant[0, 0, 0]) == [0, 1]
    engine = begun(engine.world)
    decide(engine, single(kind))
    decide(engine, single(SHORT), share=True)
    # The next event is the third arrival, after the co-runner has finished.
    assert engine.totals()["completed"][0] == 1
    assert engine.state.tasks[0, 0, st.STEP] == alone_s
    joined_s = (engine.state.clock[0, st.NOW] - 10.0) / alone_s
    assert 100_000 - engine.state.tasks[0, 0, st.LEFT] < 10.0 / alone_s + joined_s


@settings(deadline=None, max_examples=20)
@given(seed=hs.integers(0, 2**31), kind=hs.sampled_from([BERT, GPT2, SERVE]))
def test_a_shared_device_never_shortens_a_step(seed, kind):
    engine = begun(tiny_world(pool_seed=seed, pool_size=4, share_limit=2), seed=seed)
    first = engine.world.kinds[int(engine.pending_kind()[0])]
    decide(engine, single(first))
    if engine.state.event[0, st.EVENT] != st.PLACE:
        return
    second = engine.world.kinds[int(engine.pending_kind()[0])]
    both = np.stack([act(engine, single(second), share=True), act(engine, single(second, 1))])
    shared_s, apart_s = engine.probe(0, both)["step_s"]
    assert shared_s >= apart_s


def test_without_sharing_a_device_holds_one_task():
    engine = begun(traced(*[(0, LONG)] * 3, kinds=(LONG,), share_limit=1))
    assert set(engine.layouts[:, 3]) == {0}
    decide(engine, single(LONG, 0, 2))
    decide(engine, single(LONG, 0, 2))
    assert (engine.state.occupant[0, :, :, 1] == -1).all()
    assert code_of(engine, act(engine, single(LONG))) == -3


def test_a_named_device_is_the_one_that_is_used():
    engine = begun(traced((0, LONG), (0, LONG), kinds=(LONG,)))
    engine.step(act(engine, single(LONG))[None], devices=np.array([2]))
    assert engine.state.occupant[0, 0, :, 0].tolist() == [-1, -1, 0, -1]


def test_segments_keep_their_precision():
    engine = begun(traced((0, LONG), (0, LONG), kinds=(LONG,)))
    replica = chain(LONG, (0, 6), (1, -1))
    full = tuple(
        replace(s, precision=p) for s, p in zip(replica.segments, (Precision.FP32, Precision.BF16), strict=True)
    )
    decide(engine, Plan((replace(replica, segments=full),)))
    plan = engine.running_plan(0, 0)
    assert [s.precision for s in plan.segments] == [Precision.FP32, Precision.BF16]
    assert isinstance(plan.segments[0], Segment)
