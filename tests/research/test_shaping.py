"""Potential-based shaping: the optimal policy of a solvable problem stays what it was, whatever the potential."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import ExplanationError, ModelFitError, SettingsError
from research.shaping import component_potential, explained_potential, shaping
from tests.feedback.factory import told

STATES, ACTIONS, GAMMA = 5, 3, 0.9
END = STATES - 1


def problem(seed):
    """A random decision process whose last state ends the episode: transitions ``(S, A, S)``, rewards alike."""
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.full(STATES, 0.5), size=(STATES, ACTIONS))
    return moves, rng.normal(size=(STATES, ACTIONS, STATES))


def optimal_q(moves, rewards):
    """Q* by value iteration; the last state is terminal."""
    value = np.zeros(STATES)
    for _ in range(600):
        q = (moves * (rewards + GAMMA * value)).sum(axis=2)
        value = q.max(axis=1)
        value[END] = 0.0
    return q[:END]


def shaped(potential):
    """F of every transition, with the terminal potential taken as 0."""
    before = np.broadcast_to(potential[:, None, None], (STATES, ACTIONS, STATES))
    after = np.broadcast_to(potential[None, None, :], (STATES, ACTIONS, STATES))
    ended = np.broadcast_to(np.arange(STATES) == END, (STATES, ACTIONS, STATES))
    return shaping(before, after, GAMMA, ended)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.lists(st.floats(-50.0, 50.0), min_size=STATES, max_size=STATES))
def test_every_potential_leaves_the_optimal_policy_alone(seed, potential):
    phi = np.array(potential)
    moves, rewards = problem(seed)
    plain, with_shaping = optimal_q(moves, rewards), optimal_q(moves, rewards + shaped(phi))
    # Q*_shaped = Q* − Φ(s), so every difference between actions is untouched.
    np.testing.assert_allclose(with_shaping, plain - phi[:END, None], atol=1e-7)


def test_a_bonus_that_is_no_potential_changes_the_optimal_policy():
    changed = 0
    for seed in range(20):
        moves, rewards = problem(seed)
        bonus = np.random.default_rng(seed + 1).normal(size=STATES)
        paid = rewards + bonus[None, None, :]
        changed += (optimal_q(moves, rewards).argmax(1) != optimal_q(moves, paid).argmax(1)).any()
    assert changed >= 10


def test_a_terminal_potential_that_is_not_zeroed_changes_the_optimal_policy():
    changed = 0
    for seed in range(20):
        moves, rewards = problem(seed)
        phi = 5.0 * np.random.default_rng(seed).normal(size=STATES)
        wrong = GAMMA * phi[None, None, :] - phi[:, None, None]
        changed += (optimal_q(moves, rewards).argmax(1) != optimal_q(moves, rewards + wrong).argmax(1)).any()
    assert changed >= 10


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 12), st.booleans())
def test_along_an_episode_shaping_sums_to_potentials_at_its_ends(seed, steps, cut_off):
    rng = np.random.default_rng(seed)
    phi, gaps = rng.normal(size=steps + 1), rng.uniform(0.5, 2.0, steps)
    ended = np.arange(steps) == steps - 1
    found = shaping(phi[:-1], phi[1:], GAMMA, ended & (not cut_off), gaps)
    discount = GAMMA ** np.concatenate([[0.0], np.cumsum(gaps)])
    # Cut off by time, the state goes on: its potential stays in the sum, where the learner's bootstrap expects it.
    last = discount[-1] * phi[-1] if cut_off else 0.0
    assert (discount[:-1] * found).sum() == pytest.approx(last - phi[0])


def test_component_values_become_a_potential():
    values = np.array([[1.0, 2.0, 4.0], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(component_potential(values, (1.0, 0.5, 0.25)), [1.0, 0.5])


def test_an_explained_potential_is_the_value_less_what_is_damped():
    shares = np.zeros((4, 3))
    shares[0], shares[1] = (0.2, 0.1, 0.4), (0.1, 0.0, 0.0)
    explanation = told(shares, base=(0.0, 0.5, 1.0))
    weights = (1.0, 0.5, 0.25)
    assert explained_potential(explanation, weights, {}) == pytest.approx(0.3 + 0.5 * 0.6 - 0.25 * 1.4)
    half = {"R_cost": {"link a–b": 0.5}}
    assert explained_potential(explanation, weights, half) == pytest.approx(0.3 + 0.5 * 0.6 - 0.25 * 1.2)


def test_bad_input_is_refused():
    with pytest.raises(SettingsError, match=r"gamma = 1\.5"):
        shaping([0.0], [0.0], 1.5, [False])
    with pytest.raises(ModelFitError, match="shapes"):
        shaping([0.0, 1.0], [0.0], 0.9, [False])
    with pytest.raises(ModelFitError, match="potential = 'NaN'"):
        shaping([np.nan], [0.0], 0.9, [False])
    with pytest.raises(ModelFitError, match="components"):
        component_potential(np.zeros((4, 2)), (1.0, 0.5, 0.25))
    other = told(np.zeros((4, 1)), outputs=("logit",), base=(0.0,), weights=None, target="log_probability")
    with pytest.raises(ExplanationError, match="output = 'R_eff': is not explained here"):
        explained_potential(other, (1.0, 1.0, 1.0), {})
