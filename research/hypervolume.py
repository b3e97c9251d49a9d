"""How good a set of trade-offs is: Pareto fronts and the volume they dominate, everything to be maximised.

The hypervolume of a front is the volume of all points that some point of the front beats or equals and that beat the
reference point. It grows with every improvement of the front in any direction, which is why one number can compare a
policy conditioned on its weights with policies trained one per weight. Costs enter with a minus sign.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.errors import ModelFitError, problem

FloatArray = NDArray[np.float64]
DIMENSIONS = (2, 3)


def pareto_mask(points: ArrayLike) -> NDArray[np.bool_]:
    """Mark the points that no other point beats.

    A point beats another if it is at least as good in everything and better in something; of equal points all stay.

    Args:
        points: Shape ``(n, d)``, larger is better.

    Returns:
        Shape ``(n,)``.
    """
    values = _points("points", points)
    kept = np.ones(len(values), dtype=bool)
    for i, value in enumerate(values):
        rivals = values[kept]
        kept[i] = not np.any(np.all(rivals >= value, axis=1) & np.any(rivals > value, axis=1))
    return kept


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:
    """Exact volume that a set of points dominates above a reference point.

    Args:
        points: Shape ``(n, 2)`` or ``(n, 3)``, larger is better; those that do not beat the reference in every
            direction add nothing.
        reference: Shape ``(2,)`` or ``(3,)``: the worst outcome that counts.

    Returns:
        The area or volume, in the product of the units of the axes.
    """
    values = _points("points", points)
    floor = np.asarray(reference, dtype=float)
    if values.shape[1] not in DIMENSIONS:
        raise ModelFitError(problem("points", values.shape, "must have 2 or 3 columns", "Leave out the other goals"))
    if floor.shape != values.shape[1:] or not np.isfinite(floor).all():
        rule = f"must be {values.shape[1]} finite numbers, one per column of the points"
        raise ModelFitError(problem("reference", reference, rule, "Use the worst value of every goal"))
    heights = values - floor
    heights = heights[(heights > 0).all(axis=1)]
    return _area(heights) if values.shape[1] == 2 else _volume(heights)


def coverage_ratio(front_a: ArrayLike, front_b: ArrayLike, reference: ArrayLike) -> float:
    """Hypervolume of one front over that of another; 1 or more if a is as good as b.

    Args:
        front_a: Shape ``(n, d)``, for instance of one policy asked with many weights.
        front_b: Shape ``(m, d)``, for instance of policies trained one per weight.
        reference: Shape ``(d,)``, the same for both.
    """
    whole = hypervolume(front_b, reference)
    if whole <= 0:
        rule = "no point of the front to compare with beats the reference in every direction"
        raise ModelFitError(problem("reference", reference, rule, "Use a reference below that front"))
    return hypervolume(front_a, reference) / whole


def _area(heights: FloatArray) -> float:
    """Area under a staircase: from right to left, each point adds the strip that rises above all before it."""
    ordered = heights[np.argsort(-heights[:, 0], kind="stable")]
    tops = np.maximum.accumulate(ordered[:, 1])
    return float(np.sum(ordered[:, 0] * np.diff(tops, prepend=0.0)))


def _volume(heights: FloatArray) -> float:
    """Volume by slices: between two levels of the third axis the area is that of the points above."""
    ordered = heights[np.argsort(-heights[:, 2], kind="stable")]
    thickness = -np.diff(ordered[:, 2], append=0.0)
    areas = [_area(ordered[: i + 1, :2]) if t > 0 else 0.0 for i, t in enumerate(thickness)]
    return float(np.dot(areas, thickness))


def _points(name: str, points: ArrayLike) -> FloatArray:
    values = np.asarray(points, dtype=float)
    if values.ndim != 2:
        raise ModelFitError(problem(name, values.shape, "must have one row per point", "Use np.atleast_2d"))
    if not np.isfinite(values).all():
        wrong = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise ModelFitError(problem(f"{name}[{wrong}]", values[wrong].tolist(), "must be finite", "Leave it out"))
    return values
