"""The distilled explainer: it learns, adds up, and says what it is."""

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.shapley.amortised import distil
from attribution_sched.explain.shapley.explain import estimate_many
from attribution_sched.explain.shapley.tabular import TabularBatchGame

RNG = np.random.default_rng(8)
WEIGHT = RNG.normal(size=(5, 2))
BACKGROUND = RNG.normal(size=(20, 5))


def model(rows):
    return np.tanh(rows @ WEIGHT) + 0.3 * (rows[:, :1] * rows[:, 1:2])


def game(x):
    return TabularBatchGame(model, x, BACKGROUND, outputs=("a", "b"))


@pytest.fixture(scope="module")
def trained():
    x = RNG.normal(size=(1500, 5))
    return distil(game(x), x, width=64, epochs=40, batch=128)


def test_it_explains_decisions_it_never_saw(trained):
    x = RNG.normal(size=(60, 5))
    truth = estimate_many(game(x), method="exact")
    got = trained.predict(x, truth.full)
    assert got.method == "amortised"
    assert got.take(3).method == "amortised"
    missed = np.square(got.values - truth.values)
    assert missed.sum() / np.square(truth.values).sum() < 0.05
    assert (trained.nmse < 0.06).all()
    # The error it reports is the error it makes.
    assert np.sqrt(missed.mean()) == pytest.approx(np.sqrt(np.square(trained.standard_error).mean()), rel=0.5)


def test_values_add_up_to_any_base(trained):
    x = RNG.normal(size=(4, 5))
    got = trained.predict(x, model(x))
    np.testing.assert_allclose(got.values.sum(axis=1), model(x) - trained.base, atol=1e-12)
    np.testing.assert_allclose(trained.base, model(BACKGROUND).mean(axis=0), atol=1e-12)
    other = trained.predict(x, model(x), np.zeros(2))
    np.testing.assert_allclose(other.values.sum(axis=1), model(x), atol=1e-12)


def test_training_again_gives_the_same_network(trained):
    x = RNG.normal(size=(200, 5))
    first, second = (distil(game(x), x, width=16, epochs=2, batch=64, held_out=16) for _ in range(2))
    np.testing.assert_array_equal(first.predict(x, model(x)).values, second.predict(x, model(x)).values)


def test_decisions_with_bases_of_their_own_must_bring_them():
    class Own:
        players, outputs, n_background, n_decisions = ("a", "b", "c"), ("v",), 6, 200

        def __call__(self, coalitions, background, decision):
            return (coalitions.sum(axis=1) + background + decision * 1.0)[:, None]

    x = RNG.normal(size=(200, 4))
    got = distil(Own(), x, width=8, epochs=1, held_out=8)
    assert got.base is None
    with pytest.raises(ExplanationError, match="bases of their own"):
        got.predict(x[:1], np.ones((1, 1)))
    assert got.predict(x[:1], np.ones((1, 1)), np.zeros(1)).values.sum() == pytest.approx(1.0)


def test_bad_input_is_one_clear_error(trained):
    with pytest.raises(ExplanationError, match="shapes of features and full"):
        trained.predict(np.zeros((1, 4)), np.zeros((1, 2)))
    with pytest.raises(ExplanationError, match="one row for each of the 30 decisions"):
        distil(game(np.zeros((30, 5))), np.zeros((29, 5)))
    with pytest.raises(ExplanationError, match="at least twice the 64"):
        distil(game(np.zeros((30, 5))), np.zeros((30, 5)))
