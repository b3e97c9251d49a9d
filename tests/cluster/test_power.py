"""Draw and caps: the laws of measured devices as properties."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.gpus import GPUS, PRECISIONS, gpu
from attribution_sched.cluster.power import (
    cap_beta,
    cap_floor_w,
    cap_slowdown,
    check_cap,
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
def test_draw_lies_between_idle_and_tdp_and_rises_with_use(device, compute, memory, more):
    drawn = natural_power_w(device.idle_w, device.tdp_w, compute, memory)
    assert device.idle_w <= drawn <= device.tdp_w
    busier = compute + more * (1 - compute)
    assert natural_power_w(device.idle_w, device.tdp_w, busier, memory) >= drawn - 1e-9
    busier = memory + more * (1 - memory)
    assert natural_power_w(device.idle_w, device.tdp_w, compute, busier) >= drawn - 1e-9
    assert natural_power_w(device.idle_w, device.tdp_w, 0.0, 0.0) == device.idle_w


def test_draw_meets_the_measured_regimes():
    medians = load_constants("power")["natural_draw"]["medians"]
    bands = {"diffusion": (0.92, 0.98), "decode": (0.35, 0.53)}
    for key, row in medians.items():
        kind, chip = key.split(" ")
        device = gpu({"A100": "A100-40", "H100": "H100-80"}[chip])
        drawn = natural_power_w(device.idle_w, device.tdp_w, row["u_compute"], row["u_memory"]) / device.tdp_w
        measured = (device.idle_w + row["measured_activity"] * (device.tdp_w - device.idle_w)) / device.tdp_w
        assert drawn == pytest.approx(measured, abs=0.05)
        assert bands[kind][0] <= drawn <= bands[kind][1]
    # ShuffleNet keeps a 250 W V100 busy 3 % of the time at batch 8 (39 W) and 97 % at batch 1024 (191 W).
    assert natural_power_w(37.0, 250.0, 0.03 * 0.14, 0.03) == pytest.approx(39, abs=8)
    assert natural_power_w(37.0, 250.0, 0.97 * 0.14, 0.97) == pytest.approx(191, abs=15)


@given(devices, st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 0.6))
@settings(deadline=None, max_examples=50)
def test_a_cap_above_the_draw_changes_nothing_and_a_lower_one_only_slows(device, draw, cap, beta):
    p0 = cap_floor_w(device)
    natural = device.idle_w + draw * (device.tdp_w - device.idle_w)
    caps = np.sort([device.min_cap_w + cap * (device.tdp_w - device.min_cap_w), device.tdp_w])
    slow = cap_slowdown(natural, caps, p0, beta)
    assert (slow >= 1).all() and slow[0] >= slow[1]
    assert (slow[caps >= natural] == 1.0).all()


@given(devices, st.floats(0.7, 1.0), st.floats(0.15, 0.45))
@settings(deadline=None, max_examples=50)
def test_energy_is_u_shaped_where_the_cap_binds(device, draw, beta):
    natural, p0 = draw * device.tdp_w, cap_floor_w(device)
    caps = np.linspace(p0 + 2, natural, 400)
    energy = caps * cap_slowdown(natural, caps, p0, beta)
    turn = np.sign(np.diff(energy))
    assert turn[0] < 0 < turn[-1]
    assert (np.diff(turn) >= 0).all()  # falls, then rises, once
    best = min(natural, p0 + np.sqrt(beta * p0 * (natural - p0) / (1 - beta)))  # where the derivative vanishes
    assert best == pytest.approx(caps[energy.argmin()], abs=2 * (caps[1] - caps[0]))


def test_the_law_written_as_published():
    natural, cap, p0, beta = 228.0, 125.0, 59.0, 0.3
    assert cap_slowdown(natural, cap, p0, beta) == pytest.approx(1 + beta * ((natural - p0) / (cap - p0) - 1))


@given(st.floats(0.01, 0.2), st.floats(1e-4, 1e-2), devices)
@settings(deadline=None, max_examples=40)
def test_energy_per_sample_never_rises_with_the_batch(floor, t1, device):
    batch = floor / t1 * np.geomspace(0.02, 1.0, 12)  # up to the knee
    time = floor_law(floor, t1, batch, 2.0)
    busy = batch * t1 / time
    watts = natural_power_w(device.idle_w, device.tdp_w, busy, 0.45 * busy)
    per_sample = watts * time / batch
    assert (np.diff(per_sample) <= 1e-9 * per_sample[:-1]).all()


@given(st.floats(0.02, 0.5), st.floats(120, 240))
@settings(deadline=None, max_examples=30)
def test_fit_recovers_beta(beta, natural):
    caps = np.arange(100.0, 251.0, 25.0)
    times = 3.0 * cap_slowdown(natural, caps, 60.0, beta)
    assert fit_cap_beta(caps, times, natural, 60.0) == pytest.approx(beta)


def test_caps_and_factors_are_checked():
    for device in GPUS.values():
        assert device.idle_w < cap_floor_w(device) < device.min_cap_w
    assert check_cap(gpu("A100-80"), 250.0) == 250.0
    for bad in (50.0, 900.0, float("nan")):
        with pytest.raises(SettingsError, match=r"power cap .* A100-80 accepts caps from 100 to 400 W"):
            check_cap(gpu("A100-80"), bad)
    assert all(0.9 <= precision_factor(p) <= 1.1 for p in PRECISIONS)
    assert 0 == cap_beta(0.0) < cap_beta(0.5) < cap_beta(1.0) < 0.5


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
