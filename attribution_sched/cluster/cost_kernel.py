"""The compiled heart of the cost model: one plan in, its step time, memory, energy and bill out.

Pure scalar loops over arrays, so the same code scores ten thousand plans in one call and re-prices running
tasks inside the batched environment. ``cost.py`` is the friendly face.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.collectives import ring_sent_bytes
from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost_arrays import (
    BILL_USD,
    BUBBLE_S,
    BUSY_S,
    CARBON_G,
    COMM_S,
    COMPUTE_S,
    COMPUTE_SHARE,
    ENERGY_J,
    HOST_SHARE,
    INTRA_COMM_S,
    MEMORY_BYTES,
    MEMORY_RATIO,
    MEMORY_SHARE,
    POWER_W,
    SEGMENT_COMM_S,
    STEP_S,
    UTILISATION,
    DomainArrays,
    PowerArrays,
    RuntimeArrays,
    Scratch,
    Workload,
)
from attribution_sched.cluster.memory import in_flight
from attribution_sched.cluster.pipeline import pipeline_finish
from attribution_sched.cluster.plan import (
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
)
from attribution_sched.cluster.stage_kernel import gradient_reduce_s, split_stages, stage_cost, tp_index
from attribution_sched.kernels import kernel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@kernel
def _hardware_missing(domains: DomainArrays, tables: CostTables, model: int, segments: IntArray, count: int) -> bool:
    """Say whether some segment runs in a precision its device does not have: its times are NaN."""
    for r in range(count):
        row = segments[r]
        if np.isnan(tables.times_s[model, domains.rows[row[DOMAIN]].gpu, row[PRECISION], 0, 0, -1]):
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
        segments: The plan's rows, shape ``(P, 10)``.
        count: Rows in use.
        schedule: Pipeline schedule.
        slowdown: Compute slow-down of each segment from co-located tasks, shape ``(P,)``, ≥ 1.
        breakdown: Also compute the compute/communication/bubble split (runs the recurrence once more).
        scratch: Buffers.
        plan_out: Shape ``(10,)``, columns ``PLAN_COLUMNS``; infinite time, energy and memory ratio for a plan
            in a precision that its device has no hardware for.
        segment_out: Shape ``(P, 6)``, columns ``SEGMENT_COLUMNS``.
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
            prefix = tables.times_s[model, gpu, row[PRECISION], tp_index(row[TP]), 0]
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
                micro, slowdown[row_index],
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
            element = 4.0 if row[PRECISION] == 0 else 2.0
            volume = micro * element * tables.boundary[model, stage_first[s + 1]]
            i, j = row[DOMAIN], after[DOMAIN]
            if i == j:
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
        joules = n * (idle * step + (segment_out[row_index, POWER_W] - idle) * busy)
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
                if segments[r, PRECISION] == 0:
                    element = 4.0
        volume = element * (sizes[0, run_stop] - sizes[0, layer] + sizes[1, run_stop] - sizes[1, layer])
        sent = ring_sent_bytes(float(replicas), volume)
        slowest = 0.0
        for r in range(replicas):
            i = owner[r]
            j = owner[(r + 1) % replicas]
            traffic_out[i, j] += sent
            slowest = max(slowest, sent / bandwidth[i, j] + 2.0 * (replicas - 1) * latency[i, j])
        for r in range(replicas):
            busy[owner[r]] += slowest
        layer = run_stop
    return float(busy.max())
