"""Dual ascent: dead band, hysteresis, slack, bounds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.feedback.ascent import ascend, pursued
from attribution_sched.feedback.settings import FeedbackSettings
from attribution_sched.feedback.window import Measurement
from attribution_sched.feedback.wording import Miss

SETTINGS = FeedbackSettings()


def miss(violation, error=1e-4, target="utilisation_at_least", limit=0.8):
    sign = -1.0 if target == "utilisation_at_least" else 1.0
    return Miss(target, limit, Measurement(limit * (1 + sign * violation), error, 50), violation)


def test_pursuit_begins_above_the_dead_band_and_ends_when_met():
    name = "utilisation_at_least"
    assert pursued([miss(0.005)], (), SETTINGS) == ()
    assert pursued([miss(0.02)], (), SETTINGS) == (name,)
    assert pursued([miss(0.005)], (name,), SETTINGS) == (name,)
    assert pursued([miss(-0.001)], (name,), SETTINGS) == ()


def test_what_may_be_chance_is_not_pursued():
    assert pursued([miss(0.05, error=0.1)], (), SETTINGS) == ()


def test_a_multiplier_rises_while_pursued_and_falls_only_with_slack():
    name = "utilisation_at_least"
    assert ascend([miss(0.05)], {}, (name,), (), SETTINGS)[0].after == SETTINGS.rate * 0.05
    assert ascend([miss(-0.05)], {name: 1.0}, (), (), SETTINGS)[0].after == 1.0
    assert 0.0 < ascend([miss(-0.2)], {name: 1.0}, (), (), SETTINGS)[0].after < 1.0
    assert ascend([miss(-0.2, error=1.0)], {name: 1.0}, (), (), SETTINGS)[0].after == 1.0


def test_a_multiplier_does_not_wind_up_behind_a_full_weight():
    name = "utilisation_at_least"
    assert ascend([miss(0.5)], {name: 1.0}, (name,), ("w_util",), SETTINGS)[0].after == 1.0
    assert ascend([miss(0.5)], {name: 1.0}, (name,), ("w_eff",), SETTINGS)[0].after > 1.0


@settings(deadline=None, max_examples=50)
@given(st.floats(-1e6, 1e6), st.floats(0.0, SETTINGS.multiplier_cap), st.booleans(), st.floats(0.1, 1.0))
def test_multipliers_stay_within_bounds(violation, old, chased, caution):
    name = "step_s_at_most"
    found = ascend([miss(violation, target=name)], {name: old}, (name,) if chased else (), (), SETTINGS, caution)[0]
    assert 0.0 <= found.after <= SETTINGS.multiplier_cap
    assert abs(found.after - old) <= SETTINGS.multiplier_step * caution + 1e-12
