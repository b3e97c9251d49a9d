"""95 % intervals cover the truth about 95 times in 100; the full study is benchmarks/explain_coverage.py."""

import numpy as np
import pytest

from attribution_sched.shapley.explain import estimate
from tests.shapley.games import StateGame

SEEDS = 60


def covered(got, truth):
    low, high = got.interval()
    return ((low <= truth) & (truth <= high)).mean()


@pytest.fixture(scope="module")
def population():
    """The value over the population that the backgrounds of 40 states are drawn from."""
    return estimate(StateGame(d=6, population=2000), method="exact", budget_rows=200_000).values


@pytest.mark.parametrize(
    ("method", "rows"), [("permutation", 11 * 20 + 1), ("permutation", 11 * 120 + 1), ("kernel", 40 * 65 + 1)]
)
def test_a_sampled_background_is_part_of_the_interval(population, method, rows):
    share = [
        covered(estimate(StateGame(d=6, seed=seed), method=method, budget_rows=rows, seed=seed), population)
        for seed in range(SEEDS)
    ]
    assert 0.90 <= np.mean(share) <= 0.98


def test_an_exact_explanation_of_a_sample_still_has_an_interval(population):
    share = [covered(estimate(StateGame(d=6, seed=seed), method="exact"), population) for seed in range(SEEDS)]
    assert 0.90 <= np.mean(share) <= 0.98


def test_the_background_as_population_leaves_only_the_walks():
    game = StateGame(d=6)
    truth = estimate(game, method="exact").values
    got = [
        estimate(game, method="permutation", budget_rows=11 * 160 + 1, seed=seed, background="population")
        for seed in range(SEEDS)
    ]
    assert 0.90 <= np.mean([covered(one, truth) for one in got]) <= 0.98
    sample = estimate(game, method="permutation", budget_rows=11 * 160 + 1)
    assert sample.standard_error.mean() > 2.0 * got[0].standard_error.mean()


def test_regressions_on_a_fixed_background_never_claim_too_much():
    game = StateGame(d=8)
    truth = estimate(game, method="exact").values
    got = [
        estimate(game, method="kernel", budget_rows=40 * 201 + 1, seed=seed, background="population")
        for seed in range(40)
    ]
    assert np.mean([covered(one, truth) for one in got]) >= 0.92
    missed = np.sqrt(np.mean([np.square(one.values - truth) for one in got]))
    claimed = np.sqrt(np.mean([np.square(one.standard_error) for one in got]))
    assert 0.9 < claimed / missed < 1.5


def test_intervals_without_the_background_would_not_cover(population):
    """What goes wrong when a sample is read as all there is: the reason for the default."""
    share = []
    for seed in range(20):
        game = StateGame(d=6, seed=seed)
        got = estimate(game, method="kernel", budget_rows=40 * 65 + 1, background="population")
        share.append(covered(got, population))
    assert np.mean(share) < 0.7
