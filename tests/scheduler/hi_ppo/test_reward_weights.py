"""Reward weights: fixed, adaptive, Pareto."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.world import Reward
from attribution_sched.errors import NetworkError, SettingsError
from attribution_sched.scheduler.hi_ppo.reward_weights import (
    AdaptiveWeights,
    FixedWeights,
    ParetoWeights,
    RewardWeights,
    congestion,
)

law = settings(deadline=None, max_examples=50)
BASE = RewardWeights(1.0, 0.5, 0.5)
USUAL = np.array([[np.inf, 4.0, 2.0], [5.0, np.inf, 1.0], [3.0, 8.0, np.inf]])
weight = st.floats(0.01, 5.0)
bandwidths = st.lists(st.floats(0.0, 30.0), min_size=9, max_size=9).map(lambda v: np.array(v).reshape(3, 3))


def between(values):
    """Bandwidth at these multiples of usual."""
    now = USUAL.copy()
    links = ~np.eye(3, dtype=bool)
    now[links] = USUAL[links] * values
    return now


def test_fixed_weights_do_not_move():
    assert FixedWeights(BASE).weights(between(0.1), USUAL) is BASE


@law
@given(weight, weight, weight, bandwidths, st.floats(0.0, 20.0), st.floats(1.0, 20.0))
def test_adaptive_weights_keep_sum_and_ratio_and_bounds(eff, util, cost, now, sensitivity, most):
    base = RewardWeights(eff, util, cost)
    w = AdaptiveWeights(base, sensitivity, most).weights(now, USUAL)
    assert w.total == pytest.approx(base.total)
    assert w.eff * base.util == pytest.approx(w.util * base.eff)
    assert base.cost / most * (1 - 1e-9) <= w.cost <= base.cost * most * (1 + 1e-9)
    assert w.cost <= max(base.cost, 0.9 * base.total) * (1 + 1e-9)
    assert w.eff > 0 and w.util > 0


@law
@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_a_worse_network_never_lowers_the_weight_of_cost(a, b):
    mode = AdaptiveWeights(BASE)
    worse, better = (mode.weights(between(x), USUAL).cost for x in (min(a, b), max(a, b)))
    assert worse >= better


def test_adaptive_weights_by_hand():
    mode = AdaptiveWeights(BASE, sensitivity=2.0)
    assert mode.weights(USUAL, USUAL) == BASE
    w = mode.weights(between(0.7), USUAL)
    cost = 0.5 * np.exp(0.6)
    assert [w.eff, w.util, w.cost] == pytest.approx([(2 - cost) * 2 / 3, (2 - cost) / 3, cost])
    assert mode.weights(between(0.7), USUAL).cost > 0.5 > mode.weights(between(1.3), USUAL).cost
    assert AdaptiveWeights(BASE, 2.0, most=1.5).weights(between(0.0), USUAL).cost == pytest.approx(0.75)


def test_weights_of_nothing_but_cost_or_no_cost_stay():
    for base in (RewardWeights(1, 1, 0), RewardWeights(0, 0, 1)):
        assert AdaptiveWeights(base).weights(between(0.2), USUAL) == base


def test_congestion_is_a_mean_over_links_that_exist():
    base = USUAL.copy()
    base[0, 1] = 0.0
    now = between(1.0)
    now[0, 1], now[2, 1] = 9.0, 4.0
    assert congestion(now, base) == pytest.approx(0.5 / 5)
    assert congestion([[7.0]], [[9.0]]) == 0.0
    assert congestion(between(0.0), USUAL) == 1.0


def test_pareto_weights_fill_the_simplex_evenly():
    mode = ParetoWeights(np.random.default_rng(3), total=2.0)
    drawn = mode.sample(20_000)
    assert drawn.sum(axis=1) == pytest.approx(2.0)
    assert drawn.min() >= 0
    assert drawn.mean(axis=0) == pytest.approx(2 / 3, abs=0.02)
    # A flat Dirichlet has variance 1/18 per coordinate.
    assert drawn.var(axis=0) == pytest.approx(4 / 18, abs=0.01)
    assert mode.weights(USUAL, USUAL) != mode.weights(USUAL, USUAL)


def test_pareto_weights_follow_their_generator():
    one, other = (ParetoWeights(np.random.default_rng(9)).weights(USUAL, USUAL) for _ in range(2))
    assert one == other


def test_weights_go_into_a_reward_and_come_back():
    reward = Reward(lambda_intra_comm=7.0)
    changed = RewardWeights(0.1, 0.2, 0.7).put_into(reward)
    assert RewardWeights.of(changed) == RewardWeights(0.1, 0.2, 0.7)
    assert changed.lambda_intra_comm == 7.0


def test_bad_weights_are_refused():
    with pytest.raises(SettingsError, match=r"weights.util = -1.0: must be finite and >= 0"):
        RewardWeights(1.0, -1.0, 0.0)
    with pytest.raises(SettingsError, match=r"weights.eff = nan"):
        RewardWeights(float("nan"), 1.0, 0.0)
    with pytest.raises(SettingsError, match="one must be > 0"):
        RewardWeights(0.0, 0.0, 0.0)
    with pytest.raises(SettingsError, match="sensitivity"):
        AdaptiveWeights(BASE, sensitivity=-1.0)
    with pytest.raises(SettingsError, match="most"):
        AdaptiveWeights(BASE, most=0.5)
    with pytest.raises(SettingsError, match="concentration"):
        ParetoWeights(np.random.default_rng(0), (1.0, 0.0, 1.0))


def test_bad_networks_are_refused():
    with pytest.raises(NetworkError, match="two square arrays"):
        congestion(np.ones((2, 3)), np.ones((2, 3)))
    broken = between(1.0)
    broken[0, 2] = np.nan
    with pytest.raises(NetworkError, match="bandwidth_gbps = nan"):
        AdaptiveWeights(BASE).weights(broken, USUAL)
