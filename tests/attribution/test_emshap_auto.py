"""The choice between conditional models."""

import numpy as np
import pytest

from attribution_sched.attribution import EmSHAP
from attribution_sched.attribution.selection import MASKS_PER_ROW, Scored, choose


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


def test_the_slow_network_must_win_clearly():
    options = [scored("energy", -4.0), scored("neural-mlp", -3.97, noise=0.5, seed=3)]
    assert choose(options).kind == "energy"
    assert choose([options[0], scored("neural-mlp", -3.0, noise=0.5)]).kind == "neural-mlp"


@pytest.mark.slow
def test_each_family_is_found():
    rng = np.random.default_rng(0)
    gaussian = rng.multivariate_normal(np.zeros(3), np.eye(3) * 0.4 + 0.6, size=1000)
    assert EmSHAP().fit(gaussian).model_.kind == "gaussian"
    shift = np.where(rng.random(1000) < 0.5, 2.0, -2.0)[:, None] * np.array([1, -1, 0.5])
    mixed = 0.5 * gaussian + shift
    assert EmSHAP().fit(mixed).model_.kind == "mixture"
    heavy = np.log(rng.exponential(size=(1500, 4))) - np.log(rng.gamma(1.0, size=1500))[:, None]
    chosen = EmSHAP().fit(heavy)
    assert chosen.model_.kind.startswith(("energy", "neural"))
    assert chosen.scores_[chosen.model_.kind] > chosen.scores_["copula"]
