"""The log-odds of a choice say what the deployed policy does, the search and thinking included."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.cluster.live import PolicyCall, SimulatedCluster
from attribution_sched.config import load_settings
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.findings import THINKING
from attribution_sched.explain.masked_states import to_view
from attribution_sched.explain.preference import where
from attribution_sched.explain.reasoning import reasoning
from attribution_sched.explain.recorder import Decided, perceived
from attribution_sched.scheduler.hi_ppo.coordinator import Coordination, HiPpo
from attribution_sched.scheduler.thinking import Option, Thought

DAY = 64_900


@pytest.fixture(scope="module")
def day():
    """A policy without thinking, and decisions of a day of models that no region holds."""
    world, policy = load_settings("cross-domain").build_world(), HiPpo(deadline_s=np.inf)
    cluster, call, made = SimulatedCluster(world, DAY, attribute=as_attributor(None, world).vector), PolicyCall(), []
    while len(made) < 60 and cluster.advance():
        asked = call.ask(policy, cluster)
        made.append(Decided(f"d{len(made):06d}", asked.view, asked.plan, perceived(policy, asked.view)))
        cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
        call.note(asked)
    return policy, made


def placed(made):
    return [one for one in made if one.plan is not None and not one.view.replanning]


def test_what_was_placed_has_odds_above_0_and_what_was_not_has_none(day):
    policy, made = day
    assert any(len(set(one.plan.domains)) > 1 for one in placed(made))
    for one in placed(made):
        view, seen = one.view, one.seen
        assert where(policy.redecide([view], seen)[0]) == where(one.plan)
        assert policy.log_odds(view, seen, one.plan)[0] > 0.0
        others = [each for each in policy.rivals(view).plans if set(each.domains) != set(one.plan.domains)]
        assert (np.array([policy.log_odds(view, seen, each)[0] for each in others]) <= 0.0).all()


def test_many_situations_are_decided_on_as_each_by_itself(day):
    """With other free devices, links and attributions; one without a free device waits."""
    policy, made = day
    for one in [placed(made)[0], placed(made)[-1], next(d for d in made if d.view.replanning)]:
        rng, seen = np.random.default_rng(1), one.seen.take(np.zeros(12, dtype=np.int64))
        seen.free[:] = np.minimum(rng.integers(0, 9, seen.free.shape) + seen.free // 2, seen.free.max())
        seen.free[5] = 0
        seen.links[:, 0] *= rng.uniform(0.3, 3.0, (12, 1, 1))
        seen.attribution[:, 0] = np.clip(seen.attribution[:, 0] + rng.normal(0.0, 0.3, (12, 7)), -0.9, 0.9)
        views = [to_view(one.view, seen, row) for row in range(12)]
        together = policy.redecide(views, seen)
        alone = [policy.redecide([views[row]], seen.take(np.array([row])))[0] for row in range(12)]
        assert together == alone and together[5] is None
        assert len({where(plan) for plan in together}) > 1 or one.view.replanning


def test_a_policy_that_was_asked_can_still_be_copied(day):
    policy, made = day
    one = placed(made)[0]
    policy.log_odds(one.view, one.seen, one.plan)
    other = copy.deepcopy(policy)
    assert other.rivals(one.view) is not policy.rivals(one.view)


def test_a_cut_hangs_on_its_link(day):
    policy, made = day
    one = next(
        d for d in placed(made) if len(set(d.plan.domains)) == 2 and not policy.forced(d.view, d.seen, d.plan)[0]
    )
    slow = one.seen.links.copy()
    first, second = one.plan.domains
    slow[:, [0, 2], first, second] *= 0.02
    slow[:, [0, 2], second, first] *= 0.02
    there = replace(one.seen, links=slow)
    assert policy.log_odds(one.view, there, one.plan)[0] < 0.0 < policy.log_odds(one.view, one.seen, one.plan)[0]
    assert set(policy.prefer(one.view, there)[0].plan.domains) != set(one.plan.domains)


def test_thinking_that_overrules_the_agents_is_a_player_and_is_said(day):
    policy, made = day
    one = next(d for d in placed(made) if len(policy.rivals(d.view).plans) > 2 and d is not placed(made)[0])
    view, other = one.view, next(p for p in policy.rivals(one.view).plans if where(p) != where(one.plan))

    class Thinks(HiPpo):
        def _again(self, view):
            gain = np.array([0.0, 0.4])
            options = (Option(view.slot, one.plan), Option(view.slot, other))
            thought = Thought(options, gain, np.array([0.0, error]), gain, np.array([16, 16]), 1, 99, 100.0)
            return Coordination(other, view.slot, "thinking", "", 0.0, 0.0, 0.0, 0.0, thought=thought)

    thinks, decided = Thinks(deadline_s=np.inf), Decided(one.id, view, other, one.seen)
    explainer = Explainer(thinks, Background.of(made, "the day"))
    for error, words in ((0.1, "Thinking decided it"), (0.4, "Thinking tipped the scale")):
        told = explainer.explain(decided)
        at = told.names.index(THINKING)
        assert told.values[at, 0] == 40.0 and told.standard_error[at, 0] == 100.0 * error
        assert np.allclose(told.values.sum(axis=0), told.value - told.base, atol=1e-9)
        assert words in reasoning(told) and "+0.4" in reasoning(told)
        assert "推演" in reasoning(told, lang="zh")
    # Without thinking the agents' own choice is what is explained.
    plain = Explainer(policy, Background.of(made, "the day")).explain(one)
    assert THINKING not in plain.names and "Thinking" not in reasoning(plain)
