"""Masks allow what can be completed and nothing else; what is said of choices is finite for every kind of model."""

import numpy as np
import pytest

from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.world import TaskKind
from attribution_sched.planning.memory_feasibility import make_tables
from attribution_sched.scheduler.hi_ppo.action_masks import (
    DOMAIN_CHOICE,
    DONE,
    LAYOUT_CHOICE,
    WORTHWHILE,
    bounded_log,
    can_begin,
    cut_choices,
    domain_choices,
    log2_floor,
    open_partial_plans,
    segment_choices,
)
from attribution_sched.scheduler.hi_ppo.decode import Planner, decode
from tests.planning.exact.instances import all_plans, random_problem
from tests.scheduler.hi_ppo import worlds

from .plan_follower import PlanFollower
from .test_decode import Asked
from .test_partial_plans import layout, write


def drafts_of(t, kind, free):
    return open_partial_plans(t, np.array([kind]), np.asarray(free)[None], np.array([[1.0, 0.25, 0.0]]))


def domains_offered(t, drafts):
    k = drafts.free.shape[1]
    mask, out = np.zeros((1, k + 1), dtype=bool), np.zeros((1, k, DOMAIN_CHOICE), dtype=np.float32)
    domain_choices(t, drafts, np.array([0]), mask, out)
    return mask[0], out[0]


def cuts_offered(t, drafts, domain):
    mask = np.zeros((1, t.reach.shape[3] - 1), dtype=bool)
    cut_choices(t, drafts, np.array([0]), np.array([domain]), mask)
    return mask[0]


def segments_offered(t, drafts, domain, first):
    shape = (1, len(t.sizes), 4, 4)
    allowed = np.zeros(shape, dtype=bool)
    out = np.zeros((1, len(t.sizes), LAYOUT_CHOICE), dtype=np.float32)
    worth = np.zeros(shape, dtype=np.float32)
    segment_choices(t, drafts, np.array([0]), np.array([domain]), np.array([first]), allowed, out, worth)
    return allowed[0], out[0], worth[0]


@pytest.fixture(scope="module")
def tight():
    return worlds.planner_of(worlds.begun(worlds.worlds()["tight"])).tables


def test_small_helpers():
    assert [log2_floor(n) for n in (0, 1, 2, 3, 4, 7, 8)] == [-1, 0, 1, 1, 2, 2, 3]
    assert bounded_log(1.0) == 0.0 and bounded_log(np.inf) == 8.0 and bounded_log(0.0) == -8.0
    assert bounded_log(np.nan) == -8.0


def test_used_and_full_domains_are_not_offered_and_a_plan_ends_only_when_it_is_whole(tight):
    drafts = drafts_of(tight, 1, [4, 0, 4, 4])
    mask, out = domains_offered(tight, drafts)
    assert mask.tolist() == [True, False, True, True, False] and not out[1].any()
    write(tight, drafts, 0, 2, 6, layout(tight, 1, 1, 1))
    mask, _ = domains_offered(tight, drafts)
    assert mask.tolist() == [True, False, False, True, False]
    write(tight, drafts, 0, 0, 0, layout(tight, 1, 1, 1))
    mask, _ = domains_offered(tight, drafts)
    assert mask.tolist() == [False, False, False, True, True]


def test_a_cut_leaves_no_more_than_the_other_domains_hold(tight):
    """A model of three cards and more, on two domains of two cards each: only middle cuts do."""
    drafts = drafts_of(tight, 0, [2, 2, 0, 0])
    mask = cuts_offered(tight, drafts, 1)
    n = int(tight.cost.n_layers[0])
    assert not mask[0] and mask.any() and not mask[n - 1]
    alone = cuts_offered(tight, drafts_of(tight, 0, [0, 2, 0, 0]), 1)
    assert not alone.any()
    assert not can_begin(tight, drafts_of(tight, 0, [0, 2, 0, 0]), 0)
    assert can_begin(tight, drafts, 0)


def test_the_last_segment_that_may_be_written_must_reach_the_first_layer():
    engine = worlds.begun(worlds.worlds()["equal"])
    planner = worlds.planner_of(engine)
    t = make_tables(engine.cost, engine.world.kinds, planner.tables.base_step_s, planner.tables.base_cost_usd, 1)
    mask = cuts_offered(t, drafts_of(t, 0, [4, 4, 4]), 0)
    assert np.flatnonzero(mask).tolist() == [0]


def test_a_replica_keeps_its_microbatch(tight):
    drafts = drafts_of(tight, 1, [4, 4, 4, 4])
    allowed, _, _ = segments_offered(tight, drafts, 2, 6)
    assert allowed[:, :, 3].any()
    write(tight, drafts, 0, 2, 6, layout(tight, 1, 1, 1), v=1)
    allowed, _, _ = segments_offered(tight, drafts, 0, 0)
    assert np.flatnonzero(allowed.any(axis=(0, 1))).tolist() == [1]


def test_layouts_on_offer_have_the_devices_and_are_worth_their_time(tight):
    drafts = drafts_of(tight, 1, [3, 4, 4, 4])
    allowed, out, worth = segments_offered(tight, drafts, 0, 0)
    some = allowed.any(axis=(1, 2))
    assert some.any() and (tight.sizes[some] <= 3).all()
    assert np.isfinite(out).all() and not out[~some].any()
    whole = np.where(allowed, tight.whole_s[1, 0], np.inf)
    for size in np.unique(tight.sizes[some]):
        own = allowed & (tight.sizes == size)[:, None, None]
        least, most = whole[tight.sizes <= size].min(), worth[own].max()
        assert ((whole[own] <= WORTHWHILE * least) | (worth[own] >= most - 0.01)).all()


def test_models_without_tensor_parallel_layers_can_be_cut():
    """A convolution network has no parameter that tensor parallelism shards."""
    engine = worlds.begun(worlds.worlds()["equal"])
    t = worlds.planner_of(engine).tables
    assert t.cost.sizes[2, 0, int(t.cost.n_layers[2])] == 0.0
    assert cuts_offered(t, drafts_of(t, 2, [4, 4, 4]), 0).sum() > 5


def small_instances(count):
    """Random decisions with every plan there is, and a planner for each."""
    for seed in range(count):
        task = random_problem(seed)
        m = sorted(set(task.microbatches))
        levels = (m[0], m[0], m[-1], m[-1])
        training = task.cost.training[0]
        kind = TaskKind(task.cost.models[0], task.batch_size, levels, (1, 1), 1, training=training)
        planner = Planner.of(task.cost, (kind,), np.ones(1), np.ones(1), task.max_segments)
        batch = all_plans(task)
        if len(batch):
            yield seed, task, planner, batch


def test_what_can_begin_has_a_plan_and_fast_plans_are_on_offer():
    """Against every plan of small instances: nothing impossible is offered, and little of worth is left out."""
    begun = possible = followed = whole = 0
    for _, task, planner, batch in small_instances(40):
        t = planner.tables
        links = np.stack([task.bandwidth * 8e-9, task.latency_s, np.zeros_like(task.latency_s), task.bandwidth * 8e-9])
        free = np.asarray(task.free_devices, dtype=np.int64)
        drafts = drafts_of(t, 0, free)
        priced = task.cost.score(batch, 0, bandwidth_gbps=links[0], latency_s=links[1], breakdown=False)
        able = can_begin(t, drafts, 0)
        assert priced.fits.any() or not able
        begun, possible = begun + able, possible + bool(priced.fits.any())
        if priced.fits.any():
            whole += 1
            time = np.where(priced.fits, priced.step_s, np.inf)
            # Equal plans (twin domains, 16-bit formats of the same speed) are one.
            ties = np.flatnonzero(time <= time.min() * (1.0 + 1e-9))[:12]
            followed += any(follows(planner, links, free, batch.segments[p, : batch.counts[p]]) for p in ties)
    assert possible > 25
    assert begun >= 0.97 * possible
    assert followed >= 0.75 * whole, (followed, whole)


def follows(planner, links, free, rows):
    """Whether the choices that lead to a plan are all on offer."""
    decisions = worlds.lone_decision(planner, links, free)
    follower = PlanFollower(planner.tables, np.zeros(1, dtype=int), [rows], np.zeros(1, dtype=int))
    found = decode(planner, decisions, follower)
    follower.compare(found.drafts)
    return bool(follower.followed[0])


def test_walks_over_small_instances_give_plans_that_fit():
    """A drawn plan is one of all plans there are, and fits."""
    finished = dead = 0
    for seed, task, planner, _ in small_instances(40):
        links = np.stack([task.bandwidth * 8e-9, task.latency_s, np.zeros_like(task.latency_s), task.bandwidth * 8e-9])
        free = np.asarray(task.free_devices, dtype=np.int64)
        many = worlds.lone_decision(planner, links, free).take(np.zeros(40, dtype=int))
        found = decode(planner, many, worlds.chooser(seed, must_act=True))
        acted = found.batch.counts > 0
        dead += int((found.drafts.status != DONE).sum())
        if acted.any():
            plans = PlanBatch(found.batch.segments[acted], found.batch.counts[acted], np.zeros(acted.sum(), dtype=int))
            assert task.cost.score(plans, 0, breakdown=False).fits.all()
            finished += int(acted.sum())
    assert finished > 500 and dead <= 0.01 * finished


@pytest.mark.parametrize("weights", [(0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)])
def test_descriptions_are_finite_whatever_is_wanted_and_however_little_is_held(weights):
    """A domain whose only device is too small for the last layer holds nothing."""
    engine = worlds.begun(worlds.worlds()["tight"])
    planner = worlds.planner_of(engine)
    free = np.array([1, 1, 1, 4])
    links = np.full((4, 4, 4), 5.0)
    decisions = worlds.lone_decision(planner, links, free)
    decisions.weights[:] = weights
    decode(planner, decisions.take(np.zeros(20, dtype=int)), Asked({}))
    t = planner.tables
    huge = t._replace(domains=t.domains._replace(rows=t.domains.rows.copy()), filled=np.zeros_like(t.filled))
    huge.domains.rows.memory_bytes[:] = 1e6
    drafts = drafts_of(huge, 0, free)
    drafts.wishes[0] = (*weights[:2], 0.1)
    mask, out = domains_offered(huge, drafts)
    assert not mask.any() and np.isfinite(out).all()
