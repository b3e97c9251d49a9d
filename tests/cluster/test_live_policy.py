"""Asking policies of every sort, and never twice at a moment for the same task."""

import itertools
import math

import pytest

from attribution_sched import System
from attribution_sched.cluster.live import PolicyCall, SimulatedCluster, as_policy
from attribution_sched.errors import SettingsError
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.policy import FunctionPolicy, twin
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.system.admission import instance
from tests.small_world import small


def greedily(view):
    return Greedy().decide(view)


class Choosy:
    """Wants the newest task, and never places any."""

    name = "choosy"

    def __init__(self):
        self.wanted = []

    def select(self, view):
        return view.queue[-1].slot

    def decide(self, view):
        self.wanted.append(view.slot)


def test_names_policies_and_functions():
    assert as_policy("greedy").name == "greedy"
    policy = Greedy()
    assert as_policy(policy) is policy
    assert as_policy(greedily).name == "greedily"
    assert isinstance(as_policy(greedily), FunctionPolicy)


@pytest.mark.parametrize(("given", "words"), [("greed", "Did you mean 'greedy'"), (7, "must be"), (Greedy, "must be")])
def test_what_is_no_policy(given, words):
    with pytest.raises(SettingsError, match=words):
        as_policy(given)


@pytest.mark.parametrize("name", ["fcfs", "round-robin", "least-loaded", "greedy", "mast"])
def test_a_twin_decides_the_same_and_leaves_the_original_alone(name):
    world = small().build_world()
    cluster = SimulatedCluster(world, 3)
    cluster.advance()
    policy = make_policy(name)
    seen = cluster.pending()
    first = policy.decide(seen)
    other = twin(policy)
    for _ in range(3):
        other.decide(seen)
    fresh = make_policy(name)
    fresh.decide(seen)
    assert policy.decide(seen) == fresh.decide(seen)
    assert first is not None


def test_a_task_left_waiting_is_not_asked_for_again_at_that_moment():
    world = small().build_world()
    cluster, call, policy = SimulatedCluster(world, 0, arrivals=False), PolicyCall(), Choosy()
    for name in "abc":
        cluster.hand_in(instance(world, 0, 500, {}, (1,)), name)
    for _ in range(3):
        cluster.advance()
        asked = call.ask(policy, cluster)
        cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
        call.note(asked)
        assert asked.view.time_s == 0.0
    assert sorted(policy.wanted) == [0, 1, 2]
    assert policy.wanted[0] == 2
    cluster.advance()
    assert cluster.now_s > 0


class Shy(Choosy):
    """Names somebody who would place."""

    fallback = Greedy()


def test_a_fallback_is_asked_once_all_were_left_waiting_for_nothing():
    world = small().build_world()
    cluster, call, policy = SimulatedCluster(world, 0, arrivals=False), PolicyCall(), Shy()
    for name in "abc":
        cluster.hand_in(instance(world, 0, 500, {}, (1,)), name)
    sources = []
    for _ in range(6):
        cluster.advance()
        asked = call.ask(policy, cluster)
        cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
        call.note(asked)
        sources.append(asked.instead)
    assert sources[:3] == [""] * 3
    assert sources[3] == "fallback:greedy (all tasks were left waiting, none runs)"
    assert sources[4:] == ["", ""]
    assert cluster.running == 1


def test_an_answer_that_is_no_plan_is_refused():
    cluster = SimulatedCluster(small().build_world(), 0)
    cluster.advance()
    with pytest.raises(SettingsError, match="must decide on a Plan or None"):
        PolicyCall().ask(as_policy(lambda view: "anywhere"), cluster)


def test_what_explains_and_reshapes_has_all_the_time_it_needs():
    """Warm-ups of explanations and held-out episodes once took the fallback on a busy machine: other backgrounds."""
    ticks = itertools.count()
    policy = HiPpo(clock=lambda: 10.0 * next(ticks))
    system = System(small(), policy, queue="empty")
    system.submit("bert-base")
    live = system.schedule_next_task()
    assert "fallback" in live.decision.source
    other = twin(policy)
    assert other.deadline_s == math.inf and policy.deadline_s < math.inf
    assert other.coordinate(system.questions.recall(live.id).view).reason == ""
