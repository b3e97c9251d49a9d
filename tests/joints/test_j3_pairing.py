"""J3 decision → world: a task put beside another changes both, and what the seeds decide about occurs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.config import load_settings
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.pairing import Packing
from attribution_sched.scheduler.registry import make_policy


def site(devices=8, hours=6.0):
    """The shared preset on fewer devices, and more work than they can do."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = devices
    settings["arrivals"]["rate_per_hour"] = 30.0
    settings["episode"] |= {"horizon_s": 3600.0 * hours, "pool_size": 512, "queue_capacity": 8, "max_running": 16}
    return load_settings(settings).build_world()


def shared_places(world, policy, seed):
    """Decisions that put a task on a device in use, and all that placed one."""
    engine = Engine(world)
    engine.seed([seed])
    engine.reset()
    sharing = placed = 0
    while engine.state.event[0, st.DONE] == 0:
        seen = view(engine)
        if seen is None:
            break
        plan = policy.decide(seen)
        engine.step(encode(engine, plan, seen.kind_index)[None])
        if engine.state.outcome[0, st.D_CODE] > 0:
            placed += 1
            sharing += plan.beside is not None
    return sharing, placed


def test_tasks_share_devices_where_a_policy_chooses_it(tell):
    world = site()
    sharing, placed = shared_places(world, make_policy("gavel-sharing"), 1)
    tell("J3", preset="shared, 8 devices", plans=placed, sharing_a_device=sharing)
    assert sharing > 0


def test_tasks_of_known_models_share_devices_by_thinking_and_that_pays(tell):
    """On the testbed sharing is a choice like any other: copies say what two tasks do to each other."""
    world = replace(load_settings("testbed").build_world(), horizon_s=3600.0)
    gained, sharing = [], 0
    for seed in range(4):
        free, cut = make_policy("hi-ppo"), make_policy("hi-ppo")
        cut.pairs = False
        free.coordinate = recorded(free.coordinate, found := [])
        gained.append(play(world, free, seed).reward - play(world, cut, seed).reward)
        sharing += sum(each.plan is not None and each.plan.beside is not None for each in found)
        assert all(
            each.source == "thinking" for each in found if each.plan is not None and each.plan.beside is not None
        )
    half = student.ppf(0.975, 3) * np.std(gained, ddof=1) / 2.0
    tell("J3", preset="testbed, an hour", sharing_a_device=sharing, gained_r=np.mean(gained), half_width=half)
    assert sharing > 10 and np.mean(gained) - half > 0.0


def recorded(coordinate, found):
    """The same, and what it comes to is kept."""

    def asked(view, **options):
        found.append(coordinate(view, **options))
        return found[-1]

    return asked


def days(seeds):
    """Days with and without the freedom to share, the queue so long that none is turned away: who is pays nothing."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = 16
    settings["arrivals"]["rate_per_hour"] = 4.0
    settings["episode"] |= {"horizon_s": 86_400.0, "pool_size": 512, "queue_capacity": 224, "max_running": 32}
    world = load_settings(settings).build_world()
    free = [play(world, make_policy("gavel-sharing"), seed) for seed in seeds]
    cut = [play(replace(world, share_limit=1), make_policy("gavel-sharing"), seed) for seed in seeds]
    assert not any(one.turned_away for one in free + cut)
    return free, cut


def log_ratio(free, cut, figure):
    """Mean of the days' logarithm of what the freedom multiplies a figure by, and half its 95 % interval."""
    found = np.array([np.log(figure(a) / figure(b)) for a, b in zip(free, cut, strict=True)])
    return found.mean(), student.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))


def test_cutting_the_freedom_to_share_costs_time_work_and_reward(tell):
    free, cut = days(range(6))
    time, half_time = log_ratio(free, cut, lambda one: one.mean_completion_h)
    loss, half_loss = log_ratio(free, cut, lambda one: -one.reward)
    work_h = sum(one.baseline_running_h for one in free), sum(one.baseline_running_h for one in cut)
    cost = sum(one.r_cost for one in free) / work_h[0], sum(one.r_cost for one in cut) / work_h[1]
    tell("J3", load=0.9, completion_log_ratio=time, half_time=half_time, loss_log_ratio=loss, half_loss=half_loss,
         work_h_shared=work_h[0], work_h_cut=work_h[1], r_cost_of_work=cost[0], r_cost_of_work_cut=cost[1])  # fmt: skip
    assert time < -half_time
    assert loss < -half_loss
    assert work_h[0] > 1.05 * work_h[1]
    assert cost[0] < cost[1]


def test_two_on_a_device_are_priced_by_what_the_meter_gives_them():
    """R_cost of a pair is its own joules: the same work above idle, half the idle power; not the whole device twice."""
    world = site()
    engine = Engine(world)
    engine.seed([1])
    engine.reset()
    policy, checked, idle_w = Packing(least_work=0.1), 0, world.cluster.domains[0].gpu.idle_w
    usd_per_j = world.reward.energy_usd_per_kwh / 3.6e6
    while engine.state.event[0, st.DONE] == 0 and checked < 20:
        seen = view(engine)
        engine.step(encode(engine, policy.decide(seen), seen.kind_index)[None])
        tasks, slots, occupant = engine.state.tasks[0], engine.state.slots[0], engine.state.occupant[0, 0]
        for slot in np.flatnonzero((slots[:, st.STATUS] == st.RUNNING) & (tasks[:, st.SHARED] > 0)):
            kind = engine.arrays.kinds[engine.pool.kinds[slots[slot, st.POOL]]]
            held = (occupant == slot).any(axis=1)
            together = (held & (occupant[:, 1] >= 0)).sum()
            alone_j, step_s = kind[st.K_BASE_COST] / usd_per_j, tasks[slot, st.STEP]
            above_idle_j = alone_j - held.sum() * idle_w * kind[st.K_BASE_STEP]
            joules = above_idle_j + (held.sum() - 0.5 * together) * idle_w * step_s
            assert tasks[slot, st.T_COST] == pytest.approx(joules / alone_j, rel=1e-9)
            checked += 1
    assert checked >= 20


def test_harm_to_a_neighbour_is_paid_for():
    world = site()
    assert not world.reward.per_decision
    assert not load_settings("testbed").build_world().reward.per_decision
    jobs = np.array(Engine(world).arrays.pool[:, st.P_TYPE])
    assert (jobs >= 0).all()
