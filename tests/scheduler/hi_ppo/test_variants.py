"""The options of Hi-PPO that have a name of their own decide, and differ from it in what they say they do."""

import numpy as np
import pytest

from attribution_sched.config.scenarios import build_scenario
from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.predictor.forecast import KalmanPredictor, PersistencePredictor
from attribution_sched.scheduler.predictor.gru import GruPredictor
from attribution_sched.scheduler.registry import POLICIES, make_policy

VARIANTS = [name for name in POLICIES if name.startswith("hi-ppo[")]


class Listener:
    """Asks a policy, and keeps what it told the upper agent: links expected, weights in force."""

    def __init__(self, policy):
        self.policy, self.name, self.ahead, self.weights, self.decided = policy, policy.name, [], [], 0

    def decide(self, view):
        from attribution_sched.scheduler.hi_ppo.reward_weights import RewardWeights, weighed

        plan = self.policy.decide(view)
        self.decided += 1
        if self.policy._forecast is not None and view.link_gbps is not None:
            self.ahead.append(self.policy._forecast.gbps(view) / view.bandwidth_gbps)
        in_force = RewardWeights.of(weighed(view, self.policy.wishes).reward)
        self.weights.append(np.array([in_force.eff, in_force.util, in_force.cost]))
        return plan


@pytest.fixture(scope="module")
def world():
    from dataclasses import replace

    return replace(build_scenario("cross-domain-easy", "ou30"), horizon_s=12 * 3600.0)


@pytest.fixture(scope="module")
def heard(world):
    """Every variant after half a day of the same world."""
    found = {}
    for name in ("hi-ppo", *VARIANTS):
        found[name] = Listener(make_policy(name))
        play(world, found[name], 3)
    return found


def test_every_variant_decides_under_its_own_name(heard):
    options = ("quick", "ranked", "gru", "persistence", "adaptive", "pareto", "propose")
    assert set(VARIANTS) == {f"hi-ppo[{option}]" for option in options}
    for name, listener in heard.items():
        assert listener.name == name
        assert listener.decided > 5


def test_forecasts_are_those_of_the_method(heard):
    kinds = {"hi-ppo": KalmanPredictor, "hi-ppo[gru]": GruPredictor, "hi-ppo[persistence]": PersistencePredictor}
    for name, kind in kinds.items():
        assert isinstance(heard[name].policy._forecast._predictor, kind)
    still = np.stack(heard["hi-ppo[persistence]"].ahead)
    np.testing.assert_allclose(still, 1.0)
    for name in ("hi-ppo", "hi-ppo[gru]"):
        assert np.abs(np.stack(heard[name].ahead) - 1.0).max() > 0.01
    assert not np.allclose(heard["hi-ppo"].ahead[-1], heard["hi-ppo[gru]"].ahead[-1], rtol=1e-3)


def test_weights_are_fixed_adaptive_or_drawn(heard):
    base = heard["hi-ppo"].weights
    np.testing.assert_array_equal(base, np.broadcast_to(base[0], np.shape(base)))
    for name in ("hi-ppo[adaptive]", "hi-ppo[pareto]"):
        weights = np.stack(heard[name].weights)
        np.testing.assert_allclose(weights.sum(axis=1), base[0].sum())
        assert weights.std(axis=0).max() > 1e-3
    ratio = np.stack(heard["hi-ppo[adaptive]"].weights)
    np.testing.assert_allclose(ratio[:, 0] / ratio[:, 1], base[0][0] / base[0][1])


def test_names_that_do_not_exist_are_refused():
    with pytest.raises(SettingsError, match=r"predict = 'grue'.*Did you mean 'gru'"):
        HiPpo(predict="grue")
    with pytest.raises(SettingsError, match=r"wishes = 'adaptiv'.*Did you mean 'adaptive'"):
        HiPpo(wishes="adaptiv")
    with pytest.raises(SettingsError, match=r"Did you mean 'hi-ppo\[gru\]'"):
        make_policy("hi-ppo[grue]")
