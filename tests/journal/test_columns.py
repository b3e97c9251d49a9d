"""Values: whatever is accepted comes back exactly."""

import math
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attribution_sched.errors import JournalError
from attribution_sched.journal import schema as values

words = st.text(st.characters(codec="utf-8"))
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
plain = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(words, inner), max_leaves=20)


@given(plain)
def test_json_comes_back_exactly(value):
    written = values.dump("x", value)
    assert values.load("x", written) == value
    assert values.dump("x", values.load("x", written)) == written


@given(st.floats())
def test_numbers_are_finite_or_refused(value):
    if math.isfinite(value):
        assert values.number("x", value) == value
        assert values.load("x", values.dump("x", value)) == value
    else:
        with pytest.raises(JournalError, match=r"x = .*must be finite"):
            values.number("x", value)
        with pytest.raises(JournalError, match=r"x = .*cannot be written as JSON"):
            values.dump("x", {"deep": [value]})


@given(st.integers(), st.integers(-5, 5))
def test_whole_numbers_have_bounds(value, least):
    if least <= value < 2**63:
        assert values.whole("x", value, least=least) == value
    else:
        with pytest.raises(JournalError, match=f"x = {value}: must be a whole number of at least {least}"):
            values.whole("x", value, least=least)


def test_arrays_and_views_are_plain():
    given = MappingProxyType({"a": np.arange(3), "b": np.float32(0.5), "c": (1, np.int8(2)), "d": np.array(True)})
    assert values.dump_mapping("x", given) == '{"a":[0,1,2],"b":0.5,"c":[1,2],"d":true}'


@pytest.mark.parametrize("value", [True, "1", [1.0], object(), 1j])
def test_what_is_no_number(value):
    with pytest.raises(JournalError, match="x = "):
        values.number("x", value)


def test_a_long_value_is_shortened_in_the_message():
    with pytest.raises(JournalError) as caught:
        values.dump_mapping("x", [0] * 10_000)
    assert len(str(caught.value)) < 200


def test_what_refers_to_itself_is_refused():
    ring = []
    ring.append(ring)
    with pytest.raises(JournalError, match="cannot be written as JSON"):
        values.dump("x", ring)
