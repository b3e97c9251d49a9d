"""The best of many plans, found without pricing most of them.

A plan that is not well formed or overflows memory is out. For the others a lower bound on the step time, from the same
stage times as the cost model's, gives an upper bound on the reward; plans are priced in order of that bound, best
first, until it is no better than what was found. What comes out is what pricing all of them would give.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.cost_kernel import (
    BILL_USD,
    CARBON_G,
    ENERGY_J,
    PLAN_COLUMNS,
    SEGMENT_COLUMNS,
    STEP_S,
    UTILISATION,
    DomainArrays,
    PowerArrays,
    RuntimeArrays,
    Scratch,
    Workload,
    make_scratch,
    plan_cost,
    share_batch,
    split_stages,
    tp_index,
)
from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MAX_PP,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
)
from attribution_sched.cluster.reward import (
    cost_usd_kernel,
    r_cost_kernel,
    r_eff_kernel,
    step_at_kernel,
    total_kernel,
    usd_per_g,
    usd_per_j,
)
from attribution_sched.cluster.validity import VALID, segment_fault
from attribution_sched.kernels import kernel
from attribution_sched.planning.local_search import LEAST_GAIN
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.planning.segment_table import (
    BACKWARD_S,
    END_S,
    FIXED_BYTES,
    FORWARD_S,
    HELD_BYTES,
    STAGE_COLUMNS,
    write_stage,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ROUNDING = 1e-9
"""Share by which a bound is loosened: it adds the same times up in another order than the recurrence does."""


MEMORY_BITS = 15
"""Stages remembered are 2 to the power of this; one that falls on another's place takes it."""

MIX, MASK = 0x1E3779B97F4A7C15, 2**63 - 1
"""Spread keys over places (Fibonacci hashing)."""


class StageMemory(NamedTuple):
    """Stages that were priced before.

    Attributes:
        keys: Which stage a place holds, shape ``(2^b,)``; 0 for none.
        stages: Its times and memory, shape ``(2^b, 6)``, columns ``STAGE_COLUMNS``.
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
    memory.keys[slot] = key
    write_stage(
        k.domains, k.runtime, k.power_law, k.tables, k.workload, row[DOMAIN], a, z, row[DP], row[TP], row[PRECISION],
        row[MICROBATCH], 0, memory.stages[slot],
    )  # fmt: skip


class Screen:
    """Finds the best of many plans of one decision.

    Args:
        view: The decision; its reward is what counts.
        tables: The cluster.
        kind: Kind of task to place.
        free_devices: Devices that may be used, shape ``(K,)``.
        queue_pressure: What holding a device costs others, as a share of the time it is held.
    """

    def __init__(
        self, view: DecisionView, tables: PlannerTables, kind: int, free_devices: IntArray, queue_pressure: float = 0.0
    ) -> None:
        cost, reward = view.cost, view.reward
        base_s = float(view.base_step_s[kind])
        self.judge = PlanJudge(
            domains=cost.domains,
            runtime=cost.runtime,
            power_law=cost.power_law,
            tables=cost.tables,
            workload=cost.workload(kind),
            bandwidth=BYTES_PER_GBIT * np.array(view.bandwidth_gbps, dtype=np.float64),
            latency_s=np.array(view.latency_s, dtype=np.float64),
            free_devices=np.array(free_devices, dtype=np.int64),
            formats=np.ascontiguousarray(tables.formats[kind][tables.domain_class]),
            batch=float(view.kinds[kind].batch_size),
            base_s=base_s,
            per_device_second=float(reward.w_eff * queue_pressure / base_s),
            w_eff=float(reward.w_eff),
            w_util=float(reward.w_util),
            w_cost=float(reward.w_cost),
            base_usd=float(view.base_cost_usd[kind]),
            usd_per_j=float(usd_per_j(reward)),
            usd_per_g=float(usd_per_g(reward)),
        )
        self.scratch = make_scratch(view.max_segments * MAX_PP, int(view.kinds[kind].batch_size))
        places = 2**MEMORY_BITS
        self.memory = StageMemory(np.zeros(places, dtype=np.int64), np.zeros((places, len(STAGE_COLUMNS))))
        self.seen = self.priced = 0

    def best(
        self, rows: IntArray, counts: IntArray, owner: IntArray, reached: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Find the best plan of every owner.

        Args:
            rows: Plans, shape ``(n, P, 10)``; the number of microbatches is written into those that may be the best.
            counts: Rows in use, shape ``(n,)``.
            owner: Whose plan each is, in order, shape ``(n,)``.
            reached: Reward that every owner has already, shape ``(n_owners,)``.

        Returns:
            Index of the best plan of every owner, −1 where none is better than what it has, and its reward.
        """
        self.seen += len(rows)
        edges = np.searchsorted(owner, np.arange(len(reached) + 1))
        at = np.full(len(reached), -1, dtype=np.int64)
        best = np.array(reached, dtype=np.float64)
        # One layout: a kernel for rows with gaps between them would be compiled beside the one for rows without.
        packed = np.ascontiguousarray(rows)
        self.priced += _best(self.judge, self.scratch, self.memory, packed, counts, edges, at, best)
        if packed is not rows:
            rows[...] = packed
        return at, best

    def recut(self, rows: IntArray, counts: IntArray) -> None:
        """Cut the layers anew between the segments of each plan, in place: the slowest stage is as fast as can be.

        A plan whose segments cannot hold the model stays as it is.
        """
        self.seen += len(rows)
        packed = np.ascontiguousarray(rows)
        _recut(self.judge, self.scratch.layers[0], self.memory, packed, counts)
        if packed is not rows:
            rows[...] = packed


@kernel(allocates=True)
def _best(
    k: PlanJudge,
    scratch: Scratch,
    memory: StageMemory,
    rows: IntArray,
    counts: IntArray,
    edges: IntArray,
    at: IntArray,
    best: FloatArray,
) -> int:
    """Write index and reward of the best plan of each owner; returns how many plans were priced."""
    # Each pass is a loop of its own: handing all these arrays to a function costs more than the work on a plan.
    samples = _shared(k, rows, counts)
    longest_s = np.full(counts.size, np.inf)
    if k.w_eff > 0.0:
        for o in range(best.size):
            for p in range(edges[o], edges[o + 1]):
                # Were its devices always busy and free of charge, this step time would do.
                worth_s = step_at_kernel((best[o] - max(0.0, k.w_util)) / k.w_eff, k.base_s)
                longest_s[p] = worth_s * samples[p] / k.batch * (1.0 + ROUNDING)
    bound = _bounds(k, scratch.layers[0], memory, rows, counts, samples, longest_s)
    priced = 0
    for o in range(best.size):
        own = bound[edges[o] : edges[o + 1]]
        while own.size:
            following = np.argmax(own)
            if not own[following] > best[o] + LEAST_GAIN:
                break
            own[following] = -np.inf
            p = edges[o] + following
            reward = _reward(k, scratch, rows[p], counts[p], samples[p])
            priced += 1
            if reward > best[o] + LEAST_GAIN:
                at[o], best[o] = p, reward
    return priced


@kernel(allocates=True)
def _shared(k: PlanJudge, rows: IntArray, counts: IntArray) -> FloatArray:
    """Let replicas share the batch as the cluster does; samples of a step, 0 for a plan that is not well formed."""
    samples = np.zeros(counts.size)
    for n in range(counts.size):
        count, sound = counts[n], True
        for p in range(count):
            row, domain = rows[n, p], rows[n, p, DOMAIN]
            fault = segment_fault(
                row[STOP] - row[FIRST], row[DP], row[TP], row[PP], row[MICROBATCH], k.free_devices[domain],
                k.domains.rows[domain].node_devices, k.formats[domain, row[PRECISION]], True,
            )  # fmt: skip
            sound &= fault == VALID
        if not sound:
            continue
        if rows[n, count - 1, REPLICA] == 0:
            number = max(1, round(k.batch / rows[n, 0, MICROBATCH]))
            for p in range(count):
                rows[n, p, MICROBATCHES] = number
        else:
            replicas = rows[n, count - 1, REPLICA] + 1
            share_batch(k.tables, k.domains, k.workload.model, k.batch, rows[n], count, replicas)
        for p in range(count):
            if p == 0 or rows[n, p, REPLICA] != rows[n, p - 1, REPLICA]:
                samples[n] += rows[n, p, MICROBATCH] * rows[n, p, MICROBATCHES]
    return samples


@kernel
def _devices(rows: IntArray, count: int) -> int:
    devices = 0
    for p in range(count):
        devices += rows[p, DP] * rows[p, TP] * rows[p, PP]
    return devices


@kernel(allocates=True)
def _bounds(
    k: PlanJudge,
    cuts: IntArray,
    memory: StageMemory,
    rows: IntArray,
    counts: IntArray,
    samples: FloatArray,
    longest_s: FloatArray,
) -> FloatArray:
    """At most what each plan is worth; −∞ if it does not fit or its step takes longer than ``longest_s``.

    A replica is walked through from its last stage to its first; the bounds are those of ``exact/bounds.py``.
    """
    training, model, times, links = k.workload.training, k.workload.model, k.tables.times_s, k.bandwidth
    found = np.full(counts.size, -np.inf)
    for n in range(counts.size):
        least_s, busy_s, out = 0.0, 0.0, samples[n] == 0.0
        tail_s, round_s, forward_s, there_s, after = 0.0, 0.0, 0.0, 0.0, 0
        for p in range(counts[n] - 1, -1, -1):
            if out:
                break
            domain, first, stop = rows[n, p, DOMAIN], rows[n, p, FIRST], rows[n, p, STOP]
            dp, tp, pp, precision = rows[n, p, DP], rows[n, p, TP], rows[n, p, PP], rows[n, p, PRECISION]
            micro, m = rows[n, p, MICROBATCH], rows[n, p, MICROBATCHES]
            here = k.domains.rows[domain]
            cuts[0], cuts[1] = first, stop
            if pp > 1:
                split_stages(times[model, here.gpu, precision, tp_index(tp), 0], first, stop, pp, 0, cuts)
            for part in range(pp - 1, -1, -1):
                a, z = cuts[part], cuts[part + 1]
                slot, key = place_of(domain, a, z, dp, tp, precision, micro)
                if memory.keys[slot] != key:
                    remember(k, memory, slot, key, rows[n, p], a, z)
                stage = memory.stages
                there, back = 0.0, 0.0
                if after > 0:
                    volume = micro * (4.0 if precision == 0 else 2.0) * k.tables.boundary[model, z]
                    if part + 1 < pp:
                        there = here.fabric_latency_s + volume / dp / here.fabric_bytes_per_s
                        back = there
                    else:
                        other = rows[n, p + 1, DOMAIN]
                        there = k.latency_s[domain, other] + volume / links[domain, other]
                        back = k.latency_s[other, domain] + volume / links[other, domain]
                    if not training:
                        back = 0.0
                forward, backward = stage[slot, FORWARD_S], stage[slot, BACKWARD_S]
                wait, work = there + round_s + back, forward + backward
                ahead = min(m, after + 1) if training else m
                opening = max(0.0, wait - (ahead - 1) * forward)
                closing = max(0.0, wait - (ahead - 1) * backward)
                bound = m * work + (opening + closing if training and m - 1 >= ahead else max(opening, closing))
                if training:
                    bound = max(bound, np.ceil(m / ahead) * (work + wait))
                if after > 0:
                    bound = max(bound, work + wait + (m - 1) * max(there, back))
                    bound = max(bound, work + there + back + tail_s)
                    # The interface of the stage behind sends both ways, one message at a time.
                    bound = max(bound, work + there + forward_s + m * (there_s + back))
                held = stage[slot, FIXED_BYTES] + min(m, after + 1) * stage[slot, HELD_BYTES]
                out |= held > here.memory_bytes or bound > longest_s[n]
                tail_s, round_s, forward_s, there_s = bound, work + wait, forward, there
                after += 1
                busy_s += m * work / pp
                if p == 0 or rows[n, p - 1, REPLICA] != rows[n, p, REPLICA]:
                    least_s = max(least_s, tail_s + (stage[slot, END_S] if part == 0 else 0.0))
            if p > 0 and rows[n, p - 1, REPLICA] != rows[n, p, REPLICA]:
                tail_s, round_s, forward_s, there_s, after = 0.0, 0.0, 0.0, 0.0, 0
        if not out:
            least_s *= 1.0 - ROUNDING
            utilisation = min(1.0, busy_s / (counts[n] * least_s))
            least_s *= k.batch / samples[n]
            found[n] = total_kernel(r_eff_kernel(least_s, k.base_s), utilisation, 0.0, k.w_eff, max(0.0, k.w_util), 0.0)
            found[n] -= k.per_device_second * _devices(rows[n], counts[n]) * least_s
    return found


@kernel(allocates=True)
def _recut(k: PlanJudge, cuts: IntArray, memory: StageMemory, rows: IntArray, counts: IntArray) -> None:
    """Dynamic program over segments and layers: least time of the slowest stage, then least time of all."""
    model = k.workload.model
    layers, times = k.tables.n_layers[model], k.tables.times_s
    slowest, total = np.empty((rows.shape[1] + 1, layers + 1)), np.empty((rows.shape[1] + 1, layers + 1))
    before = np.zeros((rows.shape[1] + 1, layers + 1), dtype=np.int64)
    samples = _shared(k, rows, counts)
    for n in range(counts.size):
        begin = 0
        while begin < counts[n]:
            stop = begin
            after = 0
            while stop < counts[n] and rows[n, stop, REPLICA] == rows[n, begin, REPLICA]:
                after += rows[n, stop, PP]
                stop += 1
            slowest[begin : stop + 1], total[begin : stop + 1] = np.inf, np.inf
            slowest[begin, 0], total[begin, 0] = 0.0, 0.0
            for p in range(begin, stop):
                domain, dp, tp = rows[n, p, DOMAIN], rows[n, p, DP], rows[n, p, TP]
                pp, precision = rows[n, p, PP], rows[n, p, PRECISION]
                micro, m = rows[n, p, MICROBATCH], rows[n, p, MICROBATCHES]
                here = k.domains.rows[domain]
                after -= pp
                ends = range(layers, layers + 1) if p == stop - 1 else range(1, layers + 1)
                for z in ends:
                    # A longer segment needs more memory: the first that overflows is the last to look at.
                    for a in range(z - pp, -1, -1):
                        if slowest[p, a] == np.inf:
                            continue
                        cuts[0], cuts[1] = a, z
                        if pp > 1:
                            split_stages(times[model, here.gpu, precision, tp_index(tp), 0], a, z, pp, 0, cuts)
                        worst, work, fits = slowest[p, a], total[p, a], True
                        for part in range(pp):
                            slot, key = place_of(domain, cuts[part], cuts[part + 1], dp, tp, precision, micro)
                            if memory.keys[slot] != key:
                                remember(k, memory, slot, key, rows[n, p], cuts[part], cuts[part + 1])
                            stage = memory.stages
                            held = min(m, after + pp - part) * stage[slot, HELD_BYTES]
                            fits &= stage[slot, FIXED_BYTES] + held <= here.memory_bytes
                            passes = stage[slot, FORWARD_S] + stage[slot, BACKWARD_S]
                            worst, work = max(worst, passes), work + passes
                        if not fits:
                            break
                        if (worst, work) < (slowest[p + 1, z], total[p + 1, z]):
                            slowest[p + 1, z], total[p + 1, z], before[p + 1, z] = worst, work, a
            if samples[n] > 0.0 and slowest[stop, layers] < np.inf:
                z = layers
                for p in range(stop - 1, begin - 1, -1):
                    rows[n, p, STOP] = z
                    z = before[p + 1, z]
                    rows[n, p, FIRST] = z
            begin = stop


@kernel(allocates=True)
def _reward(k: PlanJudge, scratch: Scratch, rows: IntArray, count: int, samples: float) -> float:
    """What a plan that fits is worth: ``reward.worth`` for one plan."""
    plan_out, segment_out = np.zeros(len(PLAN_COLUMNS)), np.zeros((count, len(SEGMENT_COLUMNS)))
    traffic = np.zeros(k.bandwidth.shape)
    plan_cost(
        k.domains, k.runtime, k.power_law, k.tables, k.workload, k.bandwidth, k.latency_s, rows, count, 0,
        np.ones(count), False, scratch, plan_out, segment_out, traffic,
    )  # fmt: skip
    norm = k.batch / samples
    step_s = plan_out[STEP_S] * norm
    dollars = norm * cost_usd_kernel(
        plan_out[BILL_USD], plan_out[ENERGY_J], plan_out[CARBON_G], k.usd_per_j, k.usd_per_g
    )
    eff, cost = r_eff_kernel(step_s, k.base_s), r_cost_kernel(dollars, k.base_usd)
    reward = total_kernel(eff, plan_out[UTILISATION], cost, k.w_eff, k.w_util, k.w_cost)
    return float(reward - k.per_device_second * _devices(rows, count) * step_s)
