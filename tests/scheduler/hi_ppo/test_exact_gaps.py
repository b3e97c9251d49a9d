"""What single decisions are measured against: every plan there is, priced as the cluster does (``benchmarks``)."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from capped_gaps import FIRST_SEED, LEVELS, Reference, instance
from shared_gaps import Reference as SharedReference

from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.config import load_settings
from attribution_sched.planning import power_caps
from attribution_sched.planning.power_caps import best_levels, with_levels
from attribution_sched.scheduler.episode import pend
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from research.lookahead_plans import all_plans

NOMINAL = (1.0, 1.0, 1.0)


def fitting(reference, count=60, seed=0):
    """Some plans of an instance that fit."""
    batch, rng = all_plans(reference.engine, 0), np.random.default_rng(seed)
    able = np.flatnonzero(batch.counts == 3)
    least, floor = reference._bounds(batch.segments[able], 3)
    chosen = rng.choice(np.flatnonzero(np.isfinite(least)), count)
    return [(batch.plan(int(able[at])), least[at], floor[at]) for at in chosen]


def all_capped(reference, plan):
    every = product(range(len(LEVELS) + 1), repeat=len(plan.segments))
    return min(reference.paid(with_levels(plan, levels)) for levels in every)


def test_caps_of_a_plan_are_the_best_of_all_combinations(monkeypatch):
    engine, seen = instance(FIRST_SEED + 29)
    reference = Reference(engine, seen, NOMINAL)
    plan = all_plans(engine, 0).plan(2111)
    best = all_capped(reference, plan)
    assert reference.paid(with_levels(plan, best_levels(reference.judge, plan))) == pytest.approx(best)
    # One change after the other ends 0.7 % above it.
    monkeypatch.setattr(power_caps, "MOST_COMBINED", 0)
    assert reference.paid(with_levels(plan, best_levels(reference.judge, plan))) > 1.005 * best


@pytest.mark.parametrize("seed", [FIRST_SEED, FIRST_SEED + 29])
def test_no_cap_pays_less_than_what_plans_are_left_out_by(seed):
    engine, seen = instance(seed)
    reference = Reference(engine, seen, NOMINAL)
    for plan, least, floor in fitting(reference):
        assert floor <= all_capped(reference, plan) + 1e-12 <= least + 2e-12
        assert reference.capped(plan) == pytest.approx(all_capped(reference, plan))


def test_tasks_that_wait_count_for_caps_whoever_asks():
    """Asked about one task alone, the others that wait were forgotten when its caps were chosen."""
    changed = 0
    for seed in range(FIRST_SEED, FIRST_SEED + 24, 3):
        engine, seen = instance(seed + (-seed) % 3)
        assert len(seen.queue) == 4
        policy = HiPpo(deadline_s=np.inf)
        plan = policy.decide(seen)
        reference = Reference(engine, seen, policy._believed(seen, policy.planner(seen), seen.slot))
        assert reference.paid(plan) == pytest.approx(reference.capped(plan), rel=1e-3)
        alone = Reference(engine, replace(seen, queue=seen.queue[:1]), reference.judge.factors)
        changed += best_levels(alone.judge, plan) != best_levels(reference.judge, plan)
    assert changed > 0


class Told:
    """Speeds as they turned out."""

    def __init__(self, own, theirs):
        self.told = own, theirs

    def speeds(self, own, other):
        return self.told


def crowded_site():
    settings = load_settings("shared").model_dump(exclude_none=True)
    settings["arrivals"]["rate_per_hour"] = 30.0
    world = load_settings(settings).build_world()
    engine, policy = Engine(world), HiPpo(deadline_s=np.inf)
    engine.pool = engine.pool.attributed(state_vectors(policy.attributions, DEMAND_NAMES))
    engine.seed([7_730_900])
    engine.reset()
    return engine, policy


def test_an_hour_of_work_of_a_pair_costs_what_the_cluster_charges():
    engine, policy = crowded_site()
    compared = 0
    while compared < 5:
        seen = view(engine)
        if not seen.replanning and len(seen.queue) > 1:
            pend(engine, policy.select(seen))
            seen = view(engine)
        plan = policy.decide(seen)
        engine.step(encode(engine, None if plan is None else plan.uncapped(), seen.kind_index)[None])
        if plan is None or plan.beside is None or seen.replanning:
            continue
        slots, tasks = engine.state.slots[0], engine.state.tasks[0]
        pair = [seen.slot, plan.beside]
        if any(slots[slot, st.STATUS] != st.RUNNING or tasks[slot, st.SHARED] == 0.0 for slot in pair):
            continue
        base = [seen.base_step_s[int(engine.pool.kinds[slots[slot, st.POOL]])] for slot in pair]
        speeds = [base[i] / tasks[slot, st.STEP] for i, slot in enumerate(pair)]
        work = sum(speeds)
        assert all(tasks[slot, st.T_UTIL] == pytest.approx(1.0) for slot in pair)
        paid = sum(speed * tasks[slot, st.T_COST] for speed, slot in zip(speeds, pair, strict=True))
        reference = SharedReference(engine, seen, Told(*speeds))
        devices = seen.cost.cluster.devices
        held = (len(seen.queue) - 1) * plan.segments[0].device_count + 2.0 * (devices - seen.free_devices.sum())
        expected = (2.0 + held / devices) / work + seen.reward.w_cost * paid / work
        assert reference.judge(plan.uncapped()).cost == pytest.approx(expected, rel=2e-3)
        compared += 1


def test_an_hour_of_work_of_a_task_alone_costs_what_it_does_not_earn():
    engine, _ = crowded_site()
    seen = view(engine)
    assert len(seen.queue) == 1 and int(seen.free_devices[0]) == 64
    reference = SharedReference(engine, seen, Told(1.0, 1.0))
    plans = reference.own()
    assert len({each.plan.segments[0].cap for each in plans}) == 5
    for each in plans:
        worth = value(seen, PlanBatch.of([each.plan])).reward[0]
        assert each.cost == pytest.approx(seen.reward.w_eff + seen.reward.w_util - worth, rel=1e-5)
