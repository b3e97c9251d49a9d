"""Intervals around a prediction by conformal calibration on out-of-block errors.

Errors differ with the load: an idle second is predicted within a watt, a busy one is not. The calibration is
therefore done separately in bins of the predicted value. In each bin the half-width is the ``ceil((n+1)
c)``-th smallest absolute error, which covers a fresh error of the same kind with probability at least
``c``.

Errors also drift with time, so fresh time is not of the same kind. Each block is therefore asked how much wider the
bands of the other blocks would have had to be for it, and all are widened by the mean of that and one deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.types import FloatArray

MIN_ROWS_PER_BIN = 40


@dataclass(frozen=True, eq=False)
class ConformalBands:
    """Half-width of the interval as a step function of the prediction.

    Attributes:
        edges: Predictions at which the step changes, ``(bins - 1,)``, rising.
        half_widths: Half-width in each bin, ``(bins,)``.
    """

    edges: FloatArray
    half_widths: FloatArray

    @staticmethod
    def fit(
        predicted: FloatArray,
        y: FloatArray,
        coverage: float,
        bins: int = 5,
        blocks: Sequence[NDArray[np.int64]] = (),
    ) -> ConformalBands:
        """Calibrate on predictions of rows the model has not seen.

        Args:
            predicted: Out-of-block predictions, ``(n,)``.
            y: What was measured, ``(n,)``.
            coverage: Share of fresh rows the interval must hold.
            bins: At most this many bins; fewer where rows are few.
            blocks: Rows of each stretch of time; with at least three the bands are widened for drift between them.
        """
        bins = max(1, min(bins, len(y) // MIN_ROWS_PER_BIN))
        edges = np.unique(np.quantile(predicted, np.arange(1, bins) / bins))
        error = np.abs(y - predicted)
        where = np.searchsorted(edges, predicted, side="right")
        widths = np.array([_rank(error[where == b], coverage) for b in range(len(edges) + 1)])
        if np.isnan(widths).any():  # ties in the prediction can leave a bin empty
            widths = np.where(np.isnan(widths), _rank(error, coverage), widths)
        if len(blocks) >= 3:
            widths = widths * _drift(predicted, y, coverage, bins, blocks)
        return ConformalBands(edges, widths)

    def half_width(self, predicted: FloatArray) -> FloatArray:
        """Half-width of each prediction's interval."""
        return self.half_widths[np.searchsorted(self.edges, predicted, side="right")]


def _rank(error: FloatArray, coverage: float) -> float:
    if len(error) == 0:
        return math.nan
    rank = min(math.ceil((len(error) + 1) * coverage), len(error))
    return float(np.sort(error)[rank - 1])


def _drift(
    predicted: FloatArray, y: FloatArray, coverage: float, bins: int, blocks: Sequence[NDArray[np.int64]]
) -> float:
    """Factor by which bands of other times must be widened for a block they have not seen, at least 1."""
    needed = []
    for block in blocks:
        rest = np.setdiff1d(np.arange(len(y)), block)
        other = ConformalBands.fit(predicted[rest], y[rest], coverage, bins)
        half = np.maximum(other.half_width(predicted[block]), 1e-12)
        needed.append(_rank(np.abs(y[block] - predicted[block]) / half, coverage))
    return max(1.0, float(np.mean(needed) + np.std(needed, ddof=1))) if np.isfinite(needed).all() else 1.0


def block_coverage(
    predicted: FloatArray, y: FloatArray, folds: Sequence[NDArray[np.int64]], coverage: float
) -> tuple[float, ...]:
    """Share of each block that falls in intervals calibrated on the other blocks."""
    shares: list[float] = []
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        # The other blocks are numbered anew among the rows that are left.
        others = [np.searchsorted(rest, other) for other in folds if other is not fold]
        bands = ConformalBands.fit(predicted[rest], y[rest], coverage, blocks=others)
        shares.append(float((np.abs(y[fold] - predicted[fold]) <= bands.half_width(predicted[fold])).mean()))
    return tuple(shares)
