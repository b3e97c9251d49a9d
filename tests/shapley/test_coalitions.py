import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import ModelFitError
from attribution_sched.shapley.coalitions import (
    all_masks,
    sample_coalitions,
    shapley_matrix,
    solve_sampled,
)


def by_permutations(values, d):
    """Shapley values as the mean marginal contribution over all orders: another formula for the same thing."""
    phi = np.zeros(d)
    for order in itertools.permutations(range(d)):
        code = 0
        for j in order:
            phi[j] += values[code | (1 << j)] - values[code]
            code |= 1 << j
    return phi / math.factorial(d)


@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_the_matrix_gives_the_mean_over_all_orders(d, seed):
    values = np.random.default_rng(seed).normal(size=2**d)
    np.testing.assert_allclose(values @ shapley_matrix(d), by_permutations(values, d), atol=1e-12)


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=20)
def test_efficiency_for_any_game(d, seed):
    values = np.random.default_rng(seed).normal(size=2**d)
    assert (values @ shapley_matrix(d)).sum() == pytest.approx(values[-1] - values[0], abs=1e-10)


def test_shapiq_agrees():
    shapiq = pytest.importorskip("shapiq")
    d = 5
    values = np.random.default_rng(4).normal(size=2**d)
    values[0] = 0.0
    lookup = {tuple(mask): v for mask, v in zip(all_masks(d).tolist(), values, strict=True)}
    game = lambda coalitions: np.array([lookup[tuple(bool(b) for b in c)] for c in coalitions])  # noqa: E731
    theirs = shapiq.ExactComputer(game, n_players=d)("SV", order=1)
    np.testing.assert_allclose(values @ shapley_matrix(d), [theirs[(j,)] for j in range(d)], atol=1e-10)


def test_pairs_are_complements_and_no_coalition_is_trivial():
    sample = sample_coalitions(15, 480, 4, np.random.default_rng(0))
    assert sample.masks.shape == (4, 120, 15)
    assert (sample.masks[:, 0::2] == ~sample.masks[:, 1::2]).all()
    size = sample.masks.sum(-1)
    assert size.min() >= 1
    assert size.max() <= 14


def test_every_size_is_met():
    size = sample_coalitions(15, 480, 4, np.random.default_rng(0)).masks.sum(-1)
    for group in size:
        assert set(range(1, 15)) <= set(group.tolist())


def test_additive_games_are_solved_exactly():
    rng = np.random.default_rng(1)
    sample = sample_coalitions(15, 480, 4, rng)
    worth = rng.normal(size=15)
    values = 2.0 + sample.masks @ worth
    phi, error = solve_sampled(sample, values[None], 2.0, np.array([2.0 + worth.sum()]))
    np.testing.assert_allclose(phi[0], worth, atol=1e-10)
    np.testing.assert_allclose(error, 0, atol=1e-10)


def test_sampled_solution_approaches_the_exact_one_and_its_error_is_honest():
    d, rng = 10, np.random.default_rng(2)
    worth, pair = rng.normal(size=d), 0.3 * rng.normal(size=(d, d))

    def game(masks):
        z = masks.astype(float)
        return z @ worth + np.einsum("...i,ij,...j->...", z, pair, z) + 0.5 * np.sin(2 * z @ worth)

    exact = game(all_masks(d)) @ shapley_matrix(d)
    full = np.array([game(np.ones((1, d), bool))[0]])
    inside, gaps = [], []
    for seed in range(25):
        sample = sample_coalitions(d, 640, 8, np.random.default_rng(seed))
        phi, error = solve_sampled(sample, game(sample.masks)[None], 0.0, full)
        assert phi.sum() == pytest.approx(full[0], abs=1e-9)
        gaps.append(np.abs(phi[0] - exact).mean())
        inside.append(np.abs(phi[0] - exact) < 2.36 * error[0])
    assert np.mean(gaps) < 0.05 * np.abs(exact).mean()
    assert 0.88 <= np.mean(inside) <= 0.99


def test_too_few_coalitions_are_refused():
    with pytest.raises(ModelFitError, match="at least 240 coalitions"):
        sample_coalitions(15, 100, 8, np.random.default_rng(0))
