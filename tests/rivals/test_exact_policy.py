"""Policies that solve every decision exactly."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.planning.exact.problem import problem_of
from attribution_sched.planning.exact.solver import ExactSolver
from attribution_sched.rivals.exact_policy import Exact, ExactResolve, ExactSwitch, switching_gain
from attribution_sched.scheduler.episode import play

from ..cluster.engine_worlds import BERT, GPT2, begun, chain, decide, tiny_world, traced

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)
NEARLY_DONE = replace(BERT, steps=(1001, 1001), epoch_steps=1000)


def running_view(kind, plan):
    """A task on a plan, at its first review."""
    engine = begun(traced((0, kind), kinds=(kind,)))
    decide(engine, plan)
    return view(engine)


def test_a_waiting_task_gets_the_plan_with_the_highest_reward():
    seen = view(begun(traced((0, LONG), kinds=(LONG,))))
    best = Exact().decide(seen)
    others = [Plan((chain(LONG, (0, 6, 2), (1, -1)),)), Plan((chain(LONG, (2, -1)),))]
    rewards = value(seen, PlanBatch.of([best, *others])).reward
    assert rewards[0] >= rewards[1:].max()


def test_exact_stays_and_resolve_moves():
    poor = Plan((chain(LONG, (0, 6), (1, -1)),))
    seen = running_view(LONG, poor)
    assert Exact().decide(seen) is None
    assert ExactResolve().decide(seen) not in (None, poor)


def test_switching_weighs_the_work_left_against_the_move():
    poor = Plan((chain(LONG, (0, 6), (1, -1)),))
    seen = running_view(LONG, poor)
    target = ExactSwitch().decide(seen)
    assert target is not None
    assert switching_gain(seen, target) > 0
    soon_over = replace(seen, steps_left=1.0)
    assert ExactSwitch().decide(soon_over) is None
    assert switching_gain(soon_over, target) < 0


def test_the_gain_is_reward_over_the_work_left_less_pause_and_traffic():
    poor = Plan((chain(LONG, (0, 6), (1, -1)),))
    seen = running_view(LONG, poor)
    target = Plan((chain(LONG, (2, -1)),))
    both = value(seen, PlanBatch.of([poor, target]))
    pause_s, dollars = seen.move_cost(target)
    base_s, base_usd = seen.base_step_s[0], seen.base_cost_usd[0]
    want = seen.steps_left * base_s * (both.reward[1] - both.reward[0])
    want -= seen.reward.w_eff * pause_s + seen.reward.w_cost * dollars / base_usd * base_s
    assert switching_gain(seen, target) == pytest.approx(want, rel=1e-12)
    assert pause_s > seen.restart_s


def test_queue_pressure_makes_plans_smaller_when_others_wait():
    engine = begun(traced((0, LONG), *[(0, GPT2)] * 6, kinds=(LONG, GPT2)))
    for _ in range(6):
        decide(engine, None)
    seen = view(engine)
    crowded = replace(seen, queue=seen.queue * 20)
    alone, small = ExactSolver().solve(problem_of(crowded)).plan, Exact().best(crowded)
    assert sum(s.device_count for s in small.segments) < sum(s.device_count for s in alone.segments)


@pytest.mark.parametrize("policy", [Exact, ExactResolve, ExactSwitch])
def test_episodes_are_played_without_a_refused_plan_and_the_same_each_time(policy):
    world = tiny_world()
    first, second = play(world, policy(), 5), play(world, policy(), 5)
    assert first == second
    assert first.refused_plans == 0
    assert first.placed > 0


def test_many_domains_are_narrowed_to_candidates():
    seen = view(begun(traced((0, LONG), kinds=(LONG,))))
    k = 40
    links = np.full((k, k), 5.0)
    from attribution_sched.rivals.exact_policy import CANDIDATES, _narrowed

    wide = replace(seen, free_devices=np.arange(k) % 4 + 1, bandwidth_gbps=links, latency_s=np.full((k, k), 0.02))
    narrowed = _narrowed(wide)
    assert (narrowed.free_devices > 0).sum() == CANDIDATES
    assert narrowed.free_devices.max() == 4
