"""The Kalman predictor: the filter of :mod:`.kalman_state` behind the protocol, with every reading checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.cluster.wan import Wan
from attribution_sched.scheduler.predictor.base import (
    FloatArray,
    Forecast,
    between_domains,
    checked_base,
    checked_horizon,
    checked_links,
    checked_time,
    follows,
    no_reading,
)
from attribution_sched.scheduler.predictor.kalman_state import (
    KalmanParams,
    KalmanState,
    kalman_forecast,
    kalman_restart,
    kalman_start,
    kalman_step,
    kalman_update,
)

__all__ = [
    "KalmanParams",
    "KalmanPredictor",
    "KalmanState",
    "kalman_forecast",
    "kalman_restart",
    "kalman_start",
    "kalman_step",
    "kalman_update",
]


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
        params = KalmanParams(reversion_per_s=wan.reversion_per_s, spread=max(wan.spread, 1e-6))
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
        """Read all links, see :class:`~attribution_sched.scheduler.predictor.base.LinkPredictor`."""
        links = checked_links(bandwidth_gbps, self.names)
        follows(links, self._last)
        state = self._state
        times = checked_time(time_s, -np.inf if state is None else state.time_s, links)
        if state is None:
            base = checked_base(self._base, links)
            base = None if base is None else _inside_one(base)
            state = kalman_start(self.params, links.shape, base, times.shape)
        moved = times > state.time_s
        self._state = kalman_update(state, self.params, times, _inside_one(links))
        self._last = links.copy() if self._last is None else np.where(moved, links, self._last)

    def forecast(self, horizon_s: float) -> Forecast:
        """Forecast all links, see :class:`~attribution_sched.scheduler.predictor.base.LinkPredictor`."""
        if self._state is None or self._last is None:
            raise no_reading()
        horizon_s = checked_horizon(horizon_s)
        mean, std = kalman_forecast(self._state, self.params, horizon_s)
        last, between = self._last, between_domains(self._last)
        return Forecast(np.where(between, mean, last), np.where(between, std, 0.0), horizon_s, self.name)


def _inside_one(links: FloatArray) -> FloatArray:
    """Write 1 on the diagonal, which is not filtered and may hold 0."""
    return np.where(between_domains(links), links, 1.0)
