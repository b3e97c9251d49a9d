"""Training of Hi-PPO: experience from several worlds at once, one update for both levels.

The update itself is :mod:`~attribution_sched.scheduler.ppo.ppo`; here both levels are joined to it. The upper
agent's clipped surrogate is its main loss; the lower agents' surrogate, their entropy and the action-value heads are
added.
Lower agents learn in every iteration, the upper agent in every ``upper_every``-th, from all it has done since.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.cloning import Lesson
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.constraints import DualAscent, Multipliers
from attribution_sched.scheduler.hi_ppo.evaluate import Judgement, judge, take_trace, trace_offsets
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.rollout import Collecting, Collector, Experience, collect_here
from attribution_sched.scheduler.ppo.ppo import Evaluation, Rollout, UpdateStats, update
from attribution_sched.scheduler.ppo.settings import PpoSettings

IntArray = NDArray[np.int64]


LIMITS: Mapping[str, float] = {"bandwidth": 0.02, "balance": 0.1}
"""Traffic over narrow links, as log of 1 + GB per baseline hour; spread of the domains' compute beyond its bound."""


@dataclass(frozen=True)
class HiPpoSettings:
    """How both levels learn.

    Attributes:
        ppo: Hyper-parameters of the update; ``num_steps`` counts decisions of all clusters together.
        upper_every: The upper agent learns in every so many-th iteration.
        low_coef: Weight of the lower agents' own reward (fragmentation, traffic inside) in their advantage.
        action_value_coef: Weight of the action-value loss.
        lr_end: Learning rate at the end, as a share of that at the start.
        limits: How much of every constraint's violation is tolerated on average.
        ascent: How multipliers follow violations beyond that.
        bootstrap: Whether work after the horizon counts, or episodes end there for good.
        rehearsal_coef: Weight of the cloning loss on recorded lessons that runs beside, so that what seldom occurs in
            the worlds of training is not forgotten.
    """

    ppo: PpoSettings = field(default_factory=PpoSettings)
    upper_every: int = 1
    low_coef: float = 0.02
    action_value_coef: float = 0.25
    lr_end: float = 0.1
    limits: Mapping[str, float] = field(default_factory=lambda: dict(LIMITS))
    ascent: DualAscent = field(default_factory=lambda: DualAscent(rate=0.02, cap=1.0))
    bootstrap: bool = True
    rehearsal_coef: float = 0.02


@dataclass(frozen=True)
class Iteration:
    """One round of collecting and learning.

    Attributes:
        number: Rounds done.
        decisions: Decisions taken since the beginning.
        agent_steps: Choices of agents since the beginning, upper and lower.
        returns: Mean return of the episodes that ended in this round, by field; NaN where none did.
        stats: What the update did.
        multipliers: Prices of the constraints after it.
    """

    number: int
    decisions: int
    agent_steps: int
    returns: dict[str, float]
    stats: UpdateStats
    multipliers: Multipliers


class Trainer:
    """Trains a network in several worlds.

    Args:
        network: What learns.
        fields: Where.
        settings: How.
        seed: Of choices and minibatches.
        rehearsal: Recorded lessons to be kept in mind.
        collector: Who lets the network decide in the fields; this process by default, one field after the other.
    """

    def __init__(
        self,
        network: HiPpoNetwork,
        fields: list[ClusterBatch],
        settings: HiPpoSettings,
        seed: int,
        rehearsal: list[Lesson] | None = None,
        collector: Collector | None = None,
    ) -> None:
        self.network = network
        self.fields = fields
        self.settings = settings
        self.generator = torch.Generator(device=next(network.parameters()).device).manual_seed(seed)
        self.optimiser = torch.optim.Adam(network.parameters(), lr=settings.ppo.lr, eps=1e-5, fused=True)
        self.rehearsal = rehearsal or []
        self._collector: Collector = collector or collect_here
        self.multipliers = Multipliers.start(tuple(settings.limits), settings.ascent)
        self._unlearnt: list[Experience] = []
        self.number = 0
        self.decisions = 0
        self.agent_steps = 0

    def iterate(self, progress: float) -> Iteration:
        """Collect once in every field and learn; ``progress`` in [0, 1] lowers the learning rate."""
        settings, ppo = self.settings, self.settings.ppo
        clusters = sum(f.clusters for f in self.fields)
        steps = max(1, round(ppo.num_steps / clusters))
        factor = settings.lr_end + (1.0 - settings.lr_end) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
        for group in self.optimiser.param_groups:
            group["lr"] = ppo.lr * factor
        with one_thread():
            how = Collecting(steps, ppo.gamma, ppo.gae_lambda, settings.low_coef, self.multipliers, settings.bootstrap)
            # A seed for each field: whoever collects, and in whichever order, it is the same experience.
            seeds = torch.randint(2**62, (len(self.fields),), generator=self.generator, device=self.generator.device)
            told = self._collector(self.network, self.fields, seeds.tolist(), how)
            self.number += 1
            self.decisions += steps * clusters
            self.agent_steps += sum(part.agents for part in told)
            stats = self._learn(told)
        self.multipliers = self.multipliers.update({
            name: _beyond(limit, [part.violations[name] for part in told]) for name, limit in settings.limits.items()
        })  # fmt: skip
        returns = {}
        for f in self.fields:
            returns[f.name] = float(np.mean(f.returns)) if f.returns else float("nan")
            f.returns.clear()
        return Iteration(self.number, self.decisions, self.agent_steps, returns, stats, self.multipliers)

    def _learn(self, told: list[Experience]) -> UpdateStats:
        """Both levels at once, or the lower one now and the upper one from all it has done since it last learnt."""
        beside = self._rehearse if self.rehearsal and self.settings.rehearsal_coef > 0 else None
        if self.settings.upper_every == 1:
            return learn(self.network, told, self.optimiser, self.settings, self.generator, beside)
        self._unlearnt += told
        stats = learn(self.network, told, self.optimiser, self.settings, self.generator, levels="lower")
        if self.number % self.settings.upper_every == 0:
            stats = learn(
                self.network, self._unlearnt, self.optimiser, self.settings, self.generator, beside, levels="upper"
            )
            self._unlearnt = []
        return stats

    def _rehearse(self) -> Tensor:
        """Cloning loss on one recorded lesson."""
        at = torch.randint(len(self.rehearsal), (1,), generator=self.generator, device=self.generator.device)
        found = judge(self.network, self.rehearsal[int(at)].trace)
        return -self.settings.rehearsal_coef * (found.upper + found.lower).mean()


def learn(
    network: HiPpoNetwork,
    told: list[Experience],
    optimiser: torch.optim.Optimizer,
    settings: HiPpoSettings,
    generator: torch.Generator,
    extra: Callable[[], Tensor] | None = None,
    levels: Literal["both", "lower", "upper"] = "both",
) -> UpdateStats:
    """Improve both levels, or one of them, and the critics on experience from several worlds."""
    device = next(network.parameters()).device

    def joined(name: str) -> Tensor:
        parts = [torch.from_numpy(getattr(part, name)).float() for part in told]
        return torch.cat(parts).to(device)

    # Worlds differ in how much is at stake; within each, advantages count in their own spread.
    for_upper = torch.cat([_normal(part.advantage) for part in told]).to(device)
    for_lower = torch.cat([_normal(part.lower_advantage) for part in told]).to(device)
    upper_old, lower_old = joined("upper"), joined("lower")
    returns, values = joined("returns"), joined("values")
    sizes = [len(part.upper) for part in told]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    offsets = [trace_offsets(part.trace) for part in told]
    low, high = 1.0 - settings.ppo.clip_range, 1.0 + settings.ppo.clip_range
    kept: list[tuple[Tensor, Judgement]] = []

    def evaluate(rows: Tensor) -> Evaluation:
        index = rows.cpu().numpy()
        order, parts = [], []
        for number, part in enumerate(told):
            inside = np.flatnonzero((index >= starts[number]) & (index < starts[number + 1]))
            if len(inside):
                order.append(inside)
                parts.append(judge(network, take_trace(part.trace, index[inside] - starts[number], offsets[number])))
        back = torch.from_numpy(np.argsort(np.concatenate(order))).to(device)
        found = Judgement(*(torch.cat(column)[back] for column in zip(*parts, strict=True)))
        kept[:] = [(rows, found)]
        if levels == "lower":
            return Evaluation(found.lower, found.lower_entropy, found.values)
        return Evaluation(found.upper, found.upper_entropy, found.values)

    def extra_loss(rows: Tensor) -> Tensor:
        found = kept[0][1]
        quality = 0.5 * (found.action_values - returns[rows]).pow(2).sum(dim=-1).mean()
        loss = settings.action_value_coef * quality
        if levels == "both":
            ratio = (found.lower - lower_old[rows]).exp()
            gain = for_lower[rows]
            surrogate = -torch.minimum(gain * ratio, gain * ratio.clamp(low, high)).mean()
            loss = loss + surrogate - settings.ppo.entropy_coef * found.lower_entropy.mean()
        return loss if extra is None else loss + extra()

    main = (lower_old, for_lower) if levels == "lower" else (upper_old, for_upper)
    rollout = Rollout(*main, returns, values)
    ppo = replace(settings.ppo, normalise_advantage=False)
    return update(evaluate, rollout, network.parameters(), optimiser, ppo, generator, extra_loss)


def _beyond(limit: float, measured: list[float | None]) -> float | None:
    """Mean violation beyond what is tolerated; None if nothing was measured."""
    known = [value for value in measured if value is not None]
    return float(np.mean(known)) - limit if known else None


def _normal(advantage: NDArray[np.float64]) -> Tensor:
    centred = advantage - advantage.mean()
    return torch.from_numpy(centred / (centred.std() + 1e-8)).float()
