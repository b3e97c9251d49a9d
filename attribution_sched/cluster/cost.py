"""The cost model: what a plan takes, in seconds, bytes, joules, grams and dollars.

One call scores any number of plans; the single case is a batch of one. The compiled work is done in
the kernels at the beginning; what follows turns records into arrays and back. ``move_cost`` prices the way from one
plan to another: sending the state of layers to domains that do not hold them yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.compute import (
    COMPUTE_BACKWARD,
    COMPUTE_FORWARD,
    FLOOR_BACKWARD,
    FLOOR_FORWARD,
    HOST_BACKWARD,
    INPUTS,
    KEPT_DIVIDED,
    KEPT_SHARDED,
    KEPT_WHOLE,
    KV,
    MEMORY_BACKWARD,
    MEMORY_FORWARD,
    PARAMS_SHARDED,
    PARAMS_WHOLE,
    REDUCED_ELEMENTS,
    REDUCES,
    SCORES,
    TP_DEGREES,
    WEIGHTS_BACKWARD,
    WEIGHTS_FORWARD,
    CostTables,
    Efficiencies,
    build_tables,
    efficiencies,
)
from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.memory import activation_share, element_bytes, in_flight, state_bytes_per_parameter
from attribution_sched.cluster.models import Model
from attribution_sched.cluster.pipeline import pipeline_finish
from attribution_sched.cluster.plan import (
    CAP,
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
    Plan,
    PlanBatch,
)
from attribution_sched.cluster.power import (
    cap_levels_w,
    cap_reached,
    cap_slowdown,
    capped_w,
    draw_law,
    draw_w,
    precision_factor,
)
from attribution_sched.cluster.world import Cluster, TaskKind
from attribution_sched.errors import NetworkError, PlanError, problem
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.types import BoolArray, FloatArray, IntArray

# ------ The compiled heart of the cost model: one plan in, its step time, memory, energy and bill out
#
# Pure scalar loops over arrays, so the same code scores ten thousand plans in one call and re-prices running
# tasks inside the batched environment. ``cost.py`` is the friendly face.
#
# Read from the bottom up it is one sum: ``plan_cost`` cuts segments into stages (``split_stages``), prices each
# (``stage_cost``), sends activations between them (``pipeline.py``) and averages gradients, inside a domain
# (``gradient_reduce_s``) and across replicas over the WAN. ``share_batch`` is the cluster's own rule of how
# replicas share a batch: in proportion to their speed.
#
# A ring all-reduce of V bytes over n ranks moves ``2·(n−1)/n·V`` bytes through every rank's link in
# ``2·(n−1)`` rounds::
#
#     T = 2·(n−1)/n · V / bandwidth + 2·(n−1) · latency

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
SEGMENT_SIZE = len(SEGMENT_COLUMNS)


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
    ("compute_draw", np.float64),
    ("memory_draw", np.float64),
    ("compute_beta", np.float64),
    ("memory_beta", np.float64),
    ("carbon_g_per_j", np.float64),
])  # fmt: skip
"""One domain: row of the GPU tables, devices, devices per node, device memory, *achieved* link, fabric and HBM
bandwidth, idle, rated and capped power, the constants P0, a_c, a_m, β_c, β_m of its chip (see ``power.py``), grid
carbon intensity."""


@by_reference
class DomainArrays(NamedTuple):
    """The cluster as arrays over K domains.

    Attributes:
        rows: Records of ``DOMAIN_ROW``, shape ``(K,)``.
        peak_flops: Shape ``(K, 4)``; NaN where the precision does not exist.
        price_usd_per_byte: Egress price, shape ``(K, K)``.
        caps_w: Watts of every cap level, the domain's own first, shape ``(K, L)``.
    """

    rows: np.recarray[tuple[int], np.dtype[np.void]]
    peak_flops: FloatArray
    price_usd_per_byte: FloatArray
    caps_w: FloatArray


@by_reference
class RuntimeArrays(NamedTuple):
    """Framework switches as plain numbers."""

    recompute: bool
    zero_stage: int
    sequence_parallel: bool
    flash_attention: bool
    blocking_sends: bool
    reserved_bytes: float
    collective_latency_s: float


@by_reference
class PowerArrays(NamedTuple):
    """Constants of the power laws that all chips share (see ``power.py``)."""

    saturation: float
    cap_reached: float
    cap_exponent: float
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


@by_reference
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


@kernel
def ring_all_reduce_s(ranks: float, volume_bytes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds of a ring all-reduce; 0 for a single rank."""
    if ranks <= 1:
        return 0.0
    return float(2.0 * (ranks - 1.0) / ranks * volume_bytes / bandwidth_bytes_per_s + 2.0 * (ranks - 1.0) * latency_s)


@kernel
def ring_sent_bytes(ranks: float, volume_bytes: float) -> float:
    """Bytes each rank sends to its successor in a ring all-reduce."""
    if ranks <= 1:
        return 0.0
    return float(2.0 * (ranks - 1.0) / ranks * volume_bytes)


_draw_w = kernel(draw_w)
_capped_w = kernel(capped_w)
_cap_slowdown = kernel(cap_slowdown)


@kernel
def _under_cap(
    domains: DomainArrays, power_law: PowerArrays, domain: int, cap: int, natural_w: float, working: float, beta: float
) -> tuple[float, float]:
    """Watts of a device under a cap, and how much the cap stretches its work.

    Args:
        domains: The cluster.
        power_law: Constants.
        domain: Where it runs.
        cap: Cap level; 0 is the domain's own.
        natural_w: Watts it would draw without one.
        working: Share of its time that it works, ``u``: it feels a cap by ``u^k · β``.
        beta: How a device that always works feels it.
    """
    here = domains.rows[domain]
    drawn = _capped_w(natural_w, domains.caps_w[domain, cap], here.tdp_w, power_law.cap_reached)
    felt = working**power_law.cap_exponent * beta
    return drawn, _cap_slowdown(natural_w, drawn, here.cap_floor_w, felt)


@kernel
def _pass_draw(
    domains: DomainArrays, power_law: PowerArrays, domain: int, precision: int, cap: int, compute_s: float,
    memory_s: float, pass_s: float,
) -> tuple[float, float]:  # fmt: skip
    """Watts of a device during a pass under its cap, and how much the cap stretches the pass.

    Args:
        domains: The cluster.
        power_law: Constants.
        domain: Where it runs.
        precision: Row on the precision axis.
        cap: Cap level; 0 is the domain's own.
        compute_s: Seconds of the pass that the arithmetic units work.
        memory_s: Seconds that the memory works.
        pass_s: Seconds of the pass; the rest is launching and waiting for the host.
    """
    here = domains.rows[domain]
    work_s = compute_s + memory_s
    working = min(1.0, work_s / pass_s)
    compute_part = compute_s / work_s
    natural = _draw_w(
        here.idle_w, here.tdp_w, working, compute_part, power_law.precision_factor[precision],
        here.compute_draw, here.memory_draw, power_law.saturation,
    )  # fmt: skip
    beta = compute_part * here.compute_beta + (1.0 - compute_part) * here.memory_beta
    watts_and_time: tuple[float, float] = _under_cap(domains, power_law, domain, cap, natural, working, beta)
    return watts_and_time


@kernel
def opaque_cap(
    domains: DomainArrays, power_law: PowerArrays, domain: int, precision: int, cap: int, working: float
) -> tuple[float, float, float]:
    """How much a cap stretches an opaque job, what is left of its watts above idle, and what of its joules.

    The same law as of a pass: a job whose devices work a share ``u`` of the time draws ``idle + u · (P − idle)`` where
    one that always computes draws ``P``, and feels a cap by ``u^k · β_c``.

    Args:
        domains: The cluster.
        power_law: Constants.
        domain: Where it runs.
        precision: Row on the precision axis.
        cap: Cap level; 0 is the domain's own.
        working: Share of its time that a device works, in (0, 1].
    """
    here = domains.rows[domain]
    busy_w = _draw_w(
        here.idle_w, here.tdp_w, 1.0, 1.0, power_law.precision_factor[precision], here.compute_draw, here.memory_draw,
        power_law.saturation,
    )  # fmt: skip
    natural = here.idle_w + working * (busy_w - here.idle_w)
    drawn, stretch = _under_cap(domains, power_law, domain, cap, natural, working, here.compute_beta)
    return stretch, (drawn - here.idle_w) / (natural - here.idle_w), stretch * drawn / natural


class StageCost(NamedTuple):
    """What one stage takes per microbatch on each of its devices.

    Attributes:
        forward_s: Forward pass without communication.
        backward_s: Backward pass without communication, recomputation included; in inference, writing the output.
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
    # The fitted training exponent: a square root is several times cheaper than two powers.
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
        # A stage has one layer at least: the one taken here, and those left over for the stages to come.
        layer += 1
        limit = stop - (parts - part)
        # A layer joins the stage that its middle falls into.
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
    cap: int,
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
        cap: Cap level; 0 is the domain's own.
        micro: Samples of a microbatch, shared out over the dp ranks.
        slowdown: Stretch from co-located tasks, ≥ 1.
    """
    here = domains.rows[domain]
    model = workload.model
    sizes = tables.sizes[model]
    p = tables.sharpness[model]
    t = tp_index(tp)
    b = micro / dp
    element = element_bytes(precision)
    times = tables.times_s[model, here.gpu, precision, t]
    kc, km, kh = workload.compute_factor, workload.memory_factor, workload.host_factor
    forward_compute = b * kc * (times[COMPUTE_FORWARD, z] - times[COMPUTE_FORWARD, a])
    forward_memory = km * (
        b * (times[MEMORY_FORWARD, z] - times[MEMORY_FORWARD, a])
        + times[WEIGHTS_FORWARD, z]
        - times[WEIGHTS_FORWARD, a]
    )
    forward = _floor_law(kh * (times[FLOOR_FORWARD, z] - times[FLOOR_FORWARD, a]), forward_compute + forward_memory, p)
    # In training the gradients, in inference the tokens that are written one by one; nothing where a model only reads.
    backward_compute = b * kc * (times[COMPUTE_BACKWARD, z] - times[COMPUTE_BACKWARD, a])
    backward_memory = km * (
        b * (times[MEMORY_BACKWARD, z] - times[MEMORY_BACKWARD, a])
        + times[WEIGHTS_BACKWARD, z]
        - times[WEIGHTS_BACKWARD, a]
    )
    backward = _floor_law(
        kh * (times[FLOOR_BACKWARD, z] - times[FLOOR_BACKWARD, a]), backward_compute + backward_memory, p
    ) + b * kh * (times[HOST_BACKWARD, z] - times[HOST_BACKWARD, a])
    host_share = min(1.0, kh * (times[FLOOR_FORWARD, z] - times[FLOOR_FORWARD, a]) / forward)
    # The heavier of the two counts as busy whenever the device works.
    working = min(1.0, (forward_compute + forward_memory) / forward)
    heavier = max(forward_compute, forward_memory)
    compute_share = working * forward_compute / heavier
    memory_share = working * forward_memory / heavier
    # Power follows from what share of the busy time the units really work; a cap stretches it.
    power, stretch = _pass_draw(domains, power_law, domain, precision, cap, forward_compute, forward_memory, forward)
    forward *= slowdown * stretch
    # Both passes of training have the same mix of work and waiting; writing a token hardly computes.
    if backward > 0.0 and not workload.training:
        write_w, write_stretch = _pass_draw(
            domains, power_law, domain, precision, cap, backward_compute, backward_memory, backward
        )
        writing = min(1.0, (backward_compute + backward_memory) / backward)
        heavier = max(backward_compute, backward_memory)
        backward *= slowdown * write_stretch
        part = backward / (forward + backward)
        power += part * (write_w - power)
        compute_share += part * (writing * backward_compute / heavier - compute_share)
        memory_share += part * (writing * backward_memory / heavier - memory_share)
        host_share += part * (1.0 - writing - host_share)
    else:
        backward *= slowdown * stretch
    # Tensor-parallel all-reduces, one set per pass, where the profile does not already hold them.
    reduce_s = 0.0
    if tp > 1 and tables.measured[model, here.gpu, t] == 0:
        link = here.fabric_bytes_per_s if tp > here.node_devices else here.nvlink_bytes_per_s
        reduce_s = ring_all_reduce_s(
            float(tp), b * element * (sizes[REDUCED_ELEMENTS, z] - sizes[REDUCED_ELEMENTS, a]), link, 0.0
        )
        reduce_s += 2.0 * (tp - 1.0) * runtime.collective_latency_s * (sizes[REDUCES, z] - sizes[REDUCES, a])
    # Memory, and the optimiser's pass over its states.
    # What tensor parallelism does not shard every rank holds whole.
    params = (
        (sizes[PARAMS_SHARDED, z] - sizes[PARAMS_SHARDED, a]) / tp + sizes[PARAMS_WHOLE, z] - sizes[PARAMS_WHOLE, a]
    )
    states = state_bytes_per_parameter(element, workload.training, runtime.zero_stage, float(dp))
    # Every byte of the states is read once and written once.
    update_s = 2.0 * params * states / here.hbm_bytes_per_s if workload.training else 0.0
    fixed = params * states + runtime.reserved_bytes
    # Assumed: activations stay in half precision where weights are INT8.
    activation_bytes = max(element, 2.0) * b
    peak = tables.peak_layer[model, t]
    held = 0.0
    if not workload.training:
        # Nothing is kept for a backward pass: one layer's set lives at a time, and what text to come attends to.
        fixed += activation_bytes * peak
        held = activation_bytes * (sizes[KV, z] - sizes[KV, a]) / tp
    elif runtime.recompute:
        inputs = sizes[INPUTS, z] - sizes[INPUTS, a]
        if runtime.sequence_parallel:
            inputs /= tp
        fixed += activation_bytes * peak
        held = activation_bytes * inputs
    else:
        share = activation_share(float(tp), runtime.sequence_parallel)
        kept = (
            (sizes[KEPT_SHARDED, z] - sizes[KEPT_SHARDED, a]) * share
            + sizes[KEPT_WHOLE, z]
            - sizes[KEPT_WHOLE, a]
            + (sizes[KEPT_DIVIDED, z] - sizes[KEPT_DIVIDED, a]) / tp
        )
        if not runtime.flash_attention:
            kept += (sizes[SCORES, z] - sizes[SCORES, a]) / tp
        held = activation_bytes * kept
    return StageCost(
        forward, backward, reduce_s, update_s, power, compute_share, memory_share, host_share,
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
    params = (
        (sizes[PARAMS_SHARDED, z] - sizes[PARAMS_SHARDED, a]) / tp + sizes[PARAMS_WHOLE, z] - sizes[PARAMS_WHOLE, a]
    )
    # INT8 is not trained in: gradients take two bytes at least.
    element = max(element_bytes(precision), 2.0)
    link = here.nvlink_bytes_per_s if dp * tp <= here.node_devices else here.fabric_bytes_per_s
    reduce_s = ring_all_reduce_s(float(dp), params * element, link, here.fabric_latency_s)
    if runtime.zero_stage >= 3:
        # Half a ring scatters the gradients; weights are gathered for both passes of every microbatch.
        reduce_s *= 0.5 + microbatches
    return float(reduce_s)


@kernel
def _hardware_missing(domains: DomainArrays, tables: CostTables, model: int, segments: IntArray, count: int) -> bool:
    """Say whether some segment runs in a precision its device does not have: its times are NaN."""
    for r in range(count):
        row = segments[r]
        if np.isnan(tables.times_s[model, domains.rows[row[DOMAIN]].gpu, row[PRECISION], 0, COMPUTE_FORWARD, -1]):
            return True
    return False


@kernel
def plan_cost(
    domains: DomainArrays,
    runtime: RuntimeArrays,
    power_law: PowerArrays,
    tables: CostTables,
    workload: Workload,
    bandwidth: FloatArray,
    latency: FloatArray,
    segments: IntArray,
    count: int,
    schedule: int,
    slowdown: FloatArray,
    breakdown: bool,
    scratch: Scratch,
    plan_out: FloatArray,
    segment_out: FloatArray,
    traffic_out: FloatArray,
) -> None:
    """Price one plan.

    Args:
        domains: The cluster.
        runtime: Framework behaviour.
        power_law: Constants of the power laws.
        tables: Layer cost tables.
        workload: The task.
        bandwidth: WAN bytes per second now, shape ``(K, K)``.
        latency: WAN one-way seconds now, shape ``(K, K)``.
        segments: The plan's rows, shape ``(P, 11)``.
        count: Rows in use.
        schedule: Pipeline schedule.
        slowdown: Compute slow-down of each segment from co-located tasks, shape ``(P,)``, ≥ 1.
        breakdown: Also compute the compute/communication/bubble split (runs the recurrence once more).
        scratch: Buffers.
        plan_out: Shape ``(10,)``, columns ``PLAN_COLUMNS``; infinite time, energy and memory ratio for a plan
            in a precision that its device has no hardware for.
        segment_out: Shape ``(P, 7)``, columns ``SEGMENT_COLUMNS``.
        traffic_out: Bytes per step from domain to domain, shape ``(K, K)``; added to, not cleared.
    """
    forward_s, backward_s = scratch.seconds[0], scratch.seconds[1]
    send_forward_s, send_backward_s = scratch.seconds[2], scratch.seconds[3]
    finish_s, zero_s = scratch.seconds[4], scratch.seconds[5]
    free_forward_s, free_backward_s = scratch.seconds[6], scratch.seconds[7]
    update_s = scratch.seconds[8]
    arrival = scratch.arrival
    stage_segment, stage_first = scratch.layers[0], scratch.layers[1]
    model = workload.model
    # Inference has no backward pass to alternate with: its forwards stream, which is GPipe's first half.
    order = schedule if workload.training else 1
    if _hardware_missing(domains, tables, model, segments, count):
        plan_out[:] = 0.0
        segment_out[:] = 0.0
        for column in (STEP_S, COMPUTE_S, ENERGY_J, CARBON_G, MEMORY_RATIO):
            plan_out[column] = np.inf
        return
    step = 0.0
    step_free = 0.0
    slowest_compute = 0.0
    worst_memory = 0.0
    intra_total = 0.0
    begin = 0
    while begin < count:
        # One replica: rows [begin, end).
        replica = segments[begin, REPLICA]
        end = begin
        stages = 0
        while end < count and segments[end, REPLICA] == replica:
            row = segments[end]
            gpu = domains.rows[row[DOMAIN]].gpu
            prefix = tables.times_s[model, gpu, row[PRECISION], tp_index(row[TP]), COMPUTE_FORWARD]
            split_stages(prefix, row[FIRST], row[STOP], row[PP], stages, stage_first)
            for part in range(row[PP]):
                stage_segment[stages + part] = end
            stages += row[PP]
            end += 1
        micro = segments[begin, MICROBATCH]
        m_count = segments[begin, MICROBATCHES]
        for row_index in range(begin, end):
            for column in range(segment_out.shape[1]):
                segment_out[row_index, column] = 0.0
        for s in range(stages):
            row_index = stage_segment[s]
            row = segments[row_index]
            a = stage_first[s]
            z = stage_first[s + 1]
            stage = stage_cost(
                domains, runtime, power_law, tables, workload, row[DOMAIN], a, z, row[DP], row[TP], row[PRECISION],
                row[CAP], micro, slowdown[row_index],
            )  # fmt: skip
            forward, backward, reduce_s = stage.forward_s, stage.backward_s, stage.reduce_s
            # Each pass reduces once: forward, backward and, where it recomputes, the second forward.
            reductions = (3.0 if runtime.recompute else 2.0) if workload.training else 1.0
            free_forward_s[s] = forward
            free_backward_s[s] = backward
            forward_s[s] = forward + reduce_s
            backward_s[s] = backward + (reductions - 1.0) * reduce_s
            update_s[s] = stage.update_s
            segment_out[row_index, BUSY_S] += m_count * (forward + backward) / row[PP]
            segment_out[row_index, POWER_W] += stage.power_w * m_count * (forward + backward) / row[PP]
            segment_out[row_index, SEGMENT_COMM_S] += m_count * reductions * reduce_s / row[PP]
            segment_out[row_index, COMPUTE_SHARE] += stage.compute_share / row[PP]
            segment_out[row_index, MEMORY_SHARE] += stage.memory_share / row[PP]
            segment_out[row_index, HOST_SHARE] += stage.host_share / row[PP]
            slowest_compute = max(slowest_compute, m_count * (forward + backward) + update_s[s])
            # Stages of one segment lie on different devices: the fullest decides.
            held = in_flight(schedule, stages, s, m_count)
            used = stage.fixed_bytes + held * stage.held_bytes
            segment_out[row_index, MEMORY_BYTES] = max(segment_out[row_index, MEMORY_BYTES], used)
            worst_memory = max(worst_memory, used / domains.rows[row[DOMAIN]].memory_bytes)
        # Sends between stages.
        for s in range(stages):
            send_forward_s[s] = 0.0
            send_backward_s[s] = 0.0
            zero_s[s] = 0.0
        for s in range(stages - 1):
            row = segments[stage_segment[s]]
            after = segments[stage_segment[s + 1]]
            # What crosses a cut is in half precision at least, as the activations that a stage keeps.
            element = max(element_bytes(row[PRECISION]), 2.0)
            volume = micro * element * tables.boundary[model, stage_first[s + 1]]
            i, j = row[DOMAIN], after[DOMAIN]
            if i == j:
                # Inside a domain each data-parallel rank sends its own part; over the WAN they share one link.
                send_forward_s[s] = domains.rows[i].fabric_latency_s + volume / row[DP] / (
                    domains.rows[i].fabric_bytes_per_s
                )
                back = send_forward_s[s]
            else:
                send_forward_s[s] = latency[i, j] + volume / bandwidth[i, j]
                back = latency[j, i] + volume / bandwidth[j, i]
                traffic_out[i, j] += m_count * volume
                if workload.training:
                    traffic_out[j, i] += m_count * volume
            send_backward_s[s + 1] = back if workload.training else 0.0
        # So far watts times seconds: the mean over the busy time.
        for row_index in range(begin, end):
            segment_out[row_index, POWER_W] /= segment_out[row_index, BUSY_S]
        pipeline_finish(
            order, stages, m_count, forward_s, backward_s,
            send_forward_s, send_backward_s, runtime.blocking_sends, arrival, finish_s,
        )  # fmt: skip
        # Gradient all-reduce inside each domain.
        replica_finish = 0.0
        for s in range(stages):
            row_index = stage_segment[s]
            row = segments[row_index]
            done = finish_s[s] + update_s[s]
            if workload.training:
                reduce_s = gradient_reduce_s(
                    domains, runtime, tables, model, row[DOMAIN], stage_first[s], stage_first[s + 1],
                    row[DP], row[TP], row[PRECISION], m_count,
                )  # fmt: skip
                done += reduce_s
                segment_out[row_index, SEGMENT_COMM_S] += reduce_s / row[PP]
            replica_finish = max(replica_finish, done)
        step = max(step, replica_finish)
        if breakdown:
            # The same pipeline with free communication: what the step would take, and so what communication costs.
            pipeline_finish(
                order, stages, m_count, free_forward_s, free_backward_s,
                zero_s, zero_s, False, arrival, finish_s,
            )  # fmt: skip
            for s in range(stages):
                step_free = max(step_free, finish_s[s] + update_s[s])
        begin = end
    if workload.training and segments[count - 1, REPLICA] > 0:
        step += _replica_sync(tables, model, bandwidth, latency, segments, count, traffic_out)
    bill = 0.0
    n_domains = traffic_out.shape[0]
    for i in range(n_domains):
        for j in range(n_domains):
            bill += traffic_out[i, j] * domains.price_usd_per_byte[i, j]
    energy = 0.0
    carbon = 0.0
    utilisation = 0.0
    for row_index in range(count):
        row = segments[row_index]
        k = row[DOMAIN]
        n = row[DP] * row[TP] * row[PP]
        idle = domains.rows[k].idle_w
        busy = segment_out[row_index, BUSY_S]
        joules = segment_energy_j(n, idle, segment_out[row_index, POWER_W], busy, step)
        energy += joules
        carbon += joules * domains.rows[k].carbon_g_per_j
        utilisation += busy / step
        intra_total += segment_out[row_index, SEGMENT_COMM_S]
    plan_out[STEP_S] = step
    if breakdown:
        # M·(f + b) and M times adding f and b may differ in the last bit.
        slowest_compute = min(slowest_compute, step_free)
    plan_out[COMPUTE_S] = slowest_compute
    plan_out[COMM_S] = step - step_free if breakdown else 0.0
    plan_out[BUBBLE_S] = step_free - slowest_compute if breakdown else 0.0
    plan_out[BILL_USD] = bill
    plan_out[ENERGY_J] = energy
    plan_out[CARBON_G] = carbon
    plan_out[MEMORY_RATIO] = worst_memory
    plan_out[INTRA_COMM_S] = intra_total
    plan_out[UTILISATION] = utilisation / count


@kernel
def segment_energy_j(devices: int, idle_w: float, power_w: float, busy_s: float, step_s: float) -> float:
    """Joules of a segment over one step: its devices are held all the time, and draw more only while they compute."""
    return devices * (idle_w * step_s + (power_w - idle_w) * busy_s)


@kernel(allocates=True)
def _replica_sync(
    tables: CostTables,
    model: int,
    bandwidth: FloatArray,
    latency: FloatArray,
    segments: IntArray,
    count: int,
    traffic_out: FloatArray,
) -> float:
    """Average gradients across replicas over the WAN.

    Layers are grouped into runs that the same set of domains holds; each run is one ring over those domains,
    and a domain does its rings one after the other. Returns the time of the busiest domain.
    """
    sizes = tables.sizes[model]
    n_layers = tables.n_layers[model]
    replicas = segments[count - 1, REPLICA] + 1
    busy = np.zeros(bandwidth.shape[0])
    owner = np.zeros(replicas, dtype=np.int64)
    layer = 0
    while layer < n_layers:
        run_stop = n_layers
        element = 2.0
        for r in range(count):
            if segments[r, FIRST] <= layer < segments[r, STOP]:
                owner[segments[r, REPLICA]] = segments[r, DOMAIN]
                run_stop = min(run_stop, segments[r, STOP])
                # Replicas may differ in precision; all of a ring send in the widest.
                element = max(element, element_bytes(segments[r, PRECISION]))
        volume = element * (
            sizes[PARAMS_SHARDED, run_stop]
            - sizes[PARAMS_SHARDED, layer]
            + sizes[PARAMS_WHOLE, run_stop]
            - sizes[PARAMS_WHOLE, layer]
        )
        sent = ring_sent_bytes(float(replicas), volume)
        slowest = 0.0
        for r in range(replicas):
            i = owner[r]
            j = owner[(r + 1) % replicas]
            traffic_out[i, j] += sent
            slowest = max(slowest, sent / bandwidth[i, j] + 2.0 * (replicas - 1) * latency[i, j])
        # A ring is as slow as its slowest link, and all its domains wait for it.
        for r in range(replicas):
            busy[owner[r]] += slowest
        layer = run_stop
    return float(busy.max())


@kernel
def segment_pace_s(tables: CostTables, domains: DomainArrays, model: int, row: IntArray) -> float:
    """Forward seconds per sample of a segment, divided over its ranks and stages."""
    times = tables.times_s[model, domains.rows[row[DOMAIN]].gpu, row[PRECISION], tp_index(row[TP])]
    a, z = row[FIRST], row[STOP]
    return float(
        (times[COMPUTE_FORWARD, z] - times[COMPUTE_FORWARD, a] + times[MEMORY_FORWARD, z] - times[MEMORY_FORWARD, a])
        / (row[DP] * row[PP])
    )


@kernel(allocates=True)
def share_batch(
    tables: CostTables, domains: DomainArrays, model: int, batch: float, rows: IntArray, count: int, replicas: int
) -> None:
    """Give every replica microbatches in proportion to its speed (its slowest segment's).

    Args:
        tables: Layer cost tables.
        domains: The cluster.
        model: Row of the tables.
        batch: Samples per step.
        rows: The plan's segments, shape ``(P, 11)``; the column of microbatches is written.
        count: Segments in use.
        replicas: Replicas of the plan.
    """
    speed = np.zeros(max(1, replicas))
    for r in range(replicas):
        slowest = 0.0
        for p in range(count):
            if rows[p, REPLICA] == r:
                slowest = max(slowest, segment_pace_s(tables, domains, model, rows[p]))
        speed[r] = 1.0 / slowest
    total = speed.sum()
    for p in range(count):
        share = speed[rows[p, REPLICA]] / total
        # Rounding may make a few samples more or fewer than the batch; prices are per global batch and make it good.
        rows[p, MICROBATCHES] = max(1, round(batch * share / rows[p, MICROBATCH]))


# ------ The cost model: what a plan takes, in seconds, bytes, joules, grams and dollars

BYTES_PER_GBIT = 1e9 / 8.0
BYTES_PER_GB = 1e9
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class PlanCosts:
    """Costs of a batch of plans; every array has the plan axis first.

    Attributes:
        step_s: Time of one step (one global batch). ``compute_s + comm_s + bubble_s``.
        compute_s: Compute of the slowest stage, its optimiser update included.
        comm_s: Exposed communication: what the step would save if every transfer were free.
        bubble_s: The rest: stages waiting for each other.
        bill_usd: Price of the cross-domain traffic of one step.
        energy_j: Energy of the occupied devices over one step, idle draw included.
        carbon_g: Grams of CO2-equivalent of that energy.
        memory_ratio: Fullest device over its memory; above 1 does not fit.
        intra_comm_s: Communication inside domains, summed over segments.
        utilisation: Mean over the domains in use of compute time over step time.
        traffic_bytes: Bytes per step from domain to domain, shape ``(n_plans, K, K)``.
        segments: Per-segment figures, shape ``(n_plans, P, 7)``, columns ``SEGMENT_COLUMNS``.
    """

    step_s: FloatArray
    compute_s: FloatArray
    comm_s: FloatArray
    bubble_s: FloatArray
    bill_usd: FloatArray
    energy_j: FloatArray
    carbon_g: FloatArray
    memory_ratio: FloatArray
    intra_comm_s: FloatArray
    utilisation: FloatArray
    traffic_bytes: FloatArray
    segments: FloatArray

    @property
    def fits(self) -> BoolArray:
        """Whether every device of a plan stays within its memory, shape ``(n_plans,)``."""
        return self.memory_ratio <= 1.0

    def segment(self, column: str) -> FloatArray:
        """One per-segment figure by name, shape ``(n_plans, P)``."""
        return self.segments[:, :, SEGMENT_COLUMNS.index(column)]


@kernel
def _score(
    domains: DomainArrays,
    runtime: RuntimeArrays,
    power_law: PowerArrays,
    tables: CostTables,
    model: int,
    training: bool,
    factors: FloatArray,
    bandwidth: FloatArray,
    latency: FloatArray,
    segments: IntArray,
    counts: IntArray,
    schedules: IntArray,
    slowdown: FloatArray,
    breakdown: bool,
    scratch: Scratch,
    plan_out: FloatArray,
    segment_out: FloatArray,
    traffic_out: FloatArray,
) -> None:
    # Links that all plans share are passed once: a matrix per plan would not fit memory at 64 domains.
    each_bandwidth, each_latency, each_task = bandwidth.shape[0] > 1, latency.shape[0] > 1, factors.shape[0] > 1
    for p in range(counts.shape[0]):
        own = factors[p if each_task else 0]
        workload = Workload(model, training, own[0], own[1], own[2])
        plan_cost(
            domains, runtime, power_law, tables, workload, bandwidth[p if each_bandwidth else 0],
            latency[p if each_latency else 0], segments[p], counts[p], schedules[p], slowdown[p], breakdown, scratch,
            plan_out[p], segment_out[p], traffic_out[p],
        )  # fmt: skip


@kernel(allocates=True)
def _share_all(
    tables: CostTables, domains: DomainArrays, model: int, batch_size: float, rows: IntArray, counts: IntArray
) -> None:
    for p in range(counts.size):
        share_batch(tables, domains, model, batch_size, rows[p], counts[p], rows[p, counts[p] - 1, REPLICA] + 1)


class CostModel:
    """Scores plans of a fixed set of models on a fixed cluster.

    Args:
        cluster: Domains, network and framework.
        models: Models whose plans will be scored.
        training: Whether model m is trained (True) or only run (False); all trained by default.
        achieved: Kernel efficiencies; the packaged fit by default.
    """

    def __init__(
        self,
        cluster: Cluster,
        models: Sequence[Model],
        training: Sequence[bool] | None = None,
        achieved: Efficiencies | None = None,
    ) -> None:
        achieved = achieved or efficiencies()
        self.cluster = cluster
        self.models = tuple(models)
        self.training = tuple(training) if training is not None else (True,) * len(self.models)
        self.tables = build_tables(self.models, cluster.gpus, cluster.runtime, self.training, achieved)
        self.domains = domain_arrays(cluster, achieved)
        runtime = cluster.runtime
        self.runtime = RuntimeArrays(
            runtime.recompute, runtime.zero_stage, runtime.sequence_parallel, runtime.flash_attention,
            runtime.blocking_sends, float(runtime.reserved_bytes), achieved.collective_latency_s,
        )  # fmt: skip
        self.power_law = power_arrays()

    def workload(self, model: int, factors: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Workload:
        """Describe a task of ``models[model]`` to the kernel; factors are its demand multipliers."""
        return Workload(model, self.training[model], *(float(f) for f in factors))

    def score(
        self,
        plans: PlanBatch | Plan | Sequence[Plan],
        model: int = 0,
        *,
        bandwidth_gbps: FloatArray | None = None,
        latency_s: FloatArray | None = None,
        slowdown: FloatArray | None = None,
        factors: tuple[float, float, float] | FloatArray = (1.0, 1.0, 1.0),
        breakdown: bool = True,
    ) -> PlanCosts:
        """Price plans for one model.

        Args:
            plans: A batch of plans, or plan records. Records are checked against the model and the cluster;
                of a batch only the ranges are checked, and a precision the hardware lacks gives infinite time and
                memory ratio, so that such a plan never fits.
            model: Index into ``models``.
            bandwidth_gbps: WAN bandwidth now, shape ``(K, K)`` or ``(n_plans, K, K)``; the base by default.
            latency_s: WAN one-way latency now, same shapes; the base by default.
            slowdown: Compute slow-down of each segment, shape ``(n_plans, P)`` or one that broadcasts to it;
                1 by default.
            factors: The task's demand multipliers on compute, memory and host time, shape ``(3,)``, or ``(n_plans, 3)``
                for as many tasks of the model.
            breakdown: Whether to split the step time into its three terms (else they are 0).
        """
        batch = self._batch(plans, model)
        n, k = len(batch), len(self.cluster)
        wan = self.cluster.wan
        bandwidth = BYTES_PER_GBIT * _links("bandwidth_gbps", bandwidth_gbps, wan.bandwidth_gbps, n, k, positive=True)
        latency = _links("latency_s", latency_s, wan.latency_s, n, k, positive=False)
        stretched = _slowdowns(slowdown, batch)
        in_use = np.arange(batch.segments.shape[1]) < batch.counts[:, None]
        stages = int((batch.segments[:, :, PP] * in_use).sum(axis=1).max(initial=1))
        scratch = make_scratch(stages, max(1, int(batch.segments[:, :, MICROBATCHES].max(initial=1))))
        rows = [np.ascontiguousarray(a, dtype=np.int64) for a in (batch.segments, batch.counts, batch.schedules)]
        plan_out = np.zeros((n, len(PLAN_COLUMNS)))
        segment_out = np.zeros((*batch.segments.shape[:2], len(SEGMENT_COLUMNS)))
        traffic = np.zeros((n, k, k))
        _score(
            self.domains, self.runtime, self.power_law, self.tables, model, self.training[model],
            _factors(factors, n), bandwidth, latency, *rows, stretched, breakdown, scratch, plan_out, segment_out,
            traffic,
        )  # fmt: skip
        columns = dict(zip(PLAN_COLUMNS, plan_out.T.copy(), strict=True))
        return PlanCosts(**columns, traffic_bytes=traffic, segments=segment_out)

    def microbatch_counts(self, model: int, batch_size: int, batch: PlanBatch) -> IntArray:
        """Microbatches that the cluster would give every segment's replica, shape ``(n_plans, P)``; 0 where unused."""
        rows = np.array(batch.segments, order="C")
        rows[:, :, MICROBATCHES] = 0
        _share_all(self.tables, self.domains, model, float(batch_size), rows, batch.counts)
        counts: IntArray = rows[:, :, MICROBATCHES]
        return counts

    def check(self, plan: Plan, model: int = 0) -> None:
        """Raise ``PlanError`` if the plan is malformed, uses hardware that is not there, or overflows memory."""
        self._validate(plan, model)
        cost = self.score(PlanBatch.of([plan]), model, breakdown=False)
        if not cost.fits[0]:
            ratio = float(cost.memory_ratio[0])
            rooms = [self.cluster.domains[s.domain].gpu.memory_bytes for s in plan.segments]
            worst = int(np.argmax(cost.segment("memory_bytes")[0] / rooms))
            segment = plan.segments[worst]
            capacity = rooms[worst]
            needed = float(cost.segment("memory_bytes")[0, worst])
            raise PlanError(
                problem(f"memory of segment {worst} (layers {segment.first}-{segment.stop - 1})",
                        f"{needed / 1e9:.1f} GB", f"a device has {capacity / 1e9:.0f} GB (ratio {ratio:.2f})",
                        "Use fewer layers, a smaller microbatch, more tp, a higher ZeRO stage or recomputation")
            )  # fmt: skip

    def _batch(self, plans: PlanBatch | Plan | Sequence[Plan], model: int) -> PlanBatch:
        if isinstance(plans, PlanBatch):
            plans.check(int(self.tables.n_layers[model]), len(self.cluster), self.domains.caps_w.shape[1])
            return plans
        listed = [plans] if isinstance(plans, Plan) else list(plans)
        for plan in listed:
            self._validate(plan, model)
        return PlanBatch.of(listed)

    def _validate(self, plan: Plan, model: int) -> None:
        plan.check(int(self.tables.n_layers[model]), len(self.cluster))
        for segment in plan.segments:
            domain = self.cluster.domains[segment.domain]
            if segment.tp not in TP_DEGREES:
                raise PlanError(problem("tp", segment.tp, f"must be one of {TP_DEGREES}", "Pick one of these"))
            if any(device >= domain.devices for device in segment.devices):
                rule = f"{domain.name} has devices 0..{domain.devices - 1}"
                raise PlanError(problem("devices", segment.devices, rule, "List devices that exist"))
            if segment.device_count > domain.devices:
                raise PlanError(
                    problem("dp*tp*pp", segment.device_count, f"{domain.name} has {domain.devices} devices",
                            "Use a smaller layout")
                )  # fmt: skip
            if not 0 <= segment.cap <= len(self.cluster.cap_levels):
                rule = f"must lie in 0..{len(self.cluster.cap_levels)}, the cluster's cap levels"
                raise PlanError(problem("cap", segment.cap, rule, "Use 0 for the domain's own cap"))
            if not domain.gpu.supports(segment.precision):
                valid = ", ".join(domain.gpu.peak_flops)
                rule = f"{domain.gpu.name} has no hardware for it"
                raise PlanError(problem("precision", segment.precision.value, rule, f"Use {valid}"))


def domain_arrays(cluster: Cluster, achieved: Efficiencies) -> DomainArrays:
    """Lay the cluster out as arrays."""
    gpus, domains = cluster.gpus, cluster.domains

    rows = np.recarray(len(domains), dtype=DOMAIN_ROW)
    for k, d in enumerate(domains):
        law = draw_law(d.gpu)
        rows[k] = (
            gpus.index(d.gpu),
            d.devices,
            d.node_devices,
            d.gpu.memory_bytes,
            achieved.nvlink * d.gpu.nvlink_bytes_per_s,
            achieved.fabric * d.fabric_gbps * BYTES_PER_GBIT,
            d.fabric_latency_s,
            achieved.memory * d.gpu.bandwidth_bytes_per_s,
            d.gpu.idle_w,
            d.gpu.tdp_w,
            d.cap_w,
            law.p0_w,
            law.a_c,
            law.a_m,
            law.beta_c,
            law.beta_m,
            d.carbon_g_per_kwh / JOULES_PER_KWH,
        )
    return DomainArrays(
        rows=rows,
        peak_flops=np.array([[d.gpu.peak_flops.get(q, np.nan) for q in PRECISIONS] for d in domains]),
        price_usd_per_byte=cluster.wan.price_usd_per_gb / BYTES_PER_GB,
        caps_w=np.array([cap_levels_w(d.gpu, d.cap_w, cluster.cap_levels) for d in domains]),
    )


def power_arrays() -> PowerArrays:
    """Lay the fitted power laws out for the kernel."""
    law = load_constants("power")
    return PowerArrays(
        saturation=float(law["natural_draw"]["g"]),
        cap_reached=cap_reached(),
        cap_exponent=float(law["cap"]["k"]),
        precision_factor=np.array([precision_factor(q) for q in PRECISIONS]),
    )


def _slowdowns(given: FloatArray | None, batch: PlanBatch) -> FloatArray:
    """Broadcast slow-downs to ``(n_plans, P)`` and refuse what is not a positive number."""
    shape = batch.segments.shape[:2]
    if given is None:
        return np.ones(shape)
    values = np.asarray(given, dtype=np.float64)
    try:
        values = np.array(np.broadcast_to(values, shape), order="C")
    except ValueError as error:
        rule = f"must broadcast to (plans, segments) = {shape}"
        raise PlanError(problem("slowdown.shape", values.shape, rule, "Give one factor per segment")) from error
    used = np.arange(shape[1]) < batch.counts[:, None]
    wrong = used & ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise PlanError(problem(f"slowdown{list(at)}", float(values[at]), "must be finite and > 0", "Use 1 for none"))
    return values


def _factors(given: tuple[float, float, float] | FloatArray, n: int) -> FloatArray:
    """Bring demand multipliers to ``(n or 1, 3)``; refuse what is not a positive number."""
    values = np.array(given, dtype=np.float64, ndmin=2)
    if values.shape not in ((1, 3), (n, 3)):
        fix = "Give compute, memory and host"
        raise PlanError(problem("factors.shape", np.shape(given), f"must be (3,) or ({n}, 3)", fix))
    if not (np.isfinite(values) & (values > 0)).all():
        wrong = float(values[~(np.isfinite(values) & (values > 0))][0])
        raise PlanError(problem("factors", wrong, "must be finite and > 0", "Use 1 for a nominal task"))
    return values


def _links(name: str, given: FloatArray | None, base: FloatArray, n: int, k: int, *, positive: bool) -> FloatArray:
    """Bring link figures to ``(n or 1, k, k)``; refuse NaN, negative and (for bandwidth) zero off-diagonal."""
    values = np.asarray(base if given is None else given, dtype=np.float64)
    if values.shape not in ((k, k), (n, k, k)):
        raise NetworkError(
            problem(f"{name}.shape", values.shape, f"must be ({k}, {k}) or ({n}, {k}, {k})", "Reshape it")
        )
    off = ~np.eye(k, dtype=bool)
    wrong = ~np.isfinite(values) | (values < 0) | ((values == 0) & off if positive else False)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        rule = "must be finite and " + ("> 0 between domains" if positive else ">= 0")
        raise NetworkError(problem(f"{name}{list(at)}", float(values[at]), rule, "Mend the link figures"))
    # A fresh array: a read-only view would be another type to the compiler.
    return np.array(values.reshape(-1, k, k), order="C")


def moved_bytes(kind: TaskKind, old: Plan, new: Plan, domains: int) -> FloatArray:
    """Bytes of a task's state that go from domain to domain when its plan changes, shape ``(K, K)``.

    A copy comes from the first domain that has it.

    Args:
        kind: The task.
        old: Plan in force.
        new: Plan to come.
        domains: K.
    """
    moved = np.zeros((domains, domains))
    params = kind.model.stateful_params(kind.training)
    for target in new.segments:
        each = state_bytes_per_parameter(float(target.precision.element_bytes), kind.training, 0, 1.0)
        for layer in range(target.first, target.stop):
            holders = [s.domain for s in old.segments if s.first <= layer < s.stop]
            if target.domain not in holders:
                moved[holders[0], target.domain] += params[layer] * each
    return moved


def move_cost(moved: FloatArray, bytes_per_s: FloatArray, usd_per_byte: FloatArray) -> tuple[float, float]:
    """Seconds and dollars of sending bytes from domain to domain; different links send side by side.

    Args:
        moved: Bytes, shape ``(K, K)``, as :func:`moved_bytes` counts them.
        bytes_per_s: WAN bandwidth now, shape ``(K, K)``.
        usd_per_byte: Egress price, shape ``(K, K)``.
    """
    sent = moved > 0.0
    return float((moved[sent] / bytes_per_s[sent]).max(initial=0.0)), float((moved * usd_per_byte)[sent].sum())


def joules_by_domain(cost: CostModel, batch: PlanBatch, priced: PlanCosts) -> FloatArray:
    """Energy of one step in each domain, as :attr:`PlanCosts.energy_j` counts it, shape ``(n_plans, K)``."""
    found = np.zeros((len(batch.counts), len(cost.cluster)))
    idle_w = np.asarray(cost.domains.rows["idle_w"])
    rows = np.arange(len(found))
    for at in range(batch.segments.shape[1]):
        segment, used = batch.segments[:, at], at < batch.counts
        domain = np.where(used, segment[:, DOMAIN], 0)
        devices = used * segment[:, DP] * segment[:, TP] * segment[:, PP]
        above_w = priced.segment("power_w")[:, at] - idle_w[domain]
        joules = devices * (idle_w[domain] * priced.step_s + above_w * priced.segment("busy_s")[:, at])
        np.add.at(found, (rows, domain), np.where(used, joules, 0.0))
    return found
