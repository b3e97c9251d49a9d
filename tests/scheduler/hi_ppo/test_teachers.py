"""Teachers choose what they say they choose."""

import numpy as np

from attribution_sched.cluster.plan import DP, PP, TP
from attribution_sched.scheduler.hi_ppo.decode import ShortestFirst, decode
from attribution_sched.scheduler.hi_ppo.features import BASELINE_HOURS, HOURS, SLOWED

from . import worlds
from .plan_follower import PlanFollower


def test_a_plan_that_was_drawn_can_be_followed_and_one_that_does_not_fit_cannot():
    engine = worlds.begun(worlds.worlds()["tight"], 8)
    planner, decisions = worlds.planner_of(engine), worlds.gathered(engine)
    drawn = decode(planner, decisions, worlds.chooser(3, must_act=True))
    assert (drawn.batch.counts > 0).all()
    plans = [drawn.batch.segments[i, : drawn.batch.counts[i]].copy() for i in range(8)]
    follower = PlanFollower(planner.tables, drawn.task, plans, drawn.drafts.kind)
    again = decode(planner, decisions, follower)
    follower.compare(again.drafts)
    assert follower.followed.all() and np.array_equal(again.batch.segments, drawn.batch.segments)


def test_a_forced_choice_that_differs_from_the_plan_is_noticed():
    """One domain is left, so nobody is asked; the plan wants another one."""
    engine = worlds.begun(worlds.worlds()["equal"], 1)
    planner = worlds.planner_of(engine)
    decisions = worlds.gathered(engine)
    decisions.free[:] = [4, 0, 0]
    drawn = decode(planner, decisions, worlds.chooser(1, must_act=True))
    plan = drawn.batch.segments[0, : drawn.batch.counts[0]].copy()
    plan[:, 0] = 2
    follower = PlanFollower(planner.tables, drawn.task, [plan], drawn.drafts.kind)
    found = decode(planner, decisions, follower)
    follower.compare(found.drafts)
    assert not follower.followed[0]


def test_the_shortest_task_goes_first_and_running_ones_stay():
    engine = worlds.begun(worlds.worlds()["equal"], 6, 2)
    planner, decisions = worlds.planner_of(engine), worlds.gathered(engine)
    found = decode(planner, decisions, ShortestFirst())
    state = found.state
    hours = np.where(state.mask[:, :-1], state.candidates[:, :, HOURS], np.inf)
    assert np.array_equal(found.task, hours.argmin(axis=1))


def test_a_task_waits_for_room_in_one_domain_and_a_model_that_never_fits_one_is_cut():
    engine = worlds.begun(worlds.worlds()["tight"], 8)
    planner, decisions = worlds.planner_of(engine), worlds.gathered(engine)
    decisions.kind[:, 1:] = -1
    decisions.kind[:, 0] = 0
    state = decode(planner, decisions, ShortestFirst()).state
    state.mask[:, 0] = True
    state.candidates[:, 0, SLOWED] = 2.0
    state.candidates[:, 0, HOURS], state.candidates[:, 0, BASELINE_HOURS] = 0.1, 0.5
    nothing = state.mask.shape[1] - 1
    assert (ShortestFirst().task(state) == nothing).all()
    state.candidates[:, 0, HOURS] = 0.5
    assert (ShortestFirst().task(state) == 0).all()
    state.candidates[:, 0, HOURS], state.candidates[:, 0, SLOWED] = 0.1, 1.0
    assert (ShortestFirst().task(state) == 0).all()


def test_the_more_wait_the_fewer_devices_are_taken():
    engine = worlds.begun(worlds.worlds()["equal"], 6, 2)
    planner, decisions = worlds.planner_of(engine), worlds.gathered(engine)
    taken = []
    for waiting in (1, 4, 400):
        decisions.waiting[:] = waiting
        rows = decode(planner, decisions, ShortestFirst()).batch.segments[:, 0]
        taken.append((rows[:, DP] * rows[:, TP] * rows[:, PP]).sum())
    assert taken[0] >= taken[1] >= taken[2] and taken[0] > taken[2]
