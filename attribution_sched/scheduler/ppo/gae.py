"""Generalised advantage estimation for rewards with several components, in decision or in real time.

    δ_t = r_t + γ^gap_t · V_{t+1} − V_t            A_t = δ_t + γ^gap_t · λ · A_{t+1}

Everything is linear in rewards and values, so the components' advantages add up to that of any weighted sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import ModelFitError, SettingsError, problem

FloatArray = NDArray[np.float64]


def gae(
    rewards: NDArray[Any],
    values: NDArray[Any],
    ended: NDArray[np.bool_],
    truncated_values: NDArray[Any] | None,
    gamma: float,
    lam: float,
    gaps: NDArray[Any] | None = None,
    valid: NDArray[np.bool_] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Advantages and returns of a rollout of T steps in E environments, C reward components.

    Args:
        rewards: Shape ``(T, E, C)``.
        values: Value estimates of the observations before each step and after the last, shape ``(T + 1, E, C)``.
        ended: True where the episode ended with the step, shape ``(T, E)``; nothing flows back across an end.
        truncated_values: Value of the final observation where an episode was cut off by time (0 where it ended by
            itself), shape ``(T, E, C)``; read only where ``ended``. None: every end is a true one, worth 0.
        gamma: Discount per unit of ``gaps``.
        lam: Bias against variance, per step.
        gaps: How much time each step took, the exponent of the discount, shape ``(T, E)``; 1 by default.
        valid: False for steps that decided nothing, as the one that resets a finished environment, shape
            ``(T, E)``. Their advantage is 0, their return is their value, and nothing flows through them.

    Returns:
        Advantages and returns (the targets of the critic), both ``(T, E, C)``.
    """
    rewards, values = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    _check(rewards, values, ended, truncated_values, gamma, lam, gaps, valid)
    steps = len(rewards)
    flows = ~np.asarray(ended, dtype=np.bool_)
    discount = gamma * np.ones(flows.shape) if gaps is None else gamma ** np.asarray(gaps, dtype=np.float64)
    following = np.where(flows[:, :, None], values[1:], 0.0 if truncated_values is None else truncated_values)
    delta = rewards + discount[:, :, None] * following - values[:-1]
    carry = discount * lam * flows
    if valid is not None:
        delta[~valid] = 0.0
        carry = carry * valid
    advantages = np.empty_like(rewards)
    later = np.zeros(rewards.shape[1:])
    for t in range(steps - 1, -1, -1):
        later = delta[t] + carry[t][:, None] * later
        advantages[t] = later
    return advantages, advantages + values[:-1]


def _check(
    rewards: FloatArray,
    values: FloatArray,
    ended: NDArray[np.bool_],
    truncated_values: NDArray[Any] | None,
    gamma: float,
    lam: float,
    gaps: NDArray[Any] | None,
    valid: NDArray[np.bool_] | None,
) -> None:
    """Refuse shapes that would broadcast into nonsense, NaN, and impossible discounts."""
    if rewards.ndim != 3:
        raise ModelFitError(problem("rewards.shape", rewards.shape, "must be (T, E, C)", "Add the component axis"))
    steps, envs, components = rewards.shape
    expected = {
        "values": (values, (steps + 1, envs, components)),
        "ended": (ended, (steps, envs)),
        "truncated_values": (truncated_values, (steps, envs, components)),
        "gaps": (gaps, (steps, envs)),
        "valid": (valid, (steps, envs)),
    }
    for name, (array, shape) in expected.items():
        if array is not None and np.shape(array) != shape:
            raise ModelFitError(problem(f"{name}.shape", np.shape(array), f"must be {shape}", "Match the rewards"))
    if not (np.isfinite(rewards).all() and np.isfinite(values).all()):
        name, array = ("values", values) if np.isfinite(rewards).all() else ("rewards", rewards)
        at = np.argwhere(~np.isfinite(array))[0].tolist()
        fix = "Check the environment and the critic for NaN"
        raise ModelFitError(problem(f"{name}{at}", float(array[tuple(at)]), "must be finite", fix))
    if not (0.0 < gamma <= 1.0 and 0.0 <= lam <= 1.0):
        rule = "must have 0 < gamma <= 1 and 0 <= lambda <= 1"
        raise SettingsError(problem("(gamma, gae_lambda)", (gamma, lam), rule, "Use for example 0.99 and 0.95"))
    if gaps is not None and not np.all(np.asarray(gaps) >= 0):
        raise SettingsError(problem("gaps", float(np.min(gaps)), "must be >= 0", "Use the time a step took"))
