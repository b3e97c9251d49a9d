"""Shapley values with how they were got: method, rows, background, seed and standard errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isinf
from typing import Literal

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.types import FloatArray, IntArray

Method = Literal["exact", "permutation", "kernel"]
Reading = Literal["sample", "population"]


@dataclass(frozen=True)
class Estimate:
    """Shapley values of one decision, d players by C outputs.

    Attributes:
        players: Names of the d players.
        outputs: Names of the C outputs.
        values: (d, C) Shapley values.
        standard_error: (d, C) standard errors, the choice of background states included where it is a sample.
        base: (C,) mean value of the empty coalition over the background states used.
        base_error: (C,) standard error of the base.
        full: (C,) value of the full coalition, that is, of the decision itself.
        rows: Rows the game was asked to value.
        method: How it was got.
        background: Distinct background states used.
        seed: Seed of the plan.
        converged: False only if a precision was asked for and not reached.
        freedom: Degrees of freedom behind the standard errors; infinite if they are exact.
        reading: "sample" if the background stands for a larger population, "population" if it is all there is.
    """

    players: tuple[str, ...]
    outputs: tuple[str, ...]
    values: FloatArray
    standard_error: FloatArray
    base: FloatArray
    base_error: FloatArray
    full: FloatArray
    rows: int
    method: Method
    background: int
    seed: int
    converged: bool = True
    freedom: float = inf
    reading: Reading = "sample"

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends (d, C) of the two-sided confidence interval of each value."""
        half = half_width(self.standard_error, self.freedom, level)
        return self.values - half, self.values + half

    def efficiency_gap(self) -> FloatArray:
        """What the values miss of ``full - base``, (C,); zero up to rounding."""
        return np.asarray(self.full - self.base - self.values.sum(axis=0))


@dataclass(frozen=True)
class Estimates:
    """Shapley values of n decisions explained with one plan; axes as in :class:`Estimate` with n in front."""

    players: tuple[str, ...]
    outputs: tuple[str, ...]
    values: FloatArray
    standard_error: FloatArray
    base: FloatArray
    base_error: FloatArray
    full: FloatArray
    rows: IntArray
    method: Method
    background: IntArray
    seed: int
    converged: np.ndarray[tuple[int], np.dtype[np.bool_]]
    freedom: FloatArray
    reading: Reading = "sample"

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Estimate]:
        return (self.take(i) for i in range(len(self)))

    def take(self, i: int) -> Estimate:
        """The estimate of decision ``i``."""
        return Estimate(
            players=self.players,
            outputs=self.outputs,
            values=self.values[i],
            standard_error=self.standard_error[i],
            base=self.base[i],
            base_error=self.base_error[i],
            full=self.full[i],
            rows=int(self.rows[i]),
            method=self.method,
            background=int(self.background[i]),
            seed=self.seed,
            converged=bool(self.converged[i]),
            freedom=float(self.freedom[i]),
            reading=self.reading,
        )


def half_width(standard_error: FloatArray, freedom: float, level: float) -> FloatArray:
    """Half the width of a two-sided interval by Student's t."""
    from scipy.special import ndtri, stdtrit

    if not 0.0 < level < 1.0:
        raise ExplanationError(problem("level", level, "must lie between 0 and 1", "Use 0.95 for a 95 % interval."))
    chance = 0.5 + level / 2.0
    quantile = ndtri(chance) if isinf(freedom) else stdtrit(freedom, chance)
    return np.asarray(quantile * standard_error)
