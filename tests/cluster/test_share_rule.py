"""Fair shares between tenants: one that floods the queue does not push the others back; why names the rule."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.config import load_settings
from attribution_sched.errors import AttributionSchedError
from attribution_sched.explain.why import Cause
from tests.small_world import small


def flooded(rule, policy="fcfs", *, flood=30, journal=None):
    """A system with many tasks of one tenant before the few of another; hours until each of the latter started."""
    settings = small(share_rule=rule)
    system = System(settings, policy, queue="empty", journal=journal)
    for at in range(flood):
        system.submit("bert-base", id=f"flood{at}", tenant="loud", steps=4000)
    for at in range(3):
        system.submit("bert-base", id=f"quiet{at}", tenant="quiet", steps=4000)
    return system


def starts_h(system, names):
    """When tasks were placed, by the journal."""
    found = {}
    while len(found) < len(names) and (done := system.schedule_next_task()) is not None:
        if done.placed and done.task.id in names:
            found[done.task.id] = system.now_s / 3600.0
    return np.array([found[name] for name in names])


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "greedy"])
def test_a_flood_of_one_tenant_pushes_the_others_back_only_without_a_share_rule(policy):
    names = [f"quiet{at}" for at in range(3)]
    alone = starts_h(flooded("fair-share", policy, flood=0), names)
    crowded, fair = (starts_h(flooded(rule, policy), names) for rule in ("none", "fair-share"))
    assert np.median(crowded) > np.median(fair) >= np.median(alone)
    assert (fair <= crowded).all()


def test_nothing_is_left_empty_for_a_tenant_that_has_enough():
    system = flooded("fair-share", flood=12)
    while (done := system.schedule_next_task()) is not None and done.placed:
        pass
    assert system.status().waiting == 0


def test_why_names_the_rule_in_force():
    system = flooded("fair-share")
    system.run(hours=0.02)
    waiting = [name for name in system.queue()["id"] if name.startswith("flood")]
    why = system.why(waiting[-1])
    assert "hare rule fair-share" in why.say() and "loud holds" in why.say()
    assert "共享规则 fair-share" in why.say("zh")


def test_why_says_that_no_rule_is_in_force_by_default():
    assert load_settings("cross-domain-easy").share_rule == "none"
    system = flooded("none")
    system.run(hours=0.02)
    why = system.why("quiet2")
    assert why.cause in (Cause.NO_ROOM, Cause.BEHIND, Cause.HELD_FOR_ANOTHER)
    assert "No share rule is in force" in why.say() and "未启用共享规则" in why.say("zh")


def test_a_journal_of_a_shared_cluster_is_lived_through_again(tmp_path):
    path = tmp_path / "a.db"
    with flooded("fair-share", "sjf", journal=path) as system:
        system.run(hours=0.05)
        done = [system.schedule_next_task().id for _ in range(6)]
        before = sorted(system.cluster.names()), system.cluster.decided, system.now_s, system.queue()["id"].tolist()
    with System.resume(path) as again:
        now = sorted(again.cluster.names()), again.cluster.decided, again.now_s, again.queue()["id"].tolist()
        assert now == before and len(set(done)) == 6


def test_a_rule_that_nobody_knows_is_refused():
    with pytest.raises(AttributionSchedError, match="share_rule"):
        small(share_rule="fairish")
    with pytest.raises(AttributionSchedError, match="share_rule"):
        replace(small().build_world(), share_rule="fairish")


@pytest.mark.parametrize(("loud", "quiet", "makes_room"), [(3, 1, True), (2, 1, False), (2, 2, False)])
def test_room_is_made_only_where_both_are_better_off_for_it(loud, quiet, makes_room):
    """The window holds four: who comes takes a place of a tenant with two more tasks there, not with one more."""
    system = System(small(share_rule="fair-share"), "fcfs", queue="empty")
    there = ["loud"] * loud + ["quiet"] * quiet + ["third"] * (4 - loud - quiet)
    for at, tenant in enumerate(there):
        system.submit("bert-base", id=f"{tenant}{at}", tenant=tenant, steps=4000)
        assert system.cluster.place_of(f"{tenant}{at}") == "window"
    system.submit("bert-base", id="comer", tenant="quiet", steps=4000)
    assert (system.cluster.place_of("comer") == "window") == makes_room
    assert (system.cluster.place_of(f"loud{loud - 1}") == "backlog") == makes_room
