"""The regression plan: constraints, what it solves exactly, and that more rows bring it to the truth."""

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.shapley.explain import estimate
from attribution_sched.shapley.game import FunctionGame
from attribution_sched.shapley.regression import kernel_plan, kernel_values, least_pairs


@pytest.mark.parametrize("d", [4, 9, 32])
def test_operators_keep_the_sum(d):
    plan = kernel_plan(d, 6, 6, least_pairs(d), 1)
    np.testing.assert_allclose(plan.operator.sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(plan.share.sum(axis=1), 1.0, atol=1e-12)


def test_pairs_are_complements_on_the_same_state():
    plan = kernel_plan(7, 5, 5, 40, 0)
    rows = plan.coalitions.reshape(5, 81, 7)
    assert not rows[:, 0].any()
    np.testing.assert_array_equal(rows[:, 1::2], ~rows[:, 2::2])
    assert len(set(plan.background.tolist())) == 5
    assert (plan.background.reshape(5, 81) == plan.background.reshape(5, 81)[:, :1]).all()


def test_even_interactions_cancel():
    """Any sum of effects of one and two players is found without error from the fewest pairs."""
    rng = np.random.default_rng(0)
    d = 10
    weight, pair = rng.normal(size=d), np.triu(rng.normal(size=(d, d)), 1)
    plan = kernel_plan(d, 1, 1, least_pairs(d), 0, 0, True)
    value = lambda c: c @ weight + np.einsum("ni,ij,nj->n", c * 1.0, pair, c * 1.0)  # noqa: E731
    full = value(np.ones((1, d)))
    means, _ = kernel_values(plan, value(plan.coalitions)[None, :, None], full[None])
    np.testing.assert_allclose(means.values[0, 0, :, 0], weight + (pair + pair.T).sum(axis=0) / 2, atol=1e-9)
    assert means.within.max() < 1e-12


def test_more_rows_bring_it_to_the_truth():
    """A product of five players and one of three: orders that neither pairing nor a linear fit removes."""
    members = [[0, 1, 2, 3, 4], [2, 5, 6]]
    game = FunctionGame(lambda c: sum(c[:, m].all(axis=1) * 1.0 for m in members), tuple("abcdefgh"))
    truth = np.zeros(8)
    for m in members:
        truth[m] += 1.0 / len(m)
    errors = []
    for rows in (150, 1200, 20_000):
        got = [estimate(game, method="kernel", budget_rows=rows, seed=s).values[:, 0] for s in range(8)]
        errors.append(np.sqrt(np.mean(np.square(np.array(got) - truth))))
    assert errors[0] > 1.5 * errors[1] > 2.25 * errors[2]
    assert errors[2] < 0.01


def test_a_plan_is_made_once():
    kernel_plan.cache_clear()
    game = FunctionGame(lambda c: c.sum(axis=1), tuple("abcdef"))
    for _ in range(3):
        estimate(game, method="kernel", budget_rows=500)
    assert kernel_plan.cache_info().misses == 1


def test_every_size_is_met_and_no_coalition_is_trivial():
    plan = kernel_plan(15, 4, 4, 60, 0)
    sizes = plan.coalitions.reshape(4, 121, 15)[:, 1:].sum(axis=2)
    assert all(set(state.tolist()) == set(range(1, 15)) for state in sizes)


@pytest.mark.parametrize(("d", "pairs"), [(15, 29), (3, 100)])
def test_too_few_coalitions_or_players_are_refused(d, pairs):
    with pytest.raises(ExplanationError, match="at least 256 coalitions"):
        kernel_plan(d, 4, 4, pairs, 0)
