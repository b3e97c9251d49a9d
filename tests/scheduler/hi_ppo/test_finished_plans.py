"""A finished draft is a plan, carried out by the cluster as it was written."""

import numpy as np
import pytest

from attribution_sched.cluster.engine import state as st
from attribution_sched.scheduler.hi_ppo.action_masks import DONE, finished_plans
from attribution_sched.scheduler.hi_ppo.decode import decode

from . import worlds
from .test_decode import layout_rows

NAMES = ("equal", "mixed", "tight", "served", "many")


@pytest.mark.parametrize("name", NAMES)
def test_the_cluster_carries_out_exactly_the_plan(name):
    engine = worlds.begun(worlds.worlds()[name], 24, 5)
    planner = worlds.planner_of(engine)
    rows = worlds.pending(engine)
    decisions = worlds.gathered(engine, rows)
    found = decode(planner, decisions, worlds.chooser(4, must_act=True))
    actions = worlds.engine_actions(planner.tables, found.drafts, found.batch.segments, layout_rows(engine, planner))
    task = found.task
    acted = found.batch.counts > 0
    slots = decisions.slot[np.arange(len(rows)), np.where(acted, task, 0)]
    engine.state.event[rows[acted], st.SLOT] = slots[acted]
    serial = engine.state.slots[rows, slots, st.SERIAL].copy()
    engine.step(actions)
    same = 0
    for i in np.flatnonzero(acted):
        now = engine.state.slots[rows[i], slots[i]]
        if now[st.SERIAL] == serial[i] and now[st.STATUS] == st.RUNNING:
            assert engine.running_plan(int(rows[i]), int(slots[i])) == found.batch.plan(int(i))
            same += 1
    assert same > 10
    assert engine.totals()["rejected"].sum() == 0


def test_an_unfinished_draft_does_nothing():
    engine = worlds.begun(worlds.worlds()["equal"], 3)
    planner = worlds.planner_of(engine)
    found = decode(planner, worlds.gathered(engine), worlds.chooser(must_act=True))
    assert (found.batch.counts > 0).all()
    found.drafts.status[1] = DONE + 1
    batch = finished_plans(planner.tables, found.drafts)
    assert batch.counts[1] == 0 and not batch.segments[1].any() and batch.counts[0] > 0
    actions = worlds.engine_actions(planner.tables, found.drafts, batch.segments, layout_rows(engine, planner))
    assert (actions[1, :, 0] == 3).all() and actions[0, 0, 0] < 3
