"""The learnt agents: as the rule where nothing was learnt, one answer everywhere, log-odds that say what is chosen."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.fork import Belief
from attribution_sched.config import load_settings
from attribution_sched.errors import ModelFitError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.agents import Releases, task_log_probabilities, weighed_by
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.hi_ppo.rule import Rule
from attribution_sched.scheduler.hi_ppo.upper_agent import HEADS, SIZE, S, W, rule_theta

from . import worlds


def policy(theta, **options):
    return HiPpo(worlds.weights(theta), attributor=worlds.attributor, deadline_s=np.inf, **options)


def moments(world, count, seed=0):
    """Decisions of one day of the rule, one in three."""
    seen = []

    class Looking(Rule):
        def decide(self, decision):
            seen.append(decision)
            return super().decide(decision)

    play(world, Looking(worlds.attributor, search=False), seed)
    return [one for one in seen if (np.asarray(one.free_devices) > 0).any()][::3][:count]


def test_heads_have_a_name_for_every_number():
    assert sum(map(len, HEADS.values())) == SIZE == len(rule_theta())


def test_where_nothing_was_learnt_the_agents_decide_as_the_rule():
    world = replace(load_settings("cross-domain-easy").build_world(), horizon_s=8 * 3600.0)
    days = Days(world, 48, worlds.weights())
    many = len(days.engine.pool)
    days.believe(Belief(np.zeros((many, 4)), np.zeros((many, 4, 4)), np.zeros(many)))
    apart = days.returns(rule_theta(), 3_000) - days.returns(None, 3_000)
    assert np.mean(np.abs(apart) < 1e-6) > 0.5 and abs(apart.mean()) < 0.5


def test_the_cluster_is_decided_as_the_simulated_days_in_which_was_learnt():
    world = replace(load_settings("cross-domain-easy").build_world(), horizon_s=6 * 3600.0)
    theta = rule_theta()
    theta[0] += 0.5
    days = Days(world, 3, worlds.weights(theta))
    asked = HiPpo(worlds.weights(theta), search=False, deadline_s=np.inf)
    played = [play(world, asked, 40 + day).reward for day in range(3)]
    assert np.allclose(played, days.returns(theta, 40), atol=1.5)


def test_log_odds_are_above_zero_exactly_for_what_is_chosen():
    asked, met = policy(rule_theta(), search=False), 0
    for seen in moments(worlds.worlds()["mixed"], 12):
        situations = asked.perceive(seen)
        made = asked.prefer(seen, situations)[0]
        if made.plan is not None and len(made.plan.segments) == 1:
            assert asked.log_odds(seen, situations, made.plan)[0] > 0.0
            assert asked.log_odds(seen, situations, None)[0] < 0.0
            met += 1
        elif not made.another and made.plan is None:
            assert asked.log_odds(seen, situations, None)[0] >= 0.0
            met += 1
    assert met >= 4


def test_a_patient_task_waits_and_says_so():
    seen = next(one for one in moments(worlds.worlds()["mixed"], 30) if not one.replanning and Releases.of(one).running)
    theta = rule_theta()
    asked = policy(theta, search=False)
    situations = asked.perceive(seen)
    before = asked.log_odds(seen, situations, None)[0]
    theta[W] = 50.0
    patient = policy(theta, search=False)
    assert patient.log_odds(seen, situations, None)[0] > max(0.0, before)
    assert patient.prefer(seen, situations)[0].plan is None


def test_probabilities_of_a_decision_sum_to_one():
    asked = policy(rule_theta())
    for seen in moments(worlds.worlds()["equal"], 6):
        situations, planner = asked.perceive(seen), asked.planner(seen)
        fits = planner.describe(situations)[0].mask[:, :-1]
        believed = asked.believed(seen, planner, situations)
        weighed = weighed_by(asked.agents(planner), situations, believed, fits, Releases.of(seen))
        assert np.exp(task_log_probabilities(weighed, situations.replanning)).sum() == pytest.approx(1.0)


def test_other_numbers_decide_otherwise():
    """The cut: at another price of devices the same moments get other plans."""
    seen, dear = moments(worlds.worlds()["mixed"], 20), rule_theta()
    dear[0] = 3.0
    own, other = policy(rule_theta(), search=False), policy(dear, search=False)
    assert any(own.prefer(one, own.perceive(one)) != other.prefer(one, own.perceive(one)) for one in seen)


@pytest.mark.parametrize("at", [S, S + 5, S + 7])
def test_models_that_no_domain_holds_have_numbers_of_their_own(at):
    """Who of them goes first, whether others leave them whole domains, what devices then cost: nothing elsewhere."""
    changed = rule_theta()
    changed[at] += 4.0  # more than what makes the rule place at once
    apart = {}
    for name in ("cross-domain", "cross-domain-easy"):
        days = Days(replace(load_settings(name).build_world(), horizon_s=18 * 3600.0), 8, worlds.weights())
        apart[name] = days.returns(changed, 3_000) - days.returns(rule_theta(), 3_000)
    assert np.abs(apart["cross-domain"]).max() > 0.1
    assert (apart["cross-domain-easy"] == 0.0).all()


def test_numbers_of_another_length_are_refused():
    with pytest.raises(ModelFitError, match="theta"):
        worlds.weights(np.zeros(SIZE + 1))


def test_a_moment_tells_what_is_next_released():
    engine = worlds.begun(worlds.worlds()["equal"], 1, 2)
    assert Releases.of(view(engine)).running == 0


def test_where_nothing_is_possible_nothing_has_a_probability():
    """A model that no domain holds alone has no layout inside one: −inf, and no warning of NaN on the way."""
    from attribution_sched.scheduler.hi_ppo.agents import _log_softmax

    logits = np.array([[-np.inf, -np.inf], [0.0, -np.inf]])
    assert _log_softmax(logits, 1).tolist() == [[-np.inf, -np.inf], [0.0, -np.inf]]
