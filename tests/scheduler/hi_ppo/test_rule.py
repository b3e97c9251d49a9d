"""Hi-PPO's teacher as a policy of its own: same masks and search, the rule in the networks' place."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.decision import from_view, view
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.decode import ShortestFirst, decode
from attribution_sched.scheduler.hi_ppo.features import HOURS
from attribution_sched.scheduler.hi_ppo.rule import Rule
from attribution_sched.scheduler.policy import Appraiser, AttributionReader, Episodic, QueueOrder, Recallable

from . import worlds
from .test_multi_start import first


def test_without_search_its_plans_are_the_rules_own():
    world = worlds.worlds()["mixed"]
    seen = view(worlds.begun(world, 1, 2))
    policy = Rule(worlds.attributor, search=False)
    chosen = policy.select(seen)
    planner = policy._coordinator.planner(seen)
    own = decode(planner, from_view(seen, worlds.attributor), ShortestFirst())
    assert own.batch.counts[0] > 0
    assert chosen == seen.queue[int(own.task[0])].slot
    assert policy._coordinator._chosen[1].plan == own.batch.plan(0)


def test_a_model_that_no_domain_holds_is_searched_for_around_the_rules_plan():
    policy = Rule(worlds.attributor)
    plan = policy.decide(first("giant", 1))
    assert plan is not None
    assert len(set(plan.domains)) > 1
    assert policy.last.source == "policy+search"


def test_it_has_nothing_to_learn_and_no_probabilities():
    policy = Rule()
    for protocol in (QueueOrder, Episodic, Recallable, AttributionReader):
        assert isinstance(policy, protocol)
    assert not isinstance(policy, (HiPpo, Appraiser))


def test_no_deadline_hurries_it():
    assert Rule()._coordinator.deadline_s == np.inf


def test_attributions_say_how_long_a_task_takes():
    seen = view(worlds.begun(worlds.worlds()["mixed"], 1, 2))
    coordinator = Rule()._coordinator
    planner, decisions = coordinator.planner(seen), coordinator.read(seen)
    hours = []
    for sign in (1.0, -1.0):
        turned = replace(decisions, attribution=sign * decisions.attribution)
        hours.append(planner.describe(turned)[0].candidates[0, :, HOURS])
    assert (hours[0] != hours[1]).any()


@pytest.mark.slow
def test_a_system_runs_on_it_and_the_same_seed_gives_the_same_history():
    tables = []
    for _ in range(2):
        system = System("cross-domain-easy", "rule", seed=5)
        system.run(15)
        tables.append(system.history().drop(columns=["recorded_at", "latency_attribution_s", "latency_decision_s"]))
    assert (tables[0]["code"] == 1).sum() > 0
    assert tables[0].equals(tables[1])
