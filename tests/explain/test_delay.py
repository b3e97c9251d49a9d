"""Shares of a wait: they add up, somebody who changes nothing has none, and who holds the room has most."""

import itertools

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.fork import Remove, fork
from attribution_sched.errors import TaskError
from attribution_sched.explain import delay as delays
from attribution_sched.scheduler.policy import go_on_as
from attribution_sched.system.moments import present_moment


@pytest.fixture(scope="module")
def system():
    made = System("cross-domain-easy", "rule", seed=3)
    while not len(made.queue()):
        made.schedule_next_task()
    return made


@pytest.fixture(scope="module")
def told(system):
    return system.delay(str(system.queue()["id"].iloc[0]), futures=3, hours=8.0)


def test_shares_add_up_to_the_wait(told):
    assert sum(share.hours for share in told.shares) == pytest.approx(told.hours - told.alone_h, abs=1e-9)
    assert told.hours > told.alone_h
    assert all(share.low <= share.hours <= share.high for share in told.shares)
    assert list(told.shares) == sorted(told.shares, key=lambda share: -share.hours)


def test_they_are_those_of_the_definition(system, monkeypatch):
    """By hand: over all orders, what somebody adds to the wait of copies in which only those before are there."""
    monkeypatch.setattr(delays, "MOST_PLAYERS", 3)
    told = system.delay(str(system.queue()["id"].iloc[0]), futures=2, hours=6.0)
    seen = present_moment(system.cluster)
    follower, beliefs = go_on_as(system.policy, seen)
    tasks = {share.who: share.tasks for share in told.shares}

    def wait_h(present):
        gone = [task for who, those in tasks.items() if who not in present for task in those]
        changes = [Remove(gone[0], tuple(gone[1:]))] if gone else []
        found = fork(seen.moment, changes, 2, 6.0, follower, system.seed, beliefs=beliefs)
        return (found.of("start_s")[-1, :, found.names.index(told.task)] - found.began_s).mean() / 3600.0

    added = dict.fromkeys(tasks, 0.0)
    orders = list(itertools.permutations(tasks))
    for order in orders:
        for at, who in enumerate(order):
            added[who] += (wait_h(order[: at + 1]) - wait_h(order[:at])) / len(orders)
    assert {share.who: pytest.approx(share.hours, abs=1e-9) for share in told.shares} == added


def test_the_same_question_has_the_same_answer(system, told):
    assert system.delay(told.task, futures=3, hours=8.0) == told


def test_many_others_stand_together_by_tenant(system, monkeypatch):
    monkeypatch.setattr(delays, "MOST_PLAYERS", 2)
    grouped = system.delay(str(system.queue()["id"].iloc[0]), futures=2, hours=4.0)
    assert grouped.by == "tenant"
    assert len(grouped.shares) <= 2
    assert sum(len(share.tasks) for share in grouped.shares) >= 3
    assert sum(share.hours for share in grouped.shares) == pytest.approx(grouped.hours - grouped.alone_h, abs=1e-9)


def test_nobody_to_ask(system):
    with pytest.raises(TaskError, match="nobody"):
        system.delay("nobody")
    assert np.isfinite(system.now_s)


def test_orders_of_more_players_are_shares_too(system, told, monkeypatch):
    """Sampled by orders they add up in every future, and are those of all coalitions within their error."""
    monkeypatch.setattr(delays, "EXACT", 1)
    monkeypatch.setattr(delays, "PAIRS", 40)
    sampled = system.delay(told.task, futures=3, hours=8.0)
    assert sum(share.hours for share in sampled.shares) == pytest.approx(sampled.hours - sampled.alone_h, abs=1e-9)
    assert (sampled.hours, sampled.alone_h) == (pytest.approx(told.hours), pytest.approx(told.alone_h))
    exact = {share.who: share.hours for share in told.shares}
    assert max(abs(share.hours - exact[share.who]) for share in sampled.shares) < 0.1 * told.hours


def test_what_lies_behind_a_task_is_shared_out_from_its_submission_on(system):
    while system.queue()["waited_s"].max() < 3600.0:
        system.schedule_next_task()
    row = system.queue().sort_values("waited_s").iloc[-1]
    told = system.delay(str(row.id), futures=2, hours=2.0)
    past = told.waited
    assert past.hours == pytest.approx(row.waited_s / 3600.0, abs=1e-6)
    together = sum(share.hours for share in past.shares) + past.alone_h + past.left_h
    assert together == pytest.approx(past.hours, abs=1e-9)
    # Alone it would have started; it waited because others were there, who came before or after it.
    assert past.alone_h < 0.1 * past.hours
    assert sum(share.hours for share in past.shares) > 0.5 * past.hours
    ran = {each.task_id for each in system.journal.decisions() if each.plan is not None}
    assert {task for share in past.shares for task in share.tasks} & ran
    assert system.delay(str(row.id), futures=2, hours=2.0) == told


def test_who_came_after_it_and_took_the_room_has_a_share_of_the_wait():
    system = System("cross-domain-easy", "sjf", seed=4)
    while not system.queue()["waited_s"].max() > 1800.0:
        system.schedule_next_task()
    row = system.queue().sort_values("waited_s").iloc[-1]
    past = system.delay(str(row.id), futures=2, hours=2.0).waited
    submitted_s = system.journal.task(str(row.id)).submitted_s
    later = [share for share in past.shares if system.journal.task(share.who).submitted_s > submitted_s]
    assert max(share.hours for share in later) > 0.05
