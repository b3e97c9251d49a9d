"""The energy model: monotone, known at idle, exact where the world is of its form, and its closed-form account."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.attribution.accounting import from_idle
from attribution_sched.attribution.energy_model import EnergyModel, per_sample
from attribution_sched.errors import CheckpointError, CounterError, ModelFitError

RATES = np.array([3.0, 0.5, 2.0, 0.1, 12.0, 20.0, 8.0])


def recorded(n=400, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    x = rng.lognormal(0.0, 0.7, (n, 7)) * (rng.random((n, 7)) > 0.2)
    pace = rng.lognormal(1.0, 1.0, n)
    training = rng.random(n) < 0.5
    idle = 30.0 / pace
    joules = (idle + (x @ RATES) * np.where(training, 1.0, 0.4) + 1e-3) * np.exp(noise * rng.standard_normal(n))
    return x * pace[:, None], pace, joules, np.minimum(idle, joules), training


@pytest.fixture(scope="module")
def model():
    counters, pace, joules, idle, training = recorded(noise=0.05)
    return EnergyModel.fit(counters, pace, joules, idle_j=idle, idle_w=30.0, training=training)


def test_prices_come_back():
    counters, pace, joules, idle, training = recorded(n=1500)
    model = EnergyModel.fit(counters, pace, joules, idle_j=idle, idle_w=30.0, training=training)
    assert model.median_error < 0.01
    x = np.eye(7)
    for mode, factor in ((True, 1.0), (False, 0.4)):
        parts = model.parts(x, np.full(7, 2.7), np.full(7, mode))
        np.testing.assert_allclose(parts.sum(axis=1), factor * RATES, rtol=0.25, atol=0.3)
    np.testing.assert_allclose(model.idle_j(np.array([2.0]), np.array([True])), 15.0, rtol=0.02)


@given(some.integers(0, 10_000), some.integers(0, 6), some.floats(0.0, 5.0))
@settings(max_examples=60, deadline=None)
def test_it_never_falls_where_a_counter_rises_and_is_idle_without_any(model, seed, j, more):
    rng = np.random.default_rng(seed)
    x, pace, mode = rng.lognormal(0.0, 1.0, (1, 7)), rng.lognormal(1.0, 2.0, 1), rng.random(1) < 0.5
    higher = x.copy()
    higher[0, j] += more
    assert model.predict(higher, pace, mode)[0] >= model.predict(x, pace, mode)[0]
    assert model.predict(0.0 * x, pace, mode)[0] == model.idle_j(pace, mode)[0] > 0.0


@given(some.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_its_closed_form_is_the_exact_account(model, seed):
    rng = np.random.default_rng(seed)
    n = 4
    x, pace, mode = (
        rng.lognormal(0.0, 1.0, (n, 7)) * (rng.random((n, 7)) > 0.3),
        rng.lognormal(1.0, 1.0, n),
        rng.random(n) < 0.5,
    )
    quick = model.parts(x, pace, mode)
    exact, idle, whole = from_idle(lambda rows: model.predict(rows, np.repeat(pace, 128), np.repeat(mode, 128)), x)
    np.testing.assert_allclose(quick, exact, rtol=1e-9, atol=1e-12 * whole.max())
    np.testing.assert_allclose(quick.sum(axis=1) + idle, model.predict(x, pace, mode), rtol=1e-12)
    assert (quick[x == 0.0] == 0.0).all()
    assert (model.part_errors(x, pace, mode)[x == 0.0] == 0.0).all()


def test_it_is_written_and_read_to_the_last_bit(model):
    again = EnergyModel.from_dict(json.loads(json.dumps(model.as_dict())))
    x, pace, mode = np.full((1, 7), 1.3), np.array([4.0]), np.array([False])
    assert again.predict(x, pace, mode).tobytes() == model.predict(x, pace, mode).tobytes()
    told = model.as_dict()
    told["weights"][0][0][0] = -1.0
    with pytest.raises(CheckpointError, match="below zero"):
        EnergyModel.from_dict(told)
    with pytest.raises(CheckpointError, match="not what a fit has written"):
        EnergyModel.from_dict({"unit": []})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda c, p, e, i: c.__setitem__((3, 2), -1.0), r"counters = -1.0: .*row 3"),
        (lambda c, p, e, i: c.__setitem__((5, 1), np.nan), r"counters = nan.*row 5"),
        (lambda c, p, e, i: p.__setitem__(4, 0.0), r"samples_per_s = 0.0.*> 0"),
        (lambda c, p, e, i: e.__setitem__(9, -2.0), r"energy_j = -2.0.*ran backwards"),
        (lambda c, p, e, i: i.__setitem__(2, 1e9), r"idle_j = 1000000000.0: the idle machine would draw more"),
    ],
)
def test_what_no_meter_says_is_refused(spoil, words):
    counters, pace, joules, idle, training = recorded(60)
    spoil(counters, pace, joules, idle)
    with pytest.raises(ModelFitError, match=words):
        EnergyModel.fit(counters, pace, joules, idle_j=idle, idle_w=30.0, training=training)


def test_too_few_tasks_and_a_throughput_of_nothing_are_refused():
    counters, pace, joules, idle, training = recorded(12)
    with pytest.raises(ModelFitError, match="at least 30 metered tasks"):
        EnergyModel.fit(counters, pace, joules, idle_j=idle, idle_w=30.0, training=training)
    with pytest.raises(CounterError, match=r"samples_per_s = 0.0: joules per sample need a throughput"):
        per_sample(np.ones((1, 7)), np.zeros(1))


def test_the_error_is_of_a_fifth_of_the_tasks_that_the_trial_did_not_see(monkeypatch):
    seen, solved = [], EnergyModel._solved
    monkeypatch.setattr(
        EnergyModel, "_solved", lambda self, rows, chosen: seen.append(chosen) or solved(self, rows, chosen)
    )
    rng = np.random.default_rng(0)
    counters, pace = rng.uniform(1.0, 2.0, (200, 7)), np.full(200, 3.0)
    EnergyModel.fit(counters, pace, counters.sum(axis=1) / 3.0 + 1.0, idle_j=np.ones(200), idle_w=3.0)
    assert [int(chosen.sum()) for chosen in seen] == [160, 200]
