"""The bounds of the search against the step time of every pipeline."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, MICROBATCHES, PP, PRECISION, REPLICA, STOP, TP
from attribution_sched.planning.exact.bounds import bottleneck, floors
from attribution_sched.planning.exact.profiles import FIRST_END_S, MAX_TAIL, WORK_S, SegmentProfiles
from attribution_sched.planning.segment_table import hardware_classes
from tests.planning.exact.instances import all_plans, random_problem


def bounded(task, limit=400):
    """Bound, step time, profile verdict on memory and the cost model's, of many pipelines."""
    batch = all_plans(task)
    rng = np.random.default_rng(0)
    single = np.flatnonzero(batch.segments[:, :, REPLICA].max(axis=1) == 0)
    rng.shuffle(single)
    rows, counts = batch.segments[single[:limit]], batch.counts[single[:limit]]
    batch = type(batch)(rows, counts, np.zeros(len(rows), dtype=np.int64))
    priced = task.cost.score(
        batch, 0, bandwidth_gbps=task.bandwidth / BYTES_PER_GBIT, latency_s=task.latency_s, breakdown=False
    )
    options = task.options(complete=True)
    lookup = {tuple(option): o for o, option in enumerate(options.tolist())}
    classes, representatives = hardware_classes(task.cost)
    book, training = SegmentProfiles(), task.cost.training[0]
    boundary = task.cost.tables.boundary[0]
    found = []
    for p in range(len(rows)):
        z = r = stages = 0.0
        fits = True
        for s in range(counts[p] - 1, -1, -1):
            row = rows[p, s]
            option = lookup.get(tuple(row[[DP, TP, PP, PRECISION]].tolist()))
            if option is None:  # FP16 where BF16 is the same
                break
            micro, m = int(row[MICROBATCH]), int(row[MICROBATCHES])
            home = int(representatives[classes[row[DOMAIN]]])
            segment = book.profile(task, options, micro, m, home)[option, row[FIRST], row[STOP]]
            there = back = 0.0
            if s + 1 < counts[p]:
                after = rows[p, s + 1, DOMAIN]
                volume = micro * (4.0 if row[PRECISION] == 0 else 2.0) * boundary[row[STOP]]
                there = task.latency_s[row[DOMAIN], after] + volume / task.bandwidth[row[DOMAIN], after]
                back = (task.latency_s[after, row[DOMAIN]] + volume / task.bandwidth[after, row[DOMAIN]]) * training
            fits = fits and segment[MAX_TAIL] >= stages
            z = bottleneck(segment, m, training, z, r, stages, there, back)
            r += segment[WORK_S] + there + back
            stages += float(row[PP])
        else:
            found.append((z + segment[FIRST_END_S], priced.step_s[p], fits, bool(priced.fits[p])))
    return np.array(found, dtype=float).reshape(-1, 4)


@pytest.mark.parametrize("seed", range(24))
def test_no_pipeline_is_faster_than_its_bound(seed):
    rows = bounded(random_problem(seed))
    assert (rows[:, 0] <= rows[:, 1] * (1 + 1e-9)).all()
    # Memory known segment by segment is memory of the whole.
    assert (rows[:, 2] == rows[:, 3]).all()


def test_bounds_are_close():
    """A bound of zero would be valid too; these are within a few per cent where pipelines are fast enough to matter."""
    tight = []
    for seed in range(24):
        rows = bounded(replace(random_problem(seed), max_segments=3) if seed % 3 == 0 else random_problem(seed))
        tight += (rows[:, 0] / rows[:, 1]).tolist()
    assert np.median(tight) > 0.95
    assert np.mean(tight) > 0.85


@pytest.mark.parametrize("seed", range(6))
def test_floors_lie_below_every_segment(seed):
    task = random_problem(seed)
    options = task.options()
    allowed = task.allowed(options)
    micro = min(task.microbatches)
    floor = floors(task, options, allowed, micro)
    classes, representatives = hardware_classes(task.cost)
    book = SegmentProfiles()
    n = task.n_layers
    for k in np.flatnonzero(task.free_devices > 0):
        profile = book.profile(task, options, micro, task.batch_size // micro, int(representatives[classes[k]]))
        for o in np.flatnonzero(allowed[k] & (micro % options[:, 0] == 0)):
            for i in range(n):
                for j in range(i + options[o, 2], n + 1):
                    work = floor.work_s[j] - floor.work_s[i]
                    assert profile[o, i, j, WORK_S] >= work * (1 - 1e-12)
