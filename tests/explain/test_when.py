"""When a task starts: intervals of exchangeable draws, censoring, the same bytes twice, errors that say what to do."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attribution_sched import System
from attribution_sched.cluster.engine import state as state_of
from attribution_sched.cluster.fork import PriorBeliefs, believed_left, draw_futures, resident_slots
from attribution_sched.errors import SettingsError, TaskError
from attribution_sched.explain.when import FUTURES, Interval, When, interval, when_starts
from attribution_sched.system.moments import present_moment


def waiting(policy="rule", seed=3):
    """A system in which somebody waits, and who."""
    system = System("cross-domain-easy", policy, seed=seed)
    while not len(queue := system.queue()):
        system.schedule_next_task()
    return system, str(queue["id"].iloc[0])


@pytest.fixture(scope="module")
def asked():
    system, task = waiting()
    return system, task, system.when(task)


def test_an_interval_of_59_draws_is_the_sixth_from_both_ends():
    found = interval(np.arange(1.0, FUTURES + 1), 0.8)
    assert (found.low_s, found.middle_s, found.high_s) == (6.0, 30.0, 54.0)


@given(st.integers(0, 10**6))
def test_one_more_draw_lies_inside_as_often_as_said(seed):
    rng = np.random.default_rng(seed)
    draws = rng.exponential(size=(400, FUTURES + 1))
    inside = np.mean([row[-1] in interval(row[:-1], 0.8) for row in draws])
    # Four standard errors of 400 draws.
    assert abs(inside - 0.8) < 0.08


def test_what_never_started_is_later_than_all_that_was_played():
    times = np.arange(1.0, FUTURES + 1)
    times[-10:] = np.nan
    found = interval(times, 0.8)
    assert found.low_s == 6.0
    assert math.isinf(found.high_s)
    assert 10**9 in found


def test_it_is_told_in_order_and_from_now_on(asked):
    system, task, told = asked
    assert told.task == task
    assert system.now_s <= told.start.low_s <= told.start.middle_s <= told.start.high_s
    assert told.start.low_s <= told.finish.low_s
    assert told.futures == FUTURES
    assert told.follower == "rule"
    assert told.say().startswith(f"{task} starts in ")
    assert task in told.say("zh")
    assert "启动" in told.say("zh")


def test_the_same_question_has_the_same_answer_and_changes_nothing(asked):
    system, task, told = asked
    before = system.journal.count(), system.now_s, system.cluster.engine.state.slots.copy()
    assert system.when(task) == told
    assert system.when(task, seed=99) != told
    assert (system.journal.count(), system.now_s) == before[:2]
    assert np.array_equal(system.cluster.engine.state.slots, before[2])


def test_all_of_the_queue_from_the_same_futures_is_what_each_is_told_alone(asked):
    system, _, told = asked
    answers = system.when_all()
    assert told in answers
    assert [each.task for each in answers] == [row.id for row in system.queue().itertuples() if row.state == "window"]


def test_whoever_decides_in_a_future_does_not_know_what_it_has_drawn():
    with System("shared", "rule", seed=5) as system:
        while not len(system.queue()):
            system.schedule_next_task()
        moment = present_moment(system.cluster).moment
        beliefs = PriorBeliefs(moment.world)
        one, other = (draw_futures(moment, beliefs, 1, moment.now_s + 3600.0, seed)[0] for seed in (0, 1))
        assert not np.array_equal(one.left, other.left)
        order, seen = resident_slots(moment), []
        for future in (one, other):
            tasks = moment.state.tasks.copy()
            slots = moment.state.slots.copy()
            for row, slot in enumerate(order):
                slots[0, slot, state_of.POOL], tasks[0, slot, state_of.LEFT] = row, future.left[row]
            state = moment.state._replace(tasks=tasks, slots=slots)
            world = moment.arrays._replace(pool=future.pool)
            seen.append([believed_left(world, state, 0, slot, future.believed) for slot in order])
        assert seen[0] == pytest.approx(seen[1])
        fresh = [
            row for row, slot in enumerate(order) if moment.state.slots[0, slot, state_of.STATUS] == state_of.QUEUED
        ]
        known = [float(moment.state.tasks[0, order[row], state_of.LEFT]) for row in fresh]
        assert fresh
        assert [seen[0][row] for row in fresh] == pytest.approx(known)


def test_a_busier_cluster_starts_it_later(asked):
    system, task, _ = asked
    others = [each.id for each in present_moment(system.cluster).moment.tasks.values() if each.id != task]
    answers = [system.what_if(without=each, hours=6.0, futures=8)[0] for each in others]
    earlier = [shift.start_s for told in answers for shift in told.shifts if shift.task == task]
    assert min(earlier) < -60.0


def test_a_policy_that_is_asked_in_every_copy():
    system, task = waiting("sjf")
    told = system.when(task, futures=9, hours=2.0)
    assert told.follower == "sjf"
    assert told.futures == 9


def test_mistakes_have_one_clear_error(asked):
    system, task, _ = asked
    with pytest.raises(SettingsError, match="futures = 3: must be an integer >= 9"):
        system.when(task, futures=3)
    with pytest.raises(SettingsError, match=r"level = 1\.0"):
        when_starts(system.policy, present_moment(system.cluster), level=1.0)
    with pytest.raises(TaskError, match="nobody"):
        system.when("nobody")
    running = next(name for name in system.cluster.names() if system.cluster.place_of(name) == "running")
    with pytest.raises(TaskError, match="runs already"):
        system.when(running)


def test_a_time_is_told_as_people_tell_it():
    """What is next is told as such, not to the second; who goes on in copies is not taken for the whole policy."""
    soon = Interval(111.0, 115.0, 100.0 + 3.4 * 3600.0)
    told = When("mine", 100.0, soon, Interval(math.inf, math.inf, math.inf), 0.8, 9, 21700.0, 0, "hi-ppo", 0, 0)
    assert "starts within 3.4 h (80 % interval, median under a minute)" in told.say()
    assert "hi-ppo's agents" in told.say() and "预计 3.4 小时内启动" in told.say("zh")
    at_once = replace(told, start=Interval(100.0, 100.0, 130.0), follower="sjf")
    assert "starts at once" in at_once.say() and "decided by sjf" in at_once.say()
    assert "预计立即启动" in at_once.say("zh") and "由 sjf 决策" in at_once.say("zh")
    later = replace(told, start=Interval(2200.0, 2300.0, 2620.0))
    assert "starts in 35 min to 42 min" in later.say() and "35 分钟至 42 分钟后启动" in later.say("zh")
