"""Masked choices, and the plain policy made of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.stats import chisquare

from attribution_sched.errors import ModelFitError, PlanError
from attribution_sched.scheduler.ppo import policy as masking
from attribution_sched.scheduler.ppo.policy import (
    FlatPolicy,
    Tanh,
    chosen,
    entropy,
    log_prob_and_entropy,
    masked_log_softmax,
    sample,
)


@some.composite
def rows(draw, extreme=True):
    """Logits and masks with up to two leading axes; each row allows at least one action."""
    shape = tuple(draw(some.lists(some.integers(1, 4), max_size=2)))
    n = draw(some.integers(1, 12))
    seed = draw(some.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    width = draw(some.sampled_from([0.0, 1.0, 30.0, 1e4, 1e30] if extreme else [0.0, 1.0, 5.0]))
    logits = torch.tensor(rng.standard_normal((*shape, n)) * width, dtype=torch.float32)
    mask = rng.random((*shape, n)) < draw(some.sampled_from([0.1, 0.5, 1.0]))
    np.put_along_axis(mask, rng.integers(0, n, (*shape, 1)), True, axis=-1)
    return logits, torch.from_numpy(mask)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(deadline=None, max_examples=80)
@given(rows())
def test_probabilities_are_exactly_zero_where_forbidden_and_sum_to_one(case):
    logits, mask = case
    log_probs = masked_log_softmax(logits, mask)
    assert (log_probs[~mask] == -torch.inf).all()
    assert (log_probs.exp()[~mask] == 0.0).all()
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(logits.shape[:-1]))


@settings(deadline=None, max_examples=50)
@given(rows(extreme=False))
def test_allowed_probabilities_are_those_of_a_softmax_over_the_allowed(case):
    logits, mask = case
    log_probs = masked_log_softmax(logits, mask)
    weights = logits.double().exp() * mask
    torch.testing.assert_close(log_probs.exp().double(), weights / weights.sum(-1, keepdim=True), rtol=1e-5, atol=1e-7)
    every = torch.ones_like(mask)
    torch.testing.assert_close(masked_log_softmax(logits, every), torch.log_softmax(logits, -1))


@settings(deadline=None, max_examples=80)
@given(rows(), some.integers(0, 2**31))
def test_gradients_are_finite_and_nil_where_forbidden(case, seed):
    logits, mask = case
    logits = logits.clone().requires_grad_()
    log_probs = masked_log_softmax(logits, mask)
    action = sample(log_probs, seeded(seed))
    (chosen(log_probs, action).sum() + entropy(log_probs).sum()).backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[~mask] == 0.0).all()


@settings(deadline=None, max_examples=80)
@given(rows(), some.integers(0, 2**31))
def test_no_forbidden_action_is_drawn_or_taken(case, seed):
    logits, mask = case
    log_probs = masked_log_softmax(logits, mask)
    for generator in (seeded(seed), None):
        action = sample(log_probs, generator)
        assert action.shape == logits.shape[:-1]
        assert chosen(mask, action).all()


@settings(deadline=None, max_examples=80)
@given(rows(), some.integers(0, 2**31))
def test_the_shortcut_has_the_same_values_and_gradients(case, seed):
    logits, mask = case
    action = sample(masked_log_softmax(logits, mask), seeded(seed))
    grads, said = [], []
    weights = torch.randn(2, *logits.shape[:-1], generator=seeded(seed))
    for shortcut in (True, False):
        leaf = logits.clone().requires_grad_()
        log_probs = None if shortcut else masked_log_softmax(leaf, mask)
        terms = (
            log_prob_and_entropy(leaf, mask, action) if shortcut else (chosen(log_probs, action), entropy(log_probs))
        )
        (weights[0] * terms[0] + weights[1] * terms[1]).sum().backward()
        grads.append(leaf.grad)
        said.append(torch.stack(terms).detach())
    torch.testing.assert_close(said[0], said[1])
    assert torch.isfinite(grads[0]).all() and (grads[0][~mask] == 0.0).all()
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-6)


@settings(deadline=None, max_examples=50)
@given(rows(extreme=False))
def test_entropy_is_that_of_the_allowed_actions(case):
    log_probs = masked_log_softmax(*case)
    p = log_probs.double().exp().numpy()
    terms = np.where(p > 0, -p * np.log(np.where(p > 0, p, 1.0)), 0.0)
    np.testing.assert_allclose(entropy(log_probs).numpy(), terms.sum(-1), rtol=1e-5, atol=1e-6)


def test_entropy_gradient_matches_finite_differences():
    logits = torch.tensor([[0.3, -1.2, 2.0, 0.5]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, True, True]])
    assert torch.autograd.gradcheck(lambda x: entropy(masked_log_softmax(x, mask)), logits)
    action = torch.tensor([2])
    assert torch.autograd.gradcheck(lambda x: chosen(masked_log_softmax(x, mask), action), logits)
    assert torch.autograd.gradcheck(lambda x: log_prob_and_entropy(x, mask, action), logits)


@pytest.mark.parametrize("draw", [sample, masking._race])
def test_draws_follow_the_probabilities(draw):
    logits = torch.tensor([1.0, 0.0, -1.0, 5.0, 0.5])
    mask = torch.tensor([True, True, True, False, True])
    log_probs = masked_log_softmax(logits, mask)
    actions = draw(log_probs.expand(200_000, 5), seeded(1))
    counts = torch.bincount(actions, minlength=5).numpy()
    assert counts[3] == 0
    expected = log_probs.exp().double().numpy()[mask.numpy()]
    assert chisquare(counts[mask.numpy()], expected / expected.sum() * 200_000).pvalue > 1e-3


def test_a_draw_that_rounds_onto_a_forbidden_action_is_drawn_anew(monkeypatch):
    # The largest number the uniform generator could return, and one beyond: past every sum of probabilities.
    log_probs = masked_log_softmax(torch.zeros(64, 5), torch.tensor([True, True, True, False, False]).expand(64, 5))
    monkeypatch.setattr(masking.torch, "rand", lambda shape, **_: torch.full(shape, 1.0))
    action = sample(log_probs, seeded())
    assert (action <= 2).all()
    assert len(action.unique()) == 3


def test_draws_repeat_under_a_seed_and_leave_the_global_generator_alone():
    log_probs = masked_log_softmax(torch.randn(32, 8, generator=seeded(3)), torch.ones(32, 8, dtype=torch.bool))
    before = torch.get_rng_state()
    one, again, other = sample(log_probs, seeded(7)), sample(log_probs, seeded(7)), sample(log_probs, seeded(8))
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())


def test_a_row_without_any_action_is_named():
    mask = torch.ones(3, 2, 4, dtype=torch.bool)
    mask[1, 0] = False
    with pytest.raises(PlanError, match=r"mask\[1, 0\].*at least one action.*always possible"):
        masked_log_softmax(torch.zeros(3, 2, 4), mask)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_logit_that_is_no_number_is_named(bad):
    logits = torch.zeros(2, 4)
    logits[1, 2] = bad
    with pytest.raises(ModelFitError, match=r"logits\[1, 2\].*finite"):
        masked_log_softmax(logits, torch.ones(2, 4, dtype=torch.bool))


def test_a_mask_of_another_shape_is_refused():
    for call in (masked_log_softmax, lambda *rows: log_prob_and_entropy(*rows, torch.zeros(2, dtype=torch.int64))):
        with pytest.raises(ModelFitError, match=r"mask\.shape = \(4,\)"):
            call(torch.zeros(2, 4), torch.ones(4, dtype=torch.bool))


def test_the_shortcut_names_the_same_faults_and_a_forbidden_action():
    mask, zeros = torch.ones(2, 4, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
    mask[1, 0] = False
    with pytest.raises(PlanError, match=r"action\[1\] = 0: is forbidden by its mask"):
        log_prob_and_entropy(torch.zeros(2, 4), mask, zeros)
    mask[1] = False
    with pytest.raises(PlanError, match=r"mask\[1\].*at least one action"):
        log_prob_and_entropy(torch.zeros(2, 4), mask, zeros)
    logits = torch.zeros(2, 4)
    logits[0, 3] = torch.nan
    with pytest.raises(ModelFitError, match=r"logits\[0, 3\] = nan"):
        log_prob_and_entropy(logits, torch.ones(2, 4, dtype=torch.bool), zeros)


@pytest.mark.slow
def test_no_forbidden_action_in_ten_million_draws():
    generator, wrong, drawn = seeded(11), 0, 0
    for actions, width, draws in (
        (64, 0.0, 500),
        (64, 1.0, 500),
        (64, 20.0, 500),
        (64, 90.0, 500),
        (64, 1e4, 490),
        (1400, 5.0, 15),
    ):
        logits = torch.randn(4096, actions, generator=generator) * width
        mask = torch.rand(4096, actions, generator=generator) < 0.3
        mask[:, 0] |= ~mask.any(-1)
        log_probs = masked_log_softmax(logits, mask)
        for _ in range(draws):
            action = sample(log_probs, generator)
            wrong += int((~chosen(mask, action)).sum())
            drawn += len(action)
    assert drawn >= 10_000_000
    assert wrong == 0


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
