"""The reward R and its terms: the only place where they are computed.

For a step of ``T`` seconds and ``C`` dollars, against a baseline's of ``T_base`` seconds and ``C_base`` dollars::

    R_eff  = (T_base − T) / T_base
    R_util = mean over domains of compute time over step time
    R_cost = C / C_base,   C = bill + usd_per_j · energy + usd_per_g · carbon
    R      = w_eff · R_eff + w_util · R_util − w_cost · R_cost
    R_high = −α · T − β · C   with α = w_eff / T_base and β = w_cost / C_base

so R_high is R without utilisation, less the constant w_eff: both levels of Hi-PPO serve the one R.

Every formula is one function that takes numbers or arrays alike; the names that end in ``_kernel`` are the same
functions compiled, for use inside other kernels.

The named baseline of R_eff and R_cost is the static uniform split. Layers are dealt evenly over all K domains
in their given order (the first ones, if there are fewer layers than domains); every domain gives as many
devices as data parallelism over the largest microbatch can use, in half precision, at base bandwidth. In a
world of one domain a task runs on one device, in single precision. It is the reference because the method's
founding text names it, not because it is good; where it would not fit memory its time is still the reference.
Of an opaque job the reference is the job alone on the devices it asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np

from attribution_sched.cluster.cost import JOULES_PER_KWH, CostModel, PlanCosts, opaque_cap
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import (
    CAP,
    DOMAIN,
    MICROBATCH,
    MICROBATCHES,
    PRECISION,
    REPLICA,
    Plan,
    PlanBatch,
    Replica,
    Segment,
)
from attribution_sched.cluster.world import Reward, TaskKind, World, task_working
from attribution_sched.kernels import kernel
from attribution_sched.types import SIGNS, FloatArray, IntArray, Number, total

if TYPE_CHECKING:
    from attribution_sched.cluster.decision import Decision


GRAMS_PER_KG = 1e3


def r_eff(step_s: Number, base_step_s: float) -> Number:
    """Share of the baseline's step time that is saved."""
    return (base_step_s - step_s) / base_step_s


def step_at(efficiency: Number, base_step_s: float) -> Number:
    """Step time of a given R_eff, in seconds."""
    return base_step_s * (1.0 - efficiency)


def cost_usd(bill_usd: Number, energy_j: Number, carbon_g: Number, usd_per_j: float, usd_per_g: float) -> Number:
    """What a step costs: cross-domain traffic, energy and carbon at their prices."""
    return bill_usd + usd_per_j * energy_j + usd_per_g * carbon_g


def r_cost(dollars: Number, base_cost_usd: float) -> Number:
    """Cost over the baseline's; 0 where the baseline costs nothing."""
    return dollars / base_cost_usd if base_cost_usd > 0.0 else 0.0 * dollars


def r_high(eff: Number, cost: Number, w_eff: float, w_cost: float) -> Number:
    """Reward of the upper agent, ``−α·T − β·C``: R without utilisation, less w_eff."""
    return w_eff * (eff - 1.0) - w_cost * cost


r_eff_kernel = kernel(r_eff)
step_at_kernel = kernel(step_at)
cost_usd_kernel = kernel(cost_usd)
r_cost_kernel = kernel(r_cost)
total_kernel = kernel(total)


class RewardRates(NamedTuple):
    """R as a line in what a step takes: ``w_eff − α·T + w_util·U − β·(bill + usd_per_j·J + usd_per_g·g)``.

    Attributes:
        alpha: α, what a second of step time takes from R.
        utilisation: What a whole of utilisation adds.
        beta: β, what a dollar takes.
        per_j: What a joule takes.
        per_g: What a gram of CO2-equivalent takes.
    """

    alpha: float
    utilisation: float
    beta: float
    per_j: float
    per_g: float


def usd_per_j(reward: Reward) -> float:
    """Price of energy inside R_cost, per joule."""
    return reward.energy_usd_per_kwh / JOULES_PER_KWH


def usd_per_g(reward: Reward) -> float:
    """Price of carbon inside R_cost, per gram."""
    return reward.carbon_usd_per_kg / GRAMS_PER_KG


def rates(reward: Reward, base_step_s: float, base_cost_usd: float) -> RewardRates:
    """Read the weights of R against a baseline: α and β of R_high among them."""
    alpha, beta = reward.w_eff / base_step_s, reward.w_cost / base_cost_usd if base_cost_usd > 0.0 else 0.0
    return RewardRates(alpha, reward.w_util, beta, beta * usd_per_j(reward), beta * usd_per_g(reward))


def total_of(terms: FloatArray, weights: FloatArray | Sequence[float]) -> FloatArray:
    """R of terms ``(…, 3)`` under weights w_eff, w_util and w_cost, shape ``(…, 3)`` or ``(3,)``."""
    weighted: FloatArray = terms * weights * np.array(SIGNS)
    found: FloatArray = weighted.sum(axis=-1)
    return found


def priced_terms(
    reward: Reward,
    base_step_s: float,
    base_cost_usd: float,
    step_s: FloatArray,
    utilisation: FloatArray,
    bill_usd: FloatArray,
    energy_j: FloatArray,
    carbon_g: FloatArray,
) -> FloatArray:
    """R_eff, R_util and R_cost of steps at their prices, shape ``(…, 3)``."""
    dollars = cost_usd(bill_usd, energy_j, carbon_g, usd_per_j(reward), usd_per_g(reward))
    return np.stack([r_eff(step_s, base_step_s), utilisation, r_cost(dollars, base_cost_usd)], axis=-1)


@dataclass(frozen=True)
class PlanValues:
    """Worth of a batch of plans, per global batch; every array has shape ``(n_plans,)``.

    Attributes:
        step_s: Seconds per global batch; infinite where a plan does not fit memory.
        bill_usd: Cross-domain traffic per global batch.
        r_eff: Share of the baseline's step time saved.
        r_util: Mean over domains of compute time over step time.
        r_cost: Cost over the baseline's cost.
        reward: ``w_eff·r_eff + w_util·r_util − w_cost·r_cost``; −∞ where a plan does not fit memory.
    """

    step_s: FloatArray
    bill_usd: FloatArray
    r_eff: FloatArray
    r_util: FloatArray
    r_cost: FloatArray
    reward: FloatArray


def price(view: Decision, batch: PlanBatch, kind_index: int | None = None) -> PlanCosts:
    """Price plans at the network of the view, for its task or another kind of task."""
    kind = view.kind_index if kind_index is None else kind_index
    links: Links = {"bandwidth_gbps": view.bandwidth_gbps, "latency_s": view.latency_s}
    levels = batch.segments[:, 0, CAP]
    if view.task is None or not view.kinds[kind].opaque or not levels.any():
        return view.cost.score(batch, kind, breakdown=False, **links)
    # The cost model knows an opaque task as one that always computes; what caps do to it, its counters tell.
    segments = batch.segments.copy()
    segments[:, :, CAP] = 0
    found = view.cost.score(replace(batch, segments=segments), kind, breakdown=False, **links)
    working = task_working(view.kinds, view.task)
    law = [
        opaque_cap(view.cost.domains, view.cost.power_law, row[DOMAIN], row[PRECISION], level, working)
        for row, level in zip(segments[:, 0], levels, strict=True)
    ]
    stretch, _, left_j = np.array(law).T
    return replace(
        found, step_s=found.step_s * stretch, compute_s=found.compute_s * stretch, energy_j=found.energy_j * left_j,
        carbon_g=found.carbon_g * left_j,
    )  # fmt: skip


class Links(TypedDict):
    """Links at which plans are priced."""

    bandwidth_gbps: FloatArray
    latency_s: FloatArray


def value(view: Decision, batch: PlanBatch, kind_index: int | None = None) -> PlanValues:
    """Say what plans are worth by the view's reward, for its task or another kind of task."""
    kind = view.kind_index if kind_index is None else kind_index
    return worth(view, batch, price(view, batch, kind), kind)


def worth(view: Decision, batch: PlanBatch, priced: PlanCosts, kind: int) -> PlanValues:
    """Say what plans are worth by the view's reward at given prices."""
    norm = view.kinds[kind].batch_size / samples(batch)
    reward, util = view.reward, priced.utilisation
    step_s = np.where(priced.fits, priced.step_s * norm, np.inf)
    per_step_usd = cost_usd(
        priced.bill_usd, priced.energy_j, priced.carbon_g, usd_per_j(reward), usd_per_g(reward)
    )  # fmt: skip
    eff = r_eff(step_s, float(view.base_step_s[kind]))
    cost = r_cost(norm * per_step_usd, float(view.base_cost_usd[kind]))
    with np.errstate(invalid="ignore"):
        # A weight of 0 times the infinite step time of a plan that does not fit; such a plan is worth −∞ all the same.
        found = total(eff, util, cost, reward.w_eff, reward.w_util, reward.w_cost)
    return PlanValues(step_s, priced.bill_usd * norm, eff, util, cost, np.where(priced.fits, found, -np.inf))


def samples(batch: PlanBatch) -> IntArray:
    """Samples every plan processes per step, all replicas together, shape ``(n_plans,)``."""
    rows = batch.segments
    used = np.arange(rows.shape[1]) < batch.counts[:, None]
    opens = np.diff(rows[:, :, REPLICA], axis=1, prepend=-1) != 0
    found: IntArray = (rows[:, :, MICROBATCH] * rows[:, :, MICROBATCHES] * (used & opens)).sum(axis=1)
    return found


@kernel
def samples_kernel(rows: IntArray, count: int) -> int:
    """Samples one plan ``(P, 11)`` processes per step, all replicas together."""
    found, last = 0, -1
    for row in range(count):
        if rows[row, REPLICA] != last:
            last = rows[row, REPLICA]
            found += rows[row, MICROBATCH] * rows[row, MICROBATCHES]
    return found


def uniform_split(n_layers: int, parts: int) -> list[tuple[int, int]]:
    """Cut a chain into ``parts`` runs of nearly equal length."""
    stops = [round(n_layers * (p + 1) / parts) for p in range(parts)]
    return list(zip([0, *stops[:-1]], stops, strict=True))


def baseline_plan(world: World, kind: TaskKind) -> Plan:
    """Build the static uniform split of a task kind over the cluster."""
    cluster = world.cluster
    if kind.opaque:
        own = Segment(0, 0, 1, kind.batch_size, 1, 1, Precision.FP16)
        return Plan((Replica((own,), kind.batch_size, 1),))
    parts = min(len(cluster), len(kind.model))
    micro = kind.microbatches[1] if len(cluster) == 1 else kind.microbatches[-1]
    segments = []
    for domain, (first, stop) in enumerate(uniform_split(len(kind.model), parts)):
        gpu = cluster.domains[domain].gpu
        precision = Precision.FP16 if len(cluster) > 1 and gpu.supports(Precision.FP16) else Precision.FP32
        dp = 1
        # A one-domain world (the testbed) runs a task on one device.
        while len(cluster) > 1 and 2 * dp <= cluster.domains[domain].devices and micro % (2 * dp) == 0:
            dp *= 2
        segments.append(Segment(domain, first, stop, dp, 1, 1, precision))
    return Plan((Replica(tuple(segments), micro, kind.batch_size // micro),))


def baseline_costs(world: World, cost: CostModel) -> tuple[FloatArray, FloatArray]:
    """Step time (s) and cost (USD per step) of the baseline of every task kind, each of shape ``(n_kinds,)``."""
    steps, dollars = [], []
    reward = world.reward
    for k, kind in enumerate(world.kinds):
        scored = cost.score(baseline_plan(world, kind), k, breakdown=False)
        steps.append(float(scored.step_s[0]))
        bill_usd, energy_j, carbon_g = (float(x[0]) for x in (scored.bill_usd, scored.energy_j, scored.carbon_g))
        dollars.append(cost_usd(bill_usd, energy_j, carbon_g, usd_per_j(reward), usd_per_g(reward)))
    return np.array(steps), np.array(dollars)
