"""Plans: properties, round trips through arrays, and every way a plan can be wrong.

Every layout that fits the largest domain is on the table, once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import SEGMENT_FIELDS, Plan, PlanBatch, Replica, Segment, layout_table
from attribution_sched.errors import PlanError
from tests.cluster.plan_cases import plans

from .engine_worlds import tiny_cluster

LAYERS, DOMAINS = 26, 4
TP = (1, 2, 4, 8)
CUT = Plan((Replica((Segment(2, 0, 10, dp=2, tp=4), Segment(0, 10, LAYERS, dp=4, pp=2)), 8, 4),))


@settings(deadline=None, max_examples=50)
@given(st.lists(plans(LAYERS), min_size=1, max_size=5), st.integers(1, 8))
def test_plans_survive_the_way_through_arrays(listed, width):
    batch = PlanBatch.of(listed, width)
    assert len(batch) == len(listed)
    assert batch.segments.shape[1] >= width
    assert [batch.plan(i) for i in range(len(listed))] == listed
    batch.check(LAYERS, DOMAINS)


@settings(deadline=None, max_examples=50)
@given(plans(LAYERS))
def test_random_plans_are_well_formed(plan):
    plan.check(LAYERS, DOMAINS)
    assert plan.samples == sum(r.microbatch * r.microbatches for r in plan.replicas)
    assert [len(cuts) for cuts in plan.cut_points] == [len(r.segments) - 1 for r in plan.replicas]
    assert len(set(plan.domains)) == len(plan.segments)


def test_properties_of_a_cut_plan():
    assert CUT.domains == (2, 0)
    assert CUT.cut_points == ((10,),)
    assert CUT.samples == 32
    assert [segment.device_count for segment in CUT.segments] == [8, 8]
    assert CUT.schedule is Schedule.ONE_F_ONE_B


def changed(index=0, **fields):
    """The cut plan with some fields of one segment changed."""
    segments = list(CUT.replicas[0].segments)
    segments[index] = replace(segments[index], **fields)
    return Plan((replace(CUT.replicas[0], segments=tuple(segments)),))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(()), "at least one"),
        (Plan((Replica((), 1, 1),)), "covers layers"),
        (changed(1, stop=LAYERS + 1), "Move the cut inside the model"),
        (changed(0, first=-1), "Move the cut inside the model"),
        (changed(0, stop=0), "hold at least one layer"),
        (changed(0, stop=9), "must start at layer 9"),
        (changed(1, stop=LAYERS - 1), f"the model has {LAYERS}"),
        (changed(0, domain=DOMAINS), "domains 0..3"),
        (changed(0, domain=-1), "domains 0..3"),
        (changed(0, domain=0), "more than one segment"),
        (changed(0, dp=0), "dp = 0"),
        (changed(0, tp=0), "tp = 0"),
        (changed(0, pp=0), "pp = 0"),
        (changed(0, pp=11), "10 layers"),
        (changed(0, dp=3), "divide the microbatch of 8"),
        (changed(0, devices=(0, 1)), "needs 8 different devices"),
        (changed(0, devices=(0, 1, 2, 3, 4, 5, 6, 6)), "needs 8 different devices"),
        (changed(0, devices=(-1, 1, 2, 3, 4, 5, 6, 7)), "needs 8 different devices"),
        (Plan((replace(CUT.replicas[0], microbatch=0),)), "both must be >= 1"),
        (Plan((replace(CUT.replicas[0], microbatches=0),)), "both must be >= 1"),
    ],
)
def test_a_malformed_plan_is_refused_with_the_reason(plan, words):
    with pytest.raises(PlanError, match=words):
        plan.check(LAYERS, DOMAINS)


def test_a_good_plan_passes():
    CUT.check(LAYERS, DOMAINS)
    changed(0, devices=tuple(range(8))).check(LAYERS, DOMAINS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("domain", DOMAINS), ("domain", -1), ("first", -1), ("stop", LAYERS + 1), ("stop", 0), ("dp", 0), ("tp", 3),
        ("pp", 0), ("pp", 11), ("precision", 4), ("microbatch", 0), ("microbatches", 0), ("replica", 2),
        ("replica", -1),
    ],
)  # fmt: skip
def test_a_batch_row_out_of_range_is_refused(field, value):
    batch = PlanBatch.of([CUT, CUT])
    at = 1 if field in ("replica",) else 0
    batch.segments[1, at, SEGMENT_FIELDS.index(field)] = value
    with pytest.raises(PlanError, match=f"plan 1, segment {at}"):
        batch.check(LAYERS, DOMAINS)


@pytest.mark.parametrize("count", [0, 3])
def test_a_batch_count_out_of_range_is_refused(count):
    batch = PlanBatch.of([CUT])
    with pytest.raises(PlanError, match="counts"):
        PlanBatch(batch.segments, np.array([count]), batch.schedules).check(LAYERS, DOMAINS)


def test_a_batch_must_begin_with_replica_zero():
    batch = PlanBatch.of([CUT])
    batch.segments[0, :, SEGMENT_FIELDS.index("replica")] = 1
    with pytest.raises(PlanError, match="plan 0, segment 0: replica = 1"):
        batch.check(LAYERS, DOMAINS)


def test_rows_beyond_the_count_are_not_looked_at():
    batch = PlanBatch.of([CUT], width=4)
    batch.segments[0, 2:] = -99
    batch.check(LAYERS, DOMAINS)
    assert batch.plan(0) == CUT


def test_arrays_keep_the_precision_of_each_segment():
    mixed = changed(1, precision=Precision.BF16)
    assert [s.precision for s in PlanBatch.of([mixed]).plan(0).segments] == [Precision.FP16, Precision.BF16]


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 6, 16])
@pytest.mark.parametrize("sharing", [False, True])
def test_the_table_is_what_enumeration_gives(devices, sharing):
    cluster = tiny_cluster(2, devices, node_devices=4)
    table = {tuple(row) for row in layout_table(cluster, sharing).tolist()}
    assert len(table) == len(layout_table(cluster, sharing))
    powers = (1, 2, 4, 8, 16)
    wanted = {
        (dp, tp, pp, share)
        for dp in powers
        for tp in (1, 2, 4)
        for pp in (1, 2, 4, 8)
        for share in ((0, 1) if sharing else (0,))
        if dp * tp * pp <= devices
    }
    assert table == wanted


def test_tensor_parallelism_stays_inside_the_largest_node():
    table = layout_table(tiny_cluster(1, 16, node_devices=2), sharing=False)
    assert table[:, 1].max() == 2
    assert np.all(table[:, :3].prod(axis=1) <= 16)
