"""Scenarios: one thing is changed, the rest is the preset."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.arrivals import ArrivalRow, TraceArrivals
from attribution_sched.cluster.incidents import DomainLoss, LinkCut
from attribution_sched.cluster.philly import PhillyWeek
from attribution_sched.config import load_settings
from attribution_sched.config.scenarios import SCENARIOS, _scaled, build_scenario, scenario_names
from attribution_sched.errors import SettingsError
from attribution_sched.rivals.arena.records import fingerprint
from attribution_sched.rivals.greedy import Greedy


def digest(world):
    return fingerprint(world, Greedy())


@pytest.fixture(scope="module")
def preset():
    return load_settings("cross-domain-easy").build_world()


def test_every_scenario_is_described_and_no_two_are_alike():
    assert scenario_names() == tuple(SCENARIOS)
    small = [name for name in scenario_names() if name != "domains-64"]
    assert len({digest(build_scenario("cross-domain-easy", name)) for name in small}) == len(small)


def test_the_wandering_network_is_the_preset_itself(preset):
    assert digest(build_scenario("cross-domain-easy", "ou30")) == digest(preset)
    still = load_settings({"extends": "cross-domain-easy", "network": {"motion": {"spread": 0.0, "bound": 0.5}}})
    wan = build_scenario(still, "ou30").cluster.wan
    assert (wan.spread, wan.bound) == (0.12, 0.3)


def test_a_steady_network_differs_in_nothing_else(preset):
    world = build_scenario("cross-domain-easy", "steady")
    assert world.cluster.wan.spread == 0.0
    moving = replace(world.cluster.wan, spread=preset.cluster.wan.spread)
    assert digest(replace(world, cluster=replace(world.cluster, wan=moving))) == digest(preset)


def test_the_fastest_link_is_cut_for_a_third_of_the_day(preset):
    world = build_scenario("cross-domain-easy", "link-cut")
    (cut,) = world.incidents
    assert isinstance(cut, LinkCut)
    gbps = np.array(preset.cluster.wan.bandwidth_gbps)
    both = gbps + gbps.T
    np.fill_diagonal(both, 0.0)
    assert both[cut.source, cut.target] == both.max()
    assert (cut.start_s, cut.end_s, cut.factor, cut.both_ways) == (10 * 3600.0, 18 * 3600.0, 0.1, True)
    assert digest(replace(world, incidents=())) == digest(preset)


def test_the_best_connected_domain_is_lost(preset):
    world = build_scenario("cross-domain-easy", "domain-lost")
    (loss,) = world.incidents
    assert isinstance(loss, DomainLoss)
    gbps = np.array(preset.cluster.wan.bandwidth_gbps)
    np.fill_diagonal(gbps, 0.0)
    assert loss.domain == int(np.argmax(gbps.sum(axis=0) + gbps.sum(axis=1)))
    assert (loss.start_s, loss.end_s) == (8 * 3600.0, 14 * 3600.0)


def test_hours_shrink_with_the_episode():
    half = load_settings({"extends": "cross-domain-easy", "episode": {"horizon_s": 43_200.0}})
    assert build_scenario(half, "domain-lost").incidents[0].start_s == 4 * 3600.0
    burst = build_scenario(half, "burst").arrivals.burst
    assert (burst.start_h, burst.end_h, burst.factor) == (5.0, 6.0, 4.0)


def test_load_changes_how_many_tasks_arrive(preset):
    days = range(60)
    usual = sum(len(preset.arrivals.times(86_400.0, seed)) for seed in days)
    for name, factor in (("load-20", 0.8), ("load+20", 1.2)):
        world = build_scenario("cross-domain-easy", name)
        found = sum(len(world.arrivals.times(86_400.0, seed)) for seed in days)
        assert found / usual == pytest.approx(factor, abs=0.06)
    busy = build_scenario("cross-domain-easy", "burst").arrivals
    extra = sum(len(busy.times(86_400.0, seed)) for seed in days) - usual
    # Two hours near the peak of the day at three times the rate on top.
    assert extra / 60 == pytest.approx(3 * 2 * 1.4 * 1.4, rel=0.2)


def test_half_domains_leave_the_largest_models_no_domain():
    whole, half = build_scenario("cross-domain-easy"), build_scenario("cross-domain-easy", "half-domains")
    assert [d.devices for d in half.cluster.domains] == [8] * 4 and [d.devices for d in whole.cluster.domains] == [
        16
    ] * 4
    assert half.arrivals.rate_per_hour == 0.5 * whole.arrivals.rate_per_hour
    assert replace(half, cluster=whole.cluster, arrivals=whole.arrivals) == whole
    large = half.kinds[0].model
    assert large.params * 16 > half.cluster.domains[0].devices * half.cluster.domains[0].gpu.memory_bytes


def test_a_recording_is_played_faster():
    rows = tuple(ArrivalRow(float(t), "bert-base", 10, 32, 0, "a") for t in (0, 60, 120))
    assert [row.arrival_s for row in _scaled(TraceArrivals(rows), 1.2).rows] == pytest.approx([0, 50, 100])


def test_a_week_of_a_log_is_played_faster_whatever_is_kept_of_it(tmp_path):
    """Of a week of which every task was kept no more could be kept, and in others one in two for one in three."""
    lines = [f"2017-11-06 0{minute // 60}:{minute % 60:02d}:00,60,1,60,a" for minute in range(0, 180, 6)]
    log = tmp_path / "philly.csv"
    log.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *lines]) + "\n")
    for keep in (1, 3):
        week = PhillyWeek(str(log), "2017-11-06", keep=keep)
        usual = week.spec().times(86_400.0)
        for factor in (0.8, 1.2):
            assert _scaled(week, factor).spec().times(86_400.0) * factor == pytest.approx(usual)


@pytest.mark.parametrize("count", [3, 8, 16, 64])
def test_more_domains_carry_more_work(preset, count):
    world = build_scenario("cross-domain-easy", f"domains-{count}")
    own = [domain.name for domain in preset.cluster.domains]
    names = [domain.name for domain in world.cluster.domains]
    assert len(set(names)) == count
    assert names[:4] == own[:count]
    assert {(d.gpu.name, d.devices) for d in world.cluster.domains} == {("A100-80", 16)}
    assert world.kinds == preset.kinds
    assert world.arrivals.rate_per_hour == pytest.approx(1.4 * count / 4)
    assert (world.max_running, world.queue_capacity) == (3 * count, 4 * count)
    assert world.max_segments == min(4, count)
    assert all(domain.carbon_g_per_kwh > 0 for domain in world.cluster.domains)
    providers = {name.split(":")[0] for name in names[4:]}
    assert not providers or providers == {"aws", "azure", "gcp"}
    estimated = {link for link, how in world.cluster.wan.provenance.items() if how.startswith("estimated")}
    assert bool(estimated) == (count == 64)


@pytest.mark.parametrize(
    ("preset", "scenario", "words"),
    [
        ("cross-domain-easy", "stedy", "Did you mean 'steady'"),
        ("testbed", "link-cut", "needs two domains or more"),
        ("testbed", "domain-lost", "needs two domains or more"),
        ("testbed", "domains-8", "needs domains that are cloud regions"),
        ("cross-domian", "steady", "Did you mean 'cross-domain'"),
    ],
)
def test_a_mistake_is_one_clear_error(preset, scenario, words):
    with pytest.raises(SettingsError) as caught:
        build_scenario(preset, scenario)
    assert words in str(caught.value)


def test_a_burst_needs_a_rate(tmp_path):
    (tmp_path / "tasks.csv").write_text(
        "arrival_s,model,steps,batch_size,priority,tenant\n0,llama-2-7b,300,128,0,language\n"
    )
    settings = load_settings({
        "extends": "cross-domain-easy", "arrivals": {"kind": "trace", "path": str(tmp_path / "tasks.csv")},
    })  # fmt: skip
    with pytest.raises(SettingsError, match="replays or draws from a recording"):
        build_scenario(settings, "burst")
    assert build_scenario(settings, "load+20").arrivals.rows[0].arrival_s == 0.0
