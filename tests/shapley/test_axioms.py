"""The four axioms that single out the Shapley value, held by every estimator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.shapley.explain import estimate
from attribution_sched.shapley.futures import estimate_futures
from attribution_sched.shapley.game import FunctionGame
from tests.shapley.games import StateGame, table_game

ROWS = {"exact": None, "permutation": 400, "kernel": 400, "futures": None, "orders of futures": None}
WITHOUT_NOISE = ("exact", "futures")
METHODS = pytest.mark.parametrize("method", list(ROWS))
tables = st.tuples(st.integers(4, 6), st.integers(0, 2**32 - 1))


def draw(case):
    d, seed = case
    return np.random.default_rng(seed).normal(size=(1 << d, 2)) * 10.0, d


def explain(game, method, seed=3):
    if "futures" in method:

        def value(masks, numbers):
            return np.repeat(game(masks, np.zeros(len(masks), dtype=int))[:, None], len(numbers), axis=1)

        return estimate_futures(value, game.players, game.outputs, 9, exact=method == "futures", pairs=3, seed=seed)
    return estimate(game, method=method, budget_rows=ROWS[method], seed=seed)


@METHODS
@given(tables)
@settings(deadline=None, max_examples=40)
def test_efficiency(method, case):
    table, _ = draw(case)
    got = explain(table_game(table), method)
    np.testing.assert_allclose(got.values.sum(axis=0), table[-1] - table[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(got.base, table[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(got.full, table[-1], rtol=0, atol=1e-12)
    assert np.abs(got.efficiency_gap()).max() < 1e-12


@pytest.mark.parametrize("method", ["exact", "permutation", "kernel"])
def test_efficiency_against_the_background_used(method):
    game = StateGame(d=6, states=30)
    got = estimate(game, method=method, budget_rows=None if method == "exact" else 1000)
    used = game(np.zeros((30, 6), dtype=bool), np.arange(30))
    if got.background == 30:
        np.testing.assert_allclose(got.base, used.mean(axis=0), rtol=1e-12)
    assert np.abs(got.efficiency_gap()).max() < 1e-12
    np.testing.assert_allclose(got.values.sum(axis=0), got.full - got.base, rtol=0, atol=1e-12)


@METHODS
@given(tables)
@settings(deadline=None, max_examples=40)
def test_dummy(method, case):
    """A player that changes nothing gets nothing, and this is known without error."""
    table, d = draw(case)
    codes = np.arange(1 << d)
    idle = table[codes & ~1]
    got = explain(table_game(idle), method)
    # A regression has noise where walks and enumeration have none: the interval must contain zero.
    limit = 6.0 * got.standard_error[0] + 1e-12 if method == "kernel" else 0.0 if "futures" in method else 1e-12
    assert (np.abs(got.values[0]) <= limit).all()


@METHODS
@given(tables)
@settings(deadline=None, max_examples=40)
def test_symmetry(method, case):
    """Players that can stand in for each other get the same; sampled estimators do so within their error."""
    table, d = draw(case)
    codes = np.arange(1 << d)
    swapped = (codes & ~3) | ((codes & 1) << 1) | ((codes >> 1) & 1)
    alike = (table + table[swapped]) / 2.0
    got = explain(table_game(alike), method)
    gap = np.abs(got.values[0] - got.values[1])
    noise = np.zeros(2) if method in WITHOUT_NOISE else 6.0 * np.hypot(got.standard_error[0], got.standard_error[1])
    assert (gap <= noise + 1e-12).all()


@METHODS
@given(tables, st.floats(-3, 3), st.floats(-3, 3))
@settings(deadline=None, max_examples=40)
def test_linearity(method, case, a, b):
    """The values of a weighted sum of outputs are the weighted sum of the values: the same plan serves all outputs."""
    table, _ = draw(case)
    mixed = np.column_stack([table, a * table[:, 0] + b * table[:, 1]])
    got = explain(table_game(mixed), method)
    np.testing.assert_allclose(got.values[:, 2], a * got.values[:, 0] + b * got.values[:, 1], rtol=0, atol=1e-11)
    np.testing.assert_allclose(got.base[2], a * got.base[0] + b * got.base[1], rtol=0, atol=1e-11)


@METHODS
def test_an_additive_game_is_known_at_once(method):
    weight = np.array([1.0, -2.0, 0.5, 4.0])
    game = FunctionGame(lambda coalitions: coalitions @ weight, tuple("abcd"))
    got = explain(game, method)
    np.testing.assert_allclose(got.values[:, 0], weight, atol=1e-12)
    assert got.standard_error.max() < 1e-12
