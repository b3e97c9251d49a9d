"""Hyper-parameters of the learning scheduler, as ``presets/hi_ppo.yaml`` holds them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from attribution_sched.config.fields import Count, Fraction, NonNegative, Positive, Record, broken_rule

Discount = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]


class PpoSettings(Record):
    """Proximal policy optimisation.

    Attributes:
        lr: Learning rate of Adam.
        gamma: Discount of later rewards.
        gae_lambda: Bias against variance in the advantage estimate.
        clip_range: How far the probability ratio may leave 1 before the gradient stops.
        entropy_coef: Weight of the entropy bonus.
        value_coef: Weight of the value loss.
        max_grad_norm: Gradients are scaled down to this norm.
        target_kl: An update stops once the policy has moved this far.
        num_steps: Decisions collected between two updates.
        update_epochs: Passes over the collected decisions.
        minibatch_size: Decisions per gradient step; at most ``num_steps``.
    """

    lr: Positive = 3.0e-4
    gamma: Discount = 0.99
    gae_lambda: Fraction = 0.95
    clip_range: Positive = 0.2
    entropy_coef: NonNegative = 0.01
    value_coef: NonNegative = 0.5
    max_grad_norm: Positive = 0.5
    target_kl: Positive = 0.02
    num_steps: Count = 2048
    update_epochs: Count = 10
    minibatch_size: Count = 256

    @model_validator(mode="after")
    def _minibatch_fits(self) -> Self:
        if self.minibatch_size > self.num_steps:
            rule = f"must be at most num_steps, {self.num_steps}"
            raise broken_rule(rule, "Lower it", key=("minibatch_size",), value=self.minibatch_size)
        return self


class GnnSettings(Record):
    """The encoder of the topology.

    Attributes:
        type: ``GraphSAGE`` or ``GAT``.
        num_layers: Rounds of message passing.
        hidden_dim: Width between them.
        out_dim: Width of the embedding.
        aggregation: How nodes are pooled, ``mean`` or ``max``.
    """

    type: Literal["GraphSAGE", "GAT"] = "GraphSAGE"
    num_layers: Count = 2
    hidden_dim: Count = 128
    out_dim: Count = 128
    aggregation: Literal["mean", "max"] = "mean"


class TrainingSettings(Record):
    """Everything that decides how Hi-PPO learns.

    Attributes:
        ppo: The optimiser of both levels.
        gnn: The topology encoder.
    """

    ppo: PpoSettings = PpoSettings()
    gnn: GnnSettings = GnnSettings()
