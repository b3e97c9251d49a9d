"""The attribution input of a scheduler in a simulated world: where the joules of every task go, by its counters.

from attribution_sched.attributor import simulated_attributor

attributor = simulated_attributor(world)  # counters (n, 12) -> attributions (n, 7) in [-1, 1]

Energies stand for what a meter recorded of past tasks: the joules per sample that the cost model gives a task with
its own latent demands on one device, at 16 bits. Counters are those a scheduler sees. An attributor belongs to a
mix of tasks; worlds that differ only in network, incidents or arrivals share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from attribution_sched.attribution.linear import LinearAttribution
    from attribution_sched.cluster.demands import Demands
    from attribution_sched.cluster.world import World

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ENOUGH_TASKS = 512
"""A smaller pool is filled up to this with further tasks of the same kinds."""


def simulated_attributor(world: World, *, log_energy: bool = True) -> LinearAttribution:
    """Fit EmSHAP's closed form on the tasks of a world.

    Args:
        world: Its pool of tasks gives the counters, its cost model the energies.
        log_energy: Explain the logarithm of the joules per sample.
    """
    from attribution_sched.attribution.linear import LinearAttribution
    from attribution_sched.cluster.counters import counters
    from attribution_sched.cluster.demands import draw_demands
    from attribution_sched.cluster.pool import build_pool

    pool = build_pool(world)
    readings, energy = pool.counters.values, task_energy_j(world, pool.kinds, pool.demands)
    missing = ENOUGH_TASKS - len(pool)
    if missing > 0:
        rng = np.random.default_rng([world.pool_seed, 1])
        kinds = np.resize(pool.kinds, missing)
        more = draw_demands([world.kinds[k].model for k in kinds], rng, world.idiosyncrasy)
        readings = np.vstack([readings, counters(more, rng).values])
        energy = np.concatenate([energy, task_energy_j(world, kinds, more)])
    return LinearAttribution.fit(readings, energy, log_energy=log_energy)


def task_energy_j(world: World, kinds: IntArray, demands: Demands) -> FloatArray:
    """Joules per sample of each task alone on one device of the first domain, at its largest microbatch, (n,).

    A model too large for one device is priced as if it fitted: the joules of a sample are what tasks differ by.

    Args:
        world: Task kinds and cluster.
        kinds: (n,) index of each task's kind.
        demands: Latent demands of the tasks.
    """
    from attribution_sched.cluster.cost import CostModel
    from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
    from attribution_sched.cluster.precision import Precision

    half = world.cluster.domains[0].gpu.supports(Precision.FP16)
    precision = Precision.FP16 if half else Precision.FP32
    cost = CostModel(world.cluster, [k.model for k in world.kinds], [k.training for k in world.kinds])
    plans = []
    for kind in world.kinds:
        micro = kind.microbatches[-1]
        segment = Segment(0, 0, len(kind.model), precision=precision)
        plans.append(PlanBatch.of([Plan((Replica((segment,), micro, kind.batch_size // micro),))]))
    energy = np.empty(len(kinds))
    for task, (kind_index, factors) in enumerate(zip(kinds.tolist(), demands.factors.tolist(), strict=True)):
        scored = cost.score(plans[kind_index], kind_index, factors=tuple(factors), breakdown=False)
        energy[task] = scored.energy_j[0] / world.kinds[kind_index].batch_size
    return energy
