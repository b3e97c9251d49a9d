"""How fast a device works: batch floor, achieved efficiency, and what a precision really gains.

The step time of ``b`` samples on one device is

    t(b) = (t_floor^p + (b · t1)^p)^(1/p)

``t_floor`` is the host and launch floor of a step (it does not depend on ``b``), ``t1`` the device time of
one sample, ``p`` the sharpness of the knee between them (3 for inference, 2 for training, from 28 and 24
measured curves). Mixed precision divides ``t1`` by the measured gain of the model family but *raises*
``t_floor`` by its casts, so it loses at small batches and wins at large ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import PRECISIONS, Gpu, Precision
from attribution_sched.errors import PlanError, SettingsError, nearest, problem
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    from attribution_sched.cluster.models import Model

ANCHOR = Precision.FP32
"""The precision that fitted efficiencies refer to: FP32 on V100, TF32 on A100 and H100."""

# Families without tables of their own and the measured family they are assumed to behave like.
_LIKE = {"shufflenet": "efficientnet", "vit": "bert", "gpt": "bert", "opt": "bert", "llama": "bert"}


def floor_law(t_floor_s: Any, t1_s: Any, batch: Any, p: Any) -> Any:
    """Step time in seconds of ``batch`` samples: ``(t_floor^p + (batch · t1)^p)^(1/p)``.

    Broadcasts over arrays.
    """
    return (t_floor_s**p + (batch * t1_s) ** p) ** (1.0 / p)


@dataclass(frozen=True)
class Efficiency:
    """How well one family uses one GPU in one precision.

    Attributes:
        family: Model family asked for.
        gpu: GPU name.
        precision: Numeric format.
        training: Whether the figures are for training (forward, backward, update) or inference.
        compute: Achieved fraction of the dense peak of the anchor precision (``ANCHOR``) at large batch.
        speedup: Gain of ``precision`` over the anchor in ``t1``; 1 for the anchor itself.
        flops_per_s: Achieved FLOP/s at large batch in ``precision``: compute · anchor peak · speedup.
        floor_s: Step floor of the family's reference depth in ``precision``.
        floor_per_block_s: The same per residual or transformer block, to scale with depth.
        floor_factor: Factor of ``precision`` on the floor, already in ``floor_s``.
        p: Exponent of the floor law.
        estimated: Names of the fields that are not measured for this family, GPU and precision.
    """

    family: str
    gpu: str
    precision: Precision
    training: bool
    compute: float
    speedup: float
    flops_per_s: float
    floor_s: float
    floor_per_block_s: float
    floor_factor: float
    p: float
    estimated: tuple[str, ...]

    @property
    def provenance(self) -> str:
        """``measured`` when no field is estimated, else ``estimated``."""
        return "estimated" if self.estimated else "measured"

    def step_time_s(self, batch: Any, forward_flops: float, blocks: float) -> Any:
        """Step time of a model on one device by the floor law.

        Args:
            batch: Samples per step, scalar or array.
            forward_flops: Forward FLOPs of one sample; training costs three times as many.
            blocks: Residual or transformer blocks of the model (sets the floor).
        """
        t1_s = forward_flops * (3.0 if self.training else 1.0) / self.flops_per_s
        return floor_law(self.floor_per_block_s * blocks, t1_s, batch, self.p)


@dataclass(frozen=True)
class PrecisionTable:
    """Multipliers of every precision relative to the anchor; NaN where the device has no hardware.

    Attributes:
        t1_factor: Multiplier of the per-sample time, shape ``(4,)`` in the order of ``PRECISIONS``.
        floor_factor: Multiplier of the step floor, shape ``(4,)``.
    """

    t1_factor: FloatArray
    floor_factor: FloatArray


def families() -> tuple[str, ...]:
    """Families that :func:`efficiency` knows, measured ones first."""
    return (*load_constants("throughput")["families"]["values"], *_LIKE)


FITTED_CHIPS = ("V100", "A100", "H100")
"""Chips with fitted constants."""


def chip_is_fitted(gpu: Gpu) -> bool:
    """Whether ``gpu`` has fitted constants, its own or those of the chip it is like."""
    return gpu.chip in FITTED_CHIPS or gpu.like in FITTED_CHIPS


def chip(gpu: Gpu) -> str:
    """The fitted chip that speaks for a GPU: its own (``A100`` of ``A100-80``), else the one it is like."""
    for name in (gpu.chip, gpu.like):
        if name in FITTED_CHIPS:
            return name
    hint = nearest(gpu.chip, FITTED_CHIPS)
    raise SettingsError(problem("gpu", gpu.name, "no fitted constants for this chip, and it is like none", hint))


def efficiency(family: str, gpu: Gpu, precision: Precision, training: bool = True) -> Efficiency:
    """Look up the fitted efficiency of a family on a GPU.

    Args:
        family: Model family, one of :func:`families`.
        gpu: A catalogue GPU.
        precision: Numeric format the task runs in.
        training: Training or inference.

    Raises:
        PlanError: The GPU has no hardware for ``precision`` (it is masked, never emulated).
        SettingsError: The family or the chip has no fitted constants.
    """
    if not gpu.supports(precision):
        valid = ", ".join(gpu.peak_flops)
        raise PlanError(problem("precision", precision.value, f"{gpu.name} has no hardware for it", f"Use {valid}"))
    constants = load_constants("throughput")
    table = constants["families"]["values"]
    like = _LIKE.get(family, family)
    if like not in table:
        raise SettingsError(problem("family", family, "has no efficiency table", nearest(family, families())))
    row = table[like][chip(gpu)]
    kind = "training" if training else "inference"
    estimated = {name.removesuffix(f"_{kind}") for name in row["estimated"]}
    estimated -= {"compute_inference", "speedup_inference", "compute_training", "speedup_training"}
    if like != family or gpu.chip not in FITTED_CHIPS:
        estimated |= {"compute", "speedup", "floor_per_block_s"}
    speedup, floor_factor = _precision_gain(row, precision, kind, constants["int8"], estimated, like, gpu)
    if gpu.chip not in FITTED_CHIPS:
        # A borrowed gain is at most what the device's own peaks allow: not every card has the other's tensor cores.
        speedup = min(speedup, gpu.peak_flops[precision] / gpu.peak_flops[ANCHOR])
    launches = 1.0
    if training:
        launches = constants["training_floor_factor"]["value"]
        estimated.add("floor_per_block_s")
    per_block = row["floor_per_block_s"] * launches * floor_factor
    compute = row[f"compute_{kind}"]
    return Efficiency(
        family=family,
        gpu=gpu.name,
        precision=precision,
        training=training,
        compute=compute,
        speedup=speedup,
        flops_per_s=compute * gpu.peak_flops[ANCHOR] * speedup,
        floor_s=per_block * table[like]["reference_blocks"],
        floor_per_block_s=per_block,
        floor_factor=floor_factor,
        p=constants["floor_law"][f"p_{kind}"],
        estimated=tuple(sorted(estimated)),
    )


def _precision_gain(
    row: dict[str, Any],
    precision: Precision,
    kind: str,
    int8: dict[str, Any],
    estimated: set[str],
    like: str,
    gpu: Gpu,
) -> tuple[float, float]:
    """Gain in t1 and factor on the floor; adds to ``estimated`` what was not measured."""
    if precision is ANCHOR:
        estimated -= {"speedup", "floor_amp_factor"}
        return 1.0, 1.0
    speedup, floor_factor = row[f"speedup_{kind}"], row["floor_amp_factor"]
    if precision is Precision.BF16:
        # The tables are FP16 autocast; BF16 has the same peak and the same casts.
        estimated |= {"speedup", "floor_amp_factor"}
    if precision is Precision.INT8:
        gain = int8[f"speedup_over_fp16_{kind}"]
        if kind == "inference" and like != "bert":
            # A family that gains less from halving once cannot be promised more the second time.
            gain = min(gain, speedup)
        if kind == "training" or like != "bert" or chip(gpu) != "A100":
            estimated.add("speedup")
        estimated.add("floor_amp_factor")
        speedup *= gain
    if "floor_amp_factor" in estimated:
        estimated -= {"floor_amp_factor"}
        estimated.add("floor_factor")
    return speedup, floor_factor


def precision_table(family: str, gpu: Gpu, training: bool = True) -> PrecisionTable:
    """Multipliers of ``t1`` and of the floor for all four precisions, ready for a batched cost model."""
    t1 = np.full(len(PRECISIONS), np.nan)
    floor = np.full(len(PRECISIONS), np.nan)
    for precision in PRECISIONS:
        if gpu.supports(precision):
            found = efficiency(family, gpu, precision, training)
            t1[precision.index], floor[precision.index] = 1.0 / found.speedup, found.floor_factor
    return PrecisionTable(t1, floor)


def fit_floor_law(batch: Any, step_s: Any, p: float) -> tuple[float, float]:
    """Fit ``(t_floor_s, t1_s)`` to measured step times by least squares on their logarithm.

    Args:
        batch: Batch sizes, shape ``(n,)``.
        step_s: Step times in any unit, shape ``(n,)``; the result has the same unit.
        p: Exponent of the law.
    """
    from scipy.optimize import least_squares

    sizes, times = np.asarray(batch, float), np.asarray(step_s, float)

    def residual(theta: FloatArray) -> FloatArray:
        floor, slope = np.exp(theta)
        found: FloatArray = np.log(floor_law(floor, slope, sizes, p) / times)
        return found

    start = np.log([times.min(), (times / sizes).min()])
    floor, slope = np.exp(least_squares(residual, start).x)
    return float(floor), float(slope)


def generates(model: Model, training: bool) -> bool:
    """Whether a task writes text token by token."""
    return not training and model.output_tokens > 0


def prompt_share(model: Model) -> FloatArray:
    """Part of a layer's FLOPs that reading the prompt takes: scores grow with its square, other products with it."""
    part = 1.0 - model.output_tokens / model.sequence_length
    scores = model.column("attention_flops")
    total = np.maximum(model.column("conv_flops") + model.column("fc_flops") + scores, 1e-300)
    share: FloatArray = ((total - scores) * part + scores * part**2) / total
    return share


def generation(model: Model) -> tuple[FloatArray, FloatArray, float]:
    """Keys and values read while writing (elements per sample), part of a layer's FLOPs, tokens written.

    A token attends to those before it: on average the prompt and half the output.
    """
    tokens, written = float(model.sequence_length), float(model.output_tokens)
    seen = tokens - written / 2.0
    scores = model.column("attention_flops")
    total = np.maximum(model.column("conv_flops") + model.column("fc_flops") + scores, 1e-300)
    share: FloatArray = ((total - scores) * written / tokens + scores * written * seen / tokens**2) / total
    return model.column("kv_elements") / tokens * seen * written, share, written


def host_s_per_token(gpu: Gpu) -> float:
    """Seconds a server spends on one sequence for one token, on the host of ``gpu``'s chip."""
    law = load_constants("power")["decode_host"]
    found: float = law["s_per_token"].get(chip(gpu) if chip_is_fitted(gpu) else "A100", law["s_per_token"]["A100"])
    return found
