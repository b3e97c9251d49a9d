"""When a running task should move."""

from dataclasses import replace

import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.planning.segment_table import single_domain_plans
from attribution_sched.rivals.exact_policy import best_move, move_gain_s

from ..cluster.engine_worlds import BERT, begun, chain, decide, traced

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)


@pytest.fixture(scope="module")
def split():
    """A decision on a task that runs badly: cut over two domains, one device each."""
    engine = begun(traced((0, LONG), kinds=(LONG,)))
    decide(engine, Plan((chain(LONG, (0, 6), (1, -1), micro=4),)))
    return view(engine)


def test_the_gain_is_what_the_steps_left_earn_less_what_moving_takes(split):
    batch = single_domain_plans(split)
    found, now = value(split, batch), value(split, PlanBatch.of([split.current_plan]))
    plan, base_s, base_usd = batch.plan(5), split.base_step_s[0], split.base_cost_usd[0]
    pause_s, usd = split.move_cost(plan)
    assert usd > 0
    saved_s = split.steps_left * (now.step_s[0] - found.step_s[5])
    busier = split.steps_left * base_s * (found.r_util[5] - now.r_util[0])
    saved_usd = split.steps_left * (now.bill_usd[0] - found.bill_usd[5])
    expected = saved_s - pause_s + 0.5 * busier + 0.5 * (saved_usd - usd) * base_s / base_usd
    assert move_gain_s(split, plan, found.reward[5], now.reward[0]) == pytest.approx(expected)
    free = replace(split, base_cost_usd=0.0 * split.base_cost_usd)
    assert move_gain_s(free, plan, 1.0, 1.0) == pytest.approx(-pause_s)


def test_the_best_move_gains_most_and_the_last_steps_are_not_worth_one(split):
    batch = single_domain_plans(split)
    chosen = best_move(split, batch, value(split, batch))
    assert chosen is not None
    soon = replace(split, steps_left=1.0)
    assert best_move(soon, batch, value(soon, batch)) is None


def test_of_two_equal_plans_the_one_that_needs_less_sending_is_taken(split):
    # Domain 0 holds six layers of the model already, domain 2 none.
    batch = single_domain_plans(split, domains=[2, 0, 1])
    assert best_move(split, batch, value(split, batch)).domains[0] != 2


def test_nothing_moves_that_does_not_run_or_would_earn_less(split):
    batch = single_domain_plans(split)
    assert best_move(replace(split, current_plan=None), batch, value(split, batch)) is None
    best = batch.plan(int(value(split, batch).reward.argmax()))
    assert best_move(replace(split, current_plan=best), batch, value(split, batch)) is None
