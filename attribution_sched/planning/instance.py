"""One planning instance: a model to place, the devices that are free for it and the links as they are now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.cost import CostModel, PlanCosts
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import PRECISIONS, Precision
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.world import within_budgets
from attribution_sched.errors import PlanError, problem
from attribution_sched.types import FloatArray, IntArray

HALF = (Precision.BF16, Precision.FP16, Precision.FP32)
"""Formats in order of preference where a rule does not search over them."""

_PER_SAMPLE = (0, 1, 4, 5)
"""Columns of the time tables that grow with the samples: compute and memory of both passes."""


@dataclass(frozen=True, eq=False)
class Instance:
    """What a planner needs and nothing of the world around it.

    Attributes:
        cost: Prices plans.
        model: Row of the model in the cost model.
        batch_size: Samples per step.
        microbatches: Microbatch sizes a plan may choose.
        free_devices: Devices a plan may use per domain, shape ``(K,)``.
        bandwidth_gbps: Links now, shape ``(K, K)``.
        latency_s: One-way latencies now, shape ``(K, K)``.
        max_segments: Most domains a plan may use.
        carbon_priced: Whether the carbon of a domain's grid tells it from others.
        precision: The one numeric format to use; None leaves the choice to the rules below.
    """

    cost: CostModel
    model: int
    batch_size: int
    microbatches: tuple[int, ...]
    free_devices: IntArray
    bandwidth_gbps: FloatArray
    latency_s: FloatArray
    max_segments: int
    carbon_priced: bool = False
    precision: Precision | None = None

    def __post_init__(self) -> None:
        k = len(self.cost.cluster)
        if self.free_devices.shape != (k,) or (self.free_devices < 0).any():
            rule = f"must hold {k} counts >= 0, one per domain"
            fix = "Count the free devices per domain"
            raise PlanError(problem("free devices", self.free_devices.tolist(), rule, fix))
        wrong = [m for m in self.microbatches if m < 1 or self.batch_size % m]
        if not self.microbatches or wrong:
            rule = f"must be divisors of the batch of {self.batch_size} samples"
            raise PlanError(problem("microbatches", self.microbatches, rule, "Use powers of two"))

    @classmethod
    def of(cls, view: Decision, kind_index: int | None = None) -> Instance:
        """Take the pending decision, as it is or for another kind of task."""
        index = view.kind_index if kind_index is None else kind_index
        kind = view.kinds[index]
        return cls(
            view.cost, index, kind.batch_size, kind.microbatches, usable_devices(view), view.bandwidth_gbps,
            view.latency_s, view.max_segments, view.reward.carbon_usd_per_kg > 0.0,
        )  # fmt: skip

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return len(self.cost.models[self.model])

    @property
    def training(self) -> bool:
        """Whether the model is trained."""
        return self.cost.training[self.model]

    @property
    def nodes(self) -> IntArray:
        """Devices per node of every domain, shape ``(K,)``."""
        return np.asarray(self.cost.domains.rows.node_devices, dtype=np.int64)

    @property
    def open_domains(self) -> IntArray:
        """Domains with at least one usable device."""
        return np.flatnonzero(self.free_devices > 0)

    def score(self, batch: PlanBatch) -> PlanCosts:
        """Price plans at the instance's links."""
        return self.cost.score(
            batch, self.model, bandwidth_gbps=self.bandwidth_gbps, latency_s=self.latency_s, breakdown=False
        )

    def seconds_per_sample(self) -> FloatArray:
        """Seconds one device takes for a sample, both passes, shape ``(4 precisions, K, 4 tp degrees)``."""
        times = self.cost.tables.times_s[self.model][np.asarray(self.cost.domains.rows.gpu)]
        total: FloatArray = times[:, :, :, _PER_SAMPLE, self.n_layers].sum(axis=-1)
        return np.moveaxis(total, 0, 1)


def usable_devices(view: Decision) -> IntArray:
    """Devices per domain that a plan may use whatever they and the rest draw, shape ``(K,)``.

    What other tasks draw is not in a view. So where a domain has a power budget, devices beyond those that could
    all run at their cap within it stay unused.
    """
    return within_budgets(view.cost.cluster, np.asarray(view.free_devices, dtype=np.int64))


def half_precision(instance: Instance, orders: IntArray) -> IntArray:
    """Best 16-bit format that all domains of each order have (32 bits if none), shape ``orders.shape[:-1]``.

    An instance that names its format gets that one.
    """
    if instance.precision is not None:
        return np.full(orders.shape[:-1], instance.precision.index, dtype=np.int64)
    has = instance.cost.domains.peak_flops > 0.0
    chosen = np.full(orders.shape[:-1], -1, dtype=np.int64)
    for precision in HALF:
        common = has[:, precision.index][orders].all(axis=-1)
        chosen = np.where((chosen < 0) & common, precision.index, chosen)
    return np.where(chosen < 0, Precision.FP32.index, chosen)


def inside_precisions(instance: Instance, domain: int) -> tuple[int, ...]:
    """Formats worth trying inside one domain: the 16-bit one for training, all it has for inference."""
    if instance.training or instance.precision is not None:
        return (int(half_precision(instance, np.array([domain]))),)
    has = instance.cost.domains.peak_flops[domain] > 0.0
    return tuple(q.index for q in PRECISIONS if has[q.index])


def tp_indices(tp: IntArray) -> IntArray:
    """Positions of tensor-parallel degrees on the axis of the tables."""
    return np.searchsorted(np.array(TP_DEGREES), tp)
