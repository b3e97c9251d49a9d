"""Futures of a moment: what may come, drawn from what may be known, written down before anything is played.

Every stream has a purpose (arrivals, links, failures), and what a task present truly demands is drawn by a stream of
that task: leaving one out, or adding one, shifts nothing for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from attribution_sched.cluster.arrivals import ArrivalKind, Poisson
from attribution_sched.cluster.demands import draw_demands
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.copies import draw_arrivals, draw_links
from attribution_sched.cluster.incidents import I_END, I_START
from attribution_sched.cluster.interference import PCIE_BYTES_PER_S
from attribution_sched.cluster.moment import ArrivalLaw, Moment
from attribution_sched.cluster.pool import TaskPool, build_pool
from attribution_sched.cluster.streams import seed_stream
from attribution_sched.cluster.world import World
from attribution_sched.types import FloatArray, IntArray, Task

FACTORS = 4
"""What is believed of a task: logarithms of its compute, memory and host time and of its input traffic over nominal."""

LAW_SEED = 777_001
"""Seed of the tasks that futures draw from: the world's law of tasks, never the instances that will really come."""

LEAST_FAILURE_S = 3600.0
"""A failure under way is expected to last as long again as it has lasted, and at least this long."""


@dataclass(frozen=True, eq=False)
class Belief:
    """What is believed of n tasks, normal in logarithms.

    Attributes:
        mean: Shape ``(n, 4)``, order of :data:`FACTORS`.
        root: Lower triangular root of the covariance, shape ``(n, 4, 4)``.
        pace: Logarithm of how much longer than nominal each is expected to compute, as the follower reads it, ``(n,)``.
    """

    mean: FloatArray
    root: FloatArray
    pace: FloatArray


class Beliefs(Protocol):
    """What may be believed of tasks."""

    @property
    def pool(self) -> FloatArray:
        """Tasks that may come, rows as the engine takes them, shape ``(n, 8)``."""
        ...

    @property
    def pool_pace(self) -> FloatArray:
        """Their pace as the follower will read it, shape ``(n,)``."""
        ...

    def of(self, tasks: Sequence[Task]) -> Belief:
        """What is believed of tasks that are here."""
        ...


class PriorBeliefs:
    """Nothing is known of a task but its kind: the law of demands itself.

    Args:
        world: Whose kinds.
        draws: Simulated tasks of every kind that the law is read off.
    """

    def __init__(self, world: World, draws: int = 256) -> None:
        pool = law_pool(world)
        inputs = np.array([kind.model.layers[0].input_elements for kind in world.kinds], dtype=np.float64)
        self.inputs = inputs
        self.pool = pool_rows(pool.kinds, pool.steps, pool.demands.factors, pool.demands.ratio[:, 3], inputs)
        self.pool_pace: FloatArray = np.zeros(len(pool))
        rng = np.random.default_rng(LAW_SEED)
        self.mean, self.root = np.zeros((len(world.kinds), FACTORS)), np.zeros((len(world.kinds), FACTORS, FACTORS))
        for k, kind in enumerate(world.kinds):
            drawn = draw_demands([kind.model] * draws, rng, world.idiosyncrasy, training=kind.training)
            logs = np.log(np.column_stack([drawn.factors, drawn.ratio[:, 3]]))
            self.mean[k], self.root[k] = logs.mean(axis=0), covariance_root(logs)

    def of(self, tasks: Sequence[Task]) -> Belief:
        """The law of each task's kind."""
        kinds = np.array([task.kind_index for task in tasks], dtype=np.int64)
        return Belief(self.mean[kinds], self.root[kinds], np.zeros(len(kinds)))


def law_pool(world: World) -> TaskPool:
    """Tasks of the world's law: other instances than its own, and none of those that a recording still holds."""
    return build_pool(replace(world, pool_seed=LAW_SEED, arrivals=Poisson(1.0)))


def covariance_root(logs: FloatArray) -> FloatArray:
    """Root of the covariance of rows ``(n, 4)``; a number that does not vary stays as it is."""
    spread = np.cov(logs.T) + 1e-12 * np.eye(logs.shape[1])
    return np.asarray(np.linalg.cholesky(spread))


def pool_rows(
    kinds: IntArray, steps: FloatArray, factors: FloatArray, pcie: FloatArray, inputs: FloatArray
) -> FloatArray:
    """Rows of the engine's pool of tasks, shape ``(n, 9)``; as urgent as their kind, and no measured jobs."""
    rows = np.zeros((len(kinds), 9))
    rows[:, st.P_KIND], rows[:, st.P_STEPS] = kinds, steps
    rows[:, st.P_FACTORS : st.P_FACTORS + 3] = factors
    rows[:, st.P_TYPE] = -1.0
    rows[:, st.P_PCIE] = inputs[kinds] * pcie * 4.0 / PCIE_BYTES_PER_S
    return rows


@dataclass(frozen=True, eq=False)
class Future:
    """One future of a moment, written down.

    Attributes:
        pool: Tasks present, added and coming, shape ``(T, 8)``.
        pace: As in :class:`Copies`.
        arrival_times_s: When task t comes, shape ``(T,)``; 0 for those present.
        link_times_s: When bandwidth changes, shape ``(L,)``.
        links: Bandwidth over base from then on, shape ``(L, K, K)``.
        incidents: Failures under way, with an end.
    """

    pool: FloatArray
    pace: FloatArray
    arrival_times_s: FloatArray
    link_times_s: FloatArray
    links: FloatArray
    incidents: FloatArray


MOST_ARRIVALS = 4096
"""Tasks that may come in one future."""


def draw_futures(
    moment: Moment, beliefs: Beliefs, futures: int, until_s: float, seed: int, added: Sequence[Task] = (),
    tasks: Mapping[int, Task] | None = None, arrive_until_s: float | None = None, first: int = 0,
) -> list[Future]:  # fmt: skip
    """Draw futures of a moment; future i depends on the seed and on i only, and what a task demands on itself too.

    Args:
        moment: What is known.
        beliefs: Of its tasks and of those that will come.
        futures: How many.
        until_s: How far they reach.
        seed: Of all streams.
        added: Tasks that some copies have beside those present.
        tasks: Slot → record to go by instead of the moment's own, for example with other attributions.
        arrive_until_s: When tasks stop coming; ``until_s`` by default.
        first: Number of the first future.
    """
    given = moment.tasks if tasks is None else {**moment.tasks, **{k: v for k, v in tasks.items() if k in moment.tasks}}
    order = resident_slots(moment)
    records = [given[slot] for slot in order] + list(added)
    believed = beliefs.of(records) if records else Belief(np.zeros((0, 4)), np.zeros((0, 4, 4)), np.zeros(0))
    normals = np.stack(
        [
            np.random.default_rng([seed, 1, moment_key(moment, slot, i)]).standard_normal((first + futures, FACTORS))
            for i, slot in enumerate([*order, *(-1 for _ in added)])
        ]
        or [np.zeros((first + futures, 0))],
        axis=1,
    )[first:]
    known = moment.arrays.pool[list(order)] if order else np.zeros((0, 9))
    fresh = np.zeros((len(added), 9))
    fresh[:, st.P_TYPE] = -1.0
    for i, task in enumerate(added):
        fresh[i, st.P_KIND], fresh[i, st.P_STEPS] = task.kind_index, task.steps
    facts = np.concatenate([known, fresh])
    kinds = facts[:, st.P_KIND].astype(np.int64)
    inputs = np.array([kind.model.layers[0].input_elements for kind in moment.world.kinds], dtype=np.float64)
    drawn = []
    for f in range(futures):
        logs = believed.mean + np.einsum("tij,tj->ti", believed.root, normals[f].reshape(len(records), FACTORS))
        ratios = np.exp(logs)
        rows = facts.copy()
        rows[:, st.P_FACTORS : st.P_FACTORS + 3] = ratios[:, :3]
        rows[:, st.P_PCIE] = inputs[kinds] * ratios[:, 3] * 4.0 / PCIE_BYTES_PER_S
        times, instances = _arrivals(
            moment, beliefs, until_s if arrive_until_s is None else arrive_until_s, seed, first + f
        )
        link_times, links = _links(moment, until_s, seed, first + f)
        drawn.append(
            Future(
                np.concatenate([rows, beliefs.pool[instances]]),
                np.concatenate([believed.pace, beliefs.pool_pace[instances]]),
                np.concatenate([np.zeros(len(rows)), times]),
                link_times,
                links,
                _incidents(moment, seed, first + f),
            )
        )
    return drawn


def resident_slots(moment: Moment) -> list[int]:
    """Slots of the tasks present, in order of arrival."""
    slots = moment.state.slots[0]
    present = np.flatnonzero(slots[:, st.STATUS] != st.FREE)
    return [int(slot) for slot in present[np.argsort(slots[present, st.SERIAL], kind="stable")]]


def moment_key(moment: Moment, slot: int, at: int) -> int:
    """What the draws about a task hang on: the task, wherever it stands."""
    return int(moment.state.slots[0, slot, st.SERIAL]) if slot >= 0 else 2**31 + at


def arrivals_per_s(law: ArrivalLaw, now_s: float) -> float:
    """How often tasks come, on average; a recording tells no more than how often they have come."""
    if law.kind == ArrivalKind.TRACE:
        return len(law.past_s) / now_s if now_s > 0.0 else 0.0
    return float(law.params[0])


def _arrivals(moment: Moment, beliefs: Beliefs, until_s: float, seed: int, future: int) -> tuple[FloatArray, IntArray]:
    law = moment.law
    if law is None:
        return np.zeros(0), np.zeros(0, dtype=np.int64)
    kind, params = law.kind, law.params
    if kind == ArrivalKind.TRACE:
        rate = arrivals_per_s(law, moment.now_s)
        if rate == 0.0:
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        kind, params = int(ArrivalKind.POISSON), np.array([rate, 0.0, 0.0, 86_400.0, 0.0, 0.0, 1.0])
    times, instances = np.zeros(MOST_ARRIVALS), np.zeros(MOST_ARRIVALS, dtype=np.int64)
    stream = seed_stream(np.random.SeedSequence([seed, 2, future]))
    count = draw_arrivals(kind, params, moment.now_s, until_s, stream, len(beliefs.pool), times, instances)
    return times[:count], instances[:count]


def _links(moment: Moment, until_s: float, seed: int, future: int) -> tuple[FloatArray, FloatArray]:
    arrays, clock = moment.arrays, moment.state.clock[0]
    times = [float(clock[st.LAST_TICK]) - 1e-6]
    tick_s = float(clock[st.NEXT_TICK])
    while tick_s < until_s:
        times.append(tick_s - 1e-6)
        tick_s += arrays.tick_s
    k = arrays.base.shape[1]
    path = np.ones((len(times), k, k))
    if len(arrays.trace_times_s):
        # What was recorded so far is what may come again, a stretch of it at a time.
        rng = np.random.default_rng([seed, 3, future])
        seen = arrays.trace_multiplier
        path[0] = seen[-1]
        rows = (rng.integers(len(seen)) + np.arange(len(times) - 1)) % len(seen)
        path[1:] = seen[rows]
        return np.array(times), path
    latent = np.clip(moment.state.links[0, 0], -arrays.ou_bound, arrays.ou_bound)
    stream = seed_stream(np.random.SeedSequence([seed, 3, future]))
    draw_links(latent, arrays.ou_bound, arrays.ou_decay, arrays.ou_noise, arrays.ou_correlation, stream, path)
    return np.array(times), path


def _incidents(moment: Moment, seed: int, future: int) -> FloatArray:
    found = moment.arrays.incidents.copy()
    if len(found):
        rng = np.random.default_rng([seed, 4, future])
        lasted = np.maximum(LEAST_FAILURE_S, moment.now_s - found[:, I_START])
        found[:, I_END] = moment.now_s + rng.exponential(lasted)
    return found
