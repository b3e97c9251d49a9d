"""What the network sees of decisions and of unfinished plans."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import MICROBATCHES, PlanBatch
from attribution_sched.rivals.seq2seq.features import (
    CONTEXT,
    CUT_CHOICE,
    DOMAIN_CHOICE,
    EDGE_FEATURES,
    MICRO_CHOICE,
    NODE_FEATURES,
    OPTION_CHOICE,
    OPTION_FEATURES,
    TASK_FEATURES,
    advance,
    begins,
    complete,
    context,
    cut_choices,
    domain_choices,
    empty,
    features_of,
    micro_choices,
    option_choices,
)

from .decisions import moment


@settings(deadline=None, max_examples=25)
@given(seed=some.integers(0, 10_000), domains=some.sampled_from([1, 3, 4, 9]))
def test_shapes_and_finite_numbers(seed, domains):
    task = features_of(moment(seed, domains, ("bert-large", "vit-l-16") if domains == 1 else None))
    k, o, m = domains, len(task.options), len(task.microbatches)
    assert task.nodes.shape == (k, NODE_FEATURES)
    assert task.edges.shape == (k, k, EDGE_FEATURES)
    assert task.task.shape == (TASK_FEATURES,)
    assert task.option_rows.shape == (k, m, o, OPTION_FEATURES)
    assert task.work.shape == task.params.shape == task.boundary.shape == (task.n_layers + 1,)
    for array in (task.nodes, task.edges, task.task, task.option_rows, task.work, task.params, task.boundary):
        assert np.isfinite(array).all() and np.abs(array).max() <= 40.0


@settings(deadline=None, max_examples=25)
@given(seed=some.integers(0, 10_000))
def test_profiles_rise_from_nothing_to_all(seed):
    task = features_of(moment(seed))
    for share in (task.work, task.params):
        assert share[0] == 0.0 and share[-1] == pytest.approx(1.0)
        assert (np.diff(share) >= 0.0).all()


@settings(deadline=None, max_examples=25)
@given(seed=some.integers(0, 10_000))
def test_layouts_are_allowed_exactly_where_room_node_and_hardware_are(seed):
    view = moment(seed)
    task = features_of(view)
    for k, domain in enumerate(view.cost.cluster.domains):
        for o, (dp, tp, pp, precision) in enumerate(task.options):
            has = domain.gpu.supports(PRECISIONS[precision])
            fits = dp * tp * pp <= view.free_devices[k] and tp <= domain.node_devices and tp in TP_DEGREES
            assert task.allowed[k, o] == (has and fits)


def test_what_a_full_domain_shows_does_not_reach_the_time_of_others():
    view = moment(3)
    task = features_of(view)
    assert (task.open == (view.free_devices > 0)).all()
    assert np.isinf(task.best_time[~task.open]).all()


def pick(rng, mask):
    """One random choice of each row that the mask allows."""
    assert mask.any(axis=1).all(), "a plan has nowhere to go"
    return np.array([rng.choice(np.flatnonzero(row)) for row in mask])


def random_plan(task, rng):
    """Follow the masks at random until the plan ends."""
    plans = empty(task)
    while True:
        looks, mask = domain_choices(task, plans)
        assert looks.shape == (1, len(task.open), DOMAIN_CHOICE) and context(task, plans).shape == (1, CONTEXT)
        domain = pick(rng, mask)
        if domain[0] == len(task.open):
            return plans
        looks, mask = micro_choices(task, plans, domain)
        assert looks.shape == (1, len(task.microbatches), MICRO_CHOICE)
        level = pick(rng, mask) if begins(task, plans)[0] else plans.level
        looks, mask = option_choices(task, plans, domain, level)
        assert looks.shape == (1, len(task.options), OPTION_CHOICE) and np.isfinite(looks).all()
        option = pick(rng, mask)
        looks, mask = cut_choices(task, plans, domain, level, option)
        assert looks.shape == (1, task.n_layers, CUT_CHOICE) and np.isfinite(looks).all()
        plans = advance(task, plans, domain, level, option, pick(rng, mask) + 1)


@settings(deadline=None, max_examples=60)
@given(seed=some.integers(0, 10_000), domains=some.sampled_from([3, 4, 9]))
def test_every_walk_within_the_masks_ends_in_a_well_formed_plan(seed, domains):
    view = moment(seed, domains)
    task = features_of(view)
    plans = random_plan(task, np.random.default_rng(seed))
    rows = plans.rows.copy()
    rows[:, :, MICROBATCHES] = 1
    batch = PlanBatch(rows, plans.counts, np.zeros(1, dtype=np.int64))
    plan = batch.plan(0)
    plan.check(task.n_layers, domains)
    assert complete(task, plans)[0] and 1 <= len(plan.segments) <= task.max_segments
    for segment in plan.segments:
        domain = view.cost.cluster.domains[segment.domain]
        assert segment.device_count <= view.free_devices[segment.domain]
        assert segment.tp <= domain.node_devices and domain.gpu.supports(segment.precision)


def test_a_segment_more_changes_what_is_left():
    task = features_of(moment(1))
    domain = np.flatnonzero(task.open)[:1]
    option = np.flatnonzero(task.allowed[domain[0]])[:1]
    zero = np.zeros(1, dtype=np.int64)
    half = np.array([task.n_layers // 2])
    before = empty(task)
    after = advance(task, before, domain, zero, option, half)
    assert after.counts[0] == 1 and after.at[0] == half[0] and after.used[0, domain[0]] and after.last[0] == domain[0]
    assert not domain_choices(task, after)[1][0, [domain[0], -1]].any()
    whole = advance(task, before, domain, zero, option, np.array([task.n_layers]))
    assert domain_choices(task, whole)[1][0, -1]
    assert before.counts[0] == 0, "unfinished plans are not changed in place"


def test_without_another_domain_a_segment_must_finish_the_model():
    view = moment(1)
    view.free_devices[1:] = 0
    view.free_devices[0] = 8
    task = features_of(view)
    zero = np.zeros(1, dtype=np.int64)
    mask = cut_choices(task, empty(task), zero, zero, np.flatnonzero(task.allowed[0])[:1])[1]
    assert mask.sum() == 1 and mask[0, -1]
