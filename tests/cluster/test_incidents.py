"""Links that are cut and domains that are lost: when, how much, and what becomes of the tasks."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from attribution_sched.cluster.codecs import TestbedCodec
from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.incidents import DomainLoss, LinkCut, check_incidents, cut_links, is_lost, pack
from attribution_sched.cluster.plan import DP, PP, TP, Plan
from attribution_sched.errors import SettingsError

from .engine_worlds import (
    BERT,
    act,
    begun,
    chain,
    decide,
    random_actions,
    same,
    single,
    snapshot,
    testbed_world,
    tiny_cluster,
    tiny_world,
    traced,
)

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=100_000)
INF = math.inf


# Records


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LinkCut(0, 1, -1.0, 5.0, 0.1), "link cut start_s = -1.0: must be finite and >= 0"),
        (lambda: LinkCut(0, 1, math.nan, 5.0, 0.1), "link cut start_s = nan"),
        (lambda: LinkCut(0, 1, 5.0, 5.0, 0.1), "link cut end_s = 5.0: must lie after its start, 5"),
        (lambda: LinkCut(0, 1, 0.0, math.nan, 0.1), "link cut end_s = nan"),
        (lambda: LinkCut(0, 1, 0.0, 5.0, 0.0), r"factor = 0.0: must lie in \(0, 1\]"),
        (lambda: LinkCut(0, 1, 0.0, 5.0, 1.5), r"factor = 1.5: must lie in \(0, 1\]"),
        (lambda: LinkCut(2, 2, 0.0, 5.0, 0.5), "target = 2: must differ from the source"),
        (lambda: DomainLoss(0, INF, INF), "domain loss start_s = inf"),
        (lambda: DomainLoss(0, 9.0, 3.0), "domain loss end_s = 3.0: must lie after its start, 9"),
        (lambda: tiny_world(incidents=(DomainLoss(3, 0.0, 1.0),)), r"incidents\[0\].domain = 3: .*0 to 2.*d0, d1, d2"),
        (lambda: tiny_world(incidents=(DomainLoss(True, 0.0, 1.0),)), r"incidents\[0\].domain = True"),
        (lambda: tiny_world(incidents=(DomainLoss(0, 0.0, 1.0), LinkCut(0, -1, 0.0, 1.0, 0.5))), r"\[1\].target = -1"),
        (lambda: tiny_world(incidents=(LinkCut(7, 0, 0.0, 1.0, 0.5),)), r"incidents\[0\].source = 7"),
        (lambda: tiny_world(incidents=("storm",)), r"incidents\[0\] = 'storm': must be a LinkCut or a DomainLoss"),
    ],
)
def test_a_mistake_is_one_clear_error(make, words):
    with pytest.raises(SettingsError, match=words):
        make()


def test_a_domain_is_not_lost_twice_at_once():
    names = ("a", "b")
    with pytest.raises(SettingsError, match=r"start_s = 50.0: a is lost already, by incidents\[0\] until 90 s"):
        check_incidents((DomainLoss(0, 10.0, 90.0), DomainLoss(0, 50.0, 60.0)), names)
    with pytest.raises(SettingsError, match=r"incidents\[0\]\.start_s = 50.0"):
        check_incidents((DomainLoss(0, 50.0, 60.0), DomainLoss(0, 10.0, 51.0)), names)
    check_incidents((DomainLoss(0, 50.0, 60.0), DomainLoss(0, 10.0, 50.0), DomainLoss(1, 10.0, 90.0)), names)


def test_the_kernels_follow_the_records():
    incidents = (
        LinkCut(0, 1, 10.0, 20.0, 0.5),
        LinkCut(0, 1, 15.0, INF, 0.1, both_ways=False),
        DomainLoss(2, 5.0, 15.0),
        DomainLoss(2, 15.0, 25.0),
    )
    rows = pack(incidents)
    assert rows.shape == (5, 6)
    for time_s in (0.0, 5.0, 10.0, 14.9, 15.0, 20.0, 24.9, 25.0, 1e9):
        left = np.ones((3, 3))
        cut_links(rows, time_s, left)
        first, second = incidents[0].active(time_s), incidents[1].active(time_s)
        expected = np.ones((3, 3))
        expected[0, 1] = (0.5 if first else 1.0) * (0.1 if second else 1.0)
        expected[1, 0] = 0.5 if first else 1.0
        assert left == pytest.approx(expected)
        lost = [is_lost(rows, time_s, k) for k in range(3)]
        assert lost == [False, False, 5.0 <= time_s < 25.0]
    assert pack(()).shape == (0, 6)


# Cuts


def test_a_cut_takes_effect_at_ticks_and_calls_for_re_planning():
    # Ticks every 300 s: the cut of 1000..2000 is in force from 1200 to 2100.
    world = traced((0, LONG), kinds=(LONG,), incidents=(LinkCut(1, 0, 1000.0, 2000.0, 0.1),))
    engine = begun(world)
    decide(engine, Plan((chain(LONG, (0, 6), (1, -1)),)))
    seen = []
    while not engine.state.event[0, st.DONE]:
        assert engine.state.event[0, st.EVENT] == st.REPLAN
        seen.append((engine.state.clock[0, st.NOW], *(engine.state.links[0, 1, [0, 1, 0], [1, 0, 2]] / BYTES_PER_GBIT)))
        decide(engine, None)
    assert seen == [pytest.approx((1200.0, 0.5, 0.5, 5.0)), pytest.approx((2100.0, 5.0, 5.0, 5.0))]


def test_a_cut_one_way_leaves_the_way_back_and_slows_who_uses_it():
    times = {}
    for both_ways in (None, False, True):
        cuts = () if both_ways is None else (LinkCut(0, 1, 0.0, INF, 0.1, both_ways),)
        engine = begun(traced((0, LONG), kinds=(LONG,), incidents=cuts))
        decide(engine, Plan((chain(LONG, (0, 6), (1, -1)),)))
        times[both_ways] = engine.decisions()["step_s"][0]
        expected = [0.5 if cuts else 5.0, 0.5 if both_ways else 5.0]
        assert engine.state.links[0, 1, [0, 1], [1, 0]] / BYTES_PER_GBIT == pytest.approx(expected)
        assert engine.observe().links[0, 0, 0, 1] == pytest.approx(expected[0])
    assert times[None] < times[False] < times[True]


# Losses

EPOCHS = replace(BERT, steps=(100_000, 100_000), epoch_steps=700)


def lost_at(time_s, *, back_s=INF, kind=EPOCHS, domain=0, **changes):
    """A task alone on one device of a domain that is lost; stopped where it waits again."""
    world = traced((0, kind), kinds=(kind,), incidents=(DomainLoss(domain, time_s, back_s),), **changes)
    engine = begun(world)
    decide(engine, single(kind))
    step_s = engine.decisions()["step_s"][0]
    while engine.state.event[0, st.EVENT] == st.REPLAN:
        decide(engine, None)
    return engine, step_s


def test_a_task_goes_back_to_its_last_epoch_boundary_and_to_the_queue():
    engine, step_s = lost_at(1100.0)
    state = engine.state
    assert state.clock[0, st.NOW] == 1200.0
    assert state.event[0, st.EVENT] == st.PLACE
    done = 1200.0 / step_s
    saved = 700 * math.floor(done / 700)
    assert 0 < saved < done
    assert state.tasks[0, 0, st.LEFT] == pytest.approx(100_000 - saved)
    assert engine.totals()["lost_steps"][0] == pytest.approx(done - saved)
    assert engine.totals()["steps_done"][0] == pytest.approx(done)
    assert engine.totals()["evictions"][0] == 1
    assert state.tasks[0, 0, st.ARRIVAL] == 0.0
    assert (state.occupant[0] == -1).all()
    seen = view(engine)
    assert (seen.replanning, seen.current_plan) == (False, None)
    assert seen.free_devices.tolist() == [0, 4, 4]
    assert engine.free_devices()[0].tolist() == engine.free_devices(share=True)[0].tolist() == [0, 4, 4]


def test_a_task_that_starts_again_pauses_and_pays_nothing_for_its_state():
    engine, _ = lost_at(1100.0, restart_s=90.0)
    _, terms = decide(engine, single(EPOCHS, 1))
    own = {name: v[0] for name, v in engine.decisions().items()}
    assert (own["code"], own["migration_s"], own["migration_usd"]) == (1.0, 90.0, 0.0)
    assert engine.totals()["restart_s"][0] == 90.0
    assert engine.totals()["bill_usd"][0] == engine.totals()["migration_s"][0] == 0.0
    assert engine.totals()["placed"][0] == 2
    # The next decision is the end of an epoch, a pause and 700 steps later.
    step_s = engine.state.tasks[0, 0, st.STEP]
    assert engine.state.clock[0, st.NOW] == pytest.approx(1200.0 + 90.0 + 700 * step_s)
    base_step_s = engine.arrays.kinds[0, st.K_BASE_STEP]
    assert terms[0, 0] == pytest.approx((700 * (base_step_s - step_s) - 90.0) / 3600.0)
    assert engine.state.tasks[0, 0, st.STARTED] == 0.0


def test_lost_work_earns_nothing_and_its_time_stays_spent():
    world = traced((0, EPOCHS), kinds=(EPOCHS,), incidents=(DomainLoss(0, 1100.0, INF),))
    engine = begun(world)
    terms = engine.step(encode(engine, single(EPOCHS), 0)[None])[1][0]
    own = {name: values[0] for name, values in engine.decisions().items()}
    while engine.state.event[0, st.EVENT] == st.REPLAN:
        terms = terms + engine.step(encode(engine, None, 0)[None])[1][0]
    base_s, interval_s = engine.arrays.kinds[0, st.K_BASE_STEP], world.reward.interval_s
    done = engine.totals()["steps_done"][0]
    kept = done - engine.totals()["lost_steps"][0]
    assert 0 < kept < done
    assert terms[0] * interval_s == pytest.approx(kept * base_s - done * own["step_s"], rel=1e-9)
    assert terms[1] * interval_s == pytest.approx(kept * base_s * own["r_util"], rel=1e-9)


def test_a_lost_domain_takes_no_plan_until_it_is_back():
    engine, _ = lost_at(1100.0, back_s=2000.0, retry_s=1e6)
    before = snapshot(engine)
    assert engine.probe(0, act(engine, single(EPOCHS))[None])["code"].tolist() == [-3.0]
    assert same(before, engine.state)
    decide(engine, single(EPOCHS))
    assert engine.decisions()["code"][0] == -3
    # Its return offers the queue again, long before the next try.
    assert engine.state.clock[0, st.NOW] == 2100.0
    assert view(engine).free_devices.tolist() == [4, 4, 4]
    decide(engine, single(EPOCHS))
    assert engine.decisions()["code"][0] == 1


def test_a_task_across_domains_falls_with_one_of_them_and_others_do_not():
    world = traced((0, LONG), (0, LONG), kinds=(LONG,), incidents=(DomainLoss(1, 600.0, INF),), retry_s=1e6)
    engine = begun(world)
    decide(engine, Plan((chain(LONG, (0, 6), (1, -1)),)))
    decide(engine, single(LONG, 2))
    assert engine.state.clock[0, st.NOW] == 600.0
    assert engine.state.slots[0, :2, st.STATUS].tolist() == [st.QUEUED, st.RUNNING]
    assert (engine.state.occupant[0, :2] == -1).all()
    assert engine.state.traffic[0, 0].sum() == 0.0


def test_a_lost_domain_draws_nothing():
    world = traced((1e9, BERT), incidents=(DomainLoss(0, 0.0, 650.0), DomainLoss(1, 1200.0, 1500.0)))
    engine = begun(world)
    idle_w = 4 * world.cluster.domains[0].gpu.idle_w
    # Ticks at 300 s: gone until 900 s, and from 1200 to 1500 s.
    assert engine.totals()["meter_j"][0] == pytest.approx(idle_w * (3 * 3600.0 - 900.0 - 300.0))
    assert engine.totals()["idle_j"][0] == pytest.approx(engine.totals()["meter_j"][0])


def test_a_lost_domain_looks_full():
    engine, _ = lost_at(1100.0)
    rows = engine.observe().domains[0]
    assert (rows[0, :8] == 1.0).all()
    assert (rows[1:, :8] == 0.0).all()
    assert rows[0, 17] == 0.0 < rows[1, 17]


def test_the_testbed_offers_nothing_while_its_domain_is_lost():
    kind = replace(LONG, batch_size=32)
    world = testbed_world(kinds=(kind,), incidents=(DomainLoss(0, 600.0, 1500.0),))
    engine = begun(world)
    codec = TestbedCodec(engine)
    assert codec.masks().any()
    while engine.state.clock[0, st.NOW] < 600.0:
        engine.step(np.ones((1, 1, 5), dtype=np.int64))
    assert not codec.masks().any()
    codec.settle(np.ones(1, dtype=np.bool_))
    assert engine.state.clock[0, st.NOW] >= 1500.0
    assert codec.masks().any()


def test_work_that_ends_at_the_moment_of_the_loss_is_done():
    kind = replace(BERT, epoch_steps=10_000)
    engine = begun(traced((0, kind), kinds=(kind,)))
    decide(engine, single(kind))
    finish_s = float(400 * engine.decisions()["step_s"][0])
    engine = begun(traced((0, kind), kinds=(kind,), tick_s=finish_s, incidents=(DomainLoss(0, finish_s, INF),)))
    decide(engine, single(kind))
    assert engine.totals()["completed"][0] == 1
    assert engine.totals()["evictions"][0] == 0


def test_worlds_without_incidents_and_with_late_ones_go_the_same_way():
    late = (DomainLoss(0, 1e7, 2e7), LinkCut(0, 1, 1e7, 2e7, 0.1))
    paths = []
    for incidents in ((), late):
        engine = begun(tiny_world(tiny_cluster(motion={"spread": 0.2}), incidents=incidents))
        rng = np.random.default_rng(0)
        for _ in range(60):
            engine.step(random_actions(engine, rng))
        paths.append(snapshot(engine))
    assert same(*paths)


@pytest.fixture(scope="module")
def stormy():
    losses = (DomainLoss(0, 300.0, 900.0), DomainLoss(1, 900.0, 1800.0), DomainLoss(2, 1500.0, INF))
    return begun(tiny_world(tiny_cluster(motion={"spread": 0.2}), incidents=(*losses, LinkCut(0, 1, 0.0, 2000.0, 0.2))))


@settings(deadline=None, max_examples=25)
@given(seed=hs.integers(0, 2**32 - 1))
def test_whatever_is_decided_nothing_runs_on_lost_devices_and_sums_hold(stormy, seed):
    rng = np.random.default_rng(seed)
    stormy.seed([seed])
    stormy.reset()
    for _ in range(80):
        if stormy.state.event[0, st.DONE]:
            break
        stormy.step(random_actions(stormy, rng))
        state = stormy.state
        tick_s = 300.0 * np.floor(state.clock[0, st.NOW] / 300.0)
        for loss in stormy.world.incidents[:3]:
            if loss.active(tick_s):
                assert (state.occupant[0, loss.domain] == -1).all()
        for slot in np.flatnonzero(state.slots[0, :, st.STATUS] == st.RUNNING):
            rows = state.plans[0, slot, : state.slots[0, slot, st.SEGMENTS]]
            assert (state.occupant[0] == slot).sum() == (rows[:, DP] * rows[:, TP] * rows[:, PP]).sum()
    sums = {name: v[0] for name, v in stormy.totals().items()}
    assert sums["task_j"] + sums["idle_j"] == pytest.approx(sums["meter_j"], rel=1e-9)
    there = (stormy.state.slots[0, :, st.STATUS] != st.FREE).sum()
    assert sums["completed"] + sums["dropped"] + there == stormy.state.event[0, st.TAKEN]
