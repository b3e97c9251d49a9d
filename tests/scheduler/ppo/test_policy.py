"""The plain policy: its parts agree with each other, and its weights come from the generator alone."""

import torch

from attribution_sched.scheduler.ppo.policy import FlatPolicy, Tanh


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(n=64, inputs=6, actions=5):
    obs = torch.randn(n, inputs, generator=seeded(5))
    mask = torch.rand(n, actions, generator=seeded(6)) < 0.5
    mask[:, 2] = True
    return obs, mask


def test_the_faster_tanh_is_tanh():
    x = torch.linspace(-30, 30, 2001, requires_grad=True)
    torch.testing.assert_close(Tanh()(x), torch.tanh(x), rtol=0, atol=3e-7)
    (slope,) = torch.autograd.grad(Tanh()(x).sum(), x)
    torch.testing.assert_close(slope, 1 - torch.tanh(x.detach()) ** 2, rtol=0, atol=6e-7)


def test_weights_repeat_under_a_seed_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    one, again, other = (FlatPolicy(6, 5, 3, seeded(seed)).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["actor.0.weight"], other["actor.0.weight"])
    assert torch.equal(before, torch.get_rng_state())


def test_a_new_policy_is_nearly_uniform_over_what_is_allowed():
    obs, mask = batch()
    policy = FlatPolicy(6, 5, 3, seeded())
    expected = mask.sum(-1).float().log()
    torch.testing.assert_close(policy.evaluate(obs, mask, torch.full((64,), 2)).entropy, expected, atol=1e-3, rtol=0)


def test_what_was_drawn_is_evaluated_alike():
    obs, mask = batch()
    policy = FlatPolicy(6, 5, 3, seeded())
    drawn = policy.sample(obs, mask, seeded(9))
    again = policy.evaluate(obs, mask, drawn.action)
    torch.testing.assert_close(drawn.log_prob, again.log_prob)
    torch.testing.assert_close(drawn.values, again.values)
    torch.testing.assert_close(policy.values(obs), again.values)
    assert drawn.values.shape == (64, 3)
    assert mask.gather(1, drawn.action[:, None]).all()


def test_without_a_generator_the_most_probable_action_is_taken():
    obs, mask = batch()
    policy = FlatPolicy(6, 5, 3, seeded())
    action = policy.sample(obs, mask, None).action
    logits = policy.actor(obs).masked_fill(~mask, -torch.inf)
    assert torch.equal(action, logits.argmax(-1))


def test_actor_and_critic_share_nothing():
    obs, mask = batch()
    policy = FlatPolicy(6, 5, 3, seeded())
    policy.evaluate(obs, mask, torch.full((64,), 2)).values.sum().backward()
    assert all(weight.grad is None for weight in policy.actor.parameters())


def test_observations_of_any_shape_are_flattened():
    policy = FlatPolicy(6, 5, 1, seeded())
    obs, _ = batch(4)
    torch.testing.assert_close(policy.values(obs), policy.values(obs.reshape(4, 2, 3)))
