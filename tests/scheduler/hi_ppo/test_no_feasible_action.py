"""Who is stuck is who can place nothing, as the described decision says."""

import numpy as np
import pytest

from attribution_sched.cluster.decision import encode, gather
from attribution_sched.cluster.engine import state as st
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.no_feasible_action import stuck
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

from . import worlds


@pytest.mark.parametrize("name", ["tight", "incidents", "mixed"])
def test_stuck_means_that_no_candidate_fits(name):
    field = ClusterBatch(worlds.worlds()[name], 6, 3)
    planner, engine = field.planner, field.engine
    nothing = np.zeros((0, 7), dtype=np.float32) if len(field.attributions) == 0 else field.attributions
    idle = np.stack([encode(engine, None, 0)] * engine.clusters)
    seen = set()
    for turn in range(60):
        if turn % 3 == 0:
            field.step(ShortestFirst())
        else:
            engine.step(idle)
        rows = np.flatnonzero((engine.state.event[:, st.DONE] == 0) & (engine.state.event[:, st.EVENT] != st.NO_EVENT))
        if len(rows) == 0:
            break
        state, _ = planner.describe(gather(engine, rows, nothing))
        expected = ~state.mask[:, :-1].any(axis=1)
        assert np.array_equal(stuck(planner.tables, engine, rows), expected)
        seen |= set(expected.tolist())
    assert False in seen
