"""Arrival processes: counts, gaps, hours of the day, traces."""

import math
from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attribution_sched.cluster.arrivals import (
    DAY_S,
    HOUR_S,
    ArrivalKind,
    ArrivalRow,
    Burst,
    Diurnal,
    Poisson,
    TraceArrivals,
    next_arrival,
)
from attribution_sched.cluster.streams import seed_stream, spawn_streams
from attribution_sched.errors import SettingsError, TraceError

HEADER = "arrival_s,model,steps,batch_size,priority,tenant\n"
POISSON_BEFORE = [181, 59.543334387563384, 85925.13728525728]
DIURNAL_BEFORE = [229, 1480.4974736956392, 85173.78642623537]
"""Number, first and last time of a day of arrivals, seed 5."""
GOOD = HEADER + "0,resnet50,100,32,1,ann\n5.5,gpt2,20,8,0,bob\n5.5,bert,7,4,-1,ann\n"


@pytest.fixture
def write(tmp_path):
    def make(text):
        path = tmp_path / "tasks.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return make


def test_poisson_gaps_are_exponential_and_independent():
    gaps = np.diff(Poisson(60.0).times(20_000 * 60.0, seed=1))
    assert stats.kstest(gaps / 60.0, stats.expon.cdf).pvalue > 0.001
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / math.sqrt(gaps.size)


def test_poisson_count_has_equal_mean_and_variance():
    counts = np.array([Poisson(12.0).times(2 * HOUR_S, seed=s).size for s in range(3_000)])
    assert counts.mean() == pytest.approx(24.0, abs=4 * math.sqrt(24 / 3_000))
    # The variance of a Poisson sample variance is close to 2·mean²/n.
    assert counts.var() == pytest.approx(24.0, abs=4 * 24 * math.sqrt(2 / 3_000 + 1 / (24 * 3_000)))


@pytest.mark.parametrize(("amplitude", "peak"), [(0.8, 14.0), (1.0, 3.0), (0.0, 0.0)])
def test_diurnal_hours_follow_the_intensity(amplitude, peak):
    days = 60
    times = Diurnal(40.0, amplitude, peak).times(days * DAY_S, seed=2)
    counts = np.bincount((times % DAY_S // HOUR_S).astype(int), minlength=24)
    edges = 2 * np.pi * (np.arange(25) - peak) / 24
    expected = days * 40.0 * (1 + amplitude * np.diff(np.sin(edges)) * 24 / (2 * np.pi))
    assert ((counts - expected) ** 2 / expected).sum() < stats.chi2(24).ppf(0.999)
    assert times.size == pytest.approx(days * 24 * 40.0, abs=4 * math.sqrt(days * 24 * 40.0))


def test_diurnal_rescaled_by_its_intensity_is_a_unit_poisson_process():
    process = Diurnal(30.0, 0.9, 16.0)
    t = process.times(40 * DAY_S, seed=3)
    phase = 2 * np.pi / DAY_S
    integral = 30.0 / HOUR_S * (t + 0.9 / phase * (np.sin(phase * (t - 16 * HOUR_S)) + np.sin(phase * 16 * HOUR_S)))
    assert stats.kstest(np.diff(integral), stats.expon.cdf).pvalue > 0.001


def test_without_swing_diurnal_has_the_gaps_of_poisson():
    gaps = np.diff(Diurnal(60.0, 0.0).times(5_000 * 60.0, seed=4))
    assert stats.kstest(gaps / 60.0, stats.expon.cdf).pvalue > 0.001


def _hours(times, horizon_h):
    return np.bincount((times // HOUR_S).astype(int), minlength=horizon_h)


@pytest.mark.parametrize("factor", [4.0, 0.25])
@pytest.mark.parametrize("plain", [Poisson(30.0), Diurnal(30.0, 0.8, 14.0)])
def test_a_burst_multiplies_the_rate_inside_its_window_only(plain, factor):
    bursting = replace(plain, burst=Burst(6.0, 10.0, factor))
    runs = 150
    counts = sum(_hours(bursting.times(DAY_S, seed), 24) for seed in range(runs))
    amplitude = getattr(plain, "amplitude", 0.0)
    edges = 2 * np.pi * (np.arange(25) - 14.0) / 24
    expected = runs * 30.0 * (1 + amplitude * np.diff(np.sin(edges)) * 24 / (2 * np.pi))
    expected[6:10] *= factor
    assert ((counts - expected) ** 2 / expected).sum() < stats.chi2(24).ppf(0.999)


def test_a_bursting_process_rescaled_by_its_intensity_is_a_unit_poisson_process():
    t = Poisson(60.0, Burst(10.0, 50.0, 5.0)).times(100 * HOUR_S, seed=3) / HOUR_S
    assert stats.kstest(np.diff(60.0 * (t + 4.0 * np.clip(t - 10.0, 0.0, 40.0))), stats.expon.cdf).pvalue > 0.001


def test_without_a_burst_the_streams_are_what_they_were():
    # Figures of the version before there were bursts.
    poisson = Poisson(9.0).times(DAY_S, 5)
    diurnal = Diurnal(9.0, 0.7, 15.0).times(DAY_S, 5)
    assert [poisson.size, *poisson[[0, -1]]] == pytest.approx(POISSON_BEFORE, rel=1e-15)
    assert [diurnal.size, *diurnal[[0, -1]]] == pytest.approx(DIURNAL_BEFORE, rel=1e-15)
    assert np.array_equal(Poisson(9.0, Burst(1.0, 2.0, 1.0)).times(DAY_S, 5), poisson)
    assert np.array_equal(Diurnal(9.0, 0.7, 15.0, Burst(1.0, 2.0, 1.0)).times(DAY_S, 5), diurnal)


@settings(deadline=None, max_examples=40)
@given(
    st.one_of(
        st.builds(Poisson, st.floats(0.1, 500), st.just(Burst(1.0, 3.0, 5.0))),
        st.builds(Poisson, st.floats(0.1, 500)),
        st.builds(Diurnal, st.floats(0.1, 500), st.floats(0, 1), st.floats(0, 23.9)),
    ),
    st.floats(0, 20 * HOUR_S),
    st.integers(0, 1000),
)
def test_times_are_sorted_inside_the_horizon_and_a_longer_run_begins_alike(process, horizon, seed):
    times = process.times(horizon, seed)
    assert np.all(np.diff(times) > 0)
    assert np.all((times > 0) & (times < horizon))
    longer = process.times(2 * horizon, seed)
    assert np.array_equal(longer[: times.size], times)


def test_same_seed_same_arrivals():
    assert np.array_equal(Poisson(9.0).times(DAY_S, 5), Poisson(9.0).times(DAY_S, 5))
    assert not np.array_equal(Poisson(9.0).times(DAY_S, 5), Poisson(9.0).times(DAY_S, 6))


@numba.njit
def _batch(kind, params, recorded, states, out):
    for b in range(states.shape[0]):
        now = 0.0
        for i in range(out.shape[1]):
            now = next_arrival(kind, params, recorded, i, now, states[b])
            out[b, i] = now


@pytest.mark.parametrize("process", [Poisson(30.0), Diurnal(30.0, 0.7), Poisson(30.0, Burst(0.5, 1.0, 4.0))])
def test_kernel_in_a_batch_gives_the_path_of_the_single_one(process):
    out = np.empty((4, 50))
    _batch(*process.spec(), spawn_streams(7, 4), out)
    state, now = spawn_streams(7, 3)[2], 0.0
    for i in range(50):
        now = next_arrival(*process.spec(), i, now, state)
        assert now == out[2, i]


def test_trace_replays_every_task_even_those_that_arrive_together(write):
    trace = TraceArrivals.from_csv(write(GOOD))
    assert trace.rows[1] == ArrivalRow(5.5, "gpt2", 20, 8, 0, "bob", "training")
    assert trace.times(100.0).tolist() == [0.0, 5.5, 5.5]
    assert trace.times(5.5).tolist() == [0.0]
    spec = trace.spec()
    state = seed_stream(0)
    before = state.copy()
    assert spec.kind == ArrivalKind.TRACE
    assert [next_arrival(*spec, i, 0.0, state) for i in range(4)] == [0.0, 5.5, 5.5, math.inf]
    assert np.array_equal(state, before)


def test_mode_is_optional_and_read(write):
    path = write(HEADER.replace("tenant", "tenant,mode") + "0,bert,1,1,0,ann,inference\n1,bert,1,1,0,ann,\n")
    assert [row.mode for row in TraceArrivals.from_csv(path).rows] == ["inference", "training"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["line 1", "arrival_s"]),
        (HEADER, ["at least one row"]),
        (HEADER.replace("steps,", "") + "0,bert,1,0,ann\n", ["line 1", "'steps'", "Add the column"]),
        (HEADER + "nan,bert,1,1,0,ann\n", ["line 2", "arrival_s", "'nan'", "finite"]),
        (HEADER + "-1,bert,1,1,0,ann\n", ["line 2", "arrival_s", "'-1'", ">= 0"]),
        (GOOD + "5,bert,1,1,0,ann\n", ["line 5", "arrival_s", "earlier than 5.5", "Sort"]),
        (HEADER + "0,,1,1,0,ann\n", ["line 2", "model", "empty"]),
        (HEADER + "0,bert,0,1,0,ann\n", ["line 2", "steps", "'0'", ">= 1"]),
        (HEADER + "0,bert,1,2.5,0,ann\n", ["line 2", "batch_size", "'2.5'", "whole number"]),
        (HEADER + "0,bert,1,1,high,ann\n", ["line 2", "priority", "'high'"]),
        (HEADER + "0,bert,1,1,0,\n", ["line 2", "tenant", "empty"]),
        (HEADER + "0,bert,1,1\n", ["line 2", "6 fields"]),
        (
            HEADER.replace("tenant", "tenant,mode") + "0,bert,1,1,0,ann,trainig\n",
            ["line 2", "mode", "'trainig'", "Did you mean 'training'?"],
        ),
    ],
)
def test_malformed_trace_names_file_line_value_and_rule(write, text, words):
    path = write(text)
    with pytest.raises(TraceError) as caught:
        TraceArrivals.from_csv(path)
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_missing_trace_and_bad_rows(tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        TraceArrivals.from_csv(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="at least one"):
        TraceArrivals(())
    late, early = (ArrivalRow(t, "bert", 1, 1, 0, "ann") for t in (2.0, 1.0))
    with pytest.raises(TraceError, match="not decreasing"):
        TraceArrivals((late, early))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Poisson(0.0), "rate_per_hour"),
        (lambda: Poisson(math.nan), "rate_per_hour"),
        (lambda: Diurnal(-1.0), "rate_per_hour"),
        (lambda: Diurnal(1.0, 1.1), "amplitude"),
        (lambda: Diurnal(1.0, math.nan), "amplitude"),
        (lambda: Diurnal(1.0, 0.5, 24.0), "peak_hour"),
        (lambda: Burst(-1.0, 2.0, 3.0), "burst start_h"),
        (lambda: Burst(2.0, 2.0, 3.0), "burst end_h = 2.0: must be finite and lie after its start, 2"),
        (lambda: Burst(0.0, math.inf, 3.0), "burst end_h"),
        (lambda: Burst(0.0, 1.0, 0.0), "burst factor"),
        (lambda: Burst(0.0, 1.0, math.nan), "burst factor"),
        (lambda: Poisson(1.0).times(math.inf), "horizon_s"),
        (lambda: Poisson(1.0).times(-1.0), "horizon_s"),
    ],
)
def test_bad_setting_is_one_clear_error(make, word):
    with pytest.raises(SettingsError, match=word):
        make()
