"""Same-day groups find what is better; a state goes on where it stopped; shaping changes no policy's order."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.hi_ppo.hi_ppo import learn
from attribution_sched.scheduler.hi_ppo.policy_search import Days, Search, next_group
from attribution_sched.scheduler.hi_ppo.upper_agent import SCALES, SIZE, rule_theta

from . import worlds


def bowl(theta):
    """Best two scales off the rule in every number."""
    return -float((((theta - rule_theta()) / SCALES - 2.0) ** 2).sum())


def test_groups_find_the_bottom_of_a_bowl():
    search = Search.begun()
    first = bowl(search.theta)
    for _ in range(120):
        search = next_group(search, bowl, 20, 0)
    assert bowl(search.theta) > 0.05 * first


def test_a_search_goes_on_as_if_it_had_never_stopped():
    whole = half = Search.begun()
    for _ in range(4):
        whole = next_group(whole, bowl, 8, 3)
    for _ in range(2):
        half = next_group(half, bowl, 8, 3)
    half = Search(half.mean.copy(), half.covariance.copy(), half.path.copy(), half.step_path.copy(), half.step, 2)
    for _ in range(2):
        half = next_group(half, bowl, 8, 3)
    assert np.array_equal(whole.theta, half.theta)


def test_a_group_is_even():
    with pytest.raises(SettingsError, match="group"):
        next_group(Search.begun(), bowl, 5, 0)


def test_what_does_not_help_on_held_out_days_is_undone():
    world = replace(load_settings("testbed").build_world(), horizon_s=900.0)
    days, rounds = {"testbed": Days(world, 4, worlds.weights())}, []
    found = learn(days, 2, size=4, every=1, told=lambda one, search: rounds.append(one))
    assert len(rounds) == 2
    if not any(one.kept for one in rounds):
        assert np.array_equal(found, rule_theta())
    assert found.shape == (SIZE,)


def test_fragmentation_as_a_potential_changes_no_policys_order():
    """A cluster of three states solved exactly: returns with γΦ(s') − Φ(s) added differ by Φ(s₀) for every policy."""
    rng = np.random.default_rng(0)
    gamma, states, actions = 0.9, 3, 2
    moves = rng.dirichlet(np.ones(states), size=(states, actions))
    reward, potential = rng.normal(size=(states, actions)), rng.normal(size=states)
    shaped = reward + gamma * moves @ potential - potential[:, None]

    def value(rewards, policy):
        chosen = moves[np.arange(states), policy]
        return np.linalg.solve(np.eye(states) - gamma * chosen, rewards[np.arange(states), policy])

    for policy in np.ndindex(*(actions,) * states):
        assert np.allclose(value(shaped, policy), value(reward, policy) - potential)
    # Fragmentation as a plain penalty, no potential, does change the order.
    penal = reward - 3.0 * moves @ np.abs(potential)
    orders = [
        max(np.ndindex(*(actions,) * states), key=lambda p, r=r: value(r, p).sum()) for r in (reward, shaped, penal)
    ]
    assert orders[0] == orders[1]
