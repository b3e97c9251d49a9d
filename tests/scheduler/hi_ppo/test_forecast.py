"""The forecast of a batch of clusters is that of each cluster's view."""

import copy
from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.scheduler.hi_ppo.forecast import BatchForecast, ViewForecast

from . import worlds


def idle(engine):
    return np.stack([encode(engine, None, 0)] * engine.clusters)


def test_batch_and_view_forecast_the_same_and_every_tick_counts():
    """One cluster alone: its clock is shared with the engine, which must not make readings look old."""
    for clusters in (1, 3):
        engine = worlds.begun(worlds.worlds()["incidents"], clusters, 3)
        batch = BatchForecast(engine)
        alone = [ViewForecast(engine.world.cluster.wan) for _ in range(clusters)]
        ticks = set()
        for _ in range(30):
            if (engine.state.event[:, st.DONE] == 1).any():
                break
            change = batch.change()
            for e in range(clusters):
                seen = view(engine, e)
                assert np.allclose(seen.bandwidth_gbps * change[e], alone[e].gbps(seen), rtol=1e-9)
                ticks.add(seen.link_time_s)
            engine.step(idle(engine))
        assert len(ticks) > 3


def test_a_restarted_cluster_forgets_and_the_others_do_not():
    engine = worlds.begun(worlds.worlds()["equal"], 2, 1)
    batch = BatchForecast(engine)
    batch.change()
    batch.restart(np.array([True, False]))
    assert np.isneginf(batch._state.time_s[0]).all() and np.isfinite(batch._state.time_s[1]).all()


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
