"""Reports as JSON: nothing is lost, and what does not fit is refused."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import AttributionSchedError
from attribution_sched.report.codec import _made, from_json, plain, to_json
from attribution_sched.report.data import Number
from tests.report.runs import SYSTEMS, report

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_report_survives_json(name):
    found = from_json(to_json(report(name)))
    assert plain(found) == plain(report(name))
    assert found.run == report(name).run
    assert found.timeline == report(name).timeline
    assert found.rivals == report(name).rivals


@given(value=st.none() | finite, unit=st.text(), low=st.none() | finite)
@settings(deadline=None, max_examples=50)
def test_numbers_survive_to_the_last_digit(value, unit, low):
    number = Number(value, unit, "measured", low)
    assert _made(Number, json.loads(json.dumps(plain(number))), "number") == number


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


@pytest.mark.parametrize(
    "spoil",
    [
        lambda told: told.update(schema=99),
        lambda told: told.update(surprise=1),
        lambda told: told["run"].pop("seed"),
        lambda told: told["run"].update(seed="zero"),
        lambda told: told["rivals"].update(span_s=[]),
    ],
)
def test_what_does_not_fit_is_refused(spoil):
    told = json.loads(to_json(report("empty")))
    spoil(told)
    with pytest.raises(AttributionSchedError, match="report"):
        from_json(json.dumps(told))
