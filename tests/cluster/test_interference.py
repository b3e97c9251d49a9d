"""Co-location: the slowdown's laws, its fit, and pairs that were held out."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.interference import (
    RESOURCES,
    slowdown,
)
from attribution_sched.cluster.models import model
from attribution_sched.errors import ModelFitError
from research.interference_fit import fit_demands, resource_demands, summed_throughput

needs_data = pytest.mark.skipif("ATTRIBUTION_SCHED_DATA" not in os.environ, reason="needs the measured tables")
vectors = arrays(float, len(RESOURCES), elements=st.floats(0, 1))


@given(vectors, vectors, st.integers(0, len(RESOURCES) - 1), st.floats(0.01, 1))
@settings(deadline=None, max_examples=50)
def test_slowdown_is_at_least_one_and_rises_with_the_co_runner(own, other, r, more):
    base = slowdown(own, other)
    assert base >= 1
    heavier = other.copy()
    heavier[r] = other[r] + more * (1 - other[r])
    assert slowdown(own, heavier) >= base
    hungrier = own.copy()
    hungrier[r] = own[r] + more * (1 - own[r])
    assert slowdown(hungrier, other) >= base


@given(vectors, vectors)
@settings(deadline=None, max_examples=50)
def test_sum_is_symmetric(a, b):
    assert summed_throughput(a, b) == pytest.approx(summed_throughput(b, a))
    assert 0 < summed_throughput(a, b) <= 2


@given(vectors, vectors, st.permutations(range(len(RESOURCES))))
@settings(deadline=None, max_examples=30)
def test_renaming_resources_changes_nothing(a, b, order):
    k = np.array([0.3, 0.7, 1.5, 2.0])
    assert slowdown(a[order], b[order], k[order]) == pytest.approx(slowdown(a, b, k))


def test_no_common_resource_no_slowdown():
    host, compute = np.eye(len(RESOURCES))[:2]
    assert slowdown(host, compute) == 1.0
    assert summed_throughput(host, compute) == 2.0


def test_a_heavy_user_hurts_a_light_one_more_than_the_reverse():
    light, heavy = np.array([0, 0.3, 0, 0]), np.array([0, 0.95, 0, 0])
    assert slowdown(light, heavy) > slowdown(heavy, light)


def test_batched_shapes():
    demands = np.random.default_rng(0).random((5, 1, len(RESOURCES)))
    others = np.random.default_rng(1).random((7, len(RESOURCES)))
    assert slowdown(demands, others).shape == (5, 7)


def test_fit_recovers_throughputs_of_a_known_law():
    rng = np.random.default_rng(3)
    truth, k = rng.random((10, 4)), np.array([0.5, 0.6, 1.0, 0.8])
    pairs = np.array([(i, j) for i in range(10) for j in range(i, 10)])
    first, second = truth[pairs[:, 0]], truth[pairs[:, 1]]
    seen = np.column_stack([1 / slowdown(first, second, k), 1 / slowdown(second, first, k)])
    test = np.arange(len(pairs)) % 5 == 0
    flat = np.full((10, 4), 0.5) + 0.1 * rng.standard_normal((10, 4))
    demands, strength = fit_demands(pairs[~test], seen[~test], flat, np.full((10, 4), 1e-6), 2000)
    guess = summed_throughput(demands[pairs[test, 0]], demands[pairs[test, 1]], strength)
    assert np.median(np.abs(guess - seen[test].sum(1))) < 0.03


def test_fit_refuses_pairs_that_did_not_fit():
    with pytest.raises(ModelFitError, match="Drop pairs"):
        fit_demands(np.array([[0, 1]]), np.array([[0.0, 1.0]]), np.zeros((2, 4)), np.ones((2, 4)))


def test_architecture_decides_what_is_demanded():
    v100 = gpu("V100-32")
    small, large = (resource_demands(model("resnet-50"), v100, Precision.FP32, b) for b in (1, 64))
    assert small[0] > large[0] and small[1] < large[1]
    conv, text = (resource_demands(model(n), v100, Precision.FP32, 64) for n in ("efficientnet-b0", "bert-large"))
    assert conv[2] > text[2] and conv[3] > text[3]
    both = resource_demands(model("resnet-50"), v100, Precision.FP32, np.array([1.0, 64.0]))
    assert both == pytest.approx(np.stack([small, large]))
    for found in (small, large, conv, text):
        assert found.shape == (len(RESOURCES),) and (found >= 0).all() and (found <= 1).all()


@needs_data
def test_held_out_pairs():
    from calibration.fit_interference import held_out

    rows = held_out("v100", range(6, 10))
    assert np.mean([row["held_out"] for row in rows]) <= 0.15
    assert np.mean([row["held_out"] for row in rows]) < 0.7 * np.mean([row["constant"] for row in rows])
