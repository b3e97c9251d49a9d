"""Shapley values with how they were got, and their standard errors from means over background states."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from attribution_sched.stats.interval import LEVEL, half_width
from attribution_sched.types import BoolArray, FloatArray, IntArray

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
        evaluations: Rows the game was asked to value: the budget that was spent.
        method: How it was got.
        background: Distinct background states used.
        seed: Seed of the coalitions.
        converged: False only if a precision was asked for and not reached.
        freedom: Degrees of freedom behind the standard errors; infinite if they are exact.
        reading: "sample" if the background stands for a larger population, "population" if it is all there is.
        full_error: (C,) standard error of ``full``; zero unless each background state is a future with an end of its
            own (:func:`~attribution_sched.shapley.futures.estimate_futures`).
    """

    players: tuple[str, ...]
    outputs: tuple[str, ...]
    values: FloatArray
    standard_error: FloatArray
    base: FloatArray
    base_error: FloatArray
    full: FloatArray
    evaluations: int
    method: Method
    background: int
    seed: int
    converged: bool = True
    freedom: float = inf
    reading: Reading = "sample"
    full_error: FloatArray | float = 0.0

    @property
    def exact(self) -> bool:
        """Whether every coalition was valued."""
        return self.method == "exact"

    def interval(self, level: float = LEVEL) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends (d, C) of the two-sided confidence interval of each value."""
        half = half_width(self.standard_error, self.freedom, level)
        return self.values - half, self.values + half

    def efficiency_gap(self) -> FloatArray:
        """What the values miss of ``full - base``, (C,); zero up to rounding."""
        return np.asarray(self.full - self.base - self.values.sum(axis=0))


@dataclass(frozen=True)
class StateMeans:
    """Estimates per background state, for m decisions and g states used.

    Attributes:
        values: (m, g, d, C) mean estimate of each state.
        within: (m, d, C) mean squared error of one state's estimate about its own truth, None if not known.
        freedom: Degrees of freedom of ``within``.
    """

    values: FloatArray
    within: FloatArray | None
    freedom: float


class StateSums:
    """Running sums of walks per background state, so that any number of walks fits in memory.

    Args:
        shape: (m, g, d, C), g being the most background states that will be seen.
    """

    def __init__(self, shape: tuple[int, int, int, int]) -> None:
        self._pivot = np.zeros(shape)
        self._sum = np.zeros(shape)
        self._square = np.zeros((shape[0], *shape[2:]))
        self._count = np.zeros(shape[1], dtype=np.int64)
        self._empty = np.zeros((shape[0], shape[1], shape[3]))

    def add(self, walks: FloatArray, empty: FloatArray, slots: IntArray) -> None:
        """Add walks (m, k, d, C) and their empty coalitions (m, k, C), walk i on the state in slot ``slots[i]``."""
        seen, first, place = np.unique(slots, return_index=True, return_inverse=True)
        fresh = self._count[seen] == 0
        # Sums of differences to a state's first walk: equal walks then have a spread of exactly zero.
        self._pivot[:, seen[fresh]] = walks[:, first[fresh]]
        self._empty[:, seen[fresh]] = empty[:, first[fresh]]
        difference = walks - self._pivot[:, slots]
        order = np.argsort(place, kind="stable")
        count = np.bincount(place)
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        self._sum[:, seen] += np.add.reduceat(difference[:, order], starts, axis=1)
        self._square += np.square(difference).sum(axis=1)
        self._count[seen] += count

    def keep(self, decisions: BoolArray) -> None:
        """Forget all decisions but these (m,)."""
        for name in ("_pivot", "_sum", "_square", "_empty"):
            setattr(self, name, getattr(self, name)[decisions])

    def means(self) -> tuple[StateMeans, FloatArray]:
        """The states' means so far and the value of the empty coalition (m, g, C) of each state used."""
        used = int(np.count_nonzero(self._count))
        count = self._count[:used, None, None]
        shift = self._sum[:, :used] / count
        values = self._pivot[:, :used] + shift
        freedom = int(self._count.sum()) - used
        if freedom == 0:
            return StateMeans(values, None, 0.0), self._empty[:, :used]
        inside = (self._square - (count * np.square(shift)).sum(axis=1)).clip(min=0.0) / freedom
        return StateMeans(values, inside * float(np.mean(1.0 / count)), float(freedom)), self._empty[:, :used]


def error_of_mean(means: StateMeans, n_background: int, reading: Reading) -> tuple[FloatArray, float]:
    """Standard error (m, d, C) of the mean over states, and its degrees of freedom.

    ``Var = [(1 - f) s^2 + f w] / g`` with s^2 the variance of the states' estimates, w their mean error within a state
    and f the share of the background that was used. For a background that is a sample of something larger f = 0: a
    state is one draw, whatever was spent on it. Where w is not known (one walk per state) s^2 stands in for it, which
    can only make the error larger. A single background state is always read as all there is.
    """
    g = means.values.shape[1]
    share = g / n_background if reading == "population" or n_background == 1 else 0.0
    if share == 1.0 and means.within is not None:
        return np.sqrt(means.within / g), means.freedom
    between = means.values.var(axis=1, ddof=1)
    if share == 0.0 or means.within is None:
        return np.sqrt(between / g), g - 1.0
    return np.sqrt(((1.0 - share) * between + share * means.within) / g), min(means.freedom, g - 1.0)


def error_of_base(empty: FloatArray, n_background: int, reading: Reading) -> FloatArray:
    """Standard error (m, C) of the mean of ``empty`` (m, g, C), the value of the empty coalition of each state used."""
    g = empty.shape[1]
    if g == 1:
        return np.zeros((len(empty), empty.shape[2]))
    share = g / n_background if reading == "population" else 0.0
    return np.asarray(np.sqrt((1.0 - share) * empty.var(axis=1, ddof=1) / g))
