"""What a task's attributions say of its demands: the head that turns a nominal price into an expected one.

Prices of the cost model are those of a nominal task. What a task really asks for is latent; its counters are noisy
*rates*, so a demand shows in all of them (a task that computes longer moves fewer bytes per second), and their common
scale shows in none: it shows in the samples per second that were measured along with the counters. The head therefore
reads all seven attributions and this throughput at once and answers with the expected ratio of every demand to the
nominal one; the cost model does the rest, for any plan over any links.

An explanation asks what would follow if *some* attributions were another task's. What was not replaced is still the
task itself, of which all seven attributions tell; of a demand that was replaced its own attribution tells alone. So the
head takes any part of the seven (``known``), and each attribution moves its own demand only: in the simulator, too,
nothing else happens when one demand becomes another task's. The throughput follows from the demands and is nobody's
input: it says who the task is, and stays what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attribution_sched.cluster.counters import counters, sample_time_s, throughput, true_rates
from attribution_sched.cluster.decision import Attributor
from attribution_sched.cluster.demands import DEMAND_NAMES, SIGMA, Demands, draw_demands, nominal_demands
from attribution_sched.cluster.world import TaskKind, World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.kernels import one_thread

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

DEMANDS = len(DEMAND_NAMES)
SPEED_INPUTS = 2
INPUTS = 3 * DEMANDS + SPEED_INPUTS
"""Attributions less those of a nominal task, which of them are known, and a nominal task's shares of time; logarithm of
the throughput over a nominal task's, and whether it is known."""

HIDDEN = 128
LARGEST_LOG = 1.5
"""Logarithms of ratios stay within this; the spread of a simulated demand is at most 0.5."""

POINTS = 129
"""Where a demand's own attribution is asked for; between them it is interpolated."""

_EDGE = 1.0 - 1e-6
_REACH = 6.0
_POINTS = np.linspace(-_REACH, _REACH, POINTS)


class DemandHead(nn.Module):
    """Perceptron from attributions to log ratios of demands; zeros, a nominal task, until it is fitted.

    Its weights are buffers: they are fitted to the finished network by
    :func:`~attribution_sched.scheduler.hi_ppo.demand_head.fit_reward_terms`, and learning by trial leaves them alone.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = (INPUTS, HIDDEN, HIDDEN, DEMANDS)
        for layer, (n_in, n_out) in enumerate(pairwise(sizes)):
            self.register_buffer(f"weight{layer}", torch.zeros(n_out, n_in))
            self.register_buffer(f"bias{layer}", torch.zeros(n_out))

    def forward(self, inputs: Tensor) -> Tensor:
        """Log ratios ``(n, 7)`` from inputs ``(n, 23)``."""
        w = self.layers()
        z = torch.tanh(nn.functional.linear(inputs, w[0], w[1]))
        z = torch.tanh(nn.functional.linear(z, w[2], w[3]))
        return LARGEST_LOG * torch.tanh(nn.functional.linear(z, w[4], w[5]) / LARGEST_LOG)

    def layers(self) -> list[Tensor]:
        """Weights and biases in order."""
        return [getattr(self, f"{name}{layer}") for layer in range(3) for name in ("weight", "bias")]

    @property
    def fitted(self) -> bool:
        """Whether it says anything but nominal."""
        return any(bool(layer.any()) for layer in self.layers()[-2:])


@dataclass(frozen=True, eq=False)
class NominalTask:
    """What a nominal task of a kind looks like.

    Attributes:
        attribution: Its attributions before the bounding tanh, shape ``(7,)``.
        seconds: Seconds per sample each demand keeps its resource busy, shape ``(7,)``.
        shares: The same over the time of a sample, shape ``(7,)``.
        sample_s: Time of a sample on the reference device.
    """

    attribution: FloatArray
    seconds: FloatArray
    shares: FloatArray
    sample_s: float

    @classmethod
    def of(cls, kind: TaskKind, attributor: Attributor) -> NominalTask:
        """Read a nominal task of a kind as the attributor would."""
        nominal, seconds = nominal_demands(kind.model, training=kind.training)
        one = Demands(nominal[None], nominal[None], seconds[None])
        read = np.asarray(attributor(true_rates(one)), dtype=np.float64)[0]
        sample_s = float(sample_time_s(one)[0])
        return cls(unbounded(read), seconds, seconds / sample_s, sample_s)

    def inputs(
        self, attribution: NDArray[np.floating], known: BoolArray, samples_per_s: NDArray[np.floating] | None = None
    ) -> FloatArray:
        """Inputs of the head ``(n, 23)``.

        Args:
            attribution: Shape ``(n, 7)``.
            known: Which of them are known, shape ``(n, 7)``.
            samples_per_s: Measured throughput, shape ``(n,)``, 0 where nobody measured it; nobody did by default.
        """
        apart = np.where(known, unbounded(attribution) - self.attribution, 0.0)
        shares = np.broadcast_to(self.shares, apart.shape)
        speed = np.zeros(len(apart)) if samples_per_s is None else np.asarray(samples_per_s, dtype=np.float64)
        timed = speed > 0.0
        faster = np.log(np.where(timed, speed * self.sample_s, 1.0))
        return np.concatenate([apart, known, shares, faster[:, None], timed[:, None]], axis=1)

    def factors(self, ratio: FloatArray) -> FloatArray:
        """Multipliers on compute, memory and host time ``(n, 3)`` of tasks with ratios of demands ``(n, 7)``."""
        seconds = np.broadcast_to(self.seconds, ratio.shape)
        # Of a demand only the ratio and the nominal seconds count here.
        return Demands(ratio, np.ones_like(ratio), seconds).factors


def unbounded(attribution: NDArray[np.floating]) -> FloatArray:
    """Attributions before the tanh that bounds them."""
    return np.arctanh(np.clip(np.asarray(attribution, dtype=np.float64), -_EDGE, _EDGE))


@dataclass(frozen=True, eq=False)
class DemandReader:
    """Reads demands of tasks of one kind off their attributions.

    A demand whose attribution was not replaced is the task's, as all its attributions and its throughput tell; one that
    was replaced is another task's, as that one tells. So each attribution moves its own demand and no other.

    Attributes:
        head: Who says so.
        task: A nominal task of the kind.
        curves: Log ratio of every demand by its own attribution alone, at :data:`POINTS` distances from the nominal
            one, shape ``(7, POINTS)``.
    """

    head: DemandHead
    task: NominalTask
    curves: FloatArray

    @classmethod
    def of(cls, head: DemandHead, task: NominalTask) -> DemandReader:
        """Ask the head once for all tasks of a kind."""
        if not head.fitted:
            return cls(head, task, np.zeros((DEMANDS, POINTS)))
        alone = np.repeat(np.eye(DEMANDS, dtype=np.bool_), POINTS, axis=0)
        said = _ask(head, task.inputs(np.tanh(np.tile(_POINTS, DEMANDS)[:, None] + task.attribution), alone))
        by_demand = said.reshape(DEMANDS, POINTS, DEMANDS)
        return cls(head, task, np.stack([by_demand[j, :, j] for j in range(DEMANDS)]))

    def ratios(
        self, own: NDArray[np.floating], given: NDArray[np.floating], owner: IntArray | None = None
    ) -> FloatArray:
        """Expected ratios of demands to nominal ones in situations, shape ``(n, 7)``.

        Args:
            own: Attributions of the task itself, shape ``(7,)``, or of D tasks, ``(D, 7)``; all zero if not measured.
                An eighth number is the measured samples per second, 0 if nobody measured them.
            given: Attributions in the situations, shape ``(n, 7)``; where one differs, it is another task's.
            owner: Which of the D tasks each situation is about, shape ``(n,)``; the only one by default.
        """
        if not self.head.fitted:
            return np.ones((len(given), DEMANDS))
        told = np.atleast_2d(own)
        each, speed = told[:, :DEMANDS], told[:, DEMANDS] if told.shape[1] > DEMANDS else None
        at = np.zeros(len(given), dtype=np.int64) if owner is None else owner
        measured = np.repeat((each != 0.0).any(axis=1)[:, None], DEMANDS, axis=1)
        itself = _ask(self.head, self.task.inputs(np.asarray(each, dtype=np.float64), measured, speed))
        apart = unbounded(given) - self.task.attribution
        other = np.column_stack([np.interp(apart[:, j], _POINTS, self.curves[j]) for j in range(DEMANDS)])
        # Attributions of a task that was not measured are zeros; nothing is known of it.
        other[~np.any(given != 0.0, axis=1)] = 0.0
        # The same reading may differ in its last bits if it was made among others.
        kept = np.isclose(given, each[at], rtol=1e-5, atol=1e-6)
        found: FloatArray = np.exp(np.where(kept, itself[at], other))
        return found


@torch.no_grad()
def _ask(head: DemandHead, inputs: FloatArray) -> FloatArray:
    device = head.layers()[0].device
    found: FloatArray = head(torch.from_numpy(inputs.astype(np.float32)).to(device)).cpu().numpy().astype(np.float64)
    return found


# ------ Fits the head of demands: what attributions say of a task, learnt from simulated tasks whose demands are known
#
# A demand does not depend on the plan, so tasks are enough: kinds of the worlds and models of the catalogue, with
# demands drawn as the simulator draws them, counters and throughput read with its noise, and attributions as the
# network reads them. Of every task all attributions are shown, with or without the throughput, or any part of them,
# because explanations ask about parts. The expected *ratio* is learnt, so a task of which nothing is known is nominal.
#
# It needs the network's reading of counters and nothing else of it, so it may be fitted before or after learning. How
# good prices become by it is measured on engines by :mod:`~research.appraisal_measure`.

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
