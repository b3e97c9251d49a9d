"""Ring all-reduce: the textbook volume, its limits and its time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.collectives import ring_all_reduce_s, ring_sent_bytes

LAW = settings(deadline=None, max_examples=50)
size, rate, delay = st.floats(0, 1e12), st.floats(1e6, 1e12), st.floats(0, 1.0)


@pytest.mark.parametrize(("ranks", "share"), [(1, 0.0), (2, 1.0), (4, 1.5), (8, 1.75), (1000, 1.998)])
def test_each_rank_sends_twice_all_but_its_own_part(ranks, share):
    assert ring_sent_bytes(float(ranks), 1e9) == pytest.approx(share * 1e9)


def test_time_by_hand():
    # 4 ranks, 8 GB at 2 GB/s: 1.5 * 8 / 2 = 6 s, and six rounds of 10 ms.
    assert ring_all_reduce_s(4.0, 8e9, 2e9, 0.01) == pytest.approx(6.06)


@LAW
@given(st.integers(1, 512), size, rate, delay)
def test_time_is_volume_over_bandwidth_plus_rounds(ranks, volume, bandwidth, latency):
    expected = ring_sent_bytes(float(ranks), volume) / bandwidth + 2 * (ranks - 1) * latency
    assert ring_all_reduce_s(float(ranks), volume, bandwidth, latency) == pytest.approx(expected)


@LAW
@given(st.integers(1, 512), size, rate, delay)
def test_more_ranks_or_less_bandwidth_never_help(ranks, volume, bandwidth, latency):
    base = ring_all_reduce_s(float(ranks), volume, bandwidth, latency)
    assert ring_all_reduce_s(float(ranks + 1), volume, bandwidth, latency) >= base
    assert ring_all_reduce_s(float(ranks), volume, bandwidth / 2, latency) >= base


def test_one_rank_has_nobody_to_talk_to():
    assert ring_all_reduce_s(1.0, 1e12, 1.0, 1.0) == 0.0
