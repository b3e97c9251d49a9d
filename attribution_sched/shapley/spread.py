"""Means over background states and their standard errors, with the choice of those states counted or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.shapley.estimate import Reading
from attribution_sched.types import BoolArray, FloatArray, IntArray


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
