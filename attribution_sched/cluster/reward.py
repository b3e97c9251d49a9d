"""What a plan is worth at a decision: the reward R of a nominal task, from prices of the batched cost model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import JOULES_PER_KWH, PlanCosts
from attribution_sched.cluster.decision import DecisionView
from attribution_sched.cluster.plan import MICROBATCH, MICROBATCHES, REPLICA, PlanBatch

FloatArray = NDArray[np.float64]

GRAMS_PER_KG = 1e3


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


def price(view: DecisionView, batch: PlanBatch, kind_index: int | None = None) -> PlanCosts:
    """Price plans at the network of the view, for its task or another kind of task."""
    kind = view.kind_index if kind_index is None else kind_index
    return view.cost.score(batch, kind, bandwidth_gbps=view.bandwidth_gbps, latency_s=view.latency_s, breakdown=False)


def value(view: DecisionView, batch: PlanBatch, kind_index: int | None = None) -> PlanValues:
    """Say what plans are worth by the view's reward, for its task or another kind of task."""
    kind = view.kind_index if kind_index is None else kind_index
    return worth(view, batch, price(view, batch, kind), kind)


def worth(view: DecisionView, batch: PlanBatch, priced: PlanCosts, kind: int) -> PlanValues:
    """Say what plans are worth by the view's reward at given prices."""
    norm = view.kinds[kind].batch_size / samples(batch)
    reward = view.reward
    fits = priced.fits
    step_s = np.where(fits, priced.step_s * norm, np.inf)
    dollars = norm * (
        priced.bill_usd
        + reward.energy_usd_per_kwh / JOULES_PER_KWH * priced.energy_j
        + reward.carbon_usd_per_kg / GRAMS_PER_KG * priced.carbon_g
    )
    base_s, base_usd = float(view.base_step_s[kind]), float(view.base_cost_usd[kind])
    r_eff = (base_s - step_s) / base_s
    r_cost = dollars / base_usd if base_usd > 0 else np.zeros_like(dollars)
    with np.errstate(invalid="ignore"):
        # A weight of 0 times the infinite step time of a plan that does not fit; such a plan is worth −∞ all the same.
        total = reward.w_eff * r_eff + reward.w_util * priced.utilisation - reward.w_cost * r_cost
    return PlanValues(step_s, priced.bill_usd * norm, r_eff, priced.utilisation, r_cost, np.where(fits, total, -np.inf))


def samples(batch: PlanBatch) -> NDArray[np.int64]:
    """Samples every plan processes per step, all replicas together, shape ``(n_plans,)``."""
    rows = batch.segments
    used = np.arange(rows.shape[1]) < batch.counts[:, None]
    opens = np.diff(rows[:, :, REPLICA], axis=1, prepend=-1) != 0
    total: NDArray[np.int64] = (rows[:, :, MICROBATCH] * rows[:, :, MICROBATCHES] * (used & opens)).sum(axis=1)
    return total
