"""EmSHAP against axioms, closed forms and its own promises."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import comb

from attribution_sched.attribution import EmSHAP
from attribution_sched.attribution.progress import progress_bar
from attribution_sched.errors import CheckpointError, ModelFitError
from attribution_sched.shapley.exact import all_coalitions, shapley_matrix

D = 4
COV = 0.7 ** np.abs(np.subtract.outer(range(D), range(D)))


def rows(n=400, seed=0, d=D):
    cov = 0.7 ** np.abs(np.subtract.outer(range(d), range(d)))
    return np.random.default_rng(seed).multivariate_normal(np.arange(d), cov, size=n)


def energy(x):
    return 2 * x[:, 0] + x[:, 1] * x[:, 2] + np.exp(0.3 * x[:, 3])


@pytest.fixture(scope="module")
def gaussian():
    return EmSHAP("gaussian", n_draws=64, bootstrap=0).fit(rows())


@pytest.fixture(scope="module")
def mixture():
    return EmSHAP("mixture", n_draws=32, bootstrap=0).fit(rows())


def test_linear_function_on_a_gaussian_matches_the_closed_form(gaussian):
    """E[x | x_S] in closed form for the sample moments, all coalitions, no sampling."""
    beta = np.array([1.5, -2.0, 0.7, 3.0])
    train, x = rows(), rows(6, seed=3)
    mean, cov = train.mean(0), np.cov(train.T)
    masks = all_coalitions(D)
    values = np.empty((6, len(masks)))
    for s, o in enumerate(masks):
        filled = np.tile(mean, (6, 1))
        if o.any():
            filled = mean + (x[:, o] - mean[o]) @ np.linalg.solve(cov[np.ix_(o, o)], cov[o])
        values[:, s] = filled @ beta + 7
    got = gaussian.attribute(lambda r: r @ beta + 7, x)
    np.testing.assert_allclose(got.values, values @ shapley_matrix(D), atol=1e-8)
    np.testing.assert_allclose(got.standard_error, 0, atol=1e-8)


def test_quadratic_function_on_a_gaussian_is_exact_too(gaussian):
    form = np.random.default_rng(0).normal(size=(D, D))
    train, x = rows(), rows(3, seed=3)
    mean, cov = train.mean(0), np.cov(train.T, ddof=0)
    masks = all_coalitions(D)
    values = np.empty((3, len(masks)))
    for s, o in enumerate(masks):
        filled, left = np.tile(mean, (3, 1)), cov
        if o.any():
            gain = np.linalg.solve(cov[np.ix_(o, o)], cov[o]).T
            filled, left = mean + (x[:, o] - mean[o]) @ gain.T, cov - gain @ cov[o]
        values[:, s] = np.einsum("ni,ij,nj->n", filled, form, filled) + np.sum(form * left)
    got = gaussian.attribute(lambda r: np.einsum("ni,ij,nj->n", r, form, r), x)
    np.testing.assert_allclose(got.values, values @ shapley_matrix(D), atol=1e-7)


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=6), st.integers(0, 10_000))
@settings(deadline=None, max_examples=25)
def test_efficiency_always(mixture, weights, seed):
    a, b, c, d, e, g = weights

    def f(x):
        return a * x[:, 0] + b * x[:, 1] ** 2 + c * np.sin(x[:, 2]) + d * x[:, 0] * x[:, 3] + e * np.tanh(x[:, 1]) + g

    x = rows(3, seed=seed)
    got = mixture.attribute(f, x)
    scale = np.maximum(1, np.abs(f(x)))
    assert (np.abs(got.values.sum(1) + got.base - f(x)) / scale).max() < 1e-9


@given(st.floats(-3, 3), st.floats(-3, 3), st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_linearity(mixture, a, b, seed):
    x = rows(2, seed=seed)

    def other(r):
        return np.sin(r[:, 0] * r[:, 3])

    both = mixture.attribute(lambda r: a * energy(r) + b * other(r), x).values
    one, two = mixture.attribute(energy, x).values, mixture.attribute(other, x).values
    np.testing.assert_allclose(both, a * one + b * two, atol=1e-8)


@given(st.integers(0, 1000), st.floats(0.1, 2))
@settings(deadline=None, max_examples=15)
def test_symmetric_features_get_equal_shares(seed, strength):
    """An exchangeable pair in the distribution, in the function and in the row."""
    base = rows(300, seed=1, d=3)
    swapped = base[:, [1, 0, 2]]
    model = EmSHAP("gaussian", n_draws=64).fit(np.concatenate([base, swapped]))
    row = np.random.default_rng(seed).normal(size=3)
    row[1] = row[0]
    got = model.attribute(lambda x: strength * x[:, 0] * x[:, 1] + np.tanh(x[:, 0]) + np.tanh(x[:, 1]) + x[:, 2], row)
    reach = 4 * got.standard_error[:2].max() + 1e-9
    assert abs(got.values[0] - got.values[1]) < reach + 0.01


def test_an_unused_independent_feature_gets_nothing():
    x = np.random.default_rng(0).normal(size=(2000, 3))
    x -= x.mean(0)
    # Exactly uncorrelated columns: then x2 tells nothing about the others.
    x = x @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T, ddof=0))).T
    model = EmSHAP("gaussian").fit(x)
    got = model.attribute(lambda r: np.sin(r[:, 0]) + r[:, 0] * r[:, 1], x[:5])
    np.testing.assert_allclose(got.values[:, 2], 0, atol=0.005)
    assert np.abs(got.values[:, :2]).mean() > 0.1


def test_a_correlated_but_unused_feature_does_get_a_share(gaussian):
    """The difference to the marginal game: x1 tells about x0."""
    x = rows(5, seed=2)
    conditional = gaussian.attribute(lambda r: r[:, 0], x).values
    marginal = EmSHAP("marginal").fit(rows()).attribute(lambda r: r[:, 0], x).values
    assert np.abs(conditional[:, 1]).mean() > 0.1
    np.testing.assert_allclose(marginal[:, 1:], 0, atol=0.05)


def test_hidden_values_cannot_change_a_coalition_value(mixture):
    x = rows(2, seed=4)
    mask = np.array([[True, False, True, False]])
    other = np.where(mask, x, 99.0)
    assert np.array_equal(mixture.values(energy, x, mask), mixture.values(energy, other, mask))


def test_it_averages_the_function_instead_of_imputing_the_mean(gaussian):
    """E[x^2 | nothing about x] is variance plus squared mean, not the squared mean alone."""
    x = rows(1, seed=0)
    mask = np.array([[False, False, False, True]])
    value = gaussian.values(lambda r: r[:, 0] ** 2, x, mask)[0, 0]
    mean = gaussian.values(lambda r: r[:, 0], x, mask)[0, 0]
    assert value > mean**2 + 0.7


def test_a_row_does_not_depend_on_its_batch(mixture):
    x = rows(40, seed=4)
    batch = mixture.attribute(energy, x).values
    np.testing.assert_allclose(mixture.attribute(energy, x[17]).values, batch[17], atol=1e-9)
    np.testing.assert_allclose(mixture.attribute(energy, x[::-1]).values[::-1], batch, atol=1e-9)


@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
def test_intervals_cover_the_infinite_draw_value(kind):
    def f(x):
        return np.exp(0.4 * x[:, 0]) + np.abs(x[:, 1] - x[:, 2]) + np.sin(2 * x[:, 3]) * x[:, 0]

    x = rows(4, seed=8)
    train = rows() if kind == "gaussian" else np.concatenate([rows(300), rows(300, seed=1) * 0.5 + 3])
    model = EmSHAP(kind, n_draws=32, bootstrap=0).fit(train)
    truth = EmSHAP(kind, n_draws=8192, replicates=2, bootstrap=0).fit(train).attribute(f, x).values
    inside = []
    for seed in range(60):
        low, high = model.attribute(f, x, seed=seed).interval(0.95)
        inside.append((low <= truth) & (truth <= high))
    assert 0.90 <= np.mean(inside) <= 0.98


def test_intervals_cover_the_truth_of_the_population_not_only_of_the_fit():
    """Linear function, Gaussian counters: the truth is closed-form, the fit's own limit misses it by sampling rows."""
    beta, x = np.array([1.0, -2.0, 0.5, 1.5]), rows(10, seed=9)
    masks, mean = all_coalitions(D), np.arange(D)
    values = np.empty((len(x), len(masks)))
    for s, o in enumerate(masks):
        filled = np.tile(mean.astype(float), (len(x), 1))
        if o.any():
            filled = mean + (x[:, o] - mean[o]) @ np.linalg.solve(COV[np.ix_(o, o)], COV[o])
        values[:, s] = filled @ beta
    truth = values @ shapley_matrix(D)
    inside, blind = [], []
    for seed in range(12):
        model = EmSHAP("gaussian", n_draws=16).fit(rows(300, seed=100 + seed))
        low, high = model.attribute(lambda r: r @ beta, x).interval(0.95)
        inside.append((low <= truth) & (truth <= high))
        model.uncertainty_ = type(model.uncertainty_)()
        low, high = model.attribute(lambda r: r @ beta, x).interval(0.95)
        blind.append((low <= truth) & (truth <= high))
    assert 0.88 <= np.mean(inside) <= 0.99
    assert np.mean(blind) < 0.2


def test_missing_counters_are_drawn_given_those_that_were_read(gaussian, mixture):
    """Moments of the draws equal the textbook conditional; what was read stays, bit for bit."""
    train = rows()
    mean, cov = train.mean(0), np.cov(train.T, ddof=0)
    x = rows(3, seed=5)
    x[0, [0, 3]], x[1, :], x[2, 1] = np.nan, np.nan, np.nan
    beta = np.array([1.0, 2.0, -1.0, 0.5])
    for explainer in (gaussian, mixture):
        got = explainer.conditional_draws(x, 256)
        assert got.shape == (3, 256, D)
        seen = ~np.isnan(x)
        for i in range(3):
            assert (got[i][:, seen[i]] == x[i, seen[i]]).all()
            o, u = seen[i], ~seen[i]
            gain = cov[np.ix_(u, o)] @ np.linalg.inv(cov[np.ix_(o, o)]) if o.any() else np.zeros((u.sum(), 0))
            np.testing.assert_allclose(got[i][:, u].mean(0), mean[u] + gain @ (x[i, o] - mean[o]), atol=0.05)
            left = cov[np.ix_(u, u)] - gain @ cov[np.ix_(o, u)]
            np.testing.assert_allclose(np.cov(got[i][:, u].T).reshape(left.shape), left, atol=0.08)
        both = explainer.conditional_mean(lambda r: np.stack([r @ beta, r[:, 0] * r[:, 1]], axis=1), x)
        assert both.shape == (3, 2)
        np.testing.assert_allclose(both[:, 0], (got @ beta).mean(1), atol=0.05)


def test_completed_rows_do_not_depend_on_their_batch_and_complete_rows_stay(mixture):
    x = rows(4, seed=6)
    x[1, 2], x[2, 0] = np.nan, np.nan
    together = mixture.conditional_draws(x, 33)
    assert together.shape == (4, 33, D)
    np.testing.assert_array_equal(together[1], mixture.conditional_draws(x[1], 33))
    assert (together[0] == x[0]).all() and (together[3] == x[3]).all()
    assert not np.array_equal(together[1], mixture.conditional_draws(x[1], 33, seed=9))
    with pytest.raises(ModelFitError, match="finite"):
        mixture.conditional_draws(np.array([1.0, np.inf, 0.0, np.nan]))
    with pytest.raises(ModelFitError, match="at least 1"):
        mixture.conditional_draws(x, 0)


def test_many_features_are_sampled_and_agree_with_the_closed_form():
    d = 14
    train = rows(600, d=d)
    beta = np.linspace(-1, 2, d)
    model = EmSHAP("gaussian", n_draws=16, n_coalitions=1024, replicates=4, bootstrap=0).fit(train)
    x = rows(2, seed=3, d=d)
    got = model.attribute(lambda r: r @ beta, x)
    assert got.provenance["coalitions"] == "sampled"
    mean, cov = train.mean(0), np.cov(train.T)
    masks = all_coalitions(d)
    values = np.empty((2, len(masks)))
    for s, o in enumerate(masks):
        filled = np.tile(mean, (2, 1))
        if o.any():
            filled = mean + (x[:, o] - mean[o]) @ np.linalg.solve(cov[np.ix_(o, o)], cov[o])
        values[:, s] = filled @ beta
    truth = values @ shapley_matrix(d)
    assert np.abs(got.values - truth).mean() < 0.06 * np.abs(truth).mean()
    assert (np.abs(got.values - truth) < 4 * got.standard_error + 1e-9).mean() > 0.95


def test_provenance_says_how_it_was_got(gaussian):
    got = gaussian.attribute(energy, rows(2))
    assert got.method == "emshap(gaussian)"
    assert got.provenance["coalitions"] == "exact"
    assert got.provenance["n_coalitions"] == 2**D == int(sum(comb(D, k) for k in range(D + 1)))
    assert got.units == "J"
    # Under the fitted distribution, which has the rows' own mean and covariance.
    assert got.base == pytest.approx(energy(rows()).mean(), rel=2e-3)


def test_same_seed_same_result_other_seed_other_points():
    x = rows(3)
    a, b = (EmSHAP("mixture", n_draws=16).fit(rows()).attribute(energy, x).values for _ in range(2))
    assert np.array_equal(a, b)
    c = EmSHAP("mixture", n_draws=16, seed=1).fit(rows()).attribute(energy, x).values
    assert not np.array_equal(a, c)


def test_data_frames_and_estimators():
    frame = pd.DataFrame(rows(), columns=["cpu", "l3", "memory", "pcie"])
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(frame, energy(frame.to_numpy()))
    explainer = EmSHAP("gaussian", n_draws=16).fit(frame, units="W")
    shuffled = frame.iloc[:3][["pcie", "cpu", "memory", "l3"]]
    got = explainer.attribute(model, shuffled)
    assert got.names == ("cpu", "l3", "memory", "pcie")
    assert got.units == "W"
    np.testing.assert_allclose(got.values, explainer.attribute(model, frame.iloc[:3]).values)


def test_settings_follow_scikit_learn():
    model = EmSHAP("mixture", seed=4)
    assert model.get_params()["seed"] == 4
    assert model.set_params(n_draws=8).n_draws == 8
    with pytest.raises(ModelFitError, match="unknown"):
        model.set_params(draws=8)


def test_save_and_load_round_trip(mixture, tmp_path):
    path = tmp_path / "emshap.safetensors"
    mixture.save(path)
    again = EmSHAP.load(path)
    x = rows(3, seed=6)
    assert np.array_equal(again.attribute(energy, x).values, mixture.attribute(energy, x).values)
    assert again.get_params() == mixture.get_params()


def test_a_tampered_or_truncated_save_is_refused(mixture, tmp_path):
    path = tmp_path / "emshap.safetensors"
    mixture.save(path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="checksum"):
        EmSHAP.load(path)
    path.write_bytes(bytes(data[: len(data) // 2]))
    with pytest.raises(CheckpointError, match="truncated"):
        EmSHAP.load(path)


def _broken(change):
    x = rows()
    change(x)
    return x


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (_broken(lambda x: x.__setitem__((3, 1), np.nan)), r"X\[3, 'x1'\] = nan"),
        (_broken(lambda x: x.__setitem__((3, 1), np.inf)), "finite"),
        (_broken(lambda x: x.__setitem__((slice(None), 2), 5.0)), "constant"),
        (_broken(lambda x: x.__setitem__((slice(None), 2), 3 * x[:, 0] + 1)), "copy of 'x0'"),
        (_broken(lambda x: x.__setitem__((slice(None), 3), x[:, 0] + x[:, 1])), "linear combination"),
        (rows(49), "at least 50 rows"),
        (rows()[:, :1], "two counters"),
        (rows()[0], "table"),
        ([["a", "b"]] * 60, "number"),
    ],
)
def test_bad_training_rows_give_one_clear_error(x, match):
    with pytest.raises(ModelFitError, match=match):
        EmSHAP("gaussian").fit(x)


def test_bad_queries_give_one_clear_error(gaussian):
    x = rows(2)
    with pytest.raises(ModelFitError, match="never saw"):
        gaussian.attribute(energy, np.column_stack([x, x[:, 0]]))
    frame = pd.DataFrame(x, columns=["x0", "x1", "x2", "x3"]).assign(x9=1.0)
    with pytest.raises(ModelFitError, match=r"'x9'.*never saw"):
        gaussian.attribute(energy, frame)
    with pytest.raises(ModelFitError, match="missing"):
        gaussian.attribute(energy, frame[["x0", "x1", "x2"]])
    with pytest.raises(ModelFitError, match="finite"):
        gaussian.attribute(energy, np.where(np.eye(2, D), np.nan, x))
    with pytest.raises(ModelFitError, match=r"f\(X\).*finite"):
        gaussian.attribute(lambda r: np.where(r[:, 0] > r[:, 0].min(), 1.0, np.nan), x)
    with pytest.raises(ModelFitError, match="shape"):
        gaussian.attribute(lambda r: r, x)
    with pytest.raises(ModelFitError, match="function"):
        gaussian.attribute(3.0, x)


def test_negative_energy_is_refused_where_asked():
    model = EmSHAP("gaussian", n_draws=16, nonnegative=True).fit(rows())
    with pytest.raises(ModelFitError, match="cannot be negative"):
        model.attribute(lambda x: x[:, 0], rows(2))


@pytest.mark.parametrize(
    ("settings_", "match"),
    [
        ({"model": "gausian"}, "Did you mean 'gaussian'"),
        ({"proposal": "lstm"}, "proposal"),
        ({"model": "gaussian", "proposal": "gru"}, "no proposal"),
        ({"model": "neural", "proposal": "closed"}, "is a network"),
        ({"n_draws": 7}, "even"),
        ({"replicates": 1}, "replicates"),
        ({"held_out": 1.5}, "held_out"),
    ],
)
def test_bad_settings_give_one_clear_error(settings_, match):
    with pytest.raises(ModelFitError, match=match):
        EmSHAP(**settings_).fit(rows())


@pytest.mark.parametrize("kind", ["gaussian", "mixture", "copula"])
def test_nearly_redundant_and_zero_inflated_counters_are_survived(kind):
    rng = np.random.default_rng(0)
    x = rows(400)
    x[:, 1] = x[:, 0] * (1 + 1e-4 * rng.normal(size=400))
    x[:, 2] = np.where(rng.random(400) < 0.6, 0.0, rng.lognormal(size=400))
    got = EmSHAP(kind, n_draws=16).fit(x).attribute(energy, x[:5])
    assert np.isfinite(got.values).all()


def test_the_progress_bar_is_off_by_default_and_harmless(capsys):
    EmSHAP("gaussian").fit(rows())
    assert capsys.readouterr().out == ""
    EmSHAP("gaussian", progress=True).fit(rows())
    with progress_bar(True) as tick:
        tick("first", 0.5)
        tick("second", 1.0)


def test_asking_before_fitting_is_refused():
    with pytest.raises(ModelFitError, match="Call fit"):
        EmSHAP().attribute(energy, rows(1))


def test_importing_the_room_does_not_load_torch():
    import subprocess
    import sys

    code = "import sys, attribution_sched.attribution; assert not {'torch', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
