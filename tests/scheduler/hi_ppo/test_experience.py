"""Experience: what PPO on the fork taught the ranker, from the decision it changes to the sentence that says so."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.config import load_settings
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.findings import EXPERIENCE
from attribution_sched.explain.preference import odds_of, where
from attribution_sched.explain.reasoning import reasoning
from attribution_sched.explain.recorder import Watch
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.policy import Overruled
from attribution_sched.scheduler.registry import RANKED, make_policy


class Listener:
    """A policy, and what the agents wanted where experience decided otherwise."""

    name, pairs, caps = "hi-ppo[ranked]", True, True

    def __init__(self):
        self.policy, self.found, self.odds, self.decided = make_policy("hi-ppo[ranked]"), [], [], 0

    def select(self, view):
        return self.policy.select(view)

    def decide(self, view):
        plan = self.policy.decide(view)
        self.decided += 1
        last = self.policy.last
        if last.source == "ranker" and last.slot == view.slot:
            agents = odds_of(self.policy, view, plan)(self.policy.perceive(view))[0]
            self.odds.append((float(agents), last.experience.added))
        if last.source == "ranker" and last.slot == view.slot and not view.replanning and len(self.found) < 6:
            self.found.append((view, plan, last.experience, self.policy.overruled(view, plan)))
        return plan


@pytest.fixture(scope="module")
def world():
    return replace(load_settings("testbed").build_world(), horizon_s=6 * 3600.0)


@pytest.fixture(scope="module")
def heard(world):
    listener = Listener()
    play(world, listener, 4_700_000)
    return listener


def test_the_shipped_ranker_goes_with_the_shipped_agents():
    ranked, plain = load(RANKED), load(SHIPPED)
    assert np.array_equal(ranked.theta, plain.theta) and ranked.ranker is not None and plain.ranker is None


def test_it_changes_some_decisions_and_says_what_the_agents_wanted(heard):
    assert 0 < len(heard.found) < heard.decided
    for view, plan, experience, overruled in heard.found:
        assert isinstance(overruled, Overruled) and overruled.copies == 0
        assert overruled.added == experience.added > 0.0
        assert (experience.own.slot, where(experience.own.plan)) != (view.slot, where(plan))


def test_with_what_it_adds_a_choice_of_experience_is_preferred(heard):
    agents, added = np.array(heard.odds).T
    # The agents are against it more often than not, once by more than experience is for it in the end.
    assert (agents < 0.0).mean() > 0.5 and agents.min() < -1.0
    assert (agents + added > 0.0).all()


def test_asked_again_in_its_own_situation_it_decides_the_same(heard):
    for view, plan, _, _ in heard.found:
        assert where(heard.policy.redecide([view], heard.policy.perceive(view))[0]) == where(plan)


def test_without_the_ranker_the_same_moments_are_decided_as_the_agents_wanted(heard):
    alone = HiPpo(replace(load(RANKED), ranker=None))
    for view, _, experience, _ in heard.found:
        own = alone.coordinate(view)
        assert (own.plan is None) == (experience.own.plan is None)
        assert own.plan is None or (own.slot, where(own.plan)) == (experience.own.slot, where(experience.own.plan))


def test_the_formula_of_thinking_has_what_was_learnt_in_its_log_odds(heard):
    view = heard.found[0][0]
    thinking, alone = HiPpo(RANKED, think=True), HiPpo(think=True)
    learnt, plain = thinking.coordinate(view).thought, alone.coordinate(view).thought
    odds = [
        # Partners are no choice of the agents: thinking adds them.
        np.array([each.upper + each.lower for each in one.options if each.plan is None or each.plan.beside is None])
        for one in (learnt, plain)
    ]
    assert np.exp(odds[0]).sum() == pytest.approx(1.0) and len(odds[0]) > 1
    assert odds[0].shape != odds[1].shape or not np.allclose(*odds)


def test_its_decision_is_explained_with_experience_as_a_player(world):
    watch = Watch(make_policy("hi-ppo[ranked]"))
    play(world, watch, 4_700_000)
    told = None
    for decided in watch:
        if decided.source == "ranker" and decided.plan is not None and not decided.view.replanning:
            told = Explainer(watch.policy, Background.of(watch)).explain(decided)
            if EXPERIENCE in told.names:
                break
    assert told is not None and EXPERIENCE in told.names
    at = told.names.index(EXPERIENCE)
    assert told.values[at, 0] > 0.0 and told.standard_error[at, 0] == 0.0
    assert told.values[:, 0].sum() + told.base[0] == pytest.approx(told.value[0], abs=1e-6)
    assert "Experience decided it" in reasoning(told) and "经验" in reasoning(told, lang="zh")


def test_where_waiting_is_no_choice_experience_does_not_wait(heard):
    policy = HiPpo(RANKED)
    policy.waits = False
    for view, _, experience, _ in heard.found:
        if experience.own.plan is not None:
            assert policy.coordinate(view).plan is not None
