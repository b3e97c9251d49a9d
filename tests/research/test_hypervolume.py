"""Hypervolume against known values, inclusion and exclusion, and counting points."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import ModelFitError
from research.hypervolume import coverage_ratio, hypervolume, pareto_mask

law = settings(deadline=None, max_examples=50)


def points(dimensions, most=7):
    number = st.integers(-3, 6).map(lambda n: n / 2)
    return st.lists(st.tuples(*[number] * dimensions), min_size=1, max_size=most).map(np.array)


def by_inclusion_and_exclusion(values, reference):
    total = 0.0
    for size in range(1, len(values) + 1):
        for some in combinations(values, size):
            total += (-1) ** (size + 1) * np.prod(np.maximum(np.min(some, axis=0) - reference, 0.0))
    return total


@pytest.mark.parametrize("dimensions", [2, 3])
@law
@given(data=st.data())
def test_equals_inclusion_and_exclusion(dimensions, data):
    values = data.draw(points(dimensions))
    reference = np.full(dimensions, -0.25)
    assert hypervolume(values, reference) == pytest.approx(by_inclusion_and_exclusion(values, reference), abs=1e-9)


@pytest.mark.parametrize("dimensions", [2, 3])
@law
@given(data=st.data())
def test_dominated_points_and_the_order_add_nothing(dimensions, data):
    values = data.draw(points(dimensions, most=12))
    reference = np.full(dimensions, -1.75)
    whole = hypervolume(values, reference)
    assert hypervolume(values[pareto_mask(values)], reference) == pytest.approx(whole)
    assert hypervolume(values[::-1], reference) == pytest.approx(whole)
    assert hypervolume(values[:, ::-1], reference) == pytest.approx(whole)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_agrees_with_counting_random_points(dimensions):
    rng = np.random.default_rng(4)
    values = rng.random((40, dimensions))
    samples = rng.random((200_000, dimensions))
    covered = np.zeros(len(samples), dtype=bool)
    for value in values:
        covered |= (samples <= value).all(axis=1)
    share = covered.mean()
    error = np.sqrt(share * (1 - share) / len(samples))
    assert abs(hypervolume(values, np.zeros(dimensions)) - share) < 4 * error


@pytest.mark.parametrize(
    ("values", "reference", "wanted"),
    [
        ([[3, 1], [2, 2], [1, 3]], [0, 0], 6.0),
        ([[3, 1], [2, 2], [1, 3]], [1, 1], 1.0),
        ([[1, 1]], [1, 0], 0.0),
        ([[2, 3, 4]], [0, 0, 0], 24.0),
        ([[1, 1, 3], [1, 3, 1], [3, 1, 1]], [0, 0, 0], 7.0),
        ([[-1, -2]], [-3, -3], 2.0),
        (np.empty((0, 3)), [0, 0, 0], 0.0),
    ],
)
def test_known_values(values, reference, wanted):
    assert hypervolume(values, reference) == pytest.approx(wanted)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
@law
@given(data=st.data())
def test_the_mask_is_the_definition(dimensions, data):
    values = data.draw(points(dimensions, most=12))
    wanted = [not any((q >= p).all() and (q > p).any() for q in values) for p in values]
    assert pareto_mask(values).tolist() == wanted


def test_equal_points_all_stay():
    assert pareto_mask([[1, 2], [1, 2], [0, 2]]).tolist() == [True, True, False]


def test_coverage_compares_two_fronts():
    front = np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    assert coverage_ratio(front, front, [0, 0]) == pytest.approx(1.0)
    assert coverage_ratio(front[1:], front, [0, 0]) == pytest.approx(5 / 6)
    assert coverage_ratio(front + 1, front, [0, 0]) > 1.0


def test_bad_input_is_named():
    with pytest.raises(ModelFitError, match=r"points\[1\] = \[nan, 1.0\]: must be finite"):
        hypervolume([[0, 1], [np.nan, 1]], [0, 0])
    with pytest.raises(ModelFitError, match="2 or 3 columns"):
        hypervolume(np.ones((2, 4)), np.zeros(4))
    with pytest.raises(ModelFitError, match="reference"):
        hypervolume(np.ones((2, 3)), [0, 0])
    with pytest.raises(ModelFitError, match="one row per point"):
        pareto_mask([1.0, 2.0])
    with pytest.raises(ModelFitError, match="reference below that front"):
        coverage_ratio([[1, 1]], [[1, 1]], [2, 2])
