"""Pending decisions as arrays: the same record from hundreds of simulated clusters or from one view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.domains import within_budgets
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.actions import free_devices
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.engine.observe import DAY_S, DOMAIN_FEATURES, GROUPS, observe
from attribution_sched.cluster.engine.prices import LEAST_BANDWIDTH_SHARE, kind_of, link_load
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.plan import DOMAIN, DP, PP, TP
from attribution_sched.cluster.wan import effective_latency
from attribution_sched.errors import PlanError, problem
from attribution_sched.kernels import kernel
from attribution_sched.types import Attributor, BoolArray, Float32Array, FloatArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector

__all__ = [
    "ATTRIBUTIONS",
    "EVENT",
    "PER_CANDIDATE",
    "Attributor",
    "Decisions",
    "from_view",
    "gather",
    "own_first",
    "states",
]

ATTRIBUTIONS = 7
EVENT = 6
"""Numbers of an event: its kind (two), sine and cosine of the hour, log steps left, days waited."""


PER_CANDIDATE: tuple[str, ...] = ("kind", "slot", "left", "waited_s", "attribution")
"""Fields of :class:`Decisions` with one entry per candidate."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """B pending decisions of one cluster or of many of the same kind; K domains, Q candidates for placement.

    Attributes:
        replanning: Whether the task already runs, shape ``(B,)``.
        free: Devices a plan may use, shape ``(B, K)``.
        links: Gb/s and seconds as other tasks leave them, USD per GB, forecast Gb/s, shape ``(B, 4, K, K)``.
        domains: The 20 system numbers per domain, shape ``(B, K, 20)``.
        event: Shape ``(B, 6)``.
        held: Domains of the plan in force, shape ``(B, K)``.
        holding: Devices of the plan in force, shape ``(B,)``.
        step_s: Measured step time of a running task, 0 if it waits, shape ``(B,)``.
        weights: w_eff, w_util and w_cost, shape ``(B, 3)``.
        waiting: Tasks in the queue, shape ``(B,)``.
        kind: Kinds of the candidates (a running task is its own only candidate), −1 for none, shape ``(B, Q)``.
        slot: Their places in the table of tasks, shape ``(B, Q)``.
        left: Steps they have left, shape ``(B, Q)``.
        waited_s: Since when they are there, shape ``(B, Q)``.
        attribution: Their attribution vectors, shape ``(B, Q, 7)``.
    """

    replanning: BoolArray
    free: IntArray
    links: FloatArray
    domains: Float32Array
    event: Float32Array
    held: BoolArray
    holding: IntArray
    step_s: FloatArray
    weights: FloatArray
    waiting: IntArray
    kind: IntArray
    slot: IntArray
    left: FloatArray
    waited_s: FloatArray
    attribution: Float32Array

    def __len__(self) -> int:
        return len(self.replanning)

    def take(self, index: IntArray | BoolArray) -> Decisions:
        """Some of the decisions."""
        return Decisions(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def only(self, candidate: int) -> Decisions:
        """The decisions with one of their candidates; how many tasks wait stays."""
        return replace(self, **{name: getattr(self, name)[:, [candidate]] for name in PER_CANDIDATE})

    def check(self) -> None:
        """Raise ``PlanError`` if a number is not finite or a link carries nothing: a policy must not decide on it."""
        for name in ("links", "domains", "event", "step_s", "weights", "left", "waited_s", "attribution"):
            values = getattr(self, name)
            if not np.isfinite(values).all():
                at = [int(i) for i in np.argwhere(~np.isfinite(values))[0]]
                given = float(values[tuple(at)])
                fix = "Repair the measurement, or leave the decision to a rule"
                raise PlanError(problem(f"{name}{at}", given, "must be finite", fix))
        if not (self.links[:, 0] > 0.0).all():
            at = [int(i) for i in np.argwhere(~(self.links[:, 0] > 0.0))[0]]
            fix = "Write a dead link as a small number such as 0.001"
            raise PlanError(
                problem(f"bandwidth_gbps{at}", float(self.links[at[0], 0, at[1], at[2]]), "must be > 0", fix)
            )


@kernel
def _gather(
    world: WorldArrays,
    state: StateArrays,
    rows: IntArray,
    free: IntArray,
    links: FloatArray,
    domains: Float32Array,
    event: Float32Array,
    held: BoolArray,
    holding: IntArray,
    step_s: FloatArray,
    waiting: IntArray,
    kind: IntArray,
    slots: IntArray,
    left: FloatArray,
    waited_s: FloatArray,
    pool: IntArray,
) -> None:
    """Write the pending decisions of clusters ``rows``; candidates stand in order of arrival."""
    k = free.shape[1]
    link_rows = np.empty((3, k, k), dtype=np.float32)
    task = np.empty(5, dtype=np.float32)
    plan = np.empty((state.plans.shape[2], 6), dtype=np.int64)
    load = np.zeros((k, k))
    for b in range(rows.size):
        e = rows[b]
        observe(world, state, e, domains[b], link_rows, task, event[b], plan)
        slot = state.event[e, st.SLOT]
        running = state.event[e, st.EVENT] == st.REPLAN
        now = state.clock[e, st.NOW]
        load[:, :] = 0.0
        link_load(state, e, load)
        own_step = state.tasks[e, slot, st.STEP]
        own = running and own_step > 0.0 and state.tasks[e, slot, st.PAUSED] <= now
        for i in range(k):
            free[b, i] = free_devices(world, state, e, i, False, slot if running else -1)
            for j in range(k):
                others = load[i, j]
                if own:
                    others -= state.traffic[e, slot, i, j] / own_step
                share = max(0.0, others) / state.links[e, 1, i, j] if i != j else 0.0
                rate = state.links[e, 1, i, j] * max(LEAST_BANDWIDTH_SHARE, 1.0 - share)
                links[b, 0, i, j] = rate / BYTES_PER_GBIT
                links[b, 1, i, j] = effective_latency(world.base[1, i, j], share, world.congestion)
                links[b, 2, i, j] = world.domains.price_usd_per_byte[i, j] * 1e9
                links[b, 3, i, j] = links[b, 0, i, j]
        held[b, :] = False
        holding[b] = 0
        step_s[b] = own_step if running else 0.0
        kind[b, :] = -1
        count = 0
        if running:
            for p in range(state.slots[e, slot, st.SEGMENTS]):
                segment = state.plans[e, slot, p]
                held[b, segment[DOMAIN]] = True
                holding[b] += segment[DP] * segment[TP] * segment[PP]
        waiting[b] = 0
        last = -1
        while True:
            # Slots are not in order of arrival; their serial numbers are.
            chosen, serial = -1, 2**62
            for s in range(state.slots.shape[1]):
                number = state.slots[e, s, st.SERIAL]
                if state.slots[e, s, st.STATUS] == st.QUEUED and last < number < serial:
                    chosen, serial = s, number
            if chosen < 0:
                break
            last = serial
            waiting[b] += 1
            if not running and count < kind.shape[1]:
                _candidate(world, state, e, chosen, b, count, kind, slots, left, waited_s, pool)
                count += 1
        if running:
            _candidate(world, state, e, slot, b, 0, kind, slots, left, waited_s, pool)
            # A view does not tell since when a running task is there.
            waited_s[b, 0] = 0.0
            event[b, 5] = 0.0


@kernel
def _candidate(
    world: WorldArrays,
    state: StateArrays,
    e: int,
    slot: int,
    b: int,
    q: int,
    kind: IntArray,
    slots: IntArray,
    left: FloatArray,
    waited_s: FloatArray,
    pool: IntArray,
) -> None:
    kind[b, q] = kind_of(world, state, e, slot)
    slots[b, q] = slot
    left[b, q] = state.tasks[e, slot, st.LEFT]
    waited_s[b, q] = state.clock[e, st.NOW] - state.tasks[e, slot, st.ARRIVAL]
    pool[b, q] = state.slots[e, slot, st.POOL]


def gather(engine: Engine, rows: IntArray, attributions: Float32Array) -> Decisions:
    """Read the pending decisions of some clusters of an engine.

    Args:
        engine: The clusters; each of ``rows`` must have a decision pending.
        rows: Clusters, shape ``(B,)``.
        attributions: Attribution vectors of the engine's pool of tasks, shape ``(n, 7)``.
    """
    b, k, q = len(rows), len(engine.world.cluster), engine.world.queue_capacity
    if engine.world.incidents:
        # Tasks of a lost domain go back to the queue however full it is.
        q += engine.world.max_running
    pool = np.zeros((b, q), dtype=np.int64)
    found = Decisions(
        replanning=engine.state.event[rows, st.EVENT] == st.REPLAN,
        free=np.zeros((b, k), dtype=np.int64),
        links=np.zeros((b, 4, k, k)),
        domains=np.zeros((b, k, len(DOMAIN_FEATURES)), dtype=np.float32),
        event=np.zeros((b, EVENT), dtype=np.float32),
        held=np.zeros((b, k), dtype=np.bool_),
        holding=np.zeros(b, dtype=np.int64),
        step_s=np.zeros(b),
        weights=engine.weights[rows].copy(),
        waiting=np.zeros(b, dtype=np.int64),
        kind=np.full((b, q), -1, dtype=np.int64),
        slot=np.zeros((b, q), dtype=np.int64),
        left=np.zeros((b, q)),
        waited_s=np.zeros((b, q)),
        attribution=np.zeros((b, q, ATTRIBUTIONS), dtype=np.float32),
    )
    _gather(
        engine.arrays, engine.state, rows, found.free, found.links, found.domains, found.event, found.held,
        found.holding, found.step_s, found.waiting, found.kind, found.slot, found.left, found.waited_s, pool,
    )  # fmt: skip
    found.attribution[:] = np.where(found.kind[:, :, None] >= 0, attributions[pool], 0.0)
    found.free[:] = within_budgets(engine.world.cluster, found.free)
    return found


def from_view(
    view: Decision, attributor: Attributor | None = None, forecast_gbps: FloatArray | None = None
) -> Decisions:
    """Read one decision from its record.

    Args:
        view: The decision.
        attributor: For tasks whose counters nobody has attributed yet. Zeros where there is none, or a task was not
            measured.
        forecast_gbps: Bandwidth expected some time ahead, shape ``(K, K)``; what it is now by default.

    Raises:
        PlanError: If an array of the view does not go with its cluster, or the attributor's answer with its question.
    """
    _check_shapes(view)
    k = len(view.free_devices)
    own = (view.kind_index, view.slot, view.steps_left, 0.0, view.counters, view.attribution)
    listed = [own] if view.replanning else [
        (task.kind_index, task.slot, task.steps_left, task.waited_s, task.counters, task.attribution)
        for task in view.queue
    ] or [own]  # fmt: skip
    q = len(listed)
    price = view.cost.domains.price_usd_per_byte * 1e9
    ahead = view.bandwidth_gbps if forecast_gbps is None else forecast_gbps
    angle = 2.0 * np.pi * view.time_s / DAY_S
    steps = min(1.0, float(np.log10(max(1.0, view.steps_left))) / 8.0)
    waited = next((task.waited_s for task in view.queue if task.slot == view.slot), 0.0)
    held = np.zeros((1, k), dtype=np.bool_)
    holding = 0
    if view.current_plan is not None:
        held[0, list(view.current_plan.domains)] = True
        holding = sum(segment.device_count for segment in view.current_plan.segments)
    return Decisions(
        replanning=np.array([view.replanning]),
        free=within_budgets(view.cost.cluster, np.asarray(view.free_devices, dtype=np.int64))[None],
        links=np.stack([view.bandwidth_gbps, view.latency_s, price, ahead])[None],
        domains=_observed(view)[None].astype(np.float32),
        event=np.array(
            [[not view.replanning, view.replanning, np.sin(angle), np.cos(angle), steps, min(1.0, waited / DAY_S)]],
            dtype=np.float32,
        ),
        held=held,
        holding=np.array([holding]),
        step_s=np.array([view.running_step_s if view.replanning else 0.0]),
        weights=np.array([[view.reward.w_eff, view.reward.w_util, view.reward.w_cost]]),
        waiting=np.array([len(view.queue)]),
        kind=np.array([[row[0] for row in listed]]),
        slot=np.array([[row[1] for row in listed]]),
        left=np.array([[row[2] for row in listed]]),
        waited_s=np.array([[row[3] for row in listed]]),
        attribution=states([row[4:] for row in listed], attributor).reshape(1, q, ATTRIBUTIONS),
    )


def own_first(decisions: Decisions, slot: int) -> Decisions:
    """One decision with the task of ``slot`` as candidate 0; the others keep their order."""
    at = np.flatnonzero((decisions.slot[0] == slot) & (decisions.kind[0] >= 0))
    if len(at) == 0:
        rule = f"must be among the waiting tasks {decisions.slot[0].tolist()}"
        raise PlanError(problem("slot", slot, rule, "Put the decision's own task into its queue"))
    order = np.concatenate([at[:1], np.delete(np.arange(decisions.kind.shape[1]), at[0])])
    return replace(decisions, **{name: getattr(decisions, name)[:, order] for name in PER_CANDIDATE})


def _check_shapes(view: Decision) -> None:
    """Refuse what was observed of another cluster than the one the view is of."""
    k = len(view.cost.cluster)
    told = {
        "free_devices": (view.free_devices, (k,)),
        "bandwidth_gbps": (view.bandwidth_gbps, (k, k)),
        "latency_s": (view.latency_s, (k, k)),
        "observed": (view.observed, (k, len(DOMAIN_FEATURES))),
        "link_gbps": (view.link_gbps, (k, k)),
    }
    for name, (array, shape) in told.items():
        if array is not None and np.shape(array) != shape:
            fix = "Use the view of the preset that is scheduled"
            raise PlanError(
                problem(f"{name}.shape", np.shape(array), f"must be {shape}, the cluster has {k} domains", fix)
            )
    devices = np.asarray(view.cost.domains.rows.devices)
    wrong = np.flatnonzero((view.free_devices < 0) | (view.free_devices > devices))
    if len(wrong):
        rule = f"must lie in 0..{devices[wrong[0]]}"
        given = int(view.free_devices[wrong[0]])
        raise PlanError(problem(f"free_devices[{wrong[0]}]", given, rule, "Count the free devices per domain"))
    for kind in (view.kind_index, *(task.kind_index for task in view.queue)):
        if not 0 <= kind < len(view.kinds):
            raise PlanError(
                problem("kind_index", kind, f"must lie in 0..{len(view.kinds) - 1}", "Use the view's kinds")
            )


def states(
    tasks: Sequence[tuple[FloatArray, AttributionVector | None]], attributor: Attributor | None = None
) -> Float32Array:
    """What a policy reads of the attributions of tasks, shape ``(n, 7)``; zeros for a task that was not measured.

    Args:
        tasks: Counters of each, and its attribution if it has one.
        attributor: For those that were measured and not yet attributed.

    Raises:
        PlanError: If an attribution has no state, or the attributor's answer does not go with its question.
    """
    found = np.zeros((len(tasks), ATTRIBUTIONS), dtype=np.float32)
    unread = []
    for row, (counters, vector) in enumerate(tasks):
        if vector is not None:
            if vector.state is None:
                rule = "is in no policy's schema: its seven numbers in [-1, 1] are not known"
                raise PlanError(problem("attribution", vector.method, rule, "Attribute tasks by as_attributor(...)"))
            found[row] = vector.state
        elif counters.size:
            unread.append(row)
    if attributor is not None and unread:
        given = np.asarray(attributor(np.stack([tasks[row][0] for row in unread])))
        if given.shape != (len(unread), ATTRIBUTIONS):
            rule = f"must be {(len(unread), ATTRIBUTIONS)}, seven numbers per task"
            raise PlanError(problem("attributor's answer", given.shape, rule, "Return one row per row of counters"))
        found[unread] = given
    return found


def _observed(view: Decision) -> FloatArray:
    """What instruments say; without any, devices that are not free count as busy and full."""
    if view.observed is not None:
        return view.observed
    rows = view.cost.domains.rows
    busy = 1.0 - np.asarray(view.free_devices) / np.asarray(rows.devices)
    found = np.zeros((len(busy), len(DOMAIN_FEATURES)))
    found[:, : 2 * GROUPS] = busy[:, None]
    found[:, -3] = busy
    found[:, -2] = min(1.0, len(view.queue) / 16.0)
    found[:, -1] = 1.0
    return found
