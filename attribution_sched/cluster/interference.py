"""How much two tasks that share a device slow each other down.

Each task has a demand ``d_r`` in [0, 1] for every shared resource ``r`` (the share of its own step in which
it keeps that resource busy). A task waits where its co-runner is already busy, as at a queue:

    slowdown_a = 1 + Σ_r k_r · d_{a,r} · d_{b,r} / (1 + ε − d_{b,r})

so the slowdown is 1 without a common resource, rises with both demands (up to the worst that was measured
often enough to resolve), and a heavy user hurts a light one more than the reverse. ``k`` and the demand
vectors of 26 jobs are fitted to pairs measured on one GPU (``constants/interference.json``, ``measured_jobs.json``).
The names of the resources are given by the prior of that fit (the arithmetic of the jobs); pair throughputs alone do
not identify them. ``pcie`` is the whole input path: preparing samples on the host and sending them over the bus.

Where both tasks are measured jobs, the table of pairs decides and not the law (:func:`measured_jobs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.types import FloatArray

RESOURCES: tuple[str, ...] = ("host", "compute", "memory", "pcie")
"""Order of the resource axis."""

EPSILON = 0.3
"""Keeps the wait at a saturated resource finite: at most ``k · d · 1 / ε``."""

MOST_COUPLING = 25.0
"""Bound of the optimiser; a fit that reaches it has not identified the coupling."""

MEMORY_EFFICIENCY = 0.75
"""Achieved share of peak HBM bandwidth (assumed; the range in use is 0.6 to 0.85)."""

PCIE_BYTES_PER_S = 12e9
"""Achieved host-to-device bandwidth of PCIe 3 x16 (assumed)."""


def strengths() -> FloatArray:
    """Fitted coupling ``k_r`` of every resource, shape ``(R,)``."""
    return np.array(load_constants("interference")["strength"], float)


def resource_constants() -> FloatArray:
    """Coupling, demand gain and gain of the instruments of every resource, shape ``(3, R)``."""
    told = load_constants("interference")
    return np.array([told["strength"], told["gain"], told["instrument_gain"]], dtype=np.float64)


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


@dataclass(frozen=True, eq=False)
class MeasuredJobs:
    """Jobs whose throughput was measured alone and in pairs on one kind of GPU; the job axis comes first.

    Attributes:
        gpu: Which kind.
        names: Of the jobs.
        families: Their models, whatever the batch.
        samples: Samples of a step, shape ``(n,)``.
        steps_per_s: Steps per second alone on 1, 2, 4 and 8 devices, shape ``(n, 4)``; NaN where not measured.
        counters: True rates of the twelve counters, from arithmetic and throughput alone, shape ``(n, 12)``.
        demands: Demands fitted to the pairs, shape ``(n, R)``; what the simulated device feels, and nobody sees.
        memory_bytes: Device memory, shape ``(n,)``.
        device_busy: Share of its time that a device works, shape ``(n,)``.
        pair_speed: Speed beside another over speed alone, shape ``(n, n)``; 0 where the two do not fit, NaN where
            nobody measured them.
    """

    gpu: str
    names: tuple[str, ...]
    families: tuple[str, ...]
    samples: FloatArray
    steps_per_s: FloatArray
    counters: FloatArray
    demands: FloatArray
    memory_bytes: FloatArray
    device_busy: FloatArray
    pair_speed: FloatArray


@cache
def measured_jobs() -> MeasuredJobs:
    """The jobs of ``constants/measured_jobs.json``."""
    told = load_constants("measured_jobs")
    jobs = told["jobs"]

    def column(name: str) -> FloatArray:
        return np.array([job[name] for job in jobs], dtype=np.float64)

    return MeasuredJobs(
        gpu=told["gpu"],
        names=tuple(job["name"] for job in jobs),
        families=tuple(job["family"] for job in jobs),
        samples=column("samples"),
        steps_per_s=np.array([[job["steps_per_s"].get(str(n), np.nan) for n in (1, 2, 4, 8)] for job in jobs]),
        counters=column("counters"),
        demands=column("demands"),
        memory_bytes=column("memory_bytes"),
        device_busy=column("device_busy"),
        pair_speed=np.array([[np.nan if x is None else x for x in row] for row in told["pair_speed"]]),
    )


def job_columns() -> FloatArray:
    """What the engine must know of measured jobs, shape ``(n, 6)``: demands, device bytes, share a device works."""
    jobs = measured_jobs()
    return np.column_stack([jobs.demands, jobs.memory_bytes, jobs.device_busy])
