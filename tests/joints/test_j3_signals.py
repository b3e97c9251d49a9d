"""J3 decision → world: models that no domain holds are cut, and grids by the hour are what thinking goes by."""

from dataclasses import replace

import numpy as np

from attribution_sched.config import load_settings
from attribution_sched.scheduler.hi_ppo.rule import Rule, RuleFork
from attribution_sched.scheduler.thinking import Think

from .measure import moments

DEAR = 100.0
"""USD per kg: at such a price carbon weighs about as much as time."""


def world_at(price):
    world = load_settings("cross-domain").build_world()
    return replace(world, reward=replace(world.reward, carbon_usd_per_kg=price))


def test_where_most_work_fits_no_domain_plans_are_cut(tell):
    plans = crossing = 0
    for _, asked, outcome in moments(world_at(0.1), None, Rule(), 240, seed=3):
        if outcome.code > 0 and not asked.view.replanning:
            plans += 1
            crossing += len(asked.plan.domains) > 1
    tell("J3", preset="cross-domain", policy="rule", plans=plans, over_several_domains=crossing)
    assert crossing >= 0.2 * plans > 0


def as_if(view, ratios):
    """The decision as it would be with other grids: the present hour, and so all that is forecast from it, scaled."""
    moment = view.moment
    domains = tuple(
        replace(domain, carbon=None, carbon_g_per_kwh=domain.carbon_g_per_kwh)
        for domain in moment.world.cluster.domains
    )
    world = replace(moment.world, cluster=replace(moment.world.cluster, domains=domains))
    signals = moment.arrays.signals.copy()
    signals[1, 0] = ratios
    return replace(view, moment=replace(moment, world=world, arrays=moment.arrays._replace(signals=signals)))


def test_cutting_the_hours_changes_decisions(tell):
    """Carbon told as it is, and told the other way round: the cleanest grid as dirty as the dirtiest and vice versa."""
    policy = RuleFork(think=Think(screen=4, confirm=8))
    changed = asked_of = 0
    for view, asked, _ in moments(world_at(DEAR), None, Rule(), 60, seed=5):
        if asked.plan is None or view.replanning:
            continue
        tables = np.array([domain.carbon_g_per_kwh for domain in view.moment.world.cluster.domains])
        upside_down = np.sort(tables)[::-1][np.argsort(np.argsort(tables))] / tables
        said = []
        for told in (np.ones(len(tables)), upside_down):
            policy.reset(0)
            said.append(policy.decide(as_if(view, told)))
        asked_of += 1
        changed += said[0] != said[1]
    tell("J3", cut="grids upside down", decisions=asked_of, changed=changed)
    assert asked_of >= 10 and changed >= 0.1 * asked_of
