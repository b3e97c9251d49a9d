"""Training of the network conditionals: every hidden feature of a masked row is predicted from the observed ones."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from attribution_sched.attribution.conditionals.base import dynamic_masks, uniform_size_masks
from attribution_sched.attribution.conditionals.energy_head import (
    EnergyHead,
    log_partition,
    log_partition_sampled,
    tilted_log_density,
)
from attribution_sched.attribution.conditionals.networks import (
    LinearTable,
    Tick,
    cosine_rate,
    follow,
    generator,
    set_rate,
)
from attribution_sched.attribution.conditionals.proposals import GruProposal, MlpProposal, log_density
from attribution_sched.types import BoolArray

BATCH = 512
CHECK_EVERY = 50
PATIENCE = 8
NOISE = 0.02
"""Jitter of the training rows, in standard deviations: keeps a head from collapsing on single rows."""


def train_proposal(
    network: MlpProposal | GruProposal,
    table: LinearTable,
    train: Tensor,
    held: Tensor,
    rng: np.random.Generator,
    *,
    dynamic: bool,
    steps: int,
    tick: Tick,
) -> float:
    """Train by maximum conditional likelihood with early stopping; returns the held-out score in nats a mask.

    Args:
        network: Proposal, changed in place to the best running average of its weights.
        table: Linear predictions.
        train: (n, d) standardised training rows.
        held: (m, d) rows for early stopping.
        rng: Source of masks and batches.
        dynamic: Use the masking schedule mixed with uniform sizes, instead of uniform sizes alone.
        steps: Largest number of steps.
        tick: Progress callback.
    """
    trainer = _Trainer(network, None, table, train, held, rng, dynamic)
    return trainer.run(network, steps, 2e-3, "proposal network", tick)


def train_energy(
    head: EnergyHead,
    network: MlpProposal | GruProposal,
    table: LinearTable,
    train: Tensor,
    held: Tensor,
    rng: np.random.Generator,
    *,
    dynamic: bool,
    steps: int,
    tick: Tick,
) -> float:
    """Train the energy over a frozen proposal; returns the held-out score in nats a mask."""
    trainer = _Trainer(network, head, table, train, held, rng, dynamic)
    return trainer.run(head, steps // 2, 2e-3, "energy network", tick)


class _Trainer:
    """One loop for both stages; the module that is trained is the one passed to :meth:`run`."""

    def __init__(
        self,
        network: MlpProposal | GruProposal,
        head: EnergyHead | None,
        table: LinearTable,
        train: Tensor,
        held: Tensor,
        rng: np.random.Generator,
        dynamic: bool,
    ) -> None:
        self.network, self.head, self.table = network, head, table
        self.train, self.rng, self.dynamic = train, rng, dynamic
        d = train.shape[1]
        repeats = max(1, 2048 // len(held))
        self.held = held.repeat(repeats, 1)
        # Both stages are judged on the same masks, or their scores could not be compared.
        self.held_masks = uniform_size_masks(len(self.held), d, np.random.default_rng(len(held)))

    def run(self, module: nn.Module, steps: int, rate: float, stage: str, tick: Tick) -> float:
        """Optimise ``module`` and leave its best running average in place."""
        g = generator(self.rng)
        slow = copy.deepcopy(module)
        optimiser = torch.optim.AdamW(module.parameters(), weight_decay=0.05)
        best, best_state, waited = -np.inf, copy.deepcopy(module.state_dict()), 0
        for step in range(steps):
            set_rate(optimiser, cosine_rate(step, steps, rate))
            rows = self.train[torch.randint(len(self.train), (BATCH,), generator=g)]
            rows = rows + NOISE * torch.randn(rows.shape, generator=g)
            masks = self._masks(len(rows), rows.shape[1], step / steps)
            loss = -self.log_likelihood(rows, masks, g).mean()
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(module.parameters(), 5.0)
            optimiser.step()
            follow(slow, module, 0.99)
            if step % CHECK_EVERY == CHECK_EVERY - 1:
                tick(stage, step / steps)
                score = self._score(module, slow)
                if score > best:
                    best, best_state, waited = score, copy.deepcopy(slow.state_dict()), 0
                else:
                    waited += 1
                    if waited > PATIENCE and (not self.dynamic or step > 0.9 * steps):
                        break
        module.load_state_dict(best_state)
        return float(best)

    def log_likelihood(self, rows: Tensor, masks: BoolArray, g: torch.Generator | None = None) -> Tensor:
        """Sum over hidden features of ``log p(x_j | x_S)``, (batch,); Z is sampled with ``g``, else quadrature."""
        mask = torch.as_tensor(masks, dtype=torch.float32)
        visible = rows * mask
        if isinstance(self.network, GruProposal):
            mean, spread = torch.zeros_like(rows), torch.ones_like(rows)
        else:
            code = self.table.codes(masks)
            mean = torch.bmm(self.table.gain[code], visible[:, :, None])[:, :, 0]
            spread = self.table.spread[code]
        residual = (rows - mean) / spread
        if self.head is None:
            log = log_density(self.network.heads(self.network.context(visible, mask, mean, spread)), residual)
        else:
            with torch.no_grad():
                context = self.network.context(visible, mask, mean, spread)
                heads = self.network.heads(context)
            tilt = self.head.coefficients(context)
            z = log_partition(heads, tilt) if g is None else log_partition_sampled(heads, tilt, g)
            log = tilted_log_density(heads, tilt, residual, z)
        return ((log - spread.log()) * (1.0 - mask)).sum(dim=1)

    def _masks(self, n: int, d: int, progress: float) -> BoolArray:
        return dynamic_masks(n, d, progress, self.rng) if self.dynamic else uniform_size_masks(n, d, self.rng)

    @torch.no_grad()
    def _score(self, module: nn.Module, slow: nn.Module) -> float:
        """Held-out score of the running average."""
        trained = copy.deepcopy(module.state_dict())
        module.load_state_dict(slow.state_dict())
        score = float(self.log_likelihood(self.held, self.held_masks).mean())
        module.load_state_dict(trained)
        return score
