"""Quasi-random points shared by all conditional models.

Every replicate is an independently scrambled Sobol net completed by its mirror image. The scramblings are
independent, so their spread measures the integration error; the mirror image makes the mean of every
linear function exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from attribution_sched.types import FloatArray


@dataclass(frozen=True)
class Points:
    """Uniform points in the open unit cube.

    Attributes:
        uniforms: (replicates, n_draws, d + 1). Draw ``n_draws / 2 + i`` is the mirror image of draw ``i``. The
            last coordinate is for whatever a model mixes over (a component, a neighbour).
    """

    uniforms: FloatArray

    @property
    def replicates(self) -> int:
        """Number of independent scramblings."""
        return int(self.uniforms.shape[0])

    @property
    def n_draws(self) -> int:
        """Draws in one replicate."""
        return int(self.uniforms.shape[1])

    @cached_property
    def normals(self) -> FloatArray:
        """Standard normal points of the d feature coordinates, (replicates, n_draws, d), antisymmetric in pairs."""
        half = self.n_draws // 2
        first = ndtri(self.uniforms[:, :half, :-1])
        d = first.shape[-1]
        if half >= 4 * d:
            # Exact second moments: what is left of the net's error starts at the fourth order.
            moments = np.swapaxes(first, -1, -2) @ first / half
            first = first @ np.swapaxes(np.linalg.inv(np.linalg.cholesky(moments)), -1, -2)
        return np.concatenate([first, -first], axis=1)

    @cached_property
    def memory(self) -> dict[str, FloatArray]:
        """Arrays that depend on the points alone, kept by the models between two batches of rows."""
        return {}


def sobol_points(n_draws: int, d: int, replicates: int, rng: np.random.Generator) -> Points:
    """Make ``replicates`` independent mirrored Sobol nets of ``n_draws`` points for d features.

    Args:
        n_draws: Points of one replicate; even, and best twice a power of two.
        d: Number of features.
        replicates: Number of independent scramblings.
        rng: Source of the scramblings.
    """
    # Half a second to load, and only counters that are missing need it.
    from scipy.stats import qmc

    half = n_draws // 2
    log2 = int(np.ceil(np.log2(max(half, 1))))
    nets = []
    for child in rng.spawn(replicates):
        net = qmc.Sobol(d + 1, scramble=True, rng=child).random_base2(log2)[:half]
        net = np.clip(net, 1e-12, 1.0 - 1e-12)
        nets.append(np.concatenate([net, 1.0 - net]))
    return Points(np.stack(nets))
