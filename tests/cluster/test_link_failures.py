"""Links that fail by a law: exact steps, the same in both simulators, a fork that knows the law and not the future."""

import math
from dataclasses import replace

import numpy as np
import pytest
import simulator_agreement as agreement
from hypothesis import given, settings
from hypothesis import strategies as hyp

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import Follow, PriorBeliefs, Wait, draw_futures, fork
from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.cluster.live_state import restore_cluster, save_cluster
from attribution_sched.cluster.simulator.simulator import Simulator
from attribution_sched.cluster.streams import seed_stream
from attribution_sched.cluster.wan import LinkFailures, Wan, WanProcess, fail_links
from attribution_sched.errors import NetworkError, SettingsError
from attribution_sched.executors.live import twin_world
from attribution_sched.scheduler.predictor.forecast import KalmanPredictor
from attribution_sched.scheduler.rule_follower import RuleFollower
from tests.small_world import SMALL, small

from .engine_worlds import begun, random_actions, tiny_cluster, tiny_world
from .fork_cases import engine_at

OFTEN = LinkFailures(mean_up_h=2.0, mean_down_h=0.5, left=0.05)
"""A fifth of the time down, several failures an hour among a few pairs."""

HOURS = hyp.floats(0.01, 1e4)


def failing(motion=None, **changes):
    """The small world with links that fail often."""
    own = {**SMALL["network"]["motion"], "failures": {"mean_up_h": 2.0, "mean_down_h": 0.5, "left": 0.05}}
    return small(network={**SMALL["network"], "motion": {**own, **(motion or {})}}, **changes)


# ------ The law


@given(up=HOURS, down=HOURS, one_s=hyp.floats(1.0, 1e6), more_s=hyp.floats(1.0, 1e6))
def test_the_law_does_not_depend_on_how_time_is_cut_into_steps(up, down, one_s, more_s):
    law = LinkFailures(up, down)
    (a, b), (c, d) = law.down_after(one_s), law.down_after(more_s)
    for start, at_once in zip((a, b), law.down_after(one_s + more_s), strict=True):
        assert start * d + (1.0 - start) * c == pytest.approx(at_once, rel=1e-9, abs=1e-12)
    # The long run stays what it is.
    share = law.down_share
    assert share == pytest.approx(down / (up + down))
    assert share * b + (1.0 - share) * a == pytest.approx(share, rel=1e-9)


def path(law, step_s, steps, pairs=40, seed=1):
    """Which links are down step by step, shape ``(steps, pairs · (pairs − 1) / 2)``; begun in the long run."""
    state, down = seed_stream(seed), np.zeros((pairs, pairs))
    fail_links(down, law.down_share, law.down_share, state)
    below, found = np.tril_indices(pairs, -1), []
    for _ in range(steps):
        fail_links(down, *law.down_after(step_s), state)
        assert np.array_equal(down, down.T) and not np.diag(down).any()
        found.append(down[below] > 0.0)
    return np.array(found)


@pytest.mark.parametrize("step_s", [60.0, 300.0, 3600.0])
def test_links_are_down_as_long_and_as_often_as_the_law_says_at_any_step(step_s):
    law = LinkFailures(mean_up_h=6.0, mean_down_h=1.5)
    hours = 200.0
    down = path(law, step_s, int(hours * 3600.0 / step_s))
    # 780 pairs, each forgetting within 1.2 hours: the share is known to about 0.0015.
    assert down.mean() == pytest.approx(0.2, abs=0.006)
    # What is left of a state after three hours, measured and by the law.
    lag = round(3.0 * 3600.0 / step_s)
    apart = np.mean((down[lag:] - 0.2) * (down[:-lag] - 0.2)) / (0.2 * 0.8)
    assert apart == pytest.approx(law.kept(3.0 * 3600.0), abs=0.015)
    if step_s == 60.0:
        # Failures per pair and hour: one for each time up and down, and few are shorter than a step.
        began = (down[1:] & ~down[:-1]).mean() * 60.0
        assert began == pytest.approx(1.0 / 7.5, rel=0.05)


def test_one_pair_that_fails_changes_nothing_for_the_others():
    law, below = LinkFailures(6.0, 1.5), np.tril_indices(5, -1)
    one, other = np.zeros((5, 5)), np.zeros((5, 5))
    other[1, 0] = other[0, 1] = 1.0
    streams = seed_stream(3), seed_stream(3)
    differed = False
    for _ in range(200):
        for down, stream in zip((one, other), streams, strict=True):
            fail_links(down, *law.down_after(900.0), stream)
        differed |= one[1, 0] != other[1, 0]
        assert np.array_equal(one[below][1:], other[below][1:])
    assert differed


def test_wandering_and_arrivals_are_the_same_with_failures_and_without():
    motion = {"spread": 0.2}
    still, broken = (
        tiny_world(tiny_cluster(motion={**motion, **more}), horizon_s=6 * 3600.0) for more in ({}, {"failures": OFTEN})
    )
    one, two = Engine(still), Engine(broken)
    for engine in (one, two):
        engine.seed([7])
        engine.reset()
    assert one.state.links.shape[1] == one.state.streams.shape[1] == 2
    ups = downs = 0
    idle = np.zeros((1, 3, 5), dtype=np.int64)
    idle[:, :, 0] = 3
    while one.state.event[0, st.DONE] == 0:
        assert np.array_equal(one.state.links[0, st.LATENT], two.state.links[0, st.LATENT])
        assert np.array_equal(one.state.clock[0], two.state.clock[0])
        assert np.array_equal(one.state.streams[0], two.state.streams[0, :2])
        down = two.state.links[0, st.DOWN] > 0.0
        up = ~down
        assert np.array_equal(one.state.links[0, 1][up], two.state.links[0, 1][up])
        assert two.state.links[0, 1][down] == pytest.approx(0.05 * one.state.links[0, 1][down])
        ups, downs = ups + up.sum(), downs + down.sum()
        for engine in (one, two):
            engine.step(idle)
    assert downs > 0 and ups > downs


def test_who_decides_sees_what_a_failed_link_carries():
    engine = begun(tiny_world(tiny_cluster(motion={"failures": LinkFailures(0.1, 1e4)})))
    assert (engine.state.links[0, st.DOWN][~np.eye(3, dtype=bool)] == 1.0).all()
    seen = view(engine)
    carried = 5.0 * (1.0 + np.clip(engine.state.links[0, st.LATENT], -0.3, 0.3)) * 0.02
    outside = ~np.eye(3, dtype=bool)
    assert seen.link_gbps[outside] == pytest.approx(carried[outside])
    assert engine.observe().links[0, 0][outside] == pytest.approx(carried[outside], rel=1e-6)


# ------ Both simulators


def test_both_simulators_see_the_same_links():
    world = tiny_world(tiny_cluster(motion={"spread": 0.2, "failures": OFTEN}), horizon_s=12 * 3600.0)
    engine, simulator = begun(world, seed=5), Simulator(world, agreement.AnyPlan(0), 5)
    process, down = simulator.network, 0
    idle = np.zeros((1, 3, 5), dtype=np.int64)
    idle[:, :, 0] = 3
    while engine.state.event[0, st.DONE] == 0:
        while process.time_s < engine.state.clock[0, st.LAST_TICK]:
            process.step(world.tick_s)
        assert np.array_equal(process.down, engine.state.links[0, st.DOWN] > 0.0)
        outside = ~np.eye(3, dtype=bool)
        assert engine.state.links[0, 1][outside] / BYTES_PER_GBIT == pytest.approx(process.bandwidth_gbps[outside])
        down += process.down.sum()
        engine.step(idle)
    assert down > 0


def test_every_job_and_every_sum_agrees_with_the_engine_when_links_fail():
    def world(law):
        plain = agreement.cross_domain(horizon_s=3 * 3600.0)
        return replace(plain, cluster=replace(plain.cluster, wan=replace(plain.cluster.wan, failures=law)))

    bills = 0.0
    for seed in range(3):
        worst, where, journal = agreement.compare(world(OFTEN), lambda s: agreement.AnyPlan(s), seed)
        assert worst < 1e-6, f"seed {seed}: {where} differs by {worst}"
        _, _, whole = agreement.compare(world(None), lambda s: agreement.AnyPlan(s), seed)
        bills += abs(journal.totals["bill_usd"] - whole.totals["bill_usd"])
    # Without failures it would have been another run.
    assert bills > 0.0


# ------ The fork


def same(one, two):
    return all(getattr(one, name).tobytes() == getattr(two, name).tobytes() for name in ("ledger", "totals", "ends"))


@pytest.fixture(scope="module")
def engine():
    return engine_at(network=failing().network.model_dump(mode="json"))


@pytest.fixture(scope="module")
def moment(engine):
    return view(engine).moment


@pytest.fixture(scope="module")
def rule(moment):
    return RuleFollower.of(moment)


@pytest.fixture(scope="module")
def beliefs(moment):
    return PriorBeliefs(moment.world)


def test_copies_with_nothing_changed_are_equal_to_the_last_bit(moment, rule, beliefs):
    found = fork(moment, [Follow(rule)], 3, 0.9, rule, 7, beliefs=beliefs)
    assert found.ledger[1].tobytes() == found.ledger[0].tobytes()
    assert found.totals[1].tobytes() == found.totals[0].tobytes()


def test_the_true_failure_and_the_true_repair_are_nowhere_in_it(rule, beliefs):
    """Plant links that fail at the next tick and stay so, and others that are mended at once."""
    for down_now in (0.0, 1.0):
        moments = []
        for future in (5, 6):
            planted = engine_at(network=failing().network.model_dump(mode="json"))
            k = planted.state.links.shape[2]
            planted.state.links[0, st.DOWN] = down_now * (1.0 - np.eye(k))
            # What really comes hangs on this stream alone: fails at the next tick, or not; is mended, or is not.
            planted.state.streams[0, st.LINK_FAILURES] = stream_whose_next_is(below=0.05 if future == 5 else None)
            moments.append(view(planted).moment)
            chances = planted.arrays.fails, planted.arrays.stays_down
            fail_links(planted.state.links[0, st.DOWN], *chances, planted.state.streams[0, st.LINK_FAILURES])
            assert planted.state.links[0, st.DOWN][0, 1] == (1.0 if future == 5 else 0.0)
        one, two = moments
        assert not one.state.streams.any()
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one.state, two.state, strict=True))
        assert same(*(fork(m, [Wait()], 3, 0.9, rule, 11, beliefs=beliefs) for m in moments))


def stream_whose_next_is(below):
    """A stream whose next number is below so much, or with None almost 1."""
    for seed in range(10_000):
        state, down = seed_stream(seed), np.zeros((2, 2))
        low = 0.05 if below is None else below
        fail_links(down, low if below is not None else 0.97, 0.0, state)
        if (down[0, 1] > 0.0) == (below is not None):
            return seed_stream(seed)
    raise AssertionError("no such stream")


def test_futures_begin_with_the_links_as_they_are_and_go_on_by_the_law(moment, beliefs):
    law, left = LinkFailures(2.0, 0.5, 0.05), 0.05
    links = moment.state.links.copy()
    for down_now in (0.0, 1.0):
        links[0, st.DOWN] = down_now * (1.0 - np.eye(2))
        begun_so = replace(moment, state=moment.state._replace(links=links.copy()))
        drawn = draw_futures(begun_so, beliefs, 400, moment.now_s + 2400.0, 3)
        carried = np.array([future.links[:, 0, 1] for future in drawn])
        down = carried < 0.2
        assert (down[:, 0] == (down_now > 0.0)).all()
        ticks = np.arange(1, carried.shape[1])
        expected = [law.down_after(moment.arrays.tick_s * t)[int(down_now)] for t in ticks]
        assert down[:, 1:].mean(axis=0) == pytest.approx(expected, abs=4.0 * 0.5 / math.sqrt(400))
        # A detour carries its share of what the link would, both ways.
        assert carried[down].max() <= left * 1.3 + 1e-12 and carried[~down].min() >= 0.7
        assert all(((f.links[:, 0, 1] < 0.2) == (f.links[:, 1, 0] < 0.2)).all() for f in drawn[:20])


def test_the_same_futures_without_failures_wander_the_same(moment, beliefs):
    whole = replace(moment, arrays=moment.arrays._replace(fails=0.0))
    one, two = (draw_futures(m, beliefs, 20, moment.now_s + 3600.0, 3) for m in (moment, whole))
    for failed, held in zip(one, two, strict=True):
        down = failed.links < 0.2
        assert np.array_equal(failed.links[~down], held.links[~down])
        assert failed.links[down] == pytest.approx(0.05 * held.links[down])
        assert np.array_equal(failed.arrival_times_s, held.arrival_times_s)
    assert any((future.links < 0.2).any() for future in one)


# ------ Saved and gone on with; the twin of a real cluster; the forecast of links


def test_a_saved_cluster_goes_on_with_the_same_failures():
    world = failing().build_world()
    one, other = SimulatedCluster(world, 5), SimulatedCluster(world, 99)
    one.engine.state.links[0, st.DOWN, 0, 1] = one.engine.state.links[0, st.DOWN, 1, 0] = 1.0
    arrays, facts = save_cluster(one)
    restore_cluster(other, arrays, facts)
    assert np.array_equal(one.engine.state.links, other.engine.state.links)
    met = 0
    for _ in range(60):
        for cluster in (one, other):
            state, arrays_of = cluster.engine.state, cluster.engine.arrays
            fail_links(
                state.links[0, st.DOWN], arrays_of.fails, arrays_of.stays_down, state.streams[0, st.LINK_FAILURES]
            )
        assert np.array_equal(one.engine.state.links[0, st.DOWN], other.engine.state.links[0, st.DOWN])
        met += int(one.engine.state.links[0, st.DOWN, 0, 1])
    assert 0 < met < 60


def test_nothing_fails_in_a_twin_that_nobody_reported():
    world = twin_world(failing().build_world(), 60.0)
    assert world.cluster.wan.failures is None and Engine(world).arrays.fails == 0.0


def forecasters(spread=0.1):
    law = LinkFailures(mean_up_h=6.0, mean_down_h=1.0, left=0.02)
    wan = Wan.uniform(("a", "b", "c"), gbps=5.0, latency_s=0.02, usd_per_gb=0.1, spread=spread, failures=law)
    return law, wan, KalmanPredictor.of_network(wan)


def test_the_forecast_goes_on_under_a_failure_and_after_the_repair_is_as_if_there_had_been_none():
    law, wan, predictor = forecasters()
    _, _, unbroken = forecasters()
    process = WanProcess(replace(wan, failures=None), 4)
    for tick in range(40):
        process.step(300.0)
        links = process.bandwidth_gbps
        unbroken.observe(process.time_s, links)
        failed = links.copy()
        if 10 <= tick < 30:
            failed[0, 1] *= 0.02
            failed[1, 0] *= 0.02
        predictor.observe(process.time_s, failed)
        up, down = (1.0 - chance * 0.98 for chance in law.down_after(900.0))
        expected = unbroken.forecast(900.0).mean_gbps.copy()
        expected[[0, 1], [1, 0]] *= down / up if 10 <= tick < 30 else 1.0
        np.testing.assert_allclose(predictor.forecast(900.0).mean_gbps, expected, rtol=1e-9)
    for horizon_s in (0.0, 300.0, 1800.0):
        np.testing.assert_allclose(
            predictor.forecast(horizon_s).mean_gbps, unbroken.forecast(horizon_s).mean_gbps, rtol=1e-12
        )


def test_the_forecast_is_the_mixture_of_up_and_down():
    """Against 4000 paths of the process from the same reading, mean and spread, of links that are up and down."""
    law, wan, predictor = forecasters()
    outside, n, horizon_s = ~np.eye(3, dtype=bool), 4000, 1800.0
    start = WanProcess(wan, 2)
    predictor.observe(0.0, start.bandwidth_gbps)
    reached = {True: [], False: []}
    for failed in (True, False):
        for seed in range(n // 6):
            path_of = WanProcess(wan, 2, 10_000 + seed)
            path_of._down[:] = float(failed) * outside
            path_of._state[:] = seed_stream(seed)
            path_of.step(horizon_s)
            reached[failed].append(path_of.bandwidth_gbps)
    for failed in (True, False):
        known = KalmanPredictor.of_network(wan)
        known.observe(0.0, start.wan.bandwidth_gbps * (1.0 + start.epsilon) * np.where(outside & failed, law.left, 1.0))
        told, found = known.forecast(horizon_s), np.array(reached[failed])
        apart = 5.0 * told.std_gbps[outside] / math.sqrt(n // 6)
        assert (np.abs(found.mean(axis=0)[outside] - told.mean_gbps[outside]) < apart).all()
        np.testing.assert_allclose(found.std(axis=0)[outside], told.std_gbps[outside], rtol=0.15)


def test_a_cut_by_another_cause_is_still_followed_as_a_jump():
    _, wan, predictor = forecasters()
    for tick in range(3):
        predictor.observe(300.0 * tick, wan.bandwidth_gbps)
    cut = wan.bandwidth_gbps.copy()
    cut[0, 1] = cut[1, 0] = 0.1 * 5.0
    for tick in range(3, 6):
        predictor.observe(300.0 * tick, cut)
    assert predictor.forecast(300.0).mean_gbps[0, 1] == pytest.approx(0.5, rel=0.1)


# ------ Settings


@pytest.mark.parametrize(
    ("figures", "field", "rule"),
    [
        ({"mean_up_h": 0.0, "mean_down_h": 1.0}, "mean_up_h", "must be > 0"),
        ({"mean_up_h": math.inf, "mean_down_h": 1.0}, "mean_up_h", "<= 1e+06 hours"),
        ({"mean_up_h": 9.0, "mean_down_h": math.nan}, "mean_down_h", "must be > 0"),
        ({"mean_up_h": 9.0, "mean_down_h": 1.0, "left": 0.0}, "left", "strictly between 0 and 1"),
        ({"mean_up_h": 9.0, "mean_down_h": 1.0, "left": 1.0}, "left", "strictly between 0 and 1"),
    ],
)
def test_a_wrong_figure_is_one_clear_error(figures, field, rule):
    with pytest.raises(NetworkError) as found:
        LinkFailures(**figures)
    told = str(found.value)
    assert f"failures.{field}" in told and rule in told and "\n" not in told


@pytest.mark.parametrize(
    ("failures", "where"),
    [
        ({"mean_up_h": -1.0, "mean_down_h": 1.0}, "network.motion.failures.mean_up_h"),
        ({"mean_up_h": 9.0, "mean_down_h": 1.0, "left": 2.0}, "network.motion.failures.left"),
        ({"mean_up_h": 9.0}, "network.motion.failures.mean_down_h"),
    ],
)
def test_a_wrong_figure_of_settings_is_named(failures, where):
    with pytest.raises(SettingsError, match=where):
        failing({"failures": failures})


def test_recorded_bandwidth_has_its_own_failures(tmp_path):
    recording = tmp_path / "links.csv"
    recording.write_text("time_s,src,dst,gbps\n0,east,west,3.0\n")
    network = failing().network.model_dump(mode="json") | {"trace": str(recording)}
    with pytest.raises(SettingsError, match="recorded bandwidth"):
        small(network=network).build_world()


def test_a_mapping_is_no_law_of_failures():
    with pytest.raises(NetworkError, match="must be a LinkFailures"):
        Wan.uniform(("a", "b"), gbps=5.0, latency_s=0.02, usd_per_gb=0.1, failures={"mean_up_h": 1.0})


def test_settings_say_how_links_fail():
    assert failing().build_world().cluster.wan.failures == OFTEN
    assert small().build_world().cluster.wan.failures is None


@settings(max_examples=20)
@given(hyp.integers(0, 2**32))
def test_any_actions_meet_finite_prices_when_links_fail(seed):
    world = tiny_world(tiny_cluster(motion={"spread": 0.2, "failures": LinkFailures(0.2, 0.2, 0.01)}))
    engine = begun(world, seed=seed % 1000)
    rng = np.random.default_rng(seed)
    for _ in range(30):
        rewards, terms = engine.step(random_actions(engine, rng))
        assert np.isfinite(rewards).all() and np.isfinite(terms).all()
