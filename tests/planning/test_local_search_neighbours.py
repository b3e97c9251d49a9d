"""Plans one change away: each move changes what its name says and nothing else; sets of moves contain each other."""

import numpy as np
import pytest

from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, PP, PRECISION, STOP, TP, layout_table
from attribution_sched.planning import local_search
from attribution_sched.planning.local_search import ANY_DEVICES, SAME_DEVICES, Move, Neighbourhood
from tests.cluster.engine_worlds import tiny_cluster

LAYERS = 24
LAYOUT = {DP, TP, PP}
CHANGES = {
    Move.LAYOUT: LAYOUT,
    Move.SIZE: LAYOUT,
    Move.LAYOUT_AND_FORMAT: LAYOUT | {PRECISION},
    Move.FORMAT: {PRECISION},
    Move.DOMAIN: {DOMAIN},
    Move.SWAP: LAYOUT | {DOMAIN},
    Move.CUT: {FIRST, STOP},
    Move.LAYOUT_AND_CUT: LAYOUT | {FIRST, STOP},
    Move.TWO_CUTS: {FIRST, STOP},
    Move.MICROBATCH: {MICROBATCH},
    Move.LAYOUT_AND_MICROBATCH: LAYOUT | {MICROBATCH},
}


@pytest.fixture
def near():
    layouts = layout_table(tiny_cluster(), sharing=False)[:, :3]
    return Neighbourhood(np.array([4, 4, 4, 2]), layouts, (8, 4, 8, 16), range(4))


@pytest.fixture
def plan():
    """Three segments of one replica, and an idle domain."""
    rows = np.zeros((4, 11), dtype=np.int64)
    rows[:3, DOMAIN] = 0, 1, 2
    rows[:3, FIRST], rows[:3, STOP] = (0, 8, 16), (8, 16, 24)
    rows[:3, [DP, TP, PP]] = (2, 1, 1), (1, 2, 1), (1, 1, 2)
    rows[:3, PRECISION], rows[:3, MICROBATCH] = 2, 8
    return rows


@pytest.mark.parametrize("move", list(Move))
def test_a_move_changes_what_its_name_says(near, plan, move):
    rows, counts = near.one_change(plan, 3, move)
    assert len(rows) > 1 and (counts == 3).all()
    columns = {int(column) for column in np.unique(np.argwhere(rows != plan)[:, 2])}
    assert columns == CHANGES[move]
    assert (rows[:, 0, FIRST] == 0).all() and (rows[:, 2, STOP] == LAYERS).all()
    assert (rows[:, 1:3, FIRST] == rows[:, :2, STOP]).all()
    assert (rows[:, 3] == 0).all()
    if move in Move.LAYOUT | Move.SWAP | Move.LAYOUT_AND_MICROBATCH:
        assert set(rows[:, :3, [DP, TP, PP]].prod(axis=2).ravel().tolist()) == {2}
    if move is Move.DOMAIN:
        assert set(rows[:, :3, DOMAIN].ravel().tolist()) == {0, 1, 2, 3}


def test_sets_are_the_sum_of_their_moves_and_wider_ones_contain_narrower_ones(near, plan):
    def listed(moves):
        return {rows.tobytes() for rows in near.one_change(plan, 3, moves)[0]}

    assert listed(SAME_DEVICES) == set().union(*(listed(move) for move in SAME_DEVICES))
    assert listed(SAME_DEVICES) < listed(ANY_DEVICES)
    everything, counts = near.everything(plan, 3)
    assert {rows.tobytes() for rows in everything[counts == 3]} == listed(ANY_DEVICES)


def test_restructured_plans_cover_the_model_with_one_segment_more_or_less(near, plan):
    rows, counts = near.restructured(plan, 3)
    assert set(counts.tolist()) == {2, 4}
    for one, count in zip(rows, counts, strict=True):
        used = one[:count]
        assert used[0, FIRST] == 0 and used[-1, STOP] == LAYERS and (used[1:, FIRST] == used[:-1, STOP]).all()
        assert len(set(used[:, DOMAIN].tolist())) == count


def test_a_domain_without_free_devices_is_never_moved_to(near, plan):
    near.free_devices = np.array([4, 4, 4, 0])
    for moves in (near.one_change, near.everything, near.restructured):
        rows, counts = moves(plan, 3)
        assert all(3 not in one[:count, DOMAIN] for one, count in zip(rows, counts, strict=True))


def test_cuts_move_only_as_far_as_they_are_said_to(near, plan):
    rows, _ = near.cuts(plan, 3)
    moved = np.abs(rows[:, :3, STOP] - plan[:3, STOP]).max(axis=1)
    assert set(moved.tolist()) == set(np.abs(local_search.SHIFTS).tolist())
