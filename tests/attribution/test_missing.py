"""Counters that cannot be read: what EmSHAP completes, and the account over it."""

from pathlib import Path

import numpy as np
import pytest

from attribution_sched import attribution
from attribution_sched.attribution import missing as missing_module
from attribution_sched.attribution.conditionals.points import sobol_points
from attribution_sched.attribution.fitted import Fitted
from attribution_sched.attribution.missing import DRAWS
from attribution_sched.attribution.simulated_meter import metered_tasks
from attribution_sched.config import load_settings


@pytest.fixture(scope="module")
def testbed():
    return load_settings("testbed").build_world()


@pytest.fixture(scope="module")
def shipped(testbed):
    made = Fitted.of_world(testbed)
    assert made.shipped
    return made


@pytest.fixture(scope="module")
def tasks(testbed):
    return metered_tasks(testbed, 60, 77)


def holes(tasks, row, names):
    given = tasks.counters[row].copy()
    given[names] = np.nan
    return given


@pytest.mark.parametrize("preset", ["cross-domain-easy", "large", "shared", "testbed"])
def test_the_first_task_with_a_counter_missing_waits_for_no_library(preset, monkeypatch):
    """The points of the draws are kept in the file: the same to the bit, and nothing has to be loaded to make them."""
    made = Fitted.load(Path(attribution.__file__).parent / "shipped" / preset)[0]
    kept = made.missing._points["net"].uniforms
    rng = np.random.default_rng([made.missing.explainer.seed, 7])
    assert np.array_equal(kept, sobol_points(DRAWS, len(made.missing.explainer.names_), 1, rng).uniforms)

    def never(*_):
        raise AssertionError("made again")

    monkeypatch.setattr(missing_module, "sobol_points", never)
    drawn = made.missing.complete(np.full(7, np.nan), 10.0, True)
    assert len(drawn.weights) == DRAWS


@pytest.mark.parametrize("hidden", [[0], [0, 1, 2], [2, 4, 5, 6], list(range(7))])
def test_patterns_kept_draw_what_the_mixture_draws(shipped, tasks, hidden):
    """The quick way, pattern by pattern, against the model's own draws."""
    missing = shipped.missing
    model = missing.explainer.model_
    for row in range(12):
        given = holes(tasks, row, hidden)
        quick = missing.complete(given, float(tasks.samples_per_s[row]), bool(tasks.training[row]))
        read = np.append(np.log1p(given / missing.unit), np.log(tasks.samples_per_s[row]))
        read = np.append(read, float(tasks.training[row]))[None]
        mask = np.isfinite(read)
        z = missing.explainer.scale_.standardise(np.where(mask, read, missing.explainer.scale_.mean))
        made = model.draws(z, mask, missing._net(read.shape[1]))
        rows = missing.explainer.scale_.restore(made.rows.reshape(-1, read.shape[1]).copy())
        rates = np.minimum(np.expm1(np.maximum(rows[:, :7], 0.0)) * missing.unit, missing.most[:7])
        weights = made.weights.reshape(-1) / made.weights.sum()
        expected = np.where(np.isnan(given), weights @ rates, given)
        assert quick.weights @ quick.counters == pytest.approx(expected, rel=1e-6)
        assert quick.weights.sum() == pytest.approx(1.0)


def test_what_was_read_is_kept_to_the_bit_and_a_zero_takes_nothing(shipped, tasks):
    for row in range(len(tasks.counters)):
        given = holes(tasks, row, [0, 2])
        parts, idle, error, drawn = shipped.missing.account(
            shipped.energy, given, float(tasks.samples_per_s[row]), bool(tasks.training[row])
        )
        seen = ~np.isnan(given)
        assert (drawn.counters[:, seen] == given[seen]).all()
        assert (parts[given == 0.0] == 0.0).all() and (error[given == 0.0] == 0.0).all()
        assert idle > 0.0 and (parts >= 0.0).all()


def test_a_throughput_nobody_measured_is_drawn_too(shipped, tasks):
    given = holes(tasks, 0, [1])
    parts, idle, error, drawn = shipped.missing.account(shipped.energy, given, np.nan, bool(tasks.training[0]))
    assert len(np.unique(drawn.samples_per_s)) > 8 and np.isfinite([*parts, idle, *error]).all()


def test_the_mean_account_is_that_of_its_draws(shipped, tasks):
    energy, row = shipped.energy, 3
    pace, mode = float(tasks.samples_per_s[row]), bool(tasks.training[row])
    drawn = shipped.missing.complete(holes(tasks, row, [0, 1, 5]), pace, mode)
    x, n = drawn.counters / pace, len(drawn.weights)
    mean, idle, opened, _ = energy.expected(x, drawn.weights, np.array([pace]), mode)
    each = energy.parts(x, np.full(n, pace), np.full(n, mode))
    assert mean == pytest.approx(drawn.weights @ each)
    assert opened == pytest.approx(drawn.weights @ np.square(each - mean), rel=1e-6, abs=1e-9 * mean.sum() ** 2)
    assert idle == pytest.approx(energy.idle_j(np.array([pace]), np.array([mode]))[0])
    certain = energy.expected(x[:1], np.ones(1), np.array([pace]), mode)
    assert np.sqrt(certain[3]) == pytest.approx(energy.part_errors(x[:1], np.array([pace]), np.array([mode]))[0])


def test_patterns_are_worked_out_once(shipped, tasks, monkeypatch):
    import attribution_sched.attribution.missing as home

    given = holes(tasks, 0, [0, 6])
    shipped.missing.complete(given, 10.0, True)
    monkeypatch.setattr(home, "condition", lambda *_: pytest.fail("worked out again"))
    shipped.missing.complete(holes(tasks, 1, [0, 6]), 20.0, False)
