"""Potential-based shaping: credit that arrives sooner and cannot change which policy is best.

    F(s, s') = γ^gap · Φ(s') − Φ(s)

Summed along an episode from s_0 the discounted F is −Φ(s_0), whatever was done, if the potential of a terminal state
is 0. An episode that is only *cut off* has not ended: its last step is shaped with the potential of the state it was
cut off in, and the learner, who bootstraps from that state's value, sees the same sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.cluster.reward import total_of
from attribution_sched.errors import ModelFitError, SettingsError, problem
from attribution_sched.explain.explanation import COMPONENTS, Explanation
from attribution_sched.feedback.drivers import Damping

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def shaping(
    before: ArrayLike,
    after: ArrayLike,
    gamma: float,
    terminated: ArrayLike,
    gaps: ArrayLike | None = None,
) -> FloatArray:
    """Shaping rewards F of steps; all arrays have one shape.

    Args:
        before: Φ of the states the steps began in.
        after: Φ of the states they led to. Where an episode was cut off by time, of the state it was cut off in, not of
            the first state of the next episode.
        gamma: The learner's discount; another one would change the optimal policy.
        terminated: True where the episode ended by itself: the potential there is 0. Not where it was cut off.
        gaps: Exponent of the discount, if the learner discounts by time.
    """
    start, end, over = np.asarray(before, float), np.asarray(after, float), np.asarray(terminated, dtype=np.bool_)
    if not 0.0 < gamma <= 1.0:
        raise SettingsError(problem("gamma", gamma, "must be in (0, 1]", "Use the learner's discount"))
    if not start.shape == end.shape == over.shape:
        shapes = (start.shape, end.shape, over.shape)
        raise ModelFitError(problem("shapes", shapes, "must be alike", "Give before, after and terminated per step"))
    if not (np.isfinite(start).all() and np.isfinite(end[~over]).all()):
        raise ModelFitError(problem("potential", "NaN", "must be finite", "Check the critic"))
    discount = gamma if gaps is None else gamma ** np.asarray(gaps, float)
    found: FloatArray = discount * np.where(over, 0.0, end) - start
    return found


def component_potential(values: ArrayLike, weights: Sequence[float]) -> FloatArray:
    """``Φ = w_eff·V_eff + w_util·V_util − w_cost·V_cost``.

    Hold the weights fixed within an episode.

    Args:
        values: Component values V_c of states, shape ``(..., 3)``.
        weights: w_eff, w_util, w_cost.
    """
    array = np.asarray(values, float)
    if array.shape[-1:] != (len(COMPONENTS),) or len(weights) != len(COMPONENTS):
        given = (array.shape, len(weights))
        raise ModelFitError(problem("components", given, f"must be {len(COMPONENTS)}: {COMPONENTS}", "Name all three"))
    return total_of(array, weights)


def explained_potential(explanation: Explanation, weights: Sequence[float], damping: Damping) -> float:
    """Φ of a state from its explained value, contradicted drivers damped: ``Σ_c w_c (base_c + Σ_p m_pc φ_pc)``.

    Without damping it is the value itself. It depends on the state only, so it is a potential whatever the damping.

    Args:
        explanation: Of the component values of the state.
        weights: w_eff, w_util, w_cost.
        damping: Component → player → multiplier.
    """
    values = []
    for component in COMPONENTS:
        at = explanation.column(component)
        trust = np.array([damping.get(component, {}).get(name, 1.0) for name in explanation.names])
        values.append(float(explanation.base[at] + trust @ explanation.values[:, at]))
    return float(component_potential(values, weights))
