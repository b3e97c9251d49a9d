"""A light recurrent predictor: one gated recurrent unit, shared by all links, over a window of readings.

Every reading gives four numbers, see :func:`features`. The state after the last of them, together with the horizon,
goes through one hidden layer to the mean and the standard deviation, both relative to the last reading, so that
untrained it is persistence. It is written in numpy: asking it loads no deep-learning library. Training is in
``research.gru_training``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched import storage
from attribution_sched.errors import CheckpointError, NetworkError, problem
from attribution_sched.scheduler.predictor.forecast import (
    Forecast,
    between_domains,
    checked_base,
    checked_horizon,
    checked_links,
    checked_time,
    follows,
    no_reading,
)
from attribution_sched.types import FloatArray

KIND = "link-gru"
SHIPPED = Path(__file__).with_name("link_gru.safetensors")
"""The weights that come with the package."""

INPUTS = 4
"""Numbers per reading, see :func:`attribution_sched.scheduler.predictor.gru.features`."""

HORIZON_INPUTS = 3
"""Numbers that tell the head how far ahead to look."""

LIMITS = {"hidden": 1024, "window": 1024, "longest_s": 7 * 86_400}
"""Larger networks are not read: a file of a few bytes must not be able to ask for all memory."""


@dataclass(frozen=True)
class GruSize:
    """Size of the network.

    Attributes:
        hidden: Width of the recurrent state and of the head.
        window: How many readings it looks back.
        longest_s: Longest horizon it was trained on.
    """

    hidden: int = 32
    window: int = 24
    longest_s: int = 7200


@dataclass(frozen=True, eq=False)
class GruWeights:
    """Size, arrays by name, and how they were made.

    Attributes:
        size: Size of the network.
        arrays: The names of :func:`shapes` → float32 arrays.
        made: How the weights were made, ready for JSON.
    """

    size: GruSize
    arrays: Mapping[str, NDArray[np.float32]]
    made: Mapping[str, Any]


def shapes(size: GruSize) -> dict[str, tuple[int, ...]]:
    """Name every array of a network with its shape; gates are stacked as reset, update, new."""
    h = size.hidden
    return {
        "gru.weight_ih_l0": (3 * h, INPUTS),
        "gru.weight_hh_l0": (3 * h, h),
        "gru.bias_ih_l0": (3 * h,),
        "gru.bias_hh_l0": (3 * h,),
        "head.weight": (h, h + INPUTS + HORIZON_INPUTS),
        "head.bias": (h,),
        "out.weight": (2, h),
        "out.bias": (2,),
    }


def save(weights: GruWeights, path: str | Path) -> None:
    """Write weights, complete or not at all."""
    storage.write(path, KIND, {"size": asdict(weights.size), "made": dict(weights.made)}, dict(weights.arrays))


def load(path: str | Path = SHIPPED) -> GruWeights:
    """Read weights back, refusing anything but exactly what was written.

    Raises:
        CheckpointError: If a file is missing, was changed, or is of another version or shape.
    """
    header, arrays = storage.read(path, KIND)
    size = GruSize(**storage.expected_sizes(path, header.get("size"), LIMITS))
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    if found != shapes(size) or any(array.dtype != np.float32 for array in arrays.values()):
        rule = f"must hold float32 arrays of the shapes {shapes(size)}"
        raise CheckpointError(problem("checkpoint arrays", found, rule, "Train and save with this release"))
    made = header.get("made")
    if not isinstance(made, dict):
        raise CheckpointError(problem("checkpoint made", made, "must say how it was made", "Train and save again"))
    return GruWeights(size, arrays, made)


Float32 = NDArray[np.float32]

USUAL_STEP_S = 300.0
USUAL_HORIZON_S = 1800.0
MEAN_UNIT = 0.3
"""Log ratio of the forecast to the last reading when the network answers 1."""
STD_AT_ZERO = 0.1
"""Standard deviation relative to the last reading when the network answers 0."""


def features(share: FloatArray, step_s: FloatArray, base_known: FloatArray) -> Float32:
    """Describe readings to the network.

    Args:
        share: Bandwidth relative to the base, or to the first reading of the window if the base is not known, shape
            ``(readings, links)``.
        step_s: Seconds since the reading before, same shape; the first is not used.
        base_known: 1 where the base is known, shape ``(links,)``.

    Returns:
        Shape ``(readings, links, 4)``: deviation, log change, log step, base known.
    """
    logs = np.log(np.maximum(share, 1e-4))
    change = np.diff(logs, axis=0, prepend=logs[:1])
    step = np.log(np.maximum(step_s, 1.0) / USUAL_STEP_S)
    step[0] = 0.0
    known = np.broadcast_to(base_known, share.shape)
    parts = (np.clip(4.0 * (share - 1.0), -4.0, 8.0), np.clip(4.0 * change, -8.0, 8.0), np.clip(step, -3.0, 3.0), known)
    return np.stack(parts, axis=-1).astype(np.float32)


def horizon_features(horizon_s: ArrayLike) -> Float32:
    """Describe a horizon: its logarithm and what a fast and a slow process keep over it, last axis of 3."""
    ahead = np.asarray(horizon_s, dtype=np.float64) / USUAL_HORIZON_S
    parts = (np.log(np.maximum(ahead, 1e-2)), np.exp(-2.0 * ahead), np.exp(-0.5 * ahead))
    return np.stack(parts, axis=-1).astype(np.float32)


def recur(weights: GruWeights, inputs: Float32, valid: NDArray[np.bool_]) -> Float32:
    """Run the recurrent unit; readings that are not valid leave the state alone.

    Args:
        weights: The network.
        inputs: Shape ``(readings, links, 4)``.
        valid: Shape ``(readings, links)``.

    Returns:
        The last state, shape ``(links, hidden)``.
    """
    arrays, h = weights.arrays, weights.size.hidden
    state = np.zeros((inputs.shape[1], h), np.float32)
    into = inputs @ arrays["gru.weight_ih_l0"].T + arrays["gru.bias_ih_l0"]
    turn = np.ascontiguousarray(arrays["gru.weight_hh_l0"].T)
    for at in range(inputs.shape[0]):
        if not valid[at].any():
            continue
        loop = state @ turn + arrays["gru.bias_hh_l0"]
        gates = _sigmoid(into[at, :, : 2 * h] + loop[:, : 2 * h])
        new = np.tanh(into[at, :, 2 * h :] + gates[:, :h] * loop[:, 2 * h :])
        after = new + gates[:, h:] * (state - new)
        state = after if valid[at].all() else np.where(valid[at][:, None], after, state)
    return state


def answer(weights: GruWeights, state: Float32, last: Float32, horizon_s: float) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation relative to the last reading, each of shape ``(links,)``.

    Args:
        weights: The network.
        state: From :func:`recur`.
        last: Features of the last reading, shape ``(links, 4)``.
        horizon_s: How far ahead.
    """
    arrays = weights.arrays
    ahead = np.broadcast_to(horizon_features(horizon_s), (state.shape[0], 3))
    hidden = np.tanh(np.concatenate([state, last, ahead], axis=1) @ arrays["head.weight"].T + arrays["head.bias"])
    out = (hidden @ arrays["out.weight"].T + arrays["out.bias"]).astype(np.float64)
    return np.exp(MEAN_UNIT * out[:, 0]), STD_AT_ZERO * np.exp(out[:, 1])


class GruPredictor:
    """Forecasts every link by the same recurrent network.

    Args:
        weights: The network, or the file that holds it; the one of the package if not given.
        base_gbps: Base bandwidth, shape ``(K, K)`` or that of the readings. Without it a link is seen relative to
            the first reading of the window.
        names: The K domains, for messages.
    """

    name = "gru"

    def __init__(
        self,
        weights: GruWeights | str | Path = SHIPPED,
        base_gbps: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.weights = weights if isinstance(weights, GruWeights) else load(weights)
        self.names = names
        self._base = None if base_gbps is None else checked_links(base_gbps, names)
        self.reset()

    def reset(self) -> None:
        """Forget every reading."""
        self._readings: FloatArray | None = None
        self._times_s: FloatArray = np.asarray(-math.inf)
        self._encoded: tuple[Float32, Float32] | None = None

    def observe(self, time_s: ArrayLike, bandwidth_gbps: ArrayLike) -> None:
        """Read all links, see :class:`~attribution_sched.scheduler.predictor.forecast.LinkPredictor`."""
        links = checked_links(bandwidth_gbps, self.names)
        window = self.weights.size.window
        if self._readings is None:
            checked_base(self._base, links)
            times = checked_time(time_s, -math.inf, links)
            self._readings = np.ones((window, *links.shape))
            self._times_s = np.full((window, *times.shape), -math.inf)
        else:
            follows(links, self._readings[-1])
            times = checked_time(time_s, self._times_s[-1], links)
        moved = np.asarray(times > self._times_s[-1])
        readings = np.concatenate([self._readings[1:], links[None]])
        all_times = np.concatenate([self._times_s[1:], times[None]])
        self._readings = readings if moved.all() else np.where(moved, readings, self._readings)
        self._times_s = all_times if moved.all() else np.where(moved, all_times, self._times_s)
        self._encoded = None

    def forecast(self, horizon_s: float) -> Forecast:
        """Forecast all links, see :class:`~attribution_sched.scheduler.predictor.forecast.LinkPredictor`.

        Raises:
            NetworkError: Also if the horizon is longer than any the network was trained on.
        """
        if self._readings is None:
            raise no_reading()
        horizon_s = checked_horizon(horizon_s)
        longest_s = self.weights.size.longest_s
        if horizon_s > longest_s:
            rule = f"must be <= {longest_s} for this network, which never looked further"
            raise NetworkError(problem("horizon_s", horizon_s, rule, "Ask for less, or use the Kalman predictor"))
        if self._encoded is None:
            self._encoded = self._encode(self._readings)
        last = self._readings[-1]
        between = between_domains(last)
        ratio, std = answer(self.weights, *self._encoded, horizon_s)
        mean_gbps, std_gbps = last.copy(), np.zeros(last.shape)
        mean_gbps[..., between] *= ratio.reshape(mean_gbps[..., between].shape)
        std_gbps[..., between] = last[..., between] * std.reshape(mean_gbps[..., between].shape)
        return Forecast(mean_gbps, std_gbps, horizon_s, self.name)

    def _encode(self, readings: FloatArray) -> tuple[Float32, Float32]:
        """Run the window of all links through the recurrent unit."""
        between = between_domains(readings)
        values = readings[..., between].reshape(readings.shape[0], -1)
        times = np.broadcast_to(
            self._times_s.reshape((*self._times_s.shape, *(1,) * (readings.ndim - self._times_s.ndim))), readings.shape
        )
        times = times[..., between].reshape(values.shape)
        valid = np.isfinite(times)
        first = np.argmax(valid, axis=0)
        base = checked_base(self._base, readings[-1])
        if base is None:
            reference = np.take_along_axis(values, first[None], axis=0)[0]
        else:
            reference = base[..., between].reshape(-1)
        # Slots before the first reading repeat it, so that it shows no change, and its own step is the usual one.
        held = np.where(valid, values, np.take_along_axis(values, first[None], axis=0))
        step_s = np.diff(np.where(valid, times, 0.0), axis=0, prepend=0.0)
        step_s = np.where(np.arange(len(times))[:, None] <= first, USUAL_STEP_S, step_s)
        known = np.full(values.shape[1], 0.0 if base is None else 1.0)
        inputs = features(held / reference, step_s, known)
        return recur(self.weights, inputs, valid), inputs[-1]


def _sigmoid(x: Float32) -> Float32:
    # Through tanh, which does not overflow.
    return np.asarray(0.5 * np.tanh(0.5 * x) + 0.5, dtype=np.float32)
