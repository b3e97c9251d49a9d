"""Events at which nothing but doing nothing is possible, found without describing the decision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine, free_devices, kind_of
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.world import within_budgets
from attribution_sched.kernels import kernel
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.scheduler.hi_ppo.action_masks import can_begin
from attribution_sched.scheduler.hi_ppo.partial_plans import PartialPlans, open_partial_plans

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@kernel(allocates=True)
def _free(world: WorldArrays, state: StateArrays, rows: IntArray, free: IntArray) -> None:
    """Count the devices that the pending decision of every cluster may use."""
    for b in range(rows.size):
        e = rows[b]
        own = state.event[e, st.SLOT] if state.event[e, st.EVENT] == st.REPLAN else -1
        for k in range(free.shape[1]):
            free[b, k] = free_devices(world, state, e, k, False, own)


@kernel(allocates=True)
def _stuck(
    t: PlannerTables, d: PartialPlans, world: WorldArrays, state: StateArrays, rows: IntArray, stuck: BoolArray
) -> None:
    asked = np.zeros(t.batch.size, dtype=np.bool_)
    for b in range(rows.size):
        e = rows[b]
        running = state.event[e, st.EVENT] == st.REPLAN
        asked[:] = False
        stuck[b] = True
        for slot in range(state.slots.shape[1]):
            candidate = slot == state.event[e, st.SLOT] if running else state.slots[e, slot, st.STATUS] == st.QUEUED
            if not candidate:
                continue
            kind = kind_of(world, state, e, slot)
            if asked[kind]:
                continue
            asked[kind] = True
            d.kind[b], d.stop[b] = kind, t.cost.n_layers[kind]
            if can_begin(t, d, b):
                stuck[b] = False
                break


def stuck(t: PlannerTables, engine: Engine, rows: IntArray) -> BoolArray:
    """In which clusters no plan can be begun for any task that is up, shape ``(B,)``.

    The same as asking :func:`~attribution_sched.scheduler.hi_ppo.features.describe` for candidates that fit.

    Args:
        t: Tables of the clusters.
        engine: The clusters; each of ``rows`` must have a decision pending.
        rows: Clusters, shape ``(B,)``.
    """
    b, k = len(rows), len(engine.world.cluster)
    free = np.zeros((b, k), dtype=np.int64)
    _free(engine.arrays, engine.state, rows, free)
    free = within_budgets(engine.world.cluster, free)
    nothing = np.zeros(b, dtype=np.int64)
    drafts = open_partial_plans(
        t, nothing, free, np.zeros((b, 4, k, k)), np.zeros((b, k), dtype=np.bool_), np.zeros((b, 3))
    )
    found = np.zeros(b, dtype=np.bool_)
    _stuck(t, drafts, engine.arrays, engine.state, rows, found)
    return found
