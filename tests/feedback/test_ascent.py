"""Multipliers follow what is missed; weights keep their sum and bounds, and are the user's own at λ = 0."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.world import Reward
from attribution_sched.errors import SettingsError
from attribution_sched.explain.explanation import COMPONENTS
from attribution_sched.feedback.ascent import Miss, Tilt, ascend, bounded, pursued, toward
from attribution_sched.feedback.targets import KINDS, FeedbackSettings
from attribution_sched.feedback.window import Measurement

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


share = st.floats(1e-3, 1.0)
cosine = st.floats(-1.0, 1.0)


@settings(deadline=None, max_examples=50)
@given(st.tuples(share, share, share), st.sampled_from(list(KINDS)), st.floats(0.05, 4.0), st.tuples(*[cosine] * 9))
def test_the_own_weight_rises_within_bounds_whatever_explanations_say(weights, target, multiplier, cosines):
    tilt = Tilt.of(Reward(*weights), [KINDS[target].component], SETTINGS)
    own = COMPONENTS.index(KINDS[target].component)
    before = tilt.shares({}, np.reshape(cosines, (3, 3)), SETTINGS.coupling)
    after = tilt.shares({target: multiplier}, np.reshape(cosines, (3, 3)), SETTINGS.coupling)
    for found in (before, after):
        assert found.sum() == pytest.approx(1.0, abs=1e-12)
        assert (found >= tilt.low - 1e-9).all() and (found <= tilt.high + 1e-9).all()
    assert after[own] > before[own] or after[own] >= tilt.high[own] - 1e-9


def test_without_multipliers_the_weights_are_the_users():
    reward = Reward(1.0, 0.5, 0.25)
    found = Tilt.of(reward, ["R_util"], SETTINGS).shares({}, np.eye(3), 0.5)
    np.testing.assert_allclose(found * 1.75, [1.0, 0.5, 0.25], atol=1e-12)


def test_an_agreeing_component_rises_and_a_conflicting_one_falls_faster():
    tilt = Tilt.of(Reward(1.0, 1.0, 1.0), ["R_cost"], SETTINGS)
    matrix = np.eye(3)
    matrix[2, :2] = 0.9, -0.9
    eff, util, cost = tilt.shares({"cost_ratio_at_most": 1.0}, matrix, 0.5)
    assert cost > eff > util


def test_a_weight_of_zero_wakes_only_if_it_serves_a_target():
    off = Reward(1.0, 0.0, 0.0)
    _, util, cost = Tilt.of(off, ["R_cost"], SETTINGS).shares({"cost_ratio_at_most": 1.0}, np.eye(3), 0.5)
    assert util == 0.0
    assert cost > SETTINGS.least


@settings(deadline=None, max_examples=50)
@given(st.tuples(share, share, share), st.tuples(share, share, share), st.floats(0.001, 1.0))
def test_a_step_is_bounded_and_keeps_the_sum(old, goal, step):
    start, end = np.array(old) / sum(old), np.array(goal) / sum(goal)
    found = toward(start, end, step)
    assert np.abs(found - start).max() <= step + 1e-12
    assert found.sum() == pytest.approx(1.0)
    assert ((found - start) * (end - start) >= -1e-15).all()


def test_impossible_weights_and_bounds_are_refused():
    with pytest.raises(SettingsError, match="reward weights"):
        Tilt.of(Reward(0.0, 0.0, 0.0), [], SETTINGS)
    with pytest.raises(SettingsError, match="bounds of weights"):
        bounded(np.ones(3), np.full(3, 0.5), np.ones(3))
    with pytest.raises(SettingsError, match=r"feedback\.most = 0\.1"):
        FeedbackSettings(most=0.1)
    with pytest.raises(SettingsError, match=r"feedback\.rate = nan"):
        FeedbackSettings(rate=float("nan"))
