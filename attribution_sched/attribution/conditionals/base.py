"""The one protocol every conditional model obeys, and the record its draws come in.

A conditional model answers, for any set S of observed features, with the distribution of the hidden rest:
``p(x_hidden | x_S)``. It is fitted once on standardised rows and then asked about every coalition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.types import BoolArray, FloatArray

State = dict[str, NDArray[Any]]

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Draws:
    """Joint conditional draws: completed rows that keep the observed values.

    Attributes:
        rows: (n_rows, n_masks, replicates, n_draws, d); observed entries equal the row's own up
            to rounding (the value function puts the very same bits back).
        weights: (n_rows, n_masks, replicates, n_draws) summing to one over the last axis, or None when
            all draws weigh the same. Weights may be negative where a control variate is subtracted.
    """

    rows: FloatArray
    weights: FloatArray | None = None

    def mean(self, values: FloatArray) -> FloatArray:
        """Average values (n_rows, n_masks, replicates, n_draws) over the draws of each replicate."""
        if self.weights is None:
            return np.asarray(values.mean(axis=-1), dtype=np.float64)
        return np.asarray(np.einsum("nmrk,nmrk->nmr", values, self.weights), dtype=np.float64)


class Conditional(Protocol):
    """A model of ``p(x_hidden | x_S)`` for every S."""

    @property
    def kind(self) -> str:
        """Name under which the model is chosen and saved."""
        ...

    def fit(self, x: FloatArray, rng: np.random.Generator) -> Conditional:
        """Fit on standardised rows (n, d) and return self."""
        ...

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of each row's hidden features given its observed ones; masks are (n, d), result (n,)."""
        ...

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Draw the hidden features of every row (n, d) under every mask (n_masks, d) jointly."""
        ...

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings (JSON) and arrays that restore the fitted model."""
        ...

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> Conditional:
        """Build the fitted model back from :meth:`state`."""
        ...


def hide(x: FloatArray, observed: BoolArray) -> FloatArray:
    """Zero what is hidden, so that no arithmetic below can see it (not even through 0 * inf)."""
    return np.where(observed, x, 0.0)


def pick(arrays: State, prefix: str) -> State:
    """Take the arrays whose name starts with ``prefix``, without it."""
    return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}


# ------ Which features are observed in training and in scoring


def uniform_size_masks(n: int, d: int, rng: np.random.Generator) -> BoolArray:
    """Masks (n, d) whose number of observed features is uniform on 0 … d-1, members uniform given the number."""
    size = rng.integers(0, d, n)
    rank = np.argsort(np.argsort(rng.random((n, d)), axis=1), axis=1)
    return np.asarray(rank < size[:, None])


def dynamic_masks(n: int, d: int, progress: float, rng: np.random.Generator, uniform_share: float = 0.5) -> BoolArray:
    """Masks of the paper's schedule: the share of hidden features climbs from 0.2 to 0.8 as training goes on.

    The climb alone ends on nearly empty coalitions and forgets the large ones, so ``uniform_share`` of the
    batch keeps uniform sizes throughout.

    Args:
        n: Number of masks.
        d: Number of features.
        progress: Position in training, 0 to 1.
        rng: Source of randomness.
        uniform_share: Share of masks with uniform size.
    """
    ramp = float(np.clip((progress - 0.1) / 0.8, 0.0, 1.0))
    hidden = rng.random((n, d)) < 0.2 + 0.6 * ramp
    # At least one feature is hidden, or the row would teach nothing.
    hidden[np.arange(n), rng.integers(0, d, n)] = True
    uniform = uniform_size_masks(n, d, rng)
    keep = rng.random(n) < uniform_share
    return np.asarray(np.where(keep[:, None], uniform, ~hidden))
