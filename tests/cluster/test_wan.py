"""The network process: exact law for any step, bounds, correlation, clipped moments, replay, validation.

Reading and replaying recorded bandwidth.
"""

from __future__ import annotations

import copy
import math
import pickle

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from attribution_sched.cluster.streams import seed_stream, spawn_streams
from attribution_sched.cluster.wan import (
    BandwidthTrace,
    Wan,
    WanProcess,
    effective_latency,
    emit_epsilon,
    ou_advance,
    ou_coefficients,
    ou_stationary,
    trace_row,
)
from attribution_sched.errors import NetworkError, TraceError

NAMES = ("a", "b", "c")
RUNS = 20_000


def network(**process):
    return Wan.uniform(NAMES, gbps=5.0, latency_s=0.03, usd_per_gb=0.02, **process)


@numba.njit
def _ensemble(states, start, stationary, steps, reversion, spread, rho, dt, out):
    """Run independent clusters from the same start and keep their last latent."""
    decay, noise = ou_coefficients(reversion, spread, dt)
    for r in range(states.shape[0]):
        if stationary:
            ou_stationary(out[r], spread, rho, states[r])
        else:
            out[r] = start
        for _ in range(steps):
            ou_advance(out[r], decay, noise, rho, states[r])


def ensemble(*, seed, steps, dt, start=0.0, stationary=False, reversion=0.01, spread=0.2, rho=0.0, runs=RUNS):
    out = np.zeros((runs, 3, 3))
    initial = np.full((3, 3), start)
    _ensemble(spawn_streams(seed, runs), initial, stationary, steps, reversion, spread, rho, dt, out)
    return out


def links(x):
    return x[:, ~np.eye(3, dtype=bool)]


@pytest.mark.parametrize(("steps", "dt"), [(1, 70.0), (7, 10.0), (1, 0.5), (1, 5000.0)])
def test_transition_has_the_exact_mean_and_variance(steps, dt):
    x = links(ensemble(seed=1, steps=steps, dt=dt, start=0.5))
    elapsed = steps * dt
    decay = math.exp(-0.01 * elapsed)
    deviation = 0.2 * math.sqrt(1 - decay**2)
    assert abs(x.mean() - 0.5 * decay) < 4 * deviation / math.sqrt(x.size)
    assert x.std() == pytest.approx(deviation, rel=0.012)
    assert stats.kstest(x[:, 0], stats.norm(0.5 * decay, deviation).cdf).pvalue > 0.001


def test_two_half_steps_have_the_law_of_one_step():
    one = links(ensemble(seed=2, steps=1, dt=60.0, start=-0.3, rho=0.4))
    two = links(ensemble(seed=3, steps=2, dt=30.0, start=-0.3, rho=0.4))
    assert stats.ks_2samp(one[:, 0], two[:, 0]).pvalue > 0.001
    variance = 0.2**2 * (1 - math.exp(-1.2))
    expected = variance * np.where(np.eye(6, dtype=bool), 1.0, 0.4)
    # A sample variance has standard error sqrt(2/n) times itself.
    for x in (one, two):
        np.testing.assert_allclose(np.cov(x.T), expected, atol=4 * variance * math.sqrt(2 / RUNS))


@settings(deadline=None, max_examples=50)
@given(st.floats(1e-6, 10.0), st.floats(1e-3, 2.0), st.floats(0.0, 1e4), st.floats(0.0, 1e4))
def test_coefficients_compose_for_any_pair_of_steps(reversion, spread, first, second):
    d1, n1 = ou_coefficients(reversion, spread, first)
    d2, n2 = ou_coefficients(reversion, spread, second)
    decay, noise = ou_coefficients(reversion, spread, first + second)
    assert d1 * d2 == pytest.approx(decay, rel=1e-9, abs=1e-300)
    assert math.hypot(n1 * d2, n2) == pytest.approx(noise, rel=1e-9, abs=1e-12)
    assert math.hypot(spread * decay, noise) == pytest.approx(spread, rel=1e-12)


def test_stationary_law_stays_and_neighbouring_links_correlate_by_rho():
    rho = 0.6
    before = links(ensemble(seed=4, steps=0, dt=1.0, stationary=True, rho=rho))
    after = links(ensemble(seed=4, steps=3, dt=25.0, stationary=True, rho=rho))
    for x in (before, after):
        # Links of one run are correlated, so a run counts once.
        assert abs(x.mean()) < 4 * 0.2 / math.sqrt(RUNS)
        assert x.std() == pytest.approx(0.2, rel=0.02)
        correlation = np.corrcoef(x.T)[np.triu_indices(6, 1)]
        np.testing.assert_allclose(correlation, rho, atol=5 * (1 - rho**2) / math.sqrt(RUNS))
    lag = np.corrcoef(before[:, 0], after[:, 0])[0, 1]
    assert lag == pytest.approx(math.exp(-0.01 * 75), abs=5 / math.sqrt(RUNS))


def test_links_are_independent_without_correlation():
    x = links(ensemble(seed=5, steps=1, dt=50.0, stationary=True))
    assert np.abs(np.corrcoef(x.T)[np.triu_indices(6, 1)]).max() < 5 / math.sqrt(RUNS)


@pytest.mark.parametrize("dt", [5.0, 40.0, 130.0])
def test_autocorrelation_of_a_path_is_exponential(dt):
    wan = network(reversion_per_s=0.01, spread=0.2)
    process = WanProcess(wan, 6)
    path = np.empty((20_000, 6))
    for row in path:
        process.step(dt)
        row[:] = process.latent[~np.eye(3, dtype=bool)]
    decay = math.exp(-0.01 * dt)
    measured = np.mean(path[1:] * path[:-1]) / 0.2**2
    # Effective sample size of an autoregression of this decay.
    tolerance = 5 / math.sqrt(path.size * (1 - decay) / (1 + decay))
    assert measured == pytest.approx(decay, abs=tolerance)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**31),
    st.floats(0.0, 3.0),
    st.floats(0.01, 0.99),
    st.floats(0.0, 0.99),
    st.floats(0.0, 1e5),
)
def test_bandwidth_always_lies_within_its_bounds(seed, spread, bound, rho, dt):
    wan = network(spread=spread, bound=bound, correlation=rho)
    process = WanProcess(wan, seed)
    for _ in range(5):
        ratio = process.bandwidth_gbps / wan.bandwidth_gbps
        assert np.all(np.abs(process.epsilon) <= bound)
        assert np.all((ratio >= 1 - bound - 1e-12) & (ratio <= 1 + bound + 1e-12))
        assert np.array_equal(np.diag(process.bandwidth_gbps), np.diag(wan.bandwidth_gbps))
        process.step(dt)


@pytest.mark.parametrize("spread", [0.02, 0.12, 0.3, 2.0])
def test_clipped_variance_closed_form_against_quadrature(spread):
    law = stats.norm(0, spread)
    inside, _ = integrate.quad(lambda x: x * x * law.pdf(x), -0.3, 0.3, points=[0.0])
    expected = inside + 2 * 0.3**2 * law.sf(0.3)
    assert network(spread=spread).epsilon_variance == pytest.approx(expected, rel=1e-9)


def test_clipped_variance_closed_form_against_emitted_values():
    x = ensemble(seed=7, steps=1, dt=30.0, stationary=True, spread=0.25)
    epsilon = np.empty_like(x)
    for source, target in zip(x, epsilon, strict=True):
        emit_epsilon(source, 0.3, target)
    values = links(epsilon)
    assert abs(values.mean()) < 4 * values.std() / math.sqrt(values.size)
    assert values.var() == pytest.approx(network(spread=0.25).epsilon_variance, rel=0.015)
    assert np.all(epsilon[:, np.arange(3), np.arange(3)] == 0)


def test_path_does_not_depend_on_the_batch_it_is_in():
    states = spawn_streams(8, 5)
    batch = np.zeros((5, 4, 4))
    for row, state in zip(batch, states, strict=True):
        ou_stationary(row[:3, :3], 0.2, 0.3, state)
    alone = np.zeros((3, 3))
    ou_stationary(alone, 0.2, 0.3, spawn_streams(8, 2)[1])
    assert np.array_equal(batch[1, :3, :3], alone)
    assert np.all(batch[:, 3] == 0)


def test_stationary_draw_forgets_what_was_there_and_the_diagonal_never_moves():
    dirty, clean = np.full((3, 3), np.nan), np.zeros((3, 3))
    ou_stationary(dirty, 0.2, 0.3, seed_stream(1))
    ou_stationary(clean, 0.2, 0.3, seed_stream(1))
    assert np.array_equal(dirty, clean)
    assert np.all(np.diag(dirty) == 0)
    np.fill_diagonal(dirty, 7.0)
    ou_advance(dirty, 0.5, 0.1, 0.3, seed_stream(2))
    assert np.all(np.diag(dirty) == 7.0)


def test_same_seed_same_path_and_the_process_uses_the_kernels():
    wan = network(spread=0.2, correlation=0.3)
    one, two = WanProcess(wan, 9), WanProcess(wan, 9)
    latent, state = np.zeros((3, 3)), seed_stream(9)
    ou_stationary(latent, 0.2, 0.3, state)
    for dt in (1.0, 600.0, 0.0):
        one.step(dt)
        two.step(dt)
        ou_advance(latent, *ou_coefficients(wan.reversion_per_s, 0.2, dt), 0.3, state)
    assert np.array_equal(one.latent, two.latent)
    assert np.array_equal(one.latent, latent)
    assert one.time_s == 601.0


def test_no_time_no_change_and_no_spread_no_fluctuation():
    process = WanProcess(network(), 10)
    before = process.latent
    process.step(0.0)
    assert np.array_equal(process.latent, before)
    still = WanProcess(network(spread=0.0), 10)
    still.step(100.0)
    assert np.all(still.epsilon == 0)
    assert network(spread=0.0).epsilon_variance == 0


@settings(deadline=None, max_examples=50)
@given(st.floats(0.0, 0.94), st.floats(0.001, 0.009), st.floats(0.01, 2.0))
def test_latency_rises_with_load(u, more, congestion):
    assert effective_latency(0.03, 0.0, congestion) == 0.03
    low, high = effective_latency(0.03, u, congestion), effective_latency(0.03, u + more, congestion)
    assert low == pytest.approx(0.03 * (1 + congestion * u / (1 - u)))
    assert high > low


def test_latency_stops_rising_at_the_cap_and_takes_arrays():
    wan = network(congestion=0.2)
    process = WanProcess(wan, 0)
    full = process.latency_s(1.0)
    np.testing.assert_allclose(full, wan.latency_s * (1 + 0.2 * 19))
    assert np.array_equal(process.latency_s(0.95), process.latency_s(7.0))
    load = np.linspace(0, 0.8, 9).reshape(3, 3)
    expected = [[effective_latency(wan.latency_s[i, j], load[i, j], 0.2) for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(process.latency_s(load), expected)
    with pytest.raises(NetworkError, match="utilisation"):
        process.latency_s(float("nan"))


def test_trace_replaces_the_process():
    gbps = np.full((2, 3, 3), np.nan)
    gbps[:, 0, 1] = [2.0, 20.0]
    trace = BandwidthTrace(NAMES, [0.0, 10.0], gbps)
    base = network(spread=0.2)
    wan = Wan(NAMES, base.bandwidth_gbps, base.latency_s, base.price_usd_per_gb, trace=trace)
    process = WanProcess(wan, 0)
    assert process.bandwidth_gbps[0, 1] == pytest.approx(2.0)
    assert process.epsilon[0, 1] == pytest.approx(-0.6)
    process.step(10.0)
    assert process.bandwidth_gbps[0, 1] == pytest.approx(20.0)
    others = np.ones((3, 3), bool)
    others[0, 1] = False
    assert np.array_equal(process.bandwidth_gbps[others], base.bandwidth_gbps[others])
    with pytest.raises(NetworkError, match=r"trace\.names"):
        Wan(("x", "y", "z"), base.bandwidth_gbps, base.latency_s, base.price_usd_per_gb, trace=trace)


@pytest.mark.parametrize("field", ["bandwidth_gbps", "latency_s", "price_usd_per_gb"])
@pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf")])
def test_bad_figure_names_its_link(field, value):
    figures = {f: np.full((3, 3), 1.0) for f in ("bandwidth_gbps", "latency_s", "price_usd_per_gb")}
    figures[field][0, 2] = value
    with pytest.raises(NetworkError, match=rf"{field}\[a → c\] = {value}: must be"):
        Wan(NAMES, **figures)


def test_zero_bandwidth_is_refused_between_domains_only():
    gbps = np.ones((3, 3))
    np.fill_diagonal(gbps, 0.0)
    assert Wan(NAMES, gbps, np.zeros((3, 3)), np.zeros((3, 3))).bandwidth_gbps[0, 0] == 0
    gbps[1, 0] = 0.0
    with pytest.raises(NetworkError, match=r"b → a.*> 0"):
        Wan(NAMES, gbps, np.zeros((3, 3)), np.zeros((3, 3)))


@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 2), (1, 3, 3)])
def test_wrong_shape_is_refused(shape):
    with pytest.raises(NetworkError, match=r"shape .*must be \(3, 3\)"):
        Wan(NAMES, np.ones(shape), np.ones((3, 3)), np.ones((3, 3)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reversion_per_s", 0.0), ("reversion_per_s", math.inf), ("spread", -0.1), ("spread", math.nan),
        ("bound", 0.0), ("bound", 1.0), ("correlation", 1.0), ("correlation", -0.1), ("congestion", -1.0),
    ],
)  # fmt: skip
def test_bad_process_setting_is_refused(name, value):
    with pytest.raises(NetworkError, match=name):
        network(**{name: value})


@pytest.mark.parametrize("names", [(), ("a", "a", "b")])
def test_names_must_be_distinct_and_there(names):
    with pytest.raises(NetworkError, match="names"):
        Wan(names, np.ones((3, 3)), np.ones((3, 3)), np.ones((3, 3)))


@pytest.mark.parametrize("dt", [-1.0, math.nan, math.inf])
def test_bad_step_is_refused(dt):
    with pytest.raises(NetworkError, match="dt_s"):
        WanProcess(network(), 0).step(dt)


def test_record_is_frozen_and_survives_a_pickle():
    source = np.full((3, 3), 5.0)
    wan = Wan(NAMES, source, np.ones((3, 3)), np.ones((3, 3)), provenance={("a", "b"): "measured"})
    source[0, 1] = -1.0
    assert wan.bandwidth_gbps[0, 1] == 5.0
    for twin in (wan, pickle.loads(pickle.dumps(wan)), copy.deepcopy(wan)):  # noqa: S301
        assert np.array_equal(twin.bandwidth_gbps, wan.bandwidth_gbps)
        assert twin.provenance["a", "b"] == "measured"
        with pytest.raises(ValueError, match="read-only"):
            twin.bandwidth_gbps[0, 1] = 1.0
        with pytest.raises(TypeError):
            twin.provenance["a", "b"] = "guessed"


def test_one_domain_is_a_network_without_links():
    process = WanProcess(Wan.uniform(["only"], gbps=1.0, latency_s=0.0, usd_per_gb=0.0), 0)
    process.step(5.0)
    assert process.bandwidth_gbps.tolist() == [[100.0]]


HEADER = "time_s,src,dst,gbps\n"


@pytest.fixture
def write(tmp_path):
    def make(text, encoding="utf-8"):
        path = tmp_path / "trace.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return make


def test_links_hold_their_last_value_and_absent_ones_keep_the_base(write):
    path = write(HEADER + "100,a,b,2.0\n110,b,a,7\n120,a,b,3.0\n")
    trace = BandwidthTrace.from_csv(path, NAMES)
    assert trace.times_s.tolist() == [0.0, 10.0, 20.0]
    ab, ba = trace.at([0, 9.9, 10, 20, 1e9])[:, 0, 1], trace.at([0, 9.9, 10, 20, 1e9])[:, 1, 0]
    assert ab.tolist() == [2.0, 2.0, 2.0, 3.0, 3.0]
    np.testing.assert_array_equal(ba, [np.nan, np.nan, 7.0, 7.0, 7.0])
    assert np.isnan(trace.at(20.0)[2]).all()
    assert trace.source == str(path)
    base = np.full((3, 3), 4.0)
    np.testing.assert_allclose(trace.multiplier(base)[2, :2, :2], [[1.0, 0.75], [1.75, 1.0]])


def test_wrap_repeats_with_a_last_row_as_long_as_the_one_before(write):
    path = write(HEADER + "0,a,b,1\n10,a,b,2\n30,a,b,3\n")
    trace = BandwidthTrace.from_csv(path, NAMES, at_end="wrap")
    assert trace.period_s == 50.0
    assert trace.at([0, 10, 30, 49, 50, 60, 130])[:, 0, 1].tolist() == [1, 2, 3, 3, 1, 2, 3]
    assert BandwidthTrace.from_csv(path, NAMES).period_s == 0.0


def test_one_row_is_a_constant(write):
    trace = BandwidthTrace.from_csv(write(HEADER + "5,a,b,1.5\n"), NAMES, at_end="wrap")
    assert trace.at([0.0, 1e6])[:, 0, 1].tolist() == [1.5, 1.5]


def test_column_order_spaces_extra_columns_and_byte_order_mark_do_not_matter(write):
    path = write("dst, gbps ,note,src,time_s\nb, 2.5,x,a,0\n", encoding="utf-8-sig")
    assert BandwidthTrace.from_csv(path, NAMES).at(0.0)[0, 1] == 2.5


def test_lookup_takes_any_shape(write):
    trace = BandwidthTrace.from_csv(write(HEADER + "0,a,b,1\n10,a,b,2\n"), NAMES)
    assert trace.at(3.0).shape == (3, 3)
    assert trace.at(np.zeros((4, 2))).shape == (4, 2, 3, 3)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(0.1, 1e3), min_size=1, max_size=20),
    st.lists(st.floats(0, 1e5), min_size=1, max_size=20),
)
def test_row_lookup_equals_searchsorted(gaps, wanted):
    times = np.concatenate([[0.0], np.cumsum(gaps)])
    expected = np.searchsorted(times, wanted, side="right") - 1
    assert [trace_row(times, t, 0.0) for t in wanted] == expected.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["line 1", "time_s"]),
        ("time_s,src,gbps\n0,a,1\n", ["line 1", "'dst'", "Add the column"]),
        (HEADER, ["at least one row"]),
        (HEADER + "0,a,b,nan\n", ["line 2", "gbps", "'nan'", "finite"]),
        (HEADER + "0,a,b,1\n1,a,b,-3\n", ["line 3", "gbps", "'-3'", "> 0"]),
        (HEADER + "0,a,b,0\n", ["line 2", "'0'", "outage"]),
        (HEADER + "0,a,b,fast\n", ["line 2", "'fast'", "finite number"]),
        (HEADER + "inf,a,b,1\n", ["line 2", "time_s", "'inf'"]),
        (HEADER + "0,a,bb,1\n", ["line 2", "dst", "'bb'", "Did you mean 'b'?"]),
        (HEADER + "0,a,a,1\n", ["line 2", "dst", "differ from src"]),
        (HEADER + "-5,a,b,1\n", ["line 2", "time_s", "'-5'", ">= 0"]),
        (HEADER + "5,a,b,1\n5,a,b,2\n", ["line 3", "time_s", "later than 5.0"]),
        (HEADER + "5,a,b,1\n6,b,a,1\n4,a,b,2\n", ["line 4", "time_s", "Sort"]),
        (HEADER + "0,a,b\n", ["line 2", "4 fields"]),
        (HEADER + "0,a,b,1,9\n", ["line 2", "4 fields"]),
    ],
)
def test_malformed_file_names_file_line_value_rule_and_fix(write, text, words):
    path = write(text)
    with pytest.raises(TraceError) as caught:
        BandwidthTrace.from_csv(path, NAMES)
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_unreadable_files_are_trace_errors(write, tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        BandwidthTrace.from_csv(tmp_path / "missing.csv", NAMES)
    with pytest.raises(TraceError, match="cannot be read"):
        BandwidthTrace.from_csv(write("time_s,ñ\n", encoding="latin-1"), NAMES)


def _grid(value=1.0):
    gbps = np.full((2, 3, 3), np.nan)
    gbps[:, 0, 1] = value
    return gbps


@pytest.mark.parametrize(
    ("times", "gbps", "at_end", "word"),
    [
        ([0.0, 1.0], _grid()[:, :2], "hold", "shape"),
        ([], np.empty((0, 3, 3)), "hold", "shape"),
        ([0.0, 0.0], _grid(), "hold", "increase"),
        ([1.0, 2.0], _grid(), "hold", "start at 0"),
        ([0.0, np.nan], _grid(), "hold", "increase"),
        ([0.0, 1.0], _grid(-1.0), "hold", "> 0"),
        ([0.0, 1.0], np.ones((2, 3, 3)), "hold", "diagonal"),
        ([0.0, 1.0], _grid(), "stop", "at_end"),
    ],
)
def test_arrays_are_checked_too(times, gbps, at_end, word):
    with pytest.raises(TraceError, match=word):
        BandwidthTrace(NAMES, times, gbps, at_end)
