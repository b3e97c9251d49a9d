"""Paired, leverage-sampled kernel regression: small regressions for each background state, all solved in advance.

Coalitions come in complementary pairs with sizes spread evenly, the leverage of the Shapley regression. For a pair
``v(S) - v(not S) = sum_S phi - sum_{not S} phi``: the base drops out, and with it every interaction of even order. What
is left as noise is mostly of order three. It is no white noise: coalitions that overlap share it. Treating it as a
random cubic form, with as much variance as all higher orders together, gives the weights of the best linear estimate;
a triple's interaction then goes to its three players in equal parts, as in the Shapley value.

Each background state has coalitions of its own and its own solution, so that differences between states cannot leak
into the regression's noise; the values are the mean over states. Neither masks nor regression operator depends on the
decision: they form a plan that is made once, and an explanation is the game's rows and one product of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.shapley.estimate import StateMeans
from attribution_sched.shapley.orders import state_sequence
from attribution_sched.types import BoolArray, FloatArray, IntArray

_MASKS = 3
_MANY_PAIRS = 256
"""Regressions with more pairs are split: the operator takes the cube of this to make, and gains little beyond."""

_HIGHER_ORDERS = 1.0
"""Variance of the orders above three as a multiple of that of order three; 0.3 to 3 serve nearly as well."""


LEAST_PLAYERS = 4
"""Fewer have no cubic form to speak of, and sixteen coalitions are soon enumerated."""


def least_pairs(d: int) -> int:
    """Fewest pairs per regression: below four coalitions per player its error explodes.

    For few players, enough of them that no regression is singular by bad luck.
    """
    return max(2 * d, 32)


@dataclass(frozen=True)
class KernelPlan:
    """Masks and operators of r regressions with p pairs of coalitions each, on g background states.

    Attributes:
        n_states: Background states used, g; regression i is on state ``i % g`` in the order of the plan.
        coalitions: (r * (2p + 1), d) per regression: none, then the pairs, complements next to each other.
        background: (r * (2p + 1),) state of each row.
        operator: (r, d, p) turns the differences of the pairs into values that sum to zero.
        share: (r, d) how the total is shared out; sums to one.
        left_out: (r, p, p) turns what the pairs miss of the fit into what each misses of a fit without it, in float32;
            None unless asked for.
    """

    n_states: int
    coalitions: BoolArray
    background: IntArray
    operator: FloatArray
    share: FloatArray
    left_out: NDArray[np.float32] | None


@lru_cache(maxsize=8)
def kernel_plan(
    d: int, n_background: int, n_states: int, pairs: int, seed: int, part: int = 0, errors: bool = False
) -> KernelPlan:
    """Make a plan with ``pairs`` pairs for each of ``n_states`` states.

    Args:
        d: Number of players.
        n_background: Number of background states there are.
        n_states: Number of them to use.
        pairs: Pairs of coalitions per state.
        seed: Seed of masks and states.
        part: Parts of a long run have masks of their own on the same states.
        errors: Whether the error within a state will be asked for.

    Raises:
        ExplanationError: If there are too few players, or pairs, for a regression.
    """
    if d < LEAST_PLAYERS or pairs < least_pairs(d):
        rule = f"a regression needs {LEAST_PLAYERS} players or more, and for {d} of them {least_pairs(d)} pairs a state"
        fix = f"Ask for at least {2 * least_pairs(d) * n_states:,} coalitions, or for all of them."
        raise ExplanationError(problem("coalitions", 2 * pairs * n_states, rule, fix))
    split = max(1, pairs // max(_MANY_PAIRS, least_pairs(d)))
    # Every regression values the empty coalition once.
    pairs = (2 * pairs + 1 - split) // (2 * split)
    count = n_states * split
    rng = np.random.default_rng([seed, _MASKS, d, part])
    first, noise = _sample_pairs(d, pairs, count, rng)
    states = np.tile(state_sequence(n_background, n_states, seed), split)
    coalitions = np.zeros((count, 2 * pairs + 1, d), dtype=bool)
    coalitions[:, 1::2], coalitions[:, 2::2] = first, ~first
    operator, left_out = np.empty((count, d, pairs + 1)), None
    if errors:
        left_out = np.empty((count, pairs, pairs), dtype=np.float32)
    for i in range(count):
        operator[i], misses = _best_linear(np.where(first[i], 1.0, -1.0), noise[i], errors)
        if left_out is not None:
            left_out[i] = misses
    background, total = np.repeat(states, 2 * pairs + 1), operator[:, :, -1].copy()
    plan = KernelPlan(n_states, coalitions.reshape(-1, d), background, operator[:, :, :-1].copy(), total, left_out)
    for array in (plan.coalitions, plan.background, plan.operator, plan.share):
        array.setflags(write=False)
    return plan


def _sample_pairs(d: int, pairs: int, count: int, rng: np.random.Generator) -> tuple[BoolArray, FloatArray]:
    """First coalitions (count, pairs, d) of complementary pairs, and the variance of noise at their sizes.

    Sizes 1 … d-1 are uniform, the leverage of the Shapley regression, and spread systematically within a regression, so
    that none is left out by bad luck. Shapley's kernel ``(d-1) / (C(d,s) s (d-s))`` over that chance is a weight of
    ``1 / (s (d-s))``, its inverse the variance.
    """
    first, noise = np.zeros((count, pairs, d), dtype=bool), np.empty((count, pairs))
    for i in range(count):
        place = (np.arange(pairs) + rng.random()) / pairs
        size = 1 + np.floor(rng.permutation(place) * (d - 1)).astype(int)
        order = np.argsort(rng.random((pairs, d)), axis=1)
        first[i] = np.argsort(order, axis=1) < size[:, None]
        noise[i] = size * (d - size)
    return first, noise


def _best_linear(sign: FloatArray, noise: FloatArray, errors: bool) -> tuple[FloatArray, FloatArray | None]:
    """Operator (d, p + 1) from the differences of p pairs and the known total to the players' values.

    Also, if errors are wanted, the operator (p, p) to the misses of each pair by a fit without that pair.

    The differences are ``z'a + cubic(z) + rest``: a unknown, the cubic form's coefficients independent with total
    variance one, the rest independent with the variance that Shapley's kernel gives to a coalition of that size.
    """
    p, d = sign.shape
    triples = comb(d, 3)
    points = np.vstack([sign, np.ones(d)])
    overlap = points @ points.T
    # Sum over triples of the products of their signs in both coalitions, from the overlap alone.
    covariance = overlap * (overlap * overlap - (3 * d - 2)) / (6 * triples)
    covariance[np.arange(p), np.arange(p)] += _HIGHER_ORDERS * noise / noise.mean()
    others = points.sum(axis=1, keepdims=True) - points
    third = points * (np.square(others) - (d - 1)) / (2 * 3 * triples)
    solved = np.linalg.solve(covariance, np.concatenate([points, third], axis=1)).T
    linear, shared = solved[:d], solved[d:]
    slope = np.linalg.solve(linear @ points, linear)
    operator = slope + shared - (shared @ points) @ slope
    # The total is known exactly; what rounding left of that is shared out.
    operator[:, :p] -= operator[:, :p].mean(axis=0)
    operator[:, p] += (1.0 - operator[:, p].sum()) / d
    if not errors:
        return operator, None
    residual = np.linalg.inv(covariance)
    residual -= linear.T @ slope
    return operator, residual[:p, :p] / np.diagonal(residual)[:p, None]


def kernel_values(plan: KernelPlan, values: FloatArray, full: FloatArray) -> tuple[StateMeans, FloatArray]:
    """Solve all regressions of a plan.

    Args:
        plan: The plan.
        values: (m, r * (2p + 1), C) values of the plan's rows for m decisions.
        full: (m, C) value of the full coalition.

    Returns:
        The players' values by state, with their error within a state by the jackknife over pairs if the plan was made
        for it, and the value of the empty coalition (m, g, C).
    """
    r, d, p = plan.operator.shape
    m, _, c = values.shape
    table = values.reshape(m, r, 2 * p + 1, c)
    empty = table[:, :, 0]
    difference = table[:, :, 1::2] - table[:, :, 2::2]
    total = full[:, None] - empty
    phi = plan.operator @ difference + plan.share[:, :, None] * total[:, :, None]
    split = r // plan.n_states
    by_state = phi.reshape(m, split, plan.n_states, d, c).mean(axis=1)
    within, freedom = None, 0.0
    if plan.left_out is not None:
        first = plan.coalitions.reshape(r, 2 * p + 1, d)[:, 1::2]
        rest = difference - np.where(first, 1.0, -1.0) @ phi
        missed = plan.left_out @ rest.astype(np.float32)
        within = (np.square(plan.operator) @ np.square(missed.astype(np.float64))).mean(axis=1) / split
        freedom = float(r * (p - d + 1))
    return StateMeans(by_state, within, freedom), empty[:, : plan.n_states]
