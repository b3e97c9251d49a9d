"""Beliefs: what was measured of a task brings what is believed of it nearer to the truth, and says how near."""

from dataclasses import replace

import numpy as np

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.attribution.schema import closed_form
from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.counters import counters, throughput
from attribution_sched.cluster.demands import DEMAND_NAMES, draw_demands
from attribution_sched.cluster.world import build_pool
from attribution_sched.config import load_settings
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.types import Task
from tests.small_world import small


def attributor(read):
    """Logarithms of the counters, bounded: a reading that tells of demands as well as any."""
    return np.tanh(0.3 * (np.log1p(read[:, :7]) - np.log1p(read[:, :7]).mean(axis=1, keepdims=True)))


def errors(beliefs, world, measured):
    rng = np.random.default_rng(5)
    kind = 0
    drawn = draw_demands([world.kinds[kind].model] * 300, rng, world.idiosyncrasy)
    read, speed = counters(drawn, rng).values, throughput(drawn, rng)
    vector = state_vectors(attributor, DEMAND_NAMES)
    tasks = [
        Task(
            kind_index=kind,
            attribution=vector(read[i]) if "attributions" in measured else None,
            samples_per_s=float(speed[i]) if "pace" in measured else 0.0,
        )
        for i in range(300)
    ]
    believed = beliefs.of(tasks)
    apart = np.log(drawn.factors) - believed.mean[:, :3]
    spread = np.sqrt(np.einsum("nij,nij->ni", believed.root, believed.root))[:, :3]
    return np.sqrt((apart**2).mean(axis=0)), np.abs(apart / spread).mean()


def test_what_is_measured_narrows_what_is_believed_and_errors_are_as_large_as_said():
    world = small().build_world()
    beliefs = AttributionBeliefs(world, attributor)
    nothing, said = errors(beliefs, world, ())
    paced, _ = errors(beliefs, world, ("pace",))
    both, said_both = errors(beliefs, world, ("attributions", "pace"))
    assert paced.mean() < 0.97 * nothing.mean()
    assert both.mean() < 0.9 * paced.mean()
    # A normal number is 0.8 of its spread away from its mean on average.
    assert 0.6 < said < 1.0 and 0.6 < said_both < 1.0


def test_a_sense_that_is_not_read_changes_nothing():
    world = small().build_world()
    blind = AttributionBeliefs(world, attributor, attributions=False, pace=False)
    with_all, _ = errors(blind, world, ("attributions", "pace"))
    without, _ = errors(blind, world, ())
    assert np.array_equal(with_all, without)


def partly_read(world, count):
    """Tasks with two to four counters unread, attributed with EmSHAP's interval, and their log factors."""
    pool, made, rng = build_pool(world), as_attributor(None, world), np.random.default_rng(77)
    tasks = []
    for task in (pool.task(row, world.kinds) for row in range(count)):
        holes = task.counters.copy()
        holes[rng.permutation(7)[: rng.integers(2, 5)]] = np.nan
        tasks.append(replace(task, attribution=made.vector(replace(task, counters=holes))))
    return tasks, np.log(np.column_stack([pool.demands.factors, pool.demands.ratio[:, 3]]))[:count]


def surely(tasks, covariance=None):
    return [replace(t, attribution=replace(t.attribution, state_covariance=covariance)) for t in tasks]


def test_the_interval_of_an_attribution_decides_how_much_it_is_believed():
    """Cut it, and beliefs are farther off and far too sure; without end, they are as if nothing had been attributed."""
    world = load_settings("testbed").build_world()
    beliefs = AttributionBeliefs(world, closed_form())
    tasks, truth = partly_read(world, 200)

    def judged(given):
        found = beliefs.of(given)
        spread = np.sqrt(np.einsum("nij,nij->ni", found.root, found.root))
        off = np.abs(found.mean - truth)
        return np.sqrt((off**2).mean()), (off <= 1.96 * spread).mean()

    (error, inside), (cut_error, cut_inside) = judged(tasks), judged(surely(tasks))
    assert error < 0.9 * cut_error
    assert 0.85 < inside < 0.99 and cut_inside < 0.75
    # An interval of no width is none; of one without end the reading is not believed at all, the pace is.
    exact = beliefs.of(surely(tasks, np.zeros((7, 7))))
    np.testing.assert_allclose(exact.mean, beliefs.of(surely(tasks)).mean, atol=1e-3)
    nothing = beliefs.of([replace(task, attribution=None) for task in tasks])
    endless = beliefs.of(surely(tasks, 1e6 * np.eye(7)))
    np.testing.assert_allclose(endless.mean, nothing.mean, atol=0.04)
    np.testing.assert_allclose(np.linalg.det(endless.root), np.linalg.det(nothing.root), rtol=0.2)
    # What the agents read is the same belief.
    rows = [task.attribution for task in tasks]
    hours = beliefs.log_factors(
        np.array([task.kind_index for task in tasks]), np.array([row.state for row in rows], dtype=np.float64),
        np.array([task.samples_per_s for task in tasks]), {i: row.state_covariance for i, row in enumerate(rows)},
    )  # fmt: skip
    np.testing.assert_allclose(hours, beliefs.of(tasks).mean[:, :3], atol=1e-12)


def test_counters_that_were_not_read_are_worth_more_than_none():
    """EmSHAP errs mostly in which model it is: taken for a Gaussian, it made beliefs worse than pace alone does."""
    world = replace(load_settings("testbed").build_world(), pool_size=192, pool_seed=31)
    emshap = as_attributor(None, world)

    def partly(task):
        unread = dict.fromkeys(("conv", "fc", "attention"), "unavailable")
        return emshap.vector(replace(task, provenance={**task.provenance, **unread}))

    pool = build_pool(world).attributed(partly)
    tasks, truth = [pool.task(row, world.kinds) for row in range(len(pool))], np.log(pool.demands.factors)
    off = {}
    for name, reads in (("estimated", True), ("pace alone", False)):
        believed = AttributionBeliefs(world, closed_form(), attributions=reads).of(tasks)
        off[name] = np.sqrt(((believed.mean[:, :3] - truth) ** 2).mean(axis=0))
    assert (off["estimated"] < 0.95 * off["pace alone"]).all()
