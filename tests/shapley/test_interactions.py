"""Pairwise interactions: closed forms, sampling within error, refusals."""

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.shapley.game import FunctionGame
from attribution_sched.shapley.interactions import interactions
from tests.shapley.games import StateGame


def test_a_product_interacts_and_a_sum_does_not():
    game = FunctionGame(lambda c: 3.0 * c[:, 0] * c[:, 1] + 2.0 * c[:, 2] + c[:, 3], tuple("abcd"))
    for budget in (16, 1000):
        got = interactions(game, budget_rows=budget if budget > 16 else 46_000)
        want = [3.0 if pair == ("a", "b") else 0.0 for pair in got.pairs]
        np.testing.assert_allclose(got.values[:, 0], want, atol=1e-12)


def test_a_product_of_three_is_shared_by_its_pairs():
    """For v = abc, a discrete derivative of (a, b) is c, present in half of the uniformly sized coalitions."""
    game = FunctionGame(lambda c: 1.0 * c[:, 0] * c[:, 1] * c[:, 2], tuple("abcde"))
    got = interactions(game)
    assert got.exact
    np.testing.assert_allclose(got.values[got.pairs.index(("a", "b")), 0], 0.5, atol=1e-12)
    assert got.values[got.pairs.index(("d", "e")), 0] == pytest.approx(0.0, abs=1e-12)


def test_sampling_agrees_with_enumeration_within_its_error():
    game = StateGame(d=8, states=20)
    exact = interactions(game, budget_rows=10_000)
    sampled = interactions(game, ["p0", "p3", "p5"], budget_rows=5000, background="population")
    assert exact.exact and not sampled.exact
    assert sampled.evaluations <= 5000
    assert sampled.background == 20
    assert sampled.pairs == (("p0", "p3"), ("p0", "p5"), ("p3", "p5"))
    gap = np.abs(sampled.values - exact.values[[exact.pairs.index(pair) for pair in sampled.pairs]])
    assert (gap <= 4.5 * sampled.standard_error).all()
    assert (sampled.standard_error > 0).all()


def test_the_same_seed_gives_the_same_bytes():
    first, second = (interactions(StateGame(d=12), ["p0", "p1"], budget_rows=2000, chunk=c) for c in (4096, 77))
    assert first.values.tobytes() == second.values.tobytes()
    assert first.standard_error.tobytes() == second.standard_error.tobytes()


@pytest.mark.parametrize(
    ("players", "budget", "message"),
    [
        (["p0", "p99"], 2000, "players = 'p99': no such player"),
        (["p0"], 2000, "needs two different"),
        (["p0", "p0"], 2000, "needs two different"),
        (None, 100, "66 pairs need at least 1,056 rows"),
    ],
)
def test_bad_input_is_one_clear_error(players, budget, message):
    with pytest.raises(ExplanationError, match=message):
        interactions(StateGame(d=12), players, budget_rows=budget)
