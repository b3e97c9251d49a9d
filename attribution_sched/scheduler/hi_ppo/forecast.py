"""Forecast bandwidth as an input of the upper agent: a Kalman filter in every cluster at once, or any behind a view."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.wan import Wan
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.scheduler.predictor.base import LinkPredictor, PersistencePredictor
from attribution_sched.scheduler.predictor.kalman import (
    KalmanPredictor,
    kalman_forecast,
    kalman_restart,
    kalman_start,
    kalman_update,
)
from attribution_sched.types import BoolArray, FloatArray

HORIZON_S = 1800.0
"""How far ahead the upper agent is told: about as long as a network state lasts."""


class BatchForecast:
    """Follows the links of all clusters of an engine.

    Args:
        engine: The clusters.
        horizon_s: How far ahead.
    """

    def __init__(self, engine: Engine, horizon_s: float = HORIZON_S) -> None:
        self._engine = engine
        self._horizon_s = horizon_s
        wan: Wan = engine.world.cluster.wan
        self._params = KalmanPredictor.of_network(wan).params
        e, k = engine.clusters, len(engine.world.cluster)
        self._outside = ~np.eye(k, dtype=np.bool_)
        base = np.where(self._outside, wan.bandwidth_gbps, 1.0)
        self._state = kalman_start(self._params, (e, k, k), np.broadcast_to(base, (e, k, k)), (e, 1, 1))

    def restart(self, clusters: BoolArray) -> None:
        """Forget what was read of clusters that begin a new episode."""
        self._state = kalman_restart(self._state, self._params, clusters[:, None, None])

    def change(self) -> FloatArray:
        """Read the links of the moment; returns the expected bandwidth over that of now, shape ``(E, K, K)``."""
        state = self._engine.state
        gbps = np.where(self._outside, state.links[:, 1] / BYTES_PER_GBIT, 1.0)
        # A copy: the filter keeps the times, and the clock of the engine runs on in place.
        time_s = state.clock[:, st.LAST_TICK, None, None].copy()
        self._state = kalman_update(self._state, self._params, time_s, gbps)
        mean, _ = kalman_forecast(self._state, self._params, self._horizon_s)
        return np.where(self._outside, np.maximum(mean, 0.0) / gbps, 1.0)


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
