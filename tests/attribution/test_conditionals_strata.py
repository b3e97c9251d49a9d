"""Atoms: exact zeros and integers are found, kept exact in draws, and given probabilities rather than densities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.attribution import EmSHAP
from attribution_sched.attribution.conditionals.atoms import find_atoms, has_atoms
from attribution_sched.attribution.conditionals.catalogue import make, restore
from attribution_sched.attribution.conditionals.points import sobol_points
from attribution_sched.errors import ModelFitError

D = 4


def rows(n=800, seed=0):
    """Two kinds: the first never uses column 1, the second never column 2; column 3 is an integer batch."""
    rng = np.random.default_rng(seed)
    kind = rng.random(n) < 0.4
    batch = rng.choice([1, 2, 4, 8], n)
    noise = rng.normal(size=(n, 3)) @ np.array([[0.3, 0.1, 0.0], [0.0, 0.3, 0.1], [0.0, 0.0, 0.4]])
    x = np.exp(noise + 0.4 * np.log(batch)[:, None] + np.where(kind, 0.5, -0.5)[:, None])
    x[kind, 1] = 0.0
    x[~kind, 2] = 0.0
    return np.column_stack([x, batch])


def energy(x):
    return x[:, 0] * x[:, 3] + 3.0 * (x[:, 1] > 0) + np.sqrt(x[:, 2])


@pytest.fixture(scope="module")
def strata():
    return EmSHAP("strata", n_draws=64, bootstrap=2).fit(rows())


def test_atoms_are_found_and_continuous_columns_have_none():
    found = find_atoms(rows())
    assert [list(c.atoms) for c in found] == [[], [0.0], [0.0], [1.0, 2.0, 4.0, 8.0]]
    assert [c.discrete for c in found] == [False, False, False, True]
    assert not has_atoms(np.random.default_rng(0).normal(size=(300, 3)))
    wide = np.random.default_rng(0).poisson(60, (2000, 1)).astype(float)
    assert find_atoms(wide)[0].grid is not None


def test_draws_read_zeros_and_integers_exactly_and_keep_to_the_kinds(strata):
    x = np.full((3, D), np.nan)
    x[0, 0] = 1.0
    x[1, 1] = 0.0  # only the first kind reads nothing here, and it always uses column 2
    x[2, 3] = 4.0
    got = strata.conditional_draws(x, 256)
    assert set(np.unique(got[..., 3])) <= {1.0, 2.0, 4.0, 8.0}
    for j in (1, 2):
        assert (got[..., j] >= 0).all()
        assert 0 < (got[0, :, j] == 0.0).mean() < 1
    assert ((got[..., 1] == 0) != (got[..., 2] == 0)).all()
    assert (got[1, :, 2] > 0).all()
    assert (got[2, :, 1] == 0).mean() == pytest.approx(0.4, abs=0.06)


def test_conditional_chance_of_an_atom_matches_bayes(strata):
    """Chance of the first kind given a reading of column 0 and the batch, against the generator's own."""
    from scipy.stats import norm

    x = np.array([[2.0, np.nan, np.nan, 2.0], [0.9, np.nan, np.nan, 2.0]])
    log = np.log(x[:, 0]) - 0.4 * np.log(2.0)
    one, two = 0.4 * norm.pdf(log, 0.5, 0.3), 0.6 * norm.pdf(log, -0.5, 0.3)
    got = strata.conditional_mean(lambda r: (r[:, 1] == 0).astype(float), x)
    np.testing.assert_allclose(got, one / (one + two), atol=0.12)


def test_the_likelihood_is_a_probability_at_atoms_and_a_density_between():
    z = rows()
    model = make("strata", origin=np.zeros(D)).fit(z, np.random.default_rng(0))
    seen = np.array([[True, True, True, False]])
    levels = np.repeat(z[:1], 4, axis=0)
    levels[:, 3] = [1, 2, 4, 8]
    chance = np.exp(model.log_likelihood(levels, np.repeat(seen, 4, axis=0)))
    assert chance.sum() == pytest.approx(1.0, abs=1e-6)
    hidden = np.array([[True, False, True, True]])
    row = z[z[:, 1] > 0][0]
    grid = np.linspace(1e-3, 12, 4001)
    x = np.repeat(row[None], len(grid) + 1, axis=0)
    x[1:, 1], x[0, 1] = grid, 0.0
    density = np.exp(model.log_likelihood(x, np.repeat(hidden, len(x), axis=0)))
    assert density[0] + np.trapezoid(density[1:], grid) == pytest.approx(1.0, abs=0.02)


def test_auto_takes_a_model_that_knows_the_atoms():
    model = EmSHAP(bootstrap=0).fit(rows(600))
    assert model.model_.kind.startswith("strata")
    assert "copula-mixture" not in model.scores_
    assert model.squared_errors_[model.model_.kind] < model.squared_errors_["copula-mixture"]


def test_state_restores_the_same_draws(strata, tmp_path):
    x = rows(3, seed=4)
    x[0, 1], x[1, [0, 3]] = np.nan, np.nan
    strata.save(tmp_path / "strata.safetensors")
    again = EmSHAP.load(tmp_path / "strata.safetensors")
    np.testing.assert_array_equal(again.conditional_draws(x, 16), strata.conditional_draws(x, 16))
    full = rows(2, seed=5)
    first, second = strata.attribute(energy, full), again.attribute(energy, full)
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.standard_error, second.standard_error)
    settings_, arrays = strata.model_.state()
    assert restore("strata", settings_, arrays).kind == "strata"


@given(a=st.floats(-3, 3), b=st.floats(-3, 3), seed=st.integers(0, 9))
@settings(max_examples=8, deadline=None)
def test_efficiency_holds_at_atoms(strata, a, b, seed):
    def f(x):
        return a * x[:, 0] * (x[:, 1] > 0) + b * x[:, 3] ** 2 + x[:, 2]

    x = rows(3, seed=seed)
    got = strata.attribute(f, x)
    np.testing.assert_allclose(got.values.sum(1) + got.base, f(x), atol=1e-6)


def test_a_counter_that_is_independent_and_unused_gets_nothing():
    rng = np.random.default_rng(3)
    x = np.column_stack([rows(), rng.choice([0.0, 1.0, 2.0], 800)])
    model = EmSHAP("strata", n_draws=64, bootstrap=8).fit(x)
    got = model.attribute(lambda r: energy(r[:, :4]), x[:5])
    others = np.abs(got.values[:, :4]).mean()
    assert np.abs(got.values[:, 4]).mean() < 0.08 * others
    low, high = got.interval(0.99)
    assert ((low[:, 4] <= 0) & (high[:, 4] >= 0)).mean() >= 0.8


def test_counters_that_are_alike_get_equal_shares():
    """Two exchangeable zero-inflated counters, read alike, enter f alike."""
    rng = np.random.default_rng(5)
    on = rng.random((1500, 2)) < 0.6
    both = np.exp(0.3 * rng.normal(size=(1500, 2))) * on
    train = np.concatenate([both, both[:, ::-1]])
    train = np.column_stack([train, rng.choice([1.0, 2.0, 4.0], 3000)])
    model = EmSHAP("strata", n_draws=128, bootstrap=0).fit(train)
    for row in ([0.0, 0.0, 2.0], [1.2, 1.2, 1.0]):
        got = model.attribute(lambda r: r[:, 2] * (r[:, 0] + r[:, 1]) + r[:, 0] * r[:, 1], np.array(row))
        assert got.values[0] == pytest.approx(got.values[1], abs=0.05 * np.abs(got.values).max() + 0.02)


def test_a_row_no_stratum_has_ever_shown_still_gets_an_answer(strata):
    got = strata.conditional_draws(np.array([1.0, 0.0, 0.0, np.nan]), 8)
    assert np.isfinite(got).all()
    assert (got[:, 1:3] == 0).all()
    assert np.isfinite(strata.attribute(energy, np.array([1.0, 0.0, 0.0, 3.0])).values).all()


def test_wide_integers_stay_integers_in_draws():
    rng = np.random.default_rng(7)
    size = rng.lognormal(4.0, 0.4, 1200)
    x = np.column_stack([rng.poisson(size).astype(float), size * rng.lognormal(0, 0.1, 1200)])
    model = make("strata", origin=np.zeros(2)).fit(x, rng)
    draws = model.draws(x[:3], np.array([[False, True]]), sobol_points(64, 2, 1, rng)).rows
    assert (draws[..., 0] == np.round(draws[..., 0])).all()


def test_curves_by_name_refuse_atoms_in_one_sentence():
    with pytest.raises(ModelFitError, match=r"takes its largest value too often for a curve.*strata"):
        EmSHAP(model="curved").fit(rows())
