"""Waiting for a cleaner hour: found where forecasts say so, taken where delay is cheap, in time, and explained."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.signals import Forecast
from attribution_sched.explain.room import best_inside
from attribution_sched.explain.why import Cause, why_waiting
from attribution_sched.scheduler.hi_ppo.rule import RuleFork
from attribution_sched.scheduler.thinking import Think, later_start
from tests.docs_text import script
from tests.small_world import small

THINK = Think(screen=2, confirm=4, hours=6.0, arrivals=1e6)


@dataclass(frozen=True)
class Told:
    """A grid whose hours are known: dirty at first, clean from an hour on, dirty again."""

    clean_from_h: int = 3
    clean: float = 20.0
    dirty: float = 600.0

    def at(self, time_s):
        return self.clean if self.clean_from_h <= time_s // 3600 < self.clean_from_h + 6 else self.dirty

    def forecast(self, time_s, horizon_s):
        return Forecast(self.at(time_s + horizon_s), 10.0)

    @property
    def persistence(self):
        return 0.0


def seen_with(signal, *, w_eff=1e-6, carbon=100.0):
    """The first task of a day in an empty cluster whose grids all have the signal."""
    world = replace(small().build_world(), horizon_s=12 * 3600.0)
    domains = tuple(replace(domain, carbon=signal) for domain in world.cluster.domains)
    reward = replace(world.reward, w_eff=w_eff, w_util=0.0, w_cost=1.0, carbon_usd_per_kg=carbon)
    engine = Engine(replace(world, cluster=replace(world.cluster, domains=domains), reward=reward))
    engine.seed([3])
    engine.reset()
    while (seen := view(engine)) is None or len(seen.queue) != 1 or seen.replanning:
        engine.step(encode(engine, None, 0)[None])
    # Nobody else comes: what is compared is this task alone.
    return replace(seen, moment=replace(seen.moment, law=None))


def test_the_best_start_is_the_one_that_summing_the_hours_finds():
    seen = seen_with(Told())
    plan = best_inside(seen, 0)
    found = later_start(seen, plan, 8.0)
    hour = seen.time_s // 3600
    assert found is not None and found.hours == 3.0 - hour
    assert found.carbon_g > 0.0 and found.carbon_error_g > 0.0 and found.usd == 0.0
    # A short run inside one hour: what is saved is the whole difference between the two hours.
    predicted = found.carbon_g / (Told().dirty - Told().clean)
    assert predicted > 0.0 and np.isfinite(predicted)


def test_nothing_is_found_where_nothing_changes_costs_nothing_or_would_be_late():
    plan = best_inside(seen_with(Told()), 0)
    assert later_start(seen_with(None), plan, 8.0) is None
    assert later_start(seen_with(Told(), carbon=0.0), plan, 8.0) is None
    assert later_start(seen_with(Told(clean=600.0)), plan, 8.0) is None
    seen = seen_with(Told())
    late = replace(seen, task=replace(seen.task, deadline_s=seen.time_s + 3600.0))
    assert later_start(late, plan, 8.0) is None
    assert later_start(replace(seen, moment=None), plan, 8.0) is None


def decided(seen):
    policy = RuleFork(think=THINK)
    policy.reset(0)
    policy.select(seen)
    return policy.decide(seen), policy


def test_thinking_leaves_the_task_where_delay_is_cheap_and_says_what_it_saves_and_costs():
    plan, policy = decided(seen_with(Told()))
    assert plan is None
    thought = policy.last.thought
    assert thought.options[thought.chosen].later.hours >= 1.0
    assert "for a cleaner hour" in policy.last.reason and "kg" in policy.last.reason and "USD" in policy.last.reason


@pytest.mark.parametrize("cut", ["delay is dear", "forecast is flat", "carbon is free"])
def test_cut_it_and_the_task_starts_now(cut):
    seen = {
        "delay is dear": lambda: seen_with(Told(), w_eff=1.0),
        "forecast is flat": lambda: seen_with(Told(clean=600.0)),
        "carbon is free": lambda: seen_with(Told(), carbon=0.0),
    }[cut]()
    plan, policy = decided(seen)
    assert plan is not None
    assert "cleaner" not in policy.last.reason


def test_why_names_the_cleaner_hour_in_both_languages():
    seen = seen_with(Told())
    _, policy = decided(seen)
    why = why_waiting(policy, seen)
    assert why.cause is Cause.LINK_OR_PRICE
    assert "a cleaner hour comes" in why.say() and "kg" in why.say() and "h of delay" in why.say()
    assert "电力更清洁" in why.say("zh")


def test_at_a_price_of_carbon_one_site_waits_for_cleaner_hours_and_the_meter_shows_it():
    """Usual weight of time, 1,000 USD/kg: the same arrivals with the choice and with it cut, by the meter."""
    hours = script("benchmarks/cleaner_hour.py")
    free, cut = (hours.played(1000.0, 4200, 120.0, waits=waits) for waits in (True, False))
    assert free["taken"] > 0 == cut["taken"] == cut["offered"]
    assert free["carbon_g"] / free["steps"] < 0.97 * cut["carbon_g"] / cut["steps"]
    assert free["waiting_h"] > cut["waiting_h"]


def test_a_system_says_why_it_lets_a_task_wait_for_a_cleaner_hour():
    hours = script("benchmarks/cleaner_hour.py")
    with System(hours.site(1000.0), RuleFork(think=hours.THINK), seed=4200, explain=False) as system:
        for _ in range(30):
            system.schedule_next_task()
            reasons = [record.source for record in system.journal.decisions()]
            if any("for a cleaner hour" in reason for reason in reasons):
                break
        told = next(reason for reason in reasons if "for a cleaner hour" in reason)
        assert "kg" in told and "h later" in told
