"""The exact solver against every plan there is, its bounds, and its errors."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.plan import REPLICA
from attribution_sched.errors import PlanError
from attribution_sched.planning.exact.problem import Objective
from attribution_sched.planning.exact.solver import ExactSolver
from tests.planning.exact.instances import all_plans, brute_force, random_problem

FAST, ALL = 60, 330


@pytest.fixture(scope="module")
def solver():
    return ExactSolver()


def check(solver, seeds):
    """Solve and try everything; returns the shapes of the optima (segments per replica)."""
    shapes = []
    for seed in seeds:
        task = random_problem(seed)
        want, _ = brute_force(task)
        found = solver.try_solve(task)
        assert (found is None) == (want == np.inf), seed
        if found is None:
            continue
        assert found.proven, seed
        assert found.value == pytest.approx(want, rel=1e-9, abs=1e-12), seed
        assert found.bound <= found.value
        shapes.append(tuple(len(replica.segments) for replica in found.plan.replicas))
    return shapes


def test_the_optimum_of_small_decisions_is_that_of_trying_every_plan(solver):
    shapes = check(solver, range(FAST))
    assert len(set(shapes)) >= 3  # single domains, cuts and replicas


@pytest.mark.slow
def test_the_optimum_of_many_small_decisions_is_that_of_trying_every_plan(solver):
    shapes = check(solver, range(FAST, ALL))
    assert {(1,), (2,), (3,), (1, 1)} <= set(shapes)


@pytest.mark.parametrize("seed", range(12))
def test_held_karp_bounds_every_pipeline(seed):
    """Without the exhaustive step the bound alone must stay below every plan."""
    task = replace(random_problem(6 * seed), replicate=False)
    found = ExactSolver(budget=0).try_solve(task)
    batch = all_plans(task)
    single = batch.segments[:, :, REPLICA].max(axis=1) == 0
    priced = task.cost.score(
        batch, 0, bandwidth_gbps=task.bandwidth / BYTES_PER_GBIT, latency_s=task.latency_s, breakdown=False
    )
    step_s = np.where(priced.fits & single, priced.step_s, np.inf)
    if found is None:
        assert step_s.min() == np.inf
        return
    assert found.bound <= step_s.min() * (1 + 1e-9)
    assert found.step_s >= step_s.min() * (1 - 1e-9)
    if found.proven:
        assert found.step_s == pytest.approx(step_s.min(), rel=1e-9)


def test_the_same_decision_gives_the_same_plan(solver):
    task = random_problem(3)
    assert solver.solve(task).plan == ExactSolver().solve(task).plan


def test_a_plan_in_force_is_never_lost(solver):
    task = random_problem(0)
    best = solver.solve(task)
    again = ExactSolver(budget=0).solve(task, best.plan)
    assert again.value <= best.value * (1 + 1e-12)


def test_a_start_that_needs_more_than_is_free_is_not_taken(solver):
    seen = 0
    for seed in range(12):
        task = random_problem(seed)
        best = solver.try_solve(task)
        if best is None or max(s.device_count for s in best.plan.segments) < 2:
            continue
        tight = replace(task, free_devices=np.minimum(task.free_devices, 1))
        found = solver.try_solve(tight, best.plan)
        assert found is None or all(s.device_count <= 1 for s in found.plan.segments)
        seen += 1
    assert seen


def test_a_cap_on_the_bill_is_kept(solver):
    for seed in (0, 6, 12, 18):
        task = random_problem(seed)
        free = solver.try_solve(task)
        if free is None or free.bill_usd == 0.0:
            continue
        cap = 0.5 * free.bill_usd
        capped = solver.try_solve(task.with_objective(Objective(max_bill_usd=cap)))
        assert capped is None or (capped.bill_usd <= cap and capped.step_s >= free.step_s)


def test_nothing_fits_is_one_clear_error(solver):
    impossible = next(random_problem(seed) for seed in range(ALL) if solver.try_solve(random_problem(seed)) is None)
    with pytest.raises(PlanError, match="was found that fits memory"):
        solver.solve(impossible)


def test_a_domain_without_devices_is_left_alone_and_none_at_all_is_an_error(solver):
    task = random_problem(0)
    with pytest.raises(PlanError, match="at least one of them above 0"):
        replace(task, free_devices=np.zeros_like(task.free_devices))
    with pytest.raises(PlanError, match="must divide the batch"):
        replace(task, microbatches=(3,))
    with pytest.raises(PlanError, match="max_segments"):
        replace(task, max_segments=0)
    used = {s.domain for s in solver.solve(task).plan.segments}
    assert all(task.free_devices[k] > 0 for k in used)
