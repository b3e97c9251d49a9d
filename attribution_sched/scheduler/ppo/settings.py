"""Hyper-parameters of proximal policy optimisation."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from attribution_sched.errors import SettingsError, problem


@dataclass(frozen=True)
class PpoSettings:
    """How a policy learns; the defaults are those of ``presets/hi_ppo.yaml``.

    Attributes:
        lr: Learning rate of Adam.
        gamma: Discount of later rewards.
        gae_lambda: Bias against variance in the advantage estimate.
        clip_range: How far the probability ratio may leave 1 before the gradient stops.
        entropy_coef: Weight of the entropy bonus.
        value_coef: Weight of the value loss.
        max_grad_norm: Gradients are scaled down to this norm.
        target_kl: An update stops once the policy has moved this far; None never stops it.
        num_steps: Decisions collected between two updates, over all environments.
        update_epochs: Passes over the collected decisions.
        minibatch_size: Decisions per gradient step; at most ``num_steps``.
        value_clip: How far a value may move from its old estimate before its gradient stops; None lets it go.
        normalise_advantage: Advantages of a rollout are brought to mean 0 and deviation 1.
    """

    lr: float = 3.0e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float | None = 0.02
    num_steps: int = 2048
    update_epochs: int = 10
    minibatch_size: int = 256
    value_clip: float | None = None
    normalise_advantage: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in ("target_kl", "value_clip"):
                continue
            if field.name in ("num_steps", "update_epochs", "minibatch_size"):
                if not isinstance(value, int) or value < 1:
                    raise SettingsError(problem(f"ppo.{field.name}", value, "must be a whole number >= 1", "Raise it"))
            elif field.name == "normalise_advantage":
                continue
            elif field.name in ("entropy_coef", "value_coef", "gae_lambda"):
                if not (math.isfinite(value) and value >= 0):
                    raise SettingsError(problem(f"ppo.{field.name}", value, "must be finite and >= 0", "Raise it"))
            elif not (math.isfinite(value) and value > 0):
                raise SettingsError(problem(f"ppo.{field.name}", value, "must be finite and > 0", "Raise it"))
        for name in ("gamma", "gae_lambda"):
            if getattr(self, name) > 1:
                raise SettingsError(problem(f"ppo.{name}", getattr(self, name), "must be at most 1", "Lower it"))
        if self.minibatch_size > self.num_steps:
            rule = f"must be at most num_steps, {self.num_steps}"
            raise SettingsError(problem("ppo.minibatch_size", self.minibatch_size, rule, "Lower it"))
