"""The cost model: what a plan takes, in seconds, bytes, joules, grams and dollars.

One call scores any number of plans; the single case is a batch of one. The compiled work is done in
``cost_kernel.py``; this module turns records into arrays and back. ``move_cost`` prices the way from one
plan to another: sending the state of layers to domains that do not hold them yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.compute import (
    TP_DEGREES,
    CostTables,
    Efficiencies,
    build_tables,
    efficiencies,
)
from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.cost_kernel import (
    DOMAIN_ROW,
    PLAN_COLUMNS,
    SEGMENT_COLUMNS,
    DomainArrays,
    PowerArrays,
    RuntimeArrays,
    Scratch,
    Workload,
    make_scratch,
    plan_cost,
)
from attribution_sched.cluster.domains import Cluster
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.memory import state_bytes_per_parameter
from attribution_sched.cluster.models import Model
from attribution_sched.cluster.plan import MICROBATCHES, PP, Plan, PlanBatch
from attribution_sched.cluster.power import cap_reached, draw_law, precision_factor
from attribution_sched.cluster.world import TaskKind
from attribution_sched.errors import NetworkError, PlanError, problem
from attribution_sched.kernels import kernel
from attribution_sched.types import BoolArray, FloatArray, IntArray

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
            plans.check(len(self.models[model]), len(self.cluster))
            return plans
        listed = [plans] if isinstance(plans, Plan) else list(plans)
        for plan in listed:
            self._validate(plan, model)
        return PlanBatch.of(listed)

    def _validate(self, plan: Plan, model: int) -> None:
        plan.check(len(self.models[model]), len(self.cluster))
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


def move_cost(
    kind: TaskKind, old: Plan, new: Plan, bytes_per_s: FloatArray, usd_per_byte: FloatArray
) -> tuple[float, float]:
    """Seconds and dollars of carrying a task's state from one plan to another.

    A copy comes from the first domain that has it; different links send side by side.

    Args:
        kind: The task.
        old: Plan in force.
        new: Plan to come.
        bytes_per_s: WAN bandwidth now, shape ``(K, K)``.
        usd_per_byte: Egress price, shape ``(K, K)``.
    """
    moved = np.zeros_like(bytes_per_s)
    params = kind.model.column("params")
    for target in new.segments:
        each = state_bytes_per_parameter(float(target.precision.element_bytes), kind.training, 0, 1.0)
        for layer in range(target.first, target.stop):
            holders = [s.domain for s in old.segments if s.first <= layer < s.stop]
            if target.domain not in holders:
                moved[holders[0], target.domain] += params[layer] * each
    sent = moved > 0.0
    return float((moved[sent] / bytes_per_s[sent]).max(initial=0.0)), float((moved * usd_per_byte)[sent].sum())
