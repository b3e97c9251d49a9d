"""Coalition values: ``v(S) = E[f(X) | x_S]``, averaged over joint conditional draws in bounded blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attribution_sched.attribution.conditionals.atoms import find_atoms
from attribution_sched.attribution.conditionals.base import BoolArray, Conditional, FloatArray
from attribution_sched.attribution.conditionals.points import Points

Predict = Callable[[FloatArray], FloatArray]

BLOCK_ROWS = 2**17
"""Completed rows handed to the energy model at a time; keeps the working set near the cache."""


@dataclass(frozen=True)
class Scale:
    """Affine map between raw counters and the standardised rows the models see.

    Attributes:
        mean: (d,) training means.
        spread: (d,) training standard deviations.
    """

    mean: FloatArray
    spread: FloatArray

    def standardise(self, x: FloatArray) -> FloatArray:
        """Raw counters to standardised ones."""
        return np.asarray((x - self.mean) / self.spread)

    def restore(self, z: FloatArray) -> FloatArray:
        """Standardised counters to raw ones, in place."""
        z *= self.spread
        z += self.mean
        return z


def exact_scale(rows: FloatArray) -> Scale:
    """Standardise rows (n, d); columns with atoms by a power of two alone, which keeps atoms bit for bit."""
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    exact = np.array([len(c.atoms) > 0 or c.grid is not None for c in find_atoms(rows)])
    return Scale(np.where(exact, 0.0, mean), np.where(exact, 2.0 ** np.round(np.log2(spread)), spread))


def coalition_values(
    model: Conditional, scale: Scale, predict: Predict, x: FloatArray, masks: BoolArray, points: Points
) -> FloatArray:
    """Value of every coalition for every row and replicate, (n_rows, n_masks, replicates).

    Args:
        model: Fitted conditional model of the standardised counters.
        scale: Standardisation of the counters.
        predict: Energy model on raw rows.
        x: (n_rows, d) raw rows.
        masks: (n_masks, d), True where observed.
        points: Quasi-random points, the same for every row, so that no row depends on its batch.
    """
    each = points.replicates * points.n_draws
    out = np.empty((len(x), len(masks), points.replicates))
    z = scale.standardise(x)
    mask_step = max(1, min(len(masks), BLOCK_ROWS // each))
    row_step = max(1, BLOCK_ROWS // (each * mask_step))
    for m in range(0, len(masks), mask_step):
        chosen = masks[m : m + mask_step]
        for r in range(0, len(x), row_step):
            draws = model.draws(z[r : r + row_step], chosen, points)
            rows = scale.restore(draws.rows)
            # Standardising and back costs the last bits; the observed counters are the row's own.
            visible = x[r : r + row_step, None, None, None, :]
            np.copyto(rows, visible, where=chosen[None, :, None, None, :])
            answer = predict(rows.reshape(-1, x.shape[1]))
            out[r : r + row_step, m : m + mask_step] = draws.mean(answer.reshape(rows.shape[:-1]))
    return out
