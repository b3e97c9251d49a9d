"""Play one policy through one simulated episode and add up what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.decision import encode, pend, view
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.world import Attribute, World, profiling_cost
from attribution_sched.kernels import clock
from attribution_sched.scheduler.policy import (
    AttributionReader,
    Episodic,
    Policy,
    QueueOrder,
    pairs,
    plays_copies,
    unhurried,
)
from attribution_sched.types import FloatArray, IntArray

Progress = Callable[[float], None]
"""Called with the share of the episode that has passed, in [0, 1]."""

Timer = Callable[[float, bool], None]
"""Called after every decision: wall seconds the policy took, choosing the task included; whether it gave a plan."""


@dataclass(frozen=True)
class EpisodeSummary:
    """An episode in numbers.

    Attributes:
        policy: Who decided.
        seed: Seed of the cluster's random streams.
        reward: Sum of rewards, with its weights.
        r_eff: Sum of R_eff.
        r_util: Sum of R_util.
        r_cost: Sum of R_cost.
        arrived: Tasks that arrived.
        placed: Starts of tasks, those after the loss of a domain included.
        completed: Tasks that finished.
        turned_away: Tasks that found the queue full.
        deadline_misses: Tasks that finished after their deadline, were unfinished and past it at the end, or were
            turned away.
        refused_plans: Plans the cluster refused.
        moves: Running tasks that were moved.
        mean_completion_h: Mean hours from arrival to finish.
        waiting_h: Hours spent in the queue, all tasks together.
        energy_kwh: What the meters of all devices read.
        task_energy_kwh: The part that tasks answer for.
        idle_energy_kwh: The part of devices that held no task.
        carbon_kg: CO2-equivalent of the tasks' energy.
        traffic_usd: Bill of cross-domain traffic, moves included.
        utilisation: Busy device time over all device time.
        decisions: Decisions taken.
        steps_done: Steps that tasks did and kept, finished or not.
        running_h: Hours that tasks were at work, all together; waiting and moving are not in it.
        baseline_running_h: Hours the baseline plans would have been at work for the same steps.
        p95_completion_h: 95th percentile of the hours from arrival to finish, see :class:`Completions`.
        gpu_h: Device-hours that computed.
        electricity_usd: What the meters' energy costs at the world's prices by the hour, idle devices included.
        carbon_usd: What the tasks' carbon costs at the world's price; location-based average intensity.
        profiling_gpu_h: Device-hours on which opaque tasks were profiled before they entered the queue. They are not
            the cluster's devices, and in no other figure; each of these tasks was submitted ``World.profiling_s``
            before it arrived.
        profiling_kwh: Energy of that.
        network_gb: What crossed from domain to domain, moves included.
        network_kwh: The network's energy for it, see :data:`~attribution_sched.cluster.wan.DEFAULT_KWH_PER_GB`; on no
            meter of the cluster, in no price and no reward.
        network_carbon_kg: CO2-equivalent of that, half by the grid of either end; not in ``carbon_kg``.
        idle_carbon_kg: CO2-equivalent of the devices that held no task; not in ``carbon_kg``.
    """

    policy: str
    seed: int
    reward: float
    r_eff: float
    r_util: float
    r_cost: float
    arrived: int
    placed: int
    completed: int
    turned_away: int
    deadline_misses: int
    refused_plans: int
    moves: int
    mean_completion_h: float
    waiting_h: float
    energy_kwh: float
    task_energy_kwh: float
    idle_energy_kwh: float
    carbon_kg: float
    traffic_usd: float
    utilisation: float
    decisions: int
    steps_done: float
    running_h: float
    baseline_running_h: float
    p95_completion_h: float = 0.0
    gpu_h: float = 0.0
    electricity_usd: float = 0.0
    carbon_usd: float = 0.0
    profiling_gpu_h: float = 0.0
    profiling_kwh: float = 0.0
    network_gb: float = 0.0
    network_kwh: float = 0.0
    network_carbon_kg: float = 0.0
    idle_carbon_kg: float = 0.0

    @property
    def mean_queue_h(self) -> float:
        """Mean hours in the queue of a task that arrived."""
        return self.waiting_h / max(1, self.arrived)

    @property
    def step_ratio(self) -> float:
        """Mean of step time over the baseline's, weighted by work in baseline hours; NaN if nothing ran."""
        return self.running_h / self.baseline_running_h if self.baseline_running_h > 0 else float("nan")

    @property
    def mean_step_s(self) -> float:
        """Mean step time, every step counted once; NaN if nothing ran."""
        return 3600.0 * self.running_h / self.steps_done if self.steps_done > 0 else float("nan")


def play(
    world: World,
    policy: Policy,
    seed: int,
    progress: Progress | None = None,
    timer: Timer | None = None,
    *,
    attribute: Attribute | None = None,
) -> EpisodeSummary:
    """Run one episode of a world under a policy, which has all the time it needs.

    Args:
        world: The scheduling problem.
        policy: Who decides.
        seed: Seed of arrivals and network.
        progress: Told how far the episode has come.
        timer: Told how long every decision took.
        attribute: Who attributes the tasks of the decisions; for a policy that has learnt from attributions, those by
            default.
    """
    with unhurried(policy):
        return _play(world, policy, seed, progress, timer, attribute)


def _play(
    world: World, policy: Policy, seed: int, progress: Progress | None, timer: Timer | None, attribute: Attribute | None
) -> EpisodeSummary:
    engine = Engine(world)
    if attribute is None and isinstance(policy, AttributionReader):
        attribute = state_vectors(policy.attributions, DEMAND_NAMES)
    engine.pool = engine.pool.attributed(attribute)
    engine.seed([seed])
    engine.reset()
    total, terms, work, profiled = 0.0, np.zeros(3), np.zeros(2), np.zeros(2)
    to_profile = profiling_cost(world, engine.pool)
    completions = Completions()
    deferred: set[tuple[float, int]] = set()
    if isinstance(policy, Episodic):
        policy.reset(seed)
    paired, copied = pairs(policy), plays_copies(policy)
    newest = -1
    while engine.state.event[0, st.DONE] == 0:
        # Whoever comes is asked about, so no task comes and goes between two looks at the slots.
        slots = engine.state.slots[0]
        came = slots[(slots[:, st.STATUS] != st.FREE) & (slots[:, st.SERIAL] > newest)]
        profiled += to_profile[came[:, st.POOL]].sum(axis=0)
        newest = max(newest, *came[:, st.SERIAL].tolist()) if len(came) else newest
        seen = view(engine, neighbours=paired, moment=copied)
        began = clock()
        if seen and not seen.replanning and len(seen.queue) > 1 and isinstance(policy, QueueOrder):
            chosen = policy.select(seen)
            thought_s = clock() - began
            # Asking twice at one instant for a task that was not placed would never end.
            if (seen.time_s, chosen) not in deferred:
                pend(engine, chosen)
                seen = view(engine, neighbours=paired, moment=copied)
            began = clock() - thought_s
        plan = policy.decide(seen) if seen else None
        if seen and plan is None and not seen.replanning:
            deferred.add((seen.time_s, seen.slot))
        if timer and seen:
            timer(clock() - began, plan is not None)
        action = encode(engine, plan, seen.kind_index if seen else 0)
        before = _open_work(engine)
        completions.begin(engine, seen.slot if seen else None)
        rewards, step_terms = engine.step(action[None])
        work += _work(engine, before)
        completions.end(engine)
        total += float(rewards[0])
        terms += step_terms[0]
        if progress:
            progress(float(engine.state.clock[0, st.NOW]) / world.horizon_s)
    sums = {name: float(values[0]) for name, values in engine.totals().items()}
    return EpisodeSummary(
        policy=policy.name,
        seed=seed,
        reward=total,
        r_eff=float(terms[0]),
        r_util=float(terms[1]),
        r_cost=float(terms[2]),
        arrived=int(engine.state.event[0, st.TAKEN]),
        placed=int(sums["placed"]),
        completed=int(sums["completed"]),
        turned_away=int(sums["dropped"]),
        deadline_misses=int(sums["missed"] + engine.overdue()[0] + sums["dropped"]),
        refused_plans=int(sums["rejected"]),
        moves=int(sums["migrations"]),
        mean_completion_h=sums["completion_s"] / max(1.0, sums["completed"]) / 3600.0,
        waiting_h=sums["wait_s"] / 3600.0,
        energy_kwh=sums["meter_j"] / 3.6e6,
        task_energy_kwh=sums["task_j"] / 3.6e6,
        idle_energy_kwh=sums["idle_j"] / 3.6e6,
        carbon_kg=sums["carbon_g"] / 1e3,
        traffic_usd=sums["bill_usd"],
        utilisation=sums["busy_device_s"] / (world.cluster.devices * world.horizon_s),
        decisions=int(sums["decisions"]),
        steps_done=float(work[0]),
        running_h=_running_s(engine, sums) / 3600.0,
        baseline_running_h=float(work[1]) / 3600.0,
        p95_completion_h=float(np.quantile(completions.seconds, 0.95)) / 3600.0 if completions.seconds else 0.0,
        gpu_h=sums["busy_device_s"] / 3600.0,
        electricity_usd=sums["electricity_usd"],
        carbon_usd=sums["carbon_g"] / 1e3 * world.reward.carbon_usd_per_kg,
        profiling_gpu_h=float(profiled[0]) / 3600.0,
        profiling_kwh=float(profiled[1]) / 3.6e6,
        network_gb=sums["wan_bytes"] / 1e9,
        network_kwh=sums["wan_bytes"] / 1e9 * world.cluster.wan.kwh_per_gb,
        network_carbon_kg=sums["wan_g"] / 1e3,
        idle_carbon_kg=sums["idle_g"] / 1e3,
    )


class Completions:
    """Seconds from arrival to finish of the tasks of one cluster, from one look at its slots to the next.

    A finish between two looks is placed by the pace the task had at the first of them; where by that pace it would not
    have ended yet (it got faster, or a machine reports ends), by what the others leave of the sum, which is known.

    Attributes:
        seconds: One for each task that finished, in that order.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def begin(self, engine: Engine, decided: int | None = None) -> None:
        """Look before time passes.

        Args:
            engine: Of one cluster.
            decided: Slot of a task whose pace is about to change.
        """
        tasks, now = engine.state.tasks[0], float(engine.state.clock[0, st.NOW])
        self._slots = engine.state.slots[0].copy()
        runs = self._slots[:, st.STATUS] == st.RUNNING
        if decided is not None:
            runs[decided] = False
        due_s = np.maximum(now, tasks[:, st.PAUSED]) + tasks[:, st.LEFT] * tasks[:, st.STEP]
        self._due_s, self._arrived_s = np.where(runs, due_s, np.inf), tasks[:, st.ARRIVAL].copy()
        self._totals = engine.state.totals[0, [st.COMPLETED, st.COMPLETION_S]].copy()

    def end(self, engine: Engine) -> None:
        """Look again."""
        slots, now = engine.state.slots[0], float(engine.state.clock[0, st.NOW])
        finished, sum_s = (engine.state.totals[0, [st.COMPLETED, st.COMPLETION_S]] - self._totals).tolist()
        there = self._slots[:, st.STATUS] != st.FREE
        left = there & ((slots[:, st.STATUS] == st.FREE) | (slots[:, st.SERIAL] != self._slots[:, st.SERIAL]))
        if left.sum() != finished:
            # Some were cancelled, or gave up their slot.
            self.seconds += [sum_s / max(1.0, finished)] * int(finished)
            return
        took_s = np.minimum(self._due_s, now)[left] - self._arrived_s[left]
        unknown = self._due_s[left] > now
        if unknown.any():
            rest_s = (sum_s - took_s[~unknown].sum()) / unknown.sum()
            took_s[unknown] = np.clip(rest_s, 0.0, took_s[unknown])
        self.seconds += took_s.tolist()


def _open_work(engine: Engine) -> tuple[IntArray, FloatArray]:
    """Copy what the table of tasks says of every slot: the task in it, and its steps left."""
    return engine.state.slots[0].copy(), engine.state.tasks[0, :, st.LEFT].copy()


def _work(engine: Engine, before: tuple[IntArray, FloatArray]) -> FloatArray:
    """Steps done since ``before``, and their seconds on the baseline; a task that has left did all it had left."""
    (old, left), (new, left_now) = before, _open_work(engine)
    stays = (new[:, st.STATUS] != st.FREE) & (new[:, st.SERIAL] == old[:, st.SERIAL])
    done = np.where(old[:, st.STATUS] == st.FREE, 0.0, left - np.where(stays, left_now, 0.0))
    kinds = engine.pool.kinds[old[:, st.POOL]]
    return np.array([done.sum(), done @ engine.arrays.kinds[kinds, st.K_BASE_STEP]])


def _running_s(engine: Engine, sums: dict[str, float]) -> float:
    """Seconds tasks were at work: their time in the cluster less waiting and less the pauses of moves and restarts."""
    now = float(engine.state.clock[0, st.NOW])
    here = engine.state.slots[0, :, st.STATUS] != st.FREE
    tasks = engine.state.tasks[0, here]
    pause_ahead_s = np.maximum(0.0, tasks[:, st.PAUSED] - now).sum()
    paused_s = sums["migration_s"] + sums["restart_s"]
    inside_s = sums["completion_s"] + float((now - tasks[:, st.ARRIVAL]).sum())
    return max(0.0, inside_s - sums["wait_s"] - (paused_s - float(pause_ahead_s)))
