"""Forecast bandwidth as an input of the upper agent: a Kalman filter in every cluster at once, or any behind a view."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.wan import Wan
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.scheduler.predictor.kalman import (
    KalmanPredictor,
    LinkPredictor,
    PersistencePredictor,
)
from attribution_sched.types import FloatArray

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
