import numpy as np
import pytest

from attribution_sched.errors import CounterError, ModelFitError
from research.attribution_rivals import LinearCounters, cpu_time_share, load_times_tdp, sm_utilisation_share

NAMES = ("train", "serve")


def test_shares_split_what_is_above_idle():
    got = cpu_time_share(100.0, [3.0, 1.0], NAMES, idle_j=20.0)
    np.testing.assert_allclose(got.values, [60, 20])
    assert got.base == 20.0
    assert got.prediction == 100.0
    assert sm_utilisation_share(10.0, [0.5, 0.5], NAMES).values.tolist() == [5, 5]


def test_load_times_tdp():
    got = load_times_tdp([0.5, 1.0], [200.0, 300.0], 10.0, NAMES)
    assert got.values.tolist() == [1000, 3000]


def test_linear_counters_recover_an_additive_meter():
    rng = np.random.default_rng(0)
    x = rng.random((200, 3))
    truth = np.array([4.0, 2.0, 1.0])
    model = LinearCounters().fit(x, 10 + x @ truth)
    got = model.attribute(x[:4])
    np.testing.assert_allclose(got.values, (x[:4] - x.mean(0)) * truth, atol=1e-9)
    np.testing.assert_allclose(model.predict(x), 10 + x @ truth)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: cpu_time_share(-1.0, [1, 1], NAMES), ModelFitError, "negative"),
        (lambda: cpu_time_share(np.nan, [1, 1], NAMES), ModelFitError, "finite"),
        (lambda: cpu_time_share(5.0, [1, 1], NAMES, idle_j=9.0), CounterError, "idle"),
        (lambda: cpu_time_share(5.0, [0, 0], NAMES), CounterError, "someone"),
        (lambda: cpu_time_share(5.0, [1, -1], NAMES), CounterError, "not negative"),
        (lambda: cpu_time_share(5.0, [1], NAMES), CounterError, "one for each"),
        (lambda: load_times_tdp([50, 20], [1, 1], 1.0, NAMES), CounterError, "percentages"),
        (lambda: load_times_tdp([0.5, 0.2], [1, 1], 0.0, NAMES), CounterError, "positive"),
        (
            lambda: LinearCounters().fit(np.random.default_rng(0).random((60, 2)), -np.ones(60)),
            ModelFitError,
            "negative",
        ),
        (
            lambda: LinearCounters().fit(np.random.default_rng(0).random((60, 2)), np.ones(59)),
            ModelFitError,
            "one energy",
        ),
    ],
)
def test_bad_input_gives_one_clear_error(call, error, match):
    with pytest.raises(error, match=match):
        call()
