"""auto takes the policy that earns most in the world at hand, and says so."""

import math
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError
from attribution_sched.rivals.auto import CONTENDERS, PACKERS, Auto
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.policy import pairs, twin, unhurried
from attribution_sched.scheduler.registry import make_policy
from tests.cluster.fork_cases import engine_at
from tests.small_world import small

SOME = ("sjf", "round-robin", "static-uniform")


def test_the_best_of_the_contenders_decides(caplog):
    world = small().build_world()
    policy = Auto(SOME, days=2, hours=0.5, seed=5)
    seen = view(engine_at(0))
    with caplog.at_level("INFO"):
        plan = policy.decide(seen)
    short = replace(world, horizon_s=1800.0)
    by_hand = {name: np.mean([play(short, make_policy(name), 5 + day).reward for day in range(2)]) for name in SOME}
    best = max(by_hand, key=by_hand.get)
    assert policy.chosen.name == policy.table[0].policy == best
    assert {row.policy: pytest.approx(row.reward) for row in policy.table} == by_hand
    assert plan == make_policy(best).decide(seen)
    assert f"auto takes {best}: mean return of 2 days" in caplog.text and policy.told in caplog.text
    assert all(f"{name} {value:.1f}" in policy.told for name, value in by_hand.items())
    # It is asked once: the table stays.
    table = policy.table
    policy.decide(seen)
    assert policy.table is table


def test_days_are_long_enough_to_tell_who_never_cuts_a_model():
    """In eight hours that begin empty greedy, which places nothing large, is level with the rule."""
    policy = Auto(("greedy", "rule"))
    assert policy.choose(load_settings("cross-domain").build_world()).name == "rule"
    assert policy.table[0].reward - policy.table[1].reward > 10.0


def test_bad_contenders_are_refused():
    for given in ((), ("auto",), ("nobody",)):
        with pytest.raises(SettingsError):
            Auto(given)


def test_a_copy_of_auto_has_all_the_time_it_needs():
    """What is explained or learnt must not differ on a busy machine, whoever was chosen, before and after."""
    policy = Auto(("sjf", "hi-ppo[quick]"), days=1, hours=0.2)
    assert twin(policy).deadline_s == math.inf and math.isfinite(policy.deadline_s)
    policy.chosen = make_policy("hi-ppo[quick]")
    copied = twin(policy)
    assert copied.chosen.deadline_s == math.inf and math.isfinite(policy.chosen.deadline_s)
    with unhurried(policy):
        assert policy.chosen.deadline_s == math.inf
    assert math.isfinite(policy.chosen.deadline_s)


def test_where_measured_jobs_share_devices_packers_play_too_and_who_is_chosen_may_pair():
    """Auto was told of no neighbours, so nobody that it chose could put two tasks on a device."""
    world = replace(load_settings("shared").build_world(), horizon_s=3600.0)
    policy = Auto(days=1, hours=0.1)
    policy.choose(world)
    assert {row.policy for row in policy.table} == {*CONTENDERS, *PACKERS}
    assert pairs(make_policy("auto"))
