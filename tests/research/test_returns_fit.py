"""Critics of plans learn what inputs are worth from rollouts, and nothing that decides changes."""

import numpy as np
import pytest
import torch

from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from research import composing
from research.returns_fit import fit_returns
from research.returns_truth import GAMMA, Rolled, critic_values, group_shares, roll_out
from tests.scheduler.hi_ppo import worlds


@pytest.fixture(scope="module")
def rolled():
    network, world = worlds.network(), worlds.worlds()["mixed"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composing, "WARM_UP", 6)
        patch.setattr(composing, "APART", 3)
        return network, world, roll_out(network, world, 4, 2, 10, 7, together=3)


def test_rollouts_have_a_row_for_every_coalition(rolled):
    _, _, found = rolled
    d = found.rewards.shape[1]
    assert found.rewards.shape == (10, d, 2, 16, 3) and found.inputs.shape[:4] == (len(found.at), d, 2, 16)
    assert np.isfinite(found.rewards).all() and found.rewards.any()


def test_returns_and_targets_are_discounted_sums():
    rewards = np.random.default_rng(0).normal(size=(8, 2, 1, 16, 3))
    found = Rolled(np.zeros((2, 2, 1, 16, 5), dtype=np.float32), np.array([0, 3]), rewards)
    by_hand = sum(GAMMA**t * rewards[t] for t in range(8))
    assert np.allclose(found.returns, by_hand)
    usual = rewards[4:].mean(axis=(0, 1, 2, 3)) / (1.0 - GAMMA)
    assert np.allclose(found.targets()[0], by_hand + GAMMA**8 * usual)
    assert np.allclose(found.targets()[1], sum(GAMMA ** (t - 3) * rewards[t] for t in range(3, 8)) + GAMMA**5 * usual)


def test_shares_add_up_to_all_groups_less_none(rolled):
    network, _, found = rolled
    for values in (found.returns, critic_values(network, found.inputs[0])):
        mean = values.mean(axis=1)
        assert np.allclose(group_shares(values).sum(axis=1), mean[:, -1] - mean[:, 0])


def test_the_same_seed_rolls_out_the_same(rolled, monkeypatch):
    network, world, found = rolled
    monkeypatch.setattr(composing, "WARM_UP", 6)
    monkeypatch.setattr(composing, "APART", 3)
    again = roll_out(network, world, 4, 2, 10, 7, together=3)
    assert np.array_equal(found.rewards, again.rewards) and np.array_equal(found.inputs, again.inputs)


def test_critics_learn_what_inputs_are_worth():
    """Returns that follow from two of the inputs are learnt, and so is how they differ between coalitions."""
    rng, network = np.random.default_rng(0), worlds.network()
    width = network.action_value[0].in_features
    inputs = rng.normal(size=(1, 60, 2, 16, width)).astype(np.float32)
    rewards = np.zeros((4, 60, 2, 16, 3))
    rewards[0] = 2.0 * np.stack([inputs[0, ..., 0], -inputs[0, ..., 1], inputs[0, ..., 0] - inputs[0, ..., 1]], axis=-1)
    found = Rolled(inputs, np.array([0]), rewards)
    short, longer = (fit_returns(network, [found], epochs=n) for n in (1, 120))
    assert min(longer.differences) > 0.5 > max(short.differences) and min(longer.levels) > 0.4 > max(short.levels)
    assert longer.lessons == 1920


def test_only_critics_change_and_decisions_stay(rolled):
    network, world, found = rolled
    fields = [ClusterBatch(world, 3, 21, network.attributions) for _ in range(2)]
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    first = [fields[0].step(NetworkActor(network, None)) for _ in range(6)]
    fit_returns(network, [found], epochs=3)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]) == (not name.startswith("action_value.")), name
    again = [fields[1].step(NetworkActor(network, None)) for _ in range(6)]
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.terms, other.terms)
        assert np.array_equal(one.decoded.batch.segments, other.decoded.batch.segments)
    network.load_state_dict(before)


@pytest.mark.parametrize("given", [{"decisions": 0}, {"states": 0}, {"steps": 1}, {"together": 0}])
def test_too_little_to_roll_out_is_refused(given):
    asked = {"decisions": 2, "states": 1, "steps": 3, "together": 1} | given
    with pytest.raises(SettingsError, match="must be >= 1"):
        roll_out(worlds.network(), worlds.worlds()["mixed"], seed=1, **asked)


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(SettingsError, match="needs rollouts"):
        fit_returns(worlds.network(), [])
