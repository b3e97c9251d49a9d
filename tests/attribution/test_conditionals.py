"""What every conditional model must do: keep what is observed, never see what is hidden, draw jointly."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from attribution_sched.attribution.conditionals.base import dynamic_masks, uniform_size_masks
from attribution_sched.attribution.conditionals.catalogue import KINDS, make, restore
from attribution_sched.attribution.conditionals.points import sobol_points
from attribution_sched.errors import ModelFitError
from attribution_sched.shapley.exact import all_coalitions

D = 4
DENSITIES = tuple(kind for kind in KINDS if kind != "regression")
SMALL = {
    "energy": {"members": 2, "steps": 150, "distil_steps": 150, "least_gain": -1.0},
    "energy-mixture": {"members": 2, "steps": 150, "distil_steps": 150, "least_gain": -1.0},
    "curved": {"components": (1, 2), "proposal": 8},
    "neural-mlp": {"steps": 120, "width": 16},
    "neural-gru": {"steps": 400, "width": 8},
    "energy-mlp": {"steps": 120, "width": 16},
    "energy-gru": {"steps": 400, "width": 8},
}


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    cov = 0.7 ** np.abs(np.subtract.outer(range(D), range(D)))
    x = rng.multivariate_normal(np.zeros(D), cov, size=n)
    x[:, 2] += 0.3 * x[:, 0] ** 2
    return (x - [0, 0, 0.3, 0]) / [1, 1, 1.086, 1]


@pytest.fixture(scope="module")
def fitted():
    models = {}

    def get(kind):
        if kind not in models:
            models[kind] = make(kind, **SMALL.get(kind, {})).fit(rows(), np.random.default_rng(1))
        return models[kind]

    return get


POINTS = sobol_points(32, D, 2, np.random.default_rng(3))
MASKS = all_coalitions(D)[1:-1]


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_values_cannot_change_the_draws(kind, fitted):
    model, x = fitted(kind), rows(3, seed=5)
    for mask in MASKS[::3]:
        other = np.where(mask, x, rows(3, seed=6) * 3)
        a, b = (model.draws(v, mask[None], POINTS) for v in (x, other))
        assert np.array_equal(a.rows[..., ~mask], b.rows[..., ~mask])
        if a.weights is not None:
            assert np.array_equal(a.weights, b.weights)


@pytest.mark.parametrize("kind", KINDS)
def test_observed_values_are_kept_and_weights_sum_to_one(kind, fitted):
    x = rows(3, seed=5)
    draws = fitted(kind).draws(x, MASKS, POINTS)
    assert draws.rows.shape == (3, len(MASKS), 2, 32, D)
    gap = np.where(MASKS[None, :, None, None], draws.rows - x[:, None, None, None], 0.0)
    assert np.abs(gap).max() < 1e-5
    if draws.weights is not None:
        np.testing.assert_allclose(draws.weights.sum(-1), 1.0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_its_batch(kind, fitted):
    x = rows(5, seed=5)
    model = fitted(kind)
    together = model.draws(x, MASKS, POINTS)
    alone = model.draws(x[3:4], MASKS, POINTS)
    turned = model.draws(x[::-1], MASKS, POINTS)
    np.testing.assert_allclose(together.rows[3:4], alone.rows, atol=1e-6)
    np.testing.assert_allclose(together.rows, turned.rows[::-1], atol=1e-6)


@pytest.mark.parametrize("kind", [k for k in DENSITIES if k not in ("marginal", "empirical")])
def test_draws_are_joint_not_one_by_one(kind, fitted):
    """Given feature 0 alone, features 1 and 2 still move together; independent draws would show no correlation."""
    points = sobol_points(512, D, 1, np.random.default_rng(0))
    mask = np.array([[True, False, False, False]])
    draws = fitted(kind).draws(np.zeros((1, D)), mask, points)
    weight = np.full(512, 1 / 512) if draws.weights is None else draws.weights[0, 0, 0]
    cov = np.cov(draws.rows[0, 0, 0, :, 1:3].T, aweights=np.maximum(weight, 0))
    assert cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]) > 0.35


@pytest.mark.parametrize("kind", KINDS)
def test_saved_state_restores_the_same_model(kind, fitted):
    model = fitted(kind)
    copy = restore(kind, *model.state())
    x = rows(2, seed=9)
    assert np.array_equal(copy.draws(x, MASKS, POINTS).rows, model.draws(x, MASKS, POINTS).rows)
    observed = MASKS[[3, 7]]
    if kind in DENSITIES:
        np.testing.assert_allclose(copy.log_likelihood(x, observed), model.log_likelihood(x, observed), rtol=1e-12)
    else:
        with pytest.raises(ModelFitError, match="no density"):
            model.log_likelihood(x, observed)


@pytest.mark.parametrize("kind", DENSITIES)
def test_the_density_of_one_hidden_feature_integrates_to_one(kind, fitted):
    model = fitted(kind)
    grid = np.linspace(-6, 9, 601)
    base = rows(1, seed=2)[0]
    x = np.tile(base, (len(grid), 1))
    x[:, 2] = grid
    mask = np.tile([True, True, False, True], (len(grid), 1))
    density = np.exp(model.log_likelihood(x, mask))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("kind", [k for k in DENSITIES if k not in ("marginal", "empirical")])
def test_draws_follow_the_density(kind, fitted):
    """Mean of the draws of one hidden feature equals the mean under the model's own density."""
    model = fitted(kind)
    grid = np.linspace(-6, 9, 1201)
    base = rows(1, seed=2)
    x = np.tile(base[0], (len(grid), 1))
    x[:, 2] = grid
    mask = np.array([True, True, False, True])
    density = np.exp(model.log_likelihood(x, np.tile(mask, (len(grid), 1))))
    expected = np.trapezoid(density * grid, grid) / np.trapezoid(density, grid)
    draws = model.draws(base, mask[None], sobol_points(512, D, 1, np.random.default_rng(0)))
    assert draws.mean(draws.rows[..., 2])[0, 0, 0] == pytest.approx(expected, abs=0.02)


def test_gaussian_conditional_matches_the_textbook():
    x = rows()
    model = make("gaussian").fit(x, np.random.default_rng(0))
    cov, mask = np.cov(x.T, ddof=0), np.array([True, False, True, False])
    u, o = ~mask, mask
    point = rows(1, seed=8)
    mean = cov[np.ix_(u, o)] @ np.linalg.solve(cov[np.ix_(o, o)], point[0, o] - x.mean(0)[o]) + x.mean(0)[u]
    left = cov[np.ix_(u, u)] - cov[np.ix_(u, o)] @ np.linalg.solve(cov[np.ix_(o, o)], cov[np.ix_(o, u)])
    draws = model.draws(point, mask[None], sobol_points(4096, D, 1, np.random.default_rng(0))).rows[0, 0, 0][:, u]
    np.testing.assert_allclose(draws.mean(0), mean, atol=1e-12)
    np.testing.assert_allclose(np.cov(draws.T, ddof=0), left, atol=1e-10)
    expected = multivariate_normal(mean, left).logpdf(point[0, u])
    assert model.log_likelihood(point, mask[None])[0] == pytest.approx(expected, abs=1e-9)


def test_mixture_finds_two_clusters_and_follows_the_observed_one():
    rng = np.random.default_rng(0)
    label = rng.random(1500) < 0.5
    x = rng.normal(size=(1500, 3)) * 0.3 + np.where(label, 2.0, -2.0)[:, None]
    model = make("mixture").fit(x, rng)
    assert len(model.parts.weights) == 2
    mask = np.array([[True, False, False]])
    draws = model.draws(np.array([[2.0, 0, 0]]), mask, sobol_points(64, 3, 1, rng))
    assert draws.mean(draws.rows[..., 1])[0, 0, 0] == pytest.approx(2.0, abs=0.05)
    between = model.draws(np.zeros((1, 3)), mask, sobol_points(64, 3, 1, rng))
    assert between.rows[0, 0, 0, :, 1].std() > 1.0


def test_normal_margins_stay_linear_so_the_copula_is_the_gaussian():
    x = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=800)
    mask = np.tile([True, False], (800, 1))
    a, b = (make(k).fit(x, np.random.default_rng(0)).log_likelihood(x, mask) for k in ("gaussian", "copula"))
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_margins_turn_a_skewed_column_into_normal_scores():
    from attribution_sched.attribution.conditionals.margins import fit_margins

    x = np.log(np.random.default_rng(0).exponential(size=(4000, 1)))
    x = (x - x.mean()) / x.std()
    margins = fit_margins(x)
    scores = margins.to_scores(x)
    assert np.abs(np.sort(scores[:, 0]) - norm.ppf((np.arange(4000) + 0.5) / 4000)).mean() < 0.05
    np.testing.assert_allclose(margins.to_features(scores), x, atol=1e-6)


def test_uniform_masks_meet_every_size_and_never_show_everything():
    size = uniform_size_masks(4000, 6, np.random.default_rng(0)).sum(1)
    share = np.bincount(size, minlength=7) / 4000
    np.testing.assert_allclose(share[:6], 1 / 6, atol=0.03)
    assert share[6] == 0


def test_the_masking_schedule_hides_more_and_more_but_keeps_large_coalitions():
    rng = np.random.default_rng(0)
    early, late = (dynamic_masks(4000, 10, p, rng) for p in (0.0, 1.0))
    assert (~early).mean() < (~late).mean() - 0.2
    assert (late.sum(1) >= 8).mean() > 0.08
    assert (~early).any(1).all()


def test_unknown_models_get_a_hint():
    with pytest.raises(ModelFitError, match="Did you mean 'gaussian'"):
        make("gausian")
