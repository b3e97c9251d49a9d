"""Play one policy through one simulated episode and add up what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster import engine_state as st
from attribution_sched.cluster.engine import Engine
from attribution_sched.cluster.view import encode, pend, view
from attribution_sched.cluster.world import World
from attribution_sched.scheduler.policy import Episodic, Policy, QueueOrder

Progress = Callable[[float], None]
"""Called with the share of the episode that has passed, in [0, 1]."""


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
        placed: Tasks that were started.
        completed: Tasks that finished.
        turned_away: Tasks that found the queue full.
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


def play(world: World, policy: Policy, seed: int, progress: Progress | None = None) -> EpisodeSummary:
    """Run one episode of a world under a policy.

    Args:
        world: The scheduling problem.
        policy: Who decides.
        seed: Seed of arrivals and network.
        progress: Told how far the episode has come.
    """
    engine = Engine(world)
    engine.seed([seed])
    engine.reset()
    total, terms = 0.0, np.zeros(3)
    if isinstance(policy, Episodic):
        policy.reset(seed)
    while engine.state.event[0, st.DONE] == 0:
        seen = view(engine)
        if seen and not seen.replanning and len(seen.queue) > 1 and isinstance(policy, QueueOrder):
            pend(engine, policy.select(seen))
            seen = view(engine)
        plan = policy.decide(seen) if seen else None
        action = encode(engine, plan, seen.kind_index if seen else 0)
        rewards, step_terms = engine.step(action[None])
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
    )
