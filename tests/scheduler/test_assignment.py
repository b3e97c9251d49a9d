"""The assignment model: what is a problem, what is a feasible choice, what is refused."""

import numpy as np
import pytest

from attribution_sched.errors import TaskError
from attribution_sched.scheduler.assignment import NONE, Assignment, Solution

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
        ({"utility": np.where(UTILITY == 2.0, np.nan, UTILITY)}, r"utility\[0, 1\] = nan"),
        ({"utility": np.where(UTILITY == 2.0, np.inf, UTILITY)}, r"utility\[0, 1\] = inf"),
        ({"demand": np.where(DEMAND == 3.0, np.nan, DEMAND)}, r"demand\[2, 0\] = nan"),
        ({"demand": -DEMAND}, r"demand\[0, 0\] = -2.0"),
        ({"demand": np.where(DEMAND == 3.0, np.inf, DEMAND)}, r"demand\[2, 0\] = inf"),
        ({"demand": DEMAND.T}, r"demand.shape = \(2, 3\)"),
        ({"capacity": np.array([4.0, -1.0])}, r"capacity\[1\] = -1.0"),
        ({"capacity": np.array([np.nan, 1.0])}, r"capacity\[0\] = nan"),
        ({"capacity": np.array([4.0])}, r"capacity.shape = \(1,\)"),
        ({"capacity": 4.0}, r"capacity.shape = \(\)"),
        ({"utility": UTILITY[0]}, r"utility.shape = \(2,\)"),
        ({"utility": [[1.0], [1.0, 2.0]]}, "utility = 'list'"),
        ({"utility": np.empty((0, 2)), "demand": np.empty((0, 2))}, r"utility.shape = \(0, 2\)"),
        ({"utility": np.empty((3, 0)), "demand": np.empty((3, 0))}, r"utility.shape = \(3, 0\)"),
        ({"pool": np.array([0, 2])}, r"pool\[1\] = 2"),
        ({"pool": np.array([0.0, 1.0])}, "pool = "),
        ({"pool": np.array([0])}, "pool = "),
    ],
)
def test_bad_input_is_one_clear_error(changes, message):
    with pytest.raises(TaskError, match=message):
        made(**changes)


def test_the_gap_is_never_negative():
    solution = Solution(np.array([0]), 5.0, 8.0, 0.1, "gap left", "test", 1)
    assert (solution.gap, solution.relative_gap) == (3.0, 3.0 / 8.0)
    nothing = Solution(np.array([NONE]), 0.0, 0.0, 0.1, "optimal", "test", 1)
    assert (nothing.gap, nothing.relative_gap) == (0.0, 0.0)
