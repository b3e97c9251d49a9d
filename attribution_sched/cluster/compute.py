"""Seconds of a pipeline stage: a two-part roofline per layer with a measured launch floor.

For a stage of layers ``[a, z)`` and b samples per device::

    work(b) = b·(κ_c·Σ compute + κ_m·Σ memory) + κ_m·Σ weights
    t(b)    = ((κ_h·Σ floor)^p + work(b)^p)^(1/p) + b·Σ reduced elements over the tensor-parallel link

``compute`` is FLOPs over the achieved share of the peak, ``memory`` the bytes that element-wise kernels move
over the achieved share of the HBM bandwidth (they run between the matrix products, so the two add up),
``weights`` the weight bytes read once per pass, ``floor`` the host and launch time. The κ are the task's own
demand multipliers (1 for a nominal task). Where a layer profile was measured, its fitted floor and slope
replace the roofline. Everything is kept as prefix sums over layers, so any stage is two look-ups.

Serving a language model has two passes instead of training's two: the first reads the prompt (prefill), the second
writes the output token by token (decode). They share the columns: what training calls backward is decoding here::

    t_decode(b) = (floor^p + work(b)^p)^(1/p) + b·host

with the weights read once and every kernel launched once per token, the keys and values of the tokens so far read per
sample, and ``host`` the fitted time the server spends on each sequence for each token, which no batch hides.

Measured layer profiles are shipped as fitted floor laws: for each profiled (model, GPU, tensor-parallel degree)
and layer class, forward and backward seconds of b samples follow ``t(b) = sqrt(floor² + (b·slope)²)``, fitted
to the measured microbatches. Tensor-parallel communication was running while they were measured and is part of
the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import PRECISIONS, Gpu, Precision
from attribution_sched.cluster.memory import activation_share
from attribution_sched.cluster.models import Model
from attribution_sched.cluster.models.opaque import STEP_S, is_opaque
from attribution_sched.cluster.throughput import (
    ANCHOR,
    PrecisionTable,
    chip_is_fitted,
    efficiency,
    generates,
    generation,
    host_s_per_token,
    precision_table,
    prompt_share,
)
from attribution_sched.cluster.world import Runtime
from attribution_sched.kernels import by_reference
from attribution_sched.types import FloatArray, IntArray

LayerLaws = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Forward slope and floor, backward slope and floor; seconds (per sample), each of shape ``(n_layers,)``."""


@dataclass(frozen=True)
class LayerProfile:
    """The measured laws of one model on one GPU type.

    Attributes:
        precision: Numeric format the profile was taken in.
        by_tp: Tensor-parallel degree → laws of every layer.
    """

    precision: Precision
    by_tp: dict[int, LayerLaws]

    def law(self, tp: int) -> LayerLaws | None:
        """Laws at a tensor-parallel degree; None where nothing near was measured.

        A degree that was not measured is scaled from the nearest measured one by the ratio of the degrees,
        which keeps a profile consistent over layouts.
        """
        if tp in self.by_tp:
            return self.by_tp[tp]
        near = min(self.by_tp, key=lambda t: abs(np.log2(t / tp)))
        ratio = near / tp
        slope_f, floor_f, slope_b, floor_b = self.by_tp[near]
        return slope_f * ratio, floor_f, slope_b * ratio, floor_b


def layer_profile(model: Model, gpu: str) -> LayerProfile | None:
    """Look up the shipped profile of a model on a GPU type; None where none was measured."""
    stored = load_constants("profiles")["models"].get(model.name, {}).get("gpus", {}).get(gpu)
    if stored is None:
        return None
    kinds = load_constants("profiles")["models"][model.name]["layer_classes"]
    index = np.array(kinds)
    by_tp: dict[int, LayerLaws] = {}
    for tp, rows in stored.items():
        laws: Any = np.array(rows, dtype=np.float64)[index].T
        by_tp[int(tp)] = (laws[0], laws[1], laws[2], laws[3])
    return LayerProfile(Precision.FP32, by_tp)


LANGUAGE_FAMILIES = ("gpt", "opt", "llama")
"""Families whose absolute speed is pinned by large-model training runs, not by throughput tables."""

TP_DEGREES: tuple[int, ...] = (1, 2, 4, 8)
"""Tensor-parallel degrees a table covers, in axis order."""

TIME_COLUMNS = (
    "compute_forward", "memory_forward", "weights_forward", "floor_forward",
    "compute_backward", "memory_backward", "weights_backward", "floor_backward", "host_backward",
)  # fmt: skip
(
    COMPUTE_FORWARD, MEMORY_FORWARD, WEIGHTS_FORWARD, FLOOR_FORWARD,
    COMPUTE_BACKWARD, MEMORY_BACKWARD, WEIGHTS_BACKWARD, FLOOR_BACKWARD, HOST_BACKWARD,
) = range(len(TIME_COLUMNS))  # fmt: skip
"""Columns of ``CostTables.times_s``: seconds per sample (compute, memory, host) or per pass (weights, floor)."""

SIZE_COLUMNS = (
    "params_sharded", "params_whole", "kept_sharded", "kept_whole", "scores", "inputs",
    "reduced_elements", "reduces", "flops", "kept_divided", "kv",
)  # fmt: skip
(
    PARAMS_SHARDED, PARAMS_WHOLE, KEPT_SHARDED, KEPT_WHOLE, SCORES, INPUTS,
    REDUCED_ELEMENTS, REDUCES, FLOPS, KEPT_DIVIDED, KV,
) = range(len(SIZE_COLUMNS))  # fmt: skip
"""Columns of ``CostTables.sizes``: per-sample elements, parameter counts, all-reduce count, forward FLOPs; keys and
values are 0 where nothing is generated."""


@by_reference
class CostTables(NamedTuple):
    """Prefix sums of layer costs for several models and GPU types, ready for compiled kernels.

    Attributes:
        n_layers: Layers of each model, shape ``(n_models,)``.
        times_s: Shape ``(n_models, n_gpus, 4 precisions, 4 tp degrees, 9 columns, N + 1)``; NaN where a
            precision does not exist on the GPU.
        sizes: Shape ``(n_models, 11 columns, N + 1)``.
        boundary: Elements per sample crossing a cut before layer i, shape ``(n_models, N + 1)``.
        peak_layer: Largest activation set of one layer on one tensor-parallel rank, elements per sample,
            shape ``(n_models, 4 tp degrees)``.
        sharpness: Exponent p of the floor law, shape ``(n_models,)``.
        measured: 1 where the times come from a measured profile (which already holds tensor-parallel
            communication), shape ``(n_models, n_gpus, 4 tp degrees)``.
    """

    n_layers: IntArray
    times_s: FloatArray
    sizes: FloatArray
    boundary: FloatArray
    peak_layer: FloatArray
    sharpness: FloatArray
    measured: IntArray


@dataclass(frozen=True)
class Efficiencies:
    """How far real kernels stay below the datasheet, one set for every model and size.

    Attributes:
        compute: Achieved share of the dense peak in large matrix products.
        memory: Achieved share of the HBM bandwidth.
        moved: Correction on the element traffic of the layer arithmetic (kernel fusion lowers it).
        nvlink: Achieved share of the node's link bandwidth in all-reduce.
        fabric: Achieved share of the fabric bandwidth between nodes.
        collective_latency_s: Latency of one ring round inside a node.
    """

    compute: float
    memory: float
    moved: float
    nvlink: float
    fabric: float
    collective_latency_s: float


def efficiencies() -> Efficiencies:
    """Return the efficiencies fitted to published large-model training runs."""
    return Efficiencies(**load_constants("steps")["efficiencies"])


def build_tables(
    models: Sequence[Model],
    gpus: Sequence[Gpu],
    runtime: Runtime,
    training: Sequence[bool] | None = None,
    achieved: Efficiencies | None = None,
) -> CostTables:
    """Lay out the costs of models on GPU types as prefix sums.

    Args:
        models: Row m of the tables is ``models[m]``.
        gpus: GPU axis of the tables.
        runtime: Framework behaviour (recomputation and fused attention change the times).
        training: Whether row m is a training task; True for all by default.
        achieved: Efficiencies; the packaged fit by default.
    """
    achieved = achieved or efficiencies()
    trains = list(training) if training is not None else [True] * len(models)
    width = max(len(model) for model in models) + 1
    times = np.full((len(models), len(gpus), len(PRECISIONS), len(TP_DEGREES), len(TIME_COLUMNS), width), np.nan)
    measured = np.zeros((len(models), len(gpus), len(TP_DEGREES)), dtype=np.int64)
    sizes = np.zeros((len(models), len(SIZE_COLUMNS), width))
    boundary = np.zeros((len(models), width))
    for m, model in enumerate(models):
        sizes[m] = _prefix(_sizes(model, trains[m]), width)
        boundary[m, 1 : len(model) + 1] = model.column("output_elements")
        for g, gpu in enumerate(gpus):
            times[m, g] = _prefix(_roofline(model, gpu, runtime, trains[m], achieved), width)
            _apply_profile(model, gpu, runtime, trains[m], times[m, g], measured[m, g])
    return CostTables(
        n_layers=np.array([len(model) for model in models], dtype=np.int64),
        times_s=times,
        sizes=sizes,
        boundary=boundary,
        peak_layer=np.stack([_peak_layer(model, runtime) for model in models]),
        sharpness=np.array([_sharpness(train) for train in trains]),
        measured=measured,
    )


def _prefix(columns: FloatArray, width: int) -> FloatArray:
    """Prefix sums over the last axis, padded with the total to ``width`` entries."""
    total = np.concatenate([np.zeros((*columns.shape[:-1], 1)), np.cumsum(columns, axis=-1)], axis=-1)
    padding = np.repeat(total[..., -1:], width - total.shape[-1], axis=-1)
    return np.concatenate([total, padding], axis=-1)


def _sharpness(training: bool) -> float:
    return float(load_constants("throughput")["floor_law"]["p_training" if training else "p_inference"])


def _sizes(model: Model, training: bool) -> FloatArray:
    sharded = np.array([layer.tp_sharded for layer in model.layers], dtype=np.float64)
    params, kept = model.stateful_params(training), model.column("activation_elements")
    # A sharded head keeps logits, which tensor parallelism divides completely.
    head = sharded * np.array([layer.kind == "head" for layer in model.layers])
    reduced = model.column("tp_reduced_elements")
    writes = generates(model, training)
    # Every token written goes through the all-reduces by itself.
    rounds = 1.0 + model.output_tokens if writes else 1.0
    return np.stack([
        params * sharded,
        params * (1 - sharded),
        kept * (sharded - head),
        kept * (1 - sharded),
        model.column("score_elements"),
        model.column("input_elements"),
        reduced,
        rounds * (reduced > 0) * np.where(np.array([layer.kind == "block" for layer in model.layers]), 2.0, 1.0),
        model.column("conv_flops") + model.column("fc_flops") + model.column("attention_flops"),
        kept * head,
        model.column("kv_elements") * writes,
    ])  # fmt: skip


def _peak_layer(model: Model, runtime: Runtime) -> FloatArray:
    """Largest set that recomputing one layer brings to life, per tensor-parallel degree."""
    whole, scores = model.column("activation_elements"), model.column("score_elements")
    if runtime.flash_attention:
        scores = np.zeros_like(scores)
    sharded = np.array([layer.tp_sharded for layer in model.layers])
    head = np.array([layer.kind == "head" for layer in model.layers])
    peaks = []
    for tp in TP_DEGREES:
        share = np.where(head, 1.0 / tp, activation_share(float(tp), runtime.sequence_parallel))
        peaks.append(np.max(np.where(sharded, whole * share + scores / tp, whole)))
    return np.array(peaks)


def _roofline(model: Model, gpu: Gpu, runtime: Runtime, training: bool, achieved: Efficiencies) -> FloatArray:
    """Layer times from arithmetic, shape ``(4, 4, 9, n_layers)``; NaN for a missing precision."""
    if is_opaque(model):
        return _unit_step(gpu)
    flops = np.array([layer.forward_flops for layer in model.layers])
    moved = achieved.moved * model.column("moved_elements")
    if not runtime.flash_attention:
        # Each kept score matrix is written once and read once.
        moved = moved + achieved.moved * 2.0 * model.column("score_elements")
    params = model.column("params")
    sharded = np.array([layer.tp_sharded for layer in model.layers])
    blocks = np.array([layer.kind not in ("embedding", "head", "norm") for layer in model.layers], dtype=np.float64)
    table = _precision_gains(model, gpu, training)
    floor_s = np.zeros(len(model))
    if chip_is_fitted(gpu):
        floor_s = efficiency(model.family, gpu, ANCHOR, training).floor_per_block_s * blocks
    hbm = achieved.memory * gpu.bandwidth_bytes_per_s
    again = 1.0 if runtime.recompute else 0.0
    frozen = model.column("frozen_params") / np.maximum(params, 1.0)
    times = np.full((len(PRECISIONS), len(TP_DEGREES), len(TIME_COLUMNS), len(model)), np.nan)
    anchor_s = _anchor_seconds(model, gpu, training, flops, moved, hbm, achieved, table)
    for q in PRECISIONS:
        if not gpu.supports(q):
            continue
        compute = flops / (achieved.compute * gpu.peak_flops[q])
        memory = moved * q.element_bytes / hbm
        fit = anchor_s * table.t1_factor[q.index] / float((compute + memory).sum())
        for t, tp in enumerate(TP_DEGREES):
            part = np.where(sharded, 1.0 / tp, 1.0)
            kept = np.where(sharded, activation_share(float(tp), runtime.sequence_parallel), 1.0)
            weights = params * part * q.element_bytes / hbm
            forward = np.stack([fit * compute * part, fit * memory * kept, weights])
            floor = floor_s * table.floor_factor[q.index]
            if training:
                # The training floor covers both passes; a backward pass launches twice the kernels. Frozen weights
                # need no gradient of their own, only one that passes through them.
                backward = (2.0 + again - frozen) * forward
                floors = (floor / 3.0, (2.0 + again) * floor / 3.0)
            else:
                backward = np.zeros_like(forward)
                floors = (floor, np.zeros_like(floor))
            host = np.zeros_like(floor)
            if generates(model, training):
                read, compute_share, written = generation(model)
                cached_s = read * max(q.element_bytes, 2) / hbm * part
                moved_s = forward[1] * written / model.sequence_length
                backward = np.stack([forward[0] * compute_share, moved_s + cached_s, weights * written])
                # The floor of writing was measured on servers that hold half-precision weights: no casts to add.
                floors = (floor, floor_s * written)
                host = blocks / max(1.0, blocks.sum()) * written * host_s_per_token(gpu)
                forward = np.stack([
                    forward[0] * prompt_share(model), forward[1] * (1.0 - written / model.sequence_length), weights,
                ])  # fmt: skip
            times[q.index, t] = np.stack([*forward, floors[0], *backward, floors[1], host])
    return times


def _unit_step(gpu: Gpu) -> FloatArray:
    """Times of an opaque job's only layer: a third of a step forward and two thirds backward, in any precision."""
    times = np.full((len(PRECISIONS), len(TP_DEGREES), len(TIME_COLUMNS), 1), np.nan)
    for q in PRECISIONS:
        if gpu.supports(q):
            times[q.index] = 0.0
            times[q.index, :, COMPUTE_FORWARD] = STEP_S / 3.0
            times[q.index, :, COMPUTE_BACKWARD] = STEP_S * 2.0 / 3.0
    return times


def _precision_gains(model: Model, gpu: Gpu, training: bool) -> PrecisionTable:
    """Measured precision gains where the chip has any, else the ratio of its own peaks."""
    if chip_is_fitted(gpu):
        return precision_table(model.family, gpu, training)
    peaks = np.array([gpu.peak_flops.get(q, np.nan) for q in PRECISIONS])
    return PrecisionTable(peaks[ANCHOR.index] / peaks, np.where(np.isnan(peaks), np.nan, 1.0))


def _anchor_seconds(
    model: Model,
    gpu: Gpu,
    training: bool,
    flops: FloatArray,
    moved: FloatArray,
    hbm: float,
    achieved: Efficiencies,
    table: PrecisionTable,
) -> float:
    """Forward seconds per sample of the whole model in the anchor precision.

    Families with published throughput tables are pinned to them. Large language models are pinned by the
    half-precision roofline (fitted to published Megatron runs) and scaled by the measured precision gain.
    """
    if model.family not in LANGUAGE_FAMILIES and chip_is_fitted(gpu):
        found = efficiency(model.family, gpu, ANCHOR, training)
        return float(flops.sum() / (found.compute * gpu.peak_flops[ANCHOR]))
    half = Precision.FP16 if gpu.supports(Precision.FP16) else ANCHOR
    seconds = flops / (achieved.compute * gpu.peak_flops[half]) + moved * half.element_bytes / hbm
    return float(seconds.sum() / table.t1_factor[half.index])


def _apply_profile(
    model: Model, gpu: Gpu, runtime: Runtime, training: bool, times: FloatArray, measured: IntArray
) -> None:
    """Replace the roofline by a measured layer profile where one exists for this model and GPU."""
    found = layer_profile(model, gpu.name)
    if found is None or not training:
        return
    table = _precision_gains(model, gpu, training)
    again = 1.0 if runtime.recompute else 0.0
    for q in PRECISIONS:
        if not gpu.supports(q):
            continue
        gain = table.t1_factor[q.index] / table.t1_factor[found.precision.index]
        lift = table.floor_factor[q.index] / table.floor_factor[found.precision.index]
        for t, tp in enumerate(TP_DEGREES):
            laws = found.law(tp)
            if laws is None:
                continue
            slope_f, floor_f, slope_b, floor_b = laws
            zero = np.zeros_like(slope_f)
            columns = np.stack([
                gain * slope_f, zero, zero, lift * floor_f,
                gain * (slope_b + again * slope_f), zero, zero, lift * (floor_b + again * floor_f), zero,
            ])  # fmt: skip
            times[q.index, t] = _prefix(columns, times.shape[-1])
            measured[t] = 1
