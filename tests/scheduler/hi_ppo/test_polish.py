"""The local search never makes a plan worse, nor takes devices that are not there."""

import numpy as np
import pytest

from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP
from attribution_sched.cluster.view import view
from attribution_sched.scheduler.hi_ppo.polish import Polisher
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
