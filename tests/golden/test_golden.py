"""A rebuilt house decides as before: actions bit for bit, rewards to 1e-12.

The clock is held to one part in 10¹², not to the bit. Against the recording, of the first edition, single clocks are
one unit in the last place off (``cross-domain-easy``, greedy, seed 1: one of 42, and those after it are equal again).
No chance: processes of one release agree to the bit, also under load (``python -m tests.campaigns.repeatable``). The
cause was not traced; likely, but not shown: the end of a task is a sum of pieces of work, and releases cut them
differently."""

from __future__ import annotations

import numpy as np
import pytest

from tests.golden.record import CASES, FILE, play

SOME = {
    ("testbed", "sjf", 2), ("cross-domain-easy", "greedy", 3), ("cross-domain", "rule", 1),
    # The default policy, thinking, in the default preset and where it thinks most.
    ("cross-domain", "hi-ppo", 1), ("testbed", "hi-ppo", 0),
}  # fmt: skip


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(FILE) as file:
        return dict(file)


@pytest.mark.parametrize(
    ("preset", "policy", "seed"),
    [pytest.param(*each, marks=() if each in SOME else pytest.mark.slow) for each in CASES],
)
def test_decides_as_before(golden: dict[str, np.ndarray], preset: str, policy: str, seed: int) -> None:
    decided = play(preset, policy, seed)
    for name in ("task", "action", "code"):
        np.testing.assert_array_equal(decided[name], golden[f"{preset}/{policy}/{seed}/{name}"], name)
    np.testing.assert_allclose(decided["time_s"], golden[f"{preset}/{policy}/{seed}/time_s"], rtol=1e-12, atol=0)
    np.testing.assert_allclose(decided["terms"], golden[f"{preset}/{policy}/{seed}/terms"], rtol=0, atol=1e-12)
