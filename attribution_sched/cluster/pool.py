"""The tasks that can arrive: instances of the task kinds with their own latent demands and counters.

A world holds a fixed pool of instances; an arrival draws one. Two instances of one kind differ in what they
really demand, which shows only in their counters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.arrivals import TraceArrivals
from attribution_sched.cluster.counters import COUNTER_NAMES, Counters, counters, read, read_speed, throughput
from attribution_sched.cluster.demands import Demands, draw_demands
from attribution_sched.cluster.interference import measured_jobs
from attribution_sched.cluster.models.opaque import REQUESTS, is_opaque
from attribution_sched.cluster.philly import Philly, PhillyWeek, believed_left_s
from attribution_sched.cluster.world import TaskKind, World
from attribution_sched.errors import TaskError, TraceError, nearest, problem
from attribution_sched.types import FloatArray, IntArray, Task, provenance_of

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector

Attribute = Callable[[Task], "AttributionVector"]
"""A task, of which counters, throughput, mode and batch may be read → where its joules go. The world only carries the
answer."""

SIMULATED = provenance_of(COUNTER_NAMES, "simulated")


@dataclass(frozen=True)
class TaskPool:
    """Instances of tasks; every array has the instance axis first.

    Attributes:
        kinds: Index into ``World.kinds``, shape ``(n,)``.
        steps: Work in steps, shape ``(n,)``.
        demands: Latent demands; no scheduler may look at them.
        counters: What can be measured of the instances.
        samples_per_s: Measured throughput on the reference device, shape ``(n,)``; empty if nobody measured it.
        tasks: Instance → its record, made when it is first asked for.
        attribute: Who says where a task's joules go, asked once per instance; None leaves tasks unattributed.
        jobs: Row of the measured job that each instance really is, −1 for none, shape ``(n,)``; empty for all none.
        tenants: Who asks for each instance; empty leaves that to its kind.
        believed_steps: Steps that can be said of each instance before it runs, shape ``(n,)``; empty where all is told.
    """

    kinds: IntArray
    steps: FloatArray
    demands: Demands
    counters: Counters
    samples_per_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    tasks: dict[int, Task] = field(default_factory=dict, repr=False, compare=False)
    attribute: Attribute | None = field(default=None, repr=False, compare=False)
    jobs: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    tenants: tuple[str, ...] = ()
    believed_steps: FloatArray = field(default_factory=lambda: np.zeros(0))

    def attributed(self, attribute: Attribute | None) -> TaskPool:
        """The same instances, attributed by another; records made so far are made anew."""
        return replace(self, tasks={}, attribute=attribute)

    def task(self, instance: int, kinds: tuple[TaskKind, ...]) -> Task:
        """The record of an instance, its attribution in it.

        Args:
            instance: Which.
            kinds: Of the world.
        """
        known = self.tasks.get(instance)
        if known is None:
            index = int(self.kinds[instance])
            kind, values = kinds[index], self.counters.values[instance].copy()
            values.setflags(write=False)
            steps = self.believed_steps if self.believed_steps.size else self.steps
            known = Task(
                kind_index=index, model=kind.model.name, steps=float(steps[instance]), batch_size=kind.batch_size,
                training=kind.training, tenant=self.tenants[instance] if self.tenants else kind.tenant,
                priority=kind.priority, counters=values, provenance=SIMULATED,
                samples_per_s=self.speed(instance), number=instance,
                memory_bytes=float(measured_jobs().memory_bytes[self.jobs[instance]]) if self.jobs.size else 0.0,
            )  # fmt: skip
            if self.attribute is not None:
                known = replace(known, attribution=self.attribute(known))
            self.tasks[instance] = known
        return known

    def speed(self, instance: int) -> float:
        """Measured samples per second of an instance; 0 if nobody measured it."""
        return float(self.samples_per_s[instance]) if self.samples_per_s.size else 0.0

    def __len__(self) -> int:
        return int(self.kinds.size)


def build_pool(world: World) -> TaskPool:
    """Draw the pool of a world from its ``pool_seed``; a trace's tasks come in the trace's order."""
    rng = np.random.default_rng(world.pool_seed)
    if isinstance(world.arrivals, Philly | PhillyWeek):
        return _philly(world, world.arrivals, rng)
    if isinstance(world.arrivals, TraceArrivals):
        kinds, steps = _traced(world, world.arrivals)
    else:
        shares = np.array([kind.share for kind in world.kinds])
        kinds = rng.choice(len(world.kinds), size=world.pool_size, p=shares / shares.sum()).astype(np.int64)
        low = np.log([world.kinds[k].steps[0] for k in kinds])
        high = np.log([world.kinds[k].steps[1] for k in kinds])
        steps = np.round(np.exp(rng.uniform(low, high))).astype(np.float64)
    drawn = [world.kinds[k] for k in kinds]
    modes = [kind.training for kind in drawn]
    demands = draw_demands([kind.model for kind in drawn], rng, world.idiosyncrasy, training=modes)
    return TaskPool(kinds, steps, demands, counters(demands, rng), throughput(demands, rng))


def _philly(world: World, arrivals: Philly | PhillyWeek, rng: np.random.Generator) -> TaskPool:
    """Opaque tasks of the Philly log: what is measured of each is what its job's arithmetic and throughput say."""
    drawn = arrivals.draw(world.pool_size, rng) if isinstance(arrivals, Philly) else arrivals.draw()
    requests = {kind.batch_size: k for k, kind in enumerate(world.kinds) if is_opaque(kind.model)}
    missing = sorted(set(drawn.devices.tolist()) - set(requests))
    if missing:
        rule = "tasks of the Philly log ask for so many devices and no kind of the world does"
        raise TaskError(problem("kinds", missing, rule, "Add the kinds opaque-1, opaque-2, opaque-4, opaque-8"))
    kinds = np.array([requests[n] for n in drawn.devices.tolist()], dtype=np.int64)
    jobs, column = measured_jobs(), np.searchsorted(REQUESTS, drawn.devices)
    sample_s = 1.0 / (jobs.steps_per_s[drawn.jobs, column] * jobs.samples[drawn.jobs])
    demands = draw_demands([world.kinds[k].model for k in kinds], rng, 0.0)
    believed = np.array([believed_left_s(tenant, 0.0) for tenant in drawn.tenants])
    return TaskPool(
        kinds, drawn.durations_s, demands, read(jobs.counters[drawn.jobs], rng), read_speed(sample_s, rng),
        jobs=drawn.jobs, tenants=drawn.tenants, believed_steps=believed,
    )  # fmt: skip


def _traced(world: World, arrivals: TraceArrivals) -> tuple[IntArray, FloatArray]:
    known: dict[tuple[str, int, bool], list[int]] = {}
    for k, kind in enumerate(world.kinds):
        known.setdefault((kind.model.name.lower(), kind.batch_size, kind.training), []).append(k)
    rows = []
    for number, row in enumerate(arrivals.rows):
        key = (row.model.lower().replace(":", " "), row.batch_size, row.mode == "training")
        if key not in known:
            names = [_label(kind) for kind in world.kinds]
            given = f"{row.model} batch {row.batch_size} {row.mode}"
            rule = f"task {number} of {arrivals.source} matches no task kind of the world"
            raise TraceError(problem("trace task", given, rule, nearest(given, names)))
        # Kinds that differ only in who asks, or how urgently, are told apart by that.
        asked = (row.priority, row.tenant)
        rows.append(min(known[key], key=lambda k: (world.kinds[k].priority, world.kinds[k].tenant) != asked))
    return np.array(rows, dtype=np.int64), np.array([float(row.steps) for row in arrivals.rows])


def _label(kind: TaskKind) -> str:
    return f"{kind.model.name} batch {kind.batch_size} {'training' if kind.training else 'inference'}"
