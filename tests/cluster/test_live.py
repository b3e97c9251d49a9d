"""The cluster that is stopped after every decision is the engine's own cluster, to the last bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.engine import state as es
from attribution_sched.cluster.live import PolicyCall, SimulatedCluster
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.rules import ShortestJobFirst
from attribution_sched.system.admission import instance
from tests.small_world import small

BUSY = {"kind": "poisson", "rate_per_hour": 700.0}


@pytest.fixture(scope="module")
def world():
    return small(arrivals=BUSY).build_world()


def decide(cluster, policy, call):
    asked = call.ask(policy, cluster)
    effect = cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
    call.note(asked)
    return effect


def same(one, other):
    for name in one.engine.state._fields:
        mine, theirs = getattr(one.engine.state, name), getattr(other.engine.state, name)
        assert np.array_equal(mine, theirs, equal_nan=True), name


@pytest.mark.parametrize(
    ("policy", "preset"), [(ShortestJobFirst, "small"), (Greedy, "small"), (Greedy, "cross-domain-easy")]
)
def test_an_hour_is_what_an_episode_is(world, policy, preset):
    if preset != "small":
        from dataclasses import replace

        from attribution_sched.config import load_settings

        world = replace(load_settings(preset).build_world(), horizon_s=6 * 3600.0)
    known = play(world, policy(), seed=5)
    cluster, call, decider, paid, count = SimulatedCluster(world, 5), PolicyCall(), policy(), np.zeros(3), 0
    while cluster.advance(world.horizon_s) and cluster.now_s < world.horizon_s:
        paid += decide(cluster, decider, call).paid
        count += 1
    paid += cluster.engine.state.outcome[0, es.INTEGRALS :]
    sums = cluster.totals()
    assert count == known.decisions
    assert cluster.now_s == world.horizon_s
    assert tuple(paid) == pytest.approx((known.r_eff, known.r_util, known.r_cost), rel=1e-12)
    assert sums["meter_j"] / 3.6e6 == known.energy_kwh
    assert (sums["arrived"], sums["completed"], sums["dropped"], sums["placed"]) == (
        known.arrived, known.completed, known.turned_away, known.placed,
    )  # fmt: skip
    if preset == "small":
        assert known.turned_away > 0


@settings(deadline=None, max_examples=15)
@given(st.lists(st.floats(1.0, 900.0), max_size=8), st.integers(0, 50))
def test_stopping_changes_nothing(stops, seed):
    world = small().build_world()
    straight, stopped = SimulatedCluster(world, seed), SimulatedCluster(world, seed)
    policy, call, other = Greedy(), PolicyCall(), PolicyCall()
    for stop in [*stops, None]:
        while stop is not None and not stopped.advance(stopped.now_s + stop):
            pass
        stopped.advance()
        straight.advance()
        assert decide(straight, policy, call) == decide(stopped, policy, other)
    same(straight, stopped)


def test_nothing_happens_in_an_empty_cluster(world):
    cluster = SimulatedCluster(world, 0, arrivals=False)
    assert not cluster.expecting
    assert not cluster.advance()
    assert not cluster.advance(1e6)
    assert cluster.now_s == 0.0


def test_tasks_handed_in_wait_run_and_end(world):
    cluster, call = SimulatedCluster(world, 0, arrivals=False), PolicyCall()
    for name in "abc":
        assert cluster.hand_in(instance(world, 0, 500, {}, (1,)), name)
    assert cluster.waiting == 3
    while cluster.advance():
        decide(cluster, Greedy(), call)
    assert (cluster.waiting, cluster.running) == (0, 0)
    sums = cluster.totals()
    assert (sums["completed"], sums["arrived"]) == (3.0, 3.0)
    assert sums["steps_done"] == pytest.approx(1500.0)
    assert math.isfinite(cluster.now_s)


def test_what_the_window_does_not_hold_waits_behind_it(world):
    cluster = SimulatedCluster(world, 0, arrivals=False)
    made = instance(world, 0, 500, {}, (1,))
    assert all(cluster.hand_in(made, str(n)) for n in range(9))
    assert (cluster.waiting, len(cluster.backlog), cluster.has_room) == (9, 5, False)
    call, placed = PolicyCall(), []
    while cluster.advance():
        name = cluster.residents[cluster.pending().slot].id
        if decide(cluster, Greedy(), call).code == 1:
            placed.append(name)
    # All of one kind and urgency: nobody overtakes.
    assert placed == [str(n) for n in range(9)]
    assert cluster.totals()["completed"] == 9.0


def test_tasks_that_no_free_device_holds_are_not_asked_about(world):
    cluster, call = SimulatedCluster(world, 0, arrivals=False), PolicyCall()
    for n in range(40):
        cluster.hand_in(instance(world, n % 3, 800, {}, (n,)), str(n))
    decisions = placed = 0
    while cluster.advance():
        decisions += not cluster.pending().replanning
        placed += decide(cluster, Greedy(), call).code == 1
    assert placed == 40
    assert cluster.totals()["wait_s"] > 0
    assert decisions < 3 * placed


def test_whose_turn_it_is_is_found_anew(world):
    """A more urgent task that is handed in while a decision is pending comes first, as if nobody had looked before."""
    looked, fresh = SimulatedCluster(world, 0, arrivals=False), SimulatedCluster(world, 0, arrivals=False)
    for cluster in (looked, fresh):
        cluster.hand_in(instance(world, 0, 500, {}, (1,)), "usual")
    looked.advance()
    for cluster in (looked, fresh):
        cluster.hand_in(instance(world, 1, 500, {}, (2,)), "urgent")
        cluster.advance()
        assert cluster.residents[cluster.pending().slot].id == "urgent"
    same(looked, fresh)


def test_deciding_takes_no_time(world):
    cluster = SimulatedCluster(world, 1)
    cluster.advance()
    before = cluster.now_s
    effect = decide(cluster, Greedy(), PolicyCall())
    assert effect.code == 1
    assert cluster.now_s == before
    assert effect.step_s > 0
    assert effect.energy_j > 0
    assert 0 < effect.busy_share <= 1
