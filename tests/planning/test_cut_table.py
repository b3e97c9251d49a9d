"""The table of cuts: what it lists can be done, fits, and is about what the deployed policy's search comes to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import Plan as PlanRecord
from attribution_sched.cluster.plan import PlanBatch, Replica, Segment, layout_table
from attribution_sched.cluster.reward import samples
from attribution_sched.config import load_settings
from attribution_sched.planning.cut_table import cut_table
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.checkpoint import load
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.hi_ppo.upper_agent import rule_theta
from attribution_sched.scheduler.rule_follower import RuleFollower

DAYS, FIRST = 6, 77_000


@pytest.fixture(scope="module")
def days() -> Days:
    return Days(load_settings("cross-domain").build_world(), DAYS, load())


def test_every_cut_can_be_done_and_takes_what_it_says(days: Days) -> None:
    world, cuts = days.world, days.agents.rule.cuts
    cost = CostModel(world.cluster, [kind.model for kind in world.kinds], [kind.training for kind in world.kinds])
    layouts = layout_table(world.cluster, world.share_limit > 1)
    assert cuts.counts.tolist()[:2] == [50, 50] and not cuts.counts[2:].any()
    for k in range(2):
        for m in range(int(cuts.counts[k])):
            rows = cuts.action[k, m][cuts.action[k, m, :, 0] < len(world.cluster)]
            segments, first, needs = [], 0, np.zeros(len(world.cluster), dtype=np.int64)
            for domain, stop, layout, precision, _ in rows.tolist():
                dp, tp, pp, _ = layouts[layout].tolist()
                segments.append(Segment(domain, first, stop, dp, tp, pp, PRECISIONS[precision]))
                needs[domain] += dp * tp * pp
                first = stop
            micro = world.kinds[k].microbatches[int(rows[0, 4])]
            plan = PlanRecord((Replica(tuple(segments), micro, world.kinds[k].batch_size // micro),))
            priced = cost.score(PlanBatch.of([plan]), k)
            assert priced.fits[0] and len(segments) > 1
            assert np.array_equal(needs, cuts.needs[k, m])
            assert (needs <= [domain.devices for domain in world.cluster.domains]).all()
            norm = world.kinds[k].batch_size / samples(PlanBatch.of([plan]))[0]
            base = days.agents.planner.tables.base_step_s[k]
            assert cuts.held[k, m] == pytest.approx(needs.sum() * norm * priced.step_s[0] / base)


def test_copies_are_played_on_about_as_the_deployed_policy_would(days: Days) -> None:
    """Cut the table, and copies cut models as nobody does who searches: a day earns far less in them than outside."""
    theta = load().theta
    deployed = np.array([play(days.world, HiPpo(), FIRST + day).reward for day in range(DAYS)])
    searched = days.returns(theta, FIRST)
    agents, days.agents = days.agents, RuleFollower(days.agents.planner, days.world, rule_theta(), search=False)
    raw = days.returns(theta, FIRST)
    days.agents = agents
    assert (deployed - raw).mean() > 2.0
    assert abs((deployed - searched).mean()) < 0.5 * (deployed - raw).mean()


def test_models_that_one_domain_holds_and_clusters_of_one_domain_have_no_cuts() -> None:
    for preset in ("cross-domain-easy", "testbed"):
        world = replace(load_settings(preset).build_world(), pool_size=32)
        assert not Days(world, 1, load()).agents.rule.cuts.counts.any()


def test_a_table_is_made_once_and_again_where_a_price_differs(days: Days) -> None:
    tables, spanning = days.agents.planner.tables, days.agents.planner.spanning
    given = spanning, tables.base_step_s, tables.base_cost_usd
    world = days.world
    assert cut_table(world, *given) is cut_table(replace(world), *given)
    dear = replace(world, reward=replace(world.reward, w_cost=5.0))
    assert not np.allclose(cut_table(dear, *given).worth, cut_table(world, *given).worth)
