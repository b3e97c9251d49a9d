"""Proximal policy optimisation on one page: advantages, the scale of returns, and the update.

Generalised advantage estimation, for rewards with several components, in decision or in real time:

    δ_t = r_t + γ^gap_t · V_{t+1} − V_t            A_t = δ_t + γ^gap_t · λ · A_{t+1}

Everything is linear in rewards and values, so the components' advantages add up to that of any weighted sum.

The update: clipped ratio, value loss over reward components, entropy, KL stop, gradient clip. Whatever a policy looks
like stays outside: it only has to say, for rows of the rollout, the log-probability of the action taken, its entropy
and its values. A policy with several heads sums theirs; two levels of a hierarchy call ``update`` once each, with their
own log-probabilities and advantages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attribution_sched.errors import ModelFitError, SettingsError, problem
from attribution_sched.scheduler.ppo.settings import PpoSettings
from attribution_sched.types import FloatArray


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


MEMORY = 0.9
"""Weight of the past against the newest rollout."""


class ReturnScale:
    """Mean and deviation of each reward component's returns, with an exponential memory.

    Args:
        components: Number of reward components.
    """

    def __init__(self, components: int) -> None:
        self.mean: FloatArray = np.zeros(components)
        self.deviation: FloatArray = np.ones(components)
        self.rollouts = 0

    def add(self, returns: FloatArray) -> None:
        """Take in the returns of a rollout, shape ``(n, C)``."""
        mean, square = returns.mean(axis=0), returns.var(axis=0)
        if self.rollouts > 0:
            old = self.deviation**2 + self.mean**2
            square = MEMORY * old + (1.0 - MEMORY) * (square + mean**2)
            mean = MEMORY * self.mean + (1.0 - MEMORY) * mean
            square = square - mean**2
        self.mean = mean
        # A component that never varies keeps its unit instead of being blown up.
        self.deviation = np.where(square > 1e-12, np.sqrt(np.maximum(square, 1e-12)), 1.0)
        self.rollouts += 1

    def to_units(self, values: NDArray[np.float32] | FloatArray) -> FloatArray:
        """Values of the critic in units of the reward."""
        return np.asarray(values * self.deviation + self.mean, dtype=np.float64)

    def from_units(self, returns: FloatArray) -> FloatArray:
        """Returns in the units of the critic."""
        return (returns - self.mean) / self.deviation


class Evaluation(NamedTuple):
    """What the present policy says of b decisions: all with gradients.

    Attributes:
        log_prob: Of the action taken, shape ``(b,)``.
        entropy: In nats, shape ``(b,)``.
        values: One per reward component, shape ``(b, C)``.
    """

    log_prob: Tensor
    entropy: Tensor
    values: Tensor


Evaluate = Callable[[Tensor], Evaluation]
"""Rows of the rollout, shape ``(b,)`` → what the present policy says of them."""


@dataclass(frozen=True)
class Rollout:
    """What was collected: B decisions.

    Attributes:
        log_prob: Of the action taken, under the policy that took it, shape ``(B,)``.
        advantage: Of the action taken, components already weighted together, shape ``(B,)``.
        returns: Targets of the critic, shape ``(B, C)``.
        values: What the critic said then, shape ``(B, C)``, in the same units.
    """

    log_prob: Tensor
    advantage: Tensor
    returns: Tensor
    values: Tensor


@dataclass(frozen=True)
class UpdateStats:
    """What an update did; means over its gradient steps.

    Attributes:
        policy_loss: Clipped surrogate.
        value_loss: Half the squared error, summed over components.
        entropy: In nats.
        kl: How far the policy moved, at the last minibatch looked at.
        clip_fraction: Share of ratios outside the clip range.
        explained_variance: Of the returns by the values at collection, per component; NaN if all returns are equal.
        gradient_steps: How many were taken.
        stopped_early: True if the target KL ended the update.
    """

    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clip_fraction: float
    explained_variance: tuple[float, ...]
    gradient_steps: int
    stopped_early: bool


def update(
    evaluate: Evaluate,
    rollout: Rollout,
    parameters: Iterable[Tensor],
    optimiser: torch.optim.Optimizer,
    settings: PpoSettings,
    generator: torch.Generator,
    extra_loss: Callable[[Tensor], Tensor] | None = None,
) -> UpdateStats:
    """Improve a policy on a rollout.

    Args:
        evaluate: The policy.
        rollout: What it did and what came of it.
        parameters: The weights to improve; gradients are clipped over all of them together.
        optimiser: Holds the same weights.
        settings: Hyper-parameters.
        generator: Source of the order of the minibatches.
        extra_loss: Rows → one more loss, added as it is (for example a cloning or constraint term).
    """
    weights = list(parameters)
    advantage, device = rollout.advantage, rollout.advantage.device
    decisions = len(advantage)
    if decisions == 0:
        raise ModelFitError(problem("rollout", "0 decisions", "must hold at least one", "Collect more steps"))
    if settings.normalise_advantage and decisions > 1:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    low, high = 1.0 - settings.clip_range, 1.0 + settings.clip_range
    minibatches = max(1, round(decisions / settings.minibatch_size))
    seen: list[Tensor] = []
    kl, steps, stopped = 0.0, 0, False
    for _ in range(settings.update_epochs):
        order = torch.randperm(decisions, generator=generator, device=generator.device).to(device)
        for rows in order.tensor_split(minibatches):
            now = evaluate(rows)
            log_ratio = now.log_prob - rollout.log_prob.index_select(0, rows)
            ratio = log_ratio.exp()
            with torch.no_grad():
                # Schulman's low-variance estimator of KL(old ‖ new): never negative.
                kl = float((ratio - 1.0 - log_ratio).mean())
            if settings.target_kl is not None and kl > settings.target_kl:
                stopped = True
                break
            gain = advantage.index_select(0, rows)
            policy_loss = -torch.minimum(gain * ratio, gain * ratio.clamp(low, high)).mean()
            value_loss = _value_loss(now.values, rollout, rows, settings.value_clip)
            bonus = now.entropy.mean()
            loss = policy_loss + settings.value_coef * value_loss - settings.entropy_coef * bonus
            if extra_loss is not None:
                loss = loss + extra_loss(rows)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(weights, settings.max_grad_norm)
            if not torch.isfinite(norm):
                fix = "The weights are as before it: lower the learning rate, or check rewards and observations"
                raise ModelFitError(problem("gradient norm", float(norm), "must be finite", fix))
            optimiser.step()
            steps += 1
            with torch.no_grad():
                clipped = ((ratio < low) | (ratio > high)).float().mean()
                seen.append(torch.stack([policy_loss, value_loss, bonus, clipped]))
        if stopped:
            break
    means = torch.stack(seen).mean(dim=0).tolist() if seen else [float("nan")] * 4
    explained = _explained_variance(rollout.values, rollout.returns)
    return UpdateStats(means[0], means[1], means[2], kl, means[3], explained, steps, stopped)


def _value_loss(values: Tensor, rollout: Rollout, rows: Tensor, clip: float | None) -> Tensor:
    """Half the squared error, mean over decisions, sum over components."""
    returns = rollout.returns.index_select(0, rows)
    error = (values - returns).square()
    if clip is not None:
        old = rollout.values.index_select(0, rows)
        error = torch.maximum(error, (old + (values - old).clamp(-clip, clip) - returns).square())
    return 0.5 * error.sum(dim=-1).mean()


def _explained_variance(values: Tensor, returns: Tensor) -> tuple[float, ...]:
    spread = returns.var(dim=0, unbiased=False)
    left = (returns - values).var(dim=0, unbiased=False)
    return tuple(torch.where(spread > 0, 1.0 - left / spread, torch.nan).tolist())
