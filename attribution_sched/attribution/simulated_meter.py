"""The meter of a simulated world: past tasks with counters, throughput and joules, as a recorder would have kept them.

In a simulated world metered energy is what the cost model gives a task with its own latent demands on one device of the
first domain, at 16 bits and its largest microbatch; idle joules are that device's idle draw for as long. The demands
stay in here: an energy model sees counters, throughput and mode.

Jobs of which nothing is known but how many devices they ask for (``opaque-n``) are drawn from the world's log and
metered as the measured job each of them is: the draw of a device by the share of its time that it works, counters
summed over the devices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.counters import counters, read_speed, sample_time_s, throughput, true_rates
from attribution_sched.cluster.counters import read as readings
from attribution_sched.cluster.demands import DEMAND_NAMES, Demands, draw_demands
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.interference import measured_jobs
from attribution_sched.cluster.models.opaque import REQUESTS, STEP_S
from attribution_sched.cluster.philly import Philly, PhillyWeek
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
        labels: (n,) what each is called, to say what a reading is like; never an input.
    """

    kinds: IntArray
    counters: FloatArray
    samples_per_s: FloatArray
    training: BoolArray
    energy_j: FloatArray
    idle_j: FloatArray
    idle_w: float
    labels: tuple[str, ...] = ()


def metered_tasks(world: World, count: int, seed: int, *, exact: bool = False) -> MeteredTasks:
    """Draw tasks of a world's kinds, all kinds alike, and meter them.

    Args:
        world: Task kinds and cluster.
        count: How many.
        seed: Of their demands and the noise of their counters.
        exact: Counters and throughput without noise, to judge by.
    """
    rng = np.random.default_rng([seed, 9])
    if isinstance(world.arrivals, Philly | PhillyWeek):
        return _metered_jobs(world, count, rng, exact=exact)
    kinds = rng.permutation(np.resize(np.arange(len(world.kinds)), count)).astype(np.int64)
    task_kinds = [world.kinds[k] for k in kinds]
    modes = [kind.training for kind in task_kinds]
    demands = draw_demands([kind.model for kind in task_kinds], rng, world.idiosyncrasy, training=modes)
    return meter(world, kinds, demands, rng, exact=exact)


def meter(world: World, kinds: IntArray, demands: Demands, rng: np.random.Generator, *, exact: bool) -> MeteredTasks:
    """Read and meter tasks whose demands are known."""
    counter_values, pace = counters(demands, rng).values, throughput(demands, rng)
    if exact:
        counter_values, pace = true_rates(demands), 1.0 / sample_time_s(demands)
    energy_j, idle_j = task_energy_j(world, kinds, demands, split=True)
    training = np.array([world.kinds[k].training for k in kinds], dtype=bool)
    idle_w = float(world.cluster.domains[0].gpu.idle_w)
    labels = tuple(world.kinds[k].model.name for k in kinds.tolist())
    return MeteredTasks(kinds, counter_values[:, : len(DEMAND_NAMES)], pace, training, energy_j, idle_j, idle_w, labels)


def _metered_jobs(world: World, count: int, rng: np.random.Generator, *, exact: bool) -> MeteredTasks:
    """Tasks of a log whose jobs were measured."""
    # A week of the log has the tasks it has; the law of the log, as many as are wanted.
    philly_jobs = Philly(1.0).draw(count, rng)
    requests = {kind.batch_size: k for k, kind in enumerate(world.kinds)}
    usable = np.isin(philly_jobs.devices, list(requests))
    devices, rows = philly_jobs.devices[usable], philly_jobs.jobs[usable]
    jobs, column = measured_jobs(), np.searchsorted(REQUESTS, devices)
    kinds = np.array([requests[n] for n in devices.tolist()], dtype=np.int64)
    sample_s = 1.0 / (jobs.steps_per_s[rows, column] * jobs.samples[rows])
    counted = jobs.counters[rows] if exact else readings(jobs.counters[rows], rng).values
    pace = 1.0 / sample_s if exact else read_speed(sample_s, rng)
    at_work_w = task_energy_j(world, kinds[:1], draw_demands([world.kinds[kinds[0]].model], rng, 0.0))[0] / STEP_S
    idle_w = float(world.cluster.domains[0].gpu.idle_w)
    idle_j = devices * idle_w * sample_s
    energy_j = idle_j + devices * (at_work_w - idle_w) * jobs.device_busy[rows] * sample_s
    labels = tuple(jobs.families[job] for job in rows.tolist())
    seven = counted[:, : len(DEMAND_NAMES)] * devices[:, None]
    return MeteredTasks(kinds, seven, pace, np.ones(len(kinds), dtype=bool), energy_j, idle_j, idle_w, labels)


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
    energies_j = np.empty((2, len(kinds)))
    for task, (kind_index, factors) in enumerate(zip(kinds.tolist(), demands.factors.tolist(), strict=True)):
        scored = cost.score(plans[kind_index], kind_index, factors=tuple(factors), breakdown=False)
        batch = world.kinds[kind_index].batch_size
        energies_j[:, task] = scored.energy_j[0] / batch, gpu.idle_w * scored.step_s[0] / batch
    return energies_j if split else energies_j[0]


def nominal_readings(world: World) -> FloatArray:
    """What a meter shows of a nominal task of each kind, ``(kinds, 10)``: counters, throughput, joules, mode.

    Two worlds whose figures agree here have the same energy model.
    """
    modes = np.array([kind.training for kind in world.kinds], dtype=np.float64)
    demands = draw_demands(
        [kind.model for kind in world.kinds], np.random.default_rng(0), 0.0, training=(modes > 0.0).tolist()
    )
    energy = task_energy_j(world, np.arange(len(world.kinds)), demands)
    return np.column_stack([true_rates(demands)[:, : len(DEMAND_NAMES)], 1.0 / sample_time_s(demands), energy, modes])
