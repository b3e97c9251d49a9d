"""Policies a flat agent can train: what they must offer, and the plain one (two tanh networks, masked categorical)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from attribution_sched.scheduler.ppo.masking import chosen, log_prob_and_entropy, masked_log_softmax, sample
from attribution_sched.scheduler.ppo.update import Evaluation


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
