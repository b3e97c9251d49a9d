"""Atoms: values that counters take exactly and often, such as zero, a saturated 1.0 or an integer.

A density is unbounded there, so a likelihood of densities says nothing. Models that know the atoms give them
probabilities, and densities only to what lies between (a density with respect to atoms plus Lebesgue measure).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.types import FloatArray

MOST_LEVELS = 24
"""A column of repeated values with at most so many different ones is a discrete one."""

LEAST_SHARE = 0.01
LEAST_COUNT = 8
"""A single value of an otherwise continuous column is an atom from this share and count of the rows on."""

REPEATED_SHARE = 0.95
"""From this share of rows at repeated values on, a column is taken for integers or rounded readings."""


@dataclass(frozen=True)
class Column:
    """What is exact in one column.

    Attributes:
        atoms: (a,) sorted values that have a probability of their own.
        discrete: Whether there is nothing but atoms.
        grid: Sorted values that draws between the atoms are rounded to; empty where the column is continuous.
    """

    atoms: FloatArray
    discrete: bool = False
    grid: FloatArray | None = None

    def codes(self, x: FloatArray) -> NDArray[np.intp]:
        """Index of the atom that each value is, -1 between atoms; the nearest one in a discrete column."""
        if len(self.atoms) == 0:
            return np.full(x.shape, -1, dtype=np.intp)
        middle = (self.atoms[1:] + self.atoms[:-1]) / 2
        near = np.searchsorted(middle, x)
        if self.discrete:
            return np.asarray(near)
        return np.where(self.atoms[near] == x, near, -1)


def find_atoms(x: FloatArray) -> list[Column]:
    """The atoms of every column of rows (n, d)."""
    return [_one(x[:, j]) for j in range(x.shape[1])]


def has_atoms(x: FloatArray) -> bool:
    """Whether any column of rows (n, d) has atoms or a grid."""
    return any(len(c.atoms) or c.grid is not None for c in find_atoms(x))


def _one(column: FloatArray) -> Column:
    values, counts = np.unique(column, return_counts=True)
    n = len(column)
    repeated = counts[counts > 1].sum() / n
    if repeated >= REPEATED_SHARE and len(values) <= MOST_LEVELS:
        return Column(values, True)
    heavy = counts >= max(LEAST_SHARE * n, LEAST_COUNT)
    if repeated >= REPEATED_SHARE:
        # Integers of a wide range: smooth between, rounded in the draws; only what stands out is an atom.
        out = counts >= max(0.1 * n, 4 * np.median(counts))
        return Column(values[out], False, values)
    return Column(values[heavy][:MOST_LEVELS]) if heavy.sum() <= MOST_LEVELS else Column(np.zeros(0))
