"""The blocking estimate and the dynamic programme that minimises it."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import view
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.planning.blocking import Even, best_stages
from attribution_sched.planning.instance import Instance
from attribution_sched.rivals.sailor import _pricing, estimate_s
from tests.cluster.engine_worlds import BERT, GPT2, SERVE, begun, single, tiny_cluster, traced
from tests.scheduler.states import GIANT, mixed_cluster

HALF = Precision.FP16


def instance_of(kind=BERT, **changes):
    return Instance.of(view(begun(traced((0, kind), kinds=(kind,), **changes))))


@pytest.mark.parametrize("kind", [BERT, GPT2, SERVE])
@pytest.mark.parametrize("layout", [(1, 1, 1), (4, 1, 1), (2, 2, 1)])
def test_one_stage_and_one_microbatch_take_what_the_cost_model_says(kind, layout):
    instance = instance_of(kind)
    plan = single(kind, 0, *layout)
    assert plan.replicas[0].microbatches == (1 if kind is not GPT2 else 2)
    assert estimate_s(instance, plan) == pytest.approx(float(instance.score(PlanBatch.of([plan])).step_s[0]), rel=1e-12)


def test_the_formula_is_the_one_that_is_written_down():
    instance = instance_of()
    stages = [(0, 0, 5), (1, 5, 9), (2, 9, 14)]
    chain = tuple(Segment(d, a, z, precision=HALF) for d, a, z in stages)
    one, many = (estimate_s(instance, Plan((Replica(chain, 4, m),))) for m in (1, 8))
    # Seven more microbatches cost seven times the slowest stage with its hop.
    alone = [
        estimate_s(instance, Plan((Replica((replace(s, domain=s.domain),), 4, 2),)))
        - estimate_s(instance, Plan((Replica((s,), 4, 1),)))
        for s in chain
    ]
    volume = 4 * 2.0 * instance.cost.tables.boundary[0, [0, 5, 9]]
    hops = [0.0, *(2 * (0.02 + v / (5.0 * BYTES_PER_GBIT)) for v in volume[1:])]
    slowest = max(a + h for a, h in zip(alone, hops, strict=True))
    assert many - one == pytest.approx(7 * slowest, rel=1e-9)


def test_blocking_never_hides_what_the_recurrence_hides():
    instance = instance_of()
    rng = np.random.default_rng(0)
    for _ in range(20):
        cut = int(rng.integers(1, 13))
        parts = (Segment(0, 0, cut, precision=HALF), Segment(1, cut, 14, precision=HALF))
        plan = Plan((Replica(parts, 4, int(rng.integers(1, 9))),))
        exact = float(instance.score(PlanBatch.of([plan])).step_s[0])
        assert estimate_s(instance, plan) >= exact * (1 - 1e-9)


def every_assignment(instance, task, rooms):
    """All runs of 1, 2 or 4 stages on increasing regions, at the smallest degree that fits."""
    k, found = len(rooms), []
    for count in range(1, min(k, task.stages) + 1):
        for regions in combinations(range(k), count):
            for runs in _runs(task.stages, count):
                at, segments = 0, []
                for region, run in zip(regions, runs, strict=True):
                    first, stop = (task.layers * s // task.stages for s in (at, at + run))
                    segments.append((region, first, stop, run))
                    at += run
                found.append(segments)
    plans = []
    for segments in found:
        for tp in (1, 2):
            if all(task.dp * tp * run <= rooms[region] for region, _, _, run in segments):
                chain = tuple(Segment(d, a, z, task.dp, tp, run, HALF) for d, a, z, run in segments)
                plans.append(Plan((Replica(chain, task.micro, task.m),)))
                break
    return plans


def _runs(total, parts):
    if parts == 1:
        return [(total,)] if total in (1, 2, 4, 8) else []
    return [(n, *rest) for n in (1, 2, 4, 8) if n < total for rest in _runs(total - n, parts - 1)]


@pytest.mark.parametrize("stages", [1, 2, 7, 14])
@pytest.mark.parametrize("rooms", [(4, 4, 4), (4, 1, 2), (2, 2, 2), (8, 4, 2)])
def test_a_small_search_finds_the_best_assignment(stages, rooms):
    # Fourteen layers divide over the stages, and every stage fits memory at degree 1.
    instance = replace(instance_of(GPT2, cluster=mixed_cluster()), free_devices=np.array(rooms))
    task = Even(instance.n_layers, stages, 1, HALF.index, 4, 8)
    rows = np.zeros((3, 5), dtype=np.int64)
    found, used = best_stages(_pricing(instance), task, np.arange(3), instance.free_devices, rows)
    plans = every_assignment(instance, task, rooms)
    if not plans:
        assert (found, used) == (np.inf, 0)
        return
    assert found == pytest.approx(min(estimate_s(instance, plan) for plan in plans), rel=1e-9)
    chain = tuple(Segment(d, a, z, 1, tp, pp, HALF) for d, a, z, tp, pp in rows[:used].tolist())
    assert estimate_s(instance, Plan((Replica(chain, 4, 8),))) == pytest.approx(found, rel=1e-9)


def test_tensor_parallelism_is_the_smallest_that_fits():
    instance = instance_of(GIANT, cluster=tiny_cluster(2, 8, node_devices=8, motion={"spread": 0.0}))
    rows = np.zeros((2, 5), dtype=np.int64)
    degrees = {}
    for stages in (1, 2, 4):
        task = Even(instance.n_layers, stages, 1, HALF.index, 1, 8)
        found, used = best_stages(_pricing(instance), task, np.array([0]), instance.free_devices, rows)
        assert (used, np.isfinite(found)) == (1, True)
        degrees[stages] = int(rows[0, 3])
    assert degrees == {1: 4, 2: 2, 4: 1}
