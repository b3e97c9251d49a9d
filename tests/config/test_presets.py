"""The packaged worlds: they build, every kind of task has a plan that fits, and the load is as stated."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from attribution_sched.cluster.cost import CostModel, PlanCosts
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.signals import usual
from attribution_sched.cluster.world import TaskKind, World, build_pool
from attribution_sched.config import load_settings, preset_names

DEGREES = (1, 2, 4, 8, 16, 32, 64)


@cache
def built(name: str) -> World:
    return load_settings(name).build_world()


@cache
def cost_model(name: str) -> CostModel:
    world = built(name)
    return CostModel(world.cluster, [k.model for k in world.kinds], [k.training for k in world.kinds])


def layouts(kind: TaskKind, devices: int, precision: Precision) -> list[Plan]:
    """Every dp × tp × pp of powers of two inside domain 0, at 16 bits and every microbatch."""
    n = len(kind.model)
    return [
        Plan((Replica((Segment(0, 0, n, dp, tp, pp, precision),), m, kind.batch_size // m),))
        for m in kind.microbatches
        for tp in DEGREES[:4]
        for pp in DEGREES
        for dp in DEGREES
        if m % dp == 0 and pp <= n and dp * tp * pp <= devices
    ]


def halves(kind: TaskKind, plans: list[Plan]) -> list[Plan]:
    """The same layouts with the model cut in the middle, over domains 0 and 1."""
    n = len(kind.model)
    cut = []
    for plan in plans:
        replica = plan.replicas[0]
        s = replica.segments[0]
        if s.pp <= n // 2:
            pair = (
                Segment(0, 0, n // 2, s.dp, s.tp, s.pp, s.precision),
                Segment(1, n // 2, n, s.dp, s.tp, s.pp, s.precision),
            )
            cut.append(Plan((Replica(pair, replica.microbatch, replica.microbatches),)))
    return cut


def devices_per_task(name: str) -> int:
    """On the testbed a task has one device."""
    return 1 if name == "testbed" else built(name).cluster.domains[0].devices


@cache
def scored(name: str, index: int) -> tuple[list[Plan], PlanCosts]:
    # A V100 has no bfloat16.
    precision = Precision.BF16 if built(name).cluster.domains[0].gpu.supports(Precision.BF16) else Precision.FP16
    plans = layouts(built(name).kinds[index], devices_per_task(name), precision)
    return plans, cost_model(name).score(PlanBatch.of(plans), index, breakdown=False)


EVERY_KIND = [(name, i) for name in preset_names() for i in range(len(load_settings(name).kinds))]


HOURLY = "cross-domain"
SPANNING = ("llama-2-70b", "opt-66b")


def placeable(name: str, index: int) -> tuple[list[Plan], PlanCosts]:
    """Plans inside one domain; over two of them where the preset says that no domain holds the model."""
    plans, costs = scored(name, index)
    if name == HOURLY and built(name).kinds[index].model.name in SPANNING:
        plans = halves(built(name).kinds[index], plans)
        costs = cost_model(name).score(PlanBatch.of(plans), index, breakdown=False)
    return plans, costs


def device_seconds(name: str, index: int) -> float:
    """What an arrival asks for on average because of a kind: share, mean steps, fastest plan and that one's devices."""
    plans, costs = placeable(name, index)
    kind = built(name).kinds[index]
    best = min(np.flatnonzero(costs.fits), key=lambda j: costs.step_s[j])
    fewest, most = kind.steps
    mean_steps = (most - fewest) / math.log(most / fewest)
    devices = sum(segment.device_count for segment in plans[best].segments)
    asked = kind.share * mean_steps * float(costs.step_s[best]) * devices
    return asked / sum(each.share for each in built(name).kinds)


def test_the_presets_are_those_that_are_documented():
    assert preset_names() == (HOURLY, "cross-domain-easy", "large", "shared", "testbed")


@pytest.mark.parametrize(("name", "index"), EVERY_KIND)
def test_every_kind_fits_where_it_should(name, index):
    plans, costs = placeable(name, index)
    fitting = np.flatnonzero(costs.fits)
    assert fitting.size > 0
    cost_model(name).check(plans[fitting[0]], index)


def test_most_device_hours_are_of_models_that_no_empty_domain_holds():
    """By the masks of the planner itself, not by the list above."""
    from attribution_sched.cluster.engine import state as st
    from attribution_sched.cluster.engine.engine import Engine
    from attribution_sched.scheduler.hi_ppo.decode import Planner

    world, arrays = built(HOURLY), Engine(built(HOURLY)).arrays
    base_step_s, base_usd = arrays.kinds[:, st.K_BASE_STEP], arrays.kinds[:, st.K_BASE_COST]
    planner = Planner.of(cost_model(HOURLY), world.kinds, base_step_s, base_usd, world.max_segments)
    assert tuple(k.model.name for k, alone in zip(world.kinds, planner.spanning, strict=True) if alone) == SPANNING
    asked = np.array([device_seconds(HOURLY, i) for i in range(len(world.kinds))])
    assert asked[planner.spanning].sum() > 0.5 * asked.sum()


def test_links_of_the_hourly_preset_fail_about_once_a_day_and_hold_most_of_the_time():
    failures = built(HOURLY).cluster.wan.failures
    pairs = math.comb(len(built(HOURLY).cluster), 2)
    assert pairs * 24.0 / (failures.mean_up_h + failures.mean_down_h) == pytest.approx(1.0)
    assert 1.0 <= failures.mean_down_h <= 2.0 and failures.down_share < 0.015
    others = [name for name in preset_names() if name != HOURLY]
    assert all(built(name).cluster.wan.failures is None for name in others)


def test_the_hourly_preset_has_an_evening_peak_by_the_local_clock_and_the_usual_price_on_average():
    # Hours behind UTC on 1 July, when the run begins.
    behind = {"aws:us-east-1": 4, "aws:us-west-2": 7, "azure:southcentralus": 5, "azure:westus": 7}
    world = built(HOURLY)
    for domain in world.cluster.domains:
        assert domain.carbon.start_h == 24.0 * 181  # 1 July, 00:00 UTC
        dear = [h for h in range(24) if domain.electricity.at(3600.0 * h) > 0.15]
        assert sorted((h - behind[domain.name]) % 24 for h in dear) == [16, 17, 18, 19, 20]
        assert usual(domain.electricity) == pytest.approx(world.reward.energy_usd_per_kwh)
        assert domain.electricity.forecast(0.0, 3600.0 * 30).error == 0.0


@pytest.mark.parametrize("model", ["llama-2-70b", "opt-66b"])
def test_the_largest_models_gain_from_a_second_domain(model):
    world = built("cross-domain-easy")
    index = [kind.model.name for kind in world.kinds].index(model)
    plans, alone = scored("cross-domain-easy", index)
    together = cost_model("cross-domain-easy").score(
        PlanBatch.of(halves(world.kinds[index], plans)), index, breakdown=False
    )
    assert together.step_s[together.fits].min() < alone.step_s[alone.fits].min()
    # Memory is the reason: few layouts fit one domain, many fit two.
    assert alone.fits.mean() < 0.5 * together.fits.mean()


@pytest.mark.parametrize("name", [name for name in preset_names() if name != "shared"])
def test_about_four_fifths_of_the_devices_are_busy(name):
    world = built(name)
    asked = sum(device_seconds(name, i) for i in range(len(world.kinds)))
    busy = world.arrivals.rate_per_hour / 3600 * asked / world.cluster.devices
    # Of cut models the fastest plan is a wasteful one: played, about two thirds are busy there.
    assert 0.70 <= busy <= (0.95 if name == HOURLY else 0.85)


def test_the_shared_site_is_asked_for_nine_tenths_of_its_devices():
    """Devices and durations come from the log's law, not from a kind's range of steps."""
    world = built("shared")
    pool = build_pool(world)
    devices = np.array([kind.batch_size for kind in world.kinds])[pool.kinds]
    asked = world.arrivals.rate_per_hour / 3600 * float(np.mean(pool.steps * devices)) / world.cluster.devices
    assert 0.8 <= asked <= 1.0


def test_cross_domain_links_are_measured_and_in_the_range_of_the_study():
    wan = built("cross-domain-easy").cluster.wan
    outside = ~np.eye(len(wan.names), dtype=bool)
    assert all(how == "measured" for (a, b), how in wan.provenance.items() if a != b)
    assert np.all((wan.bandwidth_gbps[outside] >= 1) & (wan.bandwidth_gbps[outside] <= 10))
    round_trip_ms = 2e3 * wan.latency_s[outside]
    assert np.all((round_trip_ms >= 20) & (round_trip_ms <= 200))
    assert wan.bound == 0.3


def test_cross_domain_is_homogeneous():
    domains = built("cross-domain-easy").cluster.domains
    assert {(domain.gpu.name, domain.devices) for domain in domains} == {("A100-80", 16)}
    assert all(domain.carbon_g_per_kwh > 0 for domain in domains)


def test_large_is_64_by_64():
    cluster = built("large").cluster
    assert len(cluster) == 64
    assert {domain.devices for domain in cluster.domains} == {64}
    assert {"gpt3-175b", "llama-3-70b"} <= {kind.model.name for kind in built("large").kinds}
    measured = [how for (a, b), how in cluster.wan.provenance.items() if a != b and how == "measured"]
    assert len(measured) == 60 * 59


def test_testbed_has_four_devices_four_levels_and_one_segment():
    world = built("testbed")
    assert world.cluster.devices == 4
    assert world.max_segments == 1
    assert {kind.microbatches for kind in world.kinds} == {(16, 32, 64, 128)}
    assert {kind.batch_size for kind in world.kinds} == {128}
    assert {kind.training for kind in world.kinds} == {True, False}
    assert {"resnet-50", "bert-base", "efficientnet-b0"} <= {kind.model.name for kind in world.kinds}
    # Paid as work is done: a task pays for what it does to its neighbour.
    assert not world.reward.per_decision
    assert world.reward.energy_usd_per_kwh > 0


def test_int8_pays_for_serving_on_the_testbed_but_less_at_small_batches():
    world = built("testbed")
    served = next(i for i, k in enumerate(world.kinds) if k.model.name == "resnet-50" and not k.training)
    n = len(world.kinds[served].model)

    def step_s(precision: Precision, microbatch: int) -> float:
        plan = Plan((Replica((Segment(0, 0, n, precision=precision),), microbatch, 128 // microbatch),))
        return float(cost_model("testbed").score(plan, served, breakdown=False).step_s[0])

    large = step_s(Precision.FP16, 128) / step_s(Precision.INT8, 128)
    small = step_s(Precision.FP16, 16) / step_s(Precision.INT8, 16)
    assert large > 1.3
    assert small < 1.1
