"""Fits the head of demands: what attributions say of a task, learnt from simulated tasks whose demands are known.

A demand does not depend on the plan, so tasks are enough: kinds of the worlds and models of the catalogue, with demands
drawn as the simulator draws them, counters and throughput read with its noise, and attributions as the network reads
them. Of every task all attributions are shown, with or without the throughput, or any part of them, because
explanations ask about parts. The expected *ratio* is learnt, so a task of which nothing is known is nominal.

It needs the network's reading of counters and nothing else of it, so it may be fitted before or after learning. How
good prices become by it is measured on engines by :mod:`~research.appraisal_measure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attribution_sched.cluster.counters import counters, throughput
from attribution_sched.cluster.demands import SIGMA, draw_demands
from attribution_sched.cluster.world import TaskKind, World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.demand_head import DEMANDS, SPEED_INPUTS, DemandHead, NominalTask
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]

FULL = 0.6
"""Share of the lessons in which all attributions are known."""

TIMED = 0.7
"""Share of these in which the throughput is known, too."""

OWN_SHARE = 0.7
"""Share of the lessons that are about kinds of the given worlds; the others are the rest of the catalogue."""

SPREADS = (0.8, 1.0, 1.2)
"""Spread of the demands over the simulator's own, so that unusual tasks are known too."""

MINIBATCH = 2048
LEARNING_RATE = 3e-3
MOST_TASKS = 10_000_000


@dataclass(frozen=True)
class Fitted:
    """How well the head knows tasks it has not seen.

    Attributes:
        tasks: Tasks it has learnt from.
        ratio: Share of the variance of every demand's ratio that is explained, all attributions and the throughput
            known, in the order of ``DEMAND_NAMES``.
        untimed: The same without the throughput.
        factors: Share of the variance of the multipliers on compute, memory and host time, all known.
        loss: Held-out loss of the last epoch, 1 for a head that says nominal.
    """

    tasks: int
    ratio: tuple[float, ...]
    untimed: tuple[float, ...]
    factors: tuple[float, ...]
    loss: float

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        named = {"ratio": self.ratio, "untimed": self.untimed, "factors": self.factors}
        return {"tasks": self.tasks, **{name: list(values) for name, values in named.items()}, "loss": self.loss}


def fit_reward_terms(
    network: HiPpoNetwork, worlds: Sequence[World], tasks: int = 300_000, seed: int = 0, epochs: int = 40
) -> Fitted:
    """Fit the head of demands of a network; everything else of it stays as it is.

    Args:
        network: Whose head; its reading of counters must be fixed.
        worlds: Where it decides; most lessons are about their kinds of tasks.
        tasks: Simulated tasks to learn from; a tenth as many more are held out.
        seed: Of tasks, minibatches and first weights.
        epochs: Rounds over the tasks.

    Raises:
        SettingsError: If there is nothing to learn from.
    """
    if not worlds:
        raise SettingsError(problem("worlds", 0, "needs at least one", "Give the worlds of the training"))
    if not 100 <= tasks <= MOST_TASKS or epochs < 1:
        rule = f"tasks must lie in 100..{MOST_TASKS} and epochs be >= 1"
        raise SettingsError(problem("tasks, epochs", (tasks, epochs), rule, "Use for example 300000 and 40"))
    rng = np.random.default_rng(seed)
    kinds, shares = _kinds(worlds)
    lessons, held_out = (_lessons(network, kinds, shares, n, rng) for n in (tasks, max(100, tasks // 10)))
    device = next(network.parameters()).device
    source = torch.Generator().manual_seed(seed)
    head = DemandHead()
    _start(head, source)
    weights = [layer.requires_grad_() for layer in head.layers()]
    inputs, ratios = torch.from_numpy(lessons.inputs), torch.from_numpy(lessons.ratio)
    adam = torch.optim.Adam(weights, lr=LEARNING_RATE)
    steps = epochs * max(1, tasks // MINIBATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, LEARNING_RATE, total_steps=steps)
    with one_thread():
        for _ in range(epochs):
            order = torch.randperm(tasks, generator=source)
            for part in torch.split(order[: max(1, tasks // MINIBATCH) * MINIBATCH], MINIBATCH):
                shown = _hidden(inputs[part], source)
                loss = _loss(head, shown, ratios[part])
                adam.zero_grad()
                torch.autograd.backward(loss)
                adam.step()
                schedule.step()
        with torch.no_grad():
            told, truth = torch.from_numpy(held_out.inputs), torch.from_numpy(held_out.ratio)
            said = torch.exp(head(told)).numpy().astype(np.float64)
            untimed = torch.exp(head(_without_speed(told))).numpy().astype(np.float64)
            shown = _hidden(told, source)
            least = float(_loss(head, shown, truth) / _loss(DemandHead(), shown, truth))
    network.demands.load_state_dict({name: tensor.detach().to(device) for name, tensor in head.state_dict().items()})
    factors = [np.concatenate(part) for part in zip(*held_out.factors(said), strict=True)]
    timed, without = (_explained(truth.numpy(), one) for one in (said, untimed))
    return Fitted(tasks, timed, without, _explained(*factors), least)


@dataclass(frozen=True, eq=False)
class _Lessons:
    """Inputs of the head with everything known, ratios of demands, and the nominal task of every kind's rows."""

    inputs: Float32Array
    ratio: Float32Array
    blocks: tuple[tuple[NominalTask, slice], ...]

    def factors(self, said: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """True and expected multipliers, kind by kind."""
        truth = self.ratio.astype(np.float64)
        return [(task.factors(truth[rows]), task.factors(said[rows])) for task, rows in self.blocks]


def _kinds(worlds: Sequence[World]) -> tuple[list[TaskKind], FloatArray]:
    """Kinds of the worlds and models of the catalogue, each architecture once, and their shares of the lessons."""
    from attribution_sched.cluster.models import model, model_names

    listed = {kind.model.name: kind for world in worlds for kind in world.kinds}
    any_kind = next(iter(listed.values()))
    known = [replace(any_kind, model=model(name)) for name in model_names()]
    others = [kind for kind in known if kind.model.name not in listed]
    own = OWN_SHARE if others else 1.0
    shares = [own / len(listed)] * len(listed) + [(1.0 - own) / max(1, len(others))] * len(others)
    return [*listed.values(), *others], np.array(shares)


def _lessons(
    network: HiPpoNetwork, kinds: list[TaskKind], shares: FloatArray, n: int, rng: np.random.Generator
) -> _Lessons:
    inputs, ratios, blocks = [], [], []
    begin = 0
    for kind, size in zip(kinds, rng.multinomial(n, shares), strict=True):
        task = NominalTask.of(kind, network.attributions)
        for some, spread in zip(np.array_split(np.arange(size), len(SPREADS)), SPREADS, strict=True):
            if len(some) == 0:
                continue
            demands = draw_demands([kind.model] * len(some), rng, spread, training=kind.training)
            # Attributions reach the head in single precision.
            seen = network.attributions(counters(demands, rng).values).astype(np.float32).astype(np.float64)
            inputs.append(task.inputs(seen, np.ones(seen.shape, dtype=np.bool_), throughput(demands, rng)))
            ratios.append(demands.ratio)
        blocks.append((task, slice(begin, begin + int(size))))
        begin += int(size)
    return _Lessons(np.concatenate(inputs).astype(np.float32), np.concatenate(ratios).astype(np.float32), tuple(blocks))


def _start(head: DemandHead, source: torch.Generator) -> None:
    """Small orthogonal weights; the last layer begins as a nominal task."""
    for layer in range(2):
        nn.init.orthogonal_(getattr(head, f"weight{layer}"), generator=source)


def _hidden(inputs: Tensor, source: torch.Generator) -> Tensor:
    """Lessons of which some attributions are hidden: none, or each with a probability of its row's own.

    A task's throughput is known along with all its attributions or not at all.
    """
    n = len(inputs)
    share = torch.rand(n, 1, generator=source)
    full = torch.rand(n, 1, generator=source) < FULL
    shown = ((torch.rand(n, DEMANDS, generator=source) < share) | full).to(inputs.dtype)
    timed = (full & (torch.rand(n, 1, generator=source) < TIMED)).to(inputs.dtype)
    fixed, speed = inputs[:, 2 * DEMANDS : -SPEED_INPUTS], inputs[:, -SPEED_INPUTS:]
    return torch.cat([inputs[:, :DEMANDS] * shown, shown, fixed, speed * timed], dim=1)


def _without_speed(inputs: Tensor) -> Tensor:
    return torch.cat([inputs[:, :-SPEED_INPUTS], torch.zeros_like(inputs[:, -SPEED_INPUTS:])], dim=1)


_SCALE = torch.from_numpy((1.0 / SIGMA).astype(np.float32))


def _loss(head: DemandHead, inputs: Tensor, ratio: Tensor) -> Tensor:
    """Mean squared error of the ratios, each in units of its spread."""
    found: Tensor = ((torch.exp(head(inputs)) - ratio) * _SCALE).square().mean()
    return found


def _explained(truth: NDArray[np.floating], said: FloatArray) -> tuple[float, ...]:
    """Share of the variance explained, column by column; 1 where nothing varies."""
    spread = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    missed = ((truth - said) ** 2).sum(axis=0)
    return tuple(float(1.0 - m / s) if s > 0.0 else 1.0 for m, s in zip(missed, spread, strict=True))
