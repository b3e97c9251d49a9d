"""A cluster at one moment, as whoever decides knows it: what the future holds and what tasks truly demand is not in it.

Taken along with every decision, so that a policy, an explanation or a person can play copies of the cluster on
(:mod:`~attribution_sched.cluster.fork`) long after the cluster itself has moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.incidents import I_END, I_START
from attribution_sched.cluster.world import World
from attribution_sched.types import FloatArray, Task

if TYPE_CHECKING:
    from attribution_sched.cluster.cost import CostModel
    from attribution_sched.cluster.engine.engine import Engine


@dataclass(frozen=True)
class ArrivalLaw:
    """How tasks come, as far as it is known beforehand.

    Attributes:
        kind: As :class:`~attribution_sched.cluster.arrivals.ArrivalKind` numbers them.
        params: Of the process.
        past_s: When tasks came so far, for a recording: what it holds further on is nobody's to know.
    """

    kind: int
    params: FloatArray
    past_s: FloatArray


@dataclass(frozen=True, eq=False)
class Moment:
    """What is known of one cluster at one moment.

    Attributes:
        world: The scheduling problem.
        arrays: Its constants, without the tasks' demands, coming incidents and recorded futures.
        state: One cluster (leading axis 1), without its random streams and its next arrival.
        tasks: Slot → record of the task there, waiting or running.
        law: How tasks come by themselves; None if they are only handed in.
        ends_s: When the episode ends; infinite for a cluster that goes on.
        cost: The cost model of its plans.
    """

    world: World
    arrays: WorldArrays
    state: StateArrays
    tasks: Mapping[int, Task]
    law: ArrivalLaw | None
    ends_s: float
    cost: CostModel

    @property
    def now_s(self) -> float:
        """The cluster's clock."""
        return float(self.state.clock[0, st.NOW])

    @property
    def pending(self) -> int | None:
        """Slot of the task that is to be decided on; None if nothing is."""
        return int(self.state.event[0, st.SLOT]) if self.state.event[0, st.EVENT] != st.NO_EVENT else None


def capture(engine: Engine, cluster: int = 0) -> Moment:
    """Take down what is known of a cluster; the cluster is left as it is and may go on."""
    state, arrays = engine.state, engine.arrays
    spans = bool((state.slots[cluster, :, st.SEGMENTS] > 1).any())
    nothing = np.broadcast_to(np.zeros(1), (1, *state.traffic.shape[1:]))
    kept = {name: array[cluster : cluster + 1].copy() for name, array in state._asdict().items() if name not in _HIDDEN}
    for name in ("traffic", "planned"):
        # Only plans over several domains send anything or look at links.
        kept[name] = getattr(state, name)[cluster : cluster + 1].copy() if spans else nothing
    kept["streams"] = np.zeros((1, *state.streams.shape[1:]), dtype=np.uint64)
    kept["clock"][0, st.NEXT_ARRIVAL] = math.inf
    present = np.flatnonzero(kept["slots"][0, :, st.STATUS] != st.FREE).tolist()
    tasks: dict[int, Task] = {}
    # Facts of the request, one row a slot: kind, steps asked for, urgency beyond the kind's, time allowed.
    pool = np.zeros((kept["slots"].shape[1], arrays.pool.shape[1]))
    # What job an opaque task really is, nobody who looks at the moment may know.
    pool[:, st.P_TYPE] = -1.0
    now = float(kept["clock"][0, st.NOW])
    for slot in present:
        row = int(kept["slots"][0, slot, st.POOL])
        task = engine.pool.task(row, engine.world.kinds)
        true = arrays.pool[row]
        pool[slot, st.P_KIND], pool[slot, st.P_STEPS] = task.kind_index, task.steps
        pool[slot, st.P_RAISED], pool[slot, st.P_ALLOWED_S] = true[st.P_RAISED], true[st.P_ALLOWED_S]
        if task.steps != true[st.P_STEPS]:
            # What was done shows; what is left is known only as far as the request told the truth.
            done = true[st.P_STEPS] - kept["tasks"][0, slot, st.LEFT]
            kept["tasks"][0, slot, st.LEFT] = max(task.steps - done, LEAST_LEFT * task.steps)
        left = float(kept["tasks"][0, slot, st.LEFT])
        tasks[slot] = task.at(slot, left, now - float(kept["tasks"][0, slot, st.ARRIVAL]))
        kept["slots"][0, slot, st.POOL] = slot
    tick_s = kept["clock"][0, st.LAST_TICK]
    active = arrays.incidents[(arrays.incidents[:, I_START] <= tick_s) & (arrays.incidents[:, I_END] > tick_s)]
    # Nobody knows how long it lasts.
    active[:, I_END] = math.inf
    seen = arrays.trace_times_s <= now
    known = arrays._replace(
        pool=pool,
        incidents=active,
        trace_times_s=arrays.trace_times_s[seen],
        trace_multiplier=arrays.trace_multiplier[: max(1, int(seen.sum()))],
        arrival_times_s=np.empty(0),
        horizon_s=math.inf,
    )
    return Moment(engine.world, known, StateArrays(**kept), tasks, _law(engine, now), engine.ends_s, engine.cost)


LEAST_LEFT = 0.05
"""Share of its steps that a task is given which has done all it asked for and goes on."""

_HIDDEN = ("streams", "traffic", "planned")


def _law(engine: Engine, now_s: float) -> ArrivalLaw | None:
    if engine.arrivals is None:
        return None
    kind, params, times_s = engine.arrivals
    return ArrivalLaw(kind, params, times_s[times_s <= now_s])
