"""One policy, one episode, one summary."""

import math
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.wan import DEFAULT_KWH_PER_GB
from attribution_sched.config import load_settings
from attribution_sched.errors import NetworkError, SettingsError
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.episode import Completions, play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.registry import make_policy

from ..cluster.engine_worlds import tiny_cluster, tiny_world


class Waiter:
    """Never places anything."""

    name = "waiter"

    def decide(self, view):
        return None


@pytest.fixture(scope="module")
def world():
    return tiny_world(tiny_cluster(motion={"spread": 0.2}))


def test_the_summary_adds_up(world):
    shares = []
    found = play(world, Greedy(), 5, shares.append)
    assert found.policy == "greedy"
    assert found.arrived >= found.placed >= found.completed > 0
    assert found.task_energy_kwh + found.idle_energy_kwh == pytest.approx(found.energy_kwh, rel=1e-9)
    reward = world.reward
    weighed = reward.w_eff * found.r_eff + reward.w_util * found.r_util - reward.w_cost * found.r_cost
    assert found.reward == pytest.approx(weighed, rel=1e-9)
    assert 0 < found.utilisation <= 1
    assert found.refused_plans == 0
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_absolute_figures_stand_beside_the_reward(world):
    """What worlds can be compared by: a faster link makes the baseline faster and R smaller, but never hours longer."""
    priced = replace(world, reward=replace(world.reward, energy_usd_per_kwh=0.2, carbon_usd_per_kg=0.1))
    found = play(priced, Greedy(), 5)
    assert found.gpu_h == pytest.approx(found.utilisation * world.cluster.devices * world.horizon_s / 3600)
    assert found.electricity_usd == pytest.approx(0.2 * found.energy_kwh)
    assert found.carbon_usd == pytest.approx(0.1 * found.carbon_kg)
    assert found.mean_queue_h == pytest.approx(found.waiting_h / found.arrived)
    assert found.mean_completion_h < found.p95_completion_h < world.horizon_s / 3600


def test_the_same_seed_gives_the_same_summary(world):
    assert play(world, Greedy(), 1) == play(world, Greedy(), 1)
    assert play(world, Greedy(), 1) != play(world, Greedy(), 2)


def test_a_policy_that_only_waits_fills_the_queue_and_turns_the_rest_away(world):
    found = play(world, Waiter(), 0)
    assert (found.placed, found.completed, found.utilisation) == (0, 0, 0.0)
    assert found.turned_away == found.arrived - world.queue_capacity
    assert found.energy_kwh == pytest.approx(found.idle_energy_kwh)
    assert found.r_eff < 0
    assert found.turned_away < found.deadline_misses <= found.arrived


def test_deadlines_loose_enough_are_never_missed(world):
    slack = [replace(kind, deadline_slack=1e6) for kind in world.kinds]
    assert play(replace(world, kinds=tuple(slack), queue_capacity=200), Waiter(), 0).deadline_misses == 0
    tight = [replace(kind, deadline_slack=1e-6) for kind in world.kinds]
    found = play(replace(world, kinds=tuple(tight)), Greedy(), 5)
    assert found.deadline_misses == found.arrived > found.turned_away


def test_an_episode_in_which_nothing_arrives_is_over_at_once():
    found = play(tiny_world(arrivals=Poisson(1e-9)), Greedy(), 0)
    assert (found.arrived, found.decisions, found.reward) == (0, 0, 0.0)
    assert found.energy_kwh == pytest.approx(found.idle_energy_kwh)


def test_an_episode_looks_at_no_clock(world):
    """By a clock on which every look takes seconds, a policy with a deadline earns what it earns without."""
    hurried = HiPpo(think=False, deadline_s=2.0, clock=count(0.0, 5.0).__next__)
    played = play(world, hurried, 3)
    assert hurried.deadline_s == 2.0
    assert played == play(world, HiPpo(think=False, deadline_s=math.inf), 3)


def test_profiling_is_told_by_itself():
    """Each opaque task that entered is charged the devices it asked for, and nothing else of the day changes."""
    world = load_settings(
        {"extends": "shared", "domain_defaults": {"devices": 8}, "episode": {"horizon_s": 14_400.0, "pool_size": 64}}
    ).build_world()
    told = play(world, make_policy("sjf"), 3)
    free = play(replace(world, profiling_s=0.0), make_policy("sjf"), 3)
    assert replace(told, profiling_gpu_h=0.0, profiling_kwh=0.0) == free
    entered = told.arrived - told.turned_away
    gpu, hours = world.cluster.domains[0].gpu, world.profiling_s / 3600.0
    asked = told.profiling_gpu_h / hours
    assert entered >= 5 and entered <= asked <= 8 * entered and asked == pytest.approx(round(asked))
    assert told.profiling_gpu_h * gpu.idle_w < 1e3 * told.profiling_kwh <= told.profiling_gpu_h * gpu.tdp_w
    twice = play(replace(world, profiling_s=600.0), make_policy("sjf"), 3)
    assert twice.profiling_gpu_h == pytest.approx(2.0 * told.profiling_gpu_h)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_profiling_time_is_refused(world, bad):
    """One error with the value, the rule and the fix."""
    with pytest.raises(SettingsError, match=r"profiling_s.*must be finite and >= 0.*0 profiles nothing"):
        replace(world, profiling_s=bad)


def test_the_network_s_energy_is_accounted_and_steers_nothing():
    """What crosses is counted once, its grams lie between those of the two ends, and no other figure moves."""
    settings = {"extends": "cross-domain", "episode": {"horizon_s": 28_800.0, "pool_size": 64}}
    cluster = load_settings(settings).build_world().cluster
    world = load_settings(settings | {"network": {"kwh_per_gb": 0.01}}).build_world()
    free = load_settings(settings | {"network": {"kwh_per_gb": 0.0}}).build_world()
    found, unpriced = play(world, make_policy("sjf"), 3), play(free, make_policy("sjf"), 3)
    assert cluster.wan.kwh_per_gb == DEFAULT_KWH_PER_GB
    assert found.network_gb > 100.0
    assert found.network_kwh == pytest.approx(0.01 * found.network_gb)
    hours = [domain.carbon.at(3600.0 * hour) for domain in cluster.domains for hour in range(8)]
    assert min(hours) <= 1e3 * found.network_carbon_kg / found.network_kwh <= max(hours)
    assert replace(found, network_kwh=0.0, network_carbon_kg=0.0) == unpriced


@pytest.mark.parametrize("bad", [-0.1, float("nan")])
def test_the_network_s_energy_is_refused(world, bad):
    """One error with the value, the rule and the fix."""
    with pytest.raises(NetworkError, match=r"kwh_per_gb.*must be >= 0 and finite"):
        replace(world.cluster.wan, kwh_per_gb=bad)


def test_electricity_and_idle_devices_follow_the_hour_in_every_domain():
    """Nothing arrives: what the meters cost and emit is the idle draw of every hour at that hour's price and grid."""
    settings = {
        "extends": "cross-domain", "episode": {"horizon_s": 28_800.0, "pool_size": 8},
        "arrivals": {"kind": "poisson", "rate_per_hour": 1e-6},
    }  # fmt: skip
    world = load_settings(settings).build_world()
    found = play(world, make_policy("sjf"), 3)
    usd = kg = 0.0
    for domain in world.cluster.domains:
        kwh = domain.devices * domain.gpu.idle_w / 1e3
        usd += sum(kwh * domain.electricity.at(3600.0 * hour) for hour in range(8))
        kg += sum(kwh * domain.carbon.at(3600.0 * hour) for hour in range(8)) / 1e3
    assert (found.arrived, found.carbon_kg) == (0, 0.0)
    assert found.electricity_usd == pytest.approx(usd, rel=1e-9) and found.idle_carbon_kg == pytest.approx(kg, rel=1e-9)
    assert found.electricity_usd != pytest.approx(found.energy_kwh * world.reward.energy_usd_per_kwh, rel=1e-3)


def test_the_percentile_knows_when_a_task_ended_that_nobody_was_asked_about_again(tmp_path):
    """Two tasks of a quiet day: the last to be placed ends hours before the next event, which is the day's end."""
    trace = "arrival_s,model,steps,batch_size,priority,tenant,mode\n"
    trace += "0,opaque-4,3600,4,0,physics,training\n1800,opaque-1,600,1,0,bio,training\n"
    (tmp_path / "two.csv").write_text(trace)
    settings = {"extends": "shared", "arrivals": {"kind": "trace", "path": str(tmp_path / "two.csv")}}
    found = play(load_settings(settings).build_world(), make_policy("sjf"), 3)
    assert found.completed == 2 and found.mean_completion_h == pytest.approx((3600 + 600) / 2 / 3600, rel=0.01)
    assert found.p95_completion_h == pytest.approx(np.quantile([600.0, 3600.0], 0.95) / 3600, rel=0.01)


def test_a_task_that_ended_before_it_was_due_took_what_the_cluster_summed():
    """On real clusters ends are reported: the twin keeps a task at work beyond any horizon until one is."""
    engine = Engine(load_settings("testbed").build_world())
    state, completions = engine.state, Completions()
    for slot, left in ((0, 600.0), (1, 1e9)):
        state.slots[0, slot, [st.STATUS, st.SERIAL]] = st.RUNNING, slot
        state.tasks[0, slot, [st.LEFT, st.STEP]] = left, 1.0
    completions.begin(engine)
    # Both have ended an hour later, one as it was due and one after 900 s; nobody looked in between.
    state.slots[0, :2, st.STATUS], state.clock[0, st.NOW] = st.FREE, 3600.0
    state.totals[0, [st.COMPLETED, st.COMPLETION_S]] += 2.0, 600.0 + 900.0
    completions.end(engine)
    assert completions.seconds == [600.0, 900.0]
