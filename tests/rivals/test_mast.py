"""The job-level heuristic in the manner of MAST."""

from dataclasses import replace

import numpy as np

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.wan import Wan
from attribution_sched.rivals.mast import Mast
from attribution_sched.rivals.splits import uniform_cuts
from tests.scheduler.states import GIANT, with_links

from ..cluster.engine_worlds import BERT, begun, chain, decide, tiny_cluster, traced

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)


def uneven_cluster(devices):
    """Four regions; on paper 1 and 3 are joined by the widest link."""
    cluster = tiny_cluster(4, devices, motion={"spread": 0.0})
    links = np.full((4, 4), 2.0)
    links[1, 3] = links[3, 1] = 9.0
    links[1, 2] = links[2, 1] = 5.0
    wan = cluster.wan
    given = Wan(wan.names, links, np.array(wan.latency_s), np.array(wan.price_usd_per_gb), spread=0.0)
    return replace(cluster, wan=given)


def pending(kind, devices, **changes):
    return view(begun(traced((0, kind), kinds=(kind,), cluster=uneven_cluster(devices), **changes)))


def test_the_region_with_least_demand_over_supply_gets_the_whole_job():
    seen = pending(LONG, 4)
    plan = Mast().decide(replace(seen, free_devices=np.array([2, 1, 4, 3])))
    assert plan.domains == (2,)


def test_a_tie_goes_to_the_better_connected_region():
    assert Mast().ranking(pending(LONG, 4)) == [1, 3, 2, 0]
    assert Mast().decide(pending(LONG, 4)).domains == (1,)


def test_a_job_too_large_for_a_region_is_split_evenly_over_the_best_connected_set():
    plan = Mast().decide(pending(GIANT, 2, max_segments=4))
    assert set(plan.domains) == {1, 3}
    assert plan.segments[0].stop == uniform_cuts(2, len(GIANT.model))[0]
    assert Mast().decide(replace(pending(GIANT, 2, max_segments=4), max_segments=1)) is None


def test_the_moving_network_is_not_looked_at():
    links = np.full((4, 4), 2.0)
    links[0, 2] = links[2, 0] = 30.0
    for seen in (pending(LONG, 4), pending(GIANT, 2, max_segments=4)):
        assert Mast().decide(with_links(seen, links)) == Mast().decide(seen)


def test_nothing_is_replanned_and_a_full_cluster_makes_wait():
    engine = begun(traced((0, LONG), kinds=(LONG,)))
    decide(engine, Plan((chain(LONG, (0, 6), (1, -1), micro=4),)))
    assert view(engine).replanning
    assert Mast().decide(view(engine)) is None
    assert Mast().decide(replace(pending(LONG, 4), free_devices=np.zeros(4, dtype=np.int64))) is None
