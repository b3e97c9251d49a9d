"""PartialPlans add up what is written, close replicas and die of segments that do not fit."""

import numpy as np
import pytest

from attribution_sched.scheduler.hi_ppo.action_masks import (
    D_REPLICA,
    DEAD,
    OPEN,
    open_partial_plans,
    write_segments,
)

from . import worlds


@pytest.fixture(scope="module")
def t():
    return worlds.planner_of(worlds.begun(worlds.worlds()["tight"])).tables


def opened(t, kinds):
    b = len(kinds)
    free = np.tile(np.asarray(t.domains.rows.devices), (b, 1))
    return open_partial_plans(t, np.array(kinds), free, np.ones((b, 3)))


def layout(t, dp, tp, pp):
    return int(np.flatnonzero((t.layouts == (dp, tp, pp)).all(axis=1))[0])


def write(t, drafts, row, domain, first, lay, q=1, v=0):
    write_segments(t, drafts, *(np.array([x]) for x in (row, domain, first, lay, q, v)))


def test_a_draft_begins_with_all_layers_open(t):
    drafts = opened(t, [1, 0])
    assert drafts.stop.tolist() == t.cost.n_layers[[1, 0]].tolist()
    assert drafts.level.tolist() == [-1, -1] and (drafts.status == OPEN).all() and not drafts.used.any()


def test_segments_are_written_from_the_last_layer_backwards(t):
    drafts = opened(t, [1, 1])
    n = int(t.cost.n_layers[1])
    one, two = layout(t, 1, 1, 2), layout(t, 2, 1, 1)
    write(t, drafts, 1, 3, 6, one, v=2)
    assert drafts.rows[1, 0].tolist() == [3, 6, n, one, 1, 2, 0]
    assert (drafts.stop[1], drafts.after[1], drafts.level[1], drafts.written[1], drafts.devices[1]) == (6, 2, 2, 1, 2)
    write(t, drafts, 1, 0, 0, two, v=2)
    assert drafts.used[1].tolist() == [True, False, False, True]
    # The replica is complete: the next segment would begin another at the last layer.
    assert (drafts.stop[1], drafts.after[1], drafts.level[1], drafts.replica[1], drafts.devices[1]) == (n, 0, -1, 1, 4)
    write(t, drafts, 1, 1, 0, one, v=1)
    assert drafts.rows[1, 2, D_REPLICA] == 1 and drafts.status[1] == OPEN
    # The other draft was not touched.
    assert drafts.written[0] == 0 and drafts.stop[0] == n and not drafts.used[0].any()


def test_a_segment_that_memory_does_not_hold_kills_its_draft_and_writes_nothing(t):
    drafts = opened(t, [0])
    write(t, drafts, 0, 2, 0, layout(t, 1, 1, 1))
    assert drafts.status[0] == DEAD and drafts.written[0] == 0 and not drafts.used.any()
