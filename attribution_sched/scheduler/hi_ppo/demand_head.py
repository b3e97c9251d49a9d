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

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attribution_sched.cluster.counters import sample_time_s, true_rates
from attribution_sched.cluster.decision import Attributor
from attribution_sched.cluster.demands import DEMAND_NAMES, Demands, nominal_demands
from attribution_sched.cluster.world import TaskKind

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
    :func:`~attribution_sched.scheduler.hi_ppo.appraisal_fit.fit_reward_terms`, and learning by trial leaves them alone.
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
