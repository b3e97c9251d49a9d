"""A finished draft is a plan: priced as the objective prices it, carried out by the cluster as it was written."""

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.scheduler.hi_ppo.action_masks import DONE
from attribution_sched.scheduler.hi_ppo.decode import decode
from attribution_sched.scheduler.hi_ppo.outcomes import PLAN_NAMES, describe_plans, engine_actions

from . import worlds
from .test_decode import layout_rows

NAMES = ("equal", "mixed", "tight", "served", "many")


@pytest.mark.parametrize("name", NAMES)
def test_nominal_terms_are_those_of_the_objective(name):
    engine = worlds.begun(worlds.worlds()[name], 24, 11)
    planner = worlds.planner_of(engine)
    rows = worlds.pending(engine)
    decisions = worlds.gathered(engine, rows)
    found = decode(planner, decisions, worlds.chooser(2, must_act=True))
    compared = 0
    for i in np.flatnonzero(found.batch.counts > 0):
        kind = int(found.drafts.kind[i])
        seen = view(engine, int(rows[i]))
        batch = PlanBatch(found.batch.segments[i : i + 1], found.batch.counts[i : i + 1], np.zeros(1, dtype=int))
        told, priced = found.trace.plans[i], value(seen, batch, kind)
        expected = [max(-4.0, priced.r_eff[0]), priced.r_util[0], min(4.0, priced.r_cost[0])]
        assert np.allclose(told[1:4], expected, rtol=1e-5, atol=1e-5)
        costs = seen.cost.score(batch, kind, bandwidth_gbps=seen.bandwidth_gbps, latency_s=seen.latency_s)
        norm = priced.step_s[0] / costs.step_s[0]
        outside = ~np.eye(len(seen.free_devices), dtype=bool)
        carried = found.loads.traffic_bytes[i][outside].sum()
        assert carried == pytest.approx(costs.traffic_bytes[0][outside].sum() * norm, rel=1e-6, abs=1e-3)
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("name", NAMES)
def test_the_cluster_carries_out_exactly_the_plan(name):
    engine = worlds.begun(worlds.worlds()[name], 24, 5)
    planner = worlds.planner_of(engine)
    rows = worlds.pending(engine)
    decisions = worlds.gathered(engine, rows)
    found = decode(planner, decisions, worlds.chooser(4, must_act=True))
    actions = engine_actions(planner.tables, found.drafts, found.batch.segments, layout_rows(engine, planner))
    task = found.trace.task
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


def test_doing_nothing_is_described_as_such_and_ends_at_once():
    engine = worlds.begun(worlds.worlds()["equal"], 3)
    planner = worlds.planner_of(engine)
    found = decode(planner, worlds.gathered(engine), worlds.chooser(must_act=True))
    assert (found.batch.counts > 0).all()
    found.drafts.status[1] = DONE + 1
    told, batch, loads = describe_plans(planner.tables, found.drafts, np.arange(3), np.zeros(3))
    assert told[1].tolist() == [1.0] + [0.0] * (len(PLAN_NAMES) - 1) and batch.counts[1] == 0
    assert not loads.traffic_bytes[1].any() and not loads.busy_s[1].any()
    assert told[0, 0] == 0.0 and batch.counts[0] > 0 and loads.busy_s[0].any()
    actions = engine_actions(planner.tables, found.drafts, batch.segments, layout_rows(engine, planner))
    assert (actions[1, :, 0] == 3).all() and actions[0, 0, 0] < 3


def test_gain_is_measured_against_the_plan_in_force():
    engine = worlds.begun(worlds.worlds()["equal"], 2)
    planner = worlds.planner_of(engine)
    found = decode(planner, worlds.gathered(engine), worlds.chooser(must_act=True))
    gain = PLAN_NAMES.index("gain")
    assert not found.trace.plans[:, gain].any()
    first, _, _ = describe_plans(planner.tables, found.drafts, np.arange(2), np.full(2, 10.0))
    twice, _, _ = describe_plans(planner.tables, found.drafts, np.arange(2), np.full(2, 20.0))
    inside = (np.abs(first[:, gain]) < 2.0) & (np.abs(twice[:, gain]) < 2.0)
    assert np.allclose((twice - first)[inside, gain], np.log(2.0), atol=1e-5)
