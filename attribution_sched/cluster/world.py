"""The world a scheduler lives in: a cluster, the work that arrives, and how decisions are rewarded.

A ``World`` is a complete, frozen description; the environments and the event simulator are built from it
and add nothing but a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.arrivals import Diurnal, Poisson, TraceArrivals
from attribution_sched.cluster.counters import (
    COUNTER_NAMES,
    Counters,
    counters,
    read,
    read_speed,
    throughput,
    working_share,
)
from attribution_sched.cluster.demands import Demands, draw_demands
from attribution_sched.cluster.gpus import Gpu
from attribution_sched.cluster.incidents import Incident, check_incidents
from attribution_sched.cluster.interference import measured_jobs
from attribution_sched.cluster.models import TRAINED_BYTES, Model, TaskType
from attribution_sched.cluster.models.opaque import OPAQUE, REQUESTS
from attribution_sched.cluster.objective import BATCH_LEVELS as BATCH_LEVELS
from attribution_sched.cluster.objective import SHARE_RULES, KindFields, Quota, ShareRule
from attribution_sched.cluster.objective import Reward as Reward
from attribution_sched.cluster.philly import Philly, PhillyWeek, believed_left_s
from attribution_sched.cluster.power import cap_levels_w, check_cap, check_levels
from attribution_sched.cluster.signals import YEAR_H, Signal, by_hour
from attribution_sched.cluster.wan import Wan
from attribution_sched.errors import SettingsError, TaskError, TraceError, nearest, problem
from attribution_sched.types import FloatArray, IntArray, Task, provenance_of

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector


# ------ The cluster: datacentre domains, the network between them, and how the framework behaves

GIGA = 1e9


@dataclass(frozen=True)
class Runtime:
    """Framework behaviour shared by every task of a cluster: switches that change time and memory but are no plan.

    Attributes:
        recompute: Recompute activations in the backward pass (keeps layer inputs only).
        zero_stage: ZeRO stage 0..3: what data-parallel ranks shard (optimiser, gradients, weights).
        sequence_parallel: Shard layer norms and dropout over tensor-parallel ranks too.
        flash_attention: Fused attention; no score matrices are kept or moved.
        blocking_sends: A stage computes nothing while it sends (as frameworks that synchronise after
            every point-to-point transfer do); otherwise sends overlap with computing.
        reserved_bytes: Device memory that context, communicators and allocator slack take.
    """

    recompute: bool = False
    zero_stage: int = 1
    sequence_parallel: bool = False
    flash_attention: bool = True
    blocking_sends: bool = False
    reserved_bytes: float = 2.0 * GIGA

    def __post_init__(self) -> None:
        if self.zero_stage not in (0, 1, 2, 3):
            raise SettingsError(problem("zero_stage", self.zero_stage, "must be 0, 1, 2 or 3", "Pick one of these"))
        if not self.reserved_bytes >= 0:
            raise SettingsError(problem("reserved_bytes", self.reserved_bytes, "must be >= 0", "Use bytes"))


@dataclass(frozen=True)
class Domain:
    """One datacentre domain: a pool of equal GPUs.

    Attributes:
        name: Readable name, often a cloud region.
        gpu: The device type.
        devices: Number of devices N_k.
        node_devices: Devices that share a node and its fast links.
        fabric_gbps: Bandwidth of one device between nodes of the domain, Gb/s.
        fabric_latency_s: Latency between nodes of the domain.
        power_cap_w: Cap on every device; the TDP when None.
        power_budget_w: What all devices together may draw; unlimited when None.
        carbon_g_per_kwh: Carbon intensity of the grid, as a table would say it.
        carbon: The same by the hour; None if nobody knows it so exactly.
        electricity: Price of electricity by the hour, USD/kWh, where energy is priced; None for the reward's.
    """

    name: str
    gpu: Gpu
    devices: int
    node_devices: int = 8
    fabric_gbps: float = 200.0
    fabric_latency_s: float = 5e-6
    power_cap_w: float | None = None
    power_budget_w: float | None = None
    carbon_g_per_kwh: float = 0.0
    carbon: Signal | None = None
    electricity: Signal | None = None

    def __post_init__(self) -> None:
        if self.devices < 1:
            fix = "Give the domain at least one device or leave it out"
            raise SettingsError(problem(f"{self.name}.devices", self.devices, "must be >= 1", fix))
        if self.node_devices < 1:
            raise SettingsError(problem(f"{self.name}.node_devices", self.node_devices, "must be >= 1", "Use 8"))
        if not self.fabric_gbps > 0 or not self.fabric_latency_s >= 0:
            given = (self.fabric_gbps, self.fabric_latency_s)
            rule = "bandwidth must be > 0 and latency >= 0"
            raise SettingsError(problem(f"{self.name} fabric", given, rule, "Use Gb/s and seconds"))
        if self.power_cap_w is not None:
            check_cap(self.gpu, self.power_cap_w)
        if self.power_budget_w is not None and not self.power_budget_w > 0:
            given_w = self.power_budget_w
            raise SettingsError(problem(f"{self.name}.power_budget_w", given_w, "must be > 0", "Use watts or None"))
        if not self.carbon_g_per_kwh >= 0:
            given_g = self.carbon_g_per_kwh
            raise SettingsError(problem(f"{self.name}.carbon_g_per_kwh", given_g, "must be >= 0", "Use g/kWh"))
        if self.carbon is not None and not self.carbon_g_per_kwh > 0:
            rule = "must be > 0 beside a signal of it, which is told as multiples of it"
            fix = "Use the signal's mean; leave the signal out where that is 0"
            raise SettingsError(problem(f"{self.name}.carbon_g_per_kwh", self.carbon_g_per_kwh, rule, fix))

    @property
    def cap_w(self) -> float:
        """The cap in force on every device."""
        return self.gpu.tdp_w if self.power_cap_w is None else self.power_cap_w


@dataclass(frozen=True)
class Cluster:
    """Domains, the WAN between them, and the framework's behaviour.

    Attributes:
        domains: K domains, in the order of the WAN's axes.
        wan: Links between them.
        runtime: Framework behaviour.
        cap_levels: Power caps that a task may be given on its devices, as shares of their TDP, descending; level 0,
            which is always there, is the domain's own cap.
    """

    domains: tuple[Domain, ...]
    wan: Wan
    runtime: Runtime = field(default_factory=Runtime)
    cap_levels: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_levels(self.cap_levels)
        names = tuple(domain.name for domain in self.domains)
        if names != self.wan.names:
            fix = "List the domains in the order of the network's names"
            raise SettingsError(problem("domains", names, f"must match the network {self.wan.names}", fix))

    def __len__(self) -> int:
        return len(self.domains)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Distinct GPU types, in order of first use; an overridden copy is a type of its own."""
        found: list[Gpu] = []
        for domain in self.domains:
            if domain.gpu not in found:
                found.append(domain.gpu)
        return tuple(found)

    def cap_w(self, domain: int, level: int) -> float:
        """Watts of a cap level in a domain; level 0 is the domain's own."""
        here = self.domains[domain]
        return cap_levels_w(here.gpu, here.cap_w, self.cap_levels)[level]

    @property
    def devices(self) -> int:
        """Devices in the whole cluster."""
        return sum(domain.devices for domain in self.domains)


def within_budgets(cluster: Cluster, free: IntArray) -> IntArray:
    """Leave so many of the free devices that power budgets hold whatever they and the rest draw, shape ``(..., K)``."""
    domains = cluster.domains
    if all(domain.power_budget_w is None for domain in domains):
        return free
    rooms = free.copy()
    for k, domain in enumerate(domains):
        if domain.power_budget_w is not None and domain.cap_w > domain.gpu.idle_w:
            spare_w = domain.power_budget_w - domain.devices * domain.gpu.idle_w
            awake = int(spare_w / (domain.cap_w - domain.gpu.idle_w) + 1e-9)
            rooms[..., k] = np.maximum(0, np.minimum(free[..., k], awake - (domain.devices - free[..., k])))
    return rooms


# ------ The world a scheduler lives in: a cluster, the work that arrives, and how decisions are rewarded

Arrivals = Poisson | Diurnal | TraceArrivals | Philly | PhillyWeek


@dataclass(frozen=True)
class TaskKind(KindFields):
    """A kind of task that arrives; its fields are those of :class:`~attribution_sched.cluster.objective.KindFields`."""

    model: Model

    @property
    def features(self) -> tuple[float, float, float, float, float]:
        """The five task numbers: type code over 3, log10 parameters over 12, log2 of input and batch sizes over 16."""
        return (
            list(TaskType).index(self.model.task_type) / 3.0,
            math.log10(self.model.params) / 12.0,
            math.log2(self.model.input_size[0]) / 16.0,
            math.log2(self.model.input_size[1]) / 16.0,
            math.log2(self.batch_size) / 16.0,
        )

    @cached_property
    def measured_devices(self) -> int:
        """Devices whose samples a measured throughput counts: all that an opaque job asked for, else the reference."""
        return self.batch_size if self.opaque else 1

    @property
    def opaque(self) -> bool:
        """Whether nothing is known of its model."""
        return self.model.layers[0].kind == OPAQUE

    def __post_init__(self) -> None:
        broken = self.broken()
        if broken is not None:
            field_name, value, rule, fix = broken
            raise TaskError(problem(f"{self.model.name}.{field_name}", value, rule, fix))


@dataclass(frozen=True)
class World:
    """Everything that defines a scheduling problem.

    Attributes:
        cluster: Domains, network, framework.
        kinds: Kinds of tasks.
        arrivals: When tasks arrive.
        reward: What is good.
        horizon_s: Length of an episode.
        tick_s: How often link bandwidth changes.
        max_segments: Most domains one plan may use (P).
        max_running: Most tasks running at once.
        queue_capacity: Most tasks waiting; a task that finds the queue full is turned away and counted.
        replan_threshold: Relative change of a used link that calls for a re-planning decision.
        restart_s: Pause of a task that moves, on top of sending its state.
        retry_s: How long a deferred task waits before it is offered again if nothing else changes.
        share_limit: Most tasks on one device.
        waiting_r_eff: R_eff credited per interval to a task that waits or is being moved.
        idiosyncrasy: Spread of latent demands; 0 makes all tasks of a kind alike.
        pool_size: Number of distinct task instances drawn from.
        pool_seed: Seed of those instances.
        incidents: Links that are cut and domains that are lost on the way.
        pairs_measured: Whether two measured jobs on one device run as they were measured; else by the law alone.
        quotas: What tenants may use, one each; a system obeys them, an episode of the arena knows no tenants' limits.
        share_rule: Whose turn it is when several tenants wait, one of ``SHARE_RULES``; as quotas, a system's alone.
        profiling_s: How long an opaque task runs on devices set aside for it, as many as it asks for, before it enters
            the queue with the counters that were read there. All tasks of the world are that much later.
    """

    cluster: Cluster
    kinds: tuple[TaskKind, ...]
    arrivals: Arrivals
    reward: Reward = field(default_factory=Reward)
    horizon_s: float = 86_400.0
    tick_s: float = 300.0
    max_segments: int = 4
    max_running: int = 8
    queue_capacity: int = 16
    replan_threshold: float = 0.15
    restart_s: float = 60.0
    retry_s: float = 1800.0
    share_limit: int = 2
    waiting_r_eff: float = -1.0
    idiosyncrasy: float = 1.0
    pool_size: int = 1024
    pool_seed: int = 20261116
    incidents: tuple[Incident, ...] = ()
    pairs_measured: bool = True
    quotas: tuple[Quota, ...] = ()
    share_rule: ShareRule = "none"
    profiling_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.kinds:
            raise SettingsError(problem("kinds", (), "a world needs at least one", "Add a task kind"))
        for name in ("horizon_s", "tick_s", "retry_s", "replan_threshold"):
            if not getattr(self, name) > 0:
                raise SettingsError(problem(name, getattr(self, name), "must be > 0", "Use a positive number"))
        for name in ("max_segments", "max_running", "queue_capacity", "share_limit", "pool_size"):
            if getattr(self, name) < 1:
                raise SettingsError(problem(name, getattr(self, name), "must be >= 1", "Use a positive integer"))
        if self.share_limit > 2:
            fix = "Interference is measured for pairs; use 1 or 2"
            raise SettingsError(problem("share_limit", self.share_limit, "must be 1 or 2", fix))
        if not self.restart_s >= 0:
            raise SettingsError(problem("restart_s", self.restart_s, "must be >= 0", "Use seconds"))
        if not 0.0 <= self.profiling_s < math.inf:
            rule = "must be finite and >= 0"
            raise SettingsError(problem("profiling_s", self.profiling_s, rule, "Use seconds; 0 profiles nothing"))
        if self.max_segments > len(self.cluster):
            object.__setattr__(self, "max_segments", len(self.cluster))
        check_incidents(self.incidents, tuple(domain.name for domain in self.cluster.domains))
        for domain in self.cluster.domains:
            if domain.electricity is not None and not self.reward.energy_usd_per_kwh > 0:
                rule = f"must be > 0: {domain.name} has a price of electricity by the hour, told as multiples of it"
                fix = "Set it to the usual price, or leave the hourly one out"
                raise SettingsError(problem("reward.energy_usd_per_kwh", self.reward.energy_usd_per_kwh, rule, fix))
        if self.share_rule not in SHARE_RULES:
            fix = nearest(self.share_rule, SHARE_RULES)
            raise SettingsError(problem("share_rule", self.share_rule, "is no share rule", fix))
        owners = [quota.tenant for quota in self.quotas]
        twice = next((owner for owner in owners if owners.count(owner) > 1), None)
        if twice is not None:
            raise SettingsError(problem("quotas", twice, "a tenant has one quota", "Write its limits into one"))
        for kind in self.kinds:
            self._check_size(kind)
        most = self.cluster.devices
        for number, row in enumerate(getattr(self.arrivals, "rows", ())):
            if row.gpus > most:
                rule = f"is larger than the cluster, which has {most} devices"
                fix = "Leave such tasks out (import --drop-larger), or add devices"
                raise TraceError(problem(f"gpus of task {number} of the trace", row.gpus, rule, fix))

    def _check_size(self, kind: TaskKind) -> None:
        """Refuse a task that no plan can ever hold, even with its states sharded over every device it may use."""
        largest = max(domain.devices for domain in self.cluster.domains)
        if kind.opaque and kind.measured_devices > largest:
            rule = f"is larger than the cluster, whose largest domain has {largest} devices"
            raise TaskError(problem("task kind", kind.model.name, rule, "Add devices, or leave the task kind out"))
        reserved = self.cluster.runtime.reserved_bytes
        rooms = [d.devices * max(0.0, d.gpu.memory_bytes - reserved) for d in self.cluster.domains]
        room = sum(sorted(rooms, reverse=True)[: self.max_segments])
        needed = float(kind.model.stateful_params(kind.training).sum()) * (TRAINED_BYTES if kind.training else 1.0)
        if needed > room:
            given = f"{needed / 1e9:,.0f} GB of weights and states"
            rule = f"the {self.max_segments} largest domains together hold {room / 1e9:,.0f} GB"
            fix = "Add devices, allow more segments, or leave the task kind out"
            raise TaskError(problem(f"{kind.model.name} is larger than the cluster", given, rule, fix))


def hourly_ratios(world: World) -> FloatArray:
    """Electricity over the reward's price and carbon over the domain's table, by the hour, shape ``(2, H, K)``.

    A year of hours where a domain has a signal, else one hour of ones.
    """
    domains = world.cluster.domains
    changing = any(d.carbon is not None or d.electricity is not None for d in domains)
    ratios = np.ones((2, YEAR_H if changing else 1, len(domains)))
    for k, domain in enumerate(domains):
        if domain.electricity is not None:
            ratios[0, :, k] = by_hour(domain.electricity, YEAR_H) / world.reward.energy_usd_per_kwh
        if domain.carbon is not None:
            ratios[1, :, k] = by_hour(domain.carbon, YEAR_H) / domain.carbon_g_per_kwh
    return ratios


# ------ The tasks that can arrive: instances of the task kinds with their own latent demands and counters
#
# A world holds a fixed pool of instances; an arrival draws one. Two instances of one kind differ in what they
# really demand, which shows only in their counters.

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
                samples_per_s=self.speed(instance), measured_devices=kind.measured_devices, number=instance,
                memory_bytes=float(measured_jobs().memory_bytes[self.jobs[instance]]) if self.jobs.size else 0.0,
            )  # fmt: skip
            if self.attribute is not None:
                known = replace(known, attribution=self.attribute(known))
            self.tasks[instance] = known
        return known

    def instance(self, at: int, kinds: tuple[TaskKind, ...]) -> tuple[Task, Demands]:
        """An instance that comes: its record, and what it will really ask for."""
        rows, latent = [at], self.demands
        return self.task(at, kinds), Demands(latent.values[rows], latent.nominal[rows], latent.nominal_s[rows])

    def speed(self, instance: int) -> float:
        """Measured samples per second of an instance; 0 if nobody measured it."""
        return float(self.samples_per_s[instance]) if self.samples_per_s.size else 0.0

    def __len__(self) -> int:
        return int(self.kinds.size)


def profiling_cost(world: World, pool: TaskPool) -> FloatArray:
    """Device-seconds and joules of profiling each instance before it enters the queue, shape ``(n, 2)``.

    The devices are of the first domain's type and draw their board power for the share of time that the job keeps them
    at work. What they do meanwhile is lost: the task begins anew.
    """
    opaque = np.array([kind.opaque for kind in world.kinds])[pool.kinds]
    asked = np.array([kind.measured_devices for kind in world.kinds])[pool.kinds]
    busy = measured_jobs().device_busy[pool.jobs] if pool.jobs.size else np.ones(len(pool))
    gpu, device_s = world.cluster.domains[0].gpu, np.where(opaque, asked * world.profiling_s, 0.0)
    return np.column_stack([device_s, device_s * (gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * busy)])


def working_shares(world_kinds: Sequence[TaskKind], kinds: IntArray, counters: FloatArray) -> FloatArray:
    """Share of its time that a device of each opaque task works, as its counters tell; 0 for other tasks, ``(n,)``."""
    opaque = np.array([kind.opaque for kind in world_kinds])[kinds]
    return np.where(opaque, working_share(counters), 0.0)


def task_working(world_kinds: Sequence[TaskKind], task: Task) -> float:
    """The same of one task; of one that nobody measured, all of its time."""
    if not world_kinds[task.kind_index].opaque:
        return 0.0
    return float(working_share(task.counters)) if task.counters.size else 1.0


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
    tenants = tuple(row.tenant for row in world.arrivals.rows) if isinstance(world.arrivals, TraceArrivals) else ()
    return TaskPool(kinds, steps, demands, counters(demands, rng), throughput(demands, rng), tenants=tenants)


def _philly(world: World, arrivals: Philly | PhillyWeek, rng: np.random.Generator) -> TaskPool:
    """Opaque tasks of the Philly log: what is measured of each is what its job's arithmetic and throughput say."""
    drawn = arrivals.draw(world.pool_size, rng) if isinstance(arrivals, Philly) else arrivals.draw()
    requests = {kind.batch_size: k for k, kind in enumerate(world.kinds) if kind.opaque}
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
