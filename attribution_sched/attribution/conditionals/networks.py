"""Small torch helpers shared by the network models: seeded layers, one thread, arrays in and out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from attribution_sched.attribution.conditionals.algebra import condition
from attribution_sched.attribution.conditionals.base import State
from attribution_sched.attribution.progress import Tick, silent
from attribution_sched.types import BoolArray, FloatArray


def generator(rng: np.random.Generator) -> torch.Generator:
    """A torch generator seeded from a numpy one, so the global torch state is never touched."""
    return torch.Generator().manual_seed(int(rng.integers(2**62)))


def linear(n_in: int, n_out: int, g: torch.Generator, gain: float = 1.0) -> nn.Linear:
    """A linear layer whose start comes from ``g``; ``gain`` below one makes it start near zero."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)  # type: ignore[no-untyped-call]
    bound = gain / n_in**0.5
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=g)
        layer.bias.uniform_(-bound, bound, generator=g)
    return layer


def mlp(sizes: Sequence[int], g: torch.Generator, last_gain: float = 1.0) -> nn.Sequential:
    """Linear layers with SiLU between them."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        last = i == len(sizes) - 2
        layers.append(linear(a, b, g, last_gain if last else 1.7))
        if not last:
            layers.append(nn.SiLU(inplace=True))
    return nn.Sequential(*layers)


def tensor(x: FloatArray) -> Tensor:
    """Float32 tensor of an array."""
    return torch.as_tensor(np.ascontiguousarray(x), dtype=torch.float32)


def cosine_rate(step: int, steps: int, rate: float, warm: int = 50) -> float:
    """Learning rate with a linear warm-up and a cosine decay to zero."""
    return rate * min(1.0, (step + 1) / warm) * (0.5 + 0.5 * float(np.cos(np.pi * step / steps)))


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all groups."""
    for group in optimiser.param_groups:
        group["lr"] = rate


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, decay: float) -> None:
    """Move the running average of the weights toward the trained ones."""
    for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
        a.lerp_(b, 1.0 - decay)


def weights_of(module: nn.Module, prefix: str = "") -> State:
    """Parameters as float32 arrays."""
    return {prefix + name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def load_weights(module: nn.Module, arrays: State) -> None:
    """Put saved parameters back."""
    module.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in arrays.items()})


__all__ = [
    "Tick",
    "cosine_rate",
    "follow",
    "generator",
    "linear",
    "load_weights",
    "mlp",
    "set_rate",
    "silent",
    "tensor",
    "weights_of",
]


# ------ Linear (Gaussian) predictions of every hidden feature from every observed set, looked up by mask

LIMIT = 8192
"""Masks kept before the table starts afresh; all of them up to 13 features."""


class LinearTable:
    """Cache of conditional regressions for zero-mean, standardised features.

    Args:
        covariance: (d, d) covariance of the features.
    """

    def __init__(self, covariance: FloatArray) -> None:
        self.covariance = covariance
        d = len(covariance)
        self._index: dict[bytes, int] = {}
        self.gain = torch.empty((0, d, d))
        self.spread = torch.empty((0, d))

    def codes(self, masks: BoolArray) -> Tensor:
        """Positions of masks (n, d) in the table, which grows by those it has not met."""
        if len(self._index) > LIMIT:
            self._index, self.gain, self.spread = {}, self.gain[:0], self.spread[:0]
        keys = [row.tobytes() for row in np.ascontiguousarray(masks)]
        fresh = {key: mask for key, mask in zip(keys, masks, strict=True) if key not in self._index}
        if fresh:
            rows = np.stack(list(fresh.values()))
            parts = condition(self.covariance[None], rows)
            spread = np.sqrt(np.square(parts.factor[0]).sum(-1)) + rows
            for key in fresh:
                self._index[key] = len(self._index)
            self.gain = torch.cat([self.gain, torch.as_tensor(parts.gain[0], dtype=torch.float32)])
            self.spread = torch.cat([self.spread, torch.as_tensor(spread, dtype=torch.float32)])
        return torch.as_tensor([self._index[key] for key in keys])
