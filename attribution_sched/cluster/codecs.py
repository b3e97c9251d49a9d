"""How a world looks to a learner: spaces, observations, masks and actions, for a batch of clusters.

A codec translates between the engine's arrays and Gymnasium spaces. ``CrossDomainCodec`` shows everything a
cross-domain scheduler may know; ``TestbedCodec`` is the 32-number, 64-action view of one four-device node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import (
    ACTION_COLUMNS,
    DOMAIN_FEATURES,
    EVENT_FEATURES,
    GROUPS,
    LINK_FEATURES,
    TASK_FEATURES,
    Engine,
    kind_of,
)
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.gpus import PRECISIONS, Precision
from attribution_sched.cluster.incidents import is_lost
from attribution_sched.cluster.plan import DOMAIN, SEGMENT_FIELDS, PlanBatch
from attribution_sched.cluster.wan import effective_latency
from attribution_sched.cluster.world import BATCH_LEVELS, World
from attribution_sched.errors import PlanError, SettingsError, problem
from attribution_sched.kernels import kernel
from attribution_sched.types import Attributor, BoolArray, Float32Array, FloatArray, IntArray

if TYPE_CHECKING:
    import gymnasium as gym

__all__ = ["Attributor", "Codec", "CrossDomainCodec", "TestbedCodec", "attributions_of"]


class Codec(Protocol):
    """What an environment needs of a codec."""

    engine: Engine
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]

    def observe(self) -> Any:
        """Observations of all clusters, batched."""
        ...

    def masks(self) -> BoolArray:
        """Action masks of all clusters."""
        ...

    def decode(self, actions: Any) -> tuple[IntArray, IntArray | None]:
        """Batched space actions to engine actions and forced devices."""
        ...

    def settle(self, active: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Pass over decision events this view does not offer; returns rewards and terms earned meanwhile."""
        ...


def attributions_of(engine: Engine, attributor: Attributor | None) -> Float32Array:
    """What a policy reads of every task that can arrive, shape ``(n, 7)``.

    Args:
        engine: Its pool holds the tasks.
        attributor: Who attributes; without one all are zeros, the state of tasks that nobody attributed.

    Raises:
        SettingsError: If the answer is not seven numbers per task in [−1, 1].
    """
    shape = (len(engine.pool), len(DEMAND_NAMES))
    if attributor is None:
        return np.zeros(shape, dtype=np.float32)
    found = np.asarray(attributor(engine.pool.counters.values), dtype=np.float32)
    if found.shape != shape or not (np.abs(found) <= 1.0).all():
        rule = f"must give numbers in [-1, 1] of shape {shape}"
        raise SettingsError(problem("attributor", found.shape, rule, "Use attributor.as_attributor(...)"))
    return found


def _whole(actions: Any) -> IntArray:
    """Actions as integers; fractions and NaN are refused, not cut off."""
    given = np.asarray(actions)
    if given.dtype.kind not in "iu":
        raise PlanError(problem("actions", given.tolist(), "must be whole numbers", "Use integers"))
    return given.astype(np.int64)


def _link_bound(world: World) -> float:
    """A round number no link feature of the world can exceed."""
    wan = world.cluster.wan
    fastest = wan.bandwidth_gbps.max() * (1.0 + wan.bound)
    if wan.trace is not None:
        fastest = max(fastest, np.nanmax(wan.trace.gbps, initial=0.0))
    slowest = effective_latency(wan.latency_s.max(), 1.0, wan.congestion)
    return float(max(1e4, 2.0 * fastest, 2.0 * slowest, 2.0 * wan.price_usd_per_gb.max()))


class CrossDomainCodec:
    """The full view: every domain, every link, the task, its counters and its plan in force.

    Args:
        engine: The clusters.
        attributor: Turns counters into the seven attribution numbers; zeros without one. The registered environments
            and ``System`` have the same.
    """

    def __init__(self, engine: Engine, attributor: Attributor | None = None) -> None:
        self.engine = engine
        world, k, p = engine.world, len(engine.world.cluster), engine.world.max_segments
        self.attributions = attributions_of(engine, attributor)
        import gymnasium as gym

        box = gym.spaces.Box
        self.observation_space = gym.spaces.Dict({
            "domains": box(0.0, 1.0, (k, len(DOMAIN_FEATURES)), np.float32),
            "links": box(0.0, _link_bound(world), (len(LINK_FEATURES), k, k), np.float32),
            "task": box(0.0, 2.0, (len(TASK_FEATURES),), np.float32),
            "event": box(-1.0, 1.0, (len(EVENT_FEATURES),), np.float32),
            "plan": box(-1, 2**20, (p, 6), np.int64),
            "counters": box(0.0, 1e15, (len(COUNTER_NAMES),), np.float32),
            "attribution": box(-1.0, 1.0, (len(DEMAND_NAMES),), np.float32),
        })  # fmt: skip
        self.choices = tuple(int(n) for n in engine.choices)
        self.action_space = gym.spaces.MultiDiscrete(np.array(self.choices * p))
        self._micro = np.array([kind.microbatches for kind in world.kinds])
        known = np.array([[domain.gpu.supports(q) for q in PRECISIONS] for domain in world.cluster.domains])
        self._precision: BoolArray = known.max(axis=0)

    def observe(self) -> dict[str, Any]:
        """Observations of all clusters, each entry with the cluster axis first."""
        seen = self.engine.observe()
        attribution = self.attributions[self.engine.pending_pool()]
        attribution[self.engine.state.event[:, st.EVENT] == st.NO_EVENT] = 0.0
        return {
            "domains": seen.domains,
            "links": seen.links,
            "task": seen.task,
            "event": seen.event,
            "plan": seen.plan,
            "counters": seen.counters,
            "attribution": attribution,
        }

    def masks(self) -> BoolArray:
        """What each single choice allows at all, shape ``(E, sum of choices)``, in the order of the space.

        A combination can still fail (memory, devices): it is then refused as a whole and named in ``info``.
        ``Engine.probe`` tells beforehand.
        """
        engine = self.engine
        world, arrays = engine.world, engine.arrays
        e, p = engine.clusters, world.max_segments
        kind = engine.pending_kind()
        # A running task may also stay where it is, so its own devices count as free.
        room = np.stack([engine.free_devices(share=share, own=True) for share in (False, world.share_limit > 1)])
        domains = np.ones((e, self.choices[0]), dtype=np.bool_)
        domains[:, :-1] = room[1] > 0
        layers = np.arange(self.choices[1])
        stops = (layers >= 1) & (layers <= arrays.tables.n_layers[kind][:, None])
        divides = (self._micro[:, :, None] % engine.layouts[None, None, :, 0] == 0).any(axis=1)
        fits = engine.layouts[:, :3].prod(axis=1)[None, :] <= room.max(axis=2)[engine.layouts[:, 3]].T
        layouts: BoolArray = np.logical_and(divides[kind], fits)
        layouts[~layouts.any(axis=1)] = True
        precisions = np.repeat(self._precision[None, :], e, axis=0)
        precisions[arrays.kinds[kind, st.K_TRAINING] == 1.0, Precision.INT8.index] = False
        batches = np.ones((e, BATCH_LEVELS), dtype=np.bool_)
        # Any cap goes with any precision.
        precisions = np.tile(precisions, (1, len(world.cluster.cap_levels) + 1))
        row = np.concatenate([domains, stops, layouts, precisions, batches], axis=1)
        return np.tile(row, (1, p))

    def decode(self, actions: Any) -> tuple[IntArray, IntArray | None]:
        """Space actions ``(E, 5·P)`` to engine actions ``(E, P, 5)``."""
        e, p = self.engine.clusters, self.engine.world.max_segments
        chosen = _whole(actions)
        if chosen.shape != (e, p * len(ACTION_COLUMNS)):
            rule = f"must have shape ({e}, {p * len(ACTION_COLUMNS)})"
            raise PlanError(problem("actions.shape", chosen.shape, rule, "Give five choices per segment"))
        return chosen.reshape(e, p, len(ACTION_COLUMNS)), None

    def settle(self, active: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Every event is offered; there is nothing to pass over."""
        return np.zeros(active.size), np.zeros((active.size, 3))


@kernel(allocates=True)
def _testbed_masks(world: WorldArrays, state: StateArrays, memory: FloatArray, masks: BoolArray) -> None:
    """A device may take a task if it has a free place and room, and knows the precision."""
    for e in range(masks.shape[0]):
        masks[e, :] = False
        if state.event[e, st.EVENT] == st.NO_EVENT:
            continue
        if is_lost(world.incidents, state.clock[e, st.LAST_TICK], 0):
            continue
        kind = kind_of(world, state, e, state.event[e, st.SLOT])
        for d in range(world.domains.rows[0].devices):
            used = 0
            held = 0.0
            for place in range(2):
                slot = state.occupant[e, 0, d, place]
                if slot >= 0:
                    used += 1
                    for p in range(state.slots[e, slot, st.SEGMENTS]):
                        if state.plans[e, slot, p, DOMAIN] == 0:
                            held += state.loads[e, slot, p, st.MEMORY]
            if used >= world.share_limit:
                continue
            for q in range(memory.shape[1]):
                for b in range(memory.shape[2]):
                    masks[e, (d * memory.shape[1] + q) * memory.shape[2] + b] = (
                        held + memory[kind, q, b] <= world.domains.rows[0].memory_bytes
                    )


class TestbedCodec:
    """The four-device view: 20 system numbers, 5 task numbers, 7 attributions; device × precision × batch.

    Args:
        engine: The clusters; their world must have one domain.
        attributor: Turns counters into the seven attribution numbers; zeros without one. The registered environments
            and ``System`` have the same.
    """

    __test__ = False  # the name is the world's, not a test's

    def __init__(self, engine: Engine, attributor: Attributor | None = None) -> None:
        world = engine.world
        if len(world.cluster) != 1 or world.cluster.domains[0].devices != GROUPS:
            given = [domain.devices for domain in world.cluster.domains]
            fix = "Use the cross-domain environment for other clusters"
            raise SettingsError(problem("domains", given, f"the testbed is one domain of {GROUPS} devices", fix))
        self.engine = engine
        self.attributions = attributions_of(engine, attributor)
        size = len(DOMAIN_FEATURES) + len(TASK_FEATURES) + len(DEMAND_NAMES)
        low = np.zeros(size, dtype=np.float32)
        low[-len(DEMAND_NAMES) :] = -1.0
        high = np.ones(size, dtype=np.float32)
        high[len(DOMAIN_FEATURES) : -len(DEMAND_NAMES)] = 2.0
        import gymnasium as gym

        self.observation_space = gym.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gym.spaces.Discrete(GROUPS * len(PRECISIONS) * BATCH_LEVELS)
        shared = world.share_limit > 1
        self._layout = int(np.flatnonzero((engine.layouts == [1, 1, 1, int(shared)]).all(axis=1))[0])
        self._memory = self._memory_table()
        node = world.cluster.domains[0]
        self._budget_binds = node.power_budget_w is not None and node.power_budget_w < node.devices * node.cap_w

    def _memory_table(self) -> FloatArray:
        """Bytes of every kind × precision × batch level on one device; infinite where not allowed."""
        engine, kinds = self.engine, self.engine.world.kinds
        table = np.full((len(kinds), len(PRECISIONS), BATCH_LEVELS), np.inf)
        gpu = engine.world.cluster.domains[0].gpu
        for k, kind in enumerate(kinds):
            for q in PRECISIONS:
                if not gpu.supports(q) or (kind.training and q is Precision.INT8):
                    continue
                rows = np.zeros((BATCH_LEVELS, 1, len(SEGMENT_FIELDS)), dtype=np.int64)
                for b, micro in enumerate(kind.microbatches):
                    rows[b, 0] = (0, 0, len(kind.model), 1, 1, 1, q.index, 0, micro, kind.batch_size // micro, 0)
                ones = np.ones(BATCH_LEVELS, dtype=np.int64)
                cost = engine.cost.score(PlanBatch(rows, ones, 0 * ones), k, breakdown=False)
                table[k, q.index] = cost.segment("memory_bytes")[:, 0]
        return table

    def observe(self) -> Float32Array:
        """Observations ``(E, 32)``."""
        seen = self.engine.observe()
        attribution = self.attributions[self.engine.pending_pool()]
        attribution[self.engine.state.event[:, st.EVENT] == st.NO_EVENT] = 0.0
        return np.concatenate([seen.domains[:, 0], seen.task, attribution], axis=1, dtype=np.float32)

    def masks(self) -> BoolArray:
        """Exactly the feasible actions, shape ``(E, 64)``."""
        masks = np.zeros((self.engine.clusters, 64), dtype=np.bool_)
        _testbed_masks(self.engine.arrays, self.engine.state, self._memory, masks)
        if self._budget_binds:
            # Whether a budget holds depends on every task's draw: ask the engine about each action.
            for e in np.flatnonzero(masks.any(axis=1)):
                allowed = np.flatnonzero(masks[e])
                rows, devices = self._rows(allowed, self.engine.pending_kind()[e])
                masks[e, allowed] = self.engine.probe(int(e), rows, devices)["code"] > 0
        return masks

    def decode(self, actions: Any) -> tuple[IntArray, IntArray | None]:
        """Space actions ``(E,)`` to engine actions and the device each names."""
        chosen = _whole(actions)
        e = self.engine.clusters
        if chosen.shape != (e,) or (chosen < 0).any() or (chosen >= 64).any():
            fix = "Use device·16 + precision·4 + batch level"
            raise PlanError(problem("actions", chosen.tolist(), f"must be {e} numbers in 0..63", fix))
        return self._rows(chosen, self.engine.pending_kind())

    def _rows(self, chosen: IntArray, kind: IntArray) -> tuple[IntArray, IntArray]:
        """Actions of the space as engine actions and the device each names."""
        rows = np.zeros((chosen.size, 1, len(ACTION_COLUMNS)), dtype=np.int64)
        rows[:, 0, 1] = self.engine.arrays.tables.n_layers[kind]
        rows[:, 0, 2] = self._layout
        rows[:, 0, 3] = chosen // BATCH_LEVELS % len(PRECISIONS)
        rows[:, 0, 4] = chosen % BATCH_LEVELS
        return rows, chosen // (BATCH_LEVELS * len(PRECISIONS))

    def settle(self, active: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Pass over re-planning events and tasks no device can take now: the 64 actions only place."""
        engine = self.engine
        idle = np.full((engine.clusters, 1, len(ACTION_COLUMNS)), 1, dtype=np.int64)
        rewards, terms = np.zeros(engine.clusters), np.zeros((engine.clusters, 3))
        while True:
            pending = engine.state.event[:, st.EVENT]
            stuck = active & (engine.state.event[:, st.DONE] == 0)
            stuck &= (pending == st.REPLAN) | ((pending == st.PLACE) & ~self.masks().any(axis=1))
            if not stuck.any():
                return rewards, terms
            more, more_terms = engine.step(idle, active=stuck)
            if not engine.world.reward.per_decision:
                rewards += more
                terms += more_terms
