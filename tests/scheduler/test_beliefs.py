"""Beliefs: what was measured of a task brings what is believed of it nearer to the truth, and says how near."""

import numpy as np

from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.counters import counters, throughput
from attribution_sched.cluster.demands import DEMAND_NAMES, draw_demands
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
