"""Training of the recurrent predictor on simulated links, with torch.

The loss is the continuous ranked probability score of the Gaussian forecast: like a likelihood it asks for a sound
standard deviation, but the few links that jump do not drown the many that wander. Every reading of a window is an
origin, so the network learns to forecast from short histories too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attribution_sched.scheduler.predictor.gru import (
    MEAN_UNIT,
    STD_AT_ZERO,
    GruSize,
    GruWeights,
    features,
    horizon_features,
    shapes,
)
from research.link_paths import PathRange, draw_paths, draw_readings

if TYPE_CHECKING:
    import torch

CELL_S = 150.0
"""Grid on which paths are drawn: half a tick of the network."""


@dataclass(frozen=True)
class GruTraining:
    """How to train.

    Attributes:
        steps: Updates of the weights.
        batch: Paths per update, each drawn afresh.
        origins: Readings per path from which forecasts are made, drawn anew in every update.
        learning_rate: Of Adam at the start; it falls to a hundredth along a cosine.
        known_share: Share of the paths whose base is known.
        seed: Of everything random.
        paths: From where paths are drawn.
    """

    steps: int = 4000
    batch: int = 384
    origins: int = 12
    learning_rate: float = 5e-3
    known_share: float = 0.7
    seed: int = 0
    paths: PathRange = field(default_factory=PathRange)


@dataclass(frozen=True, eq=False)
class Batch:
    """Windows of readings and what came after.

    Attributes:
        inputs: Shape ``(readings, paths, 4)``.
        origin: Which readings forecasts are made from, shape ``(origins, paths)``.
        horizon_s: How far ahead, same shape.
        last: The reading at the origin, relative to the base, same shape.
        target: What came, relative to the base, same shape.
    """

    inputs: NDArray[np.float32]
    origin: NDArray[np.int64]
    horizon_s: NDArray[np.float64]
    last: NDArray[np.float64]
    target: NDArray[np.float64]


def draw_batch(rng: np.random.Generator, size: GruSize, training: GruTraining) -> Batch:
    """Draw paths, readings, origins and horizons."""
    ahead = int(size.longest_s / CELL_S)
    span = 4 * size.window
    paths = draw_paths(rng, training.batch, span + ahead, CELL_S, training.paths)
    at, values = draw_readings(rng, paths[:, :span], size.window, training.paths)
    known = rng.random(training.batch) < training.known_share
    reference = np.where(known, 1.0, values[:, 0])
    step_s = np.diff(at, axis=1, prepend=at[:, :1]) * CELL_S
    inputs = features((values / reference[:, None]).T, step_s.T, known.astype(np.float64))
    shape = (training.origins, training.batch)
    origin = rng.integers(size.window, size=shape)
    cells = np.rint(np.exp(rng.uniform(0.0, math.log(ahead), shape))).astype(np.int64)
    then = np.take_along_axis(at.T, origin, axis=0) + cells
    return Batch(
        inputs,
        origin,
        np.asarray(cells * CELL_S, np.float64),
        np.take_along_axis(values.T, origin, axis=0),
        np.take_along_axis(paths.T, then, axis=0),
    )


def first_arrays(size: GruSize, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Draw the weights to start from; the last layer is small, so that the first forecast is persistence."""
    bound = 1.0 / math.sqrt(size.hidden)
    arrays = {name: rng.uniform(-bound, bound, shape).astype(np.float32) for name, shape in shapes(size).items()}
    arrays["out.weight"] *= np.float32(0.1)
    arrays["out.bias"][:] = 0.0
    return arrays


def loss_of(parameters: dict[str, torch.Tensor], batch: Batch) -> torch.Tensor:
    """Mean continuous ranked probability score of a batch, relative to the base of each link."""
    import torch

    inputs = torch.from_numpy(batch.inputs)
    unit = [value for name, value in parameters.items() if name.startswith("gru.")]
    start = inputs.new_zeros(1, inputs.shape[1], unit[1].shape[1])
    states, _ = torch.gru(inputs, start, unit, True, 1, 0.0, True, False, False)
    paths = torch.arange(inputs.shape[1])
    origin = torch.from_numpy(batch.origin)
    ahead = torch.from_numpy(horizon_features(batch.horizon_s))
    joined = torch.cat([states[origin, paths], inputs[origin, paths], ahead], dim=-1)
    hidden = torch.tanh(torch.nn.functional.linear(joined, parameters["head.weight"], parameters["head.bias"]))
    out = torch.nn.functional.linear(hidden, parameters["out.weight"], parameters["out.bias"])
    last = torch.from_numpy(batch.last.astype(np.float32))
    target = torch.from_numpy(batch.target.astype(np.float32))
    mean = last * torch.exp(MEAN_UNIT * out[..., 0])
    std = last * STD_AT_ZERO * torch.exp(out[..., 1].clamp(-6.0, 4.0))
    z = (target - mean) / std
    density = torch.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    crps = std * (z * torch.erf(z / math.sqrt(2.0)) + 2.0 * density - 1.0 / math.sqrt(math.pi))
    return crps.mean()


def train(
    size: GruSize | None = None,
    training: GruTraining | None = None,
    report: Callable[[int, float], None] | None = None,
) -> GruWeights:
    """Train a network; the same settings give the same weights on the same machine.

    Args:
        size: Size of the network.
        training: How to train.
        report: Called every hundred updates with their number and the mean loss since the last call.
    """
    from attribution_sched.kernels import one_thread

    with one_thread():
        return _train(size or GruSize(), training or GruTraining(), report)


def _train(size: GruSize, training: GruTraining, report: Callable[[int, float], None] | None) -> GruWeights:
    import torch

    rng = np.random.default_rng(training.seed)
    arrays = first_arrays(size, rng)
    parameters = {name: torch.from_numpy(array).requires_grad_() for name, array in arrays.items()}
    adam = torch.optim.Adam(list(parameters.values()), lr=training.learning_rate)
    losses: list[float] = []
    for step in range(training.steps):
        share = 0.5 * (1.0 + math.cos(math.pi * step / training.steps))
        for group in adam.param_groups:
            group["lr"] = training.learning_rate * (0.01 + 0.99 * share)
        loss = loss_of(parameters, draw_batch(rng, size, training))
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(parameters.values()), 0.5)
        adam.step()
        losses.append(float(loss.detach()))
        if report is not None and (step + 1) % 100 == 0:
            report(step + 1, float(np.mean(losses[-100:])))
    final = {name: value.detach().numpy().copy() for name, value in parameters.items()}
    made = {"training": asdict(training), "loss": round(float(np.mean(losses[-100:])), 5)}
    return GruWeights(size, final, made)
