from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.config import load_settings
from attribution_sched.errors import PlanError
from attribution_sched.planning.candidates import feasible
from attribution_sched.rivals.exact_policy import switching_gain
from attribution_sched.rivals.hybrid import (
    Correction,
    RuleCorrection,
    ValueCorrection,
    neighbourhood,
)
from attribution_sched.rivals.splits import SpeedProportional, StaticUniform
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.policy import Episodic, QueueOrder
from attribution_sched.scheduler.rules import GreedyBandwidth, RoundRobin, ShortestJobFirst
from tests.scheduler.states import check_states, small_worlds

from ..cluster.engine_worlds import tiny_cluster, tiny_world
from .seq2seq.decisions import moment

WORLDS = small_worlds()


class Fixed:
    """A correction with given scores."""

    def __init__(self, scores):
        self.scores = scores

    def correct(self, view, proposal, candidates):
        return self.scores(candidates) if callable(self.scores) else self.scores


def test_the_defaults_satisfy_the_protocols():
    assert isinstance(ValueCorrection(), Correction) and isinstance(Fixed(None), Correction)
    hybrid = RuleCorrection(RoundRobin())
    assert isinstance(hybrid, QueueOrder) and isinstance(hybrid, Episodic)


@settings(deadline=None, max_examples=30)
@given(seed=some.integers(0, 10_000))
def test_every_neighbour_is_feasible_and_the_proposal_comes_first(seed):
    view = moment(seed)
    plan = SpeedProportional().decide(view)
    if plan is None:
        return
    near = neighbourhood(view, plan)
    assert near.plan(0) == plan
    listed = [near.plan(p) for p in range(len(near))]
    assert len(set(listed)) == len(listed)
    assert all(feasible(view, other) is None for other in listed)
    assert all(len(other.segments) == len(plan.segments) for other in listed)


@settings(deadline=None, max_examples=30)
@given(seed=some.integers(0, 10_000), rule=some.sampled_from([StaticUniform, GreedyBandwidth, SpeedProportional]))
def test_correcting_by_value_never_makes_a_placement_worse(seed, rule):
    view = moment(seed)
    plan, corrected = rule().decide(view), RuleCorrection(rule()).decide(view)
    assert (plan is None) == (corrected is None)
    if plan is not None:
        before, after = value(view, PlanBatch.of([plan])).reward[0], value(view, PlanBatch.of([corrected])).reward[0]
        assert after >= before
        near = neighbourhood(view, plan)
        assert after == pytest.approx(value(view, near).reward.max())


def test_a_correction_moves_a_running_task_only_where_that_gains_more():
    checked = 0
    for seed in range(10):
        view = moment(seed)
        start, rule = GreedyBandwidth().place(view, view.kind_index), SpeedProportional()
        if start is None:
            continue
        running = replace(view, replanning=True, current_plan=start, steps_left=1e5)
        proposal, corrected = rule.decide(running), RuleCorrection(rule).decide(running)
        assert (proposal is None) == (corrected is None)
        if proposal is not None:
            assert switching_gain(running, corrected) >= switching_gain(running, proposal)
            checked += 1
    assert checked > 1


@pytest.mark.parametrize("make", [
    lambda: RuleCorrection(StaticUniform()),
    lambda: RuleCorrection(ShortestJobFirst(), Fixed(lambda near: np.random.default_rng(len(near)).random(len(near)))),
])  # fmt: skip
def test_no_plan_is_refused(make):
    plans = sum(check_states(world, make(), 10, seed=31 * w + 1) for w, world in enumerate(WORLDS.values()))
    plans += check_states(load_settings("cross-domain-easy").build_world(), make(), 8, seed=3)
    assert plans > 10


def test_episodes_run_and_repeat():
    world = tiny_world(tiny_cluster())
    first, second = (play(world, RuleCorrection(RoundRobin()), 5) for _ in range(2))
    assert first == second and first.placed > 0 and first.refused_plans == 0
    assert RuleCorrection(RoundRobin()).name == "round-robin+correct"


def test_the_guide_is_told_of_queue_and_episode():
    rule = RoundRobin()
    hybrid = RuleCorrection(rule)
    rule._next = 2
    hybrid.reset(0)
    assert rule._next == 0
    view = moment(3)
    assert hybrid.select(view) == view.slot


@pytest.mark.parametrize("scores", [np.zeros(1), lambda near: np.full(len(near), np.nan), lambda near: near.segments])
def test_scores_of_another_shape_are_refused(scores):
    view = moment(3)
    with pytest.raises(PlanError, match="one per candidate"):
        RuleCorrection(SpeedProportional(), Fixed(scores)).decide(view)
