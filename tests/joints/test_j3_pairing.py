"""J3 decision → world: a task put beside another changes both, and what the seeds decide about occurs."""

from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.config import load_settings
from attribution_sched.scheduler.episode import play
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


def test_cutting_the_freedom_to_share_changes_the_world(tell):
    world = site()
    seeds = range(2)
    free = [play(world, make_policy("gavel-sharing"), seed) for seed in seeds]
    cut = [play(replace(world, share_limit=1), make_policy("gavel-sharing"), seed) for seed in seeds]
    waited = sum(one.waiting_h for one in free), sum(one.waiting_h for one in cut)
    reward = sum(one.reward for one in free), sum(one.reward for one in cut)
    tell("J3", waiting_h_shared=waited[0], waiting_h_cut=waited[1], reward_shared=reward[0], reward_cut=reward[1])
    assert waited[0] < waited[1]


def test_harm_to_a_neighbour_is_paid_for():
    world = site()
    assert not world.reward.per_decision
    assert not load_settings("testbed").build_world().reward.per_decision
    jobs = np.array(Engine(world).arrays.pool[:, st.P_TYPE])
    assert (jobs >= 0).all()
