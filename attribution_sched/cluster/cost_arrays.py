"""Arrays that the compiled cost kernel reads and writes, and the names of their columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Columns of the per-plan result.
STEP_S, COMPUTE_S, COMM_S, BUBBLE_S, BILL_USD, ENERGY_J, CARBON_G, MEMORY_RATIO, INTRA_COMM_S, UTILISATION = range(10)
PLAN_COLUMNS = (
    "step_s", "compute_s", "comm_s", "bubble_s", "bill_usd", "energy_j", "carbon_g", "memory_ratio",
    "intra_comm_s", "utilisation",
)  # fmt: skip

# Columns of the per-segment result.
BUSY_S, MEMORY_BYTES, POWER_W, SEGMENT_COMM_S, COMPUTE_SHARE, MEMORY_SHARE, HOST_SHARE = range(7)
SEGMENT_COLUMNS = (
    "busy_s",
    "memory_bytes",
    "power_w",
    "intra_comm_s",
    "compute_share",
    "memory_share",
    "host_share",
)


DOMAIN_ROW = np.dtype([
    ("gpu", np.int64),
    ("devices", np.int64),
    ("node_devices", np.int64),
    ("memory_bytes", np.float64),
    ("nvlink_bytes_per_s", np.float64),
    ("fabric_bytes_per_s", np.float64),
    ("fabric_latency_s", np.float64),
    ("hbm_bytes_per_s", np.float64),
    ("idle_w", np.float64),
    ("tdp_w", np.float64),
    ("cap_w", np.float64),
    ("cap_floor_w", np.float64),
    ("carbon_g_per_j", np.float64),
])  # fmt: skip
"""One domain: row of the GPU tables, devices, devices per node, device memory, *achieved* link, fabric and HBM
bandwidth, idle, rated and capped power, the constant P0 of the cap law, grid carbon intensity."""


class DomainArrays(NamedTuple):
    """The cluster as arrays over K domains.

    Attributes:
        rows: Records of ``DOMAIN_ROW``, shape ``(K,)``.
        peak_flops: Shape ``(K, 4)``; NaN where the precision does not exist.
        price_usd_per_byte: Egress price, shape ``(K, K)``.
    """

    rows: np.recarray[tuple[int], np.dtype[np.void]]
    peak_flops: FloatArray
    price_usd_per_byte: FloatArray


class RuntimeArrays(NamedTuple):
    """Framework switches as plain numbers."""

    recompute: bool
    zero_stage: int
    sequence_parallel: bool
    flash_attention: bool
    blocking_sends: bool
    reserved_bytes: float
    collective_latency_s: float


class PowerArrays(NamedTuple):
    """Constants of the power laws (see ``power.py``)."""

    compute_weight: float
    memory_weight: float
    saturation: float
    cap_beta_max: float
    cap_beta_exponent: float
    precision_factor: FloatArray


class Workload(NamedTuple):
    """What the kernel must know of one task.

    Attributes:
        model: Row of the cost tables.
        training: False for inference: forward passes only, weights only in memory.
        compute_factor: Demand multiplier κ_c.
        memory_factor: Demand multiplier κ_m.
        host_factor: Demand multiplier κ_h.
    """

    model: int
    training: bool
    compute_factor: float
    memory_factor: float
    host_factor: float


class Scratch(NamedTuple):
    """Reusable buffers of the kernel: S stages at most, M microbatches at most.

    Attributes:
        seconds: Per-stage times, shape ``(9, S)``, rows named at the top of ``plan_cost``.
        arrival: Buffer of the recurrence, shape ``(2, S, M)``.
        layers: Segment of each stage and its first layer, shape ``(2, S + 1)``.
    """

    seconds: FloatArray
    arrival: FloatArray
    layers: IntArray


def make_scratch(max_stages: int, max_microbatches: int) -> Scratch:
    """Allocate buffers for pipelines of at most the given size."""
    s = max_stages
    return Scratch(np.zeros((9, s)), np.zeros((2, s, max_microbatches)), np.zeros((2, s + 1), dtype=np.int64))
