"""Laws of the batched world: what is conserved, what is bounded, what depends on what."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from attribution_sched.cluster.arrivals import Poisson, TraceArrivals
from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import encode
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import domain_power_w
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP, Plan
from attribution_sched.cluster.wan import BandwidthTrace, Wan
from attribution_sched.errors import PlanError, SettingsError
from tests.cluster.engine_worlds import (
    BERT,
    GPT2,
    SERVE,
    act,
    begun,
    chain,
    decide,
    random_actions,
    restless,
    rollout,
    same,
    single,
    snapshot,
    tiny_cluster,
    tiny_world,
    traced,
)

DROP = 0.7
"""Bandwidth after the jump of the traced links, as a share of the base."""


@pytest.fixture(scope="module")
def capped():
    """Shared devices, power caps, budgets, restless links."""
    return begun(tiny_world(restless(power_cap_w=200.0, power_budget_w=780.0)))


def check_bounds(engine):
    world, state, arrays = engine.world, engine.state, engine.arrays
    for k, domain in enumerate(world.cluster.domains):
        held = np.zeros(domain.devices)
        for d in range(domain.devices):
            holders = [s for s in state.occupant[0, k, d] if s >= 0]
            assert len(holders) == len(set(holders)) <= world.share_limit
            drawn = 0.0
            for slot in holders:
                assert state.slots[0, slot, st.STATUS] == st.RUNNING
                rows = state.plans[0, slot, : state.slots[0, slot, st.SEGMENTS]]
                (row,) = np.flatnonzero(rows[:, DOMAIN] == k)
                held[d] += state.loads[0, slot, row, st.MEMORY]
                drawn += state.loads[0, slot, row, st.DYNAMIC_W]
            assert held[d] <= domain.gpu.memory_bytes
            assert min(drawn, domain.cap_w - domain.gpu.idle_w) + domain.gpu.idle_w <= domain.cap_w
        watts = domain_power_w(arrays, state, 0, k, True, False)[0]
        assert watts <= domain.devices * domain.cap_w * (1 + 1e-12)
    status = state.slots[0, :, st.STATUS]
    assert (status == st.QUEUED).sum() <= world.queue_capacity
    assert (status == st.RUNNING).sum() <= world.max_running
    for slot in np.flatnonzero(status == st.RUNNING):
        rows = state.plans[0, slot, : state.slots[0, slot, st.SEGMENTS]]
        assert (state.occupant[0] == slot).sum() == (rows[:, DP] * rows[:, TP] * rows[:, PP]).sum()


def check_sums(engine):
    state, totals = engine.state, {name: v[0] for name, v in engine.totals().items()}
    assert totals["task_j"] + totals["idle_j"] == pytest.approx(totals["meter_j"], rel=1e-9)
    status = state.slots[0, :, st.STATUS]
    present = (status == st.RUNNING).sum() + (status == st.QUEUED).sum()
    assert totals["completed"] + totals["dropped"] + present == state.event[0, st.TAKEN]
    # The bill of a step is its traffic at the price of every link.
    price = engine.arrays.domains.price_usd_per_byte
    for slot in np.flatnonzero(status == st.RUNNING):
        due = (state.traffic[0, slot] * price).sum()
        assert state.tasks[0, slot, st.STEP_BILL] == pytest.approx(due, rel=1e-12)


@settings(deadline=None, max_examples=25)
@given(seed=hs.integers(0, 2**32 - 1))
def test_whatever_is_decided_joules_tasks_and_limits_are_kept(capped, seed):
    """Energy of tasks and of unused devices is what the meters read; every task is accounted for."""
    before_s, before_j = 0.0, 0.0
    for _ in rollout(capped, seed):
        now_s, now_j = capped.state.clock[0, st.NOW], capped.totals()["meter_j"][0]
        assert now_s >= before_s
        assert now_j >= before_j
        before_s, before_j = now_s, now_j
        check_bounds(capped)
        check_sums(capped)


def test_the_rollouts_reach_what_the_laws_are_about(capped):
    seen = {"placed": 0.0, "migrations": 0.0, "rejected": 0.0, "completed": 0.0, "bill_usd": 0.0, "dropped": 0.0}
    shared = moved = False
    for seed in range(8):
        for _ in rollout(capped, seed, 120):
            shared |= bool((capped.state.occupant[0, :, :, 1] >= 0).any())
            moved |= bool((capped.state.tasks[0, :, st.PAUSED] > capped.state.clock[0, st.NOW]).any())
        seen = {name: total + capped.totals()[name][0] for name, total in seen.items()}
    assert shared
    assert moved
    assert min(seen.values()) > 0, seen


def test_a_plan_that_would_break_the_power_budget_is_refused_and_an_admitted_one_keeps_it():
    world = tiny_world(tiny_cluster(1, 4, power_budget_w=700.0, motion={"spread": 0.0}), max_segments=1)
    engine, codes = begun(world), set()
    rng = np.random.default_rng(3)
    for _ in range(150):
        if engine.state.event[0, st.DONE]:
            engine.reset()
        engine.step(random_actions(engine, rng, wild=0.0))
        codes.add(int(engine.decisions()["code"][0]))
        # Admission prices the newcomer; a neighbour that it slows is priced anew afterwards and may ask a little more.
        assert domain_power_w(engine.arrays, engine.state, 0, 0, True, False)[0] <= 1.01 * 700.0
    assert {1, -7} <= codes


def test_the_meter_of_an_empty_cluster_reads_its_idle_power():
    world = traced((1800, BERT))
    engine = begun(world)
    idle_w = 12 * world.cluster.domains[0].gpu.idle_w
    assert engine.totals()["meter_j"][0] == pytest.approx(1800.0 * idle_w)
    assert engine.totals()["idle_j"][0] == pytest.approx(1800.0 * idle_w)


def test_a_task_answers_for_its_devices_from_start_to_finish():
    world = traced((0, BERT), kinds=(replace(BERT, epoch_steps=10_000),))
    engine = begun(world)
    decide(engine, single(BERT))
    step_s = float(engine.decisions()["step_s"][0])
    priced = engine.cost.score(single(BERT), 0, breakdown=False)
    assert step_s == pytest.approx(priced.step_s[0], rel=1e-12)
    assert engine.totals()["completed"][0] == 1
    assert engine.totals()["completion_s"][0] == pytest.approx(400 * step_s, rel=1e-9)
    assert engine.totals()["task_j"][0] == pytest.approx(400 * priced.energy_j[0], rel=1e-9)


# Seeds and batches


def test_a_path_depends_on_its_seed_and_actions_not_on_the_batch():
    world, rng = tiny_world(restless()), np.random.default_rng(0)
    batch, alone = begun(world, seed=5, clusters=4), begun(world, seed=7)
    for _ in range(60):
        if batch.state.event[:, st.DONE].any():
            break
        actions = random_actions(batch, rng)
        rewards, terms = batch.step(actions)
        reward, term = alone.step(actions[2:3])
        assert rewards[2] == reward[0]
        assert np.array_equal(terms[2], term[0])
    assert all(np.array_equal(b[2], a[0]) for b, a in zip(batch.state, alone.state, strict=True))
    assert alone.totals()["decisions"][0] > 10


def test_the_same_seed_gives_the_same_path_and_another_seed_another():
    paths = []
    for seed in (3, 3, 4):
        engine = begun(tiny_world(restless()), seed=seed)
        rng = np.random.default_rng(0)
        for _ in range(40):
            engine.step(random_actions(engine, rng))
        paths.append(snapshot(engine))
    assert same(paths[0], paths[1])
    assert not np.array_equal(paths[0][0], paths[2][0])


def test_clusters_that_are_not_active_stand_still():
    engine = begun(tiny_world(), clusters=2)
    before = [array[1].copy() for array in engine.state]
    _, terms = engine.step(random_actions(engine, np.random.default_rng(1)), active=np.array([True, False]))
    assert all(np.array_equal(b, a[1]) for b, a in zip(before, engine.state, strict=True))
    assert not terms[1].any()


def test_one_seed_per_cluster_or_one_clear_error():
    with pytest.raises(SettingsError, match="there are 1 clusters"):
        begun(tiny_world()).seed([1, 2])


# Events


def jumping(at_s, share=DROP, wrap="hold", links=None):
    """Three domains whose links (or the given ones) are traced: base at first, then a share of it."""
    names = ("d0", "d1", "d2")
    off = ~np.eye(3, dtype=bool)
    if links is not None:
        off = np.zeros((3, 3), dtype=bool)
        off[tuple(zip(*links, strict=True))] = True
    rows = np.stack([np.where(off, 5.0, np.nan), np.where(off, 5.0 * share, np.nan)])
    trace = BandwidthTrace(names, np.array([0.0, at_s]), rows, at_end=wrap)
    plain = tiny_cluster()
    wan = Wan.uniform(names, gbps=5.0, latency_s=0.02, usd_per_gb=0.08, trace=trace)
    return replace(plain, wan=wan)


ALONE = replace(BERT, epoch_steps=10_000)
LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=100_000)


@pytest.mark.parametrize(("share", "reviews"), [(0.7, 1), (0.9, 0), (1.3, 1)])
def test_a_link_that_moved_past_the_threshold_calls_for_exactly_one_decision(share, reviews):
    world = traced((0, LONG), kinds=(LONG,), cluster=jumping(900.0, share))
    engine = begun(world)
    decide(engine, Plan((chain(LONG, (0, 6), (1, -1)),)))
    seen = 0
    while not engine.state.event[0, st.DONE]:
        assert engine.state.event[0, st.EVENT] == st.REPLAN
        assert engine.state.clock[0, st.NOW] == 900.0
        seen += 1
        decide(engine, None)
    assert seen == reviews
    now = engine.state.links[0, 1][~np.eye(3, dtype=bool)] / BYTES_PER_GBIT
    assert now == pytest.approx(5.0 * share)


def test_a_refused_move_is_not_offered_again_for_the_same_jump():
    world = traced((0, LONG), kinds=(LONG,), cluster=jumping(900.0))
    engine = begun(world)
    decide(engine, Plan((chain(LONG, (0, 6), (1, -1)),)))
    wrong = act(engine, Plan((chain(LONG, (0, -1)),)))
    wrong[0, 1] = 3
    engine.step(wrong[None])
    assert engine.decisions()["code"][0] == -1
    assert engine.state.event[0, st.DONE]


@pytest.mark.parametrize(
    ("link", "used"), [((0, 1), True), ((1, 0), True), ((2, 1), True), ((2, 0), False), ((0, 2), False)]
)
def test_every_link_that_carries_traffic_is_watched_and_no_other(link, used):
    world = traced((0, LONG), kinds=(LONG,), cluster=jumping(900.0, links=[link]))
    engine = begun(world)
    decide(engine, Plan((chain(LONG, (0, 4), (1, 4), (2, -1)),)))
    assert bool(engine.state.event[0, st.DONE]) is not used


def test_links_of_others_do_not_concern_a_task():
    world = traced((0, LONG), kinds=(LONG,), cluster=jumping(900.0))
    engine = begun(world)
    decide(engine, single(LONG))
    assert engine.state.event[0, st.DONE]


def test_an_epoch_end_calls_for_exactly_one_decision():
    kind = replace(BERT, steps=(1000, 1000), epoch_steps=300)
    engine = begun(traced((0, kind), kinds=(kind,)))
    decide(engine, single(kind))
    step_s, times = engine.decisions()["step_s"][0], []
    while not engine.state.event[0, st.DONE]:
        assert engine.state.event[0, st.EVENT] == st.REPLAN
        times.append(engine.state.clock[0, st.NOW] / step_s)
        decide(engine, None)
    assert times == pytest.approx([300.0, 600.0, 900.0])
    assert engine.totals()["completed"][0] == 1


def test_a_wrapped_trace_repeats():
    engine = begun(traced((0, LONG), kinds=(LONG,), cluster=jumping(900.0, wrap="wrap"), horizon_s=4000.0))
    decide(engine, Plan((chain(LONG, (0, 6), (1, -1)),)))
    times = []
    while not engine.state.event[0, st.DONE]:
        times.append(engine.state.clock[0, st.NOW])
        decide(engine, None)
    assert times == [900.0, 1800.0, 2700.0, 3600.0]


def test_traced_tasks_arrive_in_order_with_their_kinds():
    tasks = [(0, SERVE), (10, BERT), (10, GPT2), (500, BERT)]
    engine = begun(traced(*tasks))
    serials, kinds, times = [], [], []
    while not engine.state.event[0, st.DONE]:
        if engine.state.event[0, st.EVENT] == st.PLACE:
            slot = engine.state.event[0, st.SLOT]
            serials.append(int(engine.state.slots[0, slot, st.SERIAL]))
            kinds.append(int(engine.pending_kind()[0]))
            times.append(float(engine.state.tasks[0, slot, st.ARRIVAL]))
        domain = int(engine.free_devices()[0].argmax())
        kind = engine.world.kinds[int(engine.pending_kind()[0])]
        decide(engine, single(kind, domain) if engine.state.event[0, st.EVENT] == st.PLACE else None)
    assert serials == [0, 1, 2, 3]
    assert kinds == [2, 0, 1, 0]
    assert times == [0.0, 10.0, 10.0, 500.0]


def test_the_urgent_task_of_a_queue_comes_first_then_the_early_one():
    engine = begun(traced((0, BERT), (1, BERT), (2, GPT2), max_running=1))
    decide(engine, single(BERT))
    order = []
    while not engine.state.event[0, st.DONE]:
        if engine.state.event[0, st.EVENT] == st.PLACE:
            slot = engine.state.event[0, st.SLOT]
            order.append(int(engine.state.slots[0, slot, st.SERIAL]))
            decide(engine, single(engine.world.kinds[int(engine.pending_kind()[0])]))
        else:
            decide(engine, None)
    assert order == [2, 1]


def test_a_task_that_finds_the_queue_full_is_turned_away_and_counted():
    engine = begun(traced(*[(0, LONG)] * 4, kinds=(LONG,), queue_capacity=2, retry_s=5000.0))
    while not engine.state.event[0, st.DONE]:
        decide(engine, None)
    assert engine.totals()["dropped"][0] == 2
    assert engine.state.event[0, st.TAKEN] == 4


@pytest.mark.parametrize(("wait_s", "share", "late"), [(0.0, 1.01, 0), (0.0, 0.99, 1), (300.0, 1.01, 1)])
def test_a_task_that_finishes_after_its_deadline_is_counted(wait_s, share, late):
    engine = begun(traced((0, ALONE), kinds=(ALONE,)))
    decide(engine, single(ALONE))
    slack = share * engine.decisions()["step_s"][0] / engine.arrays.kinds[0, st.K_BASE_STEP]
    kind = replace(ALONE, deadline_slack=float(slack))
    engine = begun(traced((0, kind), kinds=(kind,), retry_s=300.0))
    if wait_s:
        decide(engine, None)
    decide(engine, single(kind))
    assert engine.totals()["completed"][0] == 1
    assert engine.totals()["missed"][0] == late
    assert engine.overdue().tolist() == [0]


def test_what_waits_or_runs_past_its_deadline_is_overdue():
    long, short = replace(LONG, deadline_slack=10.0), replace(GPT2, deadline_slack=0.01)
    engine = begun(traced((0, long), (0, short), (100, short), kinds=(long, short), retry_s=5000.0))
    decide(engine, single(long))
    seen = [engine.overdue()[0]]
    while not engine.state.event[0, st.DONE]:
        decide(engine, None)
        seen.append(engine.overdue()[0])
    assert seen == [0, 1, 2]
    assert engine.totals()["missed"][0] == 0


def test_a_task_that_ends_at_a_tick_is_finished_once():
    engine = begun(traced((0, BERT)))
    decide(engine, single(BERT))
    finish_s = 400 * engine.decisions()["step_s"][0]
    engine = begun(traced((0, BERT), (finish_s, GPT2), tick_s=finish_s))
    decide(engine, single(BERT))
    assert engine.state.clock[0, st.NOW] == finish_s
    assert engine.state.event[0, st.EVENT] == st.PLACE
    assert engine.totals()["completed"][0] == 1
    assert (engine.state.occupant[0] == -1).all()


@pytest.mark.parametrize("at_s", [1e6 + 0.1, 3e7 + 0.3])
def test_steps_shorter_than_the_clock_can_tell_do_not_stop_time(at_s):
    """Late in a long run the rest of a short step is less than the spacing of floating-point times."""
    kind = replace(SERVE, batch_size=8, microbatches=(1, 2, 4, 8), steps=(777, 777), epoch_steps=7)
    engine = begun(traced((at_s, kind), kinds=(kind,), horizon_s=at_s + 3600.0, tick_s=1e5))
    decide(engine, single(kind, micro=8))
    for _ in range(200):
        if engine.state.event[0, st.DONE]:
            break
        decide(engine, None)
    assert engine.totals()["completed"][0] == 1
    assert engine.totals()["steps_done"][0] == pytest.approx(777, abs=1e-3)


def test_an_episode_without_arrivals_ends_and_stays_ended():
    engine = begun(tiny_world(arrivals=Poisson(1e-9)))
    assert engine.state.event[0].tolist()[st.DONE] == 1
    before = snapshot(engine)
    rewards, terms = engine.step(np.tile([0, 14, 0, 1, 0], (1, 3, 1)))
    assert rewards[0] == 0.0
    assert not terms.any()
    assert same(before, engine.state)


# Mistakes


@pytest.mark.parametrize(
    ("column", "value"), [(0, 4), (0, -1), (1, 99), (2, 10_000), (3, 4), (4, 4), (4, -1)]
)  # fmt: skip
def test_a_choice_out_of_range_is_one_clear_error(column, value):
    engine = begun(tiny_world())
    rows = encode(engine, None, 0)
    rows[0, column] = value
    before = snapshot(engine)
    with pytest.raises(PlanError, match=rf"action \w+ = {value}.*must lie in 0"):
        engine.step(rows[None])
    with pytest.raises(PlanError, match="must lie in 0"):
        engine.probe(0, rows[None])
    assert same(before, engine.state)


def test_actions_of_the_wrong_shape_are_one_clear_error():
    engine = begun(tiny_world())
    with pytest.raises(PlanError, match=r"must be \(1, 3, 5\)"):
        engine.step(np.zeros((1, 2, 5), dtype=np.int64))


def test_a_probe_needs_a_pending_decision():
    engine = begun(tiny_world(arrivals=Poisson(1e-9)))
    with pytest.raises(PlanError, match="no decision pending"):
        engine.probe(0, encode(engine, None, 0)[None])


def test_the_running_plan_is_the_one_that_was_placed():
    engine = begun(traced((0, LONG), (1, LONG), kinds=(LONG,)))
    assert engine.running_plan(0, 0) is None
    plan = Plan((chain(LONG, (2, 6, 2), (0, -1, 1, 2)),))
    decide(engine, plan)
    assert engine.running_plan(0, 0) == plan


def test_a_trace_longer_than_the_pool_of_a_world_is_replayed_whole():
    rows = traced(*[(i, BERT) for i in range(5)]).arrivals
    assert isinstance(rows, TraceArrivals)
    engine = begun(traced(*[(i, BERT) for i in range(5)], pool_size=2))
    while not engine.state.event[0, st.DONE]:
        decide(engine, None)
    assert engine.state.event[0, st.TAKEN] == 5
