"""The compiled follower with a ranker: the agents' own without one, the ranker's numbers with it, and as described."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.engine import state as st
from attribution_sched.config import load_settings
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.candidate_features import FEATURES, Described
from attribution_sched.scheduler.hi_ppo.checkpoint import load
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.hi_ppo.ranker import Ranker
from attribution_sched.scheduler.ranked_follower import RankedFollower, rank_pending
from attribution_sched.scheduler.registry import RANKED
from attribution_sched.scheduler.thinking import known_tasks
from tests.small_world import small

WEIGHTS = load(RANKED)


def follower(days, ranker=WEIGHTS.ranker):
    return RankedFollower(days.planner, days.world, WEIGHTS.theta, ranker, None)


def scaled(factor):
    """The shipped ranker with its last layer multiplied."""
    arrays = WEIGHTS.ranker.arrays
    return Ranker({**arrays, "policy_3": factor * arrays["policy_3"]})


@pytest.fixture(scope="module")
def days():
    return Days(load_settings("testbed").build_world(), 12, WEIGHTS)


def test_a_ranker_that_adds_nothing_leaves_every_day_as_the_agents_play_it(days):
    np.testing.assert_array_equal(days.played(follower(days, scaled(0.0)), 7), days.sums(WEIGHTS.theta, 7))


def test_what_was_learnt_decides_otherwise_and_its_opposite_does_harm(days):
    agents = days.sums(WEIGHTS.theta, 7)[:, 2]
    ranked, opposite = (days.played(follower(days, ranker), 7)[:, 2] for ranker in (WEIGHTS.ranker, scaled(-1.0)))
    assert (ranked != agents).all() and ranked.mean() > agents.mean() > opposite.mean()


NOT_COMPARED = {"rule", "own", *FEATURES[FEATURES.index("another_task") : FEATURES.index("waiting")]}
"""What hangs on which candidate is the own one, and on what the rule does: its plans go through a search here."""

RULE = FEATURES.index("rule")


class Watched(HiPpo):
    """Hi-PPO, with the follower's description of each of its decisions beside its own."""

    def __init__(self, days):
        super().__init__(WEIGHTS, deadline_s=np.inf)
        self.days, self.by = days, follower(days)
        self.met, self.apart, self.trusted = 0, [], []

    def _rank(self, view, planner, decisions, *settled):
        if not view.replanning:
            self.look(view, self.listed(view, planner, decisions, *settled[:2]), planner)
        return super()._rank(view, planner, decisions, *settled)

    def look(self, view, options, planner):
        by, state, known = self.by, view.moment.state, known_tasks(view)
        # In a moment a task's row of the pool is its slot.
        told = self._beliefs(view, planner).of(list(known.values()))
        believed, states = np.zeros((state.slots.shape[1], 4)), np.zeros((state.slots.shape[1], 7))
        believed[list(known)] = np.column_stack([told.pace, told.mean[:, :3]])
        states[list(known)] = [task.attribution.state for task in known.values()]
        assert state.event[0, st.EVENT] == st.PLACE
        many, best = rank_pending(
            view.moment.arrays, state, 0, by.rule, believed, states, by.learnt, by.listed, by.buffers
        )  # fmt: skip
        if not many:
            return
        c, seen = by.listed, self.described(view, planner, options)
        assert best == c.logits[:many].argmax()
        x = c.x[:many].copy()
        np.testing.assert_allclose(
            c.logits[:many], WEIGHTS.ranker.logits(Described(x, c.task[:many], c.domain[:many], c.nodes, c.edges)),
            rtol=1e-9, atol=1e-9,
        )  # fmt: skip
        np.testing.assert_allclose(c.nodes, seen.nodes, atol=1e-5)
        np.testing.assert_allclose(c.edges, seen.edges, atol=1e-4)
        places = {(int(by.learnt.slots[c.task[a]]), int(c.domain[a]), 2 ** int(c.size[a])): a for a in range(many)
                  if c.task[a] >= 0}  # fmt: skip
        waiting = next((a for a in range(many) if c.task[a] < 0), None)
        for option, numbers in zip(options, seen.candidates, strict=True):
            found = waiting
            if option.plan is not None:
                one, *more = option.plan.segments
                found = None if more else places.get((option.slot, one.domain, one.device_count))
            if found is not None:
                self.apart.append(np.abs(x[found] - numbers))
                self.trusted.append((x[found, RULE], numbers[RULE]))
        self.met += len(options)


@pytest.mark.parametrize("world", [
    replace(load_settings("testbed").build_world(), horizon_s=3600.0),
    replace(small().build_world(), horizon_s=3600.0),
], ids=["testbed", "small"])  # fmt: skip
def test_candidates_are_described_and_weighed_as_the_policy_does(world):
    """Of the decisions of a real day most candidates are listed, with the same numbers up to the table of prices."""
    policy = Watched(Days(world, 1, WEIGHTS))
    play(world, policy, 11)
    apart = np.array(policy.apart)
    compared = [i for i, name in enumerate(FEATURES) if name not in NOT_COMPARED]
    assert len(apart) > 0.5 * policy.met > 10
    assert (np.quantile(apart[:, compared], 0.9, axis=0) < 0.1).all()
    # What the rule would do is told apart; more often here, where no search has brought the agents' plan to the same.
    ours, theirs = np.array(policy.trusted).T > 0.0
    assert theirs.sum() > 5 and (ours & theirs).sum() > 0.7 * theirs.sum() and not ours.all()


class FarOff(Watched):
    """The same where whatever runs will run for another 44 hours."""

    def look(self, view, options, planner):
        state = view.moment.state
        tasks, runs = state.tasks.copy(), state.slots[0, :, st.STATUS] == st.RUNNING
        tasks[0, runs, st.LEFT] = 44.0 * 3600.0 / tasks[0, runs, st.STEP]
        super().look(replace(view, moment=replace(view.moment, state=state._replace(tasks=tasks))), options, planner)


def test_a_release_far_off_is_described_as_the_policy_does():
    world = replace(load_settings("testbed").build_world(), horizon_s=900.0)
    policy = FarOff(Days(world, 1, WEIGHTS))
    play(world, policy, 11)
    assert policy.apart and 40.0 < np.expm1(policy.by.listed.nodes[0, 2]) < 48.0


def test_tasks_that_come_are_read_as_the_law_has_them(days):
    beliefs = AttributionBeliefs(days.world, WEIGHTS.attributions)
    by = RankedFollower(days.planner, days.world, WEIGHTS.theta, WEIGHTS.ranker, beliefs)
    np.testing.assert_array_equal(by.states(beliefs.pool_believed, {}), beliefs.pool_states)
    assert by.states(beliefs.pool_believed + 1.0, {}).any() == np.False_
    assert isinstance(by.elsewhere(days.world), RankedFollower)
