"""Tasks that waiting would not help: they are placed, by a wide search, whatever the agents would rather do."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import from_view, view
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.planning.local_search import MOST_DOMAINS, LocalSearch, SearchMemo, search_around
from attribution_sched.scheduler.hi_ppo.agents import AgentsActor
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.decode import decode
from attribution_sched.scheduler.hi_ppo.upper_agent import W, rule_theta

from ...cluster.engine_worlds import BERT, GPT2, tiny_cluster, tiny_world
from ..states import GIANT
from . import worlds


def idler(**options):
    """A policy whose agents would rather wait, always."""
    theta = rule_theta()
    theta[W] = 1e4
    made = HiPpo(worlds.weights(theta), attributor=worlds.attributor, deadline_s=np.inf, **options)

    class Waits(AgentsActor):
        def task(self, state):
            found = super().task(state)
            return found if self.must_act else np.full(len(found), state.mask.shape[1] - 1)

    def waiting(view, planner, decisions, *, must_act=False):
        own = HiPpo.agents_actor(made, view, planner, decisions, must_act=must_act)
        return Waits(own.agents, own.decisions, own.believed, own.releases, must_act=must_act)

    made.agents_actor = waiting
    return made


def first(name, kind=None, busy=()):
    """The first decision of a world, about a task of the given kind, with devices of some domains taken."""
    world = worlds.worlds()[name] if isinstance(name, str) else name
    seen = view(worlds.begun(world, 1, 2))
    kind = seen.kind_index if kind is None else kind
    own = replace(seen.queue[0], kind_index=kind)
    free = np.array(seen.free_devices)
    for domain, taken in busy:
        free[domain] -= taken
    return replace(seen, kind=world.kinds[kind], kind_index=kind, queue=(own,), free_devices=free)


def both_for(policy, seen, **options):
    planner = policy.planner(seen)
    search = LocalSearch(seen, planner.tables, widen=True)
    decisions = from_view(seen, worlds.attributor)
    own = decode(planner, decisions, policy._must_act(seen, planner, decisions)).batch
    return search_around(own.segments, own.counts, search, **options), planner, decisions


def test_kinds_that_no_empty_domain_holds_are_known():
    policy = idler()
    assert policy.planner(first("giant")).spanning.tolist() == [False, True]
    assert policy.planner(first("mixed")).spanning.tolist() == [False, False, False]


def test_a_model_larger_than_every_domain_does_not_wait_for_one():
    policy, seen = idler(), first("giant", 1, busy=[(3, 1)])
    plan = policy.decide(seen)
    assert policy.last.source == "search" and len(set(plan.domains)) > 1
    assert seen.cost.score(plan, 1).fits[0]


def test_a_task_that_one_domain_will_hold_may_wait_for_it():
    policy = idler()
    assert policy.decide(first("giant", 0, busy=[(3, 1)])) is None and policy.last.source == "waits"


def test_nothing_waits_while_nothing_runs():
    policy = idler()
    assert policy.decide(first("mixed")) is not None and policy.last.source == "search"


def test_the_large_model_is_taken_out_of_the_queue():
    seen = first("giant", 0, busy=[(3, 1)])
    small = seen.queue[0]
    large = replace(small, slot=small.slot + 1, kind_index=1, waited_s=0.0)
    policy = idler()
    assert policy.select(replace(seen, queue=(small, large))) == large.slot
    assert policy.select(replace(seen, queue=(small,), time_s=seen.time_s + 1.0)) == small.slot


def test_a_task_is_not_alone_while_others_wait_whoever_is_asked_about():
    seen = first("mixed")
    others = tuple(replace(seen.queue[0], slot=seen.slot + i) for i in range(1, 4))
    eager = HiPpo(worlds.weights(), attributor=worlds.attributor, deadline_s=np.inf)
    eager.warm_up(seen)
    eager._search_widely = None  # would fail if it were called
    assert eager.decide(replace(seen, queue=(*seen.queue, *others))) is not None


def test_devices_that_a_budget_leaves_without_power_hold_nothing():
    cards = worlds.old_cards(devices=8)
    few = tuple(replace(domain, power_budget_w=8 * domain.gpu.idle_w + 4 * (domain.cap_w - domain.gpu.idle_w))
                for domain in cards.domains)  # fmt: skip
    plenty, scarce = (
        idler().planner(first(tiny_world(replace(cards, domains=domains), (worlds.TALL,), max_segments=4)))
        for domains in (cards.domains, few)
    )
    assert plenty.rooms.tolist() == [8] * 4 and scarce.rooms.tolist() == [4] * 4
    assert not plenty.spanning[0] and scarce.spanning[0]


def test_what_is_proposed_for_such_a_task_is_a_plan():
    policy, seen = idler(), first("giant", 1, busy=[(3, 1)])
    (plan,) = policy.propose(seen, policy.perceive(seen))
    assert len(set(plan.domains)) > 1
    small = first("giant", 0, busy=[(3, 1)])
    assert policy.propose(small, policy.perceive(small)) == [None]


def test_without_the_search_the_agents_have_the_last_word():
    policy = idler(search=False)
    assert policy.decide(first("giant", 1)) is None and policy.last.source == "waits"


@pytest.mark.parametrize("seed", range(3))
def test_it_is_worth_no_less_than_plans_drawn_at_random(seed):
    policy, seen = idler(), first("giant", 1)
    plan, planner, decisions = both_for(policy, seen)
    many = decisions.take(np.zeros(50, dtype=np.int64))
    drawn = decode(planner, many, worlds.chooser(seed, must_act=True))
    others = [drawn.batch.plan(i) for i in np.flatnonzero(drawn.batch.counts)]
    worth = value(seen, PlanBatch.of([plan, *others])).reward
    assert len(others) > 10 and worth[0] >= worth.max()


def test_a_task_alone_in_an_idle_cluster_is_searched_for_though_the_agents_would_place_it():
    seen = first("mixed")
    eager = HiPpo(worlds.weights(), attributor=worlds.attributor, deadline_s=np.inf)
    quick, *_ = both_for(eager, seen, thorough=False)
    assert eager.decide(seen) == quick and eager.last.source == "policy+search"
    eager._search_widely = None  # would fail if it were called
    assert eager.decide(replace(seen, free_devices=seen.free_devices - np.array([1, 0, 0]))) is not None
    other = replace(seen.queue[0], slot=seen.slot + 1)
    assert eager.select(replace(seen, queue=(*seen.queue, other))) in (seen.slot, other.slot)


def test_no_time_left_still_gives_a_plan():
    policy, seen = idler(), first("giant", 1)
    plan, *_ = both_for(policy, seen, expired=lambda: True)
    best, *_ = both_for(policy, seen)
    worth = value(seen, PlanBatch.of([plan, best])).reward
    assert np.isfinite(worth).all() and worth[1] >= worth[0]


def test_of_many_domains_it_looks_at_some():
    seen = first(tiny_world(tiny_cluster(12, 2), (BERT, GPT2, GIANT), max_segments=4), 2)
    policy = idler()
    planner = policy.planner(seen)
    search = LocalSearch(seen, planner.tables, widen=True)
    decisions = from_view(seen, worlds.attributor)
    own = decode(planner, decisions, policy._must_act(seen, planner, decisions)).batch
    plan = search_around(own.segments, own.counts, search)
    assert len(set(plan.domains)) > 1 and (search.free_devices > 0).sum() <= MOST_DOMAINS
    assert set(plan.domains) <= set(np.flatnonzero(search.free_devices > 0))


def counted(monkeypatch):
    """How often the wide search is really gone through."""
    calls = []

    def search(*args, **options):
        calls.append(1)
        return search_around(*args, **options)

    monkeypatch.setattr("attribution_sched.scheduler.hi_ppo.coordinator.search_around", search)
    return calls


def test_a_search_is_not_gone_through_twice_for_the_same_state(monkeypatch):
    policy, seen, calls = idler(), first("giant", 1, busy=[(3, 1)]), counted(monkeypatch)
    plan = policy.decide(seen)
    searched = len(calls)
    assert searched and plan is not None
    policy.reset(0)
    assert policy.decide(replace(seen, time_s=seen.time_s + 1.0)) == plan and len(calls) == searched
    other = copy.deepcopy(policy)
    other.agents_actor = policy.agents_actor
    assert other.decide(replace(seen, time_s=seen.time_s + 2.0)) == plan and len(calls) == searched


@pytest.mark.parametrize(
    "change",
    [
        lambda seen: {"bandwidth_gbps": 0.5 * seen.bandwidth_gbps},
        lambda seen: {"latency_s": 2.0 * seen.latency_s},
        lambda seen: {"free_devices": seen.free_devices - np.eye(len(seen.free_devices), dtype=np.int64)[0]},
        lambda seen: {"reward": replace(seen.reward, w_cost=seen.reward.w_cost + 1.0)},
        lambda seen: {"base_step_s": 2.0 * seen.base_step_s},
    ],
)
def test_whatever_the_search_reads_has_it_searched_again(monkeypatch, change):
    policy, seen, calls = idler(), first("giant", 1, busy=[(3, 1)]), counted(monkeypatch)
    policy.decide(seen)
    searched = len(calls)
    changed = replace(seen, time_s=seen.time_s + 1.0, **change(seen))
    again = policy.decide(changed)
    assert len(calls) == searched + 1
    fresh = idler()
    assert again == fresh.decide(changed)


def test_a_search_that_was_cut_short_is_not_kept():
    memo, cost = SearchMemo(), first("giant", 1).cost
    assert memo.of(cost, "key", lambda: None, lambda: False) is None
    asked = []
    memo.of(cost, "key", lambda: asked.append(1), lambda: True)
    memo.of(cost, "key", lambda: asked.append(1), lambda: True)
    assert len(asked) == 1
