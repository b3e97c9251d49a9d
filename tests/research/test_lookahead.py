"""The look-ahead bound: nobody earns more, and where nothing stands in the way somebody earns as much."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from attribution_sched.cluster.arrivals import ArrivalRow, Poisson, TraceArrivals
from attribution_sched.cluster.decision import encode
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import decode
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.incidents import DomainLoss, LinkCut
from attribution_sched.cluster.plan import PRECISION, PlanBatch
from attribution_sched.cluster.signals import Series
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Reward, Runtime, TaskKind, World
from attribution_sched.errors import PlanError, SettingsError
from attribution_sched.rivals.exact_policy import Exact, ExactResolve, ExactSwitch
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.episode import play
from research.lookahead import (
    Clairvoyant,
    arrivals_of,
    best_sequence,
    episode_limit,
    episode_limits,
    network_path,
)
from research.lookahead_plans import Prices, price_plans, worth_having
from research.lookahead_search import Course, search
from tests.cluster.engine_worlds import begun, random_actions, random_plan
from tests.planning.exact.instances import random_model

HOUR_S = 3600.0


def small_world(seed=0, *, domains=2, devices=2, layers=3, params=2e9, spread=0.2, **changes):
    """A world of two or three domains whose plans can all be listed."""
    rng = np.random.default_rng(seed)
    names = tuple(f"d{k}" for k in range(domains))
    wan = Wan.uniform(names, gbps=float(rng.uniform(4, 30)), latency_s=0.01, usd_per_gb=0.02, spread=spread)
    cards = [("A100-80", "A100-40", "V100-32")[int(rng.integers(3))] for _ in names]
    cluster = Cluster(
        tuple(Domain(n, gpu(c), devices, node_devices=2) for n, c in zip(names, cards, strict=True)), wan, Runtime()
    )
    kind = TaskKind(random_model(rng, layers, params), 16, (2, 2, 4, 4), (100, 400), int(rng.choice([10, 50, 200])))
    chosen = {
        "horizon_s": 0.5 * HOUR_S, "pool_size": 4, "max_running": 4, "queue_capacity": 3, "max_segments": domains,
        "share_limit": 1, "restart_s": float(rng.choice([0.0, 20.0, 60.0])), "replan_threshold": 0.02,
        "retry_s": 120.0,
    } | changes  # fmt: skip
    return World(cluster, (kind,), chosen.pop("arrivals", Poisson(8.0)), **chosen)


def one_task(world, at_s=0.0, steps=None):
    """The same world with a single task."""
    kind = world.kinds[0]
    row = ArrivalRow(at_s, kind.model.name, steps or kind.steps[0], kind.batch_size, kind.priority, kind.tenant)
    return replace(world, arrivals=TraceArrivals((row,)))


class RandomPlans:
    """Places tasks on any plan, moves them whenever it may, and now and then waits."""

    name = "random"

    def __init__(self, seed, world):
        self.rng, self.world = np.random.default_rng(seed), world

    def decide(self, view):
        plan = random_plan(self.rng, self.world, view.kind)
        room = max(domain.devices for domain in self.world.cluster.domains)
        small = all(segment.device_count <= room for segment in plan.segments)
        return plan if small and self.rng.random() < 0.7 else None


class Replay:
    """Follows a sequence of plans."""

    name = "replay"

    def __init__(self, sequence):
        self.sequence = sequence

    def decide(self, view):
        plan = self.sequence.plan_at(view.time_s)
        return None if plan == view.current_plan else plan


@pytest.mark.parametrize("seed", [0, 1])
def test_the_network_is_the_same_under_any_policy(seed):
    world = small_world(3, domains=3, incidents=(LinkCut(0, 1, 700.0, 1300.0, 0.2),))
    path = network_path(world, seed)
    engine, rng, seen = begun(world, seed), np.random.default_rng(9), set()
    while not engine.state.event[0, st.DONE]:
        tick = round(engine.state.clock[0, st.LAST_TICK] / world.tick_s)
        np.testing.assert_allclose(engine.state.links[0, 1], path.bytes_per_s[tick], rtol=1e-12)
        seen.add(tick)
        engine.step(random_actions(engine, rng))
    assert len(seen) > 3
    assert len(path.times_s) == 6


@pytest.mark.parametrize("seed", [0, 4])
def test_the_arrivals_are_those_of_the_engine(seed):
    world = small_world(1, queue_capacity=60, arrivals=Poisson(30.0))
    expected = arrivals_of(world, seed)
    engine, found = begun(world, seed), {}
    nothing = encode(engine, None, 0)[None]
    while not engine.state.event[0, st.DONE]:
        for slot in np.flatnonzero(engine.state.slots[0, :, st.STATUS] == st.QUEUED):
            serial = int(engine.state.slots[0, slot, st.SERIAL])
            found[serial] = (float(engine.state.tasks[0, slot, st.ARRIVAL]), int(engine.state.slots[0, slot, st.POOL]))
        engine.step(nothing)
    assert len(expected) > 1
    assert [(a.time_s, a.pool) for a in expected] == [found[a.number] for a in expected]
    assert all(a.steps == engine.pool.steps[a.pool] for a in expected)


def test_every_plan_that_the_engine_accepts_is_listed():
    world = small_world(2, domains=3, devices=2)
    seer = Clairvoyant(world)
    batch = seer.every_plan(0)
    listed = {row.tobytes() for row in batch.segments}
    assert len(listed) == len(batch)
    rng, engine, accepted = np.random.default_rng(0), begun(world), 0
    twins = {Precision.BF16.index: Precision.FP16.index}
    for _ in range(4000):
        action = rng.integers(0, engine.choices, size=(world.max_segments, 5))
        rows = np.zeros((world.max_segments, 11), dtype=np.int64)
        count, code = decode(engine.arrays, 0, action, rows)
        if code == 0 and count > 0:
            rows[count:] = 0
            rows[:, PRECISION] = [twins.get(q, q) for q in rows[:, PRECISION].tolist()]
            assert rows.tobytes() in listed
            accepted += 1
    assert accepted > 50


INCIDENTS = ((), (), (LinkCut(0, 1, 500.0, 1000.0, 0.3),), (DomainLoss(0, 400.0, 900.0),))


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 60))])
def test_no_policy_beats_the_bound(seed):
    rng = np.random.default_rng(seed)
    domains = int(rng.choice([2, 3]))
    weights = Reward(w_util=float(rng.choice([0.0, 0.5, 2.0])), w_cost=float(rng.choice([0.0, 0.5, 3.0])))
    world = small_world(
        seed, domains=domains, devices=1 if domains == 3 else 2, layers=3 if domains == 3 else 2,
        params=float(rng.choice([1e9, 3e9])), spread=float(rng.choice([0.0, 0.2])), reward=weights,
        incidents=INCIDENTS[int(rng.integers(len(INCIDENTS)))],
        queue_capacity=int(rng.choice([1, 4])), waiting_r_eff=float(rng.choice([-1.0, -0.3, -2.0])),
    )  # fmt: skip
    limit = episode_limit(world, seed).reward
    for policy in (RandomPlans(seed, world), Greedy(), Exact(), ExactResolve(), ExactSwitch()):
        assert play(world, policy, seed).reward <= limit + 1e-6, policy.name


def test_on_a_still_network_the_best_plan_attains_the_bound():
    world = one_task(small_world(5, spread=0.0, idiosyncrasy=0.0), at_s=130.0)
    found = episode_limit(world, 0)
    (arrival,) = found.arrivals
    sequence = best_sequence(world, 0, arrival)
    assert len(sequence.changes) == 1
    assert play(world, Replay(sequence), 0).reward == pytest.approx(found.reward, abs=1e-6)
    assert play(world, Exact(), 0).reward == pytest.approx(found.reward, abs=1e-6)


def _spanning():
    """One long task that fits no single domain, and cut links that make moving worth while."""
    world = small_world(
        8, domains=3, devices=1, layers=3, params=4e9, restart_s=30.0, replan_threshold=1e-9, horizon_s=3 * HOUR_S,
        incidents=(
            LinkCut(0, 1, 3600.0, np.inf, 0.05), LinkCut(0, 2, 0.0, 3600.0, 0.05), LinkCut(1, 2, 0.0, 3600.0, 0.05),
        ),
    )  # fmt: skip
    cluster = world.cluster
    same = tuple(replace(d, gpu=gpu("A100-40")) for d in cluster.domains)
    quick = tuple(replace(k, epoch_steps=10_000) for k in world.kinds)
    world = replace(world, cluster=replace(cluster, domains=same), kinds=quick, arrivals=Poisson(1.0))
    return one_task(world, at_s=100.0, steps=12_000)


def test_a_sequence_with_moves_earns_in_the_engine_what_it_promises():
    world = _spanning()
    (arrival,) = arrivals_of(world, 3)
    sequence = best_sequence(world, 3, arrival)
    played = play(world, Replay(sequence), 3)
    assert played.moves == len(sequence.changes) - 1 >= 1
    assert played.reward == pytest.approx(sequence.reward, abs=1e-8)
    assert sequence.reward <= sequence.bound + 1e-9
    assert sequence.bound == pytest.approx(episode_limit(world, 3).reward)
    kept = best_sequence(world, 3, arrival, [sequence.changes[0][1]])
    assert kept.reward < sequence.reward - 1e-3


def random_course(seed, cells, plans, cell_s=60.0, per_tick=1):
    rng = np.random.default_rng(seed)
    ticks = np.arange(cells) // per_tick
    n_ticks = int(ticks[-1]) + 1
    speed, best = rng.uniform(0.2, 1.0, (plans, 1, n_ticks)), 1.0
    reward = rng.uniform(-1.0, best, (plans, 1, n_ticks))
    return Course(
        edges_s=cell_s * np.arange(cells + 1.0), ticks=ticks, speed=speed, loss=(best - reward) * speed,
        groups=np.arange(plans), pause_s=rng.uniform(0.0, 2.2 * cell_s, (n_ticks, plans, plans)),
        charge=rng.uniform(0.0, 10.0, (plans, plans)), wait=float(rng.uniform(0.0, 0.5)),
        steps=float(rng.uniform(0.2, 1.2) * 0.6 * cells * cell_s), gain=best, cell_s=cell_s,
    )  # fmt: skip


def carried_out(course, changes):
    """Pay of a course: ``changes`` are (moment, plan) in order; a change during a pause is put off to its end."""
    end_s = course.edges_s[-1]
    pay, done, now_s, plan = 0.0, 0.0, 0.0, None
    pending = [*changes, (np.inf, None)]
    while now_s < end_s and done < course.steps:
        at_s, goal = pending[0]
        cell = min(int(np.searchsorted(course.edges_s, now_s + 1e-9, side="right")) - 1, course.ticks.size - 1)
        tick = course.ticks[cell]
        if at_s <= now_s + 1e-9:
            pending.pop(0)
            if plan is not None and goal != plan:
                pause_s = min(course.pause_s[tick, plan, goal], end_s - now_s)
                pay -= course.charge[plan, goal] + course.wait * pause_s
                now_s += pause_s
            plan = goal
            continue
        until_s = min(course.edges_s[cell + 1], at_s, end_s)
        if plan is None:
            pay -= course.wait * (until_s - now_s)
        else:
            speed = course.speed[plan, 0, tick]
            until_s = min(until_s, now_s + (course.steps - done) / speed)
            steps = speed * (until_s - now_s)
            pay += course.gain * steps - course.loss[plan, 0, tick] * (until_s - now_s)
            done += steps
            if course.steps - done < 1e-9:
                done = course.steps
        now_s = until_s
    return pay


def changes_at_edges(course, plans):
    """Whether no change falls into a pause: it would be put off to a moment that the search does not know."""
    free_s, here = 0.0, None
    for cell, plan in enumerate(plans):
        if here not in (None, plan):
            if course.edges_s[cell] < free_s - 1e-9:
                return False
            free_s = course.edges_s[cell] + course.pause_s[course.ticks[cell], here, plan]
        here = plan
    return True


@given(some.integers(0, 10_000))
@example(1292)
@settings(deadline=None, max_examples=40)
def test_the_search_finds_the_best_of_all_sequences(seed):
    course = random_course(seed, cells=4, plans=2)
    best = -np.inf
    for plans in product((None, 0, 1), repeat=4):
        changes = [(course.edges_s[i], p) for i, p in enumerate(plans) if p is not None]
        placed_once = all(p is None for p in plans[: plans.count(None)])
        if placed_once and changes_at_edges(course, plans):
            best = max(best, carried_out(course, changes))
    found, _, _ = search(course, False, 6, np.empty((100_000, 3), dtype=np.int64))
    assert found >= best - 1e-9
    assert found <= search(with_idle(course), True, 6, np.empty((0, 3), dtype=np.int64))[0] + 1e-9


def with_idle(course):
    """The same course with standing idle as a second way to work, as in the bound."""
    shape = course.speed.shape
    return course._replace(
        speed=np.concatenate([course.speed, np.zeros(shape)], axis=1),
        loss=np.concatenate([course.loss, np.full(shape, course.wait)], axis=1),
    )


@given(some.integers(0, 10_000))
@settings(deadline=None, max_examples=40)
def test_changes_at_any_moment_stay_below_the_bound(seed):
    course = random_course(seed, cells=12, plans=3, cell_s=20.0, per_tick=3)
    bound, _, _ = search(with_idle(course), True, 6, np.empty((0, 3), dtype=np.int64))
    rng = np.random.default_rng(seed)
    end_s = course.edges_s[-1]
    for _ in range(200):
        count = int(rng.integers(1, 6))
        moments = np.sort(rng.uniform(0.0, end_s, count))
        moments[0] = 0.0 if rng.random() < 0.7 else moments[0]
        changes = [(float(t), int(rng.integers(3))) for t in moments]
        assert carried_out(course, changes) <= bound + 1e-9


def test_leaving_plans_out_does_not_change_the_bound():
    world = one_task(_spanning(), at_s=100.0, steps=1500)
    seer = Clairvoyant(world)
    path, (arrival,) = network_path(world, 1), arrivals_of(world, 1)
    kept, prices = seer.candidates(path, arrival)
    every = seer.every_plan(0)
    factors = seer.engine.pool.demands.factors[arrival.pool]
    whole = price_plans(seer.engine, 0, factors, every, path.bytes_per_s)
    fits = whole.speed.min(axis=1) > 0.0
    every = PlanBatch(every.segments[fits], every.counts[fits], every.schedules[fits])
    whole = Prices(whole.speed[fits], whole.reward[fits], whole.extras[fits])
    assert len(kept) < len(every)
    assert seer._bound(path, arrival, every, whole) == pytest.approx(seer._bound(path, arrival, kept, prices), abs=1e-9)


def test_a_plan_is_left_out_only_for_one_of_the_same_placement():
    speed, reward, extras = np.array([[1.0], [2.0], [2.0]]), np.array([[0.5], [0.6], [0.9]]), np.zeros((3, 1))
    prices = Prices(speed, reward, extras)
    assert worth_having(prices, np.array([0, 0, 1]), 1.0, 0.1).tolist() == [False, True, True]
    assert worth_having(prices, np.array([0, 1, 2]), 1.0, 0.1).all()
    assert worth_having(prices, np.array([0, 0, 1]), 1.0, np.inf).tolist() == [True, True, True]


def test_tasks_that_cannot_be_turned_away_may_cost_and_others_may_not():
    world = small_world(4, reward=Reward(w_eff=1.0, w_util=0.0, w_cost=50.0), queue_capacity=2)
    found = episode_limit(replace(world, arrivals=Poisson(20.0)), 0)
    assert len(found.bounds) > 3
    assert min(found.bounds[2:]) >= 0.0
    assert found.reward == pytest.approx(sum(found.bounds))


def test_many_limits_are_those_of_the_episodes():
    world = small_world(6, domains=2, devices=1, layers=2)
    assert episode_limits(world, [0, 1]) == tuple(episode_limit(world, seed).reward for seed in (0, 1))


def test_without_arrivals_the_limit_is_zero():
    found = episode_limit(one_task(small_world(0), at_s=10 * HOUR_S), 0)
    assert (found.reward, found.arrivals, found.bounds) == (0.0, (), ())


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"share_limit": 2}, "share_limit = 2"),
        ({"reward": Reward(per_decision=True)}, "reward.per_decision"),
        ({"waiting_r_eff": 0.5}, "waiting_r_eff"),
    ],
)
def test_worlds_that_it_cannot_bound_are_refused(changes, field):
    with pytest.raises(SettingsError, match=field):
        episode_limit(small_world(0, **changes), 0)


@pytest.mark.parametrize(
    ("cluster", "domain", "reward", "field"),
    [
        ({"cap_levels": (0.75, 0.5)}, {}, {}, "cap_levels"),
        (
            {}, {"carbon": Series.hourly([300.0, 100.0]), "carbon_g_per_kwh": 200.0}, {"carbon_usd_per_kg": 0.1},
            r"domains\.carbon",
        ),
        (
            {}, {"electricity": Series.hourly([0.2, 0.1])}, {"energy_usd_per_kwh": 0.1},
            r"domains\.electricity",
        ),
    ],
)  # fmt: skip
def test_caps_and_prices_that_change_are_refused(cluster, domain, reward, field):
    """A policy that caps a task, or waits for a cheaper hour, could earn more than a bound that knows neither."""
    world = small_world(0, reward=Reward(**reward))
    domains = tuple(replace(each, **domain) for each in world.cluster.domains)
    with pytest.raises(SettingsError, match=field):
        episode_limit(replace(world, cluster=replace(world.cluster, domains=domains, **cluster)), 0)


def test_too_many_plans_are_refused_with_the_limit():
    with pytest.raises(PlanError, match="more than 100"):
        Clairvoyant(small_world(0), max_plans=100).limit(0)
