"""The choice between conditional models."""

import numpy as np
import pytest

from attribution_sched.attribution import EmSHAP
from attribution_sched.attribution.conditionals.gaussian import GaussianConditional
from attribution_sched.attribution.selection import MASKS_PER_ROW, RESAMPLES, Scored, choose, rivals


def scored(kind, mean, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return Scored(kind, mean + noise * rng.normal(size=100 * MASKS_PER_ROW))


def test_the_best_model_wins_when_it_is_clearly_better():
    assert choose([scored("gaussian", -4.0), scored("mixture", -2.0), scored("energy", -2.5)]).kind == "mixture"


def test_a_simpler_model_wins_a_draw():
    assert choose([scored("gaussian", -4.0), scored("mixture", -4.0 + 1e-6)]).kind == "gaussian"


def test_noise_alone_does_not_buy_a_network():
    pair = [scored("gaussian", -4.0), scored("energy", -3.999, noise=0.5, seed=1)]
    assert choose(pair).kind == "gaussian"


def test_a_model_of_uneven_draws_must_win_by_likelihood_and_by_error():
    rng = np.random.default_rng(0)
    noise = 0.01 * rng.normal(size=100 * MASKS_PER_ROW)

    def made(kind, mean, error, even=True):
        return Scored(kind, mean + noise, even=even, squares=error + np.abs(rng.normal(scale=0.01, size=len(noise))))

    plain = made("mixture", -3.4, 0.50)
    assert choose([plain, made("curved", -2.3, 0.40, even=False)]).kind == "curved"
    # Worse by what its few draws come to, or not ahead by its likelihood: not taken, and no rival either.
    for uneven in (made("curved", -2.3, 0.60, even=False), made("curved", -3.5, 0.40, even=False)):
        assert choose([plain, uneven]) is plain
        assert rivals([plain, uneven], plain, rng) == []


def rival(kind, log_likelihood):
    return Scored(kind, log_likelihood, model=GaussianConditional())


def test_a_rival_weighs_its_chance_of_being_the_better_family():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=100).repeat(MASKS_PER_ROW)
    chosen = rival("gaussian", np.zeros(100 * MASKS_PER_ROW))
    # Level up to noise: better in half of the resamples. Behind by five of its errors: in none.
    level, behind = rival("mixture", noise - noise.mean()), rival("student", noise - noise.mean() - 0.5)
    found = rivals([chosen, level, behind], chosen, rng)
    assert len(found) == 1 and found[0][0] is level.model
    assert found[0][1] == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(RESAMPLES))


def test_a_model_that_says_the_same_is_no_rival():
    chosen = rival("gaussian", np.linspace(-4, -3, 100 * MASKS_PER_ROW))
    assert rivals([chosen, rival("mixture", chosen.log_likelihood + 1e-9)], chosen, np.random.default_rng(0)) == []


@pytest.mark.slow
def test_each_family_is_found():
    rng = np.random.default_rng(0)
    gaussian = rng.multivariate_normal(np.zeros(3), np.eye(3) * 0.4 + 0.6, size=1000)
    assert EmSHAP().fit(gaussian).model_.kind == "gaussian"
    shift = np.where(rng.random(1000) < 0.5, 2.0, -2.0)[:, None] * np.array([1, -1, 0.5])
    mixed = 0.5 * gaussian + shift
    # A mixture of t whose tails are not long is the same family.
    assert EmSHAP().fit(mixed).model_.kind in ("mixture", "student")
    heavy = np.log(rng.exponential(size=(1500, 4))) - np.log(rng.gamma(1.0, size=1500))[:, None]
    chosen = EmSHAP().fit(heavy)
    assert chosen.model_.kind.startswith(("energy", "neural"))
    assert chosen.scores_[chosen.model_.kind] > chosen.scores_["copula"]
