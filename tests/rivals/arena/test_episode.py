"""What the arena needs of an episode: step times weighted by work, and how long decisions took."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.incidents import DomainLoss
from attribution_sched.cluster.plan import Plan
from attribution_sched.scheduler.episode import play
from tests.cluster.engine_worlds import BERT, GPT2, begun, chain, single, traced
from tests.rivals.arena_players import Lone, Waiter, small_world

LONG = replace(BERT, steps=(40_000, 40_000), epoch_steps=5000)


class Mover(Lone):
    """Begins on two domains and moves to one device at the first chance."""

    def decide(self, view):
        if view.replanning:
            return single(view.kind, 2) if len(view.current_plan.segments) > 1 else None
        return Plan((chain(view.kind, (0, 6), (1, -1), micro=4),))


def test_the_step_ratio_of_equal_tasks_is_that_of_their_plan():
    world = traced((0, BERT), (100, BERT), kinds=(BERT,))
    found = play(world, Lone(), 0)
    engine = begun(world)
    own_s = float(engine.cost.score(single(BERT), 0, breakdown=False).step_s[0])
    base_s = float(engine.arrays.kinds[0, st.K_BASE_STEP])
    assert found.completed == 2
    assert found.steps_done == pytest.approx(2 * BERT.steps[0])
    assert found.mean_step_s == pytest.approx(own_s, rel=1e-6)
    assert found.step_ratio == pytest.approx(own_s / base_s, rel=1e-6)


def test_longer_work_weighs_more():
    found = play(traced((0, BERT), (0, GPT2), kinds=(BERT, GPT2)), Lone(), 0)
    engine = begun(traced((0, BERT), (0, GPT2), kinds=(BERT, GPT2)))
    own_s = np.array(
        [float(engine.cost.score(single(k), i, breakdown=False).step_s[0]) for i, k in enumerate((BERT, GPT2))]
    )
    base_s, steps = engine.arrays.kinds[:, st.K_BASE_STEP], np.array([BERT.steps[0], GPT2.steps[0]])
    work = steps * base_s
    assert found.step_ratio == pytest.approx(float((work * own_s / base_s).sum() / work.sum()), rel=1e-6)


def test_waiting_and_moving_are_not_step_time():
    world = traced((0, LONG), kinds=(LONG,), restart_s=300.0)
    found = play(world, Mover(), 0)
    assert found.moves == 1
    engine = Engine(world)
    plans = [Plan((chain(LONG, (0, 6), (1, -1), micro=4),)), single(LONG, 2)]
    split_s, lone_s = (float(engine.cost.score(plan, 0, breakdown=False).step_s[0]) for plan in plans)
    # Some steps on each plan, and nothing of the pause between them.
    assert min(split_s, lone_s) * 0.99 <= found.mean_step_s <= max(split_s, lone_s) * 1.01
    paused_h = world.horizon_s / 3600 - found.running_h
    assert paused_h * 3600 > 300.0
    queued = play(traced((0, LONG), kinds=(LONG,)), Waiter(), 0)
    assert (queued.running_h, queued.steps_done) == (0.0, 0.0)


def replayed(world, rule, seed):
    """Totals of the same episode, by the engine itself."""
    engine = begun(world, seed=seed)
    while not engine.state.event[0, st.DONE]:
        engine.step(encode(engine, rule.decide(view(engine)), int(engine.pending_kind()[0]))[None])
    return {name: float(values[0]) for name, values in engine.totals().items()}


def test_a_busy_day_adds_up():
    found, totals = play(small_world(), Lone(), 3), replayed(small_world(), Lone(), 3)
    assert found.steps_done == pytest.approx(totals["steps_done"], rel=1e-9)
    assert found.running_h < found.baseline_running_h


def test_steps_lost_with_a_domain_are_time_without_work():
    world = traced((0, LONG), kinds=(LONG,), incidents=(DomainLoss(0, 600.0, 1200.0),), restart_s=120.0)
    found, totals = play(world, Lone(), 0), replayed(world, Lone(), 0)
    assert totals["lost_steps"] > 0
    assert found.steps_done == pytest.approx(totals["steps_done"] - totals["lost_steps"], rel=1e-9)
    own_s = float(Engine(world).cost.score(single(LONG), 0, breakdown=False).step_s[0])
    assert 3600.0 * found.running_h == pytest.approx(totals["steps_done"] * own_s, rel=1e-6)
    assert found.mean_step_s > own_s


def test_every_decision_is_timed():
    heard = []
    found = play(small_world(), Lone(), 0, timer=lambda seconds, planned: heard.append((seconds, planned)))
    assert len(heard) == found.decisions
    assert all(seconds > 0 for seconds, _ in heard)
    assert sum(planned for _, planned in heard) == found.placed
