"""What fits in one domain, tabulated once: layouts and formats, equal hardware, whole models, and what a stage takes.

A *layout* is (dp, tp, pp), an *option* a layout with a format: dp, tp, pp, precision. How many layers a segment can
hold in memory, given what comes behind it, is :mod:`attribution_sched.planning.memory_feasibility`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import (
    DOMAIN_ROW,
    CostModel,
    DomainArrays,
    PowerArrays,
    RuntimeArrays,
    Workload,
    gradient_reduce_s,
    stage_cost,
)
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import DOMAIN, SEGMENT_FIELDS, PlanBatch, layouts_within
from attribution_sched.cluster.validity import hardware_formats
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.instance import Instance, inside_precisions
from attribution_sched.types import BoolArray, FloatArray, IntArray

NOT_HARDWARE = ("devices", "carbon_g_per_j")
"""Columns of a domain that do not change what a segment takes there."""

OPTION_COLUMNS = ("dp", "tp", "pp", "precision")
O_DP, O_TP, O_PP, O_PRECISION = range(len(OPTION_COLUMNS))
"""Columns of an option."""

STAGE_COLUMNS = ("forward_s", "backward_s", "end_s", "fixed_bytes", "held_bytes", "busy_s")
FORWARD_S, BACKWARD_S, END_S, FIXED_BYTES, HELD_BYTES, STAGE_BUSY_S = range(len(STAGE_COLUMNS))
"""Columns of a stage: both passes of a microbatch with their tensor-parallel reductions; once per step, optimiser and
gradient reduction; memory that is always taken and that of a microbatch in flight; both passes without reductions."""


def hardware_classes(
    cost: CostModel, ignored: Iterable[str] = NOT_HARDWARE, *also: IntArray
) -> tuple[IntArray, IntArray]:
    """Number the domains so that equal ones have equal numbers.

    Args:
        cost: The cluster.
        ignored: Columns in which equal domains may differ.
        also: Numbers ``(K,)`` in which they may not.

    Returns:
        Class of each domain, shape ``(K,)``, and one domain of each class, the first.
    """
    names = [name for name in DOMAIN_ROW.names or () if name not in ignored]
    columns = [np.asarray(cost.domains.rows[name], dtype=np.float64) for name in names]
    _, first, inverse = np.unique(np.column_stack([*columns, *also]), axis=0, return_index=True, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64), first.astype(np.int64)


def twins(instance: Instance) -> IntArray:
    """Number the domains so that equal hardware with as many free devices has equal numbers, shape ``(K,)``.

    Plans inside one of several twins are worth the same.
    """
    ignored = ("devices",) if instance.carbon_priced else NOT_HARDWARE
    return hardware_classes(instance.cost, ignored, instance.free_devices)[0]


def first_twins(instance: Instance) -> list[int]:
    """Open domains without those that are worth the same as one of lower index."""
    numbers = twins(instance)
    return [int(d) for d in instance.open_domains if (numbers[:d] != numbers[d]).all()]


def options(
    devices: int, node: int, formats: Sequence[int], n_layers: int, microbatches: Sequence[int] = ()
) -> IntArray:
    """List the options of so many devices in nodes of so many, shape ``(O, 4)``.

    Args:
        devices: Most devices.
        node: Most tensor-parallel ranks.
        formats: Rows on the precision axis.
        n_layers: Layers of the model; a stage has at least one.
        microbatches: Sizes of which dp must divide one; any by default.
    """
    rows = [
        (dp, tp, pp, q)
        for q in formats
        for dp, tp, pp in layouts_within(devices, node)
        if pp <= n_layers and (not microbatches or any(micro % dp == 0 for micro in microbatches))
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, len(OPTION_COLUMNS))


def usable_options(cost: CostModel, free_devices: IntArray, table: IntArray) -> BoolArray:
    """Which options ``(O, 4)`` each domain has free devices, nodes and hardware for, shape ``(K, O)``."""
    size = table[:, O_DP] * table[:, O_TP] * table[:, O_PP]
    node = np.asarray(cost.domains.rows.node_devices, dtype=np.int64)
    fits = (size <= free_devices[:, None]) & (table[:, O_TP] <= node[:, None])
    usable: BoolArray = fits & hardware_formats(cost)[:, table[:, O_PRECISION]]
    return usable


@lru_cache(maxsize=4096)
def _inside(
    devices: int, node: int, n_layers: int, microbatches: tuple[int, ...], batch: int, precisions: tuple[int, ...]
) -> IntArray:
    """Rows of all plans in a domain of so many free devices, domain left 0, shape ``(n, 11)``."""
    rows = [
        (0, 0, n_layers, dp, tp, pp, precision, 0, micro, batch // micro, 0)
        for precision in precisions
        for micro in dict.fromkeys(microbatches)
        for dp, tp, pp in layouts_within(devices, node)
        if micro % dp == 0 and pp <= n_layers
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, len(SEGMENT_FIELDS))
    table.setflags(write=False)
    return table


def plans_inside(instance: Instance, domains: Sequence[int] | IntArray) -> PlanBatch:
    """List every plan of an instance that stays inside one of the given domains."""
    nodes = instance.nodes
    parts = []
    for domain in domains:
        part = _inside(
            int(instance.free_devices[domain]), int(nodes[domain]), instance.n_layers, instance.microbatches,
            instance.batch_size, inside_precisions(instance, int(domain)),
        ).copy()  # fmt: skip
        part[:, DOMAIN] = domain
        parts.append(part)
    rows = np.concatenate(parts) if parts else np.empty((0, len(SEGMENT_FIELDS)), dtype=np.int64)
    return PlanBatch(rows[:, None, :], np.ones(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64))


def single_domain_plans(
    view: Decision, kind_index: int | None = None, domains: Sequence[int] | None = None
) -> PlanBatch:
    """List every plan inside one domain: all layouts of its free devices, all microbatch levels.

    Training takes the domain's 16-bit format, inference every format the hardware has.

    Args:
        view: The decision.
        kind_index: Another kind of task than the pending one.
        domains: Only these; all by default.
    """
    instance = Instance.of(view, kind_index)
    return plans_inside(instance, range(len(instance.free_devices)) if domains is None else domains)


@by_reference
class Pricing(NamedTuple):
    """A task in a cluster as the cost kernels take it."""

    domains: DomainArrays
    runtime: RuntimeArrays
    power_law: PowerArrays
    tables: CostTables
    workload: Workload
    bandwidth: FloatArray
    latency: FloatArray

    @classmethod
    def of(cls, cost: CostModel, model: int, bandwidth: FloatArray, latency_s: FloatArray) -> Pricing:
        """The arrays of a model; links in bytes per second and seconds, shape ``(K, K)``."""
        return cls(
            cost.domains, cost.runtime, cost.power_law, cost.tables, cost.workload(model),
            np.ascontiguousarray(bandwidth), np.ascontiguousarray(latency_s),
        )  # fmt: skip


@kernel
def write_stage(
    domains: DomainArrays, runtime: RuntimeArrays, power_law: PowerArrays, tables: CostTables, workload: Workload,
    domain: int, a: int, z: int, dp: int, tp: int, precision: int, micro: int, microbatches: int, out: FloatArray,
) -> None:  # fmt: skip
    """Write what layers ``[a, z)`` take as one stage, columns ``STAGE_COLUMNS``.

    With sharded weights more microbatches take longer at the end of a step; 0 of them give a bound from below.
    """
    stage = stage_cost(
        domains, runtime, power_law, tables, workload, domain, a, z, dp, tp, precision, 0, micro, 1.0
    )  # fmt: skip
    # Recomputation repeats the reductions of the forward pass.
    again = (2.0 if runtime.recompute else 1.0) if workload.training else 0.0
    out[FORWARD_S] = stage.forward_s + stage.reduce_s
    out[BACKWARD_S] = stage.backward_s + again * stage.reduce_s
    out[END_S] = stage.update_s
    if workload.training:
        out[END_S] += gradient_reduce_s(
            domains, runtime, tables, workload.model, domain, a, z, dp, tp, precision, microbatches
        )
    out[FIXED_BYTES] = stage.fixed_bytes
    out[HELD_BYTES] = stage.held_bytes
    out[STAGE_BUSY_S] = stage.forward_s + stage.backward_s
