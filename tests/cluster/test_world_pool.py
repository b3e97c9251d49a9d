"""Task instances: drawn by share, or in the order of a trace."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.arrivals import ArrivalRow, TraceArrivals
from attribution_sched.cluster.counters import sample_time_s
from attribution_sched.cluster.world import build_pool
from attribution_sched.errors import TraceError

from .engine_worlds import BERT, GPT2, SERVE, tiny_world, traced


def test_kinds_come_by_their_shares_and_steps_stay_in_range():
    world = tiny_world(kinds=(replace(BERT, share=3.0), GPT2), pool_size=4000)
    pool = build_pool(world)
    assert len(pool) == 4000
    assert abs((pool.kinds == 0).mean() - 0.75) < 0.03
    for k, kind in enumerate(world.kinds):
        steps = pool.steps[pool.kinds == k]
        assert steps.min() >= kind.steps[0]
        assert steps.max() <= kind.steps[1]
        # Log-uniform: the median is the geometric mean of the ends.
        assert abs(np.log(np.median(steps)) - np.log(kind.steps).mean()) < 0.1


def test_the_pool_depends_on_its_seed_alone():
    first, again, other = (build_pool(tiny_world(pool_seed=s)) for s in (1, 1, 2))
    assert np.array_equal(first.demands.values, again.demands.values)
    assert np.array_equal(first.counters.values, again.counters.values)
    assert not np.array_equal(first.demands.values, other.demands.values)


def test_without_idiosyncrasy_tasks_of_a_kind_are_alike():
    pool = build_pool(tiny_world(idiosyncrasy=0.0))
    assert np.allclose(pool.demands.factors, 1.0)


def test_a_trace_keeps_its_order_its_kinds_and_its_steps():
    world = traced((0, SERVE), (5, BERT), (5, GPT2), (9, BERT))
    pool = build_pool(world)
    assert pool.kinds.tolist() == [2, 0, 1, 0]
    assert pool.steps.tolist() == [500.0, 400.0, 200.0, 400.0]


def test_kinds_that_differ_only_in_who_asks_are_told_apart():
    twins = (replace(BERT, tenant="a"), replace(BERT, tenant="b", priority=3))
    rows = tuple(ArrivalRow(0.0, "BERT-base", 5, 32, p, t) for p, t in ((3, "b"), (0, "a"), (7, "else")))
    pool = build_pool(tiny_world(kinds=twins, arrivals=TraceArrivals(rows)))
    assert pool.kinds.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("model", "batch", "mode"),
    [("bert-bass", 32, "training"), ("bert-base", 31, "training"), ("bert-base", 32, "inference")],
)
def test_a_trace_task_of_no_known_kind_is_one_clear_error(model, batch, mode):
    rows = (ArrivalRow(0.0, "bert-base", 5, 32, 0, "t"), ArrivalRow(1.0, model, 5, batch, 0, "t", mode))
    with pytest.raises(TraceError, match=r"task 1 of .* matches no task kind.*bert-base batch 32 training"):
        build_pool(tiny_world(arrivals=TraceArrivals(rows, source="jobs.csv")))


def test_measured_throughput_is_that_of_the_instances():
    pool = build_pool(tiny_world(pool_size=500))
    apart = np.log(pool.samples_per_s * sample_time_s(pool.demands))
    assert pool.samples_per_s.shape == (500,) and 0.04 < apart.std() < 0.06
    assert pool.speed(3) == pool.samples_per_s[3]
    assert replace(pool, samples_per_s=np.zeros(0)).speed(3) == 0.0
