"""What a choice brought: shares that add up, players that are absent share nothing, and the fork agrees."""

from functools import cache

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.engine import state as st
from attribution_sched.explain.brought import COMPONENTS, PLAYERS, brought, without
from attribution_sched.explain.played import play_choices
from attribution_sched.explain.room import best_across


@cache
def decided():
    """A placement in a busy cluster, and the best plan over several domains beside it."""
    with System("cross-domain-easy", "sjf", seed=5) as system:
        results = [system.schedule_next_task() for _ in range(24)]
        for result in reversed(results):
            one = system.questions.recall(result.id)
            other = best_across(one.view)
            if one.plan is not None and other is not None and other != one.plan:
                return system.memory.looks(), one, other
    raise AssertionError("no placement had another plan")


def test_shares_and_the_plans_own_difference_add_up_to_what_the_fork_says():
    policy, one, other = decided()
    told = brought(policy, one.view, one.plan, other, futures=4, hours=2.0, against="that")
    for c, _ in enumerate(COMPONENTS):
        parts = told.own[c].mean + sum(driver.spans[c].mean for driver in told.drivers)
        assert parts == pytest.approx(told.total[c].mean, abs=1e-9)
    eff, util, cost, whole = (span.mean for span in told.total)
    reward = one.view.reward
    assert whole == pytest.approx(reward.w_eff * eff + reward.w_util * util - reward.w_cost * cost, abs=1e-9)
    played = play_choices(policy, one.view, [one.plan, other], futures=4, hours=2.0)[1]
    assert -whole == pytest.approx(played.reward.mean, abs=1e-9)
    assert told.against == "that" and told.futures == 4


def test_traffic_costs_something_only_by_its_price():
    policy, one, other = decided()
    told = brought(policy, one.view, one.plan, other, futures=2, hours=2.0, exact=True)
    at = COMPONENTS.index("R_cost")
    drivers = {driver.player: driver.spans[at].mean for driver in told.drivers}
    assert told.own[at].mean == 0.0 and abs(drivers["prices"]) > 0.0


def test_two_orders_a_future_add_up_to_what_every_coalition_tells():
    policy, one, other = decided()
    few, all_ = (
        brought(policy, one.view, one.plan, other, futures=3, hours=2.0, exact=exact) for exact in (False, True)
    )
    assert few.decisions < all_.decisions
    assert [span.mean for span in (*few.total, *few.own)] == [span.mean for span in (*all_.total, *all_.own)]
    for c, _ in enumerate(COMPONENTS):
        gap = sum(driver.spans[c].mean for driver in few.drivers) - sum(driver.spans[c].mean for driver in all_.drivers)
        assert abs(gap) < 1e-9
        apart = [abs(a.spans[c].mean - b.spans[c].mean) for a, b in zip(few.drivers, all_.drivers, strict=True)]
        assert max(apart) < 1.0 + max(abs(driver.spans[c].mean) for driver in all_.drivers)


def test_the_same_choice_twice_brings_nothing():
    policy, one, _ = decided()
    told = brought(policy, one.view, one.plan, one.plan, futures=2, hours=1.0)
    assert all(span.mean == 0.0 for driver in told.drivers for span in driver.spans)
    assert all(span.mean == 0.0 for span in told.total)


def test_a_moment_without_its_players_keeps_the_task_and_is_left_as_it_was():
    _, one, _ = decided()
    moment, slot = one.view.moment, one.view.slot
    before = moment.state.slots.copy(), moment.state.occupant.copy()
    bare = without(moment, slot, set(PLAYERS))
    assert list(bare.tasks) == [slot] and bare.law is None
    assert (bare.state.occupant[0] < 0).all() and bare.tasks[slot].attribution is None
    assert int(bare.state.slots[0, slot, st.STATUS]) == int(moment.state.slots[0, slot, st.STATUS])
    assert np.array_equal(before[0], moment.state.slots) and np.array_equal(before[1], moment.state.occupant)
    assert without(moment, slot, ()) is moment


def test_a_decision_without_its_moment_has_none():
    from dataclasses import replace

    policy, one, other = decided()
    assert brought(policy, replace(one.view, moment=None), one.plan, other) is None
