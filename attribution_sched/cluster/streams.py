"""Random streams that live in an array: one xoshiro256++ state of four words per cluster.

A batched kernel hands each cluster its own row, so the path of a cluster depends on its seed alone and
never on the batch it is simulated in. The generator is Blackman and Vigna's xoshiro256++; states are
filled by numpy's ``SeedSequence``, so nearby seeds give unrelated streams.

Every draw changes the state it is given in place.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from attribution_sched.errors import SettingsError, problem
from attribution_sched.kernels import kernel

StreamState = NDArray[np.uint64]
"""State of one generator, shape ``(4,)``; a batch of them is ``(n_streams, 4)``."""

_ONE = np.uint64(1)
_TWELVE = np.uint64(12)
_SEVENTEEN = np.uint64(17)
_TWENTY_THREE = np.uint64(23)
_FORTY_FIVE = np.uint64(45)
_SIXTY_FOUR = np.uint64(64)
_ULP = 2.0**-52

# Wichura's algorithm AS 241 (PPND16): numerator and denominator of three rational approximations of
# the normal quantile, highest power first. Relative error is about 1e-16.
_CENTRE_NUM = (
    2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
    13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608,
)  # fmt: skip
_CENTRE_DEN = (
    5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
    5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0,
)  # fmt: skip
_MIDDLE_NUM = (
    7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
    3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734,
)  # fmt: skip
_MIDDLE_DEN = (
    1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
    0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0,
)  # fmt: skip
_TAIL_NUM = (
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
    0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772,
)  # fmt: skip
_TAIL_DEN = (
    2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
    0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0,
)  # fmt: skip


def seed_stream(seed: int | SeedSequence) -> StreamState:
    """Return the state of a fresh generator, shape ``(4,)``.

    Args:
        seed: A non-negative integer, or a ``SeedSequence`` (which is read, not advanced).

    Raises:
        SettingsError: If the seed is negative or not an integer.
    """
    return np.array(_sequence(seed).generate_state(4, np.uint64))


def spawn_streams(seed: int | SeedSequence, count: int) -> StreamState:
    """Return ``count`` independent generator states, shape ``(count, 4)``.

    Row ``i`` depends on the seed and on ``i`` only: a larger batch begins with the rows of a smaller one.
    """
    if count < 0:
        raise SettingsError(problem("count", count, "must be >= 0", "Give the number of streams"))
    root = _sequence(seed)
    states = np.empty((count, 4), np.uint64)
    for i in range(count):
        child = SeedSequence(entropy=root.entropy, spawn_key=(*root.spawn_key, i), pool_size=root.pool_size)
        states[i] = child.generate_state(4, np.uint64)
    return states


def _sequence(seed: int | SeedSequence) -> SeedSequence:
    if isinstance(seed, SeedSequence):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise SettingsError(problem("seed", seed, "must be an integer >= 0", "Give for example seed=0"))
    return SeedSequence(int(seed))


@kernel(inline="always")
def _rotate_left(word: np.uint64, bits: np.uint64) -> np.uint64:
    return (word << bits) | (word >> (_SIXTY_FOUR - bits))


@kernel
def next_word(state: StreamState) -> np.uint64:
    """Draw 64 uniform bits (one step of xoshiro256++)."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    word: np.uint64 = _rotate_left(s0 + s3, _TWENTY_THREE) + s0
    shifted = s1 << _SEVENTEEN
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    state[0] = s0
    state[1] = s1
    state[2] = s2 ^ shifted
    state[3] = _rotate_left(s3, _FORTY_FIVE)
    return word


@kernel
def uniform(state: StreamState) -> float:
    """Draw from the open interval (0, 1): neither end is ever returned, so logarithms are safe."""
    # 52 bits plus one half is exactly representable; 53 bits plus one half would round up to 1.
    value: float = (np.float64(next_word(state) >> _TWELVE) + 0.5) * _ULP
    return value


@kernel(inline="always")
def _horner(coefficients: tuple[float, ...], r: float) -> float:
    total = 0.0
    for c in coefficients:
        total = total * r + c
    return total


@kernel
def normal_quantile(p: float) -> float:
    """Return the standard normal quantile of ``p`` in (0, 1)."""
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        centre: float = q * _horner(_CENTRE_NUM, r) / _horner(_CENTRE_DEN, r)
        return centre
    r = math.sqrt(-math.log(min(p, 1.0 - p)))
    if r <= 5.0:
        size: float = _horner(_MIDDLE_NUM, r - 1.6) / _horner(_MIDDLE_DEN, r - 1.6)
    else:
        size = _horner(_TAIL_NUM, r - 5.0) / _horner(_TAIL_DEN, r - 5.0)
    return size if q > 0.0 else -size


@kernel
def normal(state: StreamState) -> float:
    """Draw from the standard normal by inversion: one word per draw, nothing cached between draws."""
    value: float = normal_quantile(uniform(state))
    return value


@kernel
def exponential(state: StreamState) -> float:
    """Draw from the exponential distribution of mean 1."""
    return -math.log(uniform(state))


@kernel
def integers(state: StreamState, n: int) -> np.int64:
    """Draw an integer from ``0 .. n-1`` without modulo bias.

    Raises:
        SettingsError: If ``n`` is below 1.
    """
    if n < 1:
        raise SettingsError("n < 1: integers(state, n) must have n >= 1. Ask for at least one outcome")
    size = np.uint64(n)
    # The 2^64 mod n smallest words are refused, so that n divides the number of words that are kept.
    refused = (~size + _ONE) % size
    word = next_word(state)
    while word < refused:
        word = next_word(state)
    return np.int64(word % size)
