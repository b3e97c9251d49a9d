"""When a running task should move: what the new plan earns over the remaining work, less what moving costs."""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import PlanValues, r_cost, value

MOVES_WEIGHED = 16
"""Plans of highest reward whose cost of moving is worked out."""


def move_gain_s(view: Decision, plan: Plan, reward: float, reward_now: float, steps: float | None = None) -> float:
    """What changing to a plan earns until the task ends, in seconds of R_eff; negative if moving does not pay.

    Every step pays its reward once per baseline step time, the pause costs one per second of it, and the traffic of
    the move costs what the same dollars cost in steps.

    Args:
        view: A decision on a running task.
        plan: Where it might go.
        reward: What the plan is worth there.
        reward_now: What the current plan is worth.
        steps: For how many steps the difference lasts; those left by default.
    """
    pause_s, moved_usd = view.move_cost(plan)
    base_s, base_usd = float(view.base_step_s[view.kind_index]), float(view.base_cost_usd[view.kind_index])
    paid_s = view.reward.w_cost * r_cost(moved_usd, base_usd) * base_s
    return (reward - reward_now) * base_s * (view.steps_left if steps is None else steps) - (
        view.reward.w_eff * pause_s + paid_s
    )


def best_move(view: Decision, batch: PlanBatch, found: PlanValues) -> Plan | None:
    """Pick the plan whose move earns most among those of highest reward; None if none earns anything.

    Args:
        view: A decision; on a task that does not run there is nothing to move.
        batch: Plans to choose from.
        found: What they are worth.
    """
    if view.current_plan is None:
        return None
    now = float(value(view, PlanBatch.of([view.current_plan])).reward[0])
    best, gain = None, 0.0
    for at in np.argsort(-found.reward, kind="stable")[:MOVES_WEIGHED]:
        if not found.reward[at] > now:
            break
        plan = batch.plan(int(at))
        gained = move_gain_s(view, plan, float(found.reward[at]), now)
        if gained > gain:
            best, gain = plan, gained
    return best
