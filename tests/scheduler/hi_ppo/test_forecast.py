"""Forecasts of the links of a decision."""

import copy
from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.scheduler.predictor.forecast import ViewForecast

from . import worlds


def idle(engine):
    return np.stack([encode(engine, None, 0)] * engine.clusters)


def test_who_does_not_measure_links_gets_no_forecast():
    seen = view(worlds.begun(worlds.worlds()["equal"]))
    assert ViewForecast(seen.cost.cluster.wan).gbps(replace(seen, link_gbps=None)) is None


def test_a_copy_reads_on_without_the_original_noticing():
    engine = worlds.begun(worlds.worlds()["incidents"], 1, 3)
    original, alone = (ViewForecast(engine.world.cluster.wan) for _ in range(2))
    views = []
    while engine.state.event[0, st.DONE] == 0:
        seen = view(engine, 0)
        if not views or seen.link_time_s != views[-1].link_time_s:
            views.append(seen)
        engine.step(idle(engine))
    assert len(views) > 3
    for seen in views[:2]:
        assert np.array_equal(original.gbps(seen), alone.gbps(seen))
    other = copy.deepcopy(original)
    ahead = [other.gbps(seen) for seen in views[2:]]
    assert not np.array_equal(original.gbps(views[1]), ahead[-1])
    for seen, expected in zip(views[2:], ahead, strict=True):
        assert np.array_equal(original.gbps(seen), expected)
        assert np.array_equal(alone.gbps(seen), expected)
