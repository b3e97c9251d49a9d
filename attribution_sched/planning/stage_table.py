"""Stages that were priced before, remembered: plans one change apart share most of theirs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost_arrays import DomainArrays, PowerArrays, RuntimeArrays, Workload
from attribution_sched.cluster.plan import DOMAIN, DP, MICROBATCH, PRECISION, TP
from attribution_sched.cluster.stage_kernel import gradient_reduce_s, stage_cost
from attribution_sched.kernels import kernel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MEMORY_BITS = 15
"""Stages remembered are 2 to the power of this; one that falls on another's place takes it."""

MIX, MASK = 0x1E3779B97F4A7C15, 2**63 - 1
"""Spread keys over places (Fibonacci hashing)."""

FORWARD_S, BACKWARD_S, FIXED_BYTES, HELD_BYTES, END_S = range(5)
"""What is remembered of a stage."""


class StageMemory(NamedTuple):
    """Stages that were priced before.

    Attributes:
        keys: Which stage a place holds, shape ``(2^b,)``; 0 for none.
        stages: Its times and memory, shape ``(2^b, 5)``.
    """

    keys: IntArray
    stages: FloatArray


class PlanJudge(NamedTuple):
    """What a decision's plans are judged by.

    Attributes:
        domains: The cluster.
        runtime: Framework behaviour.
        power_law: Constants of the power laws.
        tables: Layer cost tables.
        workload: The task.
        bandwidth: Bytes per second between domains, shape ``(K, K)``.
        latency_s: Shape ``(K, K)``.
        free_devices: Devices that may be used, shape ``(K,)``.
        formats: Formats worth using, shape ``(K, 4)``.
        batch: Samples per step.
        base_s: Step time of the baseline.
        per_device_second: What a second of step time of one device costs beside that.
        w_eff: Weight of efficiency.
        w_util: Weight of utilisation.
        w_cost: Weight of cost.
        base_usd: Cost of a step of the baseline.
        usd_per_j: Price of energy.
        usd_per_g: Price of carbon.
    """

    domains: DomainArrays
    runtime: RuntimeArrays
    power_law: PowerArrays
    tables: CostTables
    workload: Workload
    bandwidth: FloatArray
    latency_s: FloatArray
    free_devices: IntArray
    formats: BoolArray
    batch: float
    base_s: float
    per_device_second: float
    w_eff: float
    w_util: float
    w_cost: float
    base_usd: float
    usd_per_j: float
    usd_per_g: float


@kernel(inline="always")
def place_of(domain: int, a: int, z: int, dp: int, tp: int, precision: int, micro: int) -> tuple[int, int]:
    """Where a stage is remembered, and by which key; plans one change apart share most of their stages."""
    key = ((((domain << 10 | a) << 10 | z) << 12 | dp) << 4 | tp) << 18 | precision << 16 | micro
    return ((key * MIX) & MASK) >> (63 - MEMORY_BITS), key


@kernel
def remember(k: PlanJudge, memory: StageMemory, slot: int, key: int, row: IntArray, a: int, z: int) -> None:
    """Price a stage and write down its times and memory."""
    stage = stage_cost(
        k.domains, k.runtime, k.power_law, k.tables, k.workload, row[DOMAIN], a, z, row[DP], row[TP], row[PRECISION],
        row[MICROBATCH], 1.0,
    )  # fmt: skip
    found = memory.stages[slot]
    memory.keys[slot] = key
    again = (2.0 if k.runtime.recompute else 1.0) if k.workload.training else 0.0
    found[FORWARD_S], found[BACKWARD_S] = stage.forward_s + stage.reduce_s, stage.backward_s + again * stage.reduce_s
    found[FIXED_BYTES], found[HELD_BYTES], found[END_S] = stage.fixed_bytes, stage.held_bytes, 0.0
    if k.workload.training:
        found[END_S] = stage.update_s + gradient_reduce_s(
            k.domains, k.runtime, k.tables, k.workload.model, row[DOMAIN], a, z, row[DP], row[TP], row[PRECISION],
            0,  # with sharded weights more microbatches take longer: still a bound
        )  # fmt: skip
