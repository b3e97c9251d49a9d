"""Coin flips times the state with a zero baseline: a Banzhaf value, which does not add up."""

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.shapley.explain import estimate
from attribution_sched.shapley.game import FunctionGame
from attribution_sched.shapley.tabular import TabularGame
from research.banzhaf import banzhaf
from tests.shapley.games import StateGame, by_orders, table_game

STATE = np.array([0.9, 0.8, 0.7, 0.6, 0.5])


def policy(rows):
    """Chance of a placement that needs most of five readings to be high: a sharp, interacting function."""
    return 1.0 / (1.0 + np.exp(-10.0 * (rows.sum(axis=1) - 3.0)))


def coin_flips(state, value, samples, seed):
    """Independent masks with chance one half, mask times state, mean marginal of each input."""
    rng = np.random.default_rng(seed)
    total = np.zeros(len(state))
    for _ in range(samples):
        mask = (rng.random(len(state)) < 0.5).astype(float)
        for i in range(len(state)):
            present, absent = mask.copy(), mask.copy()
            present[i], absent[i] = 1.0, 0.0
            total[i] += (value((present * state)[None]) - value((absent * state)[None]))[0]
    return total / samples


@pytest.fixture(scope="module")
def zero_baseline():
    return TabularGame(policy, STATE, np.zeros((1, 5)))


def test_coin_flips_estimate_the_banzhaf_value(zero_baseline):
    exact = banzhaf(zero_baseline, method="exact")
    flips = coin_flips(STATE, policy, 2000, seed=0)
    sampled = banzhaf(zero_baseline, masks=2000, seed=1)
    assert (np.abs(flips - exact.values[:, 0]) < 4.0 * sampled.standard_error[:, 0]).all()
    assert (np.abs(sampled.values - exact.values) < 4.0 * sampled.standard_error).all()
    shapley = estimate(zero_baseline, method="exact")
    assert (np.abs(flips - shapley.values[:, 0]) > 4.0 * sampled.standard_error[:, 0]).any()


def test_they_miss_a_measured_part_of_the_sum(zero_baseline):
    """The figures of docs/shapley_or_banzhaf.md."""
    exact, shapley = banzhaf(zero_baseline, method="exact"), estimate(zero_baseline, method="exact")
    explained = shapley.full - shapley.base
    assert np.abs(shapley.efficiency_gap()).max() < 1e-12
    share = float(exact.values.sum() / explained[0])
    assert share == pytest.approx(0.49277, abs=5e-6)
    assert float(exact.efficiency_gap()[0] / explained[0]) == pytest.approx(1.0 - share)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_exact_equals_the_definition(d):
    table = np.random.default_rng(d).normal(size=(1 << d, 2))
    codes = np.arange(1 << d)
    want = [(table[codes | 1 << j] - table[codes & ~(1 << j)]).mean(axis=0) for j in range(d)]
    got = banzhaf(table_game(table), method="exact")
    np.testing.assert_allclose(got.values, want, atol=1e-12)
    if d <= 2:
        np.testing.assert_allclose(got.values, by_orders(table), atol=1e-12)


def test_a_background_is_averaged_over():
    game = StateGame(d=6, states=30)
    exact, sampled = banzhaf(game, method="exact"), banzhaf(game, masks=3000)
    assert (np.abs(exact.values - sampled.values) < 4.5 * sampled.standard_error).all()
    low, high = sampled.interval()
    assert ((low < exact.values) & (exact.values < high)).mean() > 0.8
    np.testing.assert_allclose(exact.base, sampled.base)


def test_bad_input_is_one_clear_error():
    game = FunctionGame(lambda c: c.sum(axis=1), tuple(f"p{i}" for i in range(25)))
    with pytest.raises(ExplanationError, match="at most 20"):
        banzhaf(game, method="exact")
    with pytest.raises(ExplanationError, match="masks = 1"):
        banzhaf(game, masks=1)
    with pytest.raises(ExplanationError, match="Did you mean 'exact'"):
        banzhaf(game, method="exakt")
