"""The batched world: hundreds of clusters advanced from decision to decision in one call.

``Engine`` owns the arrays and seeds; the clockwork is in ``engine_kernel``, actions in ``engine_actions``,
observations in ``engine_observe``. A single environment is an engine with one cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import SeedSequence

from attribution_sched.cluster.cost import BYTES_PER_GBIT, CostModel
from attribution_sched.cluster.cost_kernel import Scratch, make_scratch
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.actions import conclude, enact, free_devices, probe
from attribution_sched.cluster.engine.events import PRICE_NETWORK, SETTLED, advance, begin, is_late
from attribution_sched.cluster.engine.observe import (
    DOMAIN_FEATURES,
    EVENT_FEATURES,
    LINK_FEATURES,
    TASK_FEATURES,
    observe,
)
from attribution_sched.cluster.engine.prices import reprice
from attribution_sched.cluster.engine.state import (
    DECISION_COLUMNS,
    TOTAL_COLUMNS,
    StateArrays,
    WorldArrays,
    make_state,
)
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.incidents import pack
from attribution_sched.cluster.interference import (
    EPSILON,
    PCIE_BYTES_PER_S,
    job_columns,
    measured_jobs,
    resource_constants,
    slowdown_cap,
)
from attribution_sched.cluster.plan import Plan, PlanBatch, layout_table
from attribution_sched.cluster.pool import TaskPool, build_pool
from attribution_sched.cluster.reward import baseline_costs, total_of, usd_per_g, usd_per_j
from attribution_sched.cluster.streams import seed_stream
from attribution_sched.cluster.wan import ou_coefficients
from attribution_sched.cluster.world import BATCH_LEVELS, World
from attribution_sched.errors import PlanError, SettingsError, problem
from attribution_sched.kernels import kernel
from attribution_sched.types import BoolArray, Float32Array, FloatArray, IntArray

ACTION_COLUMNS: tuple[str, ...] = ("domain", "stop", "layout", "precision", "batch")
"""Columns of an action row."""


@dataclass(frozen=True)
class Observations:
    """What the schedulers of a batch of clusters see; every array has the cluster axis first.

    Attributes:
        domains: Shape ``(E, K, 20)``.
        links: Shape ``(E, 3, K, K)``.
        task: Shape ``(E, 5)``.
        event: Shape ``(E, 6)``.
        plan: Shape ``(E, P, 6)``, −1 where unused.
        counters: The task's measured counters, shape ``(E, 12)``.
    """

    domains: Float32Array
    links: Float32Array
    task: Float32Array
    event: Float32Array
    plan: IntArray
    counters: Float32Array


@kernel
def _observe_all(
    world: WorldArrays,
    state: StateArrays,
    domains: Float32Array,
    links: Float32Array,
    task: Float32Array,
    event: Float32Array,
    plan: IntArray,
) -> None:
    for e in range(state.clock.shape[0]):
        observe(world, state, e, domains[e], links[e], task[e], event[e], plan[e])


@kernel
def _run_all(
    world: WorldArrays,
    state: StateArrays,
    deciding: bool,
    actions: IntArray,
    devices: IntArray,
    active: BoolArray,
    scratch: Scratch,
) -> None:
    """Decide (or begin an episode) in every active cluster and run it to its next decision."""
    for e in range(state.clock.shape[0]):
        if not active[e]:
            continue
        if deciding and state.event[e, st.EVENT] == st.NO_EVENT:
            # The episode is over: there is nothing to decide and nothing to earn.
            state.outcome[e, :] = 0.0
            state.r_low[e, :] = 0.0
            continue
        if deciding:
            state.outcome[e, st.INTEGRALS :] = 0.0
            code = enact(world, state, e, actions[e], devices[e], scratch)
            conclude(world, state, e, code)
            if code > 0:
                reprice(world, state, e, False, scratch)
        else:
            begin(world, state, e)
        while True:
            wanted = advance(world, state, e)
            if wanted == SETTLED:
                break
            reprice(world, state, e, wanted == PRICE_NETWORK, scratch)


@kernel
def _free_all(world: WorldArrays, state: StateArrays, share: bool, own: bool, out: IntArray) -> None:
    for e in range(out.shape[0]):
        slot = state.event[e, st.SLOT] if own and state.event[e, st.EVENT] == st.REPLAN else -1
        for k in range(out.shape[1]):
            out[e, k] = free_devices(world, state, e, k, share, slot)


class Engine:
    """A batch of clusters of one world.

    Args:
        world: The scheduling problem.
        clusters: How many to run side by side.
    """

    def __init__(self, world: World, clusters: int = 1) -> None:
        self.world = world
        self.clusters = clusters
        kinds = world.kinds
        self.cost = CostModel(world.cluster, [kind.model for kind in kinds], [kind.training for kind in kinds])
        self.pool: TaskPool = build_pool(world)
        self.layouts = layout_table(world.cluster, world.share_limit > 1)
        self.arrays = _world_arrays(world, self.cost, self.pool, self.layouts)
        largest = max(domain.devices for domain in world.cluster.domains)
        self.state: StateArrays = make_state(
            clusters, len(world.cluster), largest, world.max_running + world.queue_capacity, world.max_segments
        )
        most = max(kind.batch_size // kind.microbatches[0] for kind in kinds)
        self._scratch = make_scratch(world.max_segments * int(self.layouts[:, 2].max()), most + 1)
        most_layers = max(len(kind.model) for kind in kinds)
        self.choices = np.array(
            [len(world.cluster) + 1, most_layers + 1, len(self.layouts), len(PRECISIONS), BATCH_LEVELS]
        )
        reward = world.reward
        self.weights = np.tile([reward.w_eff, reward.w_util, reward.w_cost], (clusters, 1))
        # What may be known of the future: how tasks come (kind, parameters, recorded times; None if they do not come by
        # themselves) and when the episode ends.
        self.arrivals: tuple[int, FloatArray, FloatArray] | None = (
            self.arrays.arrival_kind, self.arrays.arrival_params, self.arrays.arrival_times_s,
        )  # fmt: skip
        self.ends_s = world.horizon_s
        self._no_devices = np.full(clusters, -1, dtype=np.int64)
        self._no_actions = np.zeros((clusters, world.max_segments, len(ACTION_COLUMNS)), dtype=np.int64)

    def seed(self, seeds: Sequence[int | None]) -> None:
        """Give clusters fresh random streams; None leaves a cluster's stream as it is."""
        if len(seeds) != self.clusters:
            rule = f"there are {self.clusters} clusters"
            raise SettingsError(problem("seeds", len(seeds), rule, "Give one seed or None for each"))
        for e, seed in enumerate(seeds):
            if seed is not None:
                wan, tasks = SeedSequence(seed).spawn(2)
                self.state.streams[e, 0] = seed_stream(wan)
                self.state.streams[e, 1] = seed_stream(tasks)

    def reset(self, chosen: BoolArray | None = None) -> None:
        """Begin an episode in all (or the chosen) clusters."""
        if chosen is None:
            chosen = np.ones(self.clusters, dtype=np.bool_)
        _run_all(self.arrays, self.state, False, self._no_actions, self._no_devices, chosen, self._scratch)

    def step(
        self, actions: IntArray, devices: IntArray | None = None, active: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Carry out one decision in every active cluster and run each to its next one.

        Args:
            actions: Shape ``(E, P, 5)``, columns ``ACTION_COLUMNS``.
            devices: A device every single-segment plan must use, shape ``(E,)``; −1 lets the cluster choose.
            active: Clusters to step, shape ``(E,)``; all by default.

        Returns:
            Rewards ``(E,)`` and their terms R_eff, R_util, R_cost ``(E, 3)``.
        """
        if active is None:
            active = np.ones(self.clusters, dtype=np.bool_)
        chosen = self._checked(actions, self.clusters)
        forced = self._no_devices if devices is None else devices
        _run_all(self.arrays, self.state, True, chosen, forced, active, self._scratch)
        source = self.state.outcome[:, :3] if self.world.reward.per_decision else self.state.outcome[:, st.INTEGRALS :]
        terms = np.where(active[:, None], source, 0.0)
        rewards = total_of(terms, self.weights)
        return rewards, terms

    def _checked(self, actions: IntArray, count: int) -> IntArray:
        """Actions the kernels can follow without looking, or a ``PlanError`` that names the first bad choice."""
        chosen = np.ascontiguousarray(actions, dtype=np.int64)
        shape = (count, self.world.max_segments, len(ACTION_COLUMNS))
        if chosen.shape != shape:
            raise PlanError(problem("actions.shape", chosen.shape, f"must be {shape}", "Give five choices per segment"))
        limits = self.choices.copy()
        # A layout may name a neighbour, see ``actions``.
        limits[2] *= self.state.slots.shape[1] + 1
        wrong = (chosen < 0) | (chosen >= limits)
        if wrong.any():
            at = np.argwhere(wrong)[0]
            rule = f"must lie in 0..{limits[at[2]] - 1}"
            given = int(chosen[tuple(at)])
            raise PlanError(problem(f"action {ACTION_COLUMNS[at[2]]}", given, rule, "Use the mask"))
        return chosen

    def observe(self) -> Observations:
        """Return what the schedulers see now."""
        e, k, p = self.clusters, len(self.world.cluster), self.world.max_segments
        seen = Observations(
            domains=np.empty((e, k, len(DOMAIN_FEATURES)), dtype=np.float32),
            links=np.empty((e, len(LINK_FEATURES), k, k), dtype=np.float32),
            task=np.empty((e, len(TASK_FEATURES)), dtype=np.float32),
            event=np.empty((e, len(EVENT_FEATURES)), dtype=np.float32),
            plan=np.empty((e, p, 6), dtype=np.int64),
            counters=np.zeros((e, self.pool.counters.values.shape[1]), dtype=np.float32),
        )
        _observe_all(self.arrays, self.state, seen.domains, seen.links, seen.task, seen.event, seen.plan)
        pending = self.state.event[:, st.EVENT] != st.NO_EVENT
        rows = np.arange(e)[pending]
        seen.counters[rows] = self.pool.counters.values[self.pending_pool()[rows]]
        return seen

    def observe_domains(self, cluster: int) -> FloatArray:
        """What the instruments of one cluster's domains say, shape ``(K, 20)``, columns ``DOMAIN_FEATURES``."""
        k = len(self.world.cluster)
        domains = np.empty((k, len(DOMAIN_FEATURES)), dtype=np.float32)
        observe(
            self.arrays, self.state, cluster, domains, np.empty((len(LINK_FEATURES), k, k), dtype=np.float32),
            np.empty(len(TASK_FEATURES), dtype=np.float32), np.empty(len(EVENT_FEATURES), dtype=np.float32),
            np.empty((self.world.max_segments, 6), dtype=np.int64),
        )  # fmt: skip
        return domains.astype(np.float64)

    def pending_pool(self) -> IntArray:
        """Pool instance of the task each cluster has to decide on, shape ``(E,)``."""
        pool: IntArray = self.state.slots[np.arange(self.clusters), self.state.event[:, st.SLOT], st.POOL]
        return pool

    def pending_kind(self) -> IntArray:
        """Task kind each cluster has to decide on, shape ``(E,)``."""
        return self.pool.kinds[self.pending_pool()]

    def free_devices(self, share: bool = False, own: bool = False) -> IntArray:
        """Devices one more task may use, shape ``(E, K)``.

        Args:
            share: Count devices that hold one task too, where the world lets two share.
            own: Count the devices of a running task that is up for re-planning as free.
        """
        free = np.zeros((self.clusters, len(self.world.cluster)), dtype=np.int64)
        _free_all(self.arrays, self.state, share, own, free)
        return free

    def probe(self, cluster: int, actions: IntArray, devices: IntArray | None = None) -> dict[str, FloatArray]:
        """Say what each of many actions would come to now in one cluster; nothing changes.

        Args:
            cluster: Which cluster; it must have a decision pending.
            actions: Shape ``(n, P, 5)``.
            devices: Device a single-segment plan must use, shape ``(n,)``.

        Returns:
            The decision's reward terms, step time, bill, move and code (see ``CODES``), each ``(n,)``.
        """
        if self.state.event[cluster, st.EVENT] == st.NO_EVENT:
            fix = "Reset the cluster: its episode is over"
            raise PlanError(problem("cluster", cluster, "has no decision pending", fix))
        n = actions.shape[0]
        found = np.zeros((n, len(DECISION_COLUMNS)))
        forced = np.full(n, -1, dtype=np.int64) if devices is None else devices
        chosen = self._checked(actions, n)
        probe(self.arrays, self.state, cluster, chosen, forced, self._scratch, found)
        return {name: found[:, c] for c, name in enumerate(DECISION_COLUMNS)}

    def running_plan(self, cluster: int, slot: int) -> Plan | None:
        """The plan in force in a task slot."""
        count = int(self.state.slots[cluster, slot, st.SEGMENTS])
        if count == 0:
            return None
        rows = self.state.plans[cluster, slot][None, :]
        return PlanBatch(rows, np.array([count]), np.zeros(1, dtype=np.int64)).plan(0)

    def totals(self) -> dict[str, FloatArray]:
        """Sums over the episode so far, by name, each of shape ``(E,)``."""
        return {name: self.state.totals[:, c].copy() for c, name in enumerate(TOTAL_COLUMNS)}

    def overdue(self) -> IntArray:
        """Tasks that are still there and past their deadline, shape ``(E,)``."""
        return np.array(
            [
                sum(is_late(self.arrays, self.state, e, slot) for slot in np.flatnonzero(status != st.FREE))
                for e, status in enumerate(self.state.slots[:, :, st.STATUS])
            ],
            dtype=np.int64,
        )

    def decisions(self) -> dict[str, FloatArray]:
        """What the last decision of each cluster was worth by itself, by name, each of shape ``(E,)``."""
        return {name: self.state.outcome[:, c].copy() for c, name in enumerate(DECISION_COLUMNS)}


def _world_arrays(world: World, cost: CostModel, pool: TaskPool, layouts: IntArray) -> WorldArrays:
    wan, reward = world.cluster.wan, world.reward
    decay, noise = ou_coefficients(wan.reversion_per_s, wan.spread, world.tick_s)
    k = len(world.cluster)
    trace = wan.trace
    base_step, base_cost = baseline_costs(world, cost)
    arrival = world.arrivals.spec()
    features = np.array([kind.features for kind in world.kinds])
    inputs = np.array([kind.model.layers[0].input_elements for kind in world.kinds])
    return WorldArrays(
        domains=cost.domains,
        runtime=cost.runtime,
        power_law=cost.power_law,
        tables=cost.tables,
        base=np.stack([wan.bandwidth_gbps * BYTES_PER_GBIT, wan.latency_s]),
        kinds=np.column_stack(
            [
                [float(kind.batch_size) for kind in world.kinds],
                [float(kind.training) for kind in world.kinds],
                [float(kind.epoch_steps) for kind in world.kinds],
                [float(kind.priority) for kind in world.kinds],
                base_step,
                base_cost,
                [float(kind.deadline_slack) for kind in world.kinds],
                np.array([kind.microbatches for kind in world.kinds], dtype=np.float64),
                features,
            ]
        ),
        pool=np.column_stack(
            [
                pool.kinds,
                pool.steps,
                pool.demands.factors,
                inputs[pool.kinds] * pool.demands.ratio[:, 3] * 4.0 / PCIE_BYTES_PER_S,
                # As urgent as its kind, and with its kind's deadline.
                np.zeros((len(pool), 2)),
                pool.jobs if pool.jobs.size else np.full(len(pool), -1),
            ]
        ),
        resources=resource_constants(),
        jobs=job_columns(),
        pair_speed=measured_jobs().pair_speed if world.pairs_measured else np.full((len(job_columns()),) * 2, np.nan),
        layouts=layouts,
        budget_w=np.array([d.power_budget_w or np.inf for d in world.cluster.domains]),
        trace_times_s=np.empty(0) if trace is None else np.array(trace.times_s),
        trace_multiplier=np.ones((1, k, k)) if trace is None else trace.multiplier(wan.bandwidth_gbps),
        arrival_params=arrival.params,
        arrival_times_s=arrival.times_s,
        incidents=pack(world.incidents),
        arrival_kind=arrival.kind,
        trace_period_s=0.0 if trace is None else float(trace.period_s),
        ou_decay=decay,
        ou_noise=noise,
        ou_spread=wan.spread,
        ou_correlation=wan.correlation,
        ou_bound=wan.bound,
        congestion=wan.congestion,
        coupling_epsilon=EPSILON,
        slowdown_cap=slowdown_cap(),
        energy_usd_per_j=usd_per_j(reward),
        carbon_usd_per_g=usd_per_g(reward),
        horizon_s=world.horizon_s,
        tick_s=world.tick_s,
        interval_s=reward.interval_s,
        restart_s=world.restart_s,
        retry_s=world.retry_s,
        replan_threshold=world.replan_threshold,
        waiting_r_eff=world.waiting_r_eff,
        share_limit=world.share_limit,
        max_running=world.max_running,
        queue_capacity=world.queue_capacity,
        lambda_fragmentation=reward.lambda_fragmentation,
        lambda_intra_comm=reward.lambda_intra_comm,
    )
