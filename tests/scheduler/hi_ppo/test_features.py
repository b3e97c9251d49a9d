"""Names, masks and padding of what the upper agent sees."""

import numpy as np

from attribution_sched.scheduler.hi_ppo import features as f
from attribution_sched.scheduler.hi_ppo.action_masks import can_begin

from . import worlds


def described(name="tight", clusters=6):
    engine = worlds.begun(worlds.worlds()[name], clusters, 3)
    planner, decisions = worlds.planner_of(engine), worlds.gathered(engine)
    return planner, decisions, *planner.describe(decisions)


def test_arrays_are_as_wide_as_their_names_and_finite():
    _, _, state, _ = described()
    assert state.nodes.shape[-1] == len(f.NODE_NAMES) and state.edges.shape[-1] == len(f.EDGE_NAMES)
    assert state.globals.shape[-1] == len(f.GLOBAL_NAMES) and state.candidates.shape[-1] == len(f.CANDIDATE_NAMES)
    for array in (state.nodes, state.edges, state.globals, state.candidates):
        assert np.isfinite(array).all()


def test_a_task_is_on_offer_exactly_if_a_plan_can_begin_and_waiting_always_is():
    planner, decisions, state, drafts = described()
    assert state.mask[:, -1].all() and np.array_equal(state.present, decisions.kind >= 0)
    for b, q in np.argwhere(decisions.kind >= 0):
        drafts.kind[b] = decisions.kind[b, q]
        drafts.stop[b] = planner.tables.cost.n_layers[decisions.kind[b, q]]
        assert state.mask[b, q] == can_begin(planner.tables, drafts, b)
    assert not state.mask[:, :-1][~state.present].any()


def test_task_numbers_and_attributions_stand_where_they_are_said_to():
    planner, decisions, state, _ = described()
    row = state.candidates[0, 0]
    assert np.allclose(row[f.TASK_AT : f.TASK_AT + 5], planner.task_features[decisions.kind[0, 0]], atol=1e-6)
    assert np.allclose(row[f.ATTRIBUTION_AT :], decisions.attribution[0, 0])
