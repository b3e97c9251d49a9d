"""Generalised advantage estimation: worked by hand, against a brute-force sum, and its laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.errors import ModelFitError, SettingsError
from attribution_sched.scheduler.ppo.gae import gae


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
