"""What attributions and the measured pace tell of a task's true demands, with how sure that is.

    log factor = a·(attributions, log pace) + error,   fitted per kind on tasks simulated from the world's own law

The factors are those by which a task's compute, memory, host time and input traffic exceed its kind's nominal ones. One
regression per kind and per what was measured (nothing, attributions, pace, both): its answer and the covariance of its
errors are the belief. Rollouts draw from it; features and prices read its mean.

Where counters could not be read, the attributions are EmSHAP's estimate with an interval (``state_covariance``, D). By
how much they are believed follows from it: against tasks of the kind, whose features have mean m and covariance C,

    x̂ = m + C (C + D)⁻¹ (x − m),   and  C − C (C + D)⁻¹ C  more is left open.

No interval, and the attributions are taken at their word; one without end, and only the rest is believed. An estimate
that lies farther from its kind than C + D allows is believed less: D is widened until it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from attribution_sched.cluster.counters import counters, sample_time_s, throughput
from attribution_sched.cluster.decision import ATTRIBUTIONS
from attribution_sched.cluster.demands import Demands, draw_demands, nominal_demands
from attribution_sched.cluster.fork import (
    FACTORS,
    LAW_SEED,
    Belief,
    covariance_root,
    law_pool,
    pool_rows,
    with_history,
)
from attribution_sched.cluster.models import Model
from attribution_sched.cluster.world import TaskKind, World, working_shares
from attribution_sched.scheduler.hi_ppo.features import PACE, log_pace
from attribution_sched.types import Attributor, Float32Array, FloatArray, IntArray, Task

DRAWS = 512
"""Simulated tasks of every kind."""

RIDGE = 1e-3
"""Weight of small coefficients, in units of the features' variance."""

WIDEST_LOG = 1.5
"""Logarithms of believed factors stay within this: far from all tasks it was fitted to a plane means nothing."""

ATTRIBUTED, PACED = 1, 2
"""Bits of what was measured of a task."""

UNTOLD = 0.1
"""Part of the variance of an estimate that is taken to be in every direction: an interval is a Gaussian around errors
that are none (mostly which model it is, one or another)."""

WIDENINGS = 3
"""How often an interval is widened for an estimate that lies farther from its kind than the two allow."""

FLOOR = 1e-9
"""Of a variance: what keeps a covariance without full rank invertible."""

_EDGE = 1.0 - 1e-6


class DemandBeliefs:
    """Believed demands of tasks from their attributions and their pace.

    Args:
        kinds: Kinds of tasks.
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``, as the tasks' own vectors are in.
        idiosyncrasy: How much tasks of a kind differ, see :func:`~attribution_sched.cluster.demands.draw_demands`.
        pace: Whether the measured throughput is read.
        attributions: Whether attributions are read.

    Attributes:
        paces: What attributions alone say of the time a task computes, as the rule reads them, shape
            ``(n_kinds, PACE)``; see :func:`~attribution_sched.scheduler.hi_ppo.features.log_pace`.
    """

    def __init__(
        self,
        kinds: Sequence[TaskKind],
        attributor: Attributor,
        idiosyncrasy: float = 1.0,
        *,
        pace: bool = True,
        attributions: bool = True,
    ) -> None:
        self.reads = (ATTRIBUTED if attributions else 0) | (PACED if pace else 0)
        self._sample_s = np.array([_nominal_sample_s(kind.model, kind.training) for kind in kinds])
        n = len(kinds)
        self.centres = np.zeros((n, ATTRIBUTIONS + 1))
        self.spreads = np.zeros((n, ATTRIBUTIONS + 1, ATTRIBUTIONS + 1))
        self.slopes = np.zeros((n, 4, ATTRIBUTIONS + 2, FACTORS))
        self.roots = np.zeros((n, 4, FACTORS, FACTORS))
        self.paces: FloatArray = np.zeros((n, PACE))
        self._rng = rng = np.random.default_rng(LAW_SEED)
        for k, kind in enumerate(kinds):
            drawn = draw_demands([kind.model] * DRAWS, rng, idiosyncrasy, training=kind.training)
            read = np.asarray(attributor(counters(drawn, rng).values), dtype=np.float64)
            speed = np.log(throughput(drawn, rng) * self._sample_s[k])
            logs = np.log(np.column_stack([drawn.factors, drawn.ratio[:, 3]]))
            features = _features(read, speed)
            self.centres[k], self.spreads[k] = features[:, :-1].mean(axis=0), np.cov(features[:, :-1].T)
            for known in range(4):
                self.slopes[k, known], self.roots[k, known] = _fit(features, logs, known)
            centre, plane = self.centres[k, :ATTRIBUTIONS], self.slopes[k, ATTRIBUTED, :, 0]
            level = float(plane[-1] + centre @ plane[:ATTRIBUTIONS])
            self.paces[k] = np.concatenate([centre, plane[:ATTRIBUTIONS], [level]])
        if not attributions:
            self.paces[:] = 0.0

    def of(self, tasks: Sequence[Task]) -> Belief:
        """What is believed of tasks by what was measured of each."""
        n = len(tasks)
        kinds = np.array([task.kind_index for task in tasks], dtype=np.int64)
        states, speed, known = np.zeros((n, ATTRIBUTIONS)), np.zeros(n), np.zeros(n, dtype=np.int64)
        unsure: dict[int, FloatArray] = {}
        for i, task in enumerate(tasks):
            vector = task.attribution
            if vector is not None and vector.state is not None and np.any(vector.state):
                states[i] = vector.state
                known[i] |= ATTRIBUTED
                if vector.state_covariance is not None:
                    unsure[i] = vector.state_covariance
            if task.samples_per_s > 0.0:
                speed[i] = np.log(task.samples_per_s * self._sample_s[kinds[i]])
                known[i] |= PACED
        known &= self.reads
        features, left = self._weighed(kinds, known, _features(states, speed), unsure)
        mean = np.einsum("nf,nfj->nj", features, self.slopes[kinds, known])
        roots = self.roots[kinds, known]
        for i, more in left.items():
            slopes = self.slopes[kinds[i], known[i], :-1]
            roots[i] = _root(roots[i] @ roots[i].T + slopes.T @ more @ slopes)
        states = np.tanh(features[:, :ATTRIBUTIONS]) if left else states
        pace = self._paces(kinds, np.where((known & ATTRIBUTED)[:, None] > 0, states, 0.0).astype(np.float32))
        return Belief(np.clip(mean, -WIDEST_LOG, WIDEST_LOG), roots, pace)

    def log_factors(
        self,
        kinds: IntArray,
        states: FloatArray,
        samples_per_s: FloatArray,
        unsure: Mapping[int, FloatArray] = MappingProxyType({}),
    ) -> FloatArray:
        """Logarithms ``(n, 3)`` of compute, memory and host time of tasks over nominal, as believed.

        Args:
            kinds: Kind of each, shape ``(n,)``.
            states: Attributions, all zeros where nothing was measured, shape ``(n, 7)``.
            samples_per_s: Measured throughput, 0 where there is none, shape ``(n,)``.
            unsure: Row → covariance of its attributions' error, where counters were not read.
        """
        paced = samples_per_s > 0.0
        speed = np.where(paced, np.log(np.maximum(samples_per_s, 1e-12) * self._sample_s[kinds]), 0.0)
        known = (ATTRIBUTED * states.any(axis=1) | PACED * paced) & self.reads
        features, _ = self._weighed(kinds, known, _features(states, speed), unsure)
        found = np.einsum("nf,nfj->nj", features, self.slopes[kinds, known, :, :3])
        return np.asarray(np.clip(found, -WIDEST_LOG, WIDEST_LOG))

    def _weighed(
        self, kinds: IntArray, known: IntArray, features: FloatArray, unsure: Mapping[int, FloatArray]
    ) -> tuple[FloatArray, dict[int, FloatArray]]:
        """Features as far as they are believed, and row → covariance ``(8, 8)`` of what that leaves open."""
        left: dict[int, FloatArray] = {}
        for i, covariance in unsure.items():
            if not known[i] & ATTRIBUTED:
                continue
            n = ATTRIBUTIONS + bool(known[i] & PACED)
            centre, spread = self.centres[kinds[i], :n], self.spreads[kinds[i], :n, :n]
            blur, apart = np.zeros((n, n)), features[i, :n] - centre
            unread = _unbounded_covariance(np.tanh(features[i, :ATTRIBUTIONS]), covariance)
            # Where the covariance says no error at all the estimate would be believed without bound.
            blur[:ATTRIBUTIONS, :ATTRIBUTIONS] = unread + UNTOLD * np.diag(np.diag(unread))
            floor = FLOOR * np.diag(np.maximum(np.diag(spread), FLOOR))
            for _ in range(WIDENINGS):
                solved = np.linalg.solve(spread + blur + floor, np.column_stack([spread, apart]))
                farther = float(apart @ solved[:, -1]) / n
                if farther <= 1.0:
                    break
                blur *= farther
            gain = solved[:, :-1].T
            features[i, :n] = centre + gain @ apart
            left[i] = np.zeros((ATTRIBUTIONS + 1, ATTRIBUTIONS + 1))
            left[i][:n, :n] = spread - gain @ spread
        return features, left

    def _paces(self, kinds: IntArray, states: Float32Array) -> FloatArray:
        return np.array([log_pace(self.paces[k], state) for k, state in zip(kinds, states, strict=True)], dtype=float)


class AttributionBeliefs(DemandBeliefs):
    """What is believed of the tasks of a world, and of those that may come.

    Args:
        world: Whose kinds and law of tasks.
        attributor: As for :class:`DemandBeliefs`.
        pace: Whether the measured throughput is read.
        attributions: Whether attributions are read.

    Attributes:
        pool_states: Attributions of those that may come, shape ``(n, 7)``.
    """

    def __init__(self, world: World, attributor: Attributor, *, pace: bool = True, attributions: bool = True) -> None:
        super().__init__(world.kinds, attributor, world.idiosyncrasy, pace=pace, attributions=attributions)
        pool = law_pool(world)
        inputs = np.array([kind.model.layers[0].input_elements for kind in world.kinds], dtype=np.float64)
        working = working_shares(world.kinds, pool.kinds, pool.counters.values)
        self.pool = pool_rows(pool.kinds, pool.steps, pool.demands.factors, pool.demands.ratio[:, 3], inputs, working)
        self.pool_states: FloatArray = np.asarray(attributor(pool.counters.values), dtype=np.float64)
        states = self.pool_states
        speed = np.log(throughput(pool.demands, self._rng) * self._sample_s[pool.kinds])
        known = np.full(len(pool), self.reads)
        mean = np.einsum("nf,nfj->nj", _features(states, speed), self.slopes[pool.kinds, known])
        pace_read = self._paces(pool.kinds, states.astype(np.float32))
        told = np.column_stack([pace_read, np.clip(mean[:, :3], -WIDEST_LOG, WIDEST_LOG)])
        self.pool_believed: FloatArray = with_history(told, world, pool.tenants)


def _nominal_sample_s(model: Model, training: bool) -> float:
    nominal, seconds = nominal_demands(model, training=training)
    return float(sample_time_s(Demands(nominal[None], nominal[None], seconds[None]))[0])


def _features(states: FloatArray, speed: FloatArray) -> FloatArray:
    unbounded = np.arctanh(np.clip(states, -_EDGE, _EDGE))
    return np.column_stack([unbounded, speed, np.ones(len(speed))])


def _unbounded_covariance(state: FloatArray, covariance: FloatArray) -> FloatArray:
    """Covariance of the attributions before the bounding tanh, by its secant over one standard error to each side."""
    error = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    high, low = np.clip(state + error, -_EDGE, _EDGE), np.clip(state - error, -_EDGE, _EDGE)
    slope = (np.arctanh(high) - np.arctanh(low)) / (2.0 * error)
    return np.asarray(covariance * np.outer(slope, slope))


def _root(covariance: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.cholesky(covariance + FLOOR * np.diag(np.maximum(np.diag(covariance), FLOOR))))


def _fit(features: FloatArray, logs: FloatArray, known: int) -> tuple[FloatArray, FloatArray]:
    """Slopes ``(9, 4)`` of what is known, zeros elsewhere, and the root of the errors' covariance."""
    used = [*(range(ATTRIBUTIONS) if known & ATTRIBUTED else ()), *([ATTRIBUTIONS] if known & PACED else ())]
    slopes = np.zeros((features.shape[1], logs.shape[1]))
    x = features[:, used]
    centre, middle = x.mean(axis=0), logs.mean(axis=0)
    apart = x - centre
    gram = apart.T @ apart
    gram += RIDGE * np.diag(np.maximum(np.diag(gram), 1e-9))
    found = np.linalg.solve(gram, apart.T @ (logs - middle)) if used else np.zeros((0, logs.shape[1]))
    slopes[used] = found
    slopes[-1] = middle - centre @ found
    return slopes, covariance_root(logs - features @ slopes)
