"""What a choice brought: shares that add up, players that are absent share nothing, and the fork agrees."""

import itertools
from functools import cache

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.engine import state as st
from attribution_sched.explain.brought import COMPONENTS, PLAYERS, _codes, _shares, brought, play_coalitions, without
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
    played = play_coalitions(policy, one.view, one.plan, other, futures=2, hours=2.0, exact=True)
    at = played.players.index("prices")
    free = [code for code in range(1 << len(played.players)) if not code >> at & 1]
    assert np.allclose(played.table[:, free, COMPONENTS.index("R_cost")], 0.0)
    assert np.abs(played.shares[:, at, COMPONENTS.index("R_cost")]).max() > 0.0


def test_two_orders_a_future_tell_what_every_coalition_tells():
    """Over all orders exactly; a future's two orders pass through coalitions that are worth what they are in full."""
    policy, one, other = decided()
    few, all_ = (
        play_coalitions(policy, one.view, one.plan, other, futures=3, hours=2.0, exact=exact) for exact in (False, True)
    )
    known = ~np.isnan(few.table)
    assert np.array_equal(few.table[known], all_.table[known]) and not known.all()
    assert few.decisions < all_.decisions
    d = len(few.players)
    orders = np.array(list(itertools.permutations(range(d))))
    paths = np.stack([_codes(orders), _codes(orders[:, ::-1])], axis=1)
    for f in range(3):
        same = np.repeat(all_.table[f : f + 1], len(orders), axis=0)
        assert np.allclose(_shares(same, orders, paths).mean(axis=0), all_.shares[f], atol=1e-12)
    assert np.allclose(few.shares.sum(axis=1), few.table[:, -1] - few.table[:, 0], atol=1e-12)


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
