"""Policies by optimisation: the queue is placed jointly, and what they decide is carried out."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import pend, view
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.cluster.world import TaskKind
from attribution_sched.planning.instance import usable_devices
from attribution_sched.planning.segment_table import single_domain_plans
from attribution_sched.rivals.assignment_policy import DualSmoothing, IntegerProgramme, offers, sizes_within
from attribution_sched.scheduler.episode import play
from tests.scheduler.states import check_states, small_worlds

from ..cluster.engine_worlds import BERT, GPT2, begun, decide, single, tiny_cluster, tiny_world, traced
from .assignments import brute_force

POLICIES = (IntegerProgramme, DualSmoothing)
GIANT = TaskKind(model("gpt3-13b"), 8, (1, 2, 4, 8), (10, 10), 10)
LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=100_000)


def waiting(*tasks, **changes):
    """The view of a decision with tasks of these kinds in the queue, and its engine."""
    engine = begun(traced(*((0, kind) for kind in tasks), kinds=tuple(dict.fromkeys(tasks)), **changes))
    while len(view(engine).queue) < len(tasks):
        decide(engine, None)
    return view(engine), engine


def test_sizes_are_powers_of_two_within_the_room():
    domains, sizes = sizes_within(np.array([5, 0, 1]))
    assert list(zip(domains.tolist(), sizes.tolist(), strict=True)) == [(0, 1), (0, 2), (0, 4), (2, 1)]
    assert len(sizes_within(np.array([0, 0]))[0]) == 0


def test_an_offer_is_the_best_plan_of_its_size():
    seen, _ = waiting(BERT, GPT2)
    domains, sizes = sizes_within(usable_devices(seen))
    for kind in (0, 1):
        found = offers(seen, kind, domains, sizes)
        for j, (domain, size) in enumerate(zip(domains.tolist(), sizes.tolist(), strict=True)):
            batch = single_domain_plans(seen, kind, [domain])
            held = batch.segments[:, 0, 3] * batch.segments[:, 0, 4] * batch.segments[:, 0, 5]
            rewards = np.where(held <= size, value(seen, batch, kind).reward, -np.inf)
            assert found.reward[j] == pytest.approx(rewards.max())
            assert found.devices[j] <= size


@pytest.mark.parametrize("make", POLICIES)
def test_one_task_alone_gets_the_best_plan_of_all(make):
    seen, _ = waiting(BERT)
    plan = make().decide(seen)
    best = value(seen, single_domain_plans(seen)).reward.max()
    assert value(seen, PlanBatch.of([plan])).reward[0] == pytest.approx(best)


@pytest.mark.parametrize("make", POLICIES)
def test_the_queue_is_placed_jointly_and_optimally(make):
    # One domain of four devices for four tasks: who goes first must leave room for the others.
    seen, _ = waiting(BERT, GPT2, BERT, GPT2, cluster=tiny_cluster(1, 4, motion={"spread": 0.0}), max_segments=1)
    policy, rooms = make(), usable_devices(seen)
    assert len(seen.queue) == 4
    domains, sizes = sizes_within(rooms)
    found = {kind: offers(seen, kind, domains, sizes) for kind in (0, 1)}
    programme = policy.programme(seen, found, rooms, domains)
    planned = policy.plans(seen)
    assert sum(plan.segments[0].device_count for plan in planned.values()) <= 4
    earned = 0.0
    for row, task in enumerate(seen.queue):
        if task.slot in planned:
            reward = value(seen, PlanBatch.of([planned[task.slot]]), task.kind_index).reward[0]
            earned += float(policy._earned(seen, task, reward))
            assert programme.utility[row].max() > 0
    assert earned == pytest.approx(brute_force(programme))


@pytest.mark.parametrize("make", POLICIES)
def test_the_order_of_the_queue_is_theirs(make):
    # One device: the short task is worth more per unit of work, whoever is up.
    short = replace(GPT2, steps=(20, 20), priority=0)
    seen, engine = waiting(LONG, short, cluster=tiny_cluster(1, 1, motion={"spread": 0.0}), max_segments=1)
    policy = make()
    chosen = policy.select(seen)
    assert {task.slot: task.kind_index for task in seen.queue}[chosen] == 1
    pend(engine, chosen)
    assert policy.decide(view(engine)) is not None
    other = next(task.slot for task in seen.queue if task.slot != chosen)
    pend(engine, other)
    assert policy.decide(view(engine)) is None


@pytest.mark.parametrize("make", POLICIES)
def test_a_task_no_domain_holds_is_cut_over_several(make):
    seen, engine = waiting(GIANT, cluster=tiny_cluster(4, 2, motion={"spread": 0.0}), max_segments=4)
    plan = make().decide(seen)
    assert len(plan.segments) >= 2
    decide(engine, plan)
    assert engine.decisions()["code"][0] >= 0


@pytest.mark.parametrize("make", POLICIES)
def test_a_task_that_fits_nowhere_waits(make):
    seen, _ = waiting(GIANT, cluster=tiny_cluster(4, 1, motion={"spread": 0.0}), max_segments=4)
    assert make().decide(replace(seen, free_devices=np.array([1, 0, 0, 0]))) is None
    assert make().decide(replace(seen, free_devices=np.zeros(4, dtype=np.int64))) is None


@pytest.mark.parametrize("make", POLICIES)
def test_running_tasks_are_not_moved(make):
    long = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)
    engine = begun(traced((0, long), kinds=(long,)))
    decide(engine, single(long))
    assert view(engine).replanning
    assert make().decide(view(engine)) is None


@pytest.mark.parametrize("make", POLICIES)
def test_what_they_decide_is_carried_out(make):
    summary = play(tiny_world(), make(), seed=2)
    assert summary.refused_plans == 0
    assert summary.completed > 10


@pytest.mark.parametrize("make", POLICIES)
@pytest.mark.parametrize("world", small_worlds())
def test_no_plan_is_refused_in_random_states(make, world):
    check_states(small_worlds()[world], make(), 15, seed=5)


def test_the_same_seed_gives_the_same_episode():
    policy = DualSmoothing()
    assert play(tiny_world(), policy, seed=4) == play(tiny_world(), policy, seed=4)


def test_a_choice_for_one_world_is_not_taken_for_another():
    policy = DualSmoothing()
    seen, _ = waiting(BERT)
    first = policy.plans(seen)
    assert policy.plans(seen) is first
    twin, _ = waiting(BERT)
    assert policy.plans(twin) is not first


def test_nobody_is_left_out_when_there_is_room_for_all():
    seen, engine = waiting(BERT, GPT2, BERT)
    policy = IntegerProgramme()
    planned = policy.plans(seen)
    assert set(planned) == {task.slot for task in seen.queue}
    while engine.totals()["placed"][0] < 3:
        pend(engine, policy.select(view(engine)))
        decide(engine, policy.decide(view(engine)))
        assert engine.decisions()["code"][0] >= 0
