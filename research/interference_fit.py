"""Demands of jobs that share a device, from their arithmetic and fitted to measured pairs; used by ``calibration/``."""

from __future__ import annotations

from typing import Any

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import Gpu, Precision
from attribution_sched.cluster.interference import (
    EPSILON,
    MEMORY_EFFICIENCY,
    MOST_COUPLING,
    PCIE_BYTES_PER_S,
    slowdown,
)
from attribution_sched.cluster.models import Model
from attribution_sched.cluster.throughput import efficiency, floor_law
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.types import FloatArray, IntArray


def summed_throughput(demands_a: Any, demands_b: Any, strength: Any = None) -> Any:
    """Normalised throughput of a pair: ``1/slowdown_a + 1/slowdown_b``; above 1, sharing pays."""
    return 1.0 / slowdown(demands_a, demands_b, strength) + 1.0 / slowdown(demands_b, demands_a, strength)


def pair_throughput(demands: FloatArray, pairs: IntArray, strength: Any = None) -> FloatArray:
    """Normalised throughputs of both jobs of pairs ``(n, 2)`` by the law, shape ``(n, 2)``."""
    first, second = demands[pairs[:, 0]], demands[pairs[:, 1]]
    return np.stack([1.0 / slowdown(first, second, strength), 1.0 / slowdown(second, first, strength)], axis=1)


def resource_demands(
    model: Model, gpu: Gpu, precision: Precision, batch_per_device: Any, training: bool = True
) -> FloatArray:
    """Demands of a model from its arithmetic, as busy shares of its own step.

    Host is the launch floor, compute the FLOPs at the achieved rate, memory the moved bytes at 0.75 of
    peak bandwidth, pcie the input batch; each over the step time of the floor law and scaled by the gain
    that best maps arithmetic to the fitted demands of the measured jobs.

    Args:
        model: The model.
        gpu: The device.
        precision: Numeric format.
        batch_per_device: Samples per step on the device, scalar or shape ``(...)``.
        training: Training or inference.

    Returns:
        Shape ``(..., R)``.
    """
    batch = np.asarray(batch_per_device, float)
    found = efficiency(model.family, gpu, precision, training)
    passes = 3.0 if training else 1.0
    blocks = sum(layer.kind in ("block", "conv") for layer in model.layers)
    floor_s = found.floor_per_block_s * max(blocks, 1)
    compute_s = batch * model.forward_flops * passes / found.flops_per_s
    moved = float(model.column("moved_elements").sum()) * batch + model.params
    memory_s = passes * moved * precision.element_bytes / (MEMORY_EFFICIENCY * gpu.bandwidth_bytes_per_s)
    input_s = batch * model.layers[0].input_elements * 4.0 / PCIE_BYTES_PER_S
    step_s = floor_law(floor_s, np.maximum(compute_s, memory_s), 1.0, found.p)
    busy = np.stack([np.full_like(batch, floor_s), compute_s, memory_s, input_s], axis=-1) / step_s[..., None]
    gain = np.array(load_constants("interference")["gain"], float)
    found_shares: FloatArray = np.clip(gain * busy, 0.0, 1.0)
    return found_shares


def fit_demands(
    pairs: IntArray,
    throughput: FloatArray,
    prior: FloatArray,
    prior_weight: FloatArray,
    iterations: int = 400,
    coupling_weight: float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Fit demand vectors and couplings to normalised throughputs of measured pairs.

    Minimises pseudo-Huber errors of both throughputs and of their sum, plus
    ``Σ weight · (d − prior)² + coupling_weight · Σ (k − 1)²``, with ``0 ≤ d ≤ 1`` and ``k ≥ 0``. Demands and couplings
    trade against each other, so without the last term some ``k`` grows to its bound.

    Args:
        pairs: Indices of the two jobs, shape ``(n_pairs, 2)``.
        throughput: Shared over isolated throughput of each, shape ``(n_pairs, 2)``.
        prior: Where demands are drawn to, shape ``(n_jobs, R)``.
        prior_weight: How strongly, same shape.
        iterations: Limit of the optimiser.
        coupling_weight: How strongly couplings are drawn to 1.

    Returns:
        Demands ``(n_jobs, R)`` and couplings ``(R,)``.
    """
    from scipy.optimize import minimize

    if not np.isfinite(throughput).all() or (throughput <= 0).any():
        worst = float(np.nanmin(throughput))
        raise ModelFitError(problem("throughput", worst, "must be finite and > 0", "Drop pairs that did not fit"))
    jobs, width = prior.shape
    first, second = pairs[:, 0], pairs[:, 1]
    top = 1.0 + EPSILON

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        d, k = theta[: jobs * width].reshape(jobs, width), theta[jobs * width :]
        wait, slope = d / (top - d), top / (top - d) ** 2
        grad_d, grad_k = 2 * prior_weight * (d - prior), 2 * coupling_weight * (k - 1.0)
        loss = float((prior_weight * (d - prior) ** 2).sum() + coupling_weight * ((k - 1.0) ** 2).sum())
        share = [1 / (1 + (k * d[i] * wait[j]).sum(1)) for i, j in ((first, second), (second, first))]
        both = share[0] + share[1] - throughput.sum(1)
        root = np.sqrt(both**2 + 1e-3)
        loss += float(root.mean())
        for side, (i, j) in enumerate(((first, second), (second, first))):
            error = share[side] - throughput[:, side]
            soft = np.sqrt(error**2 + 1e-3)
            loss += float(soft.mean())
            # Chain rule: d share / d S = -share², S = Σ k d_i wait_j.
            pull = -(share[side] ** 2) * (error / soft + both / root) / len(pairs)
            np.add.at(grad_d, i, pull[:, None] * k * wait[j])
            np.add.at(grad_d, j, pull[:, None] * k * d[i] * slope[j])
            grad_k += (pull[:, None] * d[i] * wait[j]).sum(0)
        return loss, np.concatenate([grad_d.ravel(), grad_k])

    start = np.concatenate([np.clip(prior, 0.05, 0.95).ravel(), np.full(width, 1.0)])
    bounds = [(0.0, 1.0)] * (jobs * width) + [(0.0, MOST_COUPLING)] * width
    found = minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": iterations})
    return found.x[: jobs * width].reshape(jobs, width), found.x[jobs * width :]
