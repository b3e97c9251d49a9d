"""Names and masks of what the rule reads."""

import numpy as np

from attribution_sched.scheduler.hi_ppo import features as f
from attribution_sched.scheduler.hi_ppo.action_masks import can_begin

from . import worlds


def described(name="tight", clusters=6):
    engine = worlds.begun(worlds.worlds()[name], clusters, 3)
    planner, decisions = worlds.planner_of(engine), worlds.gathered(engine)
    return planner, decisions, *planner.describe(decisions)


def test_arrays_are_as_wide_as_their_names_and_finite():
    _, decisions, state, _ = described()
    assert state.candidates.shape == (*decisions.kind.shape, len(f.CANDIDATE_NAMES))
    assert np.isfinite(state.candidates).all() and np.array_equal(state.waiting, decisions.waiting)


def test_a_task_is_on_offer_exactly_if_a_plan_can_begin_and_waiting_always_is():
    planner, decisions, state, drafts = described()
    present = decisions.kind >= 0
    assert state.mask[:, -1].all()
    for b, q in np.argwhere(present):
        drafts.kind[b] = decisions.kind[b, q]
        drafts.stop[b] = planner.tables.cost.n_layers[decisions.kind[b, q]]
        assert state.mask[b, q] == can_begin(planner.tables, drafts, b)
    assert not state.mask[:, :-1][~present].any()


def test_hours_of_a_task_are_those_of_its_steps_on_the_baseline_and_alone():
    planner, decisions, state, _ = described()
    kind, left = decisions.kind[0, 0], decisions.left[0, 0]
    steps = planner.tables.base_step_s[kind], planner.nominal_s[kind]
    told = state.candidates[0, 0, [f.BASELINE_HOURS, f.HOURS]]
    assert np.allclose(told, np.log(left * np.array(steps) / 3600.0) / 4.0, atol=0.2)
    assert np.isclose(told[0], np.log(left * steps[0] / 3600.0) / 4.0)
