"""Advantages by hand, the scale of returns, and the update."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.errors import ModelFitError, SettingsError
from attribution_sched.scheduler.ppo.ppo import MEMORY, Evaluation, ReturnScale, Rollout, gae, update
from attribution_sched.scheduler.ppo.settings import PpoSettings


def column(*numbers):
    """One environment, one component."""
    return np.array(numbers, dtype=np.float64).reshape(-1, 1, 1)


def flags(*numbers):
    return np.array(numbers, dtype=np.bool_).reshape(-1, 1)


def test_by_hand_without_an_end():
    # γ = 0.5, λ = 0.5.  δ2 = 3 + 0.5·8 − 4 = 3, δ1 = 2 + 0.5·4 − 2 = 2, δ0 = 1 + 0.5·2 − 1 = 1
    # A2 = 3, A1 = 2 + 0.25·3 = 2.75, A0 = 1 + 0.25·2.75 = 1.6875
    advantages, returns = gae(column(1, 2, 3), column(1, 2, 4, 8), flags(0, 0, 0), None, 0.5, 0.5)
    assert advantages.ravel().tolist() == [1.6875, 2.75, 3.0]
    assert returns.ravel().tolist() == [2.6875, 4.75, 7.0]


def test_by_hand_with_a_true_end():
    # The end after step 1 is worth 0: δ1 = 2 − 2 = 0, A1 = 0, and A2 = 3 does not reach it. A0 = 1 + 0.25·0 = 1
    advantages, _ = gae(column(1, 2, 3), column(1, 2, 4, 8), flags(0, 1, 0), None, 0.5, 0.5)
    assert advantages.ravel().tolist() == [1.0, 0.0, 3.0]


def test_by_hand_with_an_end_by_time():
    # Cut off where 6 was still to come: δ1 = 2 + 0.5·6 − 2 = 3, A1 = 3, A0 = 1 + 0.25·3 = 1.75
    advantages, _ = gae(column(1, 2, 3), column(1, 2, 4, 8), flags(0, 1, 0), column(0, 6, 0), 0.5, 0.5)
    assert advantages.ravel().tolist() == [1.75, 3.0, 3.0]


def test_by_hand_in_real_time():
    # Steps of 2, 1 and 0 units: discounts 0.25, 0.5, 1.
    # δ2 = 3 + 1·8 − 4 = 7, δ1 = 2 + 0.5·4 − 2 = 2, δ0 = 1 + 0.25·2 − 1 = 0.5
    # A2 = 7, A1 = 2 + 0.5·0.5·7 = 3.75, A0 = 0.5 + 0.25·0.5·3.75 = 0.96875
    gaps = np.array([[2], [1], [0]])
    advantages, _ = gae(column(1, 2, 3), column(1, 2, 4, 8), flags(0, 0, 0), None, 0.5, 0.5, gaps)
    assert advantages.ravel().tolist() == [0.96875, 3.75, 7.0]


def test_by_hand_with_a_step_that_only_resets():
    # Step 0 ends its episode (its final observation is worth 2); step 1 resets; steps 2 and 3 begin a new one.
    # A3 = 4 + 0.5·8 − 4 = 4, A2 = 3 + 0.5·4 − 3 + 0.25·4 = 3, A1 = 0, A0 = 1 + 0.5·2 − 1 = 1
    rewards, values = column(1, 0, 3, 4), column(1, 2, 3, 4, 8)
    ended, final, valid = flags(1, 0, 0, 0), column(2, 0, 0, 0), flags(1, 0, 1, 1)
    advantages, returns = gae(rewards, values, ended, final, 0.5, 0.5, valid=valid)
    assert advantages.ravel().tolist() == [1.0, 0.0, 3.0, 4.0]
    assert returns.ravel().tolist() == [2.0, 2.0, 6.0, 8.0]


@some.composite
def rollouts(draw, autoreset=False):
    t, e, c = draw(some.integers(1, 12)), draw(some.integers(1, 4)), draw(some.integers(1, 3))
    rng = np.random.default_rng(draw(some.integers(0, 2**32 - 1)))
    ended = rng.random((t, e)) < draw(some.sampled_from([0.0, 0.2, 0.6]))
    final = rng.standard_normal((t, e, c)) * (rng.random((t, e, 1)) < 0.5)
    return {
        "rewards": rng.standard_normal((t, e, c)),
        "values": rng.standard_normal((t + 1, e, c)),
        "ended": ended,
        "truncated_values": draw(some.sampled_from([None, final])),
        "gamma": draw(some.sampled_from([0.3, 0.9, 1.0])),
        "lam": draw(some.sampled_from([0.0, 0.5, 0.95, 1.0])),
        "gaps": draw(some.sampled_from([None, rng.uniform(0, 3, (t, e))])),
        "valid": draw(some.sampled_from([None, rng.random((t, e)) < 0.8])),
    }


def brute_force(rewards, values, ended, truncated_values, gamma, lam, gaps, valid):
    """The sum over all later δ of the episode, each with its own product of discounts: the definition."""
    steps, envs, components = rewards.shape
    out = np.zeros_like(rewards)
    for e in range(envs):
        for c in range(components):
            for t in range(steps):
                weight, total = 1.0, 0.0
                for s in range(t, steps):
                    if valid is not None and not valid[s, e]:
                        break
                    discount = gamma ** (1.0 if gaps is None else gaps[s, e])
                    if ended[s, e]:
                        following = 0.0 if truncated_values is None else truncated_values[s, e, c]
                    else:
                        following = values[s + 1, e, c]
                    total += weight * (rewards[s, e, c] + discount * following - values[s, e, c])
                    if ended[s, e]:
                        break
                    weight *= discount * lam
                out[t, e, c] = total
    return out


@settings(deadline=None, max_examples=80)
@given(rollouts())
def test_equals_the_definition(case):
    advantages, returns = gae(**case)
    expected = brute_force(**case)
    np.testing.assert_allclose(advantages, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(returns, expected + case["values"][:-1], rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=40)
@given(rollouts())
def test_equals_the_definition_from_single_precision(case):
    single = {k: v.astype(np.float32) if k in ("rewards", "values") else v for k, v in case.items()}
    np.testing.assert_allclose(gae(**single)[0], brute_force(**case), rtol=1e-5, atol=2e-6)


@settings(deadline=None, max_examples=50)
@given(rollouts(), some.integers(0, 2**32 - 1))
def test_components_add_up_under_any_weights(case, seed):
    weights = np.random.default_rng(seed).standard_normal(case["rewards"].shape[-1])

    def together(array):
        return None if array is None else (array @ weights)[:, :, None]

    apart = gae(**case)[0] @ weights
    joined = gae(
        **case | {name: together(case[name]) for name in ("rewards", "values", "truncated_values")},
    )[0]
    np.testing.assert_allclose(apart, joined[:, :, 0], rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(rollouts())
def test_nothing_flows_back_across_an_end_or_through_a_reset(case):
    advantages, _ = gae(**case)
    t = len(advantages) - 1
    shaken = case | {"rewards": case["rewards"].copy()}
    shaken["rewards"][t] += 100.0
    moved = np.abs(gae(**shaken)[0] - advantages).max(axis=2) > 1e-6
    valid = np.ones_like(case["ended"]) if case["valid"] is None else case["valid"]
    for e in range(moved.shape[1]):
        open_until_last = valid[t, e]
        for s in range(t, -1, -1):
            if s < t:
                open_until_last &= valid[s, e] and not case["ended"][s, e]
            if not open_until_last:
                assert not moved[s, e]


def test_with_lambda_one_and_no_discount_an_advantage_is_return_minus_value():
    advantages, returns = gae(column(1, 2, 3), column(5, 6, 7, 10), flags(0, 0, 0), None, 1.0, 1.0)
    assert returns.ravel().tolist() == [16.0, 15.0, 13.0]
    assert advantages.ravel().tolist() == [11.0, 9.0, 6.0]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"values": column(1, 2, 3)}, ModelFitError, r"values\.shape = \(3, 1, 1\): must be \(4, 1, 1\)"),
        ({"rewards": np.zeros((3, 1))}, ModelFitError, r"rewards\.shape"),
        ({"rewards": column(1, np.nan, 0)}, ModelFitError, r"rewards\[1, 0, 0\] = nan"),
        ({"values": column(1, 2, np.inf, 0)}, ModelFitError, r"values\[2, 0, 0\] = inf"),
        ({"truncated_values": np.zeros((3, 1))}, ModelFitError, r"truncated_values\.shape"),
        ({"gamma": 1.5}, SettingsError, "0 < gamma <= 1"),
        ({"lam": -0.1}, SettingsError, "0 <= lambda <= 1"),
        ({"gaps": np.full((3, 1), -1.0)}, SettingsError, "gaps = -1.0"),
    ],
)
def test_bad_input_is_refused(change, kind, message):
    good = {
        "rewards": column(1, 2, 3),
        "values": column(1, 2, 3, 4),
        "ended": flags(0, 0, 0),
        "truncated_values": None,
        "gamma": 0.9,
        "lam": 0.9,
    }
    with pytest.raises(kind, match=message):
        gae(**good | change)


def test_the_first_rollout_is_taken_as_it_is():
    scale = ReturnScale(2)
    scale.add(np.array([[1.0, 10.0], [3.0, 30.0]]))
    assert scale.mean.tolist() == [2.0, 20.0]
    assert scale.deviation.tolist() == [1.0, 10.0]


def test_later_rollouts_count_with_their_weight():
    # Means 0 then 10, no spread inside: mean = 0.1·10 = 1; mean square = 0.9·(1² kept as unit) + 0.1·100, less 1.
    scale = ReturnScale(1)
    scale.add(np.zeros((4, 1)))
    assert scale.deviation.tolist() == [1.0]
    scale.add(np.full((4, 1), 10.0))
    assert scale.mean[0] == pytest.approx((1 - MEMORY) * 10.0)
    assert scale.deviation[0] == pytest.approx(np.sqrt(MEMORY * 1.0 + (1 - MEMORY) * 100.0 - 1.0))


@settings(deadline=None, max_examples=40)
@given(some.integers(0, 2**32 - 1), some.sampled_from([1e-3, 1.0, 1e5]))
def test_conversions_undo_each_other_and_equal_rollouts_change_nothing(seed, width):
    returns = np.random.default_rng(seed).standard_normal((50, 3)) * width + width
    scale = ReturnScale(3)
    scale.add(returns)
    np.testing.assert_allclose(scale.to_units(scale.from_units(returns)), returns, rtol=1e-9, atol=1e-12)
    assert np.abs(scale.from_units(returns).std(axis=0) - 1.0).max() < 1e-6
    mean, deviation = scale.mean.copy(), scale.deviation.copy()
    scale.add(returns)
    np.testing.assert_allclose(scale.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(scale.deviation, deviation, rtol=1e-6)


ONE_STEP = PpoSettings(
    lr=1.0, num_steps=8, minibatch_size=8, update_epochs=1, target_kl=None, max_grad_norm=1e9,
    normalise_advantage=False, entropy_coef=0.0, value_coef=0.0,
)  # fmt: skip


class Table(torch.nn.Module):
    """A softmax over three actions and two values, the same for every decision: everything is easy by hand."""

    def __init__(self, logits=(0.0, 0.0, 0.0), values=(0.0, 0.0)):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits, dtype=torch.float64))
        self.values = torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))
        self.asked = []

    def evaluator(self, action):
        def evaluate(rows):
            self.asked.append(rows)
            log_probs = torch.log_softmax(self.logits, -1)
            spread = -(log_probs.exp() * log_probs).sum().expand(len(rows))
            return Evaluation(log_probs[action[rows]], spread, self.values.expand(len(rows), 2))

        return evaluate


def rollout(action, advantage, table, returns=None, log_prob=None):
    n = len(action)
    old = torch.log_softmax(table.logits, -1).detach()[action] if log_prob is None else log_prob
    zeros = torch.zeros(n, 2, dtype=torch.float64)
    return Rollout(old, torch.tensor(advantage, dtype=torch.float64), zeros if returns is None else returns, zeros)


def run(table, action, what, settings, seed=0, **more):
    optimiser = torch.optim.SGD(table.parameters(), lr=settings.lr)
    generator = torch.Generator().manual_seed(seed)
    return update(table.evaluator(action), what, table.parameters(), optimiser, settings, generator, **more)


def test_the_first_step_follows_the_policy_gradient():
    # ∇ of mean(A · log π(a)) at uniform π: for logit j, mean(A · (1[a = j] − 1/3)).
    # Actions 0, 1, 2, 0 with A = 3, −1, 0, 2: j = 0: (3·2/3 + 1/3 + 2·2/3) / 4 = 11/12; j = 1: −7/12; j = 2: −4/12.
    table, action = Table(), torch.tensor([0, 1, 2, 0])
    run(table, action, rollout(action, [3.0, -1.0, 0.0, 2.0], table), ONE_STEP)
    np.testing.assert_allclose(table.logits.detach(), [11 / 12, -7 / 12, -4 / 12], rtol=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"), [(1.3, 1.0, False), (0.7, 1.0, True), (0.7, -1.0, False), (1.3, -1.0, True)]
)
def test_the_gradient_stops_outside_the_clip_range_only_where_it_would_go_further(ratio, advantage, moves):
    table, action = Table(), torch.tensor([1])
    old = torch.log(torch.tensor([1 / 3 / ratio], dtype=torch.float64))
    stats = run(table, action, rollout(action, [advantage], table, log_prob=old), ONE_STEP)
    assert bool((table.logits != 0).any()) == moves
    assert stats.clip_fraction == 1.0
    expected = -advantage * (ratio if moves else 1.0 + np.sign(ratio - 1.0) * 0.2)
    assert stats.policy_loss == pytest.approx(expected)
    assert stats.kl == pytest.approx(ratio - 1 - np.log(ratio))


def test_value_loss_is_half_the_squared_error_summed_over_components():
    # Values (0, 0) against returns (1, 2) and (3, −2): (1 + 4 + 9 + 4) / 2 / 2 = 4.5; gradient −mean = (−2, 0).
    table, action = Table(), torch.tensor([0, 1])
    returns = torch.tensor([[1.0, 2.0], [3.0, -2.0]], dtype=torch.float64)
    settings = replace(ONE_STEP, value_coef=0.5, lr=1.0)
    stats = run(table, action, rollout(action, [0.0, 0.0], table, returns), settings)
    assert stats.value_loss == pytest.approx(4.5)
    np.testing.assert_allclose(table.values.detach(), [1.0, 0.0], atol=1e-12)


def test_a_value_that_moved_too_far_gets_no_gradient():
    # Now at 1 (it was 0 at collection); with a clip of 0.5 it counts as 0.5, further from the return of 2 than it is.
    action = torch.tensor([0])
    returns = torch.tensor([[2.0, 2.0]], dtype=torch.float64)
    for clip, loss, goes in ((None, 1.0, True), (0.5, 2.25, False)):
        table = Table(values=(1.0, 1.0))
        settings = replace(ONE_STEP, value_coef=1.0, value_clip=clip)
        stats = run(table, action, rollout(action, [0.0], table, returns), settings)
        assert stats.value_loss == pytest.approx(loss)
        assert bool((table.values != 1.0).any()) == goes


def test_entropy_is_raised_by_its_weight():
    table, action = Table(logits=(1.0, 0.0, 0.0)), torch.tensor([0, 0])
    before = torch.log_softmax(table.logits.detach(), -1)
    start = float(-(before.exp() * before).sum())
    stats = run(table, action, rollout(action, [0.0, 0.0], table), replace(ONE_STEP, entropy_coef=0.1))
    after = torch.log_softmax(table.logits.detach(), -1)
    assert stats.entropy == pytest.approx(start)
    assert float(-(after.exp() * after).sum()) > start


def test_every_decision_is_seen_once_per_epoch_in_nearly_equal_parts():
    table, action = Table(), torch.zeros(22, dtype=torch.int64)
    settings = replace(ONE_STEP, update_epochs=3, minibatch_size=8, lr=1e-3, num_steps=22)
    stats = run(table, action, rollout(action, [1.0] * 22, table), settings)
    assert [len(rows) for rows in table.asked] == [8, 7, 7] * 3
    orders = [torch.cat(table.asked[i : i + 3]) for i in (0, 3, 6)]
    assert all(order.sort().values.tolist() == list(range(22)) for order in orders)
    assert not torch.equal(orders[0], orders[1])
    assert stats.gradient_steps == 9 and not stats.stopped_early


def test_the_update_stops_once_the_policy_has_moved_far_enough():
    action = torch.tensor([0, 1, 2, 0])
    settings = replace(ONE_STEP, update_epochs=50, lr=0.5, clip_range=10.0)
    far, near = Table(), Table()
    what = rollout(action, [3.0, -1.0, 0.0, 2.0], far)
    free = run(far, action, what, settings)
    braked = run(near, action, what, replace(settings, target_kl=0.02))
    assert free.gradient_steps == 50 and not free.stopped_early
    assert braked.stopped_early and braked.gradient_steps < 10
    assert braked.kl > 0.02


def test_gradients_are_cut_to_the_norm():
    table, action = Table(), torch.tensor([0, 0])
    settings = replace(ONE_STEP, max_grad_norm=0.25, value_coef=1.0)
    returns = torch.full((2, 2), 100.0, dtype=torch.float64)
    run(table, action, rollout(action, [50.0, 50.0], table, returns), settings)
    moved = torch.cat([table.logits, table.values]).detach().norm()
    assert float(moved) == pytest.approx(0.25, rel=1e-4)


def test_advantages_are_brought_to_one_scale():
    action = torch.tensor([0, 1, 2, 0])
    settings = replace(ONE_STEP, normalise_advantage=True)
    small, large = Table(), Table()
    run(small, action, rollout(action, [3.0, -1.0, 0.0, 2.0], small), settings)
    run(large, action, rollout(action, [3000.0 + 7.0, -1000.0 + 7.0, 7.0, 2000.0 + 7.0], large), settings)
    np.testing.assert_allclose(small.logits.detach(), large.logits.detach(), atol=1e-6)
    assert float(small.logits.detach().abs().max()) > 0.1


def test_one_more_loss_is_added_as_it_is():
    table, action = Table(), torch.tensor([0, 1])
    what = rollout(action, [0.0, 0.0], table)
    run(table, action, what, ONE_STEP, extra_loss=lambda rows: 3.0 * table.values[1] * len(rows) / 2)
    np.testing.assert_allclose(table.values.detach(), [0.0, -3.0])


def test_explained_variance_is_reported_per_component():
    # First component: returns 0, 2 and values 0, 1: 1 − var(0, 1)/var(0, 2) = 0.75. Second: all returns are equal.
    action, table = torch.tensor([0, 1]), Table()
    what = Rollout(
        torch.log(torch.full((2,), 1 / 3, dtype=torch.float64)),
        torch.zeros(2, dtype=torch.float64),
        torch.tensor([[0.0, 5.0], [2.0, 5.0]], dtype=torch.float64),
        torch.tensor([[0.0, 1.0], [1.0, 1.0]], dtype=torch.float64),
    )
    first, second = run(table, action, what, ONE_STEP).explained_variance
    assert first == pytest.approx(0.75)
    assert np.isnan(second)


def test_the_order_of_minibatches_comes_from_the_generator_alone():
    action = torch.arange(16) % 3
    settings = replace(ONE_STEP, num_steps=16, minibatch_size=4, lr=0.3)
    advantage = np.linspace(-1, 1, 16).tolist()
    ends = []
    before = torch.get_rng_state()
    for seed in (1, 1, 2):
        table = Table()
        run(table, action, rollout(action, advantage, table), settings, seed)
        ends.append(table.logits.detach().clone())
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])
    assert torch.equal(before, torch.get_rng_state())


def test_a_gradient_that_is_no_number_leaves_the_weights_alone():
    table, action = Table(), torch.tensor([0, 1])
    returns = torch.full((2, 2), torch.nan, dtype=torch.float64)
    what = rollout(action, [1.0, 1.0], table, returns)
    with pytest.raises(ModelFitError, match=r"gradient norm = nan.*learning rate"):
        run(table, action, what, replace(ONE_STEP, value_coef=1.0))
    assert (table.logits == 0).all() and (table.values == 0).all()


def test_an_empty_rollout_is_refused():
    table, none = Table(), torch.zeros(0, dtype=torch.int64)
    with pytest.raises(ModelFitError, match="at least one"):
        run(table, none, rollout(none, [], table), ONE_STEP)
