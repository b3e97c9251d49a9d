import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError
from attribution_sched.planning.candidates import feasible
from attribution_sched.rivals.exact_policy import switching_gain
from attribution_sched.rivals.seq2seq.decoding import decode, with_cuts_moved
from attribution_sched.rivals.seq2seq.policy import SupervisedPointer
from attribution_sched.scheduler.episode import play
from tests.scheduler.states import check_states, small_worlds

from ...cluster.engine_worlds import tiny_cluster, tiny_world
from .decisions import moment, small_network

WORLDS = small_worlds()


def states_of(policy, each, presets):
    plans = sum(check_states(world, policy, each, seed=100 * w + 7) for w, world in enumerate(WORLDS.values()))
    for preset in ("cross-domain-easy", "testbed"):
        plans += check_states(load_settings(preset).build_world(), policy, presets, seed=3)
    return plans


def test_no_plan_is_refused():
    assert states_of(SupervisedPointer(width=8), each=12, presets=12) > 10


@pytest.mark.slow
def test_no_plan_is_refused_in_a_thousand_states():
    assert states_of(SupervisedPointer(), each=120, presets=80) > 300


def test_no_plan_of_an_untrained_network_is_refused():
    policy = SupervisedPointer(network=small_network(), width=4)
    assert states_of(policy, each=8, presets=4) > 5


@pytest.mark.parametrize("move_cuts", [True, False])
def test_the_best_of_what_was_priced_is_taken(move_cuts):
    policy = SupervisedPointer(width=16, move_cuts=move_cuts)
    for seed in range(8):
        view = moment(seed)
        plan = policy.decide(view)
        if policy.last.source != "network":
            continue
        batch = decode(policy.network, view, 16).batch
        reward = value(view, with_cuts_moved(batch) if move_cuts else batch).reward
        assert float(value(view, PlanBatch.of([plan])).reward[0]) == pytest.approx(reward.max())


def test_a_fallback_is_named():
    policy = SupervisedPointer(network=small_network(5), width=1)
    sources = set()
    for seed in range(30):
        view = moment(seed)
        plan = policy.decide(view)
        sources.add(policy.last.source)
        assert (plan is None) == (policy.last.source == "none")
        if policy.last.source == "network":
            assert policy.last.feasible > 0
        else:
            assert policy.last.feasible == 0 and not policy.last.likeliest_fits
        assert plan is None or feasible(view, plan) is None
    assert "network" in sources and sources & {"moved-cut", "one-domain", "proportional"}


def test_without_free_devices_the_task_waits():
    view = replace(moment(1), free_devices=np.zeros(4, dtype=np.int64))
    assert SupervisedPointer().decide(view) is None


def test_a_running_task_moves_only_if_it_pays():
    policy = SupervisedPointer()
    moved = stayed = 0
    for seed in range(6):
        view = moment(seed)
        best, worse = policy.propose(view).plan, SupervisedPointer(network=small_network(1), width=1).propose(view).plan
        if best is None or worse is None or best == worse:
            continue
        running = replace(view, replanning=True, current_plan=worse)
        for steps in (1e-3, 1e6):
            again = replace(running, steps_left=steps)
            plan = policy.decide(again)
            gain = switching_gain(again, best)
            assert (plan is not None) == (gain > 0.0)
            moved, stayed = moved + (plan is not None), stayed + (plan is None)
        assert policy.decide(replace(running, current_plan=best)) is None
    assert moved and stayed


def test_an_episode_is_played_the_same_twice():
    world = tiny_world(tiny_cluster())
    first, second = (play(world, SupervisedPointer(), 3) for _ in range(2))
    assert first == second and first.placed > 0 and first.refused_plans == 0


def test_a_beam_of_nothing_is_refused():
    with pytest.raises(SettingsError, match="width"):
        SupervisedPointer(width=0)


def test_making_the_policy_does_not_load_torch():
    code = (
        "import sys; from attribution_sched.rivals.seq2seq.policy import SupervisedPointer as P; P();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
