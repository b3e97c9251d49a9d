"""What fits where: how many layers a segment can hold, tabulated on demand, and how fast whole models run.

Plans are written from the last layer backwards. Under 1F1B a stage keeps as many microbatches in flight as there are
stages from it to the end, so going backwards the memory of a segment depends on nothing that is still open, and
"which layers can this domain hold, given what comes after" is a table look-up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import (
    CostModel,
    DomainArrays,
    PowerArrays,
    RuntimeArrays,
    Workload,
    gradient_reduce_s,
    split_stages,
    stage_cost,
    tp_index,
)
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.memory import activation_share, in_flight, state_bytes_per_parameter
from attribution_sched.cluster.plan import MAX_PP, layout_table
from attribution_sched.cluster.world import BATCH_LEVELS, TaskKind
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.segment_table import hardware_classes
from attribution_sched.types import BoolArray, FloatArray, IntArray

STAGE_CHOICES = 4
"""Pipeline stages inside a domain are 1, 2, 4 or 8."""

FORMATS = 4


@by_reference
class PlannerTables(NamedTuple):
    """A cluster and its kinds of tasks, ready for the compiled planner.

    C hardware classes, L layouts, R room sizes (powers of two), S stages that may come after a segment.

    Attributes:
        domains: The cluster.
        runtime: Framework behaviour.
        power_law: Constants of the power laws.
        cost: Layer cost tables; model m is kind m.
        batch: Samples per step of every kind, shape ``(n_kinds,)``.
        training: Whether a kind is trained, shape ``(n_kinds,)``.
        micro: Microbatch sizes, shape ``(n_kinds, 4)``.
        base_step_s: Step time of every kind's baseline, shape ``(n_kinds,)``.
        base_cost_usd: Cost of a step of every kind's baseline, shape ``(n_kinds,)``.
        layouts: Shape ``(L, 3)``: dp, tp, pp.
        sizes: Devices of every layout, shape ``(L,)``.
        domain_class: Hardware class of every domain, shape ``(K,)``.
        class_domain: One domain of every class, shape ``(C,)``.
        formats: Formats worth using, shape ``(n_kinds, C, 4)``.
        whole_s: Seconds per step of a whole model in one domain, shape ``(n_kinds, C, L, 4 formats, 4 levels)``;
            infinite where the format or the microbatch does not go with it.
        whole_use: Share of that time that its devices compute, same shape.
        reach: First layer a segment can begin with, shape ``(n_kinds, C, S, N + 1, L, 4, 4)`` over stages after it and
            one past its last layer; equal to the latter where it holds nothing. Filled on demand.
        best: The same over all layouts of at most 2^r devices, shape ``(n_kinds, C, S, N + 1, R, 4 levels, 4)``, the
            last axis being log2 of the pipeline stages.
        filled: Which columns of the two are filled, shape ``(n_kinds, C, S, N + 1)``.
        max_segments: Most segments of a plan.
    """

    domains: DomainArrays
    runtime: RuntimeArrays
    power_law: PowerArrays
    cost: CostTables
    batch: FloatArray
    training: BoolArray
    micro: IntArray
    base_step_s: FloatArray
    base_cost_usd: FloatArray
    layouts: IntArray
    sizes: IntArray
    domain_class: IntArray
    class_domain: IntArray
    formats: BoolArray
    whole_s: FloatArray
    whole_use: FloatArray
    reach: NDArray[np.int16]
    best: NDArray[np.int16]
    filled: BoolArray
    max_segments: int


def make_tables(
    cost: CostModel, kinds: tuple[TaskKind, ...], base_step_s: FloatArray, base_cost_usd: FloatArray, max_segments: int
) -> PlannerTables:
    """Lay out the tables of a cluster; what fits is filled in when it is first asked for."""
    layouts = layout_table(cost.cluster, sharing=False)[:, :3]
    classes, representatives = hardware_classes(cost)
    n, c, s = len(kinds), len(representatives), (max_segments - 1) * MAX_PP + 1
    width = int(cost.tables.n_layers.max()) + 1
    rooms = int(np.log2(max(domain.devices for domain in cost.cluster.domains))) + 1
    tables = PlannerTables(
        domains=cost.domains,
        runtime=cost.runtime,
        power_law=cost.power_law,
        cost=cost.tables,
        batch=np.array([float(kind.batch_size) for kind in kinds]),
        training=np.array([kind.training for kind in kinds]),
        micro=np.array([kind.microbatches for kind in kinds], dtype=np.int64),
        base_step_s=np.asarray(base_step_s, dtype=np.float64),
        base_cost_usd=np.asarray(base_cost_usd, dtype=np.float64),
        layouts=np.ascontiguousarray(layouts),
        sizes=layouts.prod(axis=1),
        domain_class=classes,
        class_domain=representatives,
        formats=_formats(cost, kinds, representatives),
        whole_s=np.full((n, c, len(layouts), FORMATS, BATCH_LEVELS), np.inf),
        whole_use=np.zeros((n, c, len(layouts), FORMATS, BATCH_LEVELS)),
        # Pages of zeros cost nothing until they are written to.
        reach=np.zeros((n, c, s, width, len(layouts), FORMATS, BATCH_LEVELS), dtype=np.int16),
        best=np.zeros((n, c, s, width, rooms, BATCH_LEVELS, STAGE_CHOICES), dtype=np.int16),
        filled=np.zeros((n, c, s, width), dtype=np.bool_),
        max_segments=max_segments,
    )
    _fill_whole(tables)
    return tables


def _formats(cost: CostModel, kinds: tuple[TaskKind, ...], representatives: IntArray) -> BoolArray:
    """Every format the hardware has; INT8 is for inference, and of two equal 16-bit formats one is enough."""
    known = cost.domains.peak_flops[representatives] > 0.0
    allowed = np.repeat(known[None], len(kinds), axis=0)
    bf16, fp16, int8 = (q.index for q in (Precision.BF16, Precision.FP16, Precision.INT8))
    for k, kind in enumerate(kinds):
        if kind.training:
            allowed[k, :, int8] = False
            allowed[k, :, fp16] &= ~allowed[k, :, bf16]
    return allowed


@kernel
def whole_step(t: PlannerTables, workload: Workload, c: int, lay: int, q: int, v: int) -> tuple[float, float]:
    """Seconds of a step of a whole model inside one domain, and the share of it in which its devices compute.

    Passes of the microbatches, bubble, update and gradient exchange.
    """
    kind, domain = workload.model, t.class_domain[c]
    n, micro = t.cost.n_layers[kind], t.micro[kind, v]
    dp, tp, pp = t.layouts[lay]
    cost = stage_cost(t.domains, t.runtime, t.power_law, t.cost, workload, domain, 0, n, dp, tp, q, 0, micro, 1.0)
    count = t.batch[kind] / micro
    reductions = (3.0 if t.runtime.recompute else 2.0) if t.training[kind] else 1.0
    passes = cost.forward_s + cost.backward_s + reductions * cost.reduce_s
    whole = passes / pp * (count + pp - 1.0) + cost.update_s / pp
    if t.training[kind]:
        whole += gradient_reduce_s(t.domains, t.runtime, t.cost, kind, domain, 0, n, dp, tp, q, int(count)) / pp
    return float(whole), float(count * (cost.forward_s + cost.backward_s) / pp / whole)


@kernel
def _fill_whole(t: PlannerTables) -> None:
    """Estimate whole models inside one domain."""
    for kind in range(t.batch.size):
        n = t.cost.n_layers[kind]
        workload = Workload(kind, t.training[kind], 1.0, 1.0, 1.0)
        for c in range(t.class_domain.size):
            domain = t.class_domain[c]
            for lay in range(t.sizes.size):
                dp, tp, pp = t.layouts[lay]
                if tp > t.domains.rows[domain].node_devices or pp > n:
                    continue
                for q in range(FORMATS):
                    if not t.formats[kind, c, q]:
                        continue
                    for v in range(BATCH_LEVELS):
                        micro = t.micro[kind, v]
                        if micro % dp != 0:
                            continue
                        whole, use = whole_step(t, workload, c, lay, q, v)
                        t.whole_s[kind, c, lay, q, v], t.whole_use[kind, c, lay, q, v] = whole, use


class MemoryNeeds(NamedTuple):
    """What the memory of a layout's stages depends on beside their layers.

    Attributes:
        stages: Pipeline stages of the layout.
        tp: Tensor-parallel ranks.
        states: Bytes of weights, gradients and optimiser per parameter.
        reserved: Bytes that are always taken.
        activation: Bytes per activation of a microbatch.
        share: Part of a sharded layer's activations that a rank keeps.
        microbatches: Of a step.
        most: Bytes of a device.
    """

    stages: int
    tp: float
    states: float
    reserved: float
    activation: float
    share: float
    microbatches: int
    most: float


@kernel
def _needs(t: PlannerTables, kind: int, c: int, lay: int, q: int, v: int) -> MemoryNeeds:
    dp, tp, pp = t.layouts[lay]
    element = 4.0 if q == 0 else (1.0 if q == 3 else 2.0)
    micro = t.micro[kind, v]
    states = state_bytes_per_parameter(element, t.training[kind], t.runtime.zero_stage, float(dp))
    return MemoryNeeds(
        stages=pp,
        tp=float(tp),
        states=states,
        reserved=t.runtime.reserved_bytes,
        activation=max(element, 2.0) * (micro / dp),
        share=activation_share(float(tp), t.runtime.sequence_parallel),
        microbatches=int(t.batch[kind]) // micro,
        most=float(t.domains.rows[t.class_domain[c]].memory_bytes),
    )


@kernel
def _has_memory(
    sizes: FloatArray, runtime: RuntimeArrays, training: bool, peak: float, needs: MemoryNeeds, after: int,
    cuts: IntArray, at: int,
) -> bool:  # fmt: skip
    """Whether every stage between the cuts in row ``at`` has memory, with ``after`` stages behind the last.

    The memory of :func:`~attribution_sched.cluster.cost.stage_cost`, which a table asks for thousands of
    times, without the times and draws that go with it.
    """
    for stage in range(needs.stages):
        a, z = cuts[at, stage], cuts[at, stage + 1]
        params = (sizes[0, z] - sizes[0, a]) / needs.tp + sizes[1, z] - sizes[1, a]
        fixed = params * needs.states + needs.reserved
        held = 0.0
        if not training:
            fixed += needs.activation * peak
            held = needs.activation * (sizes[10, z] - sizes[10, a]) / needs.tp
        elif runtime.recompute:
            inputs = sizes[5, z] - sizes[5, a]
            if runtime.sequence_parallel:
                inputs /= needs.tp
            fixed += needs.activation * peak
            held = needs.activation * inputs
        else:
            kept = (sizes[2, z] - sizes[2, a]) * needs.share + sizes[3, z] - sizes[3, a]
            kept += (sizes[9, z] - sizes[9, a]) / needs.tp
            if not runtime.flash_attention:
                kept += (sizes[4, z] - sizes[4, a]) / needs.tp
            held = needs.activation * kept
        if fixed + in_flight(0, needs.stages + after, stage, needs.microbatches) * held > needs.most:
            return False
    return True


@kernel
def holds(
    t: PlannerTables, kind: int, c: int, lay: int, q: int, v: int, first: int, stop: int, after: int, cuts: IntArray
) -> bool:
    """Whether devices of class ``c`` have memory for layers ``[first, stop)`` with ``after`` stages behind them."""
    tpi, pp = tp_index(t.layouts[lay, 1]), t.layouts[lay, 2]
    if pp > stop - first:
        return False
    split_stages(t.cost.times_s[kind, t.domains.rows[t.class_domain[c]].gpu, q, tpi, 0], first, stop, pp, 0, cuts)
    needs, peak = _needs(t, kind, c, lay, q, v), t.cost.peak_layer[kind, tpi]
    rows = cuts.reshape((1, cuts.size))
    return bool(_has_memory(t.cost.sizes[kind], t.runtime, t.training[kind], peak, needs, after, rows, 0))


@kernel(allocates=True)
def fill(t: PlannerTables, kind: int, c: int, after: int, stop: int) -> None:
    """Write how far back a segment that ends at ``stop`` can begin, for every layout, format and microbatch."""
    if t.filled[kind, c, after, stop]:
        return
    best, reach = t.best[kind, c, after, stop], t.reach[kind, c, after, stop]
    best[:] = stop
    reach[:] = stop
    sizes, gpu, training = t.cost.sizes[kind], t.domains.rows[t.class_domain[c]].gpu, t.training[kind]
    cuts, cut_for = np.zeros((stop, MAX_PP + 1), dtype=np.int64), np.full(stop, -1, dtype=np.int64)
    for q in range(FORMATS):
        if not t.formats[kind, c, q]:
            continue
        for lay in range(t.sizes.size):
            tp, pp = t.layouts[lay, 1], t.layouts[lay, 2]
            if pp > stop:
                continue
            tpi, depth, room = tp_index(tp), 0, 0
            while 2**depth < pp:
                depth += 1
            while 2**room < t.sizes[lay]:
                room += 1
            prefix, peak = t.cost.times_s[kind, gpu, q, tpi, 0], t.cost.peak_layer[kind, tpi]
            # Layouts of as many stages and tensor ranks stand together in the table and are cut alike.
            mark = (q * STAGE_CHOICES + depth) * STAGE_CHOICES + tpi
            for v in range(BATCH_LEVELS):
                if not np.isfinite(t.whole_s[kind, c, lay, q, v]):
                    continue
                needs = _needs(t, kind, c, lay, q, v)
                low, high, first = -1, stop - pp, stop - pp
                while low < high:
                    if cut_for[first] != mark:
                        split_stages(prefix, first, stop, pp, 0, cuts[first])
                        cut_for[first] = mark
                    if _has_memory(sizes, t.runtime, training, peak, needs, after, cuts, first):
                        low, high = max(0, low), first
                    elif low < 0:
                        break
                    else:
                        low = first + 1
                    first = (low + high) // 2
                if low < 0:
                    continue
                reach[lay, q, v] = low
                for r in range(room, best.shape[0]):
                    best[r, v, depth] = min(best[r, v, depth], low)
    t.filled[kind, c, after, stop] = True
