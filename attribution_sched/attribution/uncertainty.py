"""Model error of conditional values: what would another sample of rows, or another family, have said?

The chosen model is fitted again on resampled rows, and the runner-up families stand beside it. With phi the answer of
the chosen model and phi_b those of the others,

    variance = sampling + mean_b (phi_b - phi)^2 over refits + sum_r p_r (phi_r - phi)^2 over rivals,

where p_r is the chance that rival r is the better family, by resampling the held-out rows. Networks are not refitted:
each of their ensemble was trained without another of g folds of the rows, a delete-a-group jackknife,

    (g - 1) / g  sum_k (phi_k - mean phi)^2  +  (mean phi - phi)^2,

the last for what was lost in distilling the ensemble. Members also differ by their starts, which the jackknife would
count g times too often: one of them is trained twice, and what the two differ by is taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.conditionals.base import Conditional, State, pick
from attribution_sched.attribution.conditionals.catalogue import restore
from attribution_sched.types import FloatArray

REFIT, FOLD, REPEAT, RIVAL = "refit", "fold", "repeat", "rival"
RIVAL_DEGREES = 4
LEAST_LEFT = 0.2
"""Of a jackknife's variance, what is left at least after chance is taken off."""


@dataclass(frozen=True)
class Uncertainty:
    """Models beside the chosen one.

    Attributes:
        models: Refits or members of an ensemble, a repeated member, rivals.
        roles: What each of them is.
        weights: Weight of each one's squared difference in the variance.
        counts: (refits, n) how often each row was drawn for a refit; empty where none was.
    """

    models: tuple[Conditional, ...] = ()
    roles: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    counts: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.uint8))

    def base(self, index: int, outcomes: FloatArray) -> float:
        """Mean prediction over the rows that one of the models was fitted on."""
        if index >= len(self.counts):
            return float(outcomes.mean())
        count = self.counts[index].astype(np.float64)
        return float(count @ outcomes / count.sum())

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
        beside: list[tuple[Conditional, str, float]] = []
        counts = np.zeros((0, 0), dtype=np.uint8)
        if hasattr(model, "twins") and model.networks:
            members, again = model.twins()
            beside = [(m, FOLD, (len(members) - 1) / len(members)) for m in members]
            beside += [] if again is None else [(again, REPEAT, 0.0)]
        elif hasattr(model, "refit") or (hasattr(model, "twins") and hasattr(model.proposal, "refit")):
            inner = model if hasattr(model, "refit") else model.proposal
            resamples = [rng.integers(0, len(x), len(x)) for _ in range(bootstrap)]
            beside = [(inner.refit(x[rows], rng), REFIT, 1.0 / bootstrap) for rows in resamples]
            counts = np.stack([np.bincount(rows, minlength=len(x)) for rows in resamples]).astype(np.uint8)
        beside += [(m, RIVAL, chance) for m, chance in rivals]
        models, roles, weights = zip(*beside, strict=True) if beside else ((), (), ())
        return cls(tuple(models), tuple(roles), tuple(weights), counts)

    def total(
        self, sampling: FloatArray, degrees: int, phi: FloatArray, solve: Callable[[Conditional, int], FloatArray]
    ) -> tuple[FloatArray, float]:
        """Standard errors of all kinds together, and the degrees of freedom of their interval.

        Args:
            sampling: (n, d) variance of the sampling error.
            degrees: Its degrees of freedom.
            phi: (n, d) values of the chosen model, under the points that ``solve`` uses.
            solve: Values (n, d) of another model, given it and its place among the models.
        """
        if not self.models:
            return np.sqrt(sampling), float(degrees)
        off = np.stack([solve(model, i) - phi for i, model in enumerate(self.models)])
        role, weight = np.array(self.roles), np.array(self.weights)[:, None, None]
        rows = np.isin(role, (REFIT, FOLD))
        refit, rival = _refitted(off, role, weight), (weight * np.square(off))[role == RIVAL].sum(axis=0)
        # Satterthwaite, over all cells: what the shares of the kinds of error are worth together.
        shares = [
            (float(sampling.mean()), degrees),
            (float(refit.mean()), max(int(rows.sum()), 1)),
            (float(rival.mean()), RIVAL_DEGREES),
        ]
        total = sum(v for v, _ in shares)
        worth = sum(v * v / k for v, k in shares)
        return np.sqrt(sampling + refit + rival), float(total * total / worth) if worth > 0 else float(degrees)

    def header(self) -> list[dict[str, Any]]:
        """What restores the models, beside :meth:`arrays`."""
        return [
            {"kind": model.kind, "settings": model.state()[0], "role": role, "weight": weight}
            for model, role, weight in zip(self.models, self.roles, self.weights, strict=True)
        ]

    def arrays(self) -> State:
        """Arrays of all models."""
        named = {f"beside{i}.{key}": v for i, m in enumerate(self.models) for key, v in m.state()[1].items()}
        return {"counts": self.counts, **named} if len(self.counts) else named

    @classmethod
    def restore(cls, header: Sequence[dict[str, Any]], arrays: State) -> Uncertainty:
        """Build the models back; files from before there were any have none."""
        models = tuple(restore(h["kind"], h["settings"], pick(arrays, f"beside{i}.")) for i, h in enumerate(header))
        roles, weights = tuple(str(h["role"]) for h in header), tuple(float(h["weight"]) for h in header)
        return cls(models, roles, weights, arrays.get("counts", np.zeros((0, 0), dtype=np.uint8)))


def _refitted(off: FloatArray, role: NDArray[Any], weight: FloatArray) -> FloatArray:
    """Variance between fits to other rows, (n, d), from differences (models, n, d) to the chosen model."""
    folds = off[role == FOLD]
    if not len(folds):
        return np.asarray((weight * np.square(off))[role == REFIT].sum(axis=0))
    middle = folds.mean(axis=0)
    spread = np.asarray((weight[role == FOLD] * np.square(folds - middle)).sum(axis=0))
    again = off[role == REPEAT]
    share = 1.0
    if len(again) and spread.any():
        # Half the squared difference of two equal trainings is the variance of one, over all cells together.
        chance = float(np.square(again[0] - folds[0]).mean()) / 2.0
        counted = (len(folds) - 1) ** 2 / len(folds) * chance
        share = max(1.0 - counted / float(spread.mean()), LEAST_LEFT)
    return np.asarray(share * spread + np.square(middle))
