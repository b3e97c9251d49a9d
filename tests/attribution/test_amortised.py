import numpy as np
import pytest

from attribution_sched.attribution import AmortisedAttribution, EmSHAP
from attribution_sched.errors import CheckpointError, ModelFitError


def rows(n, seed=0):
    cov = 0.6 ** np.abs(np.subtract.outer(range(3), range(3)))
    return np.random.default_rng(seed).multivariate_normal(np.zeros(3), cov, size=n)


def energy(x):
    return 5 + x[:, 0] + x[:, 1] * x[:, 2] + np.sin(x[:, 2])


@pytest.fixture(scope="module")
def pair():
    explainer = EmSHAP("gaussian").fit(rows(800), names=("a", "b", "c"))
    return explainer, AmortisedAttribution(n_rows=3000, width=64, steps=1500).fit(explainer, energy)


def test_it_is_close_to_its_teacher(pair):
    explainer, fast = pair
    x = rows(60, seed=5)
    exact = explainer.attribute(energy, x).values
    assert np.abs(fast.attribute(x).values - exact).mean() < 0.08 * np.abs(exact).mean()


def test_it_always_adds_up_even_far_outside(pair):
    x = rows(5) * 8
    got = pair[1].attribute(x)
    np.testing.assert_allclose(got.values.sum(1) + got.base, energy(x), rtol=1e-9)


def test_it_says_what_it_is(pair):
    got = pair[1].attribute(rows(1)[0])
    assert got.method == "amortised(emshap(gaussian))"
    assert got.provenance["amortised"] is True
    assert got.values.shape == (3,)
    assert (got.standard_error > 0).all()


def test_save_and_load(pair, tmp_path):
    path = tmp_path / "fast.safetensors"
    pair[1].save(path)
    again = AmortisedAttribution.load(path, energy)
    x = rows(4, seed=2)
    assert np.array_equal(again.attribute(x).values, pair[1].attribute(x).values)
    with pytest.raises(CheckpointError, match=r"must be .emshap."):
        EmSHAP.load(path)
    with pytest.raises(ModelFitError, match="energy model"):
        AmortisedAttribution.load(path, None).attribute(x)


def test_bad_use_is_refused(pair):
    with pytest.raises(ModelFitError, match="Call fit"):
        AmortisedAttribution().attribute(rows(1))
    with pytest.raises(ModelFitError, match="500"):
        AmortisedAttribution(n_rows=10).fit(pair[0], energy)
    with pytest.raises(ModelFitError, match="never saw"):
        pair[1].attribute(np.zeros((2, 5)))
