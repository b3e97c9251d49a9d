"""Walks: their order of states, their rows, and that rounds do not change them."""

import numpy as np
import pytest

from attribution_sched.shapley.orders import rows_per_walk, state_sequence, walk_plan, walk_values


@pytest.mark.parametrize("n_background", [1, 2, 7, 5000])
def test_all_states_are_used_before_any_is_used_again(n_background):
    got = state_sequence(n_background, 3 * n_background + 1, seed=4)
    for cycle in range(3):
        part = got[cycle * n_background : (cycle + 1) * n_background]
        np.testing.assert_array_equal(np.sort(part), np.arange(n_background))
    np.testing.assert_array_equal(got[:n_background], state_sequence(n_background, n_background, seed=4))


def test_rounds_join_to_the_same_walks():
    whole = walk_plan(5, 11, 0, 150, 3)
    parts = [walk_plan(5, 11, a, b, 3) for a, b in ((0, 2), (2, 70), (70, 150))]
    for field in ("rank", "slots", "coalitions", "background"):
        np.testing.assert_array_equal(getattr(whole, field), np.concatenate([getattr(part, field) for part in parts]))


def test_a_walk_grows_by_one_player_and_comes_back_in_reverse():
    d = 6
    plan = walk_plan(d, 4, 0, 10, 0)
    walks = plan.coalitions.reshape(10, rows_per_walk(d), d)
    size = [0, *range(1, d), *range(1, d)]
    np.testing.assert_array_equal(walks.sum(axis=2), np.tile(size, (10, 1)))
    forwards, backwards = walks[:, 1:d], walks[:, d:]
    assert (forwards[:, 1:] >= forwards[:, :-1]).all()
    np.testing.assert_array_equal(backwards, ~forwards[:, ::-1])


def test_slots_number_the_states_in_order_of_use():
    plan = walk_plan(3, 5, 0, 12, 9)
    np.testing.assert_array_equal(plan.slots[:5], np.arange(5))
    states = plan.background[:: rows_per_walk(3)]
    np.testing.assert_array_equal(states[:5][plan.slots], states)


def test_steps_go_to_the_player_that_made_them():
    weight = np.array([1.0, 10.0, 100.0, 1000.0])
    plan = walk_plan(4, 1, 0, 8, 0)
    values = (plan.coalitions @ weight)[None, :, None]
    walks, empty = walk_values(plan, values, np.array([[weight.sum()]]))
    np.testing.assert_allclose(walks[0, :, :, 0], np.tile(weight, (8, 1)))
    assert (empty == 0.0).all()
