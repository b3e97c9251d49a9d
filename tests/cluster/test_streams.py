"""The array-held generator: reference words, moments, shape, independence, determinism."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import SeedSequence
from scipy import special, stats

from attribution_sched.cluster.streams import (
    exponential,
    integers,
    next_word,
    normal,
    normal_quantile,
    seed_stream,
    spawn_streams,
    uniform,
)
from attribution_sched.errors import SettingsError

MASK = (1 << 64) - 1


@numba.njit
def _fill(kind, state, out):
    for i in range(out.size):
        if kind == 0:
            out[i] = uniform(state)
        elif kind == 1:
            out[i] = normal(state)
        elif kind == 2:
            out[i] = exponential(state)
        else:
            out[i] = integers(state, kind)


def draw(kind, seed, size):
    out = np.empty(size)
    _fill(kind, seed if isinstance(seed, np.ndarray) else seed_stream(seed), out)
    return out


def reference_words(state, count):
    """xoshiro256++ in Python's own unbounded integers."""
    s = [int(x) for x in state]

    def rotate(x, k):
        return ((x << k) | (x >> (64 - k))) & MASK

    words = []
    for _ in range(count):
        words.append((rotate((s[0] + s[3]) & MASK, 23) + s[0]) & MASK)
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
    return words


def test_published_words_of_state_1_2_3_4():
    state = np.array([1, 2, 3, 4], np.uint64)
    words = [int(next_word(state)) for _ in range(6)]
    published = [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205]
    assert words == [*published, 9973669472204895162]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**63))
def test_words_equal_the_big_integer_reference(seed):
    state = seed_stream(seed)
    expected = reference_words(state, 20)
    assert [int(next_word(state)) for _ in range(20)] == expected


def test_normal_quantile_matches_scipy_to_the_last_digits():
    p = np.concatenate([np.linspace(1e-5, 1 - 1e-5, 4001), 10.0 ** -np.arange(2, 16), [2.0**-53]])
    ours = np.array([normal_quantile(x) for x in p])
    np.testing.assert_allclose(ours, special.ndtri(p), rtol=2e-15, atol=1e-17)


@pytest.mark.parametrize(
    ("kind", "law", "mean", "variance"),
    [(0, stats.uniform, 0.5, 1 / 12), (1, stats.norm, 0.0, 1.0), (2, stats.expon, 1.0, 1.0)],
)
def test_moments_and_kolmogorov_smirnov(kind, law, mean, variance):
    x = draw(kind, 11, 400_000)
    assert abs(x.mean() - mean) < 4 * np.sqrt(variance / x.size)
    assert x.var() == pytest.approx(variance, rel=0.012)
    assert stats.kstest(x, law.cdf).pvalue > 0.001
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 4 / np.sqrt(x.size)


def test_normal_tails_have_their_share():
    x = np.abs(draw(1, 12, 2_000_000))
    for bound in (3.0, 4.0):
        expected = x.size * 2 * stats.norm.sf(bound)
        assert abs((x > bound).sum() - expected) < 4 * np.sqrt(expected)


def test_uniform_never_reaches_an_end():
    # All-ones words and all-zero words are the extremes of the mapping.
    top = (float(np.uint64(MASK) >> np.uint64(12)) + 0.5) * 2.0**-52
    assert 0.0 < 0.5 * 2.0**-52 < top < 1.0
    x = draw(0, 3, 200_000)
    assert x.min() > 0.0
    assert x.max() < 1.0


@pytest.mark.parametrize("n", [3, 7, 10, 64])
def test_integers_are_uniform(n):
    counts = np.bincount(draw(n, 5, 200_000).astype(int), minlength=n)
    assert counts.size == n
    assert stats.chisquare(counts).pvalue > 0.001


def test_integers_with_a_huge_range_have_no_modulo_bias():
    # With n = 3·2^61, plain modulo would hit the lower third 1.5 times as often as the others.
    n = 3 * 2**61
    state = seed_stream(8)
    x = np.array([integers(state, n) for _ in range(30_000)], dtype=float)
    assert stats.chisquare(np.histogram(x, bins=3, range=(0, n))[0]).pvalue > 0.001


def test_integers_of_one_outcome_and_of_none():
    state = seed_stream(0)
    assert integers(state, 1) == 0
    with pytest.raises(SettingsError, match="n >= 1"):
        integers(state, 0)


def test_same_seed_same_draws_other_seed_other_draws():
    assert np.array_equal(draw(1, 7, 100), draw(1, 7, 100))
    assert not np.array_equal(draw(1, 7, 100), draw(1, 8, 100))
    assert np.array_equal(seed_stream(7), seed_stream(SeedSequence(7)))
    assert np.array_equal(seed_stream(np.int64(7)), seed_stream(7))


def test_streams_of_a_batch_are_independent_of_its_size_and_of_each_other():
    small, large = spawn_streams(4, 3), spawn_streams(4, 40)
    assert np.array_equal(small, large[:3])
    assert len({tuple(row) for row in large}) == 40
    x = np.stack([draw(1, row.copy(), 20_000) for row in large])
    correlation = np.corrcoef(x)[np.triu_indices(40, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)
    assert stats.kstest(correlation * np.sqrt(20_000), stats.norm.cdf).pvalue > 0.001


def test_neighbouring_seeds_are_unrelated():
    x = np.stack([draw(1, seed, 5_000) for seed in range(30)])
    assert np.abs(np.corrcoef(x)[np.triu_indices(30, 1)]).max() < 5 / np.sqrt(5_000)


def test_spawning_does_not_advance_the_seed_sequence():
    root = SeedSequence(9)
    assert np.array_equal(spawn_streams(root, 2), spawn_streams(root, 2))
    assert root.n_children_spawned == 0


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True, None])
def test_bad_seed_is_one_clear_error(seed):
    with pytest.raises(SettingsError, match="integer >= 0"):
        seed_stream(seed)


def test_negative_count_is_refused():
    with pytest.raises(SettingsError, match="count"):
        spawn_streams(0, -1)
