"""The law of pairs that nobody measured, and what it learns from the pairs it tries (``benchmarks/pair_trials.py``)."""

import os

import numpy as np
import pytest
from pair_trials import Table, learnt

needs_data = pytest.mark.skipif("ATTRIBUTION_SCHED_DATA" not in os.environ, reason="needs the measured tables")


def test_a_law_moves_toward_what_was_seen_and_only_for_jobs_like_it():
    law, like = np.full((3, 3), 0.6), np.eye(3)
    told = learnt(law, like, [(0, 1, 0.9), (1, 0, 0.2)])
    assert told[0, 1] == pytest.approx(1.1, abs=0.05) and told[0, 1] == told[1, 0]
    assert told[2, 2] == pytest.approx(1.2)
    assert learnt(law, like, [])[0, 1] == pytest.approx(1.2)


@needs_data
def test_no_pair_of_either_family_tells_anything_of_a_pair():
    table = Table("v100")
    before, own = table.law(), table.families == "ResNet-50"
    other = table.families == "LM"
    asked = own[:, None] & other[None]
    touched = (own | other)[:, None] | (own | other)[None]
    table.speed = np.where(touched & (table.speed > 0), 0.31, table.speed)
    after = table.law()
    assert np.array_equal(before[asked], after[asked]) and np.array_equal(before[asked.T], after[asked.T])
    assert not np.array_equal(before, after)
