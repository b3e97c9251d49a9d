"""Where Hi-PPO trains: a batch of clusters of one world, advanced from choice to choice.

Events at which nothing can be done (no waiting task fits) are passed over and their reward counts for the decision
before, so every decision of a rollout is a real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.codecs import attributions_of
from attribution_sched.cluster.decision import Attributor, Decisions, gather
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import ACTION_COLUMNS, Engine
from attribution_sched.cluster.world import World
from attribution_sched.errors import CheckpointError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.constraints import big_m_penalty, imbalance
from attribution_sched.scheduler.hi_ppo.decode import Actor, Decoded, Planner, decode
from attribution_sched.scheduler.hi_ppo.forecast import BatchForecast
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.no_feasible_action import stuck
from attribution_sched.scheduler.hi_ppo.outcomes import engine_actions
from attribution_sched.scheduler.hi_ppo.partial_plans import DEAD
from attribution_sched.scheduler.hi_ppo.reward_weights import ParetoWeights, reward_scale
from attribution_sched.scheduler.hi_ppo.runtime_estimate import paces_of
from attribution_sched.scheduler.ppo.run_state import restore_engine, state_to_tensors
from attribution_sched.storage import Arrays

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NARROW = 0.5
"""A link with less than this share of its base left counts as too narrow."""


@dataclass(frozen=True, eq=False)
class Move:
    """What came of one decision in every cluster.

    Attributes:
        decoded: The choices.
        terms: Reward terms until the next decision, in units of ``ClusterBatch.scale``, shape ``(E, 3)``.
        low: Mean reward of the lower agents that acted, shape ``(E,)``.
        agents: Lower agents that acted, shape ``(E,)``.
        violations: How far each constraint was broken, by name, each of shape ``(E,)``.
        ended: Episodes that ended, shape ``(E,)``.
        last: What was to be seen at the end of those, in their order; None if there are none.
    """

    decoded: Decoded
    terms: FloatArray
    low: FloatArray
    agents: IntArray
    violations: dict[str, FloatArray]
    ended: BoolArray
    last: Decisions | None


class ClusterBatch:
    """A batch of clusters of one world.

    Args:
        world: The scheduling problem.
        clusters: How many.
        seed: Cluster i gets the seed ``seed + i``; later episodes go on from there.
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``; zeros without one.
        name: What to call it in logs.
        predict: Whether the upper agent is told forecasts of the links; else it is told they stay as they are.
        pareto: Whether every episode has reward weights of its own, drawn from all that sum to those of the world, for
            a policy that is to cover the whole front.
        paces: What attributions say of the time tasks take; nothing by default.
    """

    def __init__(
        self,
        world: World,
        clusters: int,
        seed: int,
        attributor: Attributor | None = None,
        name: str = "",
        *,
        predict: bool = True,
        pareto: bool = False,
        paces: FloatArray | None = None,
    ) -> None:
        self.name = name
        self.engine = Engine(world, clusters)
        base = self.engine.arrays.kinds
        base_step_s, base_cost = base[:, st.K_BASE_STEP].copy(), base[:, st.K_BASE_COST].copy()
        self.planner = Planner.of(self.engine.cost, world.kinds, base_step_s, base_cost, world.max_segments, paces)
        self.scale = reward_scale(world.kinds, base_step_s, world.reward.interval_s)
        self.attributions = attributions_of(self.engine, attributor)
        listed = self.engine.layouts.tolist()
        self._layout_rows = np.array([listed.index([*row, 0]) for row in self.planner.tables.layouts.tolist()])
        self._idle = np.zeros((clusters, world.max_segments, len(ACTION_COLUMNS)), dtype=np.int64)
        self._idle[:, :, 0] = len(world.cluster)
        self.pareto = pareto
        self._total = float(self.engine.weights[0].sum())
        self.engine.seed([seed + i for i in range(clusters)])
        self._draw_weights(np.arange(clusters))
        self.engine.reset()
        self.forecast = BatchForecast(self.engine) if predict else None
        self.returns: list[float] = []
        self._running, _ = self._settle(np.arange(clusters))

    @property
    def clusters(self) -> int:
        """How many clusters there are."""
        return self.engine.clusters

    def read_hours(self, network: HiPpoNetwork) -> None:
        """From now on, let attributions say how long tasks take, as a network reads them."""
        self.planner = replace(self.planner, paces=paces_of(network, self.engine.world.kinds))

    def decisions(self) -> Decisions:
        """What is to be decided now in every cluster."""
        found = gather(self.engine, np.arange(self.clusters), self.attributions)
        if self.forecast is not None:
            found.links[:, 3] *= self.forecast.change()
        return found

    def step(self, chooser: Actor) -> Move:
        """Decide in every cluster and run each to its next real decision; a finished episode begins anew."""
        e = self.clusters
        decisions = self.decisions()
        found = decode(self.planner, decisions, chooser)
        actions = engine_actions(self.planner.tables, found.drafts, found.batch.segments, self._layout_rows)
        task, state = found.trace.task, self.engine.state
        nothing = (task == decisions.kind.shape[1]) | (found.drafts.status == DEAD)
        placing = ~decisions.replanning & ~nothing
        state.event[placing, st.SLOT] = decisions.slot[placing, task[placing]]
        self.defer_all(np.flatnonzero(nothing & ~decisions.replanning))
        rewards, terms = self.engine.step(actions)
        agents = np.where(nothing, 0, found.drafts.written)
        low = state.r_low.sum(axis=1) / np.maximum(1, agents)
        more, more_terms = self._settle(np.arange(e))
        terms = terms + more_terms
        self._running += rewards + more
        ended = state.event[:, st.DONE] == 1
        last = None
        if ended.any():
            rows = np.flatnonzero(ended)
            last = gather(self.engine, rows, self.attributions)
            if self.forecast is not None:
                last.links[:, 3] *= self.forecast.change()[rows]
            self.returns.extend(float(value) for value in self._running[rows])
            self.engine.reset(ended)
            self._draw_weights(rows)
            if self.forecast is not None:
                self.forecast.restart(ended)
            # What a new episode earns before its first real decision belongs to its return.
            self._running[rows] = self._settle(rows)[0][rows]
        return Move(found, terms / self.scale, low, agents, self._violations(found, decisions), ended, last)

    def _draw_weights(self, rows: IntArray) -> None:
        """Give clusters that begin an episode reward weights of their own."""
        for row in rows if self.pareto else ():
            # The cluster's own stream decides, so a training run that is resumed draws the same.
            source = np.random.default_rng(self.engine.state.streams[row].ravel())
            self.engine.weights[row] = ParetoWeights(source, total=self._total).sample(1)[0]

    def _violations(self, found: Decoded, decisions: Decisions) -> dict[str, FloatArray]:
        """Traffic over links that have lost too much of their base, and unequal load of the domains in use."""
        kind = np.maximum(0, found.drafts.kind)
        base = self.engine.world.cluster.wan.bandwidth_gbps
        hours = self.engine.arrays.kinds[kind, st.K_BASE_STEP] / 3600.0
        slow = big_m_penalty(found.loads.traffic_bytes, decisions.links[:, 0], NARROW * base, 1.0)
        spread = imbalance(found.loads.busy_s, found.loads.busy_s > 0.0)
        return {"bandwidth": np.asarray(np.log1p(slow / hours)), "balance": np.maximum(0.0, spread.violation)}

    def defer_all(self, rows: IntArray) -> None:
        """Let every waiting task of some clusters wait until something changes or the retry time is over."""
        state = self.engine.state
        now = state.clock[rows, st.NOW][:, None]
        waiting = state.slots[rows, :, st.STATUS] == st.QUEUED
        offered = state.tasks[rows, :, st.OFFERED]
        later = np.where(waiting & (offered <= now), now + self.engine.world.retry_s, offered)
        state.tasks[rows[:, None], np.arange(offered.shape[1]), st.OFFERED] = later

    def _settle(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Pass over events of some clusters at which nothing but doing nothing is possible."""
        rewards, terms = np.zeros(self.clusters), np.zeros((self.clusters, 3))
        state = self.engine.state
        while True:
            rows = rows[state.event[rows, st.DONE] == 0]
            if len(rows) == 0:
                return rewards, terms
            rows = rows[stuck(self.planner.tables, self.engine, rows)]
            if len(rows) == 0:
                return rewards, terms
            self.defer_all(rows[state.event[rows, st.EVENT] != st.REPLAN])
            active = np.zeros(self.clusters, dtype=np.bool_)
            active[rows] = True
            more, more_terms = self.engine.step(self._idle, active=active)
            rewards += more
            terms += more_terms


# ------ The whole state of a batch as named arrays and back: clusters, link forecasts, returns of running episodes

ENGINE, FORECAST, RUNNING = "engine.", "forecast.", "running"


def field_arrays(field: ClusterBatch) -> Arrays:
    """Copies of everything that changes while a field runs, except the list of returns."""
    arrays = {ENGINE + name: array for name, array in state_to_tensors(field.engine).items()}
    return {**arrays, **_forecast(field), RUNNING: field._running.copy()}


def restore_field(field: ClusterBatch, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Bring a field to a stored state; nothing changes if it does not fit.

    Raises:
        CheckpointError: If an array is missing, surplus or of another form, or the world is another one.
    """
    own = _forecast(field) | {RUNNING: field._running}
    engine = {name.removeprefix(ENGINE): array for name, array in arrays.items() if name.startswith(ENGINE)}
    given = {name: array for name, array in arrays.items() if not name.startswith(ENGINE)}
    odd = sorted(set(own) ^ set(given))
    if odd:
        raise CheckpointError(problem("field state", odd[0], "is missing or not known", "Use an untouched copy"))
    for name, array in own.items():
        if given[name].shape != array.shape or given[name].dtype != array.dtype:
            rule = f"must be {array.shape} of {array.dtype}"
            form = (given[name].shape, str(given[name].dtype))
            raise CheckpointError(problem(f"field {name}", form, rule, "Build the field it was saved with"))
    restore_engine(field.engine, engine)
    field._running[...] = given[RUNNING]
    if field.forecast is not None:
        fields = type(field.forecast._state)._fields
        field.forecast._state = field.forecast._state._replace(
            **{name: np.array(given[FORECAST + name]) for name in fields}
        )


def keep_clusters(field: ClusterBatch, rows: NDArray[np.bool_], arrays: Arrays) -> None:
    """Overwrite the stored state of some clusters by what it is now."""
    for name, array in field_arrays(field).items():
        # The mark of the world is the only array that does not have the clusters on its first axis.
        if name != f"{ENGINE}world":
            arrays[name][rows] = array[rows]


def _forecast(field: ClusterBatch) -> Arrays:
    if field.forecast is None:
        return {}
    return {FORECAST + name: np.array(array) for name, array in field.forecast._state._asdict().items()}


# ------ Clusters at different hours of their episodes
#
# Clusters that begin together pass through the day together: every rollout then holds one hour of it only, and an
# update forgets the others. Before learning, each cluster is therefore brought to an hour of its own.


def stagger(field: ClusterBatch, chooser: Actor) -> None:
    """Spread the clusters of a field evenly over the hours of an episode.

    All are played for an episode; then each goes back to the first decision after its share of the horizon, with its
    random streams as they were there, so what follows is an episode as any other.

    Args:
        field: Clusters at the beginning of their episodes.
        chooser: Who decides on the way.
    """
    state, count = field.engine.state, field.clusters
    target_s = field.engine.world.horizon_s * np.arange(count) / count
    kept = field_arrays(field)
    waiting = np.ones(count, dtype=np.bool_)
    with one_thread():
        while True:
            there = waiting & (state.clock[:, st.NOW] >= target_s)
            if there.any():
                keep_clusters(field, there, kept)
                waiting &= ~there
            if not waiting.any():
                break
            ended = field.step(chooser).ended
            if (waiting & ended).any():
                # A cluster whose last decision came before its hour stays at the beginning of its second episode.
                keep_clusters(field, waiting & ended, kept)
                waiting &= ~ended
    restore_field(field, kept)
    field.returns.clear()
