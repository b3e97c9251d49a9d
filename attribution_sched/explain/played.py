"""What choices would have brought, everybody included: copies of the cluster, one choice in each, the same futures.

    Δ(choice) = what all tasks earn and use after the choice − what they do after what was done,   future by future

Unlike the plan's own price this counts what a choice does to those who wait, and waiting has a worth too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.fork import Choose, fork
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.reward import total_of
from attribution_sched.scheduler.policy import Policy, go_on_as
from attribution_sched.stats.interval import MeanInterval, mean_interval
from attribution_sched.types import FloatArray

FUTURES, HOURS = 16, 6.0


@dataclass(frozen=True)
class Played:
    """What a choice brings over what was done, all tasks together, to the horizon and beyond it as expected.

    Attributes:
        reward: R, by the weights of the decision.
        r_eff: R_eff.
        r_util: R_util.
        r_cost: R_cost.
        start_s: Seconds by which the decision's own task starts later; to the horizon for one that does not start.
        kwh: Energy to the horizon.
        usd: Traffic bill to the horizon.
        carbon_g: Carbon to the horizon.
        futures: How many were played.
        hours: How far.
        follower: Who decided in them after the choice.
    """

    reward: MeanInterval
    r_eff: MeanInterval
    r_util: MeanInterval
    r_cost: MeanInterval
    start_s: float
    kwh: float
    usd: float
    carbon_g: float
    futures: int
    hours: float
    follower: str = "rule"


def play_choices(
    policy: Policy,
    view: Decision,
    plans: Sequence[Plan | None],
    *,
    futures: int = FUTURES,
    hours: float = HOURS,
    seed: int = 0,
) -> list[Played | None]:
    """Play choices for the decision's task against the first of them.

    Args:
        policy: Who decided; in copies whoever stands for it goes on, else the compiled rule.
        view: The decision.
        plans: What was done, then what could have been; None lets the task wait, or stay.
        futures: How many to play.
        hours: How far.
        seed: Of the futures.

    Returns:
        One per plan; None for the first, and for a plan that the cluster refuses. All None where the decision does not
        carry its moment, as decisions made by hand do not.
    """
    moment = view.moment
    if moment is None or view.slot not in moment.tasks:
        return [None] * len(plans)
    follower, beliefs = go_on_as(policy, view, quick=True)
    found = fork(moment, [Choose(view.slot, plan) for plan in plans], futures, hours, follower, seed, beliefs=beliefs)
    refused = found.codes.min(axis=1) < 0
    if refused[1]:
        return [None] * len(plans)
    weights = np.array([view.reward.w_eff, view.reward.w_util, view.reward.w_cost])
    terms = found.totals[..., 2:5] + found.ends
    worth, start_s = total_of(terms, weights), found.of("start_s")[..., found.tasks.index(view.slot)]

    def span(values: FloatArray, copy: int) -> MeanInterval:
        return mean_interval(values[copy] - values[1])

    def mean(values: FloatArray, copy: int) -> float:
        return float((values[copy] - values[1]).mean())

    played: list[Played | None] = [None]
    for copy in range(2, len(plans) + 1):
        if refused[copy]:
            played.append(None)
            continue
        whole, eff, util, cost = (span(values, copy) for values in (worth, *np.moveaxis(terms, -1, 0)))
        energy_j, usd, carbon_g = (mean(found.totals[..., c], copy) for c in (5, 6, 7))
        until_h = (found.until_s - found.began_s) / 3600.0
        later_s = mean(start_s, copy)
        amounts, followed_by = (energy_j / 3.6e6, usd, carbon_g), getattr(follower, "name", policy.name)
        played.append(Played(whole, eff, util, cost, later_s, *amounts, futures, until_h, followed_by))
    return played
