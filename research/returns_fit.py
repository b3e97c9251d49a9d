"""Fits the critics of plans, Q_c(s, a), to what follows in the simulator when inputs are replaced.

Learning by trial leaves critics that rank the plans of one state well enough and know little of what a state's inputs
are worth. Here they learn both from rollouts: how much is earned from a decision on, and, with more weight, how that
*differs* between states that are alike but for some inputs and share their random numbers. Only the weights of the
critics of plans change; no decision depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attribution_sched.errors import SettingsError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from research.returns_truth import Rolled

FloatArray = NDArray[np.float64]

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-2
MINIBATCH = 512
TOGETHER = 32
"""Backgrounds whose coalitions are compared in a step."""

DIFFERENCES = 10.0
"""Weight of the differences between coalitions against that of the levels."""

LEAST_SPREAD = 1e-6


@dataclass(frozen=True)
class ReturnsFit:
    """How well the critics know lessons they have learnt from.

    Attributes:
        lessons: Decisions they have learnt from.
        levels: Share of the variance of the returns that is explained, per component.
        differences: The same of the differences between coalitions.
    """

    lessons: int
    levels: tuple[float, ...]
    differences: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"lessons": self.lessons, "levels": list(self.levels), "differences": list(self.differences)}


def fit_returns(network: HiPpoNetwork, rolled: list[Rolled], epochs: int = 24, seed: int = 0) -> ReturnsFit:
    """Fit the critics of plans of a network; everything else of it stays as it is.

    Args:
        network: Whose critics.
        rolled: Rollouts of the same network.
        epochs: Rounds over the lessons.
        seed: Of the minibatches.

    Raises:
        SettingsError: If there is nothing to learn from.
    """
    if not rolled or epochs < 1:
        rule = "needs rollouts and at least one epoch"
        raise SettingsError(problem("rolled, epochs", (len(rolled), epochs), rule, "Use roll_out() and 24"))
    device = next(network.parameters()).device
    width = rolled[0].inputs.shape[-1]
    targets = [one.targets() for one in rolled]
    inputs = torch.from_numpy(np.concatenate([one.inputs.reshape(-1, width) for one in rolled])).to(device)
    returns = _tensor([one.reshape(-1, one.shape[-1]) for one in targets], device)
    # The composed states themselves, coalitions of one background side by side.
    states = torch.from_numpy(np.concatenate([one.inputs[0].reshape(-1, *one.inputs.shape[-2:]) for one in rolled]))
    states = states.to(device)
    apart = _centred(_tensor([one[0].reshape(-1, *one.shape[-2:]) for one in targets], device))
    spread, differing = (part.std(dim=0).clamp_min(LEAST_SPREAD) for part in (returns, apart.flatten(0, 1)))
    head, source = network.action_value, torch.Generator().manual_seed(seed)
    steps = max(1, len(inputs) // MINIBATCH)
    adam = torch.optim.AdamW(head.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, LEARNING_RATE, total_steps=epochs * steps)
    with one_thread():
        for _ in range(epochs):
            order = torch.randperm(len(inputs), generator=source)
            for step in range(steps):
                part = order[step * MINIBATCH : (step + 1) * MINIBATCH]
                some = torch.randint(len(states), (TOGETHER,), generator=source)
                level = ((head(inputs[part]) - returns[part]) / spread).square().mean()
                gap = ((_centred(head(states[some])) - apart[some]) / differing).square().mean()
                adam.zero_grad()
                torch.autograd.backward(level + DIFFERENCES * gap)
                adam.step()
                schedule.step()
        with torch.no_grad():
            level, gap = head(inputs) - returns, _centred(head(states)) - apart
    adam.zero_grad()
    explained = (_explained(level, returns - returns.mean(dim=0)), _explained(gap.flatten(0, 1), apart.flatten(0, 1)))
    return ReturnsFit(len(inputs), *explained)


def _tensor(parts: list[FloatArray], device: torch.device) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.float32)).to(device)


def _centred(values: Tensor) -> Tensor:
    """Values ``(n, 16, 3)`` less their mean over coalitions."""
    return values - values.mean(dim=1, keepdim=True)


def _explained(missed: Tensor, whole: Tensor) -> tuple[float, ...]:
    left, all_of_it = (part.square().sum(dim=0).cpu().numpy().astype(np.float64) for part in (missed, whole))
    return tuple(float(1.0 - m / w) if w > 0.0 else 1.0 for m, w in zip(left, all_of_it, strict=True))
