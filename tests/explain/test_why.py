"""Why a task waits: one test a cause, in order of precedence; blockers and advice hold when followed."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.config import load_settings
from attribution_sched.errors import TaskError
from attribution_sched.explain.decision_table import least_devices
from attribution_sched.explain.why import Cause, Holder, why_waiting
from attribution_sched.live_cluster import SimulatedCluster
from attribution_sched.scheduler.greedy import Greedy
from attribution_sched.types import Task
from tests.engines.test_closed_loop import SETTINGS as SEVERAL

from .policies import views


class Never:
    """Waits whatever comes."""

    name = "never"

    def decide(self, view):
        return None


class Alone:
    """Places a task only if nobody else waits."""

    name = "alone"

    def decide(self, view):
        return Greedy().decide(view) if len(view.queue) <= 1 else None


class Impatient:
    """Places a task only over fast links."""

    name = "impatient"

    def __init__(self, gbps):
        self.gbps = gbps

    def decide(self, view):
        return Greedy().decide(view) if view.bandwidth_gbps.max() >= self.gbps else None


def moment(free=None, **asked):
    """A task of a recorded moment, with so many devices free in every domain (all of them by default)."""
    one = next(each for each in views() if not each.replanning and len(each.queue) > 1)
    every = np.asarray(one.cost.domains.rows.devices)
    task = Task(id="mine", kind_index=one.kind_index, slot=one.slot, **asked)
    return replace(one, free_devices=every.copy() if free is None else np.minimum(every, free), task=task)


def test_too_few_devices_asked_for():
    cluster = SimulatedCluster(load_settings("cross-domain").build_world(), 3)
    while cluster.advance():
        view = cluster.pending()
        need = min(n for k in range(len(view.free_devices)) if (n := least_devices(view, k)) is not None)
        if need > 1:
            break
        cluster.carry_out(cluster.encode(None, view.kind_index))
    every = np.asarray(view.cost.domains.rows.devices)
    task = Task(id="mine", kind_index=view.kind_index, slot=view.slot, devices=need // 2)
    found = why_waiting(Greedy(), replace(view, free_devices=every, task=task))
    assert found.cause is Cause.MISCONFIGURED and str(need) in found.sentence
    assert found.change == {"devices": need}
    followed = replace(view, free_devices=np.minimum(every, found.change["devices"]))
    assert Greedy().decide(followed) is not None


def test_on_hold_and_reserved_are_quota():
    assert why_waiting(Greedy(), moment(hold=True)).cause is Cause.QUOTA
    view = moment()
    found = why_waiting(Greedy(), view, allowed=np.zeros_like(view.free_devices))
    assert found.cause is Cause.QUOTA and "reserved" in found.sentence


def test_no_room_names_who_holds_it_and_without_them_it_starts():
    view = moment(free=0)
    every = np.asarray(view.cost.domains.rows.devices)
    holders = [
        Holder(f"t{k}", "other", tuple(int(n) if j == k else 0 for j, n in enumerate(every))) for k in range(len(every))
    ]
    found = why_waiting(Greedy(), view, holders)
    assert found.cause is Cause.NO_ROOM and len(found.blockers) == 1 and found.blockers[0] in found.sentence
    freed = np.array(next(each.devices for each in holders if each.task == found.blockers[0]))
    assert Greedy().decide(replace(view, free_devices=view.free_devices + freed)) is not None
    hidden = why_waiting(Greedy(), view, holders, private=True)
    assert hidden.blockers == () and "t0" not in hidden.say() and "他人" in hidden.say("zh")


def test_a_model_that_no_domain_holds_by_itself_has_no_number_of_devices_in_one():
    with System(SEVERAL, "sjf", queue="empty") as system:
        for name in ("one", "two"):
            system.submit("blocks", steps=60, id=name)
        system.schedule_next_task()
        found = system.why("two")
    assert found.cause is Cause.NO_ROOM and found.blockers == ("one",)
    assert (
        "no domain holds it by itself, and the 1 devices" in found.sentence
        and "没有任何域能单独容纳它" in found.say("zh")
    )


def test_room_that_is_held_for_another():
    assert why_waiting(Alone(), moment()).cause is Cause.HELD_FOR_ANOTHER


def test_links_that_are_too_slow():
    view = moment()
    found = why_waiting(Impatient(5.0 * float(view.bandwidth_gbps.max())), view)
    assert found.cause is Cause.LINK_OR_PRICE


def test_a_policy_that_prefers_to_wait():
    found = why_waiting(Never(), moment())
    assert found.cause is Cause.POLICY_WAITS and not found.advice and found.change is None


def test_behind_others():
    found = why_waiting(Greedy(), moment(), behind=7)
    assert found.cause is Cause.BEHIND and "7 tasks" in found.sentence


def test_a_system_is_asked_by_name_and_refuses_what_does_not_wait():
    system = System("cross-domain", policy="sjf", seed=7)
    system.run(40)
    waiting = list(system.queue().index) or list(system.queue().iloc[:, 0])
    decisions = system.journal.count()
    for name in waiting[:3]:
        assert system.why(str(name)).say("zh")
        assert system.why_not(str(name), system.domains[0]).what == system.domains[0]
    with pytest.raises(TaskError, match="does not wait here"):
        system.why("nobody")
    assert system.journal.count() == decisions


def test_room_held_by_somebody_and_others_that_would_go_first():
    one = moment(free=0)
    assert len(one.queue) > 1
    every = tuple(int(n) for n in one.cost.domains.rows.devices)
    holders = [Holder("big", "t", every)]
    told = why_waiting(Alone(), one, holders)
    assert told.cause is Cause.NO_ROOM
    assert told.blockers == ("big",)
    assert told.behind_others
    assert "would go first" in told.say()
    assert "排在它前面" in told.say("zh")
    # Greedy does not look at the others: without the holder it places the task, so nobody goes first.
    plain = why_waiting(Greedy(), one, holders)
    assert plain.blockers == ("big",)
    assert not plain.behind_others
