"""Targets: what is asked for, and how far it is missed."""

from __future__ import annotations

import math

import pytest

from attribution_sched.errors import SettingsError
from attribution_sched.feedback.targets import KINDS, Targets


def test_a_violation_is_a_part_of_the_target_and_negative_if_met():
    targets = Targets(utilisation_at_least=0.8, step_s_at_most=2.0)
    assert targets.violation("utilisation_at_least", 0.6) == pytest.approx(0.25)
    assert targets.violation("utilisation_at_least", 0.9) == pytest.approx(-0.125)
    assert targets.violation("step_s_at_most", 3.0) == pytest.approx(0.5)
    assert targets.violation("step_s_at_most", 1.0) == pytest.approx(-0.5)


def test_only_what_is_asked_for_is_named():
    assert Targets().named() == {}
    assert Targets.of({"cost_ratio_at_most": 0.9}).named() == {"cost_ratio_at_most": 0.9}
    assert set(KINDS) == set(Targets.__dataclass_fields__)


@pytest.mark.parametrize("name", list(KINDS))
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_target_out_of_range_is_refused(name, value):
    with pytest.raises(SettingsError, match=rf"targets\.{name} = .*must be finite and > 0"):
        Targets(**{name: value})


def test_utilisation_is_a_share():
    with pytest.raises(SettingsError, match=r"utilisation_at_least = 85\.0: must be <= 1"):
        Targets(utilisation_at_least=85.0)


def test_an_unknown_target_is_refused_with_a_hint():
    with pytest.raises(SettingsError, match="Did you mean 'utilisation_at_least'"):
        Targets.of({"utilization_at_least": 0.8})
    with pytest.raises(SettingsError, match="is not asked for"):
        Targets(step_s_at_most=1.0).violation("utilisation_at_least", 0.5)
