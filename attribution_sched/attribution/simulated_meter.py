"""The meter of a simulated world: past tasks with counters, throughput and joules, as a recorder would have kept them.

In a simulated world metered energy is what the cost model gives a task with its own latent demands on one device of the
first domain, at 16 bits and its largest microbatch; idle joules are that device's idle draw for as long. The demands
stay in here: an energy model sees counters, throughput and mode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.counters import counters, sample_time_s, throughput, true_rates
from attribution_sched.cluster.demands import DEMAND_NAMES, Demands, draw_demands
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.world import World
from attribution_sched.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class MeteredTasks:
    """Tasks that were metered, the task axis first.

    Attributes:
        kinds: (n,) row of each task's kind, to name and to judge by; never an input.
        counters: (n, 7) counters per second.
        samples_per_s: (n,) throughput.
        training: (n,) mode.
        energy_j: (n,) joules per sample, idle draw among them.
        idle_j: (n,) joules per sample of the idle machine meanwhile.
        idle_w: Watts of the idle machine.
    """

    kinds: IntArray
    counters: FloatArray
    samples_per_s: FloatArray
    training: BoolArray
    energy_j: FloatArray
    idle_j: FloatArray
    idle_w: float


def metered_tasks(world: World, count: int, seed: int, *, exact: bool = False) -> MeteredTasks:
    """Draw tasks of a world's kinds, all kinds alike, and meter them.

    Args:
        world: Task kinds and cluster.
        count: How many.
        seed: Of their demands and the noise of their counters.
        exact: Counters and throughput without noise, to judge by.
    """
    rng = np.random.default_rng([seed, 9])
    kinds = rng.permutation(np.resize(np.arange(len(world.kinds)), count)).astype(np.int64)
    demands = draw_demands([world.kinds[k].model for k in kinds], rng, world.idiosyncrasy)
    return meter(world, kinds, demands, rng, exact=exact)


def meter(world: World, kinds: IntArray, demands: Demands, rng: np.random.Generator, *, exact: bool) -> MeteredTasks:
    """Read and meter tasks whose demands are known."""
    read, pace = counters(demands, rng).values, throughput(demands, rng)
    if exact:
        read, pace = true_rates(demands), 1.0 / sample_time_s(demands)
    energy_j, idle_j = task_energy_j(world, kinds, demands, split=True)
    training = np.array([world.kinds[k].training for k in kinds], dtype=bool)
    idle_w = float(world.cluster.domains[0].gpu.idle_w)
    return MeteredTasks(kinds, read[:, : len(DEMAND_NAMES)], pace, training, energy_j, idle_j, idle_w)


def task_energy_j(world: World, kinds: IntArray, demands: Demands, *, split: bool = False) -> FloatArray:
    """Joules per sample of each task alone on one device of the first domain, at its largest microbatch, (n,).

    A model too large for one device is priced as if it fitted: the joules of a sample are what tasks differ by.

    Args:
        world: Task kinds and cluster.
        kinds: (n,) index of each task's kind.
        demands: Latent demands of the tasks.
        split: Give two rows instead, (2, n): all joules, and the idle machine's among them.
    """
    gpu = world.cluster.domains[0].gpu
    precision = Precision.FP16 if gpu.supports(Precision.FP16) else Precision.FP32
    cost = CostModel(world.cluster, [k.model for k in world.kinds], [k.training for k in world.kinds])
    plans = []
    for kind in world.kinds:
        micro = kind.microbatches[-1]
        segment = Segment(0, 0, len(kind.model), precision=precision)
        plans.append(PlanBatch.of([Plan((Replica((segment,), micro, kind.batch_size // micro),))]))
    found = np.empty((2, len(kinds)))
    for task, (kind_index, factors) in enumerate(zip(kinds.tolist(), demands.factors.tolist(), strict=True)):
        scored = cost.score(plans[kind_index], kind_index, factors=tuple(factors), breakdown=False)
        batch = world.kinds[kind_index].batch_size
        found[:, task] = scored.energy_j[0] / batch, gpu.idle_w * scored.step_s[0] / batch
    return found if split else found[0]


def nominal_readings(world: World) -> FloatArray:
    """What a meter shows of a nominal task of each kind, ``(kinds, 10)``: counters, throughput, joules, mode.

    Two worlds whose figures agree here have the same energy model.
    """
    demands = draw_demands([kind.model for kind in world.kinds], np.random.default_rng(0), 0.0)
    energy = task_energy_j(world, np.arange(len(world.kinds)), demands)
    modes = np.array([kind.training for kind in world.kinds], dtype=np.float64)
    return np.column_stack([true_rates(demands)[:, :7], 1.0 / sample_time_s(demands), energy, modes])
