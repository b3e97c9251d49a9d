"""Forecasts of the links of a decision."""

import copy
from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.config import build_scenario
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
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


class Misled(HiPpo):
    """Told noise in the place of a forecast."""

    def _ahead(self, view):
        return np.random.default_rng(int(view.time_s)).uniform(1e-3, 400.0, view.bandwidth_gbps.shape)


def decided(policy, world):
    plans, decide = [], policy.decide

    def watch(seen):
        plans.append((seen.time_s, seen.slot, decide(seen)))
        return plans[-1][2]

    policy.decide = watch
    play(world, policy, 2)
    return plans


def test_no_choice_hangs_on_what_is_forecast():
    """As the pages say: once one does, they, and the policies that are told other forecasts, have another tale."""
    world = replace(build_scenario("cross-domain", "ou30"), horizon_s=8 * 3600.0)
    own = decided(HiPpo(), world)
    assert len(own) > 20 and sum(plan is not None for _, _, plan in own) > 3
    assert own == decided(Misled(), world) == decided(HiPpo(predict=False), world)
