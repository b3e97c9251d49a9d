"""Rules that place a task once: whose turn it is, which domain, and what happens to models too large for one."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import encode, pend, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.planning.candidates import best_of
from attribution_sched.planning.segment_table import single_domain_plans
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.policy import Episodic, QueueOrder
from attribution_sched.scheduler.rules import (
    FirstComeFirstServed,
    GreedyBandwidth,
    LeastLoaded,
    RoundRobin,
    ShortestJobFirst,
    fewest_domains,
    first_with_room,
)

from ..cluster.engine_worlds import BERT, GPT2, begun, chain, decide, single, tiny_cluster, tiny_world, traced
from .states import GIANT, with_links

RULES = [FirstComeFirstServed, ShortestJobFirst, RoundRobin, LeastLoaded, GreedyBandwidth]

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)
SHORT = replace(GPT2, steps=(50, 50), epoch_steps=50, priority=0)


def start(policy, engine):
    """One decision of a policy as an episode takes it; returns the arrival number of the task and the plan."""
    seen = view(engine)
    if len(seen.queue) > 1 and not seen.replanning and isinstance(policy, QueueOrder):
        pend(engine, policy.select(seen))
        seen = view(engine)
    serial = int(engine.state.slots[0, seen.slot, st.SERIAL])
    plan = policy.decide(seen)
    engine.step(encode(engine, plan, seen.kind_index)[None])
    return serial, plan


def waiting(*tasks, **changes):
    """A cluster in which all tasks have arrived and wait."""
    engine = begun(traced(*[(0, kind) for kind in tasks], kinds=tuple(dict.fromkeys(tasks)), **changes))
    while len(view(engine).queue) < len(tasks):
        decide(engine, None)
    return engine


@pytest.mark.parametrize("rule", RULES)
def test_a_running_task_stays(rule):
    engine = waiting(LONG)
    decide(engine, single(LONG))
    assert view(engine).replanning
    assert rule().decide(view(engine)) is None


@pytest.mark.parametrize("rule", RULES)
def test_inside_a_domain_the_plan_is_the_best_by_reward(rule):
    seen = view(waiting(LONG))
    plan = rule().decide(seen)
    assert len(plan.segments) == 1
    assert plan == best_of(seen, single_domain_plans(seen, domains=plan.domains))


@pytest.mark.parametrize("rule", RULES)
def test_a_model_too_large_for_a_domain_is_cut_over_the_fewest_that_hold_it(rule):
    # Two devices of 80 GB do not hold its 208 GB of states, four do.
    seen = view(waiting(GIANT, cluster=tiny_cluster(4, 2, motion={"spread": 0.0}), max_segments=4))
    assert best_of(seen, single_domain_plans(seen)) is None
    assert len(rule().decide(seen).segments) == 2
    assert len(rule().decide(replace(seen, free_devices=np.ones(4, dtype=np.int64))).segments) == 4
    assert rule().decide(replace(seen, max_segments=1)) is None


@pytest.mark.parametrize("rule", RULES)
def test_without_a_free_device_a_task_waits(rule):
    seen = replace(view(waiting(LONG)), free_devices=np.zeros(3, dtype=np.int64))
    assert rule().decide(seen) is None


@pytest.mark.parametrize("rule", RULES)
def test_an_episode_ends_and_work_gets_done(rule):
    found = play(tiny_world(tiny_cluster(motion={"spread": 0.2})), rule(), 4)
    assert found.completed > 10
    assert found.refused_plans == 0
    assert found.moves == 0


def test_first_come_first_served_starts_in_order_of_arrival():
    # Priorities would have it otherwise: the second kind is more urgent.
    engine, rule = begun(tiny_world(tiny_cluster(2, 2), (BERT, GPT2)), seed=1), FirstComeFirstServed()
    started = []
    while not engine.state.event[0, st.DONE]:
        serial, plan = start(rule, engine)
        started += [serial] if plan else []
    assert len(started) > 10
    assert started == sorted(started)


def test_a_first_in_line_that_does_not_fit_holds_everybody_up():
    engine = waiting(GIANT, BERT, max_segments=1, cluster=tiny_cluster(2, 8, motion={"spread": 0.0}))
    seen = replace(view(engine), free_devices=np.array([1, 1]))
    small = next(task for task in seen.queue if task.kind_index == 1)
    rule = FirstComeFirstServed()
    chosen = rule.select(replace(seen, slot=small.slot, kind_index=1, kind=BERT))
    assert chosen == small.slot
    assert rule.decide(replace(seen, slot=small.slot, kind_index=1, kind=BERT)) is None
    # With room the head goes first, whoever was pending.
    roomy = replace(seen, free_devices=np.array([8, 8]), slot=small.slot, kind_index=1, kind=BERT)
    assert rule.select(roomy) == seen.queue[0].slot
    # The other rules do not wait for it.
    assert LeastLoaded().decide(replace(seen, slot=small.slot, kind_index=1, kind=BERT)) is not None


def test_the_shortest_job_goes_first_and_does_not_block():
    engine, rule = waiting(LONG, SHORT, LONG), ShortestJobFirst()
    seen = view(engine)
    chosen = rule.select(seen)
    assert next(task.kind_index for task in seen.queue if task.slot == chosen) == 1
    work = [task.steps_left * rule.nominal_step_s(seen, task.kind_index) for task in seen.queue]
    assert work[1] < work[0] == work[2]
    # More steps make it the longest.
    stretched = tuple(replace(task, steps_left=1e9) if task.kind_index == 1 else task for task in seen.queue)
    assert rule.select(replace(seen, queue=stretched)) == seen.queue[0].slot
    tight = waiting(GIANT, BERT, max_segments=1, cluster=tiny_cluster(2, 8, motion={"spread": 0.0}))
    quick = tuple(replace(task, steps_left=1e-6) if task.kind_index == 0 else task for task in view(tight).queue)
    crowded = replace(view(tight), queue=quick, free_devices=np.array([1, 1]))
    assert rule.select(crowded) == quick[1].slot
    assert rule.select(replace(crowded, free_devices=np.array([0, 0]))) == crowded.slot


def test_work_is_judged_by_the_fastest_plan_in_an_empty_domain():
    seen = view(waiting(LONG))
    priced = seen.cost.score(single_domain_plans(seen), 0, breakdown=False)
    occupied = replace(seen, free_devices=np.array([0, 0, 1]))
    assert ShortestJobFirst().nominal_step_s(occupied, 0) == priced.step_s[priced.fits].min()
    giant = view(waiting(GIANT, cluster=tiny_cluster(4, 1, motion={"spread": 0.0}), max_segments=4))
    assert ShortestJobFirst().nominal_step_s(giant, 0) == giant.base_step_s[0]


def test_round_robin_takes_turns_and_starts_over():
    rule = RoundRobin()
    assert isinstance(rule, Episodic)
    seen = view(waiting(LONG))
    assert [rule.decide(seen).domains[0] for _ in range(4)] == [0, 1, 2, 0]
    full = replace(seen, free_devices=np.array([4, 0, 4]))
    assert rule.decide(full).domains == (2,)
    rule.reset(0)
    assert rule.decide(seen).domains == (0,)


def test_the_least_loaded_domain_is_the_emptiest_by_share():
    seen = view(waiting(LONG))
    assert LeastLoaded().decide(replace(seen, free_devices=np.array([1, 3, 2]))).domains == (1,)
    assert LeastLoaded().decide(replace(seen, free_devices=np.array([2, 3, 3]))).domains == (1,)


def test_bandwidth_decides_the_domain_and_the_chain():
    seen = view(waiting(GIANT, cluster=tiny_cluster(5, 1, motion={"spread": 0.0}), max_segments=4))
    links = np.full((5, 5), 1.0)
    for i, j, gbps in ((1, 3, 9.0), (3, 4, 8.0), (0, 2, 7.0)):
        links[i, j] = links[j, i] = gbps
    plan = GreedyBandwidth().decide(with_links(seen, links))
    assert plan.domains in ((1, 3, 4, 0), (0, 4, 3, 1))
    small = view(waiting(LONG, cluster=tiny_cluster(5, 1, motion={"spread": 0.0})))
    assert GreedyBandwidth().decide(with_links(small, links)).domains == (3,)
    busy = replace(with_links(small, links), free_devices=np.array([1, 1, 1, 0, 1]))
    assert GreedyBandwidth().decide(busy).domains == (1,)


def test_the_first_domain_with_room_is_not_the_first_with_a_free_device():
    seen = view(waiting(GIANT, cluster=tiny_cluster(3, 8, motion={"spread": 0.0})))
    crowded = replace(seen, free_devices=np.array([1, 1, 8]))
    assert first_with_room(crowded, 0, range(3)).domains == (2,)
    assert first_with_room(replace(seen, free_devices=np.array([1, 1, 1])), 0, range(3)) is None


def test_a_cut_follows_speed():
    seen = view(waiting(GIANT, cluster=tiny_cluster(2, 4, motion={"spread": 0.0})))
    plan = fewest_domains(replace(seen, free_devices=np.array([4, 2])), 0)
    layers = {s.domain: (s.stop - s.first) / (s.dp * s.pp) for s in plan.segments}
    assert layers[0] == pytest.approx(layers[1], rel=0.2)
    assert chain(GIANT, (0, -1)).samples == plan.samples
