"""What a decision would have been with other reward weights: the driver of a choice that feedback can turn.

Of all inputs of a decision the weights are the one that feedback sets. The policy, as it is deployed, is asked again in
the decision's own situation, with other weights and nothing else changed; what it does instead is priced like the plan
that was put in force. A decision that hangs on free devices, links or the queue stays as it is whatever the weights: it
tells feedback that here nothing is to be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import price, worth
from attribution_sched.explain.preference import redecided
from attribution_sched.explain.recorder import Decided
from attribution_sched.planning.candidates import as_carried_out
from attribution_sched.scheduler.policy import Policy
from attribution_sched.types import FloatArray


@dataclass(frozen=True)
class Expectation:
    """What is expected of a plan that was, or would have been, decided on.

    Attributes:
        r_eff: R_eff.
        r_util: R_util.
        r_cost: R_cost.
        step_s: Time of a step.
        bill_usd: Traffic of a step.
        energy_j: Energy of a step.
    """

    r_eff: float
    r_util: float
    r_cost: float
    step_s: float
    bill_usd: float
    energy_j: float


def with_weights(policy: Policy, decided: Decided, weights: FloatArray) -> list[Expectation | None]:
    """What the policy does with its task under each row of weights; None where it waits, stays or prefers another task.

    Args:
        policy: Who decided.
        decided: The decision.
        weights: w_eff, w_util and w_cost, shape ``(n, 3)``.
    """
    view = decided.view
    situations = replace(decided.seen.take(np.zeros(len(weights), dtype=np.int64)), weights=np.asarray(weights))
    return expected_of(view, redecided(policy, view, situations))


def expected_of(view: Decision, plans: Sequence[Plan | None]) -> list[Expectation | None]:
    """What is expected of plans for a decision's task; None where there is none."""
    acting = [as_carried_out(view.cost, view.kind_index, view.kind.batch_size, p) for p in plans if p is not None]
    if not acting:
        return [None] * len(plans)
    batch = PlanBatch.of(acting, view.max_segments)
    costs = price(view, batch)
    values = worth(view, batch, costs, view.kind_index)
    columns = (values.r_eff, values.r_util, values.r_cost, values.step_s, values.bill_usd, costs.energy_j)
    found = (Expectation(*(float(number) for number in row)) for row in zip(*columns, strict=True))
    return [None if plan is None else next(found) for plan in plans]
