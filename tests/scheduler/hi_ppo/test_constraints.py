"""Penalties, multipliers, deadline and stability."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attribution_sched.errors import CheckpointError, ModelFitError, NetworkError, SettingsError
from attribution_sched.scheduler.hi_ppo.constraints import (
    Deadline,
    DualAscent,
    Fallback,
    Multipliers,
    big_m_penalty,
    imbalance,
    progress_stability,
)

law = settings(deadline=None, max_examples=50)
numbers = st.floats(0.0, 1e3)


def test_big_m_by_hand():
    traffic = np.array([[9e9, 2e9, 1e9], [0.0, 9e9, 4e9], [3e9, 0.0, 9e9]])
    bandwidth = np.array([[0.0, 0.5, 5.0], [0.5, 0.0, 1.0], [0.9, 5.0, 0.0]])
    assert big_m_penalty(traffic, bandwidth, 1.0, 10.0) == pytest.approx(10.0 * (2 + 3))
    thresholds = np.full((3, 3), 6.0)
    thresholds[0, 1] = 0.1
    assert big_m_penalty(traffic, bandwidth, thresholds, 10.0) == pytest.approx(10.0 * (1 + 4 + 3))
    assert big_m_penalty(traffic, bandwidth, 0.0, 10.0) == 0.0


@law
@given(arrays(float, (4, 2, 3, 3), elements=numbers), arrays(float, (2, 3, 3), elements=numbers), numbers)
def test_big_m_of_a_batch_is_that_of_each(traffic, bandwidth, threshold):
    whole = big_m_penalty(traffic, bandwidth, threshold, 1e9)
    assert whole.shape == (4, 2)
    for i in range(4):
        for j in range(2):
            wanted = sum(
                traffic[i, j, a, b] for a in range(3) for b in range(3) if a != b and bandwidth[j, a, b] < threshold
            )
            assert whole[i, j] == pytest.approx(wanted)


def test_big_m_refuses_bad_input():
    good = np.ones((2, 2))
    with pytest.raises(NetworkError, match=r"must end in \(K, K\)"):
        big_m_penalty(np.ones((2, 3)), np.ones((2, 3)), 1.0, 1.0)
    with pytest.raises(NetworkError, match=r"traffic_bytes = -1.0"):
        big_m_penalty(-good, good, 1.0, 1.0)
    with pytest.raises(NetworkError, match="bandwidth_gbps = nan"):
        big_m_penalty(good, good * np.nan, 1.0, 1.0)
    with pytest.raises(SettingsError, match="m_per_gb = -1"):
        big_m_penalty(good, good, 1.0, -1)


def test_imbalance_by_hand():
    found = imbalance([[1.0, 3.0, 77.0], [2.0, 2.0, 2.0], [5.0, 1.0, 1.0]], [[1, 1, 0], [1, 1, 1], [1, 0, 0]], 0.4)
    assert found.variance == pytest.approx([0.25, 0.0, 0.0])
    assert found.spread == pytest.approx([1.0, 0.0, 0.0])
    assert found.violation == pytest.approx([0.6, 0.0, 0.0])


@law
@given(arrays(float, (3, 5), elements=st.floats(0.1, 50.0)), arrays(bool, (3, 5)), st.floats(0.01, 100.0))
def test_imbalance_is_numpys_and_has_no_units(load, used, unit):
    found, scaled = imbalance(load, used), imbalance(load * unit, used)
    for row in range(3):
        some = load[row, used[row]]
        if len(some):
            assert found.variance[row] == pytest.approx(np.var(some) / np.mean(some) ** 2, abs=1e-12)
            assert found.spread[row] == pytest.approx(np.ptp(some) / np.mean(some), abs=1e-12)
        else:
            assert found.variance[row] == found.spread[row] == 0.0
    assert scaled.variance == pytest.approx(found.variance)
    assert scaled.spread == pytest.approx(found.spread)


def test_imbalance_of_idle_or_unknown_domains():
    idle = imbalance([0.0, 0.0], [True, True])
    assert idle.variance == 0 and idle.spread == 0 and idle.violation == 0
    assert imbalance([1.0, np.nan, 1.0], [True, False, True]).spread == 0.0
    with pytest.raises(ModelFitError, match="compute_s = nan"):
        imbalance([1.0, np.nan], [True, True])
    with pytest.raises(SettingsError, match="delta"):
        imbalance([1.0, 1.0], [True, True], delta=-0.1)


def test_stability_is_the_share_of_work_kept():
    assert progress_stability([100.0, 50.0], [1.0, 0.0]) == pytest.approx([0.99, 1.0])
    assert np.isnan(progress_stability(0.0, 0.0))
    with pytest.raises(ModelFitError, match="0 <= lost <= done"):
        progress_stability(1.0, 2.0)


@pytest.mark.parametrize("gains", [(0.0, 0.0), (0.5, 0.0), (0.5, 0.5)])
def test_dual_ascent_finds_the_multipliers_of_kuhn_and_tucker(gains):
    """Maximise −(x − 3)² − (y − 1)² with x ≤ 1 and y ≤ 2: at x = 1, y = 1 the multipliers are 4 and 0."""
    proportional, derivative = gains
    rule = DualAscent(rate=0.05, proportional=proportional, derivative=derivative)
    multipliers = Multipliers.start(("x", "y"), rule, value=1.0)
    x, y = 0.0, 0.0
    for _ in range(3000):
        for _ in range(3):
            # The policy only follows the gradient of the penalised reward, as a learner does.
            x += 0.05 * (-2 * (x - 3) - multipliers.values[0])
            y += 0.05 * (-2 * (y - 1) - multipliers.values[1])
        multipliers = multipliers.update({"y": y - 2, "x": x - 1})
    assert multipliers.values == pytest.approx((4.0, 0.0), abs=1e-6)
    assert (x, y) == pytest.approx((1.0, 1.0), abs=1e-6)


def test_proportional_term_damps_the_swings():
    def largest_swing(proportional):
        multipliers = Multipliers.start(("x",), DualAscent(rate=0.5, proportional=proportional))
        x, late = 0.0, []
        for step in range(400):
            x += 0.05 * (-2 * (x - 3) - multipliers.values[0])
            multipliers = multipliers.update([x - 1])
            if step > 60:
                late.append(abs(x - 1))
        return max(late)

    assert largest_swing(4.0) < 0.2 * largest_swing(0.0)


@law
@given(st.lists(st.floats(-1e6, 1e6), max_size=20), st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.floats(0.1, 50.0))
def test_multipliers_stay_between_zero_and_the_cap(violations, rate, gain, cap):
    multipliers = Multipliers.start(("g",), DualAscent(rate, gain, gain, cap))
    for g in violations:
        multipliers = multipliers.update([g])
        assert 0.0 <= multipliers.values[0] <= cap
    assert multipliers.updates == len(violations)


def test_an_update_is_proportional_to_the_violation_and_leaves_the_old_record():
    start = Multipliers.start(("a", "b"), DualAscent(rate=0.1))
    small, large = start.update([0.01, 1.0]).values
    assert (small, large) == pytest.approx((0.001, 0.1))
    assert start.values == (0.0, 0.0) and start.updates == 0


def test_nothing_measured_holds_the_multiplier():
    warm = Multipliers.start(("a", "b"), DualAscent(rate=0.1, proportional=1.0, derivative=2.0)).update([1.0, 1.0])
    held = warm.update(None)
    assert held.values == warm.values and held.before == warm.before and held.updates == 2
    half = warm.update({"a": None, "b": 0.0})
    assert half.values == (warm.values[0], pytest.approx(0.1))
    assert half.update([3.0, 0.0]).values[0] == pytest.approx(0.1 + 0.3 + 3.0 + 2.0 * (3.0 - 1.0))


def test_multipliers_sit_out_the_delay():
    multipliers = Multipliers.start(("g",), DualAscent(rate=1.0, delay=2))
    for wanted in (0.0, 0.0, 5.0, 10.0):
        multipliers = multipliers.update([5.0])
        assert multipliers.values == (wanted,)


def test_cap_does_not_wind_up():
    multipliers = Multipliers.start(("g",), DualAscent(rate=1.0, cap=3.0))
    for _ in range(100):
        multipliers = multipliers.update([1.0])
    assert multipliers.update([-1.0]).values == (2.0,)


def test_penalised_rewards():
    multipliers = Multipliers(("a", "b"), (2.0, 0.5), (2.0, 0.5), (None, None))
    rewards = np.array([[1.0, 2.0, 3.0]])
    g = np.array([[[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]])
    assert multipliers.penalised(rewards, g) == pytest.approx(np.array([[-1.0, 1.0, 5.0]]))
    by_name = {"b": g[..., 1], "a": g[..., 0]}
    assert multipliers.penalised(rewards, by_name) == pytest.approx(multipliers.penalised(rewards, g))
    assert multipliers.penalised(rewards, {"a": 1.0, "b": 0.0}) == pytest.approx(rewards - 2.0)


def test_multipliers_survive_json():
    multipliers = (
        Multipliers.start(("a", "b"), DualAscent(0.3, 0.1, 0.2, 7.0, 1)).update([0.1, None]).update([1 / 3, 0.7])
    )
    text = json.dumps(multipliers.to_record(), allow_nan=False)
    again = Multipliers.from_record(json.loads(text))
    assert again == multipliers
    assert again.update([0.2, 0.2]) == multipliers.update([0.2, 0.2])


@pytest.mark.parametrize(
    "change",
    [
        {"values": [1.0]},
        {"values": [-1.0, 0.0]},
        {"values": "ab"},
        {"rule": {"speed": 1}},
        {"before": 3},
        {"updates": None},
    ],
)
def test_damaged_records_are_refused(change):
    record = {**Multipliers.start(("a", "b")).to_record(), **change}
    with pytest.raises(CheckpointError, match="is not a record of multipliers"):
        Multipliers.from_record(record)
    del record["names"]
    with pytest.raises(CheckpointError, match="KeyError"):
        Multipliers.from_record(record)


def test_bad_violations_are_refused():
    multipliers = Multipliers.start(("a", "b"))
    with pytest.raises(ModelFitError, match=r"violation of b = nan: must be finite. Give None while no episode"):
        multipliers.update([0.0, float("nan")])
    with pytest.raises(ModelFitError, match="must name"):
        multipliers.update({"a": 1.0})
    with pytest.raises(ModelFitError, match="must be 2 numbers"):
        multipliers.update([1.0, 2.0, 3.0])
    with pytest.raises(ModelFitError, match="violations"):
        multipliers.penalised(np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(SettingsError, match=r"dual.rate = -1"):
        DualAscent(rate=-1)
    with pytest.raises(SettingsError, match="named once"):
        Multipliers.start(("a", "a"))
    with pytest.raises(SettingsError, match=r"must be in \[0, 100.0\]"):
        Multipliers.start(("a",), value=101.0)


class Clock:
    def __init__(self):
        self.now_s = 50.0

    def __call__(self):
        return self.now_s


def test_deadline_counts_down_and_names_its_fallback():
    clock = Clock()
    deadline = Deadline(clock=clock)
    assert deadline.remaining_s == 2.0 and not deadline.expired
    clock.now_s += 1.5
    assert deadline.remaining_s == 0.5 and deadline.fallback("greedy", "lower agents") is None
    clock.now_s += 0.75
    assert deadline.expired and deadline.remaining_s == 0.0
    wanted = Fallback("coordination took 2.250 s of 2.000 s allowed, at: lower agents", "greedy")
    assert deadline.fallback("greedy", "lower agents") == wanted


def test_deadline_starts_again_when_entered():
    clock = Clock()
    deadline = Deadline(1.0, clock)
    clock.now_s += 5.0
    assert deadline.expired
    with deadline as same:
        assert same is deadline and not deadline.expired
        clock.now_s += 0.25
        assert deadline.elapsed_s == 0.25


def test_deadline_uses_a_real_clock_and_refuses_no_time():
    deadline = Deadline(60.0)
    assert 0.0 < deadline.remaining_s <= 60.0
    assert not Deadline(float("inf")).expired
    for limit in (0.0, float("nan")):
        with pytest.raises(SettingsError, match=r"deadline.limit_s"):
            Deadline(limit)
