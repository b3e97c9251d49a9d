"""Enumeration equals the definition."""

import itertools

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.shapley.exact import all_coalitions, codes_of, shapley_matrix, shapley_of_table
from attribution_sched.shapley.explain import estimate
from attribution_sched.shapley.game import FunctionGame
from tests.shapley.games import StateGame, by_orders, table_game


@pytest.mark.parametrize("d", range(1, 8))
def test_equals_the_mean_over_all_orders(d):
    table = np.random.default_rng(d).normal(size=(1 << d, 3))
    got = estimate(table_game(table), method="exact")
    np.testing.assert_allclose(got.values, by_orders(table), rtol=0, atol=1e-12)
    assert (got.standard_error == 0.0).all()
    assert got.method == "exact"
    assert got.evaluations == (1 << d) + 1


@pytest.mark.parametrize("d", [11, 13, 16])
def test_many_players_against_unanimity_games(d):
    """Every game is a sum of unanimity games, whose members share equally: the truth without any enumeration."""
    rng = np.random.default_rng(d)
    members = rng.random((40, d)) < rng.random((40, 1))
    members[~members.any(axis=1), 0] = True
    worth = rng.normal(size=(40, 2))
    truth = (members / members.sum(axis=1, keepdims=True)).T @ worth
    inside = members.astype(np.int64)

    def value(coalitions):
        return (coalitions.astype(np.int64) @ inside.T == inside.sum(axis=1)) @ worth

    names = tuple(f"p{j}" for j in range(d))
    got = estimate(FunctionGame(value, names, ("u", "v")), method="exact")
    np.testing.assert_allclose(got.values, truth, rtol=0, atol=1e-9)
    assert np.abs(got.efficiency_gap()).max() < 1e-12


def test_the_folded_sum_is_the_sum_over_coalitions():
    table = np.random.default_rng(0).normal(size=(3, 1 << 11, 2))
    masks = all_coalitions(11)
    weight = {s: 1.0 / (11 * len(list(itertools.combinations(range(10), s)))) for s in range(11)}
    size = masks.sum(axis=1)
    for j in (0, 5, 10):
        without = np.flatnonzero(~masks[:, j])
        gain = table[:, without | 1 << j] - table[:, without]
        want = np.einsum("s,msc->mc", [weight[s] for s in size[without]], gain)
        np.testing.assert_allclose(shapley_of_table(table)[:, j], want, atol=1e-12)


@pytest.mark.parametrize("d", range(1, 10))
def test_the_matrix_and_the_folded_sum_agree(d):
    table = np.random.default_rng(d).normal(size=(4, 1 << d))
    np.testing.assert_allclose(table @ shapley_matrix(d), shapley_of_table(table[..., None])[..., 0], atol=1e-12)


def test_codes_number_the_coalitions():
    np.testing.assert_array_equal(codes_of(all_coalitions(5)), np.arange(32))
    np.testing.assert_array_equal(all_coalitions(5, 7, 9), all_coalitions(5)[7:9])
    assert shapley_of_table(np.ones((3, 1, 2))).shape == (3, 0, 2)


def test_averages_over_the_whole_background():
    game = StateGame(d=5, states=7)
    got = estimate(game, method="exact")
    masks = all_coalitions(5)
    each = np.stack([game(masks, np.full(32, b)) for b in range(7)])
    np.testing.assert_allclose(got.values, by_orders(each.mean(axis=0)), atol=1e-12)
    by_state = np.stack([by_orders(table) for table in each])
    np.testing.assert_allclose(got.standard_error, by_state.std(axis=0, ddof=1) / np.sqrt(7), rtol=1e-9)
    assert got.background == 7
    assert got.freedom == 6
    fixed = estimate(game, method="exact", background="population")
    assert (fixed.standard_error == 0.0).all()
    assert (fixed.base_error == 0.0).all()
    np.testing.assert_array_equal(fixed.values, got.values)


def test_too_many_players_are_refused():
    names = tuple(f"p{j}" for j in range(21))
    with pytest.raises(ExplanationError, match="at most 20"):
        estimate(FunctionGame(lambda c: c.sum(axis=1), names), method="exact")
