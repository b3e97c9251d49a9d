"""Copies of a cluster obey quotas, budgets, the share rule and holds as the cluster itself does."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import Hold, fork, slot_of
from attribution_sched.scheduler.policy_follower import PolicyFollower
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.system.moments import moment_of as moment_seen
from tests.small_world import small

HOURS, FUTURES, SEED = 2.0, 2, 9


def moment_of(quotas=(), share_rule="none", tasks=6, steps=20_000, run_h=0.02):
    """A cluster of two tenants with some tasks at work and others waiting."""
    settings = small(quotas=list(quotas), share_rule=share_rule, reward={"energy_usd_per_kwh": 0.2})
    system = System(settings, "sjf", queue="empty")
    for at in range(tasks):
        system.submit("bert-base", id=f"s{at}", tenant="small", steps=steps)
        system.submit("bert-base", id=f"o{at}", tenant="other", steps=steps)
    if run_h:
        system.run(hours=run_h)
        for at in range(2):
            system.submit("bert-base", id=f"s1{at}", tenant="small", steps=steps)
            system.submit("bert-base", id=f"o1{at}", tenant="other", steps=steps)
    # As the questions about waiting tasks look at it, whether or not somebody is asked about now.
    return moment_seen(system.cluster, system.queue()["id"].tolist()[0])[0].moment


def followers(moment):
    """The compiled rule, and a policy in Python."""
    rule = RuleFollower.of(moment)
    return {"rule": rule, "greedy": PolicyFollower(make_policy("greedy"), rule, Engine(moment.world))}


def starts(moment, follower, changes=()):
    """Task → its start in every copy and future, shape ``(C + 1, F)``; the horizon if there is none."""
    found = fork(moment, changes, FUTURES, HOURS, follower, SEED)
    return {name: found.of("start_s")[..., at] for at, name in enumerate(found.names)}, found


@pytest.mark.parametrize("who", ["rule", "greedy"])
def test_a_quota_of_devices_holds_in_copies_and_cutting_it_is_seen(who):
    limited = moment_of([{"tenant": "small", "devices": 1}], run_h=0.0)
    free = moment_of(run_h=0.0)
    own, found = starts(limited, followers(limited)[who])
    others, _ = starts(free, followers(free)[who])
    small_ids = [name for name in own if name.startswith("s")]
    assert sum(float(own[name][0, 0]) for name in small_ids) > sum(float(others[name][0, 0]) for name in small_ids)
    # One device: no two tasks of the tenant at the same time.
    spans = sorted((float(own[name][0, 0]), float(found.of("finish_s")[0, 0, found.names.index(name)])) for name in own
                   if name.startswith("s") and own[name][0, 0] < found.until_s)  # fmt: skip
    assert len(spans) > 1
    assert all(before[1] <= after[0] + 1e-6 for before, after in pairwise(spans))


def test_a_budget_that_is_used_up_lets_nothing_start_before_its_window_ends():
    moment = moment_of([{"tenant": "small", "device_hours": 0.25, "per_h": 1.0}], steps=4000, run_h=0.1)
    assert moment.spent is not None and moment.spent[0, 1] >= 0.25
    own, _ = starts(moment, RuleFollower.of(moment))
    queued = moment.state.slots[0, :, st.STATUS] == st.QUEUED
    waiting = [task.id for slot, task in moment.tasks.items() if queued[slot] and task.tenant == "small"]
    assert waiting
    # Who waits starts when the next window begins at the earliest, and some do start then.
    assert all((own[name] >= 3600.0).all() for name in waiting)
    assert any((own[name] < 3600.0 * HOURS).any() for name in own if name.startswith("s"))
    cut, _ = starts(type(moment)(**{**vars(moment), "spent": None}), RuleFollower.of(moment))
    assert any((cut[name] < 3600.0).any() for name in waiting)


@pytest.mark.parametrize("budget", ["energy_kwh", "usd", "carbon_kg", "device_hours"])
def test_copies_book_what_the_cluster_books(budget):
    """The same budget, not used up: what is booked in a copy of the present hour is what the cluster books."""
    settings = small(quotas=[{"tenant": "small", budget: 1e9, "per_h": 1e6}], reward={"energy_usd_per_kwh": 0.2})
    system = System(settings, "sjf", queue="empty")
    system.submit("bert-base", id="s", tenant="small", steps=10_000_000)
    system.schedule_next_task()
    system.run(hours=0.01)
    system.submit("bert-base", id="t", tenant="small", steps=10_000_000)
    moment = moment_seen(system.cluster, "t")[0].moment
    kept = []

    class Keeping(RuleFollower):
        def play(self, copies):
            decided = super().play(copies)
            kept.append(copies.limits.used[0, 0].copy())
            return decided

    base = RuleFollower.of(moment)
    follower = Keeping(base.planner, moment.world)
    fork(moment, (), 1, 0.05, follower, SEED)
    found = fork(moment, (), 1, 0.05, base, SEED)
    at = ("device_hours", "energy_kwh", "usd", "carbon_kg").index(budget)
    told = {"energy_kwh": found.totals[0, 0, 5] / 3.6e6, "carbon_kg": found.totals[0, 0, 7] / 1e3}
    booked = kept[0][1 + at] - moment.spent[0, 1 + at]
    assert booked > 0.0
    if budget in told:
        assert booked == pytest.approx(told[budget], rel=1e-9)
    if budget == "usd":
        assert booked == pytest.approx(found.totals[0, 0, 6] + 0.2 * told["energy_kwh"], rel=1e-6)


def test_a_task_on_hold_starts_when_it_may_and_others_go_on():
    moment = moment_of(run_h=0.0)
    waiting = "s0"
    own, found = starts(moment, RuleFollower.of(moment), (Hold(slot_of(moment, waiting), 1.0),))
    assert (own[waiting][0] < 600.0).all()
    assert (own[waiting][1] >= moment.now_s + 3600.0).all() and (own[waiting][1] < found.until_s).all()
    assert any((own[name][1] < 600.0).any() for name in own if name != waiting)


def test_nothing_limited_is_the_same_to_the_last_bit():
    moment = moment_of()
    wide = moment_of([{"tenant": "small", "devices": 1_000_000}])
    one, two = (fork(each, (), FUTURES, HOURS, RuleFollower.of(each), SEED).ledger for each in (moment, wide))
    assert np.array_equal(one, two, equal_nan=True)


def test_the_share_rule_gives_turns_to_those_below_their_share():
    """One tenant with everything handed in first; the other's tasks go before the rest of them."""

    def mean_start(rule):
        moment = moment_of(share_rule=rule, tasks=10, run_h=0.02)
        own, _ = starts(moment, RuleFollower.of(moment))
        held = {name: np.isfinite(own[name]).all() for name in own}
        assert all(held.values())
        return own

    none, fair = mean_start("none"), mean_start("fair-share")
    assert any(not np.array_equal(none[name], fair[name]) for name in none if name in fair)


def test_a_task_that_its_own_limit_leaves_no_plan_does_not_keep_others_from_starting():
    """The shortest task is chosen first, and again: copies went round for ever at that instant."""
    system = System("cross-domain", "sjf", queue="empty")
    system.submit("llama-2-70b", id="short", steps=1)
    system.submit("bert-large", id="long", steps=50_000)
    moment = moment_seen(system.cluster, "short")[0].moment
    slot = slot_of(moment, "short")
    moment = replace(moment, tasks={**moment.tasks, slot: replace(moment.tasks[slot], devices=2)})
    own, found = starts(moment, RuleFollower.of(moment))
    assert (own["long"] == found.began_s).all()
    assert (own["short"] >= found.until_s).all()
