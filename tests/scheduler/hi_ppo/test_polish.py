"""The local search never makes a plan worse, nor takes devices that are not there."""

import numpy as np
import pytest

from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, PP, REPLICA, STOP, TP
from attribution_sched.cluster.view import view
from attribution_sched.scheduler.hi_ppo.polish import Polisher, _orders
from attribution_sched.scheduler.hi_ppo.walk import walk

from . import worlds


@pytest.mark.parametrize("widen", [False, True])
@pytest.mark.parametrize("name", ["mixed", "tight"])
def test_a_polished_plan_is_no_worse_and_has_its_devices(name, widen):
    engine = worlds.begun(worlds.worlds()[name], 8, 1)
    planner = worlds.planner_of(engine)
    found = walk(planner, worlds.gathered(engine), worlds.chooser(1, must_act=True))
    better = 0
    for i in np.flatnonzero(found.batch.counts > 0):
        seen, count = view(engine, int(i)), int(found.batch.counts[i])
        polisher = Polisher(seen, planner.tables, int(found.drafts.kind[i]), widen=widen)
        start = found.batch.segments[i : i + 1].copy()
        first = float(polisher.value(start, np.array([count]))[0])
        rows, count_after, reached = polisher.improve(start[0], count, first)
        assert reached >= first
        assert polisher.value(rows[None].copy(), np.array([count_after]))[0] == pytest.approx(reached)
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
    found = walk(planner, worlds.gathered(engine), worlds.chooser(1, must_act=True))
    polisher = Polisher(view(engine), planner.tables, int(found.drafts.kind[0]))
    rows, count, reached = polisher.improve(
        found.batch.segments[0], int(found.batch.counts[0]), 0.5, expired=lambda: True
    )
    assert rows is not None and count == found.batch.counts[0] and reached == 0.5 and polisher.priced == 0


@pytest.mark.parametrize(("count", "known"), [(2, 1), (3, 5), (4, 13)])
def test_orders_are_those_of_one_change(count, known):
    orders = [tuple(order) for order in _orders(count).tolist()]
    assert len(set(orders)) == len(orders) == known
    assert tuple(range(count)) not in orders
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert set(orders) == {tuple(int(i) for i in np.argsort(order)) for order in orders}, "each can be taken back"


def several():
    """A polisher and a plan of a world in which plans span domains."""
    engine = worlds.begun(worlds.worlds()["tight"], 8, 1)
    planner = worlds.planner_of(engine)
    found = walk(planner, worlds.gathered(engine), worlds.chooser(1, must_act=True))
    at = int(np.argmax(found.batch.counts))
    polisher = Polisher(view(engine, at), planner.tables, int(found.drafts.kind[at]), widen=True)
    return polisher, found.batch.segments[at].copy(), int(found.batch.counts[at])


def test_reordered_plans_cover_the_model_with_the_same_segments():
    polisher, rows, count = several()
    assert count > 1
    near = polisher._reordered(rows, count)
    assert len(near) > 0
    lengths = sorted((rows[:count, STOP] - rows[:count, FIRST]).tolist())
    for plan in near:
        used = plan[:count]
        assert sorted((used[:, STOP] - used[:, FIRST]).tolist()) == lengths
        assert sorted(map(tuple, used[:, [DOMAIN, DP, TP, PP]])) == sorted(
            map(tuple, rows[:count, [DOMAIN, DP, TP, PP]])
        )
        for replica in np.unique(used[:, REPLICA]):
            own = used[used[:, REPLICA] == replica]
            assert own[0, FIRST] == 0 and (own[1:, FIRST] == own[:-1, STOP]).all()
            assert own[-1, STOP] == rows[:count][rows[:count, REPLICA] == replica][-1, STOP]


def test_the_best_of_several_is_no_worse_than_any_alone_by_few_changes():
    polisher, rows, count = several()
    near, counts = polisher._few(rows, count)
    sound = polisher._sound(near, counts)
    values = polisher.value(near[sound], counts[sound])
    starts = [(near[sound][i], count, float(values[i])) for i in np.flatnonzero(np.isfinite(values))[:5]]
    assert len(starts) > 1
    best = polisher.best_of(list(starts), keep=2)
    assert best[2] >= max(start[2] for start in starts)
    alone = [polisher._descend([start], [polisher._few], 40)[0] for start in starts]
    together = polisher._descend(list(starts), [polisher._few], 40)
    assert [state[2] for state in together] == [state[2] for state in alone]
    assert best[2] >= max(state[2] for state in alone)
