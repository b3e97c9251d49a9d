"""Integer programming by HiGHS, against enumeration and the worked example of the method's founding text."""

import numpy as np
import pytest
import scipy.optimize
from assignment_crossover import random_problem
from hypothesis import given, settings

from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.assignment import NONE, Assignment
from attribution_sched.scheduler.dual_smoothing import solve_dual_smoothing
from attribution_sched.scheduler.milp import solve_milp

from .assignments import brute_force, small_problems

GPUS_TFLOPS = np.array([10.0, 8.0, 6.0])
TASKS_TFLOPS = np.array([5.0, 6.0, 4.0, 3.0])


@pytest.mark.parametrize("solve", [solve_milp, solve_dual_smoothing])
def test_the_worked_example(solve):
    # Three GPUs, four tasks, utilisation is to be maximised, so utility = demand. The model printed with the example
    # forgets task 4 and mixes up coefficients: its objective gives task 1 the values 5, 6, 6 and shifts the demands
    # of tasks 2 to 4 up by one row. Stated right, all four tasks find room: 24 TFLOP/s are there for 18.
    demand = np.repeat(TASKS_TFLOPS[:, None], 3, axis=1)
    programme = Assignment(demand, demand, GPUS_TFLOPS)
    solution = solve(programme)
    assert programme.feasible(solution.choice)
    assert (solution.choice != NONE).all()
    assert solution.value == 18.0
    assert solution.bound == pytest.approx(18.0)
    assert solution.status == "optimal"


@given(small_problems())
@settings(deadline=None, max_examples=50)
def test_it_finds_the_optimum(programme):
    solution = solve_milp(programme, relative_gap=0.0)
    assert programme.feasible(solution.choice)
    assert solution.value == programme.value(solution.choice)
    assert solution.value == pytest.approx(brute_force(programme), abs=1e-9)
    assert solution.bound == pytest.approx(solution.value, abs=1e-6)
    assert solution.status == "optimal"


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_figures_of_any_size_are_solved(size):
    small = random_problem("uniform", 8, 3, 0)
    scaled = Assignment(small.utility * size, small.demand * size, small.capacity * size)
    truth = solve_milp(small, relative_gap=0.0)
    assert solve_milp(scaled, relative_gap=0.0).value == pytest.approx(truth.value * size, rel=1e-9)


def test_out_of_time_it_still_answers_with_a_feasible_choice_and_a_bound():
    programme = random_problem("correlated", 60, 10, 1)
    short = solve_milp(programme, time_limit_s=0.2)
    assert short.status == "time limit"
    assert programme.feasible(short.choice)
    assert 0.0 < short.value < short.bound
    assert short.seconds < 5.0


@pytest.mark.parametrize("overstep", [False, True], ids=["empty-handed", "overloaded"])
def test_what_the_solver_fails_to_do_is_mended(monkeypatch, overstep):
    programme = random_problem("uniform", 20, 4, 2)
    pairs = int(programme.admissible.sum())

    class Found:
        x = np.ones(pairs) if overstep else None
        mip_dual_bound, mip_node_count = None, None

    monkeypatch.setattr(scipy.optimize, "milp", lambda *args, **kwargs: Found())
    solution = solve_milp(programme)
    assert programme.feasible(solution.choice)
    assert solution.value > 0.0
    assert solution.bound == pytest.approx(programme.utility.max(axis=1).sum())
    assert solution.status == "time limit"


def test_nothing_to_gain_is_an_answer():
    solution = solve_milp(Assignment(np.array([[-1.0, 3.0]]), np.array([[0.0, 2.0]]), np.array([1.0, 1.0])))
    assert (solution.choice.tolist(), solution.value, solution.bound) == ([NONE], 0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"time_limit_s": 0.0}, "time_limit_s"), ({"time_limit_s": np.nan}, "time_limit_s"),
     ({"relative_gap": 1.0}, "relative_gap"), ({"relative_gap": np.nan}, "relative_gap")],
)  # fmt: skip
def test_limits_that_make_no_sense_are_refused(changes, field):
    with pytest.raises(SettingsError, match=field):
        solve_milp(random_problem("uniform", 3, 2, 0), **changes)
