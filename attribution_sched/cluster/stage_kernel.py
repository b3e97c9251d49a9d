"""One pipeline stage in compiled code: its times, draw and memory, and the reduction of its gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.collectives import ring_all_reduce_s
from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost_arrays import DomainArrays, PowerArrays, RuntimeArrays, Workload
from attribution_sched.cluster.memory import activation_share, state_bytes_per_parameter
from attribution_sched.cluster.power import cap_slowdown, draw_w
from attribution_sched.kernels import kernel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_draw_w = kernel(draw_w)
_cap_slowdown = kernel(cap_slowdown)


class StageCost(NamedTuple):
    """What one stage takes per microbatch on each of its devices.

    Attributes:
        forward_s: Forward pass without communication.
        backward_s: Backward pass without communication, recomputation included.
        reduce_s: Tensor-parallel all-reduces of one pass.
        update_s: The optimiser's pass over its states, once per step.
        power_w: Draw while busy.
        compute_share: Share of the busy time the arithmetic units work.
        memory_share: The same of the memory.
        host_share: The same of the host.
        fixed_bytes: Memory that does not depend on the microbatches in flight.
        held_bytes: Memory of one microbatch in flight.
    """

    forward_s: float
    backward_s: float
    reduce_s: float
    update_s: float
    power_w: float
    compute_share: float
    memory_share: float
    host_share: float
    fixed_bytes: float
    held_bytes: float


@kernel
def tp_index(tp: int) -> int:
    """Position of a tensor-parallel degree on the axis of the tables."""
    if tp == 1:
        return 0
    if tp == 2:
        return 1
    return 2 if tp == 4 else 3


@kernel
def _floor_law(floor: float, work: float, p: float) -> float:
    if floor <= 0.0:
        return work
    if p == 2.0:
        return float(np.sqrt(floor * floor + work * work))
    return float((floor**p + work**p) ** (1.0 / p))


@kernel
def split_stages(prefix: FloatArray, first: int, stop: int, parts: int, at: int, stage_first: IntArray) -> None:
    """Cut layers ``[first, stop)`` into ``parts`` stages of nearly equal forward work."""
    begin = prefix[first]
    total = prefix[stop] - begin
    layer = first
    stage_first[at] = first
    for part in range(1, parts):
        goal = begin + total * part / parts
        layer += 1
        limit = stop - (parts - part)
        while layer < limit and 0.5 * (prefix[layer] + prefix[layer + 1]) <= goal:
            layer += 1
        stage_first[at + part] = layer
    stage_first[at + parts] = stop


@kernel
def stage_cost(
    domains: DomainArrays,
    runtime: RuntimeArrays,
    power_law: PowerArrays,
    tables: CostTables,
    workload: Workload,
    domain: int,
    a: int,
    z: int,
    dp: int,
    tp: int,
    precision: int,
    micro: int,
    slowdown: float,
) -> StageCost:
    """Price layers ``[a, z)`` as one stage of a segment of the given layout.

    Args:
        domains: The cluster.
        runtime: Framework behaviour.
        power_law: Constants of the power laws.
        tables: Layer cost tables.
        workload: The task.
        domain: Where the stage runs.
        a: First layer.
        z: One past the last layer.
        dp: Data-parallel ranks.
        tp: Tensor-parallel ranks.
        precision: Row on the precision axis.
        micro: Samples of a microbatch, shared out over the dp ranks.
        slowdown: Stretch from co-located tasks, ≥ 1.
    """
    here = domains.rows[domain]
    model = workload.model
    sizes = tables.sizes[model]
    p = tables.sharpness[model]
    t = tp_index(tp)
    b = micro / dp
    element = 4.0 if precision == 0 else (1.0 if precision == 3 else 2.0)
    times = tables.times_s[model, here.gpu, precision, t]
    kc, km, kh = workload.compute_factor, workload.memory_factor, workload.host_factor
    forward_compute = b * kc * (times[0, z] - times[0, a])
    forward_memory = km * (b * (times[1, z] - times[1, a]) + times[2, z] - times[2, a])
    forward = _floor_law(kh * (times[3, z] - times[3, a]), forward_compute + forward_memory, p)
    backward = 0.0
    if workload.training:
        backward = _floor_law(
            kh * (times[7, z] - times[7, a]),
            b * (kc * (times[4, z] - times[4, a]) + km * (times[5, z] - times[5, a]))
            + km * (times[6, z] - times[6, a]),
            p,
        )
    host_share = min(1.0, kh * (times[3, z] - times[3, a]) / forward)
    # Power follows from what share of the busy time the units really work; a cap stretches it. The heavier of the
    # two counts as busy whenever the device works, as in the fit of the power law.
    working = min(1.0, (forward_compute + forward_memory) / forward)
    heavier = max(forward_compute, forward_memory)
    compute_share = working * forward_compute / heavier
    memory_share = working * forward_memory / heavier
    natural = _draw_w(
        here.idle_w, here.tdp_w, compute_share, memory_share, power_law.precision_factor[precision],
        power_law.compute_weight, power_law.memory_weight, power_law.saturation,
    )  # fmt: skip
    beta = power_law.cap_beta_max * max(compute_share, memory_share) ** power_law.cap_beta_exponent
    stretch = slowdown * _cap_slowdown(natural, here.cap_w, here.cap_floor_w, beta)
    power = min(natural, here.cap_w)
    # Tensor-parallel all-reduces, one set per pass, where the profile does not already hold them.
    reduce_s = 0.0
    if tp > 1 and tables.measured[model, here.gpu, t] == 0:
        link = here.fabric_bytes_per_s if tp > here.node_devices else here.nvlink_bytes_per_s
        reduce_s = ring_all_reduce_s(float(tp), b * element * (sizes[6, z] - sizes[6, a]), link, 0.0)
        reduce_s += 2.0 * (tp - 1.0) * runtime.collective_latency_s * (sizes[7, z] - sizes[7, a])
    # Memory, and the optimiser's pass over its states.
    params = (sizes[0, z] - sizes[0, a]) / tp + sizes[1, z] - sizes[1, a]
    states = state_bytes_per_parameter(element, workload.training, runtime.zero_stage, float(dp))
    update_s = 2.0 * params * states / here.hbm_bytes_per_s if workload.training else 0.0
    fixed = params * states + runtime.reserved_bytes
    activation_bytes = max(element, 2.0) * b
    peak = tables.peak_layer[model, t]
    held = 0.0
    if not workload.training:
        fixed += activation_bytes * peak
    elif runtime.recompute:
        inputs = sizes[5, z] - sizes[5, a]
        if runtime.sequence_parallel:
            inputs /= tp
        fixed += activation_bytes * peak
        held = activation_bytes * inputs
    else:
        share = activation_share(float(tp), runtime.sequence_parallel)
        kept = (sizes[2, z] - sizes[2, a]) * share + sizes[3, z] - sizes[3, a] + (sizes[9, z] - sizes[9, a]) / tp
        if not runtime.flash_attention:
            kept += (sizes[4, z] - sizes[4, a]) / tp
        held = activation_bytes * kept
    return StageCost(
        forward * stretch, backward * stretch, reduce_s, update_s, power, compute_share, memory_share, host_share,
        fixed, held,
    )  # fmt: skip


@kernel
def gradient_reduce_s(
    domains: DomainArrays,
    runtime: RuntimeArrays,
    tables: CostTables,
    model: int,
    domain: int,
    a: int,
    z: int,
    dp: int,
    tp: int,
    precision: int,
    microbatches: int,
) -> float:
    """Seconds of averaging the gradients of layers ``[a, z)`` over the dp ranks of a segment, once per step."""
    here = domains.rows[domain]
    sizes = tables.sizes[model]
    params = (sizes[0, z] - sizes[0, a]) / tp + sizes[1, z] - sizes[1, a]
    element = 4.0 if precision == 0 else 2.0
    link = here.nvlink_bytes_per_s if dp * tp <= here.node_devices else here.fabric_bytes_per_s
    reduce_s = ring_all_reduce_s(float(dp), params * element, link, here.fabric_latency_s)
    if runtime.zero_stage >= 3:
        # Half a ring scatters the gradients; weights are gathered for both passes of every microbatch.
        reduce_s *= 0.5 + microbatches
    return float(reduce_s)
