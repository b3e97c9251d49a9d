"""Draw and caps: the laws of measured devices as properties."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import GPUS, PRECISIONS, gpu
from attribution_sched.cluster.power import (
    cap_floor_w,
    cap_reached,
    cap_slowdown,
    capped_w,
    check_cap,
    draw_law,
    fit_cap_beta,
    natural_power_w,
    precision_factor,
)
from attribution_sched.cluster.throughput import floor_law
from attribution_sched.errors import SettingsError

needs_data = pytest.mark.skipif("ATTRIBUTION_SCHED_DATA" not in os.environ, reason="needs the measured tables")
share = st.floats(0, 1)
devices = st.sampled_from(list(GPUS.values()))


@given(devices, share, share, share)
@settings(deadline=None, max_examples=50)
def test_draw_lies_between_idle_and_tdp_and_rises_with_use(device, working, compute, more):
    drawn = natural_power_w(device, working, compute)
    assert device.idle_w <= drawn <= device.tdp_w
    busier = working + more * (1 - working)
    assert natural_power_w(device, busier, compute) >= drawn - 1e-9
    assert natural_power_w(device, 0.0, compute) == device.idle_w


def test_draw_is_a_mixture_of_arithmetic_and_memory():
    device = gpu("V100-PCIE")
    ends = natural_power_w(device, 1.0, np.array([0.0, 1.0]))
    assert natural_power_w(device, 1.0, 0.25) == pytest.approx(0.75 * ends[0] + 0.25 * ends[1])


def test_a_card_never_measured_takes_the_law_of_the_chip_it_is_like():
    like, own = draw_law(gpu("H200-141")), draw_law(gpu("H100-80"))
    assert (like.a_c, like.a_m) == (own.a_c, own.a_m)
    assert own.measured and not like.measured
    stranger = replace(gpu("L4-24"), name="mine", like="")
    assert draw_law(stranger).a_c == load_constants("power")["natural_draw"]["median"]["a_c"]


@given(devices, st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 0.6))
@settings(deadline=None, max_examples=50)
def test_a_cap_above_the_draw_changes_nothing_and_a_lower_one_only_slows(device, draw, cap, beta):
    p0, rho = cap_floor_w(device), cap_reached()
    natural = device.idle_w + draw * (device.tdp_w - device.idle_w)
    caps = np.sort([device.min_cap_w + cap * (device.tdp_w - device.min_cap_w), device.tdp_w])
    drawn = capped_w(natural, caps, device.tdp_w, rho)
    slow = cap_slowdown(natural, drawn, p0, beta)
    assert (drawn <= caps).all() and (drawn <= natural).all()
    assert (slow >= 1).all() and slow[0] >= slow[1]
    assert (slow[rho * caps >= natural] == 1.0).all()


@given(devices, st.floats(0.7, 1.0), st.floats(0.15, 0.45))
@settings(deadline=None, max_examples=50)
def test_energy_is_u_shaped_where_the_cap_binds(device, draw, beta):
    natural, p0 = draw * device.tdp_w, cap_floor_w(device)
    assume(natural > 1.2 * p0)
    drawn = np.linspace(p0 + 0.01 * (natural - p0), natural, 400)
    energy = drawn * cap_slowdown(natural, drawn, p0, beta)
    turn = np.sign(np.diff(energy))
    assert turn[0] < 0
    assert (np.diff(turn) >= 0).all()  # falls, then rises, once at most
    best = min(natural, p0 + np.sqrt(beta * p0 * (natural - p0) / (1 - beta)))  # where the derivative vanishes
    assert best == pytest.approx(drawn[energy.argmin()], abs=2 * (drawn[1] - drawn[0]))


def test_the_law_written_as_published():
    natural, cap, p0, beta = 228.0, 125.0, 59.0, 0.3
    assert cap_slowdown(natural, cap, p0, beta) == pytest.approx(1 + beta * ((natural - p0) / (cap - p0) - 1))
    assert cap_slowdown(natural, natural, p0, beta) == 1.0


@given(st.floats(0.01, 0.2), st.floats(1e-4, 1e-2), devices)
@settings(deadline=None, max_examples=40)
def test_energy_per_sample_never_rises_with_the_batch(floor, t1, device):
    batch = floor / t1 * np.geomspace(0.02, 1.0, 12)  # up to the knee
    time = floor_law(floor, t1, batch, 2.0)
    busy = batch * t1 / time
    watts = natural_power_w(device, busy, 0.7)
    per_sample = watts * time / batch
    assert (np.diff(per_sample) <= 1e-9 * per_sample[:-1]).all()


@given(st.floats(0.02, 0.5), st.floats(120, 240))
@settings(deadline=None, max_examples=30)
def test_fit_recovers_beta(beta, natural):
    caps = np.arange(100.0, 251.0, 25.0)
    times = 3.0 * cap_slowdown(natural, np.minimum(natural, caps), 60.0, beta)
    assert fit_cap_beta(caps, times, natural, 60.0) == pytest.approx(beta)


def test_caps_and_factors_are_checked():
    for device in GPUS.values():
        assert device.idle_w < cap_floor_w(device) < device.min_cap_w
    assert check_cap(gpu("A100-80"), 250.0) == 250.0
    for bad in (50.0, 900.0, float("nan")):
        with pytest.raises(SettingsError, match=r"power cap .* A100-80 accepts caps from 100 to 400 W"):
            check_cap(gpu("A100-80"), bad)
    assert all(0.9 <= precision_factor(p) <= 1.1 for p in PRECISIONS)
    assert 0.9 < cap_reached() < 1.0


@needs_data
def test_zeus_cells_left_out():
    from benchmarks.zeus_cells import (
        BATCH_TARGET,
        CAP_TARGET,
        batch_predictions,
        cap_predictions,
        errors,
        load,
    )

    table = load("v100")
    caps, batches = cap_predictions(table), batch_predictions(table)
    assert errors(caps[caps["interior"]])[1] <= CAP_TARGET
    assert errors(caps[caps["interior"] & caps["binds"]])[1] <= CAP_TARGET
    assert errors(batches[batches["interior"]])[1] <= BATCH_TARGET
