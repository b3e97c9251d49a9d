"""A rebuilt house decides as before: actions bit for bit, rewards to 1e-12."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.golden.record import FILE, POLICIES, PRESETS, SEEDS, play

SOME = {("testbed", "sjf", 2), ("cross-domain", "greedy", 3)}


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(FILE) as file:
        return dict(file)


@pytest.mark.parametrize(
    ("preset", "policy", "seed"),
    [
        pytest.param(*each, marks=() if each in SOME else pytest.mark.slow)
        for each in itertools.product(PRESETS, POLICIES, SEEDS)
    ],
)
def test_decides_as_before(golden: dict[str, np.ndarray], preset: str, policy: str, seed: int) -> None:
    decided = play(preset, policy, seed)
    for name in ("time_s", "task", "action", "code"):
        np.testing.assert_array_equal(decided[name], golden[f"{preset}/{policy}/{seed}/{name}"], name)
    np.testing.assert_allclose(decided["terms"], golden[f"{preset}/{policy}/{seed}/terms"], rtol=0, atol=1e-12)
