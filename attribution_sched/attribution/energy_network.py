"""A small torch network from counters to energy: a few members that differ in their start, averaged."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.energy_features import CounterFeatures
from attribution_sched.errors import CheckpointError, problem
from attribution_sched.types import FloatArray

WIDTH, MEMBERS, STEPS, LEARNING_RATE, WEIGHT_DECAY = 32, 4, 100, 1e-2, 1e-3
_LAYERS = 3


@dataclass(frozen=True, eq=False)
class NetworkPredictor:
    """Members with two hidden SiLU layers; a standardised target keeps their outputs near one.

    Attributes:
        features: Map from counters to inputs.
        weights: Per layer, ``(members, in, out)``, single precision.
        biases: Per layer, ``(members, 1, out)``.
        target: Mean and standard deviation of the training target.
    """

    features: CounterFeatures
    weights: tuple[NDArray[np.float32], ...]
    biases: tuple[NDArray[np.float32], ...]
    target: FloatArray

    @staticmethod
    def fit(x: FloatArray, y: FloatArray, names: tuple[str, ...], seed: int) -> NetworkPredictor:
        """Fit on counters ``(n, d)`` by AdamW on a Huber loss, in few steps so that time blocks generalise.

        Args:
            x: Counters.
            y: Targets.
            names: Counter names.
            seed: Seed of the starting weights.
        """
        import torch

        features = CounterFeatures.fit(x, names)
        z = torch.from_numpy(features.network(x).astype(np.float32))
        target = np.array([y.mean(), y.std() if y.std() > 0 else 1.0])
        t = torch.from_numpy(((y - target[0]) / target[1]).astype(np.float32))
        rng = np.random.default_rng(seed)
        sizes = (z.shape[1], WIDTH, WIDTH, 1)
        weights: list[Any] = []
        biases: list[Any] = []
        for fan_in, fan_out in itertools.pairwise(sizes):
            bound = 1.0 / np.sqrt(fan_in)
            for store, shape in ((weights, (MEMBERS, fan_in, fan_out)), (biases, (MEMBERS, 1, fan_out))):
                start = rng.uniform(-bound, bound, shape).astype(np.float32)
                store.append(torch.from_numpy(start).requires_grad_())
        optimiser = torch.optim.AdamW([*weights, *biases], lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
        for _ in range(STEPS):
            optimiser.zero_grad()
            output = _forward(z, weights, biases)
            # Sum over members: each is trained as if alone.
            loss = torch.nn.functional.huber_loss(output, t.expand_as(output), delta=0.1) * MEMBERS
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
        best = [tuple(p.detach().numpy().copy() for p in group) for group in (weights, biases)]
        return NetworkPredictor(features, best[0], best[1], target)

    def predict(self, x: FloatArray) -> FloatArray:
        """Predict counters ``(n, d)``."""
        import torch

        z = torch.from_numpy(self.features.network(x).astype(np.float32))
        with torch.no_grad():
            parts = [[torch.from_numpy(a) for a in group] for group in (self.weights, self.biases)]
            output = _forward(z, parts[0], parts[1]).mean(dim=0).numpy().astype(np.float64)
        return np.asarray(output * self.target[1] + self.target[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but the features."""
        named = {f"weight{i}": w for i, w in enumerate(self.weights)}
        named |= {f"bias{i}": b for i, b in enumerate(self.biases)}
        return {**named, "target": self.target}

    @staticmethod
    def from_arrays(features: CounterFeatures, arrays: Mapping[str, NDArray[Any]]) -> NetworkPredictor:
        """Rebuild from `arrays`."""
        weights = tuple(arrays[f"weight{i}"] for i in range(_LAYERS))
        biases = tuple(arrays[f"bias{i}"] for i in range(_LAYERS))
        chain = [len(features.mean), *(w.shape[-1] for w in weights)]
        sound = all(
            w.shape[1:] == (a, b) and c.shape[1:] == (1, b) and len(w) == len(c) == len(weights[0])
            for w, c, a, b in zip(weights, biases, chain[:-1], chain[1:], strict=True)
        )
        if not sound or chain[-1] != 1 or arrays["target"].shape != (2,):
            raise CheckpointError(
                problem("network", chain, "layer shapes do not chain", "The file was tampered with: save again")
            )
        return NetworkPredictor(features, weights, biases, arrays["target"])


def _forward(z: Any, weights: Any, biases: Any) -> Any:
    """All members at once: (n, d) rows to (members, n) outputs."""
    import torch

    h = z.unsqueeze(0)
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = torch.matmul(h, weight) + bias
        if i < len(weights) - 1:
            h = torch.nn.functional.silu(h)
    return h.squeeze(-1)
