"""Clusters at different hours of their episodes."""

import numpy as np
import pytest

from attribution_sched.cluster.engine import state as st
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch, stagger
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

from .tiny_courses import small_world


@pytest.fixture(scope="module")
def spread():
    field = ClusterBatch(small_world(), 6, 40)
    stagger(field, ShortestFirst())
    return field


def test_every_cluster_is_where_it_would_have_come_alone(spread):
    world, state = small_world(), spread.engine.state
    for i in (0, 1, 4):
        alone = ClusterBatch(world, 1, 40 + i)
        while alone.engine.state.clock[0, st.NOW] < world.horizon_s * i / 6:
            alone.step(ShortestFirst())
        for name, array in alone.engine.state._asdict().items():
            assert np.array_equal(array[0], getattr(state, name)[i]), name
        assert spread._running[i] == pytest.approx(alone._running[0])


def test_hours_are_spread_over_the_day_and_nothing_is_counted_twice(spread):
    hours = spread.engine.state.clock[:, st.NOW]
    assert np.unique(hours // 200.0).size >= 5
    assert spread.returns == []
