"""States that Hi-PPO meets, many in a short time: what explanations compare a decision with.

A watched episode has some seventy placements and takes seconds; an interval that is to hold for all states there might
be needs thousands of them. Here the network decides in dozens of simulated clusters at once, its likeliest choice
everywhere and without the local search, which settles details of a plan and not what the next decision finds.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import PER_CANDIDATE, Decisions
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.world import World
from attribution_sched.errors import PlanError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.partial_plans import DONE

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CLUSTERS = 64
"""Simulated at once."""

PATIENCE = 50
"""Decisions per cluster in a row without a placement before it is given up."""


def meet(policy: HiPpo, world: World, count: int, seed: int, clusters: int = CLUSTERS) -> tuple[Decisions, FloatArray]:
    """Let the network place tasks in many clusters and write down what it met.

    Args:
        policy: Whose network, attributions and forecasts.
        world: The world.
        count: How many placements.
        seed: Of the clusters.
        clusters: How many are simulated at once.

    Returns:
        The states, each with the task that was placed as candidate 0, and the counters of these tasks ``(count, 12)``.

    Raises:
        PlanError: If nothing is asked for, or the network places nothing in this world.
    """
    if count < 1 or clusters < 1:
        raise PlanError(problem("count, clusters", (count, clusters), "must be >= 1", "Ask for a thousand states"))
    paces = policy._read_paces(world.kinds)
    field = ClusterBatch(world, clusters, seed, policy.attributions, predict=policy.predict, paces=paces)
    measured = field.engine.pool.counters.values
    states: list[Decisions] = []
    counters: list[FloatArray] = []
    found = idle = 0
    with one_thread():
        while found < count:
            seen = field.decisions()
            pool = field.engine.state.slots[:, :, st.POOL].copy()
            walked = field.step(NetworkActor(policy.network, None)).decoded
            task = walked.trace.task
            placed = np.flatnonzero((task < seen.kind.shape[1]) & (walked.drafts.status == DONE) & ~seen.replanning)
            idle = 0 if len(placed) else idle + 1
            if idle > PATIENCE:
                rule = f"and then none in {idle} decisions of every cluster"
                raise PlanError(problem("placements", found, rule, "Use a world with more tasks, or watch episodes"))
            states.append(_own_first(seen.take(placed), task[placed]))
            counters.append(measured[pool[placed, states[-1].slot[:, 0]]])
            found += len(placed)
    whole = Decisions(**{f.name: np.concatenate([getattr(part, f.name) for part in states]) for f in fields(Decisions)})
    return whole.take(np.arange(count)), np.concatenate(counters)[:count]


def _own_first(decisions: Decisions, task: IntArray) -> Decisions:
    """Decisions with the chosen candidate first; the others keep their order."""
    b, q = decisions.kind.shape
    order = np.argsort(np.where(np.arange(q) == task[:, None], -1, np.arange(q)), axis=1, kind="stable")
    rows = np.arange(b)[:, None]
    moved = {name: getattr(decisions, name)[rows, order] for name in PER_CANDIDATE}
    return Decisions(**{f.name: moved.get(f.name, getattr(decisions, f.name)) for f in fields(Decisions)})
