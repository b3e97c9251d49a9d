"""A task on which the policy fails is set aside: it blocks nobody, not after a restart either."""

import logging

import pytest

from attribution_sched import System
from attribution_sched.errors import PolicyError
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.system.system import PATIENCE
from tests.small_world import small


class Picky:
    """Greedy, but raises for some tasks, or when running tasks are asked about."""

    name = "picky"

    def __init__(self, *poisoned, replanning=False):
        self.poisoned, self.replanning, self.inner = poisoned, replanning, make_policy("greedy")

    def decide(self, view):
        if view.task.id in self.poisoned or (self.replanning and view.replanning):
            raise ZeroDivisionError(f"cannot think of {view.task.id}")
        return self.inner.decide(view)


def made(policy, **given):
    return System(small(), policy, **({"queue": "empty"} | given))


def submit(system, *names):
    for name in names:
        system.submit("bert-base", id=name)


def test_a_poisoned_task_is_set_aside_with_its_reason_and_the_others_go_on(tmp_path, caplog):
    system = made(Picky("bad"), journal=tmp_path / "a.db")
    submit(system, "bad", "good", "better")
    with caplog.at_level(logging.WARNING, "attribution_sched"):
        assert system.schedule_next_task().task.id == "good"
    assert "task bad is set aside" in caplog.text
    assert system.status().set_aside == ("bad",)
    row = system.queue().set_index("id").loc["bad"]
    assert row["state"] == "set aside"
    assert "picky failed on it (ZeroDivisionError: cannot think of bad)" in row["reason"]
    intent = next(system.journal.intents())
    assert (intent.kind, intent.details["name"]) == ("set-aside", "bad")
    assert "ZeroDivisionError" in intent.details["reason"]
    system.close()
    again = System.resume(tmp_path / "a.db", policy=Picky("bad"))
    assert again.status().set_aside == ("bad",)
    assert again.run(until="empty").placed == 1
    again.close()
    mended = System.resume(tmp_path / "a.db", policy=Picky())
    mended.release("bad")
    assert mended.schedule_next_task().task.id == "bad"


def test_a_policy_that_fails_on_three_in_a_row_is_the_callers_business():
    system = made(Picky("a", "b", "c"))
    submit(system, "a", "b", "c", "d")
    with pytest.raises(PolicyError, match=r"picky.*failed on a, b, c.*ZeroDivisionError.*System\.release") as caught:
        system.schedule_next_task()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert system.schedule_next_task().task.id == "d"


def test_a_placement_in_between_begins_the_count_anew():
    system = made(Picky("a", "b", "d", "e"))
    submit(system, "a", "b", "c", "d", "e", "f")
    summary = system.run(2)
    assert summary.placed == 2
    assert summary.set_aside == 4


def test_a_policy_that_fails_on_the_only_task_is_not_silent():
    system = made(Picky("a"))
    submit(system, "a")
    with pytest.raises(PolicyError, match="failed on a"):
        system.schedule_next_task()
    assert system.schedule_next_task() is None


def test_a_running_task_keeps_its_plan_when_the_policy_fails_on_it():
    system = made(Picky(replanning=True))
    system.submit("bert-base", id="one", steps=5000)
    submit(system, "two")
    system.run(until="empty")
    kept = [each for each in system.journal.decisions() if each.source.startswith("keeps (picky failed")]
    assert kept
    assert kept[0].plan is None
    assert system.cluster.totals()["completed"] == 2


def test_an_answer_that_is_no_plan_is_a_failure_too():
    system = made(lambda view: "anywhere")
    submit(system, "a", "b", "c")
    with pytest.raises(PolicyError, match="must decide on a Plan or None"):
        system.schedule_next_task()


def test_an_error_of_the_journal_sets_nobody_aside(monkeypatch):
    system = made("greedy")
    submit(system, "a")
    monkeypatch.setattr(system.journal, "record_decision", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        system.schedule_next_task()
    assert not system.cluster.held


def test_giving_up_is_said_in_the_result_and_in_the_log(caplog):
    system = made(lambda view: None)
    submit(system, "a", "b")
    with caplog.at_level(logging.WARNING, "attribution_sched"):
        found = system.schedule_next_task()
    assert not found.placed
    assert found.note.startswith(f"nothing was placed in {PATIENCE} decisions: 2 tasks wait, 0 run, 8 of 8 devices are")
    assert found.note in caplog.text
    assert found.note in str(found)
    assert made("greedy").schedule_next_task() is None
    other = made("greedy")
    submit(other, "a")
    assert other.schedule_next_task().note == ""
