"""Forecasts of link bandwidth: what all have in common, the baseline, the Kalman filter, and the door policies use.

The bandwidth is read relative to a reference: ``B / reference − 1 = level + deviation + noise``.

- The *deviation* is an Ornstein–Uhlenbeck process: over a step Δ it keeps the share ``a = e^(−θΔ)`` and gains variance
  ``s²(1 − a²)``, the exact law, so steps may be unequal.
- The *level* is a slow random walk, of variance ``q²Δ``: where the link settles, relative to the reference.
- A reading further than ``gate`` standard deviations from what was expected is a *jump*: a cut, a detour, a repair. If
  the base of the link would explain it, the reference is the base again. Otherwise the reference is moved so that the
  deviation goes on as it was, and the level around it is taken as unknown. A link that is cut stays cut in the
  forecast until a reading says otherwise.

With the base known, no noise and no drift the forecast is exactly the conditional mean of the process. When a cut will
end the readings do not tell; who knows how long repairs take may say so, and the forecast of a link below its base
becomes a mixture of staying there and being back.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.wan import DEFAULT_REVERSION_PER_S, DEFAULT_SPREAD, LinkFailures, Wan
from attribution_sched.errors import NetworkError, SettingsError, nearest, problem
from attribution_sched.types import FloatArray

# ------ What every forecast of link bandwidth has in common: the protocol, its record, the checks; and the baseline
#
# A predictor reads the bandwidth of all links at moments of its caller's choosing, usually the ticks of the network,
# and is asked for the bandwidth a horizon later: ``B̂_ij(t + Δ) = f(B_ij(t − w : t))``. Links inside a domain (the
# diagonal) do not fluctuate; their forecast is their last value, with certainty.


@dataclass(frozen=True, eq=False)
class Forecast:
    """The bandwidth of every link a while after the last reading.

    Attributes:
        mean_gbps: Expected bandwidth, shape ``(..., K, K)``, source then destination, Gb/s.
        std_gbps: Standard deviation of what will be found, same shape, Gb/s; 0 on the diagonal.
        horizon_s: Seconds from the last reading to the moment that is forecast.
        method: Name of the predictor.
    """

    mean_gbps: FloatArray
    std_gbps: FloatArray
    horizon_s: float
    method: str

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        self.mean_gbps.setflags(write=False)
        self.std_gbps.setflags(write=False)


class LinkPredictor(Protocol):
    """Forecasts the bandwidth of every link of one cluster or of a batch of them."""

    @property
    def name(self) -> str:
        """Short name of the method."""
        ...

    def reset(self) -> None:
        """Forget every reading, as at the start of an episode."""
        ...

    def observe(self, time_s: ArrayLike, bandwidth_gbps: ArrayLike) -> None:
        """Read all links.

        Args:
            time_s: When, never before the reading before it; a number, or one per cluster of a batch. A cluster
                that is read twice at the same time keeps its first reading.
            bandwidth_gbps: Shape ``(..., K, K)``, the same for every reading.

        Raises:
            NetworkError: If a figure is not finite and positive, or shape or time do not follow the last reading.
        """
        ...

    def forecast(self, horizon_s: float) -> Forecast:
        """Forecast all links ``horizon_s`` seconds after the last reading.

        Raises:
            NetworkError: If nothing was read yet, or the horizon is negative or not finite.
        """
        ...


def checked_links(bandwidth_gbps: ArrayLike, names: Sequence[str] | None = None) -> FloatArray:
    """Return bandwidth as an array of shape ``(..., K, K)``, or name the first link whose figure is wrong."""
    links = np.asarray(bandwidth_gbps, dtype=np.float64)
    if links.ndim < 2 or links.shape[-1] != links.shape[-2] or links.size == 0:
        rule = "must be (..., K, K), source then destination"
        raise NetworkError(problem("bandwidth_gbps.shape", links.shape, rule, "Give one square matrix per cluster"))
    # A NaN makes the smallest value NaN, so one pass clears the usual case.
    lowest = links.min()
    if lowest > 0 and links.max() < math.inf:
        return links
    inside = np.eye(links.shape[-1], dtype=bool)
    wrong = ~(np.isfinite(links) & ((links > 0) | (inside & (links == 0))))
    if wrong.any():
        at = tuple(int(index) for index in np.argwhere(wrong)[0])
        i, j = (str(index) if names is None else names[index] for index in at[-2:])
        where = f"cluster {at[0] if len(at) == 3 else at[:-2]}, " if len(at) > 2 else ""
        fix = "Write a dead link as a small number such as 0.001, and leave out readings that failed"
        field = f"bandwidth_gbps[{where}{i} → {j}]"
        raise NetworkError(problem(field, float(links[at]), "must be a finite number > 0", fix))
    return links


def checked_time(time_s: ArrayLike, last_s: FloatArray | float, links: FloatArray) -> FloatArray:
    """Return the time of a reading, a number or shaped like the batch with two axes more for the links.

    Raises:
        NetworkError: If it is not finite, of another shape, or before the last reading.
    """
    times = np.asarray(time_s, dtype=np.float64)
    if times.shape not in ((), links.shape[:-2]):
        rule = f"must be one number, or one per cluster, {links.shape[:-2]}"
        raise NetworkError(problem("time_s.shape", times.shape, rule, "Give the time at which the links were read"))
    if not np.all(np.isfinite(times)):
        raise NetworkError(problem("time_s", time_s, "must be finite", "Give the seconds since the episode began"))
    times = times[..., None, None] if times.ndim else times
    earlier = np.asarray(times < last_s)
    if earlier.any():
        rule = f"must not lie before the last reading, {float(np.max(last_s)):g}"
        raise NetworkError(problem("time_s", float(np.min(times)), rule, "Call reset() where a new episode begins"))
    return times


def no_reading() -> NetworkError:
    """Build the error of a forecast before the first reading."""
    fix = "Call observe(time_s, bandwidth_gbps) first"
    return NetworkError(problem("readings", 0, "a forecast needs at least one", fix))


def checked_horizon(horizon_s: float) -> float:
    """Return a horizon, or say what is wrong with it."""
    if not (math.isfinite(horizon_s) and horizon_s >= 0):
        fix = "Give the seconds to look ahead"
        raise NetworkError(problem("horizon_s", horizon_s, "must be finite and >= 0", fix))
    return float(horizon_s)


def checked_base(base_gbps: ArrayLike | None, links: FloatArray) -> FloatArray | None:
    """Return the base bandwidth fitted to the shape of the readings, ``None`` where it is not known."""
    if base_gbps is None:
        return None
    base = checked_links(base_gbps)
    try:
        return np.broadcast_to(base, links.shape)
    except ValueError:
        rule = f"must fit the readings, {links.shape}"
        fix = "Give the base bandwidth of the same domains"
        raise NetworkError(problem("base_gbps.shape", base.shape, rule, fix)) from None


def follows(links: FloatArray, before: FloatArray | None) -> None:
    """Refuse a reading of another shape than the one before it."""
    if before is not None and links.shape != before.shape:
        rule = f"must stay {before.shape}, the shape of the reading before"
        fix = "Call reset() where another cluster begins"
        raise NetworkError(problem("bandwidth_gbps.shape", links.shape, rule, fix))


def between_domains(links: FloatArray) -> NDArray[np.bool_]:
    """Mark the links that fluctuate, shape ``(K, K)``: all but the diagonal."""
    return ~np.eye(links.shape[-1], dtype=bool)


PRIOR_VOLATILITY = DEFAULT_SPREAD * math.sqrt(2.0 * DEFAULT_REVERSION_PER_S)
"""Relative volatility per square root of a second before anything was seen: that of the network's default motion."""


class PersistencePredictor:
    """Forecasts the last value of every link.

    A constant forecast is that of a random walk, so its standard deviation grows with the square root of the horizon;
    the volatility is the mean square of the changes seen on the link so far, with the prior as one more change.

    Args:
        names: The K domains, for messages.
    """

    name = "persistence"

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self.names = names
        self.reset()

    def reset(self) -> None:
        """Forget every reading."""
        self._last: FloatArray | None = None
        self._time_s: FloatArray = np.asarray(-math.inf)
        self._squares: FloatArray = np.zeros(())
        self._changes: FloatArray = np.zeros(())

    def observe(self, time_s: ArrayLike, bandwidth_gbps: ArrayLike) -> None:
        """Read all links, see :class:`~attribution_sched.scheduler.predictor.forecast.LinkPredictor`."""
        links = checked_links(bandwidth_gbps, self.names)
        follows(links, self._last)
        times = checked_time(time_s, self._time_s, links)
        if self._last is None:
            self._squares = (PRIOR_VOLATILITY * links) ** 2
            self._changes = np.ones(times.shape)
            self._last = links.copy()
        else:
            step_s = times - self._time_s
            moved = step_s > 0
            change = np.where(moved, links - self._last, 0.0)
            self._squares = self._squares + change * change / np.where(moved, step_s, 1.0)
            self._changes = self._changes + moved
            self._last = np.where(moved, links, self._last)
        self._time_s = times

    def forecast(self, horizon_s: float) -> Forecast:
        """Forecast all links, see :class:`~attribution_sched.scheduler.predictor.forecast.LinkPredictor`."""
        if self._last is None:
            raise no_reading()
        horizon_s = checked_horizon(horizon_s)
        std = np.sqrt(self._squares / self._changes * horizon_s)
        return Forecast(self._last.copy(), np.where(between_domains(std), std, 0.0), horizon_s, self.name)


# ------ A Kalman filter of every link: pure functions of its state, for one link or any array of them

UNKNOWN_LEVEL = 1.0
"""Standard deviation of a level of which nothing is known, relative to the reference."""

LEAST_SHARE = 0.01
"""A forecast is never below this share of the reference: bandwidth is positive, the Gaussian is not."""


@dataclass(frozen=True)
class KalmanParams:
    """How links move, the same for all of them.

    Attributes:
        reversion_per_s: Rate θ at which a deviation is forgotten, 1/s.
        spread: Stationary standard deviation s of the deviation, relative to the level.
        noise: Standard deviation of a reading around the truth, relative to the level.
        drift_per_sqrt_s: Standard deviation q that the level gains per square root of a second.
        gate: Standard deviations from which on a reading is a jump; infinity for never.
        repair_s: Mean seconds until a link that jumped below its base is back there; infinity foresees no repair.
        failures: The law by which links fail, where it is known; None for jumps of any size.
    """

    reversion_per_s: float = DEFAULT_REVERSION_PER_S
    spread: float = DEFAULT_SPREAD
    noise: float = 0.0
    drift_per_sqrt_s: float = 0.0
    gate: float = 4.5
    repair_s: float = math.inf
    failures: LinkFailures | None = None

    def __post_init__(self) -> None:
        """Check every figure."""
        for name, positive in (
            ("reversion_per_s", True),
            ("spread", True),
            ("noise", False),
            ("drift_per_sqrt_s", False),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and (value > 0 or (value == 0 and not positive))):
                rule = f"must be finite and {'>' if positive else '>='} 0"
                raise NetworkError(problem(name, value, rule, "Give the figure of the network, or fit a recording"))
        if not self.gate > 0:
            raise NetworkError(problem("gate", self.gate, "must be > 0", "Use infinity to never take a jump"))
        if not self.repair_s > 0:
            raise NetworkError(problem("repair_s", self.repair_s, "must be > 0", "Use infinity to foresee no repair"))


class KalmanState(NamedTuple):
    """What the filter knows; all arrays have the shape of the links, except ``time_s``.

    Attributes:
        base_gbps: Base bandwidth; NaN where it is not known.
        reference_gbps: What level and deviation are relative to; NaN before the first reading of an unknown base.
        level: Mean of the level.
        deviation: Mean of the deviation.
        level_var: Variance of the level.
        deviation_var: Variance of the deviation.
        covariance: Covariance of the two.
        time_s: Time of the last reading, of a shape that broadcasts to the links; −infinity before the first.
    """

    base_gbps: FloatArray
    reference_gbps: FloatArray
    level: FloatArray
    deviation: FloatArray
    level_var: FloatArray
    deviation_var: FloatArray
    covariance: FloatArray
    time_s: FloatArray


class KalmanStep(NamedTuple):
    """An update with what the reading told.

    Attributes:
        state: The state after it.
        innovation: Reading minus expectation, relative to the reference; after the move where it was a jump.
        innovation_var: Its variance.
        jumped: Where the reading was a jump.
    """

    state: KalmanState
    innovation: FloatArray
    innovation_var: FloatArray
    jumped: NDArray[np.bool_]


def kalman_start(
    params: KalmanParams, shape: tuple[int, ...], base_gbps: ArrayLike | None = None, time_shape: tuple[int, ...] = ()
) -> KalmanState:
    """Build the state before any reading.

    Args:
        params: How links move.
        shape: Shape of the links, for example ``(clusters, K, K)``.
        base_gbps: Base bandwidth, broadcastable to ``shape``; ``None`` or NaN where it is not known.
        time_shape: Shape of the times, for example ``(clusters, 1, 1)`` where every cluster has its own clock.
    """
    base = np.broadcast_to(np.asarray(math.nan if base_gbps is None else base_gbps, dtype=np.float64), shape)
    zero = np.zeros(shape)
    spread_var = np.full(shape, params.spread**2)
    return KalmanState(base, base, zero, zero, zero, spread_var, zero, np.full(time_shape, -math.inf))


def kalman_update(
    state: KalmanState, params: KalmanParams, time_s: ArrayLike, bandwidth_gbps: FloatArray
) -> KalmanState:
    """Take a reading in. Nothing is checked but the order of times; see :class:`KalmanPredictor` for the rest.

    Args:
        state: What was known; it is left as it is.
        params: How links move.
        time_s: Time of the reading, of a shape that broadcasts to the links. Links whose time has not moved on keep
            their state.
        bandwidth_gbps: What was read, of the shape of the links, all > 0.
    """
    return kalman_step(state, params, time_s, bandwidth_gbps).state


def kalman_step(state: KalmanState, params: KalmanParams, time_s: ArrayLike, bandwidth_gbps: FloatArray) -> KalmanStep:
    """As :func:`kalman_update`, with the innovation."""
    times = np.asarray(time_s, dtype=np.float64)
    step_s = times - state.time_s
    if step_s.min() < 0:
        rule = "must not lie before the last reading"
        raise NetworkError(problem("time_s", float(times.min()), rule, "Restart the clusters that begin an episode"))
    decay = np.exp(-params.reversion_per_s * step_s)
    gained = params.spread**2 * -np.expm1(-2.0 * params.reversion_per_s * step_s)
    level, level_var = state.level, state.level_var
    if params.drift_per_sqrt_s > 0:
        # A first reading follows no other: the level has not drifted since.
        level_var = level_var + params.drift_per_sqrt_s**2 * np.where(np.isinf(step_s), 0.0, step_s)
    deviation = state.deviation * decay
    deviation_var = state.deviation_var * (decay * decay) + gained
    covariance = state.covariance * decay
    noise_var = params.noise**2
    reference = state.reference_gbps

    innovation = bandwidth_gbps / reference - 1.0 - level - deviation
    innovation_var = level_var + deviation_var + 2.0 * covariance + noise_var
    still = step_s == 0.0
    if still.any():
        innovation_var = np.where(still, 1.0, innovation_var)
        innovation = np.where(still, 0.0, innovation)
    # Written so that the NaN of a link without reference counts as a jump.
    jumped = ~(innovation * innovation <= params.gate**2 * innovation_var)
    if jumped.any():
        back = bandwidth_gbps / state.base_gbps - 1.0 - deviation
        healed = jumped & (back * back <= params.gate**2 * (deviation_var + noise_var))
        moved = bandwidth_gbps / np.maximum(1.0 + deviation, LEAST_SHARE)
        reference = np.where(healed, state.base_gbps, np.where(jumped, moved, reference))
        level = np.where(jumped, 0.0, level)
        level_var = np.where(healed, 0.0, np.where(jumped, UNKNOWN_LEVEL**2, level_var))
        covariance = np.where(jumped, 0.0, covariance)
        innovation = np.where(jumped, bandwidth_gbps / reference - 1.0 - deviation, innovation)
        innovation_var = np.where(jumped, level_var + deviation_var + noise_var, innovation_var)

    level_cov = level_var + covariance
    deviation_cov = deviation_var + covariance
    level_gain = level_cov / innovation_var
    deviation_gain = deviation_cov / innovation_var
    after = KalmanState(
        state.base_gbps,
        reference,
        level + level_gain * innovation,
        deviation + deviation_gain * innovation,
        np.maximum(level_var - level_gain * level_cov, 0.0),
        np.maximum(deviation_var - deviation_gain * deviation_cov, 0.0),
        covariance - level_gain * deviation_cov,
        np.broadcast_to(times, step_s.shape),
    )
    if still.any():
        kept = (np.where(still, old, new) for old, new in zip(state, after, strict=True))
        after = KalmanState(*kept)
    return KalmanStep(after, innovation, innovation_var, jumped)


def kalman_forecast(state: KalmanState, params: KalmanParams, horizon_s: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of the bandwidth in Gb/s, ``horizon_s`` after the last reading.

    Args:
        state: What is known, after at least one reading or with a known base.
        params: How links move.
        horizon_s: A number, or an array that broadcasts to the links.
    """
    ahead_s = np.asarray(horizon_s, dtype=np.float64)
    decay = np.exp(-params.reversion_per_s * ahead_s)
    gained = (
        params.spread**2 * -np.expm1(-2.0 * params.reversion_per_s * ahead_s) + params.drift_per_sqrt_s**2 * ahead_s
    )
    share = 1.0 + state.level + decay * state.deviation
    var = state.level_var + decay * (decay * state.deviation_var + 2.0 * state.covariance) + gained
    mean: FloatArray = state.reference_gbps * np.maximum(share, LEAST_SHARE)
    std: FloatArray = state.reference_gbps * np.sqrt(np.maximum(var, 0.0))
    if math.isfinite(params.repair_s):
        base = state.base_gbps
        below = state.reference_gbps < base
        back = np.where(below, -np.expm1(-ahead_s / params.repair_s), 0.0)
        gap = np.where(below, base - mean, 0.0)
        mended_std = np.where(below, params.spread * base, 0.0)
        std = np.sqrt((1.0 - back) * std**2 + back * mended_std**2 + back * (1.0 - back) * gap**2)
        mean = mean + back * gap
    return mean, std


class KalmanPredictor:
    """Forecasts every link on its own by a Kalman filter that follows jumps of its level.

    Args:
        params: How links move.
        base_gbps: Base bandwidth, shape ``(K, K)`` or that of the readings. Without it the level of a link is
            learnt from its readings, which takes a few times ``1/θ``.
        names: The K domains, for messages.
    """

    name = "kalman"

    def __init__(
        self,
        params: KalmanParams | None = None,
        base_gbps: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.params = KalmanParams() if params is None else params
        self.names = names
        self._base = None if base_gbps is None else checked_links(base_gbps, names)
        self._state: KalmanState | None = None
        self._last: FloatArray | None = None

    @classmethod
    def of_network(cls, wan: Wan) -> KalmanPredictor:
        """Build the predictor of a network whose motion is known, as in a simulated world."""
        params = KalmanParams(wan.reversion_per_s, max(wan.spread, 1e-6), failures=wan.failures)
        return cls(params, wan.bandwidth_gbps, wan.names)

    @property
    def state(self) -> KalmanState | None:
        """What the filter knows; ``None`` before the first reading."""
        return self._state

    def reset(self) -> None:
        """Forget every reading."""
        self._state = self._last = None

    def memory(self) -> dict[str, FloatArray]:
        """What it knows, as arrays by name; empty before the first reading."""
        if self._state is None or self._last is None:
            return {}
        return {"last": self._last, **{f"state.{name}": array for name, array in self._state._asdict().items()}}

    def recall(self, memory: Mapping[str, FloatArray]) -> None:
        """Know again what :meth:`memory` told."""
        self._last = memory["last"]
        self._state = KalmanState(**{name: memory[f"state.{name}"] for name in KalmanState._fields})

    def observe(self, time_s: ArrayLike, bandwidth_gbps: ArrayLike) -> None:
        """Read all links, see :class:`~attribution_sched.scheduler.predictor.forecast.LinkPredictor`."""
        links = checked_links(bandwidth_gbps, self.names)
        follows(links, self._last)
        state = self._state
        times = checked_time(time_s, -np.inf if state is None else state.time_s, links)
        if state is None:
            base = checked_base(self._base, links)
            base = None if base is None else _inside_one(base)
            state = kalman_start(self.params, links.shape, base, times.shape)
        moved = times > state.time_s
        # A detour carries a share of what the link would: the filter goes on as if it had never failed.
        whole = links / np.where(self._failed(links), self.params.failures.left, 1.0) if self.params.failures else links
        self._state = kalman_update(state, self.params, times, _inside_one(whole))
        self._last = links.copy() if self._last is None else np.where(moved, links, self._last)

    def _failed(self, links: FloatArray) -> NDArray[np.bool_]:
        """Which links read like a detour's share of their base, and nothing like it whole."""
        base, law = checked_base(self._base, links), self.params.failures
        if base is None or law is None:
            return np.zeros(links.shape, dtype=np.bool_)
        share = links / np.where(base > 0.0, base, 1.0)
        like = (share < math.sqrt(law.left)) & (share <= law.left * (1.0 + self.params.gate * self.params.spread))
        return np.asarray(like & between_domains(links))

    def forecast(self, horizon_s: float) -> Forecast:
        """Forecast all links, see :class:`~attribution_sched.scheduler.predictor.forecast.LinkPredictor`."""
        if self._state is None or self._last is None:
            raise no_reading()
        horizon_s = checked_horizon(horizon_s)
        mean, std = kalman_forecast(self._state, self.params, horizon_s)
        last, between = self._last, between_domains(self._last)
        if self.params.failures is not None:
            mean, std = _with_failures(mean, std, self._failed(last), self.params.failures, horizon_s)
        return Forecast(np.where(between, mean, last), np.where(between, std, 0.0), horizon_s, self.name)


def _with_failures(
    mean: FloatArray, std: FloatArray, failed: NDArray[np.bool_], law: LinkFailures, horizon_s: float
) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of what a link carries that may be down by then: a mixture of up and down."""
    from_up, from_down = law.down_after(horizon_s)
    down = np.where(failed, from_down, from_up)
    mixed = mean * (1.0 - down * (1.0 - law.left))
    square = (mean**2 + std**2) * (1.0 - down * (1.0 - law.left**2))
    return mixed, np.sqrt(np.maximum(square - mixed**2, 0.0))


def _inside_one(links: FloatArray) -> FloatArray:
    """Write 1 on the diagonal, which is not filtered and may hold 0."""
    return np.where(between_domains(links), links, 1.0)


# ------ Forecast bandwidth as an input of the upper agent: a Kalman filter in every cluster at once, or any behind a
# view

HORIZON_S = 1800.0
"""How far ahead the upper agent is told: about as long as a network state lasts."""


METHODS: tuple[str, ...] = ("kalman", "gru", "persistence")
"""Who may forecast links: the filter that fits their motion, the recurrent network, or their last reading."""


def link_predictor(method: str, wan: Wan) -> LinkPredictor:
    """Make a predictor of the links of a network.

    Raises:
        SettingsError: If there is no such method.
    """
    checked_method(method)
    if method == "kalman":
        return KalmanPredictor.of_network(wan)
    if method == "gru":
        from attribution_sched.scheduler.predictor.gru import GruPredictor

        return GruPredictor(base_gbps=wan.bandwidth_gbps)
    return PersistencePredictor()


def checked_method(method: str) -> str:
    """The name of a method.

    Raises:
        SettingsError: If there is no such method.
    """
    if method not in METHODS:
        raise SettingsError(problem("predict", method, f"must be one of {METHODS}", nearest(method, METHODS)))
    return method


class ViewForecast:
    """Follows the links that views tell of.

    Args:
        wan: The network.
        horizon_s: How far ahead.
        method: Who forecasts, one of :data:`METHODS`.
    """

    def __init__(self, wan: Wan, horizon_s: float = HORIZON_S, method: str = "kalman") -> None:
        self._predictor = link_predictor(method, wan)
        self._horizon_s = horizon_s
        self._last_s = -np.inf
        self._ahead: FloatArray | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> ViewForecast:
        """A forecast of its own: a reading makes a new state of the filter and leaves the old one as it is."""
        other = copy.copy(self)
        other._predictor = copy.copy(self._predictor)
        return other

    def memory(self) -> dict[str, FloatArray]:
        """What it knows of the links, as arrays; empty before the first reading, or if its predictor cannot say."""
        known = self._predictor
        if not isinstance(known, KalmanPredictor) or known.state is None:
            return {}
        return {"last_s": np.array([self._last_s]), **known.memory()}

    def recall(self, memory: Mapping[str, FloatArray]) -> None:
        """Know again what :meth:`memory` told."""
        if isinstance(self._predictor, KalmanPredictor):
            self._predictor.recall(memory)
            self._ahead = None
            self._last_s = float(memory["last_s"][0])

    def knows(self, view: Decision) -> bool:
        """Whether the links of a decision are those it read last, so that forecasting changes nothing it knows."""
        return view.link_gbps is None or (view.link_time_s == self._last_s and self._ahead is not None)

    def gbps(self, view: Decision) -> FloatArray | None:
        """Bandwidth expected to be left for the task; None if nobody measures the links."""
        if view.link_gbps is None:
            return None
        if view.link_time_s < self._last_s:
            self._predictor.reset()
        if view.link_time_s != self._last_s:
            self._predictor.observe(view.link_time_s, view.link_gbps)
            self._last_s, self._ahead = view.link_time_s, None
        # A moment is looked at several times: to choose a task, to plan it, to remember it.
        ahead = self._ahead
        if ahead is None:
            ahead = self._ahead = self._predictor.forecast(self._horizon_s).mean_gbps
        inside = np.eye(len(ahead), dtype=np.bool_)
        change = np.where(inside, 1.0, np.maximum(ahead, 0.0) / np.where(inside, 1.0, view.link_gbps))
        return view.bandwidth_gbps * change
