"""The exact front of time and traffic."""

import numpy as np
import pytest

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.reward import samples
from attribution_sched.errors import PlanError
from attribution_sched.planning.exact.solver import ExactSolver
from research.pareto_front import pareto_front, price_of_saving
from tests.planning.exact.instances import all_plans, random_problem


def brute_front(task):
    """Non-dominated (time, bill) over every plan."""
    batch = all_plans(task)
    priced = task.cost.score(
        batch, 0, bandwidth_gbps=task.bandwidth / BYTES_PER_GBIT, latency_s=task.latency_s, breakdown=False
    )
    norm = task.batch_size / samples(batch)
    points = np.stack([priced.step_s * norm, priced.bill_usd * norm], axis=1)[priced.fits]
    kept = []
    for time_s, bill in points[np.lexsort((points[:, 1], points[:, 0]))]:
        if not kept or bill < kept[-1][1] * (1 - 1e-9):
            kept.append((time_s, bill))
    return np.array(kept)


@pytest.mark.parametrize("seed", range(0, 60, 4))
def test_the_front_is_that_of_every_plan(seed):
    task = random_problem(seed)
    want = brute_front(task)
    if len(want) == 0:
        with pytest.raises(PlanError, match="fits memory"):
            pareto_front(task)
        return
    front = pareto_front(task, ExactSolver())
    got = np.array([(point.step_s, point.bill_usd) for point in front])
    assert got == pytest.approx(want, rel=1e-8, abs=1e-12)
    assert all(point.proven for point in front)


def test_saving_is_priced_from_the_front():
    fronts = (pareto_front(random_problem(seed)) for seed in range(200) if brute_front_size(seed) > 2)
    front = next(fronts)
    assert price_of_saving(front, 0.0) == 0.0
    given_up = [price_of_saving(front, saving) for saving in (0.1, 0.5, 0.9)]
    known = [g for g in given_up if not np.isnan(g)]
    assert known == sorted(known)
    with pytest.raises(PlanError, match="must lie in"):
        price_of_saving(front, 30.0)


def brute_front_size(seed):
    return len(brute_front(random_problem(seed)))
