"""Why this and nothing else: the contrast finds what a policy reads, tells room from preference, and never lies."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import REASKED, STEADFAST, Explainer
from attribution_sched.explain.preference import AskedAgain, devices_needed, where
from attribution_sched.explain.reasoning import reasoning
from attribution_sched.explain.recorder import Decided, Watch
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.rules import LeastLoaded

from .policies import views


class Picky:
    """Stays in domain 0 while at most ``most`` tasks wait, else lets the task wait."""

    name = "picky"

    def __init__(self, most=2):
        self.most = most

    def decide(self, view):
        if view.replanning or len(view.queue) > self.most:
            return None
        free = np.where(np.arange(len(view.free_devices)) == 0, view.free_devices, 0)
        return Greedy().decide(replace(view, free_devices=free))


def watched(policy, count=80):
    watch = Watch(policy)
    for one in views()[:count]:
        watch.decide(one)
    return Explainer(policy, Background.of(watch)), list(watch)


def test_the_decision_itself_is_what_is_explained_by_default():
    made, decided = watched(Picky())
    one = next(d for d in decided if d.plan is not None)
    told = made.explain(one)
    assert told.target == "decision" and told.outputs == ("choice", "fits") and REASKED in told.notes
    assert told.value[0] == 1.0 and told.value[1] == 1.0
    assert np.allclose(told.values.sum(axis=0), told.value - told.base, atol=1e-9)
    assert set(told.background_ids) <= {each.id for each in decided}


def test_what_a_rule_reads_is_its_driver_and_what_it_does_not_is_none():
    made, decided = watched(Picky())
    for one in [d for d in decided if d.plan is not None][:4]:
        told = made.explain(one)
        if STEADFAST in told.notes:
            continue
        named = {told.names[i] for i in told.drivers(sure=True)}
        assert named and named <= {"queue", "load d0", "other inputs"}, named


def test_room_and_preference_are_told_apart():
    made, decided = watched(LeastLoaded())
    one = next(d for d in decided if d.plan is not None)
    told = made.explain(one)
    need = devices_needed(one.plan, one.seen.free.shape[1])
    # Only where its own domains have too few devices does a plan not fit.
    for player, share in zip(told.players, told.values[:, told.column("fits")], strict=True):
        taking_part = any(need[k] and player.name == f"load d{k}" for k in range(len(need)))
        assert share == 0.0 or taking_part or player.name == "other inputs"


def test_a_task_that_waits_for_room_is_explained_by_the_lack_of_it():
    made, decided = watched(Greedy())
    full = next((d for d in decided if d.plan is None and not d.view.replanning), None)
    if full is None:
        one = decided[0]
        none = np.zeros_like(one.view.free_devices)
        seen = replace(one.seen, free=np.zeros_like(one.seen.free))
        full = Decided("full", replace(one.view, free_devices=none), None, seen)
    told = made.explain(full)
    assert told.outputs == ("choice", "nothing_fits") and told.value.tolist() == [1.0, 1.0]
    assert any(told.names[i].startswith("load") for i in told.drivers(sure=True))
    assert "No plan fits now: 0 free in" in reasoning(told) and "没有任何方案放得下" in reasoning(told, "zh")


def test_the_same_question_has_the_same_answer():
    made, decided = watched(Picky())
    one = next(d for d in decided if d.plan is not None)
    first, again = (replace(made.explain(one), seconds=0.0).to_dict() for _ in range(2))
    assert first == again


def test_details_are_no_other_choice():
    made, decided = watched(Greedy())
    plan = next(d.plan for d in decided if d.plan is not None)
    assert where(None) is None and where(plan) == where(replace(plan))
    with pytest.raises(Exception, match="finds the other choice itself"):
        made.explain(decided[0], target="decision", against="nothing")


class Counting(Picky):
    """Counts how often it is asked."""

    def __init__(self, most=2):
        super().__init__(most)
        self.asked = 0

    def decide(self, view):
        self.asked += 1
        return super().decide(view)


def test_of_equal_situations_a_policy_is_asked_once():
    _, decided = watched(Picky())
    one = next(d for d in decided if d.plan is not None)
    policy = Counting()
    asked, rows = AskedAgain(policy, one.view), one.seen.take(np.zeros(6, dtype=np.int64))
    rows.free[3:] = 0
    made = asked(rows)
    assert policy.asked == 2
    assert made[0] is not None and made[:3] == 3 * made[:1] and made[3:] == [None] * 3
    assert asked(rows.take(np.array([4, 1]))) == [made[4], made[1]] and policy.asked == 2


def test_an_explanation_by_asking_again_asks_less_often_than_it_has_rows():
    _, decided = watched(Picky())
    policy = Counting()
    made = Explainer(policy, Background.of(decided))
    one = next(d for d in decided if d.plan is not None)
    told = made.explain(one)
    assert REASKED in told.notes and policy.asked < told.rows
    assert np.array_equal(told.values, watched(Picky())[0].explain(one).values)
