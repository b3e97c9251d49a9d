"""A cap per task: the level that a plan is worth most with, and none where a cluster has no levels."""

from dataclasses import replace
from itertools import product

import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.planning.power_caps import Judge, capped, with_levels
from tests.cluster.engine_worlds import begun, chain, single, tiny_world

LEVELS = (0.8, 0.6, 0.4)


def moment(levels, usd_per_kwh):
    world = tiny_world()
    reward = replace(world.reward, energy_usd_per_kwh=usd_per_kwh)
    world = replace(world, cluster=replace(world.cluster, cap_levels=levels), reward=reward)
    return view(begun(world))


def worth(seen, plan):
    """R of a plan with what holding devices costs in a busy cluster, priced by itself."""
    kind = seen.kind_index
    in_use = 1.0 - float(seen.free_devices.sum()) / seen.cost.cluster.devices
    devices = sum(segment.device_count for segment in plan.segments)
    judge = Judge(
        seen.cost, kind, seen.kind.batch_size, seen.reward, float(seen.base_step_s[kind]),
        float(seen.base_cost_usd[kind]), seen.bandwidth_gbps, seen.latency_s, pressure=0.05 * in_use / devices,
    )  # fmt: skip
    return float(judge.worths(PlanBatch.of([plan]).segments, len(plan.segments))[0])


@pytest.mark.parametrize("usd_per_kwh", [0.1, 5.0, 100.0])
def test_the_level_is_the_one_of_highest_worth(usd_per_kwh):
    seen = moment(LEVELS, usd_per_kwh)
    for plan in (single(seen.kind, 0, 2), Plan((chain(seen.kind, (0, 3), (1, -1)),))):
        chosen = capped(seen, plan, seen.task)
        every = product(range(len(LEVELS) + 1), repeat=len(plan.segments))
        best = max(worth(seen, with_levels(plan, list(levels))) for levels in every)
        assert worth(seen, chosen) == pytest.approx(best, abs=1e-9)


def test_dear_energy_is_saved():
    cheap, dear = (
        capped(seen, single(seen.kind, 0, 2), seen.task) for seen in (moment(LEVELS, 0.0), moment(LEVELS, 1e4))
    )
    assert cheap.segments[0].cap == 0 and dear.segments[0].cap > 0


def test_without_levels_a_plan_stays_as_it_is():
    seen = moment((), 100.0)
    plan = single(seen.kind, 0, 2)
    assert capped(seen, plan, seen.task) is plan
