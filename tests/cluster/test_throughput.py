"""Batch floor, efficiency and precision gains: laws, anchors and refusals."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.gpus import GPUS, PRECISIONS, Precision, gpu
from attribution_sched.cluster.throughput import (
    efficiency,
    families,
    fit_floor_law,
    floor_law,
    precision_table,
)
from attribution_sched.errors import PlanError, SettingsError

needs_data = pytest.mark.skipif("ATTRIBUTION_SCHED_DATA" not in os.environ, reason="needs the measured tables")
positive = st.floats(1e-5, 10.0)


@given(positive, positive, st.floats(1, 4096), st.sampled_from([2.0, 3.0]))
@settings(deadline=None, max_examples=50)
def test_floor_law_lies_between_its_parts_and_their_sum(floor, t1, batch, p):
    time = floor_law(floor, t1, batch, p)
    assert max(floor, batch * t1) * (1 - 1e-12) <= time <= (floor + batch * t1) * (1 + 1e-12)
    assert floor_law(floor, t1, 2 * batch, p) >= time
    # Time per sample never rises with the batch.
    assert floor_law(floor, t1, 2 * batch, p) / (2 * batch) <= time / batch * (1 + 1e-12)


def test_floor_law_broadcasts():
    times = floor_law(0.01, np.array([[1e-3], [2e-3]]), np.array([1.0, 8.0, 64.0]), 3.0)
    assert times.shape == (2, 3)
    assert times[1, 2] == pytest.approx((0.01**3 + 0.128**3) ** (1 / 3))


@given(st.floats(1e-3, 0.1), st.floats(1e-5, 1e-2))
@settings(deadline=None, max_examples=20)
def test_fit_recovers_what_generated_the_curve(floor, t1):
    batch = floor / t1 * np.array([0.1, 0.3, 1.0, 3.0, 10.0])
    found = fit_floor_law(batch, floor_law(floor, t1, batch, 2), 2)
    assert found == pytest.approx((floor, t1), rel=1e-3)


@pytest.mark.parametrize("name", list(GPUS))
@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("training", [True, False])
def test_every_supported_combination_is_sane(name, family, training):
    device = gpu(name)
    for precision in device.peak_flops:
        found = efficiency(family, device, precision, training)
        assert 0 < found.compute < 1
        assert found.flops_per_s < device.peak_flops[precision]
        assert found.floor_s > 0
        assert (found.speedup > 1) == (precision is not Precision.FP32)
        assert 1.0 <= found.floor_factor <= 1.4
        assert found.p == (2 if training else 3)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.INT8])
def test_volta_refuses_what_it_does_not_have(precision):
    with pytest.raises(PlanError, match=r"precision = .*V100-16 has no hardware.*Use fp32, fp16"):
        efficiency("resnet", gpu("V100-16"), precision)
    table = precision_table("resnet", gpu("V100-16"))
    assert np.isnan(table.t1_factor[precision.index]) and np.isnan(table.floor_factor[precision.index])
    assert np.isfinite(table.t1_factor[[0, 1]]).all()


def test_unknown_family_names_the_nearest():
    with pytest.raises(SettingsError, match="resnet"):
        efficiency("resnett", gpu("A100-80"), Precision.FP32)


def test_mixed_precision_loses_at_small_batches_and_wins_at_large_ones():
    batch = np.array([1.0, 2, 4, 8, 128, 256])
    full, mixed = (
        efficiency("resnet", gpu("V100-16"), p, training=False).step_time_s(batch, 8.18e9, 16)
        for p in (Precision.FP32, Precision.FP16)
    )
    gain = full / mixed
    assert (gain[:4] < 1).all()
    assert ((gain[4:] > 2) & (gain[4:] < 4)).all()


def test_precision_table_agrees_with_efficiency():
    device = gpu("A100-80")
    table = precision_table("bert", device)
    for precision in PRECISIONS:
        found = efficiency("bert", device, precision)
        assert table.t1_factor[precision.index] == pytest.approx(1 / found.speedup)
        assert table.floor_factor[precision.index] == found.floor_factor


def test_int8_gain_is_measured_for_bert_inference_only():
    device = gpu("A100-80")
    half, eighth = (efficiency("bert", device, p, training=False) for p in (Precision.FP16, Precision.INT8))
    assert eighth.speedup / half.speedup == pytest.approx(2.12, abs=0.2)
    assert "speedup" not in eighth.estimated
    assert "speedup" in efficiency("bert", device, Precision.INT8, training=True).estimated
    assert "speedup" in efficiency("resnet", device, Precision.INT8, training=False).estimated


def test_provenance_marks_what_was_not_measured():
    assert {"compute", "speedup"} <= set(efficiency("vit", gpu("A100-80"), Precision.FP16).estimated)
    assert {"compute", "speedup"} <= set(efficiency("bert", gpu("H100-80"), Precision.FP16).estimated)
    assert efficiency("efficientnet", gpu("A100-80"), Precision.FP16, training=False).provenance == "measured"


@needs_data
def test_family_gains_within_fifteen_percent():
    from benchmarks.precision_speedups import TARGET, inference_table, training_table

    assert (training_table()["off"].abs() <= TARGET).all()
    table = inference_table()
    assert (np.abs(table["predicted"] / table["measured"] - 1) <= TARGET).all()
