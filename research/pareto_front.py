"""The exact trade-off between time and traffic of one decision: what a smaller bill costs in throughput.

Points are found from the fastest plan downwards: each is the fastest plan whose bill lies below the last one's, until
no traffic is left or nothing fits. Where points are proven, no plan between two neighbours is better in both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.plan import Plan
from attribution_sched.errors import PlanError, problem
from attribution_sched.planning.exact.problem import Objective, Problem
from attribution_sched.planning.exact.solver import ExactSolver

BELOW = 1.0 - 1e-9
"""Share of the last bill the next point must stay under."""


@dataclass(frozen=True)
class FrontPoint:
    """A plan on the front.

    Attributes:
        plan: The plan.
        step_s: Seconds per global batch.
        bill_usd: Cross-domain traffic per global batch.
        proven: Whether no faster plan has as small a bill; otherwise none better was found.
    """

    plan: Plan
    step_s: float
    bill_usd: float
    proven: bool


def pareto_front(task: Problem, solver: ExactSolver | None = None, max_points: int = 64) -> tuple[FrontPoint, ...]:
    """Return the front of (step time, bill), fastest plan first.

    Args:
        task: The decision; its objective is not used.
        solver: Whose caches to use.
        max_points: Stop after this many points, from the fast end.
    """
    solver = solver or ExactSolver()
    points: list[FrontPoint] = []
    cap = np.inf
    while len(points) < max_points:
        found = solver.try_solve(replace(task, objective=Objective(max_bill_usd=cap)))
        if found is None:
            break
        points.append(FrontPoint(found.plan, found.step_s, found.bill_usd, found.proven))
        if found.bill_usd <= 0.0:
            break
        cap = found.bill_usd * BELOW
    if not points:
        rule = f"no plan over at most {task.max_segments} domains fits memory"
        raise PlanError(problem("front", task.free_devices.tolist(), rule, "Free devices or allow more domains"))
    # A slower search may have missed a plan that a later point found.
    return tuple(p for i, p in enumerate(points) if all(q.step_s > p.step_s for q in points[i + 1 :]))


def price_of_saving(front: tuple[FrontPoint, ...], saving: float) -> float:
    """Share of the throughput of the fastest plan that must be given up to save this share of its bill.

    Args:
        front: A front, fastest plan first.
        saving: Share of the bill to save, for instance 0.3.

    Returns:
        The share given up; NaN if no plan on the front saves as much.
    """
    if not 0.0 <= saving <= 1.0:
        raise PlanError(problem("saving", saving, "must lie in [0, 1]", "Give a share of the bill, like 0.3"))
    fastest = front[0]
    good = [p.step_s for p in front if p.bill_usd <= (1.0 - saving) * fastest.bill_usd * (1 + 1e-12)]
    return 1.0 - fastest.step_s / min(good) if good else float("nan")
