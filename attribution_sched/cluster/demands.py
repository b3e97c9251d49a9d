"""What a task really asks of the machine: seven latent numbers that no scheduler ever sees.

    demand = nominal(architecture) · exp(σ·z − σ²/2),   z ~ N(0, C)

The nominal part is the arithmetic of the model per sample on a reference device, trained (three passes) or served (one;
a language model reads its prompt and then writes token by token, every one of which reads all weights); the log-normal
part is the task's own (its data loader, input sizes, kernel choices), with mean 1, so two tasks of one type
differ. Demands produce the task's noisy counters (:mod:`attribution_sched.cluster.counters`) and drive its
time, energy and interference through the multipliers of :meth:`Demands.factors`.

``σ`` and the correlation ``C`` of the idiosyncrasy are assumptions: host-side demands vary most and move
together, operator times vary least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import Gpu, Precision, gpu
from attribution_sched.cluster.interference import MEMORY_EFFICIENCY, PCIE_BYTES_PER_S
from attribution_sched.cluster.models import Model
from attribution_sched.cluster.throughput import efficiency, generates, generation, host_s_per_token, prompt_share
from attribution_sched.errors import TaskError, problem
from attribution_sched.types import FloatArray, IntArray

DEMAND_NAMES: tuple[str, ...] = (
    "cpu_cycles", "l3_misses", "memory_bandwidth", "pcie_bandwidth", "conv", "fc", "attention",
)  # fmt: skip
"""Order of the demand axis."""

DEMAND_UNITS: tuple[str, ...] = (
    "cycles/sample", "misses/sample", "bytes/sample", "bytes/sample", "s/sample", "s/sample", "s/sample",
)  # fmt: skip

FACTOR_NAMES: tuple[str, ...] = ("compute", "memory", "host")
"""Order of the multipliers that the cost model takes."""

SIGMA: FloatArray = np.array([0.45, 0.50, 0.35, 0.40, 0.25, 0.25, 0.25])
"""Spread of the idiosyncrasy per demand (assumed)."""

REFERENCE_GPU = "A100-80"
REFERENCE_BATCH = 32.0

CLOCK_HZ = 2.6e9
"""Host core clock."""

PREPARE_S_PER_ELEMENT = 30e-9
"""CPU seconds to prepare one input element (assumed: about 4.5 ms for a decoded 224×224 image)."""

LOADER_WORKERS = 8.0
"""Data-loader processes that share the preparation (assumed)."""

MISS_S = 90e-9
"""Stall of one last-level-cache miss (assumed)."""


def _correlation() -> FloatArray:
    corr = np.eye(len(DEMAND_NAMES))
    corr[0, 1] = corr[1, 0] = 0.5  # a heavy data loader both computes and misses
    corr[0, 3] = corr[3, 0] = 0.3
    corr[1, 2] = corr[2, 1] = 0.2
    return corr


_ROOT: FloatArray = np.linalg.cholesky(_correlation()).astype(np.float64)


@dataclass(frozen=True)
class Demands:
    """Latent demands of a batch of tasks; the axes are (task, demand).

    Attributes:
        values: True demands in ``DEMAND_UNITS``, shape ``(n_tasks, 7)``.
        nominal: What the architecture alone would ask, same shape and units.
        nominal_s: Seconds per sample that the nominal demand keeps its resource busy on the reference
            device, same shape.
    """

    values: FloatArray
    nominal: FloatArray
    nominal_s: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def ratio(self) -> FloatArray:
        """True over nominal demand, ``(n_tasks, 7)``; 1 where the architecture asks for nothing."""
        return np.divide(self.values, self.nominal, out=np.ones_like(self.values), where=self.nominal > 0)

    @property
    def seconds(self) -> FloatArray:
        """Seconds per sample each demand keeps its resource busy, ``(n_tasks, 7)``."""
        return self.nominal_s * self.ratio

    @property
    def factors(self) -> FloatArray:
        """Multipliers on compute, memory and host time (``FACTOR_NAMES``), shape ``(n_tasks, 3)``."""
        seconds = self.seconds
        parts = ([4, 5, 6], [2], [0, 1])
        return np.stack([seconds[:, p].sum(1) / self.nominal_s[:, p].sum(1) for p in parts], axis=1)

    def resources(self, base: FloatArray) -> FloatArray:
        """Busy shares of host, compute, memory and pcie of these very tasks, shape ``(n_tasks, R)``.

        Args:
            base: Nominal shares from ``research.interference_fit.resource_demands``,
                shape ``(n_tasks, R)`` or ``(R,)``.
        """
        compute, memory, host = self.factors.T
        scaled = base * np.stack([host, compute, memory, self.ratio[:, 3]], axis=1)
        # A task that asks more also runs longer, so shares of its own step grow less than demands.
        stretch = np.sqrt((scaled**2).sum(1) / np.maximum((base**2).sum(-1), 1e-12))
        shares: FloatArray = np.clip(scaled / np.maximum(stretch, 1e-12)[:, None], 0.0, 1.0)
        return shares

    def take(self, index: int | slice | IntArray) -> Demands:
        """The tasks at ``index``, as a batch."""
        rows = [index] if isinstance(index, int) else index
        return Demands(self.values[rows], self.nominal[rows], self.nominal_s[rows])


def nominal_demands(
    model: Model, device: Gpu | None = None, batch: float = REFERENCE_BATCH, *, training: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Demands per sample from arithmetic alone, and the seconds they take.

    Args:
        model: The model.
        device: Reference device; A100-80 when omitted.
        batch: Samples per step, over which the launch floor and the weight traffic are spread.
        training: Whether the sample is trained on, or served.

    Returns:
        Two arrays of shape ``(7,)``: demands in ``DEMAND_UNITS`` and busy seconds per sample.
    """
    device = gpu(REFERENCE_GPU) if device is None else device
    found = efficiency(model.family, device, Precision.FP32, training)
    passes = 3.0 if training else 1.0
    blocks = max(1, sum(layer.kind in ("block", "conv") for layer in model.layers))
    inputs = model.layers[0].input_elements
    operators = np.array([float(model.column(f"{name}_flops").sum()) for name in ("conv", "fc", "attention")])
    rounds, cached, waits_s = 1.0, 0.0, 0.0
    if generates(model, training):
        # The prompt in one pass, then every token in one of its own: weights and kernels again, keys and values read.
        read, share, written = generation(model)
        rounds, cached, waits_s = 1.0 + written, float(read.sum()), written * host_s_per_token(device)
        total = model.column("conv_flops") + model.column("fc_flops") + model.column("attention_flops")
        # Projections are paid once a token whoever reads or writes it; scores only for the tokens before.
        done = float((total * (prompt_share(model) + share)).sum())
        operators[2] = max(done - operators[0] - operators[1], 0.0)
    launch_s = found.floor_per_block_s * blocks * rounds / batch + waits_s
    prepare_s = PREPARE_S_PER_ELEMENT * inputs
    cycles = CLOCK_HZ * (launch_s + prepare_s)
    misses = load_constants("host")["counters"]["misses_per_cycle"] * cycles + inputs * 4.0 / 64.0
    moved = passes * 4.0 * (float(model.column("moved_elements").sum()) + cached + model.params * rounds / batch)
    shipped = inputs * 4.0
    operator_s = passes * operators / found.flops_per_s
    demands = np.array([cycles, misses, moved, shipped, *operator_s])
    seconds = np.array([
        launch_s + prepare_s / LOADER_WORKERS, misses * MISS_S / LOADER_WORKERS,
        moved / (MEMORY_EFFICIENCY * device.bandwidth_bytes_per_s), shipped / PCIE_BYTES_PER_S, *operator_s,
    ])  # fmt: skip
    return demands, seconds


def draw_demands(
    models: Sequence[Model],
    rng: np.random.Generator,
    spread: float = 1.0,
    *,
    training: bool | Sequence[bool] = True,
) -> Demands:
    """Draw the latent demands of one task per entry of ``models``.

    Args:
        models: Model of each task; repeats are welcome and cost nothing.
        rng: Source of the idiosyncrasy.
        spread: Factor on ``SIGMA``; 0 gives nominal tasks.
        training: Whether each task trains or is served; one for all, or one for each.
    """
    if not models:
        raise TaskError(problem("models", models, "needs at least one task", "Pass the model of every task"))
    if not (np.isfinite(spread) and spread >= 0):
        raise TaskError(problem("spread", spread, "must be finite and >= 0", "Use 1 for the default spread"))
    modes = [training] * len(models) if isinstance(training, bool) else [bool(mode) for mode in training]
    known: dict[tuple[int, bool], tuple[FloatArray, FloatArray]] = {}
    for model, mode in zip(models, modes, strict=True):
        if (id(model), mode) not in known:
            known[id(model), mode] = nominal_demands(model, training=mode)
    each = [known[id(model), mode] for model, mode in zip(models, modes, strict=True)]
    nominal, nominal_s = np.stack([found[0] for found in each]), np.stack([found[1] for found in each])
    z = rng.standard_normal(nominal.shape) @ _ROOT.T
    sigma = spread * SIGMA
    return Demands(nominal * np.exp(sigma * z - sigma**2 / 2), nominal, nominal_s)


def bottleneck(demands: Demands) -> list[str]:
    """The demand each task really is limited by: the one that keeps its resource busy longest."""
    return [DEMAND_NAMES[i] for i in demands.seconds.argmax(1)]
