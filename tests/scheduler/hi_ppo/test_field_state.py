"""A field goes on from a stored state as if nothing had been in between."""

import numpy as np
import pytest

from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch, field_arrays, keep_clusters, restore_field
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

from .tiny_courses import small_world


def played(field, steps):
    """Everything that comes of some decisions: what was seen, forecasts included, and earned."""
    found = []
    for _ in range(steps):
        seen = field.decisions()
        move = field.step(ShortestFirst())
        found.append((seen.links.copy(), seen.left.copy(), move.terms, move.ended))
    return found


def same(one, other):
    return all(np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("predict", [True, False])
def test_what_follows_a_stored_state_is_the_same_again(predict):
    field = ClusterBatch(small_world(), 3, 7, predict=predict)
    played(field, 5)
    stored = field_arrays(field)
    first = played(field, 25)
    other = ClusterBatch(small_world(), 3, 99, predict=predict)
    played(other, 3)
    restore_field(other, stored)
    assert same(played(other, 25), first)
    assert not same(first[:3], first[3:6])


def test_single_clusters_can_be_kept():
    field = ClusterBatch(small_world(), 3, 7)
    stored = field_arrays(field)
    played(field, 6)
    now = field_arrays(field)
    keep_clusters(field, np.array([False, True, False]), stored)
    fresh = field_arrays(ClusterBatch(small_world(), 3, 7))
    for name in stored:
        if name != "engine.world":
            assert np.array_equal(stored[name][1], now[name][1], equal_nan=True), name
            assert np.array_equal(stored[name][0], fresh[name][0], equal_nan=True), name


def test_a_state_that_does_not_fit_changes_nothing():
    field = ClusterBatch(small_world(), 3, 7)
    before = field_arrays(field)
    less = {name: array for name, array in before.items() if name != "forecast.level"}
    for arrays, rule in (
        (less, r"forecast\.level.*missing"),
        (before | {"running": np.zeros(4)}, r"field running.*must be \(3,\)"),
        (field_arrays(ClusterBatch(small_world(), 3, 7, predict=False)), "missing"),
        (before | {"engine.world": before["engine.world"] ^ 1}, "world"),
    ):
        with pytest.raises(CheckpointError, match=rule):
            restore_field(field, arrays)
        assert all(np.array_equal(before[n], a, equal_nan=True) for n, a in field_arrays(field).items())
