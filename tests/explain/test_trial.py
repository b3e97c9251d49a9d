"""What would happen at this instant: the whole queue is asked, limits hold, and the moment stays as it was."""

from dataclasses import replace
from functools import cache

import numpy as np

from attribution_sched import System
from attribution_sched.cluster.engine import state as st
from attribution_sched.explain.preference import devices_needed
from attribution_sched.explain.trial import Bounded, Trial
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.system.moments import moment_of


@cache
def full():
    """A site with 4 of 64 devices free, and two jobs of 8 that wait."""
    with System("shared", "sjf", queue="empty") as system:
        for _ in range(7):
            system.submit("opaque-8", steps=9000)
        system.submit("opaque-4", steps=9000, id="small")
        system.run(8)
        system.submit("opaque-8", steps=3000, id="long")
        system.submit("opaque-8", steps=1000, id="short")
        return {name: moment_of(system.cluster, name)[0] for name in ("long", "short")}


def test_who_goes_first_has_gone_first():
    views = full()
    found = {name: Trial(make_policy("sjf"), view).without(["small"]) for name, view in views.items()}
    # There is room for one of the two: each answer names the same one.
    assert sorted(each.starts for each in found.values()) == [False, True]
    first, second = sorted(views, key=lambda name: not found[name].starts)
    assert found[first].others == () and found[second].others == (views[first].slot,)
    trial = Trial(make_policy("sjf"), views[second])
    assert trial.without(["small", views[first].slot]).starts and trial.count == 1


def full_site():
    """Eight long tasks hold all devices of a site."""
    system = System("shared", "sjf", queue="empty")
    for _ in range(8):
        system.submit("opaque-8", steps=9000)
    system.run(8)
    return system


def test_a_long_queue_ahead_is_found_in_one_play():
    """Everybody before it is gone one after the other: as many tasks as there are, and not a play for each."""
    with full_site() as system:
        names = [system.submit("opaque-8", steps=1000) for _ in range(15)]
        views = {name: moment_of(system.cluster, name)[0] for name in names}
        told = {name: system.why(name) for name in names}
    holder = next(iter(told.values())).blockers
    passed = {name: Trial(make_policy("sjf"), view).passing(holder) for name, view in views.items()}
    assert sorted(len(each) for each in passed.values()) == list(range(15))
    for name, view in views.items():
        assert view.slot not in passed[name]
        assert Trial(make_policy("sjf"), view).without([*holder, *passed[name]]).starts
        assert len(told[name].ahead) == len(passed[name]) and told[name].tried < 16


def test_nothing_changed_starts_nobody_and_changes_nothing():
    view = full()["long"]
    before = view.moment.state.slots.copy(), view.moment.state.tasks.copy()
    trial = Trial(make_policy("sjf"), view)
    assert not trial.without(()).starts and not trial.looks_ahead
    assert not trial.asking(replace(view.task, steps=1000.0))
    smaller = next(i for i, kind in enumerate(view.kinds) if kind.batch_size == 4)
    assert trial.asking(replace(view.task, kind_index=smaller, steps=6000.0))
    assert np.array_equal(before[0], view.moment.state.slots) and np.array_equal(before[1], view.moment.state.tasks)
    assert view.moment.state.slots[0, view.slot, st.STATUS] == st.QUEUED


def test_a_policy_is_bound_by_what_a_task_asks_for_and_may_have():
    with System("cross-domain-easy", "sjf", queue="empty") as system:
        name = system.submit("gpt3-13b", steps=500)
        view = moment_of(system.cluster, name)[0]
    free = len(view.free_devices)
    whole = int(devices_needed(Bounded(Greedy(), view).decide(view), free).sum())
    assert whole > 2
    asked = replace(view, task=replace(view.task, devices=whole // 2))
    plan = Bounded(Greedy(), view).decide(asked)
    assert plan is None or devices_needed(plan, free).sum() <= whole // 2
    assert Bounded(Greedy(), view, np.zeros(free, dtype=np.int64)).decide(view) is None


class Counts(Greedy):
    """Greedy; counts how often it is asked."""

    asked = 0

    def decide(self, view):
        Counts.asked += 1
        return super().decide(view)


def test_once_the_task_runs_nobody_else_is_asked_about():
    with full_site() as system:
        names = [system.submit("opaque-1", steps=1000) for _ in range(8)]
        views = [moment_of(system.cluster, name)[0] for name in (names[0], names[-1])]
        gone = next(each for each in system.cluster.names() if system.cluster.place_of(each) == "running")
    asked = []
    for view in views:
        Counts.asked = 0
        assert Trial(Counts(), view).without([gone]).starts
        asked.append(Counts.asked)
    # The answer about who goes last takes the whole queue; that about who goes first one question.
    assert asked == [1, 8]
