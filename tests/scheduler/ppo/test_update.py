"""The PPO update: its gradient by hand, its brakes, and what it reports."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attribution_sched.errors import ModelFitError
from attribution_sched.scheduler.ppo.settings import PpoSettings
from attribution_sched.scheduler.ppo.update import Evaluation, Rollout, update

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
