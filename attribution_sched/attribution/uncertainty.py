"""Model error of conditional values: what would another sample of rows, or another family, have said?

The chosen model is fitted again on resampled rows, and the runner-up families stand beside it. With phi the answer of
the chosen model and phi_b those of the others,

    variance = sampling + mean_b (phi_b - phi)^2 over refits + sum_r w_r (phi_r - phi)^2 over rivals,

where a rival weighs less the clearer it lost on held-out rows. Networks are not refitted: each of their ensemble was
trained without another fold of the rows, which makes them a delete-a-group jackknife.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.base import Conditional, FloatArray, State, pick
from attribution_sched.attribution.conditionals.catalogue import restore


@dataclass(frozen=True)
class Uncertainty:
    """Models beside the chosen one.

    Attributes:
        models: Refits and rivals.
        weights: Weight of each one's squared difference in the variance.
        refits: How many of them are refits, which come first.
    """

    models: tuple[Conditional, ...] = ()
    weights: tuple[float, ...] = ()
    refits: int = 0

    @classmethod
    def of(
        cls,
        model: Any,
        x: FloatArray,
        bootstrap: int,
        rivals: Sequence[tuple[Conditional, float]],
        rng: np.random.Generator,
    ) -> Uncertainty:
        """Refit ``model`` on ``bootstrap`` samples of the standardised rows x."""
        if bootstrap == 0:
            return cls()
        models: list[Conditional] = []
        weights: list[float] = []
        if hasattr(model, "twins") and model.networks:
            models = model.twins()
            # Delete-a-group jackknife: (g - 1) / g times the sum of squares.
            weights = [(len(models) - 1) / len(models)] * len(models)
        elif hasattr(model, "refit") or (hasattr(model, "twins") and hasattr(model.proposal, "refit")):
            inner = model if hasattr(model, "refit") else model.proposal
            models = [inner.refit(x[rng.integers(0, len(x), len(x))], rng) for _ in range(bootstrap)]
            weights = [1.0 / bootstrap] * bootstrap
        refits = len(models)
        models += [m for m, _ in rivals]
        weights += [w for _, w in rivals]
        return cls(tuple(models), tuple(weights), refits)

    def total(
        self, sampling: FloatArray, degrees: int, phi: FloatArray, solve: Callable[[Conditional], FloatArray]
    ) -> tuple[FloatArray, float]:
        """Standard errors of all kinds together, and the degrees of freedom of their interval.

        Args:
            sampling: (n, d) variance of the sampling error.
            degrees: Its degrees of freedom.
            phi: (n, d) values of the chosen model, under the points that ``solve`` uses.
            solve: Values (n, d) of another model.
        """
        if not self.models:
            return np.sqrt(sampling), float(degrees)
        refit, rival = np.zeros_like(phi), np.zeros_like(phi)
        for i, (model, weight) in enumerate(zip(self.models, self.weights, strict=True)):
            part = refit if i < self.refits else rival
            part += weight * np.square(solve(model) - phi)
        variance = sampling + refit + rival
        # Satterthwaite, over all cells: what the shares of the kinds of error are worth together.
        shares = [
            (float(sampling.mean()), degrees),
            (float(refit.mean()), max(self.refits, 1)),
            (float(rival.mean()), 4),
        ]
        total = sum(v for v, _ in shares)
        worth = sum(v * v / k for v, k in shares)
        return np.sqrt(variance), float(total * total / worth) if worth > 0 else float(degrees)

    def header(self) -> list[dict[str, Any]]:
        """What restores the models, beside :meth:`arrays`."""
        return [
            {"kind": model.kind, "settings": model.state()[0], "weight": weight, "refit": i < self.refits}
            for i, (model, weight) in enumerate(zip(self.models, self.weights, strict=True))
        ]

    def arrays(self) -> State:
        """Arrays of all models."""
        return {f"beside{i}.{key}": v for i, m in enumerate(self.models) for key, v in m.state()[1].items()}

    @classmethod
    def restore(cls, header: Sequence[dict[str, Any]], arrays: State) -> Uncertainty:
        """Build the models back; files from before there were any have none."""
        models = tuple(restore(h["kind"], h["settings"], pick(arrays, f"beside{i}.")) for i, h in enumerate(header))
        return cls(models, tuple(float(h["weight"]) for h in header), sum(bool(h["refit"]) for h in header))
