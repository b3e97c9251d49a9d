"""Thinking: the better of two choices wins, noise does not, and the same decision is always thought about alike."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.fork import fork
from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.rule import Rule, RuleFork
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.scheduler.thinking import Option, Think, _judge, priced
from tests.cluster.fork_cases import engine_at
from tests.small_world import small

LITTLE = Think(screen=2, keep=2, confirm=3, hours=0.3)


def test_a_choice_that_is_clearly_better_is_taken_and_noise_seldom_is():
    rng = np.random.default_rng(0)
    listed = [Option(i, None) for i in range(4)]
    sure = Think(least=2.0)
    wrong = 0
    for _ in range(400):
        noise = [np.zeros(16), *(rng.normal(0.0, 1.0, 16) for _ in range(3))]
        wrong += _judge(listed, noise, range(4), sure, 0).chosen != 0
    assert wrong < 48
    better = [*noise[:3], noise[3] + 3.0]
    found = _judge(listed, better, range(4), sure, 0)
    assert found.chosen == 3
    assert 0.0 < found.shrunk[3] < found.gain[3]
    # One that was not confirmed, or that the cluster refuses, is not taken however good it looked.
    assert _judge(listed, better, [0, 1, 2], sure, 0).chosen != 3
    assert _judge(listed, [*noise[:3], np.full(16, -np.inf)], range(4), Think(least=0.0), 0).chosen != 3


def test_the_rule_that_thinks_decides_the_same_again_and_says_what_it_compared():
    # The first task of a day, in an empty cluster: other domains, fewer devices, or waiting.
    seen = view(engine_at(0))
    plans, thoughts = [], []
    for _ in range(2):
        policy = RuleFork(think=LITTLE)
        policy.reset(0)
        slot = policy.select(seen)
        plans.append((slot, policy._coordinator._chosen[1].plan))
        thoughts.append(policy._coordinator._chosen[1].thought)
    assert plans[0] == plans[1]
    one, two = thoughts
    assert one is not None and len(one.options) > 1
    assert one.gain.tobytes() == two.gain.tobytes() and one.decisions == two.decisions > 0
    assert one.gain[0] == 0.0 and one.met[0] >= 2
    assert one.chosen == 0 or one.gain[one.chosen] > one.error[one.chosen]


def test_what_thinking_found_is_weighed_against_the_policys_own_odds():
    """π' ∝ exp(logit + β·q̂), both levels in the logit."""
    rng = np.random.default_rng(1)
    paired = [np.zeros(16), 0.2 + rng.normal(0.0, 0.01, 16), 0.1 + rng.normal(0.0, 0.01, 16)]
    listed = [Option(0, None, -0.1, 0.0), Option(1, None, -3.0, -3.0), Option(2, None, -1.0, -0.5)]
    found = _judge(listed, paired, range(3), Think(beta=20.0), 0)
    wanted = np.array([-0.1, -6.0, -1.5]) + 20.0 * found.shrunk
    assert np.allclose(found.log_probability, wanted - np.log(np.exp(wanted).sum()))
    assert found.chosen == int(np.argmax(wanted)) == 2
    assert _judge(listed, paired, range(3), Think(beta=200.0), 0).chosen == 1
    assert _judge(listed, paired, range(3), Think(beta=1.0), 0).chosen == 0


def test_what_acts_is_the_most_probable_choice_of_one_formula():
    """What was not confirmed, is not better beyond its noise or was refused has no q̂ to act by; own comes first."""
    rng = np.random.default_rng(2)
    for _ in range(300):
        n = int(rng.integers(2, 8))
        listed = [Option(i, None, *rng.normal(-2.0, 2.0, 2), trusted=bool(rng.random() < 0.2)) for i in range(n)]
        paired = [np.zeros(16), *(rng.normal(rng.normal(0.0, 0.1), 0.2, 16) for _ in range(n - 1))]
        if rng.random() < 0.3:
            paired[-1] = np.full(16, -np.inf)
        able = [0, *sorted(rng.choice(np.arange(1, n), int(rng.integers(0, n)), replace=False).tolist())]
        found = _judge(listed, paired, able, Think(beta=10.0, least=float(rng.choice([0.0, 1.0, 2.0]))), 0)
        probability = np.exp(found.log_probability)
        assert found.chosen == int(probability.argmax()) and np.isclose(probability.sum(), 1.0)
        assert found.chosen in able and (found.chosen == 0 or found.gain[found.chosen] > 0.0)
        assert not np.isneginf(paired[-1]).all() or probability[-1] == 0.0


def test_without_a_moment_the_rule_decides_as_ever():
    engine = engine_at(20)
    seen = replace(view(engine), moment=None)
    thinking, plain = RuleFork(think=LITTLE), Rule()
    for policy in (thinking, plain):
        policy.reset(0)
    assert thinking.select(seen) == plain.select(seen)
    assert thinking._coordinator._chosen[1].thought is None


def test_with_more_waiting_than_it_sees_nothing_is_thought():
    """A long queue: 10,000 waiting tasks and 100 ms for each placement would be 17 minutes."""
    seen = replace(view(engine_at(0)), backlog=1)
    thinking, plain = RuleFork(think=LITTLE), Rule()
    for policy in (thinking, plain):
        policy.reset(0)
    assert thinking.select(seen) == plain.select(seen)
    assert thinking._coordinator._chosen[1].thought is None


def test_in_clusters_of_too_many_domains_nothing_is_thought_where_all_is_full_either():
    """The small world has two domains; where both are full, sharing is what thinking would compare."""
    world = replace(small().build_world(), horizon_s=1800.0)
    thoughts = {}
    for most in (1, 2):
        policy = RuleFork(think=replace(LITTLE, most_domains=most))
        asked, thoughts[most] = policy._coordinator.coordinate, []

        def coordinate(view, kept=thoughts[most], asked=asked, **options):
            done = asked(view, **options)
            kept += [done.thought] if not np.any(view.free_devices) else []
            return done

        policy._coordinator.coordinate = coordinate
        play(world, policy, 3)
    assert len(thoughts[1]) > 5 and not any(thoughts[1]) and any(thoughts[2])


def test_settings_that_make_no_sense_are_refused():
    sizes = ({"screen": 0}, {"changes": 0}, {"confirm": 1}, {"screen": 1.5}, {"most_domains": 0})
    for given in (*sizes, {"hours": 0.0}, {"beta": np.nan}, {"beta": -1.0}, {"end_value": np.nan}, {"hours": np.inf}):
        with pytest.raises(SettingsError, match="think"):
            Think(**given)


def test_copies_pay_the_prices_in_force_not_those_the_world_began_with():
    """Feedback that raises the price of carbon must reach what is compared; cut, nothing would change."""
    moment = view(engine_at()).moment
    reward = moment.world.reward
    dear = replace(reward, carbon_usd_per_kg=reward.carbon_usd_per_kg + 1000.0)
    assert priced(moment, reward) is moment
    own, more = (
        fork(each, (), 2, 1.0, RuleFollower.of(moment), 1).totals[0] for each in (moment, priced(moment, dear))
    )
    assert (more[:, 4] > own[:, 4]).all()
    assert np.array_equal(more[:, 5:], own[:, 5:])


def test_dearer_carbon_in_the_reward_changes_what_thinking_finds():
    seen, gains = view(engine_at(0)), []
    for price in (0.0, 1e4):
        policy = RuleFork(think=LITTLE)
        policy.reset(0)
        policy.select(replace(seen, reward=replace(seen.reward, carbon_usd_per_kg=price)))
        gains.append(policy._coordinator._chosen[1].thought.gain)
    assert not np.allclose(*gains)
