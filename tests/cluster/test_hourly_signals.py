"""Prices and grids by the hour in the engine, the simulator and the fork: what is paid, accounted and forecast."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.fork import PriorBeliefs, draw_futures, fork
from attribution_sched.cluster.signals import Constant, Grid, Live, Scaled, Series, possible
from attribution_sched.cluster.simulator.simulator import simulate
from attribution_sched.cluster.world import Cluster, Reward, hourly_ratios
from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.scheduler.rules import FirstComeFirstServed

from .engine_worlds import BERT, begun, restless, tiny_cluster, tiny_world

HOURS = 8
PRICED = {"energy_usd_per_kwh": 0.1, "carbon_usd_per_kg": 0.1}


def with_signals(cluster, **signals):
    """The cluster, every domain with these signals; the first argument of each is the domain's number."""
    domains = [
        replace(domain, **{name: make(k) for name, make in signals.items()}) for k, domain in enumerate(cluster.domains)
    ]
    return Cluster(tuple(domains), cluster.wan, cluster.runtime)


def world_of(cluster, **changes):
    return tiny_world(cluster, horizon_s=3600.0 * HOURS, **({"reward": Reward(**PRICED)} | changes))


def played(world, seed=5):
    return play(world, FirstComeFirstServed(), seed)


def test_a_signal_that_never_moves_changes_no_bit():
    flat = with_signals(restless(), carbon=lambda _: Constant(200.0), electricity=lambda _: Constant(0.1))
    assert played(world_of(restless())) == played(world_of(flat))


def test_one_hour_of_ones_where_nothing_changes_and_a_year_where_something_does():
    assert hourly_ratios(world_of(restless())).tolist() == np.ones((2, 1, 3)).tolist()
    day = Series.hourly([100.0] * 12 + [300.0] * 12)
    ratios = hourly_ratios(world_of(with_signals(restless(), carbon=lambda _: day)))
    assert ratios.shape == (2, 8760, 3)
    assert ratios[1, :13, 0].tolist() == [0.5] * 12 + [1.5] and (ratios[0] == 1.0).all()


def test_grams_follow_the_hours_in_engine_and_simulator_alike():
    """Two implementations of the same world; the second one asks the signals itself."""
    course = Series.hourly([50.0, 400.0] * 12)
    still = tiny_cluster(motion={"spread": 0.0})
    plain, hourly = (world_of(still), world_of(with_signals(still, carbon=lambda _: course)))
    found = played(hourly)
    other = simulate(hourly, FirstComeFirstServed(), 5)
    assert found.carbon_kg == pytest.approx(other.totals.carbon_g / 1e3, rel=1e-9)
    assert abs(found.carbon_kg / played(plain).carbon_kg - 1.0) > 0.01


def hour_by_hour(world, seed=5):
    """Joules and grams of the tasks, hour by hour, read off the running engine."""
    engine, policy, rows = begun(world, seed), FirstComeFirstServed(), []
    while engine.state.event[0, st.DONE] == 0:
        seen = view(engine, moment=False)
        if seen is None:
            break
        before = engine.state.clock[0, st.NOW], engine.totals()
        engine.step(encode(engine, policy.decide(seen), seen.kind_index)[None])
        after = engine.totals()
        rows.append((before[0], *(float(after[n][0] - before[1][n][0]) for n in ("task_j", "carbon_g"))))
    return np.array(rows), engine


def test_grams_are_joules_times_the_hours_intensity():
    """Equal domains, so that joules alone tell the grams: within an hour grams over joules is that hour's intensity."""
    levels = [80.0, 500.0, 20.0, 900.0, 120.0, 300.0, 60.0, 700.0]
    world = world_of(with_signals(restless(), carbon=lambda _: Series.hourly(levels)))
    rows, engine = hour_by_hour(world)
    inside = [
        (int(t0 // 3600), joules, grams)
        for (t0, joules, grams), (t1, *_) in pairwise(rows)
        if t0 // 3600 == t1 // 3600 and joules > 0
    ]
    assert len({hour for hour, *_ in inside}) >= 6
    for hour, joules, grams in inside:
        assert grams / joules * 3.6e6 == pytest.approx(levels[hour], rel=1e-9)
    assert engine.totals()["carbon_g"][0] > 0


def test_the_reward_pays_the_hours_price():
    """R_cost of a running task moves with the price of its domain's hour, up and down."""
    course = Series.hourly([0.05, 0.4] * 12)
    still = tiny_cluster(motion={"spread": 0.0})
    lasting = replace(BERT, steps=(40_000, 80_000), epoch_steps=2_000)
    priced = with_signals(still, electricity=lambda _: course)
    world = world_of(priced, reward=Reward(energy_usd_per_kwh=0.1), kinds=(lasting,))
    engine, policy, seen_cost = begun(world, 5), FirstComeFirstServed(), {}
    while engine.state.event[0, st.DONE] == 0 and (seen := view(engine, moment=False)) is not None:
        engine.step(encode(engine, policy.decide(seen), seen.kind_index)[None])
        hour = int(engine.state.clock[0, st.LAST_TICK] // 3600)
        for slot in np.flatnonzero(engine.state.slots[0, :, st.STATUS] == st.RUNNING).tolist():
            if engine.state.slots[0, slot, st.SEGMENTS] == 1:
                key = int(engine.state.slots[0, slot, st.SERIAL]), engine.state.plans[0, slot].tobytes()
                seen_cost.setdefault(key, {})[hour] = float(engine.state.tasks[0, slot, st.T_COST])
    ratios = [
        costs[hour + 1] / costs[hour]
        for costs in seen_cost.values()
        for hour in costs
        if hour % 2 == 0 and hour + 1 in costs
    ]
    assert ratios and np.allclose(ratios, 8.0, rtol=1e-9)


@pytest.fixture(scope="module")
def moment():
    courses = [Grid("CISO", seed=4, start_h=12.0 + k) for k in range(3)]
    cluster = with_signals(restless(carbon_g_per_kwh=256.0), carbon=lambda k: courses[k])
    engine, policy = begun(world_of(cluster), 5), FirstComeFirstServed()
    while engine.state.clock[0, st.NOW] < 7200.0:
        seen = view(engine, moment=False)
        engine.step(encode(engine, policy.decide(seen), seen.kind_index)[None])
    return view(engine).moment


def test_a_moment_knows_the_present_hour_only(moment):
    hour = int(moment.state.clock[0, st.LAST_TICK] // 3600)
    assert moment.arrays.signals.shape == (2, 1, 3) and moment.arrays.signals_from_h == hour
    told = [domain.carbon.at(hour * 3600.0) / domain.carbon_g_per_kwh for domain in moment.world.cluster.domains]
    assert moment.arrays.signals[1, 0].tolist() == told


def test_futures_are_drawn_from_forecasts_and_never_read(moment):
    """The same past with another real future (another seed from the next hour on) gives the same futures."""
    beliefs = PriorBeliefs(moment.world)
    until_s = moment.now_s + 4 * 3600.0
    drawn = draw_futures(moment, beliefs, 64, until_s, 9)
    course = np.array([future.signals[1, :, 0] for future in drawn])
    domain = moment.world.cluster.domains[0]
    hour = int(moment.state.clock[0, st.LAST_TICK] // 3600)
    assert (course[:, 0] == domain.carbon.at(hour * 3600.0) / domain.carbon_g_per_kwh).all()
    for ahead in (1, 3):
        told = domain.carbon.forecast(hour * 3600.0, ahead * 3600.0)
        spread = told.error / domain.carbon_g_per_kwh
        assert course[:, ahead].mean() == pytest.approx(told.value / domain.carbon_g_per_kwh, abs=4 * spread / 8)
        assert course[:, ahead].std() == pytest.approx(spread, rel=0.35)

    class OtherFuture:
        """The grid up to now, and something absurd afterwards."""

        def __init__(self, real):
            self.real, self.persistence = real, real.persistence

        def at(self, time_s):
            return self.real.at(time_s) if time_s <= hour * 3600.0 else 1e9

        def forecast(self, time_s, horizon_s):
            return self.real.forecast(time_s, horizon_s)

    changed = with_signals(moment.world.cluster, carbon=lambda k: OtherFuture(moment.world.cluster.domains[k].carbon))
    planted = replace(moment, world=replace(moment.world, cluster=changed))
    again = draw_futures(planted, beliefs, 64, until_s, 9)
    assert all((one.signals == two.signals).all() for one, two in zip(drawn, again, strict=True))


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_what_was_heard_within_the_hour_is_what_copies_begin_with(moment, factor):
    """A source that was asked some seconds into the hour: its news holds now, not from the next hour on."""
    source = Live(lambda: 0.0, usual=256.0)
    source.note(moment.now_s - 3600.0, 1024.0)
    source.note(moment.now_s - 1.0, 512.0)
    carbon = source if factor == 1.0 else Scaled(source, factor)
    world = replace(moment.world, cluster=with_signals(moment.world.cluster, carbon=lambda _: carbon))
    heard = replace(moment, world=world)
    hour_s = moment.state.clock[0, st.LAST_TICK] // 3600.0 * 3600.0
    assert hour_s < moment.now_s - 1.0
    drawn = draw_futures(heard, PriorBeliefs(world), 2, moment.now_s + 7200.0, 9)
    assert all((future.signals[1, 0] == factor * 2.0).all() for future in drawn)


def test_copies_account_the_futures_grams(moment):
    """Twice the intensity of every future is twice the grams and the same joules."""
    rule, beliefs = RuleFollower.of(moment), PriorBeliefs(moment.world)
    domains = tuple(
        replace(domain, carbon_g_per_kwh=2 * domain.carbon_g_per_kwh) for domain in moment.world.cluster.domains
    )
    found = fork(moment, [], 3, 3.0, rule, 4, beliefs=beliefs)
    rows = moment.arrays.domains.rows.copy()
    rows["carbon_g_per_j"] *= 2
    arrays = moment.arrays._replace(domains=moment.arrays.domains._replace(rows=rows.view(np.recarray)))
    world = replace(moment.world, cluster=replace(moment.world.cluster, domains=domains))
    # Ratios are told against the table, so a table twice as high halves them: grams stay.
    same = fork(replace(moment, arrays=arrays, world=world), [], 3, 3.0, rule, 4, beliefs=beliefs)
    assert found.totals[0, :, 7] == pytest.approx(same.totals[0, :, 7], rel=1e-9)
    assert found.totals[0, :, 5] == pytest.approx(same.totals[0, :, 5], rel=1e-9)
    assert (found.totals[0, :, 7] > 0).all()


def test_possible_futures_keep_forecast_and_error():
    grid = Grid("ERCO", seed=2, start_h=4000.0)
    drawn = possible(grid, 3600.0 * 30, np.random.default_rng(0).standard_normal((4000, 12)))
    for ahead in (0, 1, 5, 11):
        told = grid.forecast(3600.0 * 30, 3600.0 * ahead)
        assert drawn[:, ahead].mean() == pytest.approx(told.value, rel=0.02)
        assert drawn[:, ahead].std() == pytest.approx(told.error, rel=0.06, abs=1e-9)


def test_hourly_prices_without_a_usual_price_are_refused():
    cluster = with_signals(tiny_cluster(), electricity=lambda _: Constant(0.1))
    with pytest.raises(SettingsError, match=r"reward.energy_usd_per_kwh.*multiples"):
        tiny_world(cluster)
    with pytest.raises(SettingsError, match=r"carbon_g_per_kwh.*signal's mean"):
        with_signals(tiny_cluster(carbon_g_per_kwh=0.0), carbon=lambda _: Constant(1.0))
