"""The static uniform split, the speed-proportional one, and both without a world around them."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.reward import value
from attribution_sched.cluster.world import Runtime
from attribution_sched.errors import PlanError
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.segment_table import single_domain_plans
from attribution_sched.rivals.splits import (
    SpeedProportional,
    StaticUniform,
    best_splits,
    proportional_cuts,
    uniform_cuts,
)
from tests.scheduler.states import GIANT, mixed_cluster, with_links

from ..cluster.engine_worlds import BERT, begun, chain, decide, single, tiny_cluster, traced

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)
STILL = {"spread": 0.0}


def pending(kind=LONG, **changes):
    return view(begun(traced((0, kind), kinds=(kind,), **changes)))


def test_uniform_uses_every_domain_in_the_baselines_layout():
    plan = StaticUniform().decide(pending())
    assert plan.domains == (0, 1, 2)
    assert [s.stop for s in plan.segments] == uniform_cuts(3, len(LONG.model)).tolist()
    assert {(s.dp, s.tp, s.pp) for s in plan.segments} == {(4, 1, 1)}
    assert plan.replicas[0].microbatch == LONG.microbatches[-1]


def test_uniform_leaves_out_domains_without_room_and_beyond_the_limit():
    seen = pending()
    assert StaticUniform().decide(replace(seen, free_devices=np.array([4, 0, 2]))).domains == (0, 2)
    assert StaticUniform().decide(replace(seen, max_segments=2, free_devices=np.array([1, 4, 2]))).domains == (1, 2)
    assert StaticUniform().decide(replace(seen, free_devices=np.zeros(3, dtype=np.int64))) is None


def test_uniform_tries_other_layouts_then_fewer_domains():
    # Unsharded, half of the states does not fit a device with tp = pp = 1; in two stages it does.
    seen = pending(GIANT, cluster=replace(tiny_cluster(3, 8, motion=STILL), runtime=Runtime(zero_stage=0)))
    plan = StaticUniform().decide(replace(seen, free_devices=np.array([8, 0, 8])))
    assert plan.domains == (0, 2)
    assert any(s.tp * s.pp > 1 for s in plan.segments)
    # One device cannot hold its third, eight can hold everything.
    assert StaticUniform().decide(replace(seen, free_devices=np.array([1, 8, 1]))).domains == (1,)


def test_neither_rule_moves_without_reason():
    engine = begun(traced((0, LONG), kinds=(LONG,)))
    decide(engine, Plan((chain(LONG, (0, 6), (1, -1), micro=4),)))
    seen = view(engine)
    assert StaticUniform().decide(seen) is None
    moved = SpeedProportional().decide(seen)
    assert moved is not None
    now, then = (value(seen, PlanBatch.of([p])) for p in (seen.current_plan, moved))
    assert then.reward[0] > now.reward[0]
    assert SpeedProportional().decide(replace(seen, steps_left=1.0)) is None
    assert SpeedProportional().decide(replace(seen, current_plan=moved)) is None


def test_proportional_takes_the_best_of_its_candidates_by_reward():
    seen = pending()
    rule = SpeedProportional()
    batch = rule.candidates(seen)
    chosen = value(seen, PlanBatch.of([rule.decide(seen)])).reward[0]
    assert chosen == value(seen, batch).reward.max()
    assert chosen >= value(seen, single_domain_plans(seen)).reward.max()
    assert set(batch.counts.tolist()) == {1, 2, 3}
    assert rule.decide(replace(seen, free_devices=np.zeros(3, dtype=np.int64))) is None


def test_proportional_looks_at_every_order_of_few_domains():
    rows = SpeedProportional().candidates(pending()).segments
    orders = {tuple(row[:, 0].tolist()) for row in rows if row[2, 2] > 0}
    assert orders == set(permutations(range(3)))


def test_proportional_goes_where_the_links_are():
    seen = pending(GIANT, cluster=tiny_cluster(4, 2, motion=STILL), max_segments=2)
    links = np.full((4, 4), 0.5)
    links[3, 1] = links[1, 3] = 20.0
    assert set(SpeedProportional().decide(with_links(seen, links)).domains) == {1, 3}


def naive(seen, even):
    """All two-domain plans of one layout each way, written out by hand."""
    n, plans = len(seen.kind.model), []
    for i, j in permutations(range(3), 2):
        for micro in seen.kind.microbatches:
            for dp, tp in ((d, t) for d in (1, 2, 4) for t in (1, 2) if d * t <= 4 and micro % d == 0):
                for halved in (0, 1):
                    pp = [max(1, (int(seen.free_devices[d]) // (dp * tp)) >> halved) for d in (i, j)]
                    if any(dp * tp > seen.free_devices[d] for d in (i, j)) or 3 in pp:
                        continue
                    cut = int((uniform_cuts(2, n) if even else proportional_cuts(pp, n))[0])
                    parts = ((i, 0, cut, pp[0]), (j, cut, n, pp[1]))
                    chained = tuple(Segment(d, a, z, dp, tp, p, Precision.BF16) for d, a, z, p in parts)
                    plans.append(Plan((Replica(chained, micro, seen.kind.batch_size // micro),)))
    return plans


@pytest.mark.parametrize("even", [True, False])
def test_best_splits_agree_with_a_list_written_by_hand(even):
    seen = replace(pending(GIANT, cluster=tiny_cluster(3, 4, motion=STILL)), free_devices=np.array([2, 2, 1]))
    found = best_splits(replace(Instance.of(seen), max_segments=2))["even" if even else "proportional"]
    priced = seen.cost.score(PlanBatch.of(naive(seen, even)), 0, latency_s=seen.latency_s,
                             bandwidth_gbps=seen.bandwidth_gbps, breakdown=False)  # fmt: skip
    assert found.step_s == pytest.approx(priced.step_s[priced.fits].min(), rel=1e-12)
    again = seen.cost.score(found.plan, 0, bandwidth_gbps=seen.bandwidth_gbps, latency_s=seen.latency_s)
    assert float(again.step_s[0]) == found.step_s


def test_uneven_rooms_favour_the_proportional_split():
    seen = pending(GIANT, cluster=mixed_cluster())
    found = best_splits(replace(Instance.of(seen), free_devices=np.array([2, 8, 1]), max_segments=3))
    assert found["proportional"].step_s <= found["even"].step_s
    assert found["proportional"].tried > 100


def test_best_splits_without_a_device_or_a_plan():
    seen = pending(GIANT, cluster=tiny_cluster(3, 4, motion=STILL))
    instance = replace(Instance.of(seen), max_segments=3)
    with pytest.raises(PlanError, match="no domain has a free device"):
        best_splits(replace(instance, free_devices=np.array([0, 0, 0])))
    none = best_splits(replace(instance, free_devices=np.array([1, 0, 0])))
    assert none["even"].plan is None
    assert none["even"].step_s == float("inf")
    assert single(seen.kind).samples == seen.kind.batch_size
