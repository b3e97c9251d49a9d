"""shap and shapiq agree with us where all of them estimate the same thing."""

import warnings

import numpy as np
import pytest

from attribution_sched.shapley.explain import estimate
from attribution_sched.shapley.interactions import interactions
from attribution_sched.shapley.tabular import TabularGame

RNG = np.random.default_rng(4)
WEIGHT, PAIR = RNG.normal(size=(7, 2)), RNG.normal(size=(7, 7)) * 0.4
X, BACKGROUND = RNG.normal(size=7), RNG.normal(size=(12, 7))


def model(rows):
    return np.tanh(rows @ WEIGHT) + (np.einsum("ni,ij,nj->n", rows, PAIR, rows) * 0.2)[:, None]


def game():
    return TabularGame(model, X, BACKGROUND, outputs=("a", "b"))


@pytest.fixture(scope="module")
def shap():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("shap")


@pytest.fixture(scope="module")
def shapiq():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("shapiq")


def within_error(got, truth):
    """Every sampled value within five standard errors about the fixed background."""
    return (np.abs(got.values - truth) <= 5.0 * got.standard_error + 1e-9).all()


@pytest.mark.slow
def test_shap_exact(shap):
    """Slow only because shap compiles."""
    masker = shap.maskers.Independent(BACKGROUND, max_samples=12)
    truth = shap.ExactExplainer(model, masker)(X[None]).values[0]
    np.testing.assert_allclose(estimate(game(), method="exact").values, truth, atol=1e-9)


@pytest.mark.slow
def test_shap_permutation(shap):
    masker = shap.maskers.Independent(BACKGROUND, max_samples=12)
    theirs = shap.PermutationExplainer(model, masker, seed=0)(X[None], max_evals=15 * 400, silent=True).values[0]
    np.testing.assert_allclose(estimate(game(), method="exact").values, theirs, atol=0.02)


def test_shap_kernel(shap):
    # With two to the seventh coalitions allowed it enumerates them all.
    theirs = shap.KernelExplainer(model, BACKGROUND).shap_values(X[None], nsamples=2000, l1_reg=0, silent=True)[0]
    np.testing.assert_allclose(estimate(game(), method="exact").values, theirs, atol=1e-6)
    for method in ("permutation", "kernel"):
        got = estimate(game(), method=method, budget_rows=5000, background="population")
        assert within_error(got, theirs)
        assert got.standard_error.max() < 0.02


def averaged(output):
    def value(coalitions):
        coalitions = np.atleast_2d(coalitions)
        rows = np.repeat(coalitions, 12, axis=0)
        values = game()(rows, np.tile(np.arange(12), len(coalitions)))
        return values.reshape(len(coalitions), 12, 2).mean(axis=1)[:, output]

    return value


def test_shapiq_values_and_interactions(shapiq):
    ours, together = estimate(game(), method="exact"), interactions(game())
    assert together.exact
    for output in (0, 1):
        computer = shapiq.ExactComputer(averaged(output), n_players=7)
        np.testing.assert_allclose(ours.values[:, output], computer("SV").get_n_order_values(1), atol=1e-9)
        theirs = computer("SII", order=2).get_n_order_values(2)
        np.testing.assert_allclose(together.values[:, output], theirs[np.triu_indices(7, 1)], atol=1e-9)
