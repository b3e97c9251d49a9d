"""The local search never makes a plan worse, nor takes devices that are not there."""

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, PP, REPLICA, STOP, TP
from attribution_sched.planning.local_search import LocalSearch, orders_near
from attribution_sched.scheduler.hi_ppo.decode import decode
from tests.scheduler.hi_ppo import worlds


@pytest.mark.parametrize("widen", [False, True])
@pytest.mark.parametrize("name", ["mixed", "tight"])
def test_a_polished_plan_is_no_worse_and_has_its_devices(name, widen):
    engine = worlds.begun(worlds.worlds()[name], 8, 1)
    planner = worlds.planner_of(engine)
    found = decode(planner, worlds.gathered(engine), worlds.chooser(1, must_act=True))
    better = 0
    for i in np.flatnonzero(found.batch.counts > 0):
        seen, count = view(engine, int(i)), int(found.batch.counts[i])
        search = LocalSearch(seen, planner.tables, int(found.drafts.kind[i]), widen=widen)
        start = found.batch.segments[i : i + 1].copy()
        first = float(search.worth(start, np.array([count]))[0])
        rows, count_after, reached = search.improve(start[0], count, first)
        assert reached >= first
        assert search.worth(rows[None].copy(), np.array([count_after]))[0] == pytest.approx(reached)
        used = rows[:count_after]
        size = used[:, DP] * used[:, TP] * used[:, PP]
        assert (size <= seen.free_devices[used[:, DOMAIN]]).all()
        assert len(set(used[:, DOMAIN].tolist())) == count_after
        if not widen:
            before = start[0, :count]
            assert sorted(size) == sorted(before[:, DP] * before[:, TP] * before[:, PP])
        better += reached > first
    assert better > 0


def test_no_time_no_change():
    engine = worlds.begun(worlds.worlds()["mixed"], 1, 1)
    planner = worlds.planner_of(engine)
    found = decode(planner, worlds.gathered(engine), worlds.chooser(1, must_act=True))
    search = LocalSearch(view(engine), planner.tables, int(found.drafts.kind[0]))
    rows, count, reached = search.improve(
        found.batch.segments[0], int(found.batch.counts[0]), 0.5, expired=lambda: True
    )
    assert rows is not None and count == found.batch.counts[0] and reached == 0.5 and search.priced == 0


@pytest.mark.parametrize(("count", "known"), [(2, 1), (3, 5), (4, 13)])
def test_orders_are_those_of_one_change(count, known):
    orders = [tuple(order) for order in orders_near(count).tolist()]
    assert len(set(orders)) == len(orders) == known
    assert tuple(range(count)) not in orders
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert set(orders) == {tuple(int(i) for i in np.argsort(order)) for order in orders}, "each can be taken back"


def several():
    """A search and a plan of a world in which plans span domains."""
    engine = worlds.begun(worlds.worlds()["tight"], 8, 1)
    planner = worlds.planner_of(engine)
    found = decode(planner, worlds.gathered(engine), worlds.chooser(1, must_act=True))
    at = int(np.argmax(found.batch.counts))
    search = LocalSearch(view(engine, at), planner.tables, int(found.drafts.kind[at]), widen=True)
    return search, found.batch.segments[at].copy(), int(found.batch.counts[at])


def covers(rows, count, layers):
    """Whether every replica of a plan holds all layers, in order and without a gap."""
    used = rows[:count]
    chains = [used[used[:, REPLICA] == replica] for replica in np.unique(used[:, REPLICA])]
    return all(
        own[0, FIRST] == 0 and (own[1:, FIRST] == own[:-1, STOP]).all() and own[-1, STOP] == layers for own in chains
    )


def test_plans_in_another_order_cover_the_model_with_the_same_segments():
    search, rows, count = several()
    assert count > 1
    near, counts = search.neighbourhood.orders(rows, count)
    assert len(near) == len(counts) > 0 and (counts == count).all()
    lengths = sorted((rows[:count, STOP] - rows[:count, FIRST]).tolist())
    for plan in near:
        used = plan[:count]
        assert sorted((used[:, STOP] - used[:, FIRST]).tolist()) == lengths
        assert sorted(map(tuple, used[:, [DOMAIN, DP, TP, PP]])) == sorted(
            map(tuple, rows[:count, [DOMAIN, DP, TP, PP]])
        )
        assert covers(plan, count, rows[count - 1, STOP])


def test_plans_with_other_cuts_keep_everything_else():
    search, rows, count = several()
    near, counts = search.neighbourhood.cuts(rows, count)
    assert len(near) == len(counts) > 0 and (counts == count).all()
    others = [column for column in range(rows.shape[1]) if column not in (FIRST, STOP)]
    for plan in near:
        assert np.array_equal(plan[:, others], rows[:, others])
        assert covers(plan, count, rows[count - 1, STOP])
        assert not np.array_equal(plan, rows)
    assert len(np.unique(near.reshape(len(near), -1), axis=0)) == len(near)
