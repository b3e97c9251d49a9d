"""Choices among masked actions, and the policies made of them.

A forbidden action has probability exactly 0 and is never drawn. Functions of choices take any leading axes; the last
axis holds the actions. ``ActorCritic`` is what a flat agent asks of a policy, ``FlatPolicy`` the plain one.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attribution_sched.errors import ModelFitError, PlanError, problem
from attribution_sched.scheduler.ppo.ppo import Evaluation

_FORBIDDEN = float("-inf")
_LEAST = -1e30
"""Stands for −inf in products with a probability of 0, which −inf would turn into NaN."""


def masked_log_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Log-probabilities over the allowed actions.

    Args:
        logits: Scores, shape ``(..., n)``.
        mask: True where an action is allowed, shape ``(..., n)``; each row allows at least one.

    Returns:
        Shape ``(..., n)``: exactly −inf (probability 0) where forbidden; gradients are finite everywhere.

    Raises:
        PlanError: A row allows no action.
        ModelFitError: A logit of an allowed action is not a finite number.
    """
    _same_shape(logits, mask)
    log_probs = torch.log_softmax(torch.where(mask, logits, _FORBIDDEN), dim=-1)
    # An empty row and a NaN or infinite logit all make the largest entry NaN: one number tells of any of them.
    if not torch.isfinite(log_probs.detach().amax(dim=-1).sum()):
        _refuse(logits.detach(), mask)
    return log_probs


def sample(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw one action per row.

    Args:
        log_probs: Output of ``masked_log_softmax``, shape ``(..., n)``.
        generator: Source of randomness, on the device of ``log_probs``; None takes the most probable action.

    Returns:
        Actions, shape ``(...)``.
    """
    log_probs = log_probs.detach()
    if generator is None:
        return log_probs.argmax(dim=-1)
    probs = log_probs.exp()
    reach = probs.cumsum(dim=-1)
    total = reach[..., -1:]
    point = total * torch.rand(total.shape, generator=generator, dtype=probs.dtype, device=probs.device)
    action = (reach <= point).sum(dim=-1).clamp_max_(probs.shape[-1] - 1)
    # A sum that rounds (or is formed in parallel) may point at an entry of probability 0: such rows are drawn anew.
    missed = chosen(probs, action) <= 0.0
    if missed.any():
        action[missed] = _race(log_probs[missed], generator)
    return action


def _race(log_probs: Tensor, generator: torch.Generator) -> Tensor:
    """Draw by Gumbel's trick: with finite noise a forbidden entry stays at −inf, below every allowed one."""
    noise = torch.empty_like(log_probs).exponential_(generator=generator)
    limits = torch.finfo(noise.dtype)
    return (log_probs - noise.clamp_(limits.tiny, limits.max).log_()).argmax(dim=-1)


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy of each row in nats, shape ``(...)``; forbidden actions add nothing and pass no gradient."""
    return -(log_probs.exp() * log_probs.clamp_min(_LEAST)).sum(dim=-1)


def chosen(log_probs: Tensor, action: Tensor) -> Tensor:
    """Log-probability of the action taken in each row, shape ``(...)``."""
    return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)


class _Assess(torch.autograd.Function):
    """``log_prob_and_entropy`` with its gradient written out, which spares some of the recording of every step.

    ∂ log p_a / ∂z_j = 1[j = a] − p_j and ∂H / ∂z_j = −p_j (log p_j + H).
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, mask: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = torch.log_softmax(torch.where(mask, logits, _FORBIDDEN), dim=-1)
        taken = chosen(log_probs, action)
        if not torch.isfinite(taken.sum()):
            _refuse(logits, mask, action)
        probs, finite = log_probs.exp(), log_probs.clamp_min(_LEAST)
        spread = -(probs * finite).sum(dim=-1)
        ctx.save_for_backward(probs, finite, spread, action)
        return taken, spread

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_taken: Tensor, of_spread: Tensor) -> tuple[Tensor, None, None]:
        probs, finite, spread, action = ctx.saved_tensors
        of_taken = of_taken.unsqueeze(-1)
        grad = (finite + spread.unsqueeze(-1)).mul_(of_spread.unsqueeze(-1)).add_(of_taken).mul_(probs).neg_()
        return grad.scatter_add_(-1, action.unsqueeze(-1), of_taken), None, None


def log_prob_and_entropy(logits: Tensor, mask: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """What an update needs of a masked choice: the log-probability of the action taken and the entropy.

    Equal to ``chosen`` and ``entropy`` of ``masked_log_softmax``, values and gradients, in less time.

    Args:
        logits: Scores, shape ``(..., n)``.
        mask: True where an action is allowed, shape ``(..., n)``.
        action: Action taken in each row, shape ``(...)``; must be allowed.

    Returns:
        Both of shape ``(...)``.
    """
    _same_shape(logits, mask)
    taken, spread = _Assess.apply(logits, mask, action)  # type: ignore[no-untyped-call]
    return taken, spread


def _same_shape(logits: Tensor, mask: Tensor) -> None:
    if mask.shape != logits.shape:
        rule = f"must be {tuple(logits.shape)}, the shape of the logits"
        raise ModelFitError(problem("mask.shape", tuple(mask.shape), rule, "Give one flag per action"))


def _refuse(logits: Tensor, mask: Tensor, action: Tensor | None = None) -> NoReturn:
    """Name what is wrong with the first bad row."""
    empty = (~mask.any(dim=-1)).nonzero()
    if len(empty):
        row = tuple(empty[0].tolist())
        fix = "Pass over decisions that offer no choice, or add an action that is always possible"
        raise PlanError(problem(f"mask{list(row)}", "all False", "must allow at least one action", fix))
    if action is not None and not chosen(mask, action).all():
        row = tuple((~chosen(mask, action)).nonzero()[0].tolist())
        fix = "Keep the mask an action was drawn with"
        raise PlanError(problem(f"action{list(row)}", int(action[row]), "is forbidden by its mask", fix))
    wrong = (mask & ~torch.isfinite(logits)).nonzero()
    if len(wrong) == 0:
        rule = "differ by more than the number format can hold"
        raise ModelFitError(problem("logits", float(logits.abs().max()), rule, "Lower the learning rate"))
    at = tuple(wrong[0].tolist())
    fix = "Check the observation and the weights for NaN, or lower the learning rate"
    raise ModelFitError(problem(f"logits{list(at)}", float(logits[at]), "must be a finite number", fix))


class Decision(NamedTuple):
    """What a policy decides for b observations.

    Attributes:
        action: Shape ``(b,)``, whole numbers.
        log_prob: Of that action, shape ``(b,)``.
        values: One per reward component, shape ``(b, C)``.
    """

    action: Tensor
    log_prob: Tensor
    values: Tensor


class ActorCritic(Protocol):
    """What ``FlatAgent`` asks of a policy; it must be a ``torch.nn.Module`` besides.

    ``obs`` has shape ``(b, *observation)``, ``mask`` ``(b, n)``, ``action`` ``(b,)``.
    """

    def sample(self, obs: Tensor, mask: Tensor, generator: torch.Generator | None) -> Decision:
        """Draw actions; the most probable ones where ``generator`` is None."""
        ...

    def evaluate(self, obs: Tensor, mask: Tensor, action: Tensor) -> Evaluation:
        """Log-probability of given actions, entropy and values, with gradients."""
        ...

    def values(self, obs: Tensor) -> Tensor:
        """Values only, shape ``(b, C)``."""
        ...


class Tanh(nn.Module):
    """``torch.nn.Tanh`` to within rounding, as 2σ(2x) − 1: on a CPU torch's σ takes a sixth of the time."""

    def forward(self, x: Tensor) -> Tensor:
        """Tanh of every entry."""
        return torch.sigmoid(x * 2.0) * 2.0 - 1.0


def linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """A layer with orthogonal weights and zero bias, drawn from ``generator`` alone."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def network(sizes: tuple[int, ...], gain: float, generator: torch.Generator) -> nn.Sequential:
    """A tanh network through ``sizes``; ``gain`` scales its last layer."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes[:-1]):
        layers += [linear(inputs, outputs, math.sqrt(2.0), generator), Tanh()]
    return nn.Sequential(*layers, linear(sizes[-2], sizes[-1], gain, generator))


class FlatPolicy(nn.Module):
    """One categorical choice among ``actions``; separate actor and critic of two tanh layers each.

    Args:
        inputs: Numbers in an observation (it is flattened).
        actions: Number of actions.
        components: Number of reward components, each with its own value.
        generator: Source of the initial weights.
        hidden: Width of the hidden layers.
    """

    def __init__(
        self, inputs: int, actions: int, components: int, generator: torch.Generator, hidden: tuple[int, ...] = (64, 64)
    ) -> None:
        super().__init__()
        self.hidden = hidden
        # Almost equal logits at first: every allowed action gets its chance.
        self.actor = network((inputs, *hidden, actions), 0.01, generator)
        self.critic = network((inputs, *hidden, components), 1.0, generator)

    def sample(self, obs: Tensor, mask: Tensor, generator: torch.Generator | None) -> Decision:
        """Draw actions; the most probable ones where ``generator`` is None."""
        flat = obs.flatten(1)
        log_probs = masked_log_softmax(self.actor(flat), mask)
        action = sample(log_probs, generator)
        return Decision(action, chosen(log_probs, action), self.critic(flat))

    def evaluate(self, obs: Tensor, mask: Tensor, action: Tensor) -> Evaluation:
        """Log-probability of given actions, entropy and values, with gradients."""
        flat = obs.flatten(1)
        log_prob, entropy = log_prob_and_entropy(self.actor(flat), mask, action)
        return Evaluation(log_prob, entropy, self.critic(flat))

    def values(self, obs: Tensor) -> Tensor:
        """Values only, shape ``(b, C)``."""
        found: Tensor = self.critic(obs.flatten(1))
        return found
