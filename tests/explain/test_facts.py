"""What may be said: certainty, directions, and what adds up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.explain import facts
from attribution_sched.explain.findings import Confidence, Interaction
from tests.explain.factory import OTHER, contrast, explanation, full, log_odds, some
from tests.explain.strategies import explanations


@settings(deadline=None, max_examples=60)
@given(explanations())
def test_nothing_is_sure_that_is_not_significant(made):
    for output in made.outputs:
        assert not (facts.sure(made, output) & ~made.significant(output)).any()


def test_rounding_is_not_sure_however_narrow_its_interval():
    made = some(np.array([[0.5], [1e-17], [-1e-3]]), np.zeros((3, 1)), **_single())
    np.testing.assert_array_equal(made.significant(), [True, True, True])
    np.testing.assert_array_equal(facts.sure(made, "log_odds"), [True, False, True])


@settings(deadline=None, max_examples=60)
@given(explanations(), st.integers(1, 6))
def test_named_drivers_and_the_rest_add_up(made, most):
    for output in made.outputs:
        found = facts.drivers(made, output, most)
        whole = made.values[:, made.column(output)].sum()
        scale = max(np.abs(made.values).max(), 1e-300)
        assert sum(driver.share for driver in found.named) + found.rest == pytest.approx(whole, abs=1e-9 * scale)
        assert len(found.named) + found.others == len(made.players)
        assert len(found.named) <= most
        for driver in found.named:
            assert abs(driver.share) >= driver.half


def test_trifles_are_left_out_unless_there_is_nothing_else():
    shares, errors = np.array([[1.0], [0.004]]), np.array([[0.01], [1e-6]])
    assert len(facts.drivers(some(shares, errors, **_single()), "log_odds", 3).named) == 1
    unsure = np.array([[9.0], [1e-6]])
    assert [d.share for d in facts.drivers(some(shares, unsure, **_single()), "log_odds", 3).named] == [0.004]


def test_inputs_without_a_share_get_no_row():
    shares = np.array([[0.5], [1e-18], [0.0], [-0.2]])
    made = some(shares, np.full((4, 1), 0.01), **_single())
    assert facts.shown(made, "log_odds", 8) == [0, 3]
    assert facts.shown(made, "log_odds", 2) == [0]
    whole = some(np.array([[0.5], [0.4], [0.3]]), np.full((3, 1), 0.01), **_single())
    assert facts.shown(whole, "log_odds", 3) == [0, 1, 2]
    assert facts.shown(whole, "log_odds", 2) == [0]
    assert facts.drivers(made, "log_odds", 3).rest == 0.0
    assert facts.rounded(made, "log_odds", 1e-17) == 0.0
    assert facts.rounded(made, "log_odds", 0.01) == 0.01


def test_directions_follow_signs_and_weights():
    made = explanation(weights=(1.0, 0.0, 0.3))
    assert [facts.direction(made, output) for output in made.outputs] == [1, 0, -1, 1]
    assert facts.direction(log_odds(), "log-odds") == 1
    assert facts.direction(some([[1.0]], [[0.1]], outputs=("y",), target="model", weights=None), "y") == 0
    bare = some(np.ones((1, 3)), np.ones((1, 3)), weights=None)
    assert [facts.direction(bare, output) for output in bare.outputs] == [1, 1, -1]


def test_the_strongest_certain_interaction_of_the_main_output():
    pairs = (
        Interaction("queue", "work left", "R_eff", 0.5, 0.01),
        Interaction("queue", "time of day", "R", 0.02, 0.001, degrees=7),
        Interaction("queue", "load eu-west", "R", 0.9, 0.8),
    )
    found, half = facts.interaction(full(interactions=pairs))
    assert found.second == "time of day"
    # Student's quantile of seven degrees, the interaction's own.
    assert half == pytest.approx(0.002365, abs=1e-5)
    assert facts.interaction(explanation()) is None


def test_which_plan_was_named_before():
    assert facts.told_before(full(), OTHER)
    assert facts.told_before(contrast(), OTHER)
    assert not facts.told_before(full(), "wait")
    assert not facts.told_before(contrast(confidence=Confidence(0.5, "a third")), "a third")
    assert not facts.told_before(explanation(), "")


def _single() -> dict[str, object]:
    return {"outputs": ("log_odds",), "target": "log_odds", "weights": None}
