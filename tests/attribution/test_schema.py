"""The one normalisation, back and forth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attribution_sched.attribution.schema import ATTRIBUTION_SCHEMA, closed_form, decode, encode
from attribution_sched.errors import ModelFitError

COUNTERS = np.random.default_rng(2).uniform(0.01, 50.0, (200, 12)) * np.resize(closed_form().unit, 12)


def test_it_names_its_schema():
    assert closed_form().schema == ATTRIBUTION_SCHEMA


def test_a_tasks_numbers_do_not_depend_on_the_tasks_beside_it():
    together = closed_form()(COUNTERS)
    assert all(
        closed_form()(row[None])[0].tobytes() == own.tobytes() for row, own in zip(COUNTERS, together, strict=True)
    )


@given(arrays(np.float64, 7, elements=st.floats(-0.95, 0.95)), st.floats(1e-3, 1e6))
def test_back_and_forth_and_in_any_unit(state, base):
    parts = decode(state, base)
    np.testing.assert_allclose(encode(parts[None], base)[0], state, atol=1e-5)
    np.testing.assert_allclose(encode(1000.0 * parts[None], 1000.0 * base)[0], state, atol=1e-5)


def test_a_prediction_of_nothing_is_the_smallest_and_a_base_of_nothing_is_refused():
    assert np.isfinite(encode(np.full((1, 7), -2.0), 1.0)).all()
    with pytest.raises(ModelFitError, match=r"base = 0\.0: the typical energy must be > 0"):
        encode(np.ones((1, 7)), 0.0)
