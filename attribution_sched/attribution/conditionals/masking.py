"""Which features are observed in training and in scoring."""

from __future__ import annotations

import numpy as np

from attribution_sched.attribution.conditionals.base import BoolArray


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
