"""Coalitions and Shapley weights: all of them for few features, paired samples for many.

Up to :data:`EXACT_LIMIT` features every one of the 2^d coalitions is valued and the Shapley value is a fixed
linear map of those values. Above, coalitions are drawn in complementary pairs with sizes in proportion to
their leverage in the Shapley regression, and the constrained weighted least-squares problem is solved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import ModelFitError, problem

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

EXACT_LIMIT = 12
"""Largest number of features for which all coalitions are enumerated."""


def all_masks(d: int) -> BoolArray:
    """Every coalition as booleans, (2^d, d); bit j of the row number says whether feature j is observed."""
    return ((np.arange(2**d)[:, None] >> np.arange(d)) & 1).astype(bool)


@lru_cache(maxsize=16)
def shapley_matrix(d: int) -> FloatArray:
    """Matrix (2^d, d) that turns the values of all coalitions into Shapley values.

    Feature j gains ``(s-1)! (d-s)! / d!`` from a coalition of size s that contains it and loses
    ``s! (d-s-1)! / d!`` to one that does not.
    """
    masks = all_masks(d)
    size = masks.sum(axis=1)
    gain = np.array([0.0] + [1.0 / (d * comb(d - 1, s - 1)) for s in range(1, d + 1)])
    loss = np.array([1.0 / (d * comb(d - 1, s)) for s in range(d)] + [0.0])
    matrix: FloatArray = np.where(masks, gain[size][:, None], -loss[size][:, None])
    matrix.setflags(write=False)
    return matrix


@dataclass(frozen=True)
class CoalitionSample:
    """Sampled coalitions in independent groups of complementary pairs.

    Attributes:
        masks: (groups, n, d); rows ``2i`` and ``2i + 1`` of a group are complements.
        weights: (groups, n); weight of each coalition in the regression, Shapley kernel over sampling chance.
    """

    masks: BoolArray
    weights: FloatArray


def sample_coalitions(d: int, n_coalitions: int, groups: int, rng: np.random.Generator) -> CoalitionSample:
    """Draw coalitions of size 1 … d-1 in complementary pairs, sizes uniformly, members uniformly given the size.

    A uniform size is the leverage-score distribution of the Shapley regression. Within a group, sizes are
    spread systematically, so no size is left out by bad luck.

    Args:
        d: Number of features.
        n_coalitions: Total number of coalitions over all groups.
        groups: Number of independent groups, whose spread gives the standard error.
        rng: Source of randomness.
    """
    pairs = n_coalitions // (2 * groups)
    if pairs < d:
        rule = f"each of the {groups} groups needs at least {d} pairs to determine {d} features"
        fix = f"Ask for at least {2 * groups * d} coalitions."
        raise ModelFitError(problem("n_coalitions", n_coalitions, rule, fix))
    masks = np.zeros((groups, 2 * pairs, d), dtype=bool)
    weights = np.empty((groups, 2 * pairs))
    for g in range(groups):
        place = (np.arange(pairs) + rng.random()) / pairs
        size = 1 + np.floor(rng.permutation(place) * (d - 1)).astype(int)
        order = np.argsort(rng.random((pairs, d)), axis=1)
        member = np.argsort(order, axis=1) < size[:, None]
        masks[g, 0::2], masks[g, 1::2] = member, ~member
        # kernel(s) / chance(S) = [(d-1) / (C(d,s) s (d-s))] / [1 / ((d-1) C(d,s))], constants dropped.
        weights[g] = np.repeat(1.0 / (size * (d - size)), 2)
    return CoalitionSample(masks, weights)


def solve_sampled(
    sample: CoalitionSample, values: FloatArray, base: float, full: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve the constrained least-squares problem and measure its error over the groups.

    Minimises ``sum w (v(S) - base - sum_{j in S} phi_j)^2`` subject to ``sum phi = full - base``.

    Args:
        sample: The coalitions.
        values: (n_rows, groups, n) coalition values.
        base: Value of the empty coalition.
        full: (n_rows,) value of the full coalition.

    Returns:
        Shapley values (n_rows, d) and their standard errors (n_rows, d), by the delete-one-group jackknife.
    """
    groups, _, d = sample.masks.shape
    gram = np.empty((groups, d, d))
    right = np.empty((groups, len(values), d))
    for g in range(groups):
        z = sample.masks[g].astype(np.float64)
        weighted = z * sample.weights[g][:, None]
        gram[g] = z.T @ weighted
        right[g] = (values[:, g] - base) @ weighted
    phi = _constrained(gram.sum(0), right.sum(0), full - base)
    left_out = np.stack(
        [_constrained(gram.sum(0) - gram[g], right.sum(0) - right[g], full - base) for g in range(groups)]
    )
    spread = np.square(left_out - left_out.mean(0)).sum(0) * (groups - 1) / groups
    return phi, np.sqrt(spread)


def _constrained(gram: FloatArray, right: FloatArray, total: FloatArray) -> FloatArray:
    """Minimise the quadratic form under ``sum phi = total`` by one Lagrange multiplier."""
    ones = np.ones(len(gram))
    solution = np.linalg.solve(gram, np.column_stack([right.T, ones]))
    free, direction = solution[:, :-1], solution[:, -1]
    slack = (total - free.sum(axis=0)) / direction.sum()
    return np.asarray((free + direction[:, None] * slack).T)
