"""What a plan must not do, as numbers a learner can use: penalties, multipliers, a deadline and a measure of stability.

Memory is not here: a plan that does not fit is masked and can never be chosen. The rest is soft. Each constraint has a
*violation* g, positive where it is broken; a learner maximises ``R − Σ_c λ_c g_c``, and the multipliers λ rise as long
as violations stay positive on average.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.cluster.cost import BYTES_PER_GB
from attribution_sched.errors import CheckpointError, ModelFitError, NetworkError, SettingsError, problem

FloatArray = NDArray[np.float64]

COORDINATION_LIMIT_S = 2.0
"""Longest time from the upper agent's choice to the last lower agent's."""


def big_m_penalty(
    traffic_bytes: ArrayLike, bandwidth_gbps: ArrayLike, threshold_gbps: ArrayLike, m_per_gb: float
) -> FloatArray:
    """Penalise traffic over links that are too narrow: ``Σ_{i≠j: B_ij < threshold} M · D_ij``.

    Args:
        traffic_bytes: Bytes a step sends from i to j, D, shape ``(..., K, K)``; the diagonals are not read.
        bandwidth_gbps: Bandwidth of the links, B, shape ``(..., K, K)``.
        threshold_gbps: Bandwidth below which a link should not be used: one for all, or one per link.
        m_per_gb: Penalty of a gigabyte (1e9 bytes), M.

    Returns:
        Shape ``(...)``; 0 where no narrow link carries anything.
    """
    traffic, bandwidth, threshold = np.broadcast_arrays(
        np.asarray(traffic_bytes, dtype=float),
        np.asarray(bandwidth_gbps, dtype=float),
        np.asarray(threshold_gbps, dtype=float),
    )
    if traffic.ndim < 2 or traffic.shape[-1] != traffic.shape[-2]:
        raise NetworkError(problem("traffic_bytes", traffic.shape, "must end in (K, K)", "Give one number per link"))
    if not (math.isfinite(m_per_gb) and m_per_gb >= 0):
        raise SettingsError(problem("m_per_gb", m_per_gb, "must be finite and >= 0", "Use 0 for no penalty"))
    between = ~np.eye(traffic.shape[-1], dtype=bool)
    carried = np.where(between, traffic, 0.0)
    if not (np.isfinite(carried).all() and (carried >= 0).all()):
        wrong = carried[~(np.isfinite(carried) & (carried >= 0))][0]
        raise NetworkError(problem("traffic_bytes", float(wrong), "must be finite and >= 0", "Repair the plan's cost"))
    if np.isnan(bandwidth[..., between]).any() or np.isnan(threshold).any():
        raise NetworkError(problem("bandwidth_gbps", math.nan, "must be a number", "Give 0 for a link that is cut"))
    narrow = bandwidth < threshold
    total: FloatArray = m_per_gb / BYTES_PER_GB * np.sum(np.where(narrow, carried, 0.0), axis=(-2, -1))
    return total


@dataclass(frozen=True)
class Imbalance:
    """How unevenly the domains in use are loaded; every array has the leading shape of the input.

    Attributes:
        variance: Variance of the compute times over their squared mean: the penalty, free of units.
        spread: ``(max − min) / mean`` of the compute times.
        violation: How far the spread lies above what is allowed; 0 where it does not.
    """

    variance: FloatArray
    spread: FloatArray
    violation: FloatArray


def imbalance(compute_s: ArrayLike, used: ArrayLike, delta: float = 0.5) -> Imbalance:
    """Compare the load of the domains in use.

    Args:
        compute_s: Compute time of a step per domain, shape ``(..., P)``.
        used: Which domains the plan uses, bool, shape ``(..., P)``; the others do not count.
        delta: Largest spread allowed, δ.

    Returns:
        All zeros where fewer than two domains are used or nothing is computed.
    """
    load, counted = np.broadcast_arrays(np.asarray(compute_s, dtype=float), np.asarray(used, dtype=bool))
    if load.ndim < 1:
        raise ModelFitError(problem("compute_s", load.shape, "must end in (P,)", "Give one number per domain"))
    if not delta >= 0:
        raise SettingsError(problem("delta", delta, "must be >= 0", "Use 0.5 for a spread of half the mean"))
    inside = np.where(counted, load, 0.0)
    if not (np.isfinite(inside).all() and (inside >= 0).all()):
        wrong = inside[~(np.isfinite(inside) & (inside >= 0))][0]
        raise ModelFitError(problem("compute_s", float(wrong), "must be finite and >= 0", "Repair the plan's cost"))
    number = np.maximum(counted.sum(axis=-1), 1)
    mean = inside.sum(axis=-1) / number
    scale = np.where(mean > 0, mean, 1.0)
    relative = inside / scale[..., None]
    centred = np.where(counted, relative - (mean / scale)[..., None], 0.0)
    variance = np.sum(centred**2, axis=-1) / number
    most = np.max(relative, axis=-1, where=counted, initial=0.0)
    least = np.min(relative, axis=-1, where=counted, initial=np.inf)
    spread = np.where(np.isfinite(least), most - least, 0.0)
    return Imbalance(variance, spread, np.maximum(spread - delta, 0.0))


def progress_stability(steps_done: ArrayLike, steps_lost: ArrayLike) -> FloatArray:
    """Share of the work done that was kept, ``1 − lost / done``.

    Under a load that swings by ±20 % at least 0.99 of it should be.

    Args:
        steps_done: Steps worked, lost ones included, as the clusters count ``steps_done``.
        steps_lost: Steps of these that had to be done again after a task lost its devices.

    Returns:
        A share in [0, 1]; NaN where nothing was done, because then nothing was shown.
    """
    done, lost = np.broadcast_arrays(np.asarray(steps_done, dtype=float), np.asarray(steps_lost, dtype=float))
    if not ((lost >= 0) & (lost <= done) & np.isfinite(done)).all():
        rule, fix = "must be finite with 0 <= lost <= done", "Count lost steps as done, too"
        raise ModelFitError(problem("steps_lost, steps_done", (lost.tolist(), done.tolist()), rule, fix))
    share: FloatArray = np.where(done > 0, 1.0 - lost / np.where(done > 0, done, 1.0), np.nan)
    return share


@dataclass(frozen=True)
class DualAscent:
    """How multipliers follow violations.

    Attributes:
        rate: Step of the projected gradient ascent: how much a multiplier gains per unit of violation and update.
        proportional: Added per unit of violation now; damps the swings of plain ascent.
        derivative: Added per unit by which the violation has grown since the last update.
        cap: Largest multiplier; one constraint that cannot be met must not drown the reward.
        delay: Updates to sit out at first, while a policy that knows nothing yet breaks everything.
    """

    rate: float = 0.05
    proportional: float = 0.0
    derivative: float = 0.0
    cap: float = 100.0
    delay: int = 0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value >= 0):
                fix = "Use a non-negative number"
                raise SettingsError(problem(f"dual.{name}", value, "must be finite and >= 0", fix))


@dataclass(frozen=True)
class Multipliers:
    """Lagrange multipliers at one moment of training; an update returns the next ones and changes nothing here.

    With violation g the rule is, clipped to [0, cap] in both lines::

        I ← I + rate · g
        λ = I + proportional · g + derivative · max(0, g − g_before)

    which is plain projected dual ascent unless the last two gains are set. The step is proportional to the violation.
    An optimiser that rescales gradients, as Adam does, would move a lone number by about its learning rate however
    small or large the violation is, and never settle.

    Attributes:
        names: Constraints, in order.
        values: λ, one per constraint.
        integrals: I, one per constraint.
        before: Last violation measured, None where there was none yet.
        updates: Updates so far.
        rule: How they move.
    """

    names: tuple[str, ...]
    values: tuple[float, ...]
    integrals: tuple[float, ...]
    before: tuple[float | None, ...]
    updates: int = 0
    rule: DualAscent = DualAscent()

    def __post_init__(self) -> None:
        n = len(self.names)
        if len(set(self.names)) < n or {len(self.values), len(self.integrals), len(self.before)} != {n}:
            lengths = (self.names, len(self.values), len(self.integrals), len(self.before))
            fix = "Use Multipliers.start"
            raise SettingsError(problem("multipliers", lengths, "must be one per constraint, named once", fix))
        for name, value in zip(self.names * 2, self.values + self.integrals, strict=True):
            if not 0 <= value <= self.rule.cap:
                fix = "Raise the cap or lower the multiplier"
                raise SettingsError(problem(f"multiplier {name}", value, f"must be in [0, {self.rule.cap}]", fix))

    @classmethod
    def start(cls, names: Sequence[str], rule: DualAscent | None = None, value: float = 0.0) -> Multipliers:
        """Multipliers before the first update.

        Args:
            names: Constraints.
            rule: How they move.
            value: What they start from.
        """
        n = len(names)
        return cls(tuple(names), (float(value),) * n, (float(value),) * n, (None,) * n, 0, rule or DualAscent())

    def update(self, violations: Mapping[str, float | None] | ArrayLike | None) -> Multipliers:
        """Return the multipliers after one more batch of experience.

        Args:
            violations: Mean violation per constraint, by name or in order: what was measured minus what is allowed.
                None, for all or for one, means that nothing was measured, for instance because no episode has
                finished yet: such a multiplier keeps its value.
        """
        measured = self._in_order(violations)
        if self.updates < self.rule.delay:
            return replace(self, before=self._latest(measured), updates=self.updates + 1)
        values, integrals = list(self.values), list(self.integrals)
        for c, g in enumerate(measured):
            if g is None:
                continue
            last = self.before[c]
            growth = 0.0 if last is None else max(0.0, g - last)
            integrals[c] = self._clip(integrals[c] + self.rule.rate * g)
            values[c] = self._clip(integrals[c] + self.rule.proportional * g + self.rule.derivative * growth)
        return replace(
            self,
            values=tuple(values),
            integrals=tuple(integrals),
            before=self._latest(measured),
            updates=self.updates + 1,
        )

    def penalised(self, rewards: ArrayLike, violations: Mapping[str, ArrayLike] | ArrayLike) -> FloatArray:
        """Return ``rewards − Σ_c λ_c g_c``.

        Args:
            rewards: Shape ``(...)``.
            violations: g of every reward, arrays of that shape by name or one array ``(..., n_constraints)``.
        """
        base = np.asarray(rewards, dtype=float)
        if isinstance(violations, Mapping):
            self._check_names(violations)
            g = np.stack([np.broadcast_to(np.asarray(violations[n], float), base.shape) for n in self.names], axis=-1)
        else:
            g = np.asarray(violations, dtype=float)
        if g.shape != (*base.shape, len(self.names)):
            fix = "Give one number per reward and constraint"
            raise ModelFitError(problem("violations", g.shape, f"must be {(*base.shape, len(self.names))}", fix))
        result: FloatArray = base - g @ np.asarray(self.values)
        return result

    def to_record(self) -> dict[str, Any]:
        """Plain numbers and names, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Multipliers:
        """Restore what :meth:`to_record` wrote, also after a trip through JSON."""
        try:
            return cls(
                names=tuple(str(name) for name in record["names"]),
                values=tuple(float(v) for v in record["values"]),
                integrals=tuple(float(v) for v in record["integrals"]),
                before=tuple(None if v is None else float(v) for v in record["before"]),
                updates=int(record["updates"]),
                rule=DualAscent(**record["rule"]),
            )
        except (KeyError, TypeError, ValueError, SettingsError) as error:
            rule = f"is not a record of multipliers ({type(error).__name__}: {error})"
            raise CheckpointError(problem("multipliers", record, rule, "Use a file written by this version")) from error

    def _clip(self, value: float) -> float:
        return min(max(value, 0.0), self.rule.cap)

    def _latest(self, measured: Sequence[float | None]) -> tuple[float | None, ...]:
        return tuple(last if g is None else g for g, last in zip(measured, self.before, strict=True))

    def _check_names(self, given: Mapping[str, Any]) -> None:
        if set(given) != set(self.names):
            fix = "Give None for what was not measured"
            raise ModelFitError(problem("violations", sorted(given), f"must name {sorted(self.names)}", fix))

    def _in_order(self, violations: Mapping[str, float | None] | ArrayLike | None) -> list[float | None]:
        if violations is None:
            return [None] * len(self.names)
        if isinstance(violations, Mapping):
            self._check_names(violations)
            given: list[Any] = [violations[name] for name in self.names]
        else:
            given = list(np.atleast_1d(np.asarray(violations, dtype=object)))
        if len(given) != len(self.names):
            fix = f"Give {', '.join(self.names)} in this order"
            raise ModelFitError(problem("violations", len(given), f"must be {len(self.names)} numbers", fix))
        measured = [None if g is None else float(g) for g in given]
        for name, g in zip(self.names, measured, strict=True):
            if g is not None and not math.isfinite(g):
                fix = "Give None while no episode has finished"
                raise ModelFitError(problem(f"violation of {name}", g, "must be finite", fix))
        return measured


@dataclass(frozen=True)
class Fallback:
    """A decision that was not the learner's.

    Attributes:
        reason: Why, for a person to read.
        policy: Who decided instead.
    """

    reason: str
    policy: str


class Deadline:
    """Time left for the two levels to agree.

    Starts when made and again when entered as a context.

    Args:
        limit_s: Time allowed.
        clock: Seconds that only ever rise.
    """

    def __init__(self, limit_s: float = COORDINATION_LIMIT_S, clock: Callable[[], float] = time.perf_counter) -> None:
        if not limit_s > 0:
            raise SettingsError(problem("deadline.limit_s", limit_s, "must be > 0", "Use infinity for no deadline"))
        self.limit_s = limit_s
        self._clock = clock
        self._start_s = clock()

    def __enter__(self) -> Self:
        self._start_s = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @property
    def elapsed_s(self) -> float:
        """Time since the start."""
        return self._clock() - self._start_s

    @property
    def remaining_s(self) -> float:
        """Time left; never negative."""
        return max(0.0, self.limit_s - self.elapsed_s)

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.elapsed_s >= self.limit_s

    def fallback(self, policy: str, stage: str) -> Fallback | None:
        """Say who must decide because time ran out; None while there is time.

        Args:
            policy: Name of the policy that takes over.
            stage: What was going on, like "lower agents".
        """
        elapsed = self.elapsed_s
        if elapsed < self.limit_s:
            return None
        return Fallback(f"coordination took {elapsed:.3f} s of {self.limit_s:.3f} s allowed, at: {stage}", policy)
