"""States put together from two real ones: the decision's own, and of some groups of inputs another one's.

An explanation asks what would follow if some inputs were those of another state. Here that state is made in the
simulator, so that it can be run on: links, who runs where, who else waits, and which instance of its kind the task is
are taken from one or the other. Clock, arrivals to come and the plan that is carried out stay the decision's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP, PlanBatch
from attribution_sched.cluster.streams import seed_stream
from attribution_sched.cluster.world import World
from attribution_sched.scheduler.hi_ppo.cluster_batch import FORECAST, ClusterBatch, field_arrays
from attribution_sched.scheduler.hi_ppo.decode import decode
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.outcomes import engine_actions
from attribution_sched.scheduler.hi_ppo.partial_plans import DONE
from attribution_sched.scheduler.hi_ppo.runtime_estimate import paces_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

GROUPS: tuple[str, ...] = ("links", "load", "queue", "task")
"""Inputs that are replaced together."""

WARM_UP = 60
"""Decisions before the first state is kept: until then clusters fill."""

APART = 15
"""Decisions between states that are kept of one cluster."""

_TIMES = (st.ARRIVAL, st.PAUSED, st.OFFERED, st.STARTED)
_ROWS = ("slots", "tasks", "plans", "loads", "traffic", "planned")
_OWN = ("clock", "event", "outcome", "totals", "r_low")


@dataclass(frozen=True, eq=False)
class Kept:
    """One real state and what was decided in it.

    Attributes:
        state: Rows of the engine's arrays.
        forecast: Rows of the arrays of the forecast of its links, by name.
        slot: The task that was chosen, or is up.
        kind: Its kind.
        action: What was done with it, shape ``(P, 5)``; None if it was not placed.
        plan: The same as a plan, a batch of one.
    """

    state: st.StateArrays
    forecast: dict[str, FloatArray]
    slot: int
    kind: int
    action: IntArray | None
    plan: PlanBatch

    @property
    def running(self) -> IntArray:
        """Slots of the tasks at work."""
        return np.flatnonzero(self.state.slots[:, st.STATUS] == st.RUNNING)

    @property
    def others(self) -> IntArray:
        """Slots of the waiting tasks except its own."""
        waiting = np.flatnonzero(self.state.slots[:, st.STATUS] == st.QUEUED)
        found: IntArray = waiting[waiting != self.slot]
        return found

    def fits_into(self, other: Kept, world: World) -> bool:
        """Whether its plan can run among another state's running tasks."""
        if len(other.running) >= world.max_running:
            return False
        devices = np.array([domain.devices for domain in world.cluster.domains])
        real = np.arange(other.state.occupant.shape[1]) < devices[:, None]
        empty = ((other.state.occupant < 0).all(axis=-1) & real).sum(axis=1)
        rows = self.plan.segments[0, : self.plan.counts[0]]
        return bool((empty[rows[:, DOMAIN]] >= rows[:, DP] * rows[:, TP] * rows[:, PP]).all())


def endless(world: World) -> World:
    """The same world without an end of the day; critics look beyond it, too."""
    return replace(world, horizon_s=1e9)


def keep_states(network: HiPpoNetwork, world: World, clusters: int, rounds: int, seed: int) -> list[Kept]:
    """States of some clusters that a network has run for a while, ``clusters · rounds`` of them.

    Args:
        network: Who decides, always what it finds most probable.
        world: Where.
        clusters: How many run side by side.
        rounds: How many states to keep of each.
        seed: Of the first cluster.
    """
    field = ClusterBatch(world, clusters, seed, network.attributions, paces=paces_of(network, world.kinds))
    kept: list[Kept] = []
    for t in range(WARM_UP + APART * (rounds - 1) + 1):
        if t >= WARM_UP and (t - WARM_UP) % APART == 0:
            kept += _kept(field, network)
        field.step(NetworkActor(network, None))
    return kept


def _kept(field: ClusterBatch, network: HiPpoNetwork) -> list[Kept]:
    decisions = field.decisions()
    stored = {
        name.removeprefix(FORECAST): array for name, array in field_arrays(field).items() if name.startswith(FORECAST)
    }
    found = decode(field.planner, decisions, NetworkActor(network, None))
    batch, task = found.batch, found.trace.task
    actions = engine_actions(field.planner.tables, found.drafts, batch.segments, field._layout_rows)
    acting = (task < decisions.kind.shape[1]) & (found.drafts.status == DONE)
    kept = []
    for e in range(field.clusters):
        at = int(task[e]) if acting[e] else 0
        kept.append(
            Kept(
                state=st.StateArrays(*(array[e].copy() for array in field.engine.state)),
                forecast={name: array[e] for name, array in stored.items()},
                slot=int(decisions.slot[e, at]),
                kind=int(decisions.kind[e, at]),
                action=actions[e] if acting[e] and not decisions.replanning[e] else None,
                plan=PlanBatch(batch.segments[e : e + 1], batch.counts[e : e + 1], batch.schedules[e : e + 1]),
            )
        )
    return kept


def own_forecasts(field: ClusterBatch) -> None:
    """Give every cluster arrays of its own for the forecast; the filter shares them where it can."""
    assert field.forecast is not None
    arrays = {name: np.array(array) for name, array in field.forecast._state._asdict().items()}
    field.forecast._state = field.forecast._state._replace(**arrays)


def compose(field: ClusterBatch, e: int, own: Kept, other: Kept, instance: int, present: BoolArray, seed: int) -> None:
    """Make cluster ``e`` of a field the decision's state with absent groups taken from elsewhere.

    Args:
        field: Its forecasts must be its own (:func:`own_forecasts`).
        e: Which cluster; its pending decision becomes the placement of the decision's task, in slot 0.
        own: The decision.
        other: Where absent links, load and queue come from.
        instance: Task of the pool that the decision's task is if the group ``task`` is absent.
        present: Which of :data:`GROUPS` are the decision's own, shape ``(4,)``.
        seed: Of what will happen; the same for states that shall share their luck.
    """
    state, forecast = field.engine.state, field.forecast
    assert forecast is not None
    links, load, queue = (own if here else other for here in present[:3])
    for name in _OWN:
        getattr(state, name)[e] = getattr(own.state, name)
    state.links[e] = links.state.links
    for name, rows in forecast._state._asdict().items():
        rows[e] = (own if name == "time_s" else links).forecast[name]
    for row, part in enumerate(SeedSequence(seed).spawn(2)):
        state.streams[e, row] = seed_stream(part)
    state.slots[e] = 0
    state.tasks[e] = 0.0
    state.traffic[e] = 0.0
    listed = [(own, own.slot), *((load, int(s)) for s in load.running), *((queue, int(s)) for s in queue.others)]
    for at, (source, slot) in enumerate(listed):
        for name in _ROWS:
            getattr(state, name)[e, at] = getattr(source.state, name)[slot]
        # Times of another state's task are as long ago (or ahead) as they were there.
        state.tasks[e, at, list(_TIMES)] += own.state.clock[st.NOW] - source.state.clock[st.NOW]
    # The last entry stands for nobody, whom occupants know as −1.
    moved = np.full(state.slots.shape[1] + 1, -1, dtype=np.int64)
    moved[load.running] = np.arange(1, 1 + len(load.running))
    state.occupant[e] = moved[load.state.occupant]
    if not present[3]:
        state.slots[e, 0, st.POOL] = instance
        state.tasks[e, 0, st.LEFT] = field.engine.pool.steps[instance]
    order = np.argsort(state.tasks[e, : len(listed), st.ARRIVAL], kind="stable")
    state.slots[e, order, st.SERIAL] = np.arange(len(listed))
    state.event[e] = (st.PLACE, 0, len(listed), 0)
