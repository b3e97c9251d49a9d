"""Reports as JSON: nothing is lost, and what does not fit is refused."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.report.data import Number
from attribution_sched.report.write import plain, to_json
from tests.report.runs import SYSTEMS, report

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("name", SYSTEMS)
def test_json_holds_every_record_of_a_report(name):
    told = json.loads(to_json(report(name)))
    assert told == plain(report(name))
    assert set(told) == {field.name for field in fields(report(name))}


@given(value=st.none() | finite, unit=st.text(), low=st.none() | finite)
@settings(deadline=None, max_examples=50)
def test_numbers_survive_to_the_last_digit(value, unit, low):
    number = Number(value, unit, "measured", low)
    assert Number(**json.loads(json.dumps(plain(number)))) == number


def test_what_is_not_finite_is_null():
    run = report("empty").run
    odd = replace(report("empty"), run=replace(run, totals={"x": Number(float("nan"), "", "measured")}))
    assert json.loads(to_json(odd))["run"]["totals"]["x"]["value"] is None


def test_every_number_has_unit_and_provenance():
    totals = json.loads(to_json(report("learnt")))["run"]["totals"]
    assert len(totals) > 20
    for name, told in totals.items():
        assert set(told) == {"value", "unit", "provenance", "low", "high"}, name
        assert told["provenance"] in ("measured", "estimated", "simulated", "given"), name
