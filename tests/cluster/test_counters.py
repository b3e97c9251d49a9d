"""Counters: what a scheduler may see of a task, with real noise and real dependence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.counters import (
    COUNTER_NAMES,
    COUNTER_UNITS,
    NOISE,
    SPEED_NOISE,
    counters,
    noise_correlation,
    sample_time_s,
    throughput,
    true_rates,
)
from attribution_sched.cluster.demands import DEMAND_NAMES, Demands, draw_demands, nominal_demands
from attribution_sched.cluster.models import model
from attribution_sched.errors import CounterError

NAMES = ("resnet-50", "efficientnet-b0", "vit-b-16", "bert-base", "gpt2-small", "llama-3-8b")


def fleet(n, seed=0):
    return draw_demands([model(NAMES[i % len(NAMES)]) for i in range(n)], np.random.default_rng(seed))


@given(st.integers(0, 2**31))
@settings(deadline=None, max_examples=20)
def test_readings_are_finite_and_ratios_bounded(seed):
    read = counters(fleet(12, seed), np.random.default_rng(seed))
    assert read.values.shape == (12, len(COUNTER_NAMES))
    assert np.isfinite(read.values).all() and (read.values >= 0).all()
    for name in ("sm_active", "dram_active", "conv", "fc", "attention"):
        assert (read.column(name) <= 1).all()
    assert read.provenance == "simulated"


def test_the_first_seven_are_the_attribution_dimensions():
    assert COUNTER_NAMES[:7] == DEMAND_NAMES
    assert all(COUNTER_UNITS[name] for name in COUNTER_NAMES)
    read = counters(fleet(3), np.random.default_rng(0))
    assert read.seven.shape == (3, 7)


def test_without_noise_readings_are_the_true_rates():
    demands = fleet(6)
    assert counters(demands, np.random.default_rng(0), noise=0.0).values == pytest.approx(true_rates(demands))
    cycles = true_rates(demands)[:, 0] * sample_time_s(demands)
    assert cycles == pytest.approx(demands.values[:, 0])


def test_repeated_readings_of_one_task_scatter_by_the_noise_and_depend_as_measured():
    one = fleet(1).take(np.zeros(20_000, int))
    logs = np.log(counters(one, np.random.default_rng(1)).values[:, [0, 1, 7]])
    assert logs[:, 0].std() == pytest.approx(NOISE, rel=0.03)
    corr = np.corrcoef(logs.T)
    assert corr[0, 2] == pytest.approx(0.73, abs=0.03)
    assert corr[0, 1] == pytest.approx(0.44, abs=0.03)


def test_counters_of_a_fleet_are_dependent_but_not_redundant():
    read = counters(fleet(6000), np.random.default_rng(2))
    corr = np.corrcoef(read.column("cpu_cycles"), read.column("instructions"))[0, 1]
    assert 0.65 < corr < 0.95


def test_noise_correlation_is_a_correlation():
    corr = noise_correlation()
    assert (corr == corr.T).all() and (np.diag(corr) == 1).all()
    assert np.linalg.eigvalsh(corr).min() > 0.05


@pytest.mark.parametrize("name", DEMAND_NAMES[:4])
def test_a_heavier_demand_shows_in_its_counter(name):
    nominal, seconds = nominal_demands(model("resnet-50"))
    heavy = nominal.copy()
    heavy[DEMAND_NAMES.index(name)] *= 2
    both = Demands(np.stack([nominal, heavy]), np.stack([nominal] * 2), np.stack([seconds] * 2))
    rates = true_rates(both)[:, COUNTER_NAMES.index(name)]
    assert rates[1] > rates[0]


def test_bad_names_and_noise_are_refused():
    read = counters(fleet(1), np.random.default_rng(0))
    with pytest.raises(CounterError, match="l3_misses"):
        read.column("l3_mises")
    with pytest.raises(CounterError, match="noise"):
        counters(fleet(1), np.random.default_rng(0), noise=-1.0)


def test_throughput_is_what_rates_do_not_tell():
    """Twice of everything at half the speed has the same rates."""
    demands = draw_demands([model("bert-base")] * 3, np.random.default_rng(0))
    twice = Demands(2.0 * demands.values, demands.nominal, demands.nominal_s)
    assert np.allclose(true_rates(twice), true_rates(demands))
    exact = throughput(demands, np.random.default_rng(1), 0.0)
    assert np.allclose(exact, 1.0 / sample_time_s(demands))
    assert np.allclose(throughput(twice, np.random.default_rng(1), 0.0), exact / 2.0)


def test_throughput_scatters_by_its_noise():
    many = draw_demands([model("bert-base")] * 4000, np.random.default_rng(0))
    apart = np.log(throughput(many, np.random.default_rng(1)) * sample_time_s(many))
    assert apart.std() == pytest.approx(SPEED_NOISE, rel=0.05) and abs(apart.mean()) < 0.005
    with pytest.raises(CounterError, match="noise"):
        throughput(many, np.random.default_rng(1), -1.0)
