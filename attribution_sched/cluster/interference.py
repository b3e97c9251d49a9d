"""How much two tasks that share a device slow each other down.

Each task has a demand ``d_r`` in [0, 1] for every shared resource ``r`` (the share of its own step in which
it keeps that resource busy). A task waits where its co-runner is already busy, as at a queue:

    slowdown_a = 1 + Σ_r k_r · d_{a,r} · d_{b,r} / (1 + ε − d_{b,r})

so the slowdown is 1 without a common resource, rises with both demands (up to the worst that was measured
often enough to resolve), and a heavy user hurts a light one more than the reverse. ``k`` and the demand
vectors of 26 jobs are fitted to pairs measured on one GPU (``constants/interference.json``). The names of the
resources are given by the anchors of that fit (the arithmetic of ResNet and Transformer jobs); pair
throughputs alone do not identify them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import Gpu, Precision
from attribution_sched.cluster.models import Model
from attribution_sched.cluster.throughput import efficiency, floor_law
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.types import FloatArray, IntArray

RESOURCES: tuple[str, ...] = ("host", "compute", "memory", "pcie")
"""Order of the resource axis."""

EPSILON = 0.3
"""Keeps the wait at a saturated resource finite: at most ``k · d · 1 / ε``."""

MEMORY_EFFICIENCY = 0.75
"""Achieved share of peak HBM bandwidth (assumed; the range in use is 0.6 to 0.85)."""

PCIE_BYTES_PER_S = 12e9
"""Achieved host-to-device bandwidth of PCIe 3 x16 (assumed)."""


def strengths() -> FloatArray:
    """Fitted coupling ``k_r`` of every resource, shape ``(R,)``."""
    return np.array(load_constants("interference")["strength"], float)


def slowdown_cap() -> float:
    """Largest slow-down the law gives: the 95th percentile of those measured."""
    return float(load_constants("interference")["slowdown_cap"])


def slowdown(demands: Any, co_demands: Any, strength: Any = None) -> Any:
    """Factor ≥ 1 by which a co-runner stretches a task, at most :func:`slowdown_cap`.

    Args:
        demands: The task's demands, shape ``(..., R)``.
        co_demands: The co-runner's demands, broadcastable to the same shape. For more than two tasks, pass
            the sum of the others (it is clipped to 1).
        strength: Coupling per resource, shape ``(R,)``; the fitted one when omitted.
    """
    own, other = np.asarray(demands, float), np.minimum(np.asarray(co_demands, float), 1.0)
    k = strengths() if strength is None else strength
    return np.minimum(1.0 + np.sum(k * own * other / (1.0 + EPSILON - other), axis=-1), slowdown_cap())


def summed_throughput(demands_a: Any, demands_b: Any, strength: Any = None) -> Any:
    """Normalised throughput of a pair: ``1/slowdown_a + 1/slowdown_b``; above 1, sharing pays."""
    return 1.0 / slowdown(demands_a, demands_b, strength) + 1.0 / slowdown(demands_b, demands_a, strength)


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
) -> tuple[FloatArray, FloatArray]:
    """Fit demand vectors and couplings to normalised throughputs of measured pairs.

    Minimises pseudo-Huber errors of both throughputs and of their sum, plus
    ``Σ weight · (d − prior)²``, with ``0 ≤ d ≤ 1`` and ``k ≥ 0``.

    Args:
        pairs: Indices of the two jobs, shape ``(n_pairs, 2)``.
        throughput: Shared over isolated throughput of each, shape ``(n_pairs, 2)``.
        prior: Where demands are drawn to, shape ``(n_jobs, R)``.
        prior_weight: How strongly, same shape.
        iterations: Limit of the optimiser.

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
        grad_d, grad_k = 2 * prior_weight * (d - prior), np.zeros(width)
        loss = float((prior_weight * (d - prior) ** 2).sum())
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

    start = np.concatenate([np.clip(prior, 0.05, 0.95).ravel(), np.full(width, 0.5)])
    bounds = [(0.0, 1.0)] * (jobs * width) + [(0.0, 5.0)] * width
    found = minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": iterations})
    return found.x[: jobs * width].reshape(jobs, width), found.x[jobs * width :]
