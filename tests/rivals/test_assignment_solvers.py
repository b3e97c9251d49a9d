"""HiGHS and dual smoothing: feasible choices, proven bounds."""

import itertools
import time

import numpy as np
import pytest
import scipy.optimize
from assignment_crossover import FAMILIES, random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import SettingsError
from attribution_sched.rivals.assignment import NONE, Assignment
from attribution_sched.rivals.assignment_solvers import Dual, Smoothing, solve_dual_smoothing, solve_milp

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


def test_out_of_nodes_it_answers_the_same_however_busy_the_machine_is(monkeypatch):
    programme = random_problem("correlated", 60, 10, 1)
    first = solve_milp(programme, np.inf, nodes=3)
    assert first.status == "node limit" and programme.feasible(first.choice)
    # A clock that runs a thousand times faster is a machine that is a thousand times slower.
    ticks = itertools.count(0.0, 1000.0)
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    again = solve_milp(programme, np.inf, nodes=3)
    assert again.choice.tolist() == first.choice.tolist() and again.bound == first.bound


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


@given(small_problems())
@settings(deadline=None, max_examples=100)
def test_value_optimum_and_bound_are_in_order(programme):
    solution = solve_dual_smoothing(programme, Smoothing(rounds=50))
    optimum = brute_force(programme)
    assert programme.feasible(solution.choice)
    assert solution.value == programme.value(solution.choice)
    assert solution.value <= optimum + 1e-9
    assert solution.bound >= optimum - 1e-9


@given(small_problems(), st.lists(st.floats(0.0, 50.0), min_size=3, max_size=3), st.floats(0.01, 10.0))
@settings(deadline=None, max_examples=100)
def test_any_prices_give_a_bound(programme, prices, temperature):
    dual = Dual(programme)
    point = dual.at(np.array(prices[: len(dual.room)]), temperature)
    assert brute_force(programme) - 1e-9 <= point.bound <= point.smooth + 1e-9


@given(small_problems())
@settings(deadline=None, max_examples=50)
def test_re_building_reaches_the_optimum_of_small_problems(programme):
    assert solve_dual_smoothing(programme).value == pytest.approx(brute_force(programme), rel=1e-3)


@pytest.mark.parametrize("shared", [False, True], ids=["own pools", "shared pools"])
def test_the_gradient_is_that_of_the_smoothed_dual(shared):
    plain = random_problem("uniform", 12, 6, 3)
    given_pools = {"pool": np.arange(6) // 2, "capacity": plain.capacity[:3]} if shared else {}
    dual = Dual(
        Assignment(**({"utility": plain.utility, "demand": plain.demand, "capacity": plain.capacity} | given_pools))
    )
    price, small = np.linspace(5.0, 60.0, len(dual.room)), 1e-5
    gradient = dual.at(price, 3.0).gradient
    for p in range(len(price)):
        step = small * (np.arange(len(price)) == p)
        slope = (dual.at(price + step, 3.0).smooth - dual.at(price - step, 3.0).smooth) / (2 * small)
        assert gradient[p] == pytest.approx(slope, abs=1e-5)


def test_smoothing_lies_above_the_dual_by_at_most_its_entropy():
    programme = random_problem("uniform", 30, 5, 4)
    dual, price = Dual(programme), np.full(5, 40.0)
    for temperature in (10.0, 1.0, 0.01):
        point = dual.at(price, temperature)
        assert point.bound <= point.smooth <= point.bound + 30 * temperature * np.log(6) + 1e-9


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bound_comes_close_to_the_linear_relaxation(family):
    # The relaxed problem per task is integral, so the least dual is the value of the linear relaxation.
    programme = random_problem(family, 60, 6, 5)
    relaxed = relaxation(programme)
    bound = solve_dual_smoothing(programme, Smoothing(rounds=0, relative_gap=0.0)).bound
    assert relaxed - 1e-6 <= bound <= relaxed * 1.005


def relaxation(programme):
    from scipy.optimize import linprog

    n, m = programme.shape
    rows = np.zeros((n + m, n * m))
    for i in range(n):
        rows[i, i * m : (i + 1) * m] = 1.0
        rows[n + np.arange(m), i * m + np.arange(m)] = programme.demand[i]
    most = np.concatenate([np.ones(n), programme.capacity])
    return -linprog(-programme.utility.ravel(), A_ub=rows, b_ub=most, bounds=(0, 1)).fun


@pytest.mark.parametrize("family", FAMILIES)
def test_within_one_per_cent_of_the_optimum(family):
    for n, m, seed in ((12, 3, 0), (12, 3, 1), (15, 4, 2)):
        programme = random_problem(family, n, m, seed)
        truth = solve_milp(programme, relative_gap=1e-4)
        assert truth.status == "optimal"
        found = solve_dual_smoothing(programme)
        assert programme.feasible(found.choice)
        assert found.value >= 0.99 * truth.value
        assert found.bound >= truth.value - 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_within_one_per_cent_up_to_two_hundred_tasks(family):
    for n, m, seed in ((50, 10, 0), (100, 10, 1), (200, 20, 2)):
        programme = random_problem(family, n, m, seed)
        rival = solve_milp(programme, time_limit_s=8.0)
        found = solve_dual_smoothing(programme)
        assert programme.feasible(found.choice)
        assert found.value >= 0.99 * rival.value
        assert found.bound >= rival.value - 1e-6


def test_large_problems_close_their_gap_in_seconds():
    programme = random_problem("uniform", 1000, 40, 6)
    found = solve_dual_smoothing(programme)
    assert programme.feasible(found.choice)
    assert found.relative_gap < 0.005
    assert found.seconds < 10.0


def test_re_building_helps():
    programmes = [random_problem("tight", 50, 10, seed) for seed in range(6)]
    plain, rebuilt = (
        sum(solve_dual_smoothing(each, Smoothing(rounds=rounds)).value for each in programmes) for rounds in (0, 500)
    )
    assert rebuilt > plain


def test_the_same_seed_gives_the_same_choice():
    programme = random_problem("correlated", 40, 5, 8)
    one, two = (solve_dual_smoothing(programme, Smoothing(seed=3)) for _ in range(2))
    assert np.array_equal(one.choice, two.choice)
    assert (one.value, one.bound) == (two.value, two.bound)


def test_equal_columns_are_all_used():
    # Few candidate columns per task must not be the same few for all.
    programme = Assignment(np.ones((40, 40)), np.ones((40, 40)), np.ones(40))
    found = solve_dual_smoothing(programme, Smoothing())
    assert found.value == 40.0
    assert found.status == "optimal"


def test_columns_of_one_pool_are_sizes_of_one_resource():
    # Eight devices for two tasks: 4 + 4 devices are worth more than 8 for one.
    utility = np.tile([3.0, 5.0, 7.0], (2, 1))
    programme = Assignment(utility, np.tile([2.0, 4.0, 8.0], (2, 1)), np.array([8.0]), np.zeros(3, dtype=np.int64))
    assert solve_dual_smoothing(programme).choice.tolist() == [1, 1]


def test_nothing_to_gain_is_an_answer_of_smoothing_too():
    found = solve_dual_smoothing(Assignment(np.array([[-1.0, 3.0]]), np.array([[0.0, 2.0]]), np.ones(2)))
    assert (found.choice.tolist(), found.value, found.bound, found.status) == ([NONE], 0.0, 0.0, "optimal")


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_units_do_not_matter(size):
    plain = random_problem("uniform", 20, 4, 9)
    scaled = Assignment(plain.utility * size, plain.demand / size, plain.capacity / size)
    assert solve_dual_smoothing(scaled).value == pytest.approx(solve_dual_smoothing(plain).value * size, rel=0.01)


@pytest.mark.parametrize(
    "changes",
    [{"stages": 0}, {"steps": 0}, {"rounds": -1}, {"relative_gap": -0.1}, {"relative_gap": np.nan}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(SettingsError, match="smoothing"):
        Smoothing(**changes)
