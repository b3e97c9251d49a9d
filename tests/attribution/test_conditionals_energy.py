import numpy as np
import pytest
import torch

from attribution_sched.attribution.conditionals.base import uniform_size_masks
from attribution_sched.attribution.conditionals.catalogue import make
from attribution_sched.attribution.conditionals.energy_head import (
    log_partition,
    log_partition_sampled,
)
from attribution_sched.attribution.conditionals.points import sobol_points


def frailty(n, seed):
    """Features with one shared frailty: tail dependence no Gaussian copula has."""
    rng = np.random.default_rng(seed)
    x = np.log(rng.exponential(size=(n, 4))) - np.log(rng.gamma(1.0, size=n))[:, None]
    return (x + 0.0) / 1.8


@pytest.fixture(scope="module")
def tilted():
    return make("energy", members=2, steps=500, distil_steps=600).fit(frailty(1500, 0), np.random.default_rng(0))


def score(model, seed=9):
    x = frailty(800, seed)
    return model.log_likelihood(x, uniform_size_masks(len(x), 4, np.random.default_rng(1))).mean()


def test_the_energy_is_kept_where_it_raises_held_out_likelihood(tilted):
    copula = make("copula").fit(frailty(1500, 0), np.random.default_rng(0))
    assert tilted.kept
    assert score(tilted) > score(copula) + 0.02


def test_the_effective_share_of_the_weights_is_known(tilted):
    assert 0.25 < tilted.effective_share < 0.99
    assert tilted.reliable
    # Signs whose products repeat: pairwise uncorrelated, so the copula spreads over 64 corners where 8 are filled.
    rng = np.random.default_rng(0)
    a, b, c = np.sign(rng.normal(size=(3, 800)))
    corners = np.stack([a, b, c, a * b, b * c, a * c], axis=1) + 0.2 * rng.normal(size=(800, 6))
    far = make("energy", members=2, steps=400, distil_steps=400).fit(corners, rng)
    assert not far.reliable


def test_the_energy_is_dropped_where_its_proposal_is_right():
    x = np.random.default_rng(0).multivariate_normal(np.zeros(3), np.eye(3) * 0.5 + 0.5, size=600)
    model = make("energy", members=2, steps=200).fit(x, np.random.default_rng(0))
    assert not model.kept
    mask = np.array([[True, False, False]])
    points = sobol_points(16, 3, 1, np.random.default_rng(0))
    copula = make("copula").fit(x, np.random.default_rng(0))
    assert np.array_equal(model.draws(x[:2], mask, points).rows, copula.draws(x[:2], mask, points).rows)


def test_the_sampled_partition_function_agrees_with_quadrature(tilted):
    """One hidden feature: Z is a one-dimensional integral of exp(-E) under the proposal's normal score."""
    x = frailty(6, 4)
    mask = np.array([True, True, False, True])
    sampled = tilted.log_partition(x, mask[None], sobol_points(256, 4, 1, np.random.default_rng(0)))[:, 0]
    scores = tilted._scores(x)
    cov = tilted.proposal.inner.covariance
    mean = tilted.proposal.inner.mean
    o = np.flatnonzero(mask)
    gain = np.linalg.solve(cov[np.ix_(o, o)], cov[o, 2])
    spread = np.sqrt(cov[2, 2] - cov[2, o] @ gain)
    t = np.linspace(-7, 7, 2001)
    for i in range(len(x)):
        rows = np.tile(scores[i], (len(t), 1))
        rows[:, 2] = mean[2] + gain @ (scores[i, o] - mean[o]) + spread * t
        density = np.exp(-0.5 * t * t) / np.sqrt(2 * np.pi)
        exact = np.log(np.trapezoid(density * np.exp(-tilted._energy(rows)), t))
        assert sampled[i] == pytest.approx(exact, abs=0.02)


def test_one_dimensional_partition_functions_agree():
    g = torch.Generator().manual_seed(0)
    heads = torch.randn((40, 3, 4), generator=g) * torch.tensor([1.0, 1.0, 0.3])[None, :, None]
    tilt = torch.randn((40, 12), generator=g)
    quadrature = log_partition(heads, tilt)
    sampled = log_partition_sampled(heads, tilt, g, n_draws=4000)
    assert (quadrature - sampled).abs().max() < 0.02


def test_an_energy_pays_over_the_papers_single_gaussian():
    model = make("energy-gru", steps=500, width=16).fit(frailty(1500, 0), np.random.default_rng(0))
    assert model.kept
    assert model.held_out["energy"] > model.held_out["proposal"] + 0.03


def test_training_leaves_the_global_torch_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make("energy-gru", steps=20, width=4).fit(frailty(200, 0), np.random.default_rng(0))
    assert torch.equal(torch.rand(3), expected)


def test_the_same_seed_gives_the_same_network():
    x = frailty(300, 0)
    a, b = (make("neural-mlp", steps=60, width=8).fit(x, np.random.default_rng(7)) for _ in range(2))
    mask = np.tile([True, False, False, True], (300, 1))
    assert np.array_equal(a.log_likelihood(x, mask), b.log_likelihood(x, mask))
