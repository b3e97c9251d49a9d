"""The greedy rule: the best plan of the moment, or wait."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import Plan, PlanBatch, layouts_within
from attribution_sched.cluster.world import TaskKind
from attribution_sched.rivals.greedy import Greedy

from ..cluster.engine_worlds import BERT, GPT2, begun, chain, decide, single, tiny_cluster, tiny_world, traced

LONG = replace(BERT, steps=(100_000, 100_000), epoch_steps=1000)


def test_it_takes_the_best_of_its_candidates():
    engine = begun(traced((0, BERT), (0, GPT2), kinds=(BERT, GPT2)))
    seen, rule = view(engine), Greedy(seconds_per_usd=0.0, seconds_per_device=0.0)
    candidates = rule._candidates(seen)
    priced = seen.cost.score(PlanBatch.of(candidates), seen.kind_index, breakdown=False)
    chosen = rule.decide(seen)
    index = candidates.index(chosen)
    assert priced.fits[index]
    assert priced.step_s[index] == priced.step_s[priced.fits].min()
    assert len({len(plan.segments) for plan in candidates}) == 2


def test_what_it_decides_is_carried_out():
    engine = begun(tiny_world(), seed=2)
    rule = Greedy()
    while not engine.state.event[0, st.DONE]:
        plan = rule.decide(view(engine))
        engine.step(encode(engine, plan, int(engine.pending_kind()[0]))[None])
        assert engine.decisions()["code"][0] >= 0
    assert engine.totals()["completed"][0] > 10


def test_a_task_that_fits_nowhere_waits():
    # Three devices together hold its states, but the rule spans two domains at most.
    giant = TaskKind(model("gpt3-13b"), 8, (1, 2, 4, 8), (10, 10), 10)
    engine = begun(traced((0, giant), kinds=(giant,), cluster=tiny_cluster(3, 1, motion={"spread": 0.0})))
    assert Greedy().decide(view(engine)) is None


def test_with_no_free_device_it_waits():
    engine = begun(traced((0, LONG), (0, LONG), kinds=(LONG,), cluster=tiny_cluster(1, 1), max_segments=1))
    decide(engine, single(LONG))
    assert Greedy().decide(view(engine)) is None


def test_a_running_task_is_moved_only_for_a_gain_worth_the_pause():
    split = Plan((chain(LONG, (0, 6), (1, -1), micro=4),))
    engine = begun(traced((0, LONG), kinds=(LONG,)))
    decide(engine, split)
    assert view(engine).replanning
    assert Greedy().decide(view(engine)) is not None
    soon = replace(view(engine), steps_left=1.0)
    assert Greedy().decide(soon) is None


@pytest.mark.parametrize("devices", [1, 3, 8, 64])
def test_layouts_are_powers_of_two_that_fit(devices):
    rows = np.array(layouts_within(devices, 8))
    assert (rows.prod(axis=1) <= devices).all()
    assert (np.log2(rows) % 1 == 0).all()
    assert rows[:, 2].max() <= 8
    assert len({tuple(row) for row in rows.tolist()}) == len(rows)
