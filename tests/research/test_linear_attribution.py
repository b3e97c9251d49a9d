"""EmSHAP's closed form: its oracle is EmSHAP itself, its laws are the axioms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.attribution.emshap import EmSHAP
from attribution_sched.cluster.counters import counters
from attribution_sched.cluster.demands import DEMAND_NAMES, draw_demands
from attribution_sched.cluster.models import model
from attribution_sched.errors import CheckpointError, ModelFitError
from research.linear_attribution import LinearAttribution, shapley_operator

MODELS = ("resnet-50", "bert-base", "gpt2-small", "efficientnet-b0")


def recorded(n_tasks: int, seed: int = 0):
    """Counters (n, 12) of mixed tasks and an energy that follows their demands."""
    rng = np.random.default_rng(seed)
    models = [model(MODELS[i]) for i in rng.integers(len(MODELS), size=n_tasks)]
    demands = draw_demands(models, rng)
    return counters(demands, rng).values, 200.0 * demands.seconds.sum(1) + 1e-4


@pytest.fixture(scope="module")
def tasks():
    return recorded(300)


@pytest.mark.parametrize("log_energy", [True, False])
def test_equals_emshap_with_a_gaussian_and_the_same_energy_model(tasks, log_energy):
    read, energy = tasks
    fit = LinearAttribution.fit(read, energy, log_energy=log_energy)
    logs = np.log1p(read[:, :7] / fit.unit)
    oracle = EmSHAP("gaussian").fit(logs, DEMAND_NAMES)
    asked = logs[:25]
    truth = oracle.attribute(lambda x: fit.base + (x - fit.mean) / fit.scale @ fit.slope, asked)
    size = np.abs(truth.values).max()
    assert size > 1e-3
    np.testing.assert_allclose(fit.contributions(read[:25]), truth.values, rtol=0, atol=1e-8 * size)
    assert fit.base == pytest.approx(truth.base, abs=1e-9)


@given(seed=some.integers(0, 2**31), factor=some.floats(0.1, 10.0))
@settings(deadline=None, max_examples=30)
def test_contributions_add_up_to_the_prediction_far_from_the_training_tasks_too(seed, factor):
    fit = LinearAttribution.fit(*recorded(120))
    rng = np.random.default_rng(seed)
    asked = recorded(120)[0][:20] * factor * np.exp(rng.standard_normal((20, 12)))
    gap = fit.contributions(asked).sum(axis=1) - (fit.predict(asked) - fit.base)
    assert np.abs(gap).max() < 1e-9
    above = np.exp(fit.predict(asked)) - np.exp(fit.base)
    np.testing.assert_allclose(fit.joules(asked).sum(axis=1), above, rtol=1e-9, atol=1e-12)


@given(seed=some.integers(0, 2**31), d=some.integers(2, 6))
@settings(deadline=None, max_examples=40)
def test_the_operator_is_the_shapley_value_over_all_orders(seed, d):
    from itertools import permutations

    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, d + 2))
    covariance, slope, z = root @ root.T / d, rng.standard_normal(d), rng.standard_normal(d)

    def value(seen: list[int]) -> float:
        hidden = [j for j in range(d) if j not in seen]
        mean = z.copy()
        within = covariance[np.ix_(seen, seen)]
        mean[hidden] = covariance[np.ix_(hidden, seen)] @ np.linalg.solve(within, z[seen]) if seen else 0.0
        return float(slope @ mean)

    orders = list(permutations(range(d)))
    truth = np.zeros(d)
    for order in orders:
        for place, j in enumerate(order):
            truth[j] += value(list(order[: place + 1])) - value(list(order[:place]))
    np.testing.assert_allclose(shapley_operator(slope, covariance) @ z, truth / len(orders), atol=1e-8)


def test_independent_counters_keep_their_own_term():
    slope = np.array([2.0, -1.0, 0.0])
    np.testing.assert_allclose(shapley_operator(slope, np.eye(3)), np.diag(slope), atol=1e-12)


def test_a_counter_without_slope_still_earns_what_it_reveals():
    correlation = np.array([[1.0, 0.6], [0.6, 1.0]])
    found = shapley_operator(np.array([1.0, 0.0]), correlation)
    np.testing.assert_allclose(found, [[1.0, -0.3], [0.0, 0.3]], atol=1e-12)


def test_twins_share_alike_and_an_idle_counter_gets_nothing():
    rng = np.random.default_rng(4)
    read = np.exp(rng.standard_normal((200, 7)))
    read[:, 1] = 3.0 * read[:, 0]
    read[:, 4] = 0.0
    fit = LinearAttribution.fit(read, np.exp(0.5 * np.log(read[:, 0]) + 0.2 * np.log(read[:, 2])))
    phi = fit.contributions(read)
    assert np.abs(phi[:, 0]).mean() > 0.05
    np.testing.assert_allclose(phi[:, 0], phi[:, 1], atol=1e-9)
    # Their correlation is singular; the ridge splits the slope evenly instead of letting rounding decide.
    assert fit.slope[0] == pytest.approx(fit.slope[1], rel=1e-6) and 0.05 < fit.slope[0] < 1.0
    assert (phi[:, 4] == 0.0).all() and (fit(read)[:, 4] == 0.0).all()
    # A counter the tasks of the fit never moved stays a dummy when a later task moves it.
    moved = read.copy()
    moved[:, 4] = 5.0
    np.testing.assert_array_equal(fit.contributions(moved), phi)


def test_the_energy_model_finds_the_law_it_was_given():
    rng = np.random.default_rng(5)
    read = np.exp(rng.standard_normal((400, 7)))
    unit = np.median(read, axis=0)
    slope = np.array([0.5, 0.0, -0.3, 0.2, 0.0, 1.0, 0.1])
    energy = np.exp(1.0 + np.log1p(read / unit) @ slope)
    fit = LinearAttribution.fit(read, energy)
    assert fit.r_squared == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(fit.unit, unit)
    np.testing.assert_allclose(fit.slope / fit.scale, slope, atol=1e-9)
    np.testing.assert_allclose(np.exp(fit.predict(read)), energy, rtol=1e-9)


def test_attributions_use_the_range_and_never_leave_it(tasks):
    read, energy = tasks
    fit = LinearAttribution.fit(read, energy)
    shown = fit(read)
    assert shown.shape == (300, 7)
    assert (np.abs(shown) <= 1.0).all()
    assert (shown.std(axis=0) > 0.3).all() and (np.abs(shown).max(axis=0) > 0.7).all()
    assert (np.abs(fit(1e6 * read)) <= 1.0).all() and np.isfinite(fit(0.0 * read)).all()
    np.testing.assert_allclose(np.arctanh(shown[:50]) * fit.spread, fit.contributions(read[:50]), rtol=1e-6, atol=1e-9)


def test_seven_and_twelve_columns_say_the_same(tasks):
    read, energy = tasks
    fit = LinearAttribution.fit(read, energy)
    assert LinearAttribution.fit(read[:, :7], energy) == fit
    np.testing.assert_array_equal(fit(read[:, :7]), fit(read))
    # Only the first seven count, whatever stands in the rest.
    np.testing.assert_array_equal(fit(np.hstack([read[:, :7], np.full((300, 5), np.nan)])), fit(read))


def test_one_constant_energy_has_no_contributions():
    read, _ = recorded(60)
    fit = LinearAttribution.fit(read, np.full(60, 3.0))
    assert fit.r_squared == 0.0
    assert np.abs(fit.contributions(read)).max() < 1e-12 and np.abs(fit(read)).max() < 1e-12


def test_arrays_restore_it(tasks):
    fit = LinearAttribution.fit(*tasks)
    kept = fit.to_arrays()
    back = LinearAttribution.from_arrays(kept)
    assert back == fit and back.rows == 300 and back.log_energy
    np.testing.assert_array_equal(back(tasks[0]), fit(tasks[0]))
    for name in kept:
        broken = {**kept, name: kept[name][:-1]}
        with pytest.raises(CheckpointError, match="must be"):
            LinearAttribution.from_arrays(broken)
        with pytest.raises(CheckpointError, match="arrays"):
            LinearAttribution.from_arrays({k: v for k, v in kept.items() if k != name})
    with pytest.raises(CheckpointError, match="> 0"):
        LinearAttribution.from_arrays({**kept, "scale": 0.0 * kept["scale"]})
    with pytest.raises(CheckpointError, match="finite"):
        LinearAttribution.from_arrays({**kept, "matrix": np.nan * kept["matrix"]})


def test_arrays_are_frozen(tasks):
    fit = LinearAttribution.fit(*tasks)
    with pytest.raises(ValueError, match="read-only"):
        fit.matrix[0, 0] = 1.0
    fit.to_arrays()["matrix"][0, 0] = 99.0
    assert fit.matrix[0, 0] != 99.0


def test_wrong_input_is_refused_with_its_place(tasks):
    read, energy = tasks
    fit = LinearAttribution.fit(read, energy)

    def spoilt(value: float) -> np.ndarray:
        out = read.copy()
        out[3, 1] = value
        return out

    for call in (lambda x: LinearAttribution.fit(x, energy), fit, fit.joules, fit.predict):
        for value in (np.nan, np.inf):
            with pytest.raises(ModelFitError, match=r"X\[3, 'l3_misses'\]"):
                call(spoilt(value))
        with pytest.raises(ModelFitError, match=r"counters\[3, 'l3_misses'\] = -1.0: must be >= 0"):
            call(spoilt(-1.0))
        for wrong in (read[:, :8], read[0], read[:, None]):
            with pytest.raises(ModelFitError, match=r"counters\.shape.*must be \(n, 7 or 12\)"):
                call(wrong)
        with pytest.raises(ModelFitError, match="every counter must be a number"):
            call([["a"] * 7] * 300)
    with pytest.raises(ModelFitError, match=r"energy_j\.shape = \(299,\)"):
        LinearAttribution.fit(read, energy[:-1])
    for value in (0.0, -2.0, np.nan):
        with pytest.raises(ModelFitError, match=r"energy_j\[7\].*finite and > 0"):
            LinearAttribution.fit(read, np.where(np.arange(300) == 7, value, energy))
    with pytest.raises(ModelFitError, match="at least 9 tasks"):
        LinearAttribution.fit(read[:8], energy[:8])


def test_other_names_than_the_seven():
    rng = np.random.default_rng(6)
    read = np.exp(rng.standard_normal((50, 2)))
    fit = LinearAttribution.fit(read, read[:, 0], names=("a", "b"))
    assert fit(read).shape == (50, 2)
    with pytest.raises(ModelFitError, match=r"\(n, 2\)"):
        fit(np.ones((4, 12)))
