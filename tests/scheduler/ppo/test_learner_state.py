"""Weights, optimiser and generator survive the trip through arrays bit for bit; what does not fit is refused."""

import pytest
import torch

from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.ppo.learner_state import (
    generator_array,
    module_arrays,
    optimiser_arrays,
    restore_generator,
    restore_module,
    restore_optimiser,
)
from attribution_sched.scheduler.ppo.policy import FlatPolicy
from attribution_sched.storage import take


def learner(seed=0, hidden=(8,)):
    policy = FlatPolicy(3, 4, 2, torch.Generator().manual_seed(seed), hidden)
    return policy, torch.optim.Adam(policy.parameters(), lr=0.01, fused=True)


def learn(policy, optimiser, generator, steps):
    for _ in range(steps):
        optimiser.zero_grad()
        noise = torch.randn(5, 3, generator=generator)
        (policy.actor(noise).square().sum() + policy.critic(noise).square().sum()).backward()
        optimiser.step()


def test_a_restored_learner_goes_on_bit_for_bit():
    policy, optimiser = learner(0)
    generator = torch.Generator().manual_seed(1)
    learn(policy, optimiser, generator, 3)
    arrays = {**module_arrays(policy, "p."), **optimiser_arrays(optimiser, "o."), "g": generator_array(generator)}
    other, other_optimiser = learner(9)
    other_generator = torch.Generator()
    restore_module(other, take(arrays, "p."))
    restore_optimiser(other_optimiser, take(arrays, "o."))
    restore_generator(other_generator, arrays["g"])
    learn(policy, optimiser, generator, 4)
    learn(other, other_optimiser, other_generator, 4)
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), other.parameters(), strict=True))


def test_arrays_are_copies():
    policy, optimiser = learner()
    arrays = module_arrays(policy, "")
    before = arrays["actor.0.weight"].copy()
    learn(policy, optimiser, torch.Generator().manual_seed(0), 1)
    assert (arrays["actor.0.weight"] == before).all()


def test_another_network_is_refused_and_left_alone():
    policy, optimiser = learner()
    wider, wider_optimiser = learner(hidden=(16,))
    deeper, _ = learner(hidden=(8, 8))
    learn(policy, optimiser, torch.Generator().manual_seed(0), 1)
    before = wider.actor[0].weight.clone()
    with pytest.raises(CheckpointError, match=r"weight actor\.0\.weight.*must be \(16, 3\) of float32"):
        restore_module(wider, module_arrays(policy, ""))
    assert torch.equal(before, wider.actor[0].weight)
    with pytest.raises(CheckpointError, match=r"differ in .* weights"):
        restore_module(deeper, module_arrays(policy, ""))
    with pytest.raises(CheckpointError, match=r"optimiser entry 0\.exp_avg"):
        restore_optimiser(wider_optimiser, optimiser_arrays(optimiser, ""))


def test_entries_of_unknown_weights_are_refused():
    policy, optimiser = learner()
    learn(policy, optimiser, torch.Generator().manual_seed(0), 1)
    arrays = {f"1{name}": array for name, array in optimiser_arrays(optimiser, "").items()}
    with pytest.raises(CheckpointError, match="number of one of 8 weights"):
        restore_optimiser(optimiser, arrays)


def test_another_kind_of_generator_state_is_refused():
    with pytest.raises(CheckpointError, match="does not fit this device"):
        restore_generator(torch.Generator(), generator_array(torch.Generator())[:100])
