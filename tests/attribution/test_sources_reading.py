import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.attribution.sources.reading import (
    Provenance,
    Reading,
    ReadingBuilder,
    difference,
    worst,
)
from attribution_sched.errors import CounterError


def build(values, timestamp_s=0.0, cumulative=True):
    out = ReadingBuilder()
    for name, value in values.items():
        if value is None:
            out.missing(name, "J", "no such zone", cumulative)
        else:
            out.add(name, value, "J", cumulative=cumulative)
    return out.build(timestamp_s)


def test_a_missing_counter_is_nan_and_says_why():
    reading = build({"a": 1.0, "b": None})
    assert math.isnan(reading.values["b"])
    assert reading.notes["b"] == "no such zone"
    assert reading.available == ("a",)


@pytest.mark.parametrize(
    ("value", "provenance", "notes", "words"),
    [
        (0.0, Provenance.UNAVAILABLE, {"a": "why"}, "unavailable counter is NaN"),
        (math.nan, Provenance.UNAVAILABLE, {}, "needs a reason"),
        (math.nan, Provenance.MEASURED, {}, "is finite"),
        (math.inf, Provenance.ESTIMATED, {}, "is finite"),
    ],
)
def test_no_silent_zero_and_no_unexplained_nan(value, provenance, notes, words):
    with pytest.raises(CounterError, match=words):
        Reading({"a": value}, {"a": "J"}, {"a": provenance}, notes)


def test_names_must_agree():
    with pytest.raises(CounterError, match="units"):
        Reading({"a": 1.0}, {}, {"a": Provenance.MEASURED})
    with pytest.raises(CounterError, match="names no counter"):
        Reading({"a": 1.0}, {"a": "J"}, {"a": Provenance.MEASURED}, {"b": "x"})


def test_a_reading_cannot_be_changed():
    reading = build({"a": 1.0})
    with pytest.raises(TypeError):
        reading.values["a"] = 2.0


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.floats(0, 1e9), st.floats(0, 1e9), st.booleans())
def test_difference_subtracts_totals_and_keeps_levels(first, gain, cumulative):
    gap = difference(build({"a": first}, 1.0, cumulative), build({"a": first + gain}, 2.0, cumulative))
    assert gap.values["a"] == ((first + gain) - first if cumulative else first + gain)


def test_difference_is_as_good_as_the_worse_end():
    gap = difference(build({"a": None}, 1.0), build({"a": 3.0}, 2.0))
    assert gap.provenance["a"] is Provenance.UNAVAILABLE
    assert gap.notes["a"] == "no such zone"


def test_difference_refuses_time_travel_and_strangers():
    with pytest.raises(CounterError, match="before the first"):
        difference(build({"a": 1.0}, 2.0), build({"a": 1.0}, 1.0))
    with pytest.raises(CounterError, match="same counters"):
        difference(build({"a": 1.0}), build({"b": 1.0}))
    with pytest.raises(CounterError, match="cannot fall"):
        difference(build({"a": 2.0}, 1.0), build({"a": 1.0}, 2.0))


def test_worst():
    assert worst([Provenance.MEASURED, Provenance.SIMULATED, Provenance.ESTIMATED]) is Provenance.SIMULATED
    assert worst([]) is Provenance.MEASURED
