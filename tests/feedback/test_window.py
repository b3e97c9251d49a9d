"""Windows: what is measured of them, with its error, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attribution_sched.errors import ModelFitError
from attribution_sched.feedback.window import DecisionOutcome, Window
from attribution_sched.journal.records import OutcomeRecord
from tests.feedback.factory import explained, outcome, told


def test_means_and_their_errors_are_those_of_the_terms():
    window = explained(30)
    terms = window.terms()
    for name, values in (
        ("utilisation_at_least", terms[:, 1]),
        ("step_ratio_at_most", 1 - terms[:, 0]),
        ("cost_ratio_at_most", terms[:, 2]),
    ):
        found = window.measure(name)
        assert found.value == pytest.approx(values.mean())
        assert found.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(30))
        assert found.count == 30


def test_energy_per_unit_and_bill_per_day_by_hand():
    window = Window(
        (
            outcome(energy_j=300.0, base_step_s=2.0, steps=10.0, bill_usd=0.5),
            outcome(energy_j=100.0, base_step_s=1.0, steps=30.0, bill_usd=0.1),
        ),
        span_s=43_200.0,
    )
    assert window.measure("energy_j_per_unit_at_most").value == pytest.approx((3000 + 3000) / (20 + 30))
    assert window.measure("bill_usd_per_day_at_most").value == pytest.approx((5 + 3) * 2)


def test_the_error_of_a_ratio_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        work = rng.uniform(0.5, 2.0, 40)
        joules = 150.0 * work * rng.lognormal(0.0, 0.2, 40) / math.exp(0.02)
        listed = [outcome(energy_j=j, base_step_s=w, steps=1.0) for j, w in zip(joules, work, strict=True)]
        low, high = Window(tuple(listed)).measure("energy_j_per_unit_at_most").interval()
        hits += low <= 150.0 <= high
    assert 0.90 <= hits / 300 <= 0.99


def test_one_decision_says_nothing_about_the_spread():
    assert Window((outcome(),)).measure("utilisation_at_least").interval() == (-math.inf, math.inf)


def test_only_comparable_explanations_are_held_against_outcomes():
    shares = np.zeros((4, 3))
    listed = (told(shares), None, told(shares, target="log_odds"), told(shares, against="another plan"))
    assert Window((outcome(),) * 4, listed).comparable() == [0]


def test_nan_is_refused_where_it_enters():
    with pytest.raises(ModelFitError, match=r"outcome\.r_util = nan: must be finite"):
        DecisionOutcome(0.1, math.nan, 1.0)
    with pytest.raises(ModelFitError, match=r"outcome\.energy_j = -1\.0: must be finite and >= 0"):
        outcome(energy_j=-1.0)
    with pytest.raises(ModelFitError, match="explanation d = 'NaN'"):
        Window((outcome(),), (told(np.full((4, 3), np.nan)),))


def test_a_window_of_recorded_outcomes():
    details = {"base_step_s": 2.0, "steps": 50}
    records = [
        OutcomeRecord("a", 0.1, 0.6, 1.0, 0.14, 1.5, 0.2, 90.0, 1, "simulated", details),
        OutcomeRecord("refused", None, None, None, None, None, None, None, -3, "unavailable"),
        OutcomeRecord("b", 0.2, 0.7, 0.9, 0.37, 1.4, None, None, 1, "measured"),
    ]
    explanation = told(np.zeros((4, 3)), decision="b")
    window = Window.of(records, {"b": explanation, "refused": explanation}, span_s=60.0)
    assert window.outcomes == (
        DecisionOutcome(0.1, 0.6, 1.0, 1.5, 2.0, 0.2, 90.0, 50),
        DecisionOutcome(0.2, 0.7, 0.9, 1.4),
    )
    assert window.explanations == (None, explanation) and window.span_s == 60.0
    with pytest.raises(ModelFitError, match="there must be at least one"):
        Window.of(records[1:2])


def test_bad_windows_are_refused():
    with pytest.raises(ModelFitError, match=r"window\.outcomes = \(\): there must be at least one"):
        Window(())
    with pytest.raises(ModelFitError, match=r"window\.explanations = 1: must be 2"):
        Window((outcome(), outcome()), (None,))
    with pytest.raises(ModelFitError, match=r"window\.span_s = None: is needed"):
        Window((outcome(),)).measure("bill_usd_per_day_at_most")
    with pytest.raises(ModelFitError, match="outcome 1: energy_j = None: is needed"):
        Window((outcome(), outcome(energy_j=None))).measure("energy_j_per_unit_at_most")
    with pytest.raises(ModelFitError, match="work of the window = 0"):
        Window((outcome(steps=0.0),)).measure("energy_j_per_unit_at_most")
    with pytest.raises(ModelFitError, match="target = 'R_speed': is not known"):
        Window((outcome(),)).measure("R_speed")
