"""What fits where: how many layers a segment can hold, tabulated on demand, and how fast whole models run.

Plans are written from the last layer backwards. Under 1F1B a stage keeps as many microbatches in flight as there are
stages from it to the end, so going backwards the memory of a segment depends on nothing that is still open, and
"which layers can this domain hold, given what comes after" is a table look-up.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.cost_arrays import DOMAIN_ROW, DomainArrays, PowerArrays, RuntimeArrays, Workload
from attribution_sched.cluster.layouts import layout_table
from attribution_sched.cluster.memory import in_flight
from attribution_sched.cluster.precision import Precision
from attribution_sched.cluster.stage_kernel import gradient_reduce_s, split_stages, stage_cost, tp_index
from attribution_sched.cluster.world import BATCH_LEVELS, TaskKind

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MAX_PP = 8
"""Most pipeline stages inside a domain."""

STAGE_CHOICES = 4
"""Pipeline stages inside a domain are 1, 2, 4 or 8."""

FORMATS = 4


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
    layouts = layout_table(cost.cluster, False, MAX_PP)[:, :3]
    classes, representatives = _hardware_classes(cost)
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


def _hardware_classes(cost: CostModel) -> tuple[IntArray, IntArray]:
    """Class of each domain (equal hardware) and one domain of each class."""
    rows = cost.domains.rows
    names = [name for name in DOMAIN_ROW.names or () if name not in ("devices", "carbon_g_per_j")]
    told = np.column_stack([np.asarray(rows[name], dtype=np.float64) for name in names])
    _, first, inverse = np.unique(told, axis=0, return_index=True, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64), first.astype(np.int64)


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


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _fill_whole(t: PlannerTables) -> None:
    """Estimate whole models inside one domain: passes of the microbatches, bubble, update and gradient exchange."""
    for kind in range(t.batch.size):
        n = t.cost.n_layers[kind]
        workload = Workload(kind, t.training[kind], 1.0, 1.0, 1.0)
        reductions = (3.0 if t.runtime.recompute else 2.0) if t.training[kind] else 1.0
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
                        cost = stage_cost(
                            t.domains, t.runtime, t.power_law, t.cost, workload, domain, 0, n, dp, tp, q, micro, 1.0
                        )
                        count = t.batch[kind] / micro
                        passes = cost.forward_s + cost.backward_s + reductions * cost.reduce_s
                        whole = passes / pp * (count + pp - 1.0) + cost.update_s / pp
                        if t.training[kind]:
                            whole += (
                                gradient_reduce_s(
                                    t.domains, t.runtime, t.cost, kind, domain, 0, n, dp, tp, q, int(count)
                                )
                                / pp
                            )
                        t.whole_s[kind, c, lay, q, v] = whole
                        t.whole_use[kind, c, lay, q, v] = count * (cost.forward_s + cost.backward_s) / pp / whole


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def holds(
    t: PlannerTables, kind: int, c: int, lay: int, q: int, v: int, first: int, stop: int, after: int, cuts: IntArray
) -> bool:
    """Whether devices of class ``c`` have memory for layers ``[first, stop)`` with ``after`` stages behind them."""
    dp, tp, pp = t.layouts[lay]
    if pp > stop - first:
        return False
    domain = t.class_domain[c]
    workload = Workload(kind, t.training[kind], 1.0, 1.0, 1.0)
    micro = t.micro[kind, v]
    count = int(t.batch[kind]) // micro
    gpu = t.domains.rows[domain].gpu
    split_stages(t.cost.times_s[kind, gpu, q, tp_index(tp), 0], first, stop, pp, 0, cuts)
    for stage in range(pp):
        cost = stage_cost(
            t.domains, t.runtime, t.power_law, t.cost, workload, domain, cuts[stage], cuts[stage + 1], dp, tp, q,
            micro, 1.0,
        )  # fmt: skip
        held = in_flight(0, pp + after, stage, count)
        if cost.fixed_bytes + held * cost.held_bytes > t.domains.rows[domain].memory_bytes:
            return False
    return True


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def fill(t: PlannerTables, kind: int, c: int, after: int, stop: int) -> None:
    """Write how far back a segment that ends at ``stop`` can begin, for every layout, format and microbatch."""
    if t.filled[kind, c, after, stop]:
        return
    cuts = np.zeros(MAX_PP + 1, dtype=np.int64)
    t.best[kind, c, after, stop] = stop
    for lay in range(t.sizes.size):
        pp = t.layouts[lay, 2]
        depth = 0
        while 2**depth < pp:
            depth += 1
        room = 0
        while 2**room < t.sizes[lay]:
            room += 1
        for q in range(FORMATS):
            for v in range(BATCH_LEVELS):
                t.reach[kind, c, after, stop, lay, q, v] = stop
                if not np.isfinite(t.whole_s[kind, c, lay, q, v]) or pp > stop:
                    continue
                low, high = 0, stop - pp
                if not holds(t, kind, c, lay, q, v, high, stop, after, cuts):
                    continue
                while low < high:
                    middle = (low + high) // 2
                    if holds(t, kind, c, lay, q, v, middle, stop, after, cuts):
                        high = middle
                    else:
                        low = middle + 1
                t.reach[kind, c, after, stop, lay, q, v] = low
                for r in range(room, t.best.shape[4]):
                    if low < t.best[kind, c, after, stop, r, v, depth]:
                        t.best[kind, c, after, stop, r, v, depth] = low
    t.filled[kind, c, after, stop] = True
