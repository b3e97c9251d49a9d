"""The table of layouts: how the seconds of a step hang on what is believed of the task."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.cost import Workload
from attribution_sched.config import load_settings
from attribution_sched.planning.memory_feasibility import whole_step
from attribution_sched.scheduler.hi_ppo.lower_agent import layout_table, step_s
from attribution_sched.scheduler.hi_ppo.policy_search import Days

from . import worlds


@pytest.fixture(scope="module")
def tables():
    world = replace(load_settings("cross-domain").build_world(), horizon_s=3600.0)
    planner = Days(world, 1, worlds.weights()).planner
    reward = world.reward
    return planner.tables, layout_table(planner.tables, np.array([reward.w_eff, reward.w_util, reward.w_cost]))


@pytest.mark.parametrize("factor", range(3))
def test_a_task_that_computes_more_takes_as_much_longer_as_its_plan_is_priced(tables, factor):
    """Halved elasticities change two of three decisions of the default policy: here they are held to the prices."""
    planner, table = tables
    checked = 0
    for kind, c, j in np.argwhere(np.isfinite(table.seconds)):
        lay, q, v = table.pick[kind, c, j]
        logs, ratios = np.zeros(3), np.ones(3)
        logs[factor], ratios[factor] = 0.2, np.exp(0.2)
        priced, _ = whole_step(planner, Workload(kind, planner.training[kind], *ratios), c, lay, q, v)
        told = step_s(table, kind, c, j, logs)
        assert np.log(told / table.seconds[kind, c, j]) == pytest.approx(
            np.log(priced / table.seconds[kind, c, j]), abs=0.03
        )
        checked += 1
    assert checked > 10
    assert table.shares[..., factor].max() > 0.2


def test_of_a_nominal_task_the_table_is_the_price(tables):
    _, table = tables
    for kind, c, j in np.argwhere(np.isfinite(table.seconds)):
        assert step_s(table, kind, c, j, np.zeros(3)) == table.seconds[kind, c, j]
