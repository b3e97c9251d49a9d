"""Drivers held against outcomes: planted claims are found, honest ones are left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.feedback.drivers import coupling, damped, evidence
from attribution_sched.feedback.targets import FeedbackSettings
from attribution_sched.feedback.window import Window
from tests.feedback.factory import PLAYERS, explained, told

SETTINGS = FeedbackSettings()
PLANTED = ("queue", "R_util", 0.3)


def contradicted(window):
    return {(one.player, one.component) for one in evidence(window, SETTINGS) if one.contradicted}


@pytest.mark.parametrize("truth", [0.0, -1.0])
def test_a_planted_claim_is_contradicted_and_nobody_else(truth):
    window = explained(planted=PLANTED, truth=truth)
    assert contradicted(window) == {("queue", "R_util")}
    found = next(one for one in evidence(window, SETTINGS) if one.contradicted)
    assert found.claimed > 0.15
    # Half of the decisions carry a claim of 0.3 that is `truth` true, beside honest shares of ±0.1.
    assert found.slope == pytest.approx((0.01 + truth * 0.0225) / 0.0325, abs=0.25)
    assert found.measured == pytest.approx(found.slope * found.claimed)


def test_a_claim_that_is_borne_out_is_supported():
    window = explained(planted=PLANTED, truth=1.0)
    assert contradicted(window) == set()
    assert all(one.supported for one in evidence(window, SETTINGS))


def test_a_false_claim_does_not_discredit_its_neighbours():
    # The neighbour always pushes the same way and speaks up with the liar: alone, it would look just as wrong.
    rng = np.random.default_rng(1)
    window, outcomes, listed = explained(80), [], []
    for one, explanation in zip(window.outcomes, window.explanations, strict=True):
        shares = np.array(explanation.values)
        loud = rng.random() < 0.5
        shares[0, 1], shares[3, 1] = (0.15 if loud else 0.0), (0.4 if loud else 0.0)
        outcomes.append(replace(one, r_util=0.6 + float(shares[:3, 1].sum()) + 0.02 * rng.normal()))
        listed.append(told(shares))
    assert contradicted(Window(tuple(outcomes), tuple(listed))) == {("queue", "R_util")}


def test_a_critic_that_is_off_by_a_constant_blames_nobody():
    window = explained()
    shifted = tuple(replace(one, r_util=one.r_util - 0.4) for one in window.outcomes)
    assert contradicted(Window(shifted, window.explanations)) == set()


def test_uncertain_drivers_are_never_acted_on():
    window = explained(planted=PLANTED, truth=-1.0, error=5.0)
    assert evidence(window, SETTINGS) == []
    assert coupling(window, {}, SETTINGS).matrix == pytest.approx(np.eye(3))


def test_honest_drivers_are_rarely_contradicted():
    alarms = sum(bool(contradicted(explained(40, seed=seed, noise=0.3))) for seed in range(60))
    assert alarms <= 6


def test_too_few_explanations_say_nothing():
    window = explained(7, planted=PLANTED)
    assert evidence(window, SETTINGS) == []
    assert coupling(window, {}, SETTINGS).decisions == 0


def test_a_contradicted_driver_is_damped_step_by_step_and_recovers():
    bad, good = (evidence(explained(planted=PLANTED, truth=t), SETTINGS) for t in (-1.0, 1.0))
    trust, seen = {}, []
    for _ in range(5):
        trust = damped(trust, bad, SETTINGS)
        seen.append(trust["R_util"]["queue"])
    assert seen == pytest.approx([0.7, 0.4, 0.1, 0.1, 0.1])
    for _ in range(3):
        trust = damped(trust, good, SETTINGS)
    assert trust == {}


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.floats(-2.0, 2.0), st.floats(0.0, 1.0))
def test_multipliers_stay_between_floor_and_one(seed, truth, start):
    found = evidence(explained(20, seed, planted=PLANTED, truth=truth), SETTINGS)
    before = {"R_util": {"queue": max(start, SETTINGS.damping_floor)}}
    after = damped(before, found, SETTINGS)
    for component, players in after.items():
        for player, trust in players.items():
            old = before.get(component, {}).get(player, 1.0)
            assert SETTINGS.damping_floor <= trust < 1.0
            assert abs(trust - old) <= SETTINGS.damping_step + 1e-12


def test_coupling_is_the_cosine_of_what_is_good():
    shares = np.zeros((4, 3))
    shares[0] = 0.3, 0.3, 0.3  # raises all three: good for efficiency and utilisation, bad for cost
    window = Window(explained(10).outcomes, tuple(told(shares) for _ in range(10)))
    found = coupling(window, {}, SETTINGS)
    np.testing.assert_allclose(found.matrix, [[1, 1, -1], [1, 1, -1], [-1, -1, 1]], atol=1e-12)
    assert found.advocates["R_util", "R_eff"] == (PLAYERS[0], pytest.approx(1.0))


def test_damping_takes_a_driver_out_of_the_coupling():
    shares = np.zeros((4, 3))
    shares[0] = 0.3, 0.3, 0.0
    shares[1] = 0.1, -0.1, 0.0
    window = Window(explained(10).outcomes, tuple(told(shares) for _ in range(10)))
    loud = coupling(window, {}, SETTINGS).matrix[0, 1]
    quiet = coupling(window, {"R_eff": {PLAYERS[0]: 0.1}, "R_util": {PLAYERS[0]: 0.1}}, SETTINGS).matrix[0, 1]
    # (0.3·0.3 − 0.1·0.1) and (0.03·0.03 − 0.1·0.1), both over the 0.1 that is claimed.
    assert (loud, quiet) == (pytest.approx(0.8), pytest.approx(-0.091))
