"""The compiled rule decides as the rule does, and its ledger is the cluster's own account, task by task."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import Copies, Wait, fork
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.rule import Rule
from attribution_sched.scheduler.rule_follower import RuleFollower
from tests.small_world import small

DAYS = 3


def nothing_known(counters):
    return np.zeros((len(counters), 7))


def by_the_rule(world):
    """Return of each of some days by the rule, choice by choice, and its tables."""
    rule, tables = Rule(nothing_known, search=False), []

    class Looking(Rule):
        def decide(self, decision):
            tables.append(rule._coordinator.planner(decision))
            return rule.decide(decision)

        def select(self, decision):
            return rule.select(decision)

    found = [play(world, Looking(nothing_known, search=False), 123 + day).reward for day in range(DAYS)]
    return np.array(found), tables[0]


@pytest.mark.parametrize(("preset", "hours"), [("small", 1.0), ("cross-domain-easy", 10.0), ("testbed", 0.5)])
def test_whole_days_are_the_same_and_the_ledger_adds_up(preset, hours):
    settings = small() if preset == "small" else load_settings(preset)
    world = replace(settings.build_world(), horizon_s=3600.0 * hours)
    wanted, planner = by_the_rule(world)
    engine = Engine(world, DAYS)
    engine.seed([123 + i for i in range(DAYS)])
    engine.reset()
    nothing = np.zeros(DAYS, dtype=np.int64)
    ledger = np.zeros((DAYS, 2000, 8))
    ledger[:, :, :2] = np.nan
    actions = np.zeros((DAYS, world.max_segments, 5), dtype=np.int64)
    copies = Copies(
        engine.arrays, engine.state, nothing, nothing, actions, np.zeros((len(engine.pool), 4)), ledger,
        np.zeros((DAYS, 3)), nothing.copy(), not world.reward.per_decision, engine._scratch, {},
        np.ones((DAYS, 2000), dtype=bool),
    )  # fmt: skip
    assert RuleFollower(planner, world).play(copies) > 10
    weights = [world.reward.w_eff, world.reward.w_util, -world.reward.w_cost]
    assert np.allclose(ledger[:, :, 2:5].sum(axis=1) @ weights, wanted, atol=1e-9)
    totals = engine.totals()
    for column, name in ((5, "task_j"), (6, "bill_usd"), (7, "carbon_g")):
        assert np.allclose(ledger[:, :, column].sum(axis=1), totals[name], rtol=1e-9)
    assert np.array_equal(np.isfinite(ledger[:, :, 1]).sum(axis=1), totals["completed"])
    assert (ledger[:, :, 1] >= ledger[:, :, 0])[np.isfinite(ledger[:, :, 1])].all()


def test_a_follower_of_another_cluster_is_refused():
    """Its tables would be read beyond their ends."""
    moments = {}
    for preset in ("testbed", "cross-domain-easy"):
        engine = Engine(load_settings(preset).build_world())
        engine.seed([1])
        engine.reset()
        moments[preset] = view(engine).moment
    with pytest.raises(SettingsError, match=r"follower = 'rule': was made for .* these copies have .*RuleFollower.of"):
        fork(moments["cross-domain-easy"], [Wait()], 1, 1.0, RuleFollower.of(moments["testbed"]), 0)
