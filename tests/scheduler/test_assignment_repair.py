"""The repair: whatever it is given, it returns a feasible choice that no single move improves."""

import numpy as np
from assignment_crossover import random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.scheduler.assignment import NONE, Assignment
from attribution_sched.scheduler.assignment_repair import Repair, repaired

from .assignments import small_problems


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
