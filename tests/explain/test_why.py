"""Why a task waits: one test a cause, in order of precedence; blockers and advice hold in the cluster itself."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.live import PolicyCall, SimulatedCluster
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError, TaskError
from attribution_sched.explain.decision_table import least_devices
from attribution_sched.explain.why import Cause, why_waiting
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.system.moments import moment_of
from tests.engines.test_closed_loop import SETTINGS as SEVERAL


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


class Frugal:
    """Places a task only if cost does not count."""

    name = "frugal"

    def decide(self, view):
        return Greedy().decide(view) if view.reward.w_cost == 0.0 else None


@cache
def world():
    return load_settings("cross-domain-easy").build_world()


def first_wait(policy, least_queue=1, seed=3):
    """The cluster when a policy first leaves a task waiting among so many, and that task."""
    cluster, call = SimulatedCluster(world(), seed), PolicyCall()
    while cluster.advance():
        asked = call.ask(policy, cluster)
        if asked.plan is None and not asked.view.replanning and len(asked.view.queue) >= least_queue:
            return cluster, cluster.residents[asked.view.slot].id
        cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
        call.note(asked)
    raise AssertionError("nobody waited")


def asked(policy, least_queue=1, *, change=None, **given):
    """The answer at the moment when so many wait, all devices being free."""
    cluster, name = first_wait(Never(), least_queue)
    view, holders, allowed, behind = moment_of(cluster, name)
    if change is not None:
        view = replace(view, task=replace(view.task, **change(view)))
    return why_waiting(
        policy, view, holders, given.pop("allowed", allowed), behind=given.pop("behind", behind), **given
    )


def test_too_few_devices_asked_for():
    def too_few(view):
        need = min(n for k in range(len(view.free_devices)) if (n := least_devices(view, k)) is not None)
        assert need > 1
        return {"devices": need // 2}

    with System("cross-domain-easy", "sjf", seed=3, queue="empty") as system:
        name = system.submit("gpt3-13b", steps=100)
        view, holders, allowed, behind = moment_of(system.cluster, name)
        few = replace(view, task=replace(view.task, **too_few(view)))
        found = why_waiting(Greedy(), few, holders, allowed, behind=behind)
    assert found.cause is Cause.MISCONFIGURED
    assert found.change is not None and found.change["devices"] > few.task.devices
    assert str(found.change["devices"]) in found.say() and str(found.change["devices"]) in found.say("zh")


def test_on_hold_and_reserved_are_quota():
    assert asked(Never(), change=lambda _: {"hold": True}).cause is Cause.QUOTA
    found = asked(Never(), allowed=np.zeros(4, dtype=np.int64))
    assert found.cause is Cause.QUOTA and "reserved" in found.sentence


def test_no_room_names_who_holds_it_and_without_them_it_starts():
    with System("cross-domain-easy", "sjf", seed=5) as system:
        system.run(60)
        waiting = [row.id for row in system.queue().itertuples() if row.state == "window"]
        told = {name: system.why(name) for name in waiting}
        name, found = next((n, w) for n, w in told.items() if w.cause is Cause.NO_ROOM and w.blockers and not w.ahead)
        assert found.blockers[0] in found.sentence
        hidden = system.why(name, private=True)
        assert hidden.blockers == () and hidden.ahead == () and found.blockers[0] not in hidden.say()
        assert "他人" in hidden.say("zh")
        then_s = system.now_s
        for each in found.blockers:
            system.cancel(each)
        while (result := system.schedule_next_task()) is not None and result.cluster_time_s <= then_s + 1e-6:
            if result.task.id == name:
                return
    raise AssertionError("it was promised to start, and did not")


def test_a_model_that_no_domain_holds_by_itself_has_no_number_of_devices_in_one():
    with System(SEVERAL, "sjf", queue="empty") as system:
        for name in ("one", "two"):
            system.submit("blocks", steps=60, id=name)
        system.schedule_next_task()
        found = system.why("two")
    assert found.cause is Cause.NO_ROOM and found.blockers == ("one",)
    assert (
        "no domain holds it by itself, and 1 device free everywhere" in found.sentence
        and "没有任何域能单独容纳它" in found.say("zh")
    )


def test_room_that_is_held_for_another():
    found = asked(Alone(), 2)
    assert found.cause is Cause.HELD_FOR_ANOTHER and len(found.ahead) == 1
    assert "keeps it for 1 other waiting task" in found.say() and found.ahead[0] in found.say("zh")


def test_links_that_are_too_slow_and_prices_that_are_too_high():
    cluster, name = first_wait(Never())
    fast = Impatient(5.0 * float(moment_of(cluster, name)[0].bandwidth_gbps.max()))
    assert asked(fast).cause is Cause.LINK_OR_PRICE and "links" in asked(fast).say()
    assert asked(Frugal()).cause is Cause.LINK_OR_PRICE and "cost" in asked(Frugal()).say()


def test_a_policy_that_prefers_to_wait():
    found = asked(Never())
    assert found.cause is Cause.POLICY_WAITS and not found.advice and found.change is None


def test_behind_others_and_next():
    found = asked(Never(), behind=7)
    assert found.cause is Cause.BEHIND and "7 tasks" in found.sentence
    with System("cross-domain-easy", "sjf", queue="empty") as system:
        name = system.submit("bert-large", steps=100)
        found = system.why(name)
    assert found.cause is Cause.BEHIND and "its turn" in found.say() and not found.advice


def test_no_room_and_a_policy_that_would_still_wait_is_told_so():
    cluster, name = first_wait(Greedy())
    view, holders, allowed, behind = moment_of(cluster, name)
    found = why_waiting(Never(), view, holders, allowed, behind=behind)
    assert found.cause is Cause.NO_ROOM and not found.blockers and "would still wait" in found.say()


def test_without_its_moment_nothing_can_be_tried():
    cluster, name = first_wait(Never())
    with pytest.raises(SettingsError, match="moment"):
        why_waiting(Never(), replace(moment_of(cluster, name)[0], moment=None))


def test_advice_is_followed_in_the_system_itself():
    with System("shared", "sjf", queue="empty") as system:
        for _ in range(7):
            system.submit("opaque-8", steps=9000)
        system.submit("opaque-4", steps=9000)
        system.run(8)
        name = system.submit("opaque-8", steps=1000)
        found = system.why(name)
        assert found.cause is Cause.NO_ROOM and found.change == {"devices": 4}
        assert "Asking for 4 devices, it would start now" in found.say() and "4 块设备" in found.say("zh")
        then_s = system.now_s
        system.withdraw(name)
        again = system.submit("opaque-4", steps=2000)
        result = system.schedule_next_task()
    assert result.task.id == again and result.cluster_time_s == then_s


def test_a_system_is_asked_by_name_and_refuses_what_does_not_wait():
    system = System("cross-domain-easy", policy="sjf", seed=7)
    system.run(40)
    waiting = list(system.queue().index) or list(system.queue().iloc[:, 0])
    decisions = system.journal.count()
    for name in waiting[:3]:
        assert system.why(str(name)).say("zh")
        assert system.why_not(str(name), system.domains[0]).what == system.domains[0]
    with pytest.raises(TaskError, match="does not wait here"):
        system.why("nobody")
    assert system.journal.count() == decisions


def test_an_answer_makes_no_rule_and_no_engine(monkeypatch):
    """They took three quarters of the time: what happens at one instant needs neither."""
    from attribution_sched.cluster.engine.engine import Engine
    from attribution_sched.scheduler.rule_follower import RuleFollower

    with System("cross-domain-easy", "sjf", seed=3) as system:
        while not any(row.state == "window" for row in system.queue().itertuples()):
            system.schedule_next_task()
        name = next(row.id for row in system.queue().itertuples() if row.state == "window")

        def refuse(*args, **options):
            raise AssertionError("not needed for an instant")

        monkeypatch.setattr(RuleFollower, "__init__", refuse)
        monkeypatch.setattr(Engine, "__init__", refuse)
        assert system.why(name).tried > 0


class Stubborn:
    """Always the first of the queue, on devices that others hold: most of its plans are refused."""

    name = "stubborn"

    def __init__(self):
        self.asked = Counter()

    def select(self, view):
        return view.queue[0].slot

    def decide(self, view):
        self.asked[view.time_s] += 1
        if self.asked[view.time_s] > 300:
            raise AssertionError("asked for ever at one moment")
        whole = np.array(view.cost.domains.rows.devices)
        return None if view.replanning else Greedy().decide(replace(view, free_devices=whole))


def test_a_plan_that_is_refused_is_not_asked_for_for_ever():
    """Neither in the live system nor in the copies that an answer is tried in."""
    policy = Stubborn()
    with System("cross-domain-easy", policy, seed=1) as system:
        for _ in range(6):
            assert system.schedule_next_task() is not None
        assert any("refused" in each.source for each in system.journal.decisions())
        name = next(row.id for row in system.queue().itertuples() if row.state == "window")
        policy.asked.clear()
        assert system.why(name).tried > 0
