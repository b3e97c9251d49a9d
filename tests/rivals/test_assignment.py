"""The assignment model, and the repair of choices."""

import numpy as np
import pytest
from assignment_crossover import random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import TaskError
from attribution_sched.rivals.assignment import NONE, Assignment, Repair, Solution, repaired

from .assignments import small_problems

UTILITY = np.array([[5.0, 2.0], [3.0, -np.inf], [1.0, 4.0]])
DEMAND = np.array([[2.0, 1.0], [2.0, 1.0], [3.0, 2.0]])
CAPACITY = np.array([4.0, 2.0])


def made(**changes):
    return Assignment(**({"utility": UTILITY, "demand": DEMAND, "capacity": CAPACITY} | changes))


def test_value_and_load_of_a_choice():
    programme = made()
    choice = np.array([0, 0, 1])
    assert programme.value(choice) == 12.0
    assert programme.load(choice).tolist() == [4.0, 2.0]
    assert programme.feasible(choice)
    assert programme.value(np.full(3, NONE)) == 0.0


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param([0, NONE, 0], id="overload"),
        pytest.param([0, 1, NONE], id="forbidden pair"),
        pytest.param([0, 2, NONE], id="no such column"),
        pytest.param([0, 0], id="a task left out"),
    ],
)
def test_what_is_not_feasible(choice):
    assert not made().feasible(np.array(choice))


def test_columns_of_one_pool_share_its_capacity():
    programme = made(pool=np.array([0, 0]), capacity=np.array([4.0]))
    assert programme.load(np.array([0, 0, NONE])).tolist() == [4.0]
    assert programme.feasible(np.array([0, 0, NONE]))
    assert not programme.feasible(np.array([0, 0, 1]))


def test_admissible_pairs_gain_something_and_fit_an_empty_pool():
    programme = made(capacity=np.array([2.0, 1.0]))
    assert programme.admissible.tolist() == [[True, True], [True, False], [False, False]]


def test_rounding_of_sums_is_no_overload():
    tenth = Assignment(np.ones((3, 1)), np.full((3, 1), 0.1), np.array([0.3]))
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert tenth.feasible(np.zeros(3, dtype=np.int64))


def test_arrays_are_copied_and_closed():
    given = UTILITY.copy()
    programme = made(utility=given)
    given[0, 0] = 99.0
    assert programme.utility[0, 0] == 5.0
    with pytest.raises(ValueError, match="read-only"):
        programme.utility[0, 0] = 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"utility": np.where(UTILITY == 2.0, np.nan, UTILITY)}, "utility = "),
        ({"utility": np.where(UTILITY == 2.0, np.inf, UTILITY)}, "utility = "),
        ({"demand": np.where(DEMAND == 3.0, np.nan, DEMAND)}, "demand = "),
        ({"demand": -DEMAND}, "demand = "),
        ({"demand": np.where(DEMAND == 3.0, np.inf, DEMAND)}, "demand = "),
        ({"demand": DEMAND.T}, r"must have the shape \(3, 2\)"),
        ({"capacity": np.array([4.0, -1.0])}, "capacity = "),
        ({"capacity": np.array([np.nan, 1.0])}, "capacity = "),
        ({"capacity": np.array([4.0])}, "capacity = "),
        ({"capacity": 4.0}, "capacity = 4.0"),
        ({"utility": UTILITY[0]}, "utility = "),
        ({"utility": np.empty((0, 2)), "demand": np.empty((0, 2))}, "utility = "),
        ({"utility": np.empty((3, 0)), "demand": np.empty((3, 0))}, "utility = "),
        ({"pool": np.array([0, 2])}, "positions in the 2 capacities"),
        ({"pool": np.array([0])}, "pool = "),
    ],
)
def test_bad_input_is_one_clear_error(changes, message):
    with pytest.raises(TaskError, match=message):
        made(**changes)


def test_the_gap_is_never_negative():
    solution = Solution(np.array([0]), 5.0, 8.0, 0.1, "gap left")
    assert solution.relative_gap == 3.0 / 8.0
    nothing = Solution(np.array([NONE]), 0.0, 0.0, 0.1, "optimal")
    assert nothing.relative_gap == 0.0


@given(small_problems(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=100)
def test_any_choice_becomes_feasible(programme, random):
    wild = np.array([random.choice([NONE, *np.flatnonzero(row).tolist()]) for row in programme.admissible])
    assert programme.feasible(repaired(programme, wild))


@given(small_problems())
@settings(deadline=None, max_examples=100)
def test_no_shift_improves_what_it_returns(programme):
    choice = repaired(programme, np.full(programme.shape[0], NONE))
    value = programme.value(choice)
    for i in range(programme.shape[0]):
        for k in range(programme.shape[1]):
            moved = choice.copy()
            moved[i] = k
            assert not programme.feasible(moved) or programme.value(moved) <= value + 1e-6


def test_an_overloaded_pool_loses_what_is_worth_least_per_unit():
    utility, demand = np.array([[6.0], [4.0], [9.0]]), np.array([[2.0], [2.0], [3.0]])
    programme = Assignment(utility, demand, np.array([5.0]))
    assert repaired(programme, np.zeros(3, dtype=np.int64)).tolist() == [0, NONE, 0]


def test_two_tasks_swap_where_neither_can_shift():
    utility = np.array([[1.0, 5.0], [5.0, 1.0]])
    programme = Assignment(utility, np.full((2, 2), 3.0), np.array([3.0, 3.0]))
    assert repaired(programme, np.array([0, 1])).tolist() == [1, 0]


def test_a_task_makes_room_by_pushing_another_elsewhere():
    # Task 2 fits pool 0 only, task 0 is there and may as well go to pool 1.
    utility = np.array([[5.0, 4.0], [3.0, 2.0], [6.0, -np.inf]])
    programme = Assignment(utility, np.array([[2.0, 2.0], [1.0, 1.0], [2.0, 2.0]]), np.array([3.0, 2.0]))
    assert repaired(programme, np.array([0, 0, NONE])).tolist() == [1, 0, 0]


def test_re_building_never_loses_and_stops_at_its_target():
    programme = random_problem("tight", 40, 8, 1)
    repair = Repair(programme, 8)
    start = repaired(programme, np.full(40, NONE))
    value = programme.value(start)
    better = repair.rebuilt(start, repair.utility, 300, np.inf, np.random.default_rng(0))
    assert programme.feasible(better)
    assert programme.value(better) > value
    same = repair.rebuilt(start, repair.utility, 300, value * (1 - 1e-9), np.random.default_rng(0))
    assert np.array_equal(same, start)
