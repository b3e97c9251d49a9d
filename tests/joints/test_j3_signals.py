"""J3 decision → world: models that no domain holds are cut; thinking goes by grids, prices and links that failed."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from attribution_sched.cli.senses import Sees, by_the_mean
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.signals import DAY, Scaled, Series
from attribution_sched.config import load_settings
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.rule import Rule, RuleFork
from attribution_sched.scheduler.thinking import Think

from .measure import moments

DEAR = 100.0
"""USD per kg: at such a price carbon weighs about as much as time."""

FIFTY = 50.0
"""USD per kWh over those of the preset: at such prices electricity weighs about as much as time."""


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
    for view, asked, _ in moments(world_at(DEAR), None, Rule(), 240, seed=5):
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
    assert asked_of >= 20 and changed >= 0.1 * asked_of


# ------ Links that fail, and prices by the hour


def said_of(policy, views):
    """What a policy decides at one moment as it is and as it is told, nothing remembered of others."""
    said = []
    for view in views:
        policy.reset(0)
        said.append(policy.decide(view))
    return said


def down_at(view):
    """Pairs of domains whose link is down at a decision."""
    down = view.moment.state.links[0, st.DOWN]
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(down) > 0.0)]


def hidden(view):
    """The decision as it would be if no link were down, and none were known to fail."""
    moment = view.moment
    links, left = moment.state.links.copy(), moment.arrays.down_left
    raised = np.where(links[0, st.DOWN] > 0.0, 1.0 / left, 1.0)
    links[0, st.BANDWIDTH] *= raised
    links[0, st.DOWN] = 0.0
    moment = replace(moment, state=moment.state._replace(links=links), arrays=moment.arrays._replace(fails=0.0))
    return replace(view, bandwidth_gbps=view.bandwidth_gbps * raised, link_gbps=view.link_gbps * raised, moment=moment)


def crosses(plan, pairs):
    """Whether parts of a model talk over one of the pairs."""
    ends = [{one.domain, other.domain} for each in plan.replicas for one, other in pairwise(each.segments)]
    return any(set(pair) in ends for pair in pairs)


def test_failures_that_are_hidden_put_models_on_links_that_are_down(tell):
    """At decisions on models that no region holds while a link is down: told of it, and not told."""
    policy = RuleFork(think=Think(screen=4, confirm=8))
    asked_of = changed = told_over = hidden_over = 0
    world = world_at(0.1)
    wan = replace(world.cluster.wan, failures=replace(world.cluster.wan.failures, mean_up_h=6.0))
    # Failures as the preset has them are rare: of the same kind, but twenty times as often, so that there are some.
    often = replace(world, cluster=replace(world.cluster, wan=wan))
    for view, asked, _ in moments(often, None, Rule(), 720, seed=7):
        pairs = down_at(view)
        if view.replanning or not pairs or asked.plan is None or len(asked.plan.domains) < 2:
            continue
        shown, unshown = said_of(policy, (view, hidden(view)))
        asked_of += 1
        changed += shown != unshown
        told_over += shown is not None and crosses(shown, pairs)
        hidden_over += unshown is not None and crosses(unshown, pairs)
    tell("J3", cut="link failures hidden", decisions=asked_of, changed=changed, told=told_over, hidden=hidden_over)
    assert asked_of >= 10 and changed >= 0.2 * asked_of
    assert hidden_over > told_over


def flattened(world, count, seed, per_day=60):
    """Placements in a world, and those that are others when electricity is told by its mean."""
    policy = RuleFork(think=Think(screen=4, confirm=8))
    changed = asked_of = 0
    for view, asked, _ in moments(world, None, Rule(), count, seed=seed, per_day=per_day):
        if asked.plan is None or view.replanning:
            continue
        shown, flat = said_of(policy, (view, replace(view, moment=by_the_mean(view.moment, "electricity"))))
        asked_of += 1
        changed += shown != flat
    return asked_of, changed


def test_a_flat_price_changes_decisions_where_electricity_is_dear_and_regions_differ(tell):
    """The tariff, and its mean all day. The preset's own are nearly alike and nobody can dodge them for long."""
    world = world_at(0.0)
    asked_of, changed = flattened(dear(world, lambda k, signal: Scaled(signal, FIFTY)), 240, 5)
    tell(
        "J3",
        cut="electricity by its mean",
        tariff="the preset's, fifty times as high",
        decisions=asked_of,
        changed=changed,
    )
    assert asked_of >= 20

    # Half a day cheap and half a day dear, east and west the other way round.
    day = FIFTY * 0.1 * np.repeat([0.2, 1.8], 12)
    opposite = dear(world, lambda k, _: Series.hourly(day if k % 2 else day[::-1], DAY))
    asked_of, changed = flattened(opposite, 240, 5)
    tell("J3", cut="electricity by its mean", tariff="regions opposite", decisions=asked_of, changed=changed)
    assert asked_of >= 20 and changed >= 0.05 * asked_of


def dear(world, tariff):
    """The same world with electricity fifty times as high, by other tariffs."""
    domains = tuple(
        replace(domain, electricity=tariff(k, domain.electricity)) for k, domain in enumerate(world.cluster.domains)
    )
    reward = replace(world.reward, energy_usd_per_kwh=FIFTY * world.reward.energy_usd_per_kwh)
    return replace(world, cluster=replace(world.cluster, domains=domains), reward=reward)


@pytest.mark.slow
def test_links_that_are_not_shown_cost_traffic(tell):
    """The rule, told what every link carries or its nominal speed: the bill of days that nothing was chosen on."""
    world, days, first = load_settings("cross-domain").build_world(), 90, 5_510_000
    bills = [
        np.array([play(world, Sees((), fork=False, links=shown), first + day).traffic_usd for day in range(days)])
        for shown in (True, False)
    ]
    apart = bills[1] - bills[0]
    half = 1.96 * apart.std(ddof=1) / np.sqrt(days)
    tell("J3", cut="links hidden", days=days, usd_more_a_day=apart.mean(), half=half, of=bills[0].mean())
    assert apart.mean() - half > 0.0
