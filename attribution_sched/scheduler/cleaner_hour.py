"""Waiting for a cleaner or cheaper hour: the start at which a plan's energy costs least by the forecasts.

    c(h) = Σ_k W_k · ∫_h^{h+d} (usd_per_j · price_k(t) + usd_per_g · carbon_k(t)) dt

W_k are the plan's mean watts in domain k, d how long it runs; prices and intensities are what is forecast now. Whether
waiting pays is for thinking to say: what others do meanwhile, and what an hour of waiting costs, is not in c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.cost import joules_by_domain
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import price, samples, usd_per_g
from attribution_sched.types import FloatArray

LEAST_SAVED = 0.02
"""Part of the cost of its energy that a later start must save to be looked at."""

LONGEST_H = 24
"""Hours of a plan's run that are looked at: forecasts beyond say little more than the profile."""


@dataclass(frozen=True)
class LaterStart:
    """What a later start is expected to save and to cost.

    Attributes:
        hours: How much later.
        carbon_g: Accounted carbon saved; negative if it is more.
        carbon_error_g: One standard deviation of that, by the forecasts' errors.
        usd: Dollars of electricity saved; negative if it is more.
    """

    hours: float
    carbon_g: float
    carbon_error_g: float
    usd: float

    def __str__(self) -> str:
        return (
            f"waits {self.hours:g} h for a cleaner hour: {self.carbon_g / 1e3:.3g} ± {self.carbon_error_g / 1e3:.2g} kg"
            f" and {self.usd:.2g} USD of electricity less, {self.hours:g} h later"
        )


def later_start(view: Decision, plan: Plan, most_h: float) -> LaterStart | None:
    """The start within some hours and the task's deadline at which a plan's energy costs least; None if none pays.

    Args:
        view: The decision; it must carry its moment.
        plan: What would be done now.
        most_h: Latest start.
    """
    moment = view.moment
    if moment is None:
        return None
    domains, reward = moment.world.cluster.domains, view.reward
    if all(domain.carbon is None and domain.electricity is None for domain in domains):
        return None
    batch = PlanBatch.of([plan], view.max_segments)
    priced = price(view, batch)
    steps = view.steps_left * view.kind.batch_size / float(samples(batch)[0])
    run_h = steps * float(priced.step_s[0]) / 3600.0
    if not math.isfinite(run_h):
        return None
    if view.task is not None and view.task.deadline_s is not None:
        most_h = min(most_h, (view.task.deadline_s - view.time_s) / 3600.0 - run_h)
    starts = int(most_h)
    if starts < 1:
        return None
    kw = joules_by_domain(view.cost, batch, priced)[0] / float(priced.step_s[0]) / 1e3
    looked_h = min(run_h, float(LONGEST_H))
    carbon, error, usd = (np.zeros(starts + 1) for _ in range(3))
    tick_s = float(moment.state.clock[0, st.LAST_TICK])
    began_s = math.floor(tick_s / st.HOUR_S) * st.HOUR_S
    for k in np.flatnonzero(kw).tolist():
        hours = starts + math.ceil(looked_h) + 1
        for signal, out, spread in ((domains[k].carbon, carbon, error), (domains[k].electricity, usd, None)):
            if signal is None:
                continue
            told = [signal.forecast(began_s, h * st.HOUR_S) for h in range(hours)]
            out += kw[k] * _run(np.array([each.value for each in told]), starts, looked_h)
            if spread is not None:
                spread += kw[k] * _run(np.array([each.error for each in told]), starts, looked_h)
    cost = usd + usd_per_g(reward) * carbon if reward.energy_usd_per_kwh > 0.0 else usd_per_g(reward) * carbon
    best = int(np.argmin(cost))
    if best == 0 or not cost[0] - cost[best] > LEAST_SAVED * cost[0]:
        return None
    scale = run_h / looked_h
    return LaterStart(
        float(best), scale * float(carbon[0] - carbon[best]), scale * float(math.hypot(error[0], error[best])),
        scale * float(usd[0] - usd[best]),
    )  # fmt: skip


def _run(values: FloatArray, starts: int, run_h: float) -> FloatArray:
    """Sum over a run of some hours that begins at hour 0, 1, … of values by the hour, shape ``(starts + 1,)``."""
    summed = np.concatenate([[0.0], np.cumsum(values)])
    begin = np.arange(starts + 1)
    last = np.minimum((begin + run_h).astype(np.int64), len(values) - 1)
    return np.asarray(summed[last] + (begin + run_h - last) * values[last] - summed[begin])
