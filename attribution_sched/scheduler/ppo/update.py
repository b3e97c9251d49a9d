"""The PPO update on one page: clipped ratio, value loss over reward components, entropy, KL stop, gradient clip.

Whatever a policy looks like stays outside: it only has to say, for rows of the rollout, the log-probability of the
action taken, its entropy and its values. A policy with several heads sums theirs; two levels of a hierarchy call
``update`` once each, with their own log-probabilities and advantages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attribution_sched.errors import ModelFitError, problem
from attribution_sched.scheduler.ppo.settings import PpoSettings


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
