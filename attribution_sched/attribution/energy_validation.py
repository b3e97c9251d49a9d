"""How well a regressor does on time it has not seen: contiguous blocks, beside the flattering shuffle.

Neighbouring seconds of a recording are near copies. A shuffled split therefore tests a model on rows whose
twins it was trained on; whole blocks of time do not. Both are reported, the blocked one decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.types import FloatArray

Folds = tuple[NDArray[np.int64], ...]
Fit = Callable[[FloatArray, FloatArray], Callable[[FloatArray], FloatArray]]


@dataclass(frozen=True)
class Score:
    """Error of predictions made out of fold.

    Attributes:
        mae: Mean absolute error in the target's unit.
        r2: Share of the target's variance explained, over all rows together.
    """

    mae: float
    r2: float


def score(y: FloatArray, predicted: FloatArray) -> Score:
    """Score predictions ``(n,)`` against targets ``(n,)``."""
    total = float(np.square(y - y.mean()).sum())
    residual_ss = float(np.square(y - predicted).sum())
    return Score(float(np.abs(y - predicted).mean()), 1.0 - residual_ss / total if total > 0 else float("nan"))


def blocked_folds(n: int, folds: int) -> Folds:
    """Contiguous blocks of rows in time order."""
    return tuple(np.array_split(np.arange(n), folds))


def shuffled_folds(n: int, folds: int, seed: int) -> Folds:
    """Random folds, for comparison only."""
    return tuple(np.array_split(np.random.default_rng(seed).permutation(n), folds))


def out_of_fold(fit: Fit, x: FloatArray, y: FloatArray, folds: Sequence[NDArray[np.int64]]) -> FloatArray:
    """Predict each fold by a model fitted on the others.

    Args:
        fit: Takes rows and targets, returns a function of rows.
        x: Rows, ``(n, d)``.
        y: Targets, ``(n,)``.
        folds: Row numbers of each fold; together they cover every row once.
    """
    out = np.full(len(y), np.nan)
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        out[fold] = fit(x[rest], y[rest])(x[fold])
    return out
