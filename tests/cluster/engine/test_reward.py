"""What is paid, and when: for work done, for waiting, and what the sum of it means."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.incidents import DomainLoss
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Reward
from tests.cluster.engine_worlds import BERT, begun, chain, decide, restless, rollout, single, tiny_world, traced

ALONE = replace(BERT, epoch_steps=10_000)


@pytest.fixture(scope="module")
def saving():
    """One kind of task, so that all steps are worth the same, and a domain that is lost for a while."""
    kind = replace(BERT, steps=(2000, 8000), epoch_steps=900)
    return begun(tiny_world(restless(), kinds=(kind,), incidents=(DomainLoss(1, 900.0, 1500.0),)))


@pytest.mark.parametrize("per_decision", [True, False])
def test_the_weights_turn_terms_into_the_reward(per_decision):
    reward = Reward(w_eff=0.7, w_util=0.2, w_cost=1.3, per_decision=per_decision)
    engine = begun(tiny_world(restless(), reward=reward))
    for rewards, terms in rollout(engine, 11):
        assert rewards[0] == terms[0] @ np.array([0.7, 0.2, -1.3]) or rewards[0] == pytest.approx(
            terms[0] @ np.array([0.7, 0.2, -1.3]), rel=1e-12, abs=1e-15
        )
        if per_decision:
            own = engine.decisions()
            assert terms[0].tolist() == [own["r_eff"][0], own["r_util"][0], own["r_cost"][0]]


@pytest.mark.parametrize(
    "plan",
    [
        single(ALONE),
        single(ALONE, 0, 4),
        single(ALONE, 0, 1, 2),
        Plan((chain(ALONE, (0, 6), (1, -1)),)),
        Plan((chain(ALONE, (0, 4), (1, 4), (2, -1)),)),
        Plan((chain(ALONE, (0, -1)), chain(ALONE, (2, -1)))),
    ],
)
def test_paid_for_work_a_task_earns_its_terms_for_its_steps_whatever_its_speed(plan):
    engine = begun(traced((0, ALONE), kinds=(ALONE,), reward=Reward(interval_s=600.0)))
    base_step_s = engine.arrays.kinds[0, st.K_BASE_STEP]
    _, terms = decide(engine, plan)
    own = {name: v[0] for name, v in engine.decisions().items()}
    assert engine.totals()["completed"][0] == 1
    earned = 400 * base_step_s / 600.0
    assert terms[0] == pytest.approx([own[name] * earned for name in ("r_eff", "r_util", "r_cost")], rel=1e-9)
    # R_eff is what the baseline would have taken, less what it took.
    assert terms[0, 0] == pytest.approx(400 * (base_step_s - own["step_s"]) / 600.0, rel=1e-9)


def test_a_faster_plan_of_equal_utilisation_and_cost_earns_strictly_more():
    names, figures = ("d0", "d1", "d2"), []
    wan = Wan.uniform(names, gbps=5.0, latency_s=0.02, usd_per_gb=0.08, spread=0.0)
    devices = [gpu("V100-32"), gpu("A100-80"), gpu("H100-80")]
    cluster = Cluster(tuple(Domain(name, device, 4) for name, device in zip(names, devices, strict=True)), wan)
    for domain in range(3):
        engine = begun(traced((0, ALONE), kinds=(ALONE,), cluster=cluster))
        rewards, terms = decide(engine, single(ALONE, domain))
        assert engine.totals()["completed"][0] == 1
        figures.append((engine.decisions()["step_s"][0], rewards[0], *terms[0, 1:]))
    step_s, earned, utils, costs = map(list, zip(*figures, strict=True))
    assert step_s[0] > 1.5 * step_s[1] > 1.5 * step_s[2]
    assert utils == pytest.approx([utils[0]] * 3, rel=0.01)
    assert utils[0] > utils[1] > utils[2]
    assert costs == [0.0, 0.0, 0.0]
    assert earned[0] < earned[1] < earned[2]


@settings(deadline=None, max_examples=25)
@given(seed=hs.integers(0, 2**32 - 1))
def test_the_sum_of_r_eff_is_the_hours_saved_against_the_baseline(saving, seed):
    """Work at the baseline's speed, less the time all tasks spent in the cluster: waiting, moving and losses count."""
    earned = sum(terms[0, 0] for _, terms in rollout(saving, seed))
    state, sums = saving.state, {name: v[0] for name, v in saving.totals().items()}
    there = state.slots[0, :, st.STATUS] != st.FREE
    spent_s = sums["completion_s"] + (state.clock[0, st.NOW] - state.tasks[0, there, st.ARRIVAL]).sum()
    saved_s = (sums["steps_done"] - sums["lost_steps"]) * saving.arrays.kinds[0, st.K_BASE_STEP] - spent_s
    # Nothing is earned before the first decision: the cluster is empty.
    assert earned == pytest.approx(saved_s / 3600.0, rel=1e-9, abs=1e-9)
    assert sums["task_j"] + sums["idle_j"] == pytest.approx(sums["meter_j"], rel=1e-9)


def test_the_savings_include_moves_and_losses(saving):
    seen = {"migrations": 0.0, "lost_steps": 0.0, "completed": 0.0, "restart_s": 0.0}
    for seed in range(6):
        for _ in rollout(saving, seed):
            pass
        seen = {name: total + saving.totals()[name][0] for name, total in seen.items()}
    assert min(seen.values()) > 0, seen


def test_a_waiting_task_earns_the_waiting_rate_and_is_offered_again():
    engine = begun(traced((0, BERT), retry_s=300.0, reward=Reward(interval_s=100.0)))
    _, terms = decide(engine, None)
    assert engine.state.clock[0, st.NOW] == 300.0
    assert terms[0].tolist() == [-3.0, 0.0, 0.0]
    assert engine.state.event[0, st.EVENT] == st.PLACE
    assert engine.totals()["wait_s"][0] == 300.0
