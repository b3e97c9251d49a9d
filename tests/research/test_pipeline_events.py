"""The SimPy event simulation by hand, against the recurrence, and on bad input."""

from itertools import pairwise

import numpy as np
import pytest
from pipeline_agreement import random_pipeline, recurrence

from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.errors import PlanError
from research.pipeline_events import (
    all_forward_all_backward,
    one_forward_one_backward,
    simulate_pipeline,
)


@pytest.mark.parametrize("block", range(8))
def test_recurrence_equals_the_simulation(block):
    for seed in range(40 * block, 40 * (block + 1)):
        case = random_pipeline(seed)
        np.testing.assert_allclose(recurrence(case), simulate_pipeline(*case), rtol=1e-9, err_msg=f"seed {seed}")


def test_the_random_cases_cover_what_they_should():
    cases = [random_pipeline(seed) for seed in range(320)]
    assert {(case.schedule, case.blocking) for case in cases} == {(s, b) for s in Schedule for b in (False, True)}
    assert {len(case.forward_s) for case in cases} == set(range(1, 9))
    assert {case.microbatches for case in cases} == set(range(1, 25))


def test_two_stages_by_hand():
    finish = simulate_pipeline(Schedule.ONE_F_ONE_B, 1, [1.0, 1.0], [2.0, 2.0], [2.0], [3.0])
    assert finish.tolist() == [11.0, 6.0]


def test_blocking_by_hand():
    # The sender computes its second forward only after the first message is out: 0-1, send to 6, 6-7, send to 12.
    case = (Schedule.GPIPE, 2, [1.0, 0.5], [0.0, 0.0], [5.0], [0.0])
    assert simulate_pipeline(*case).tolist() == [11.5, 11.5]
    assert simulate_pipeline(*case, blocking=True).tolist() == [12.5, 12.5]


@pytest.mark.parametrize("microbatches", [1, 3, 8])
def test_orders_run_every_pass_once_and_forward_first(microbatches):
    for stage in range(4):
        for order in (one_forward_one_backward(stage, 4, microbatches), all_forward_all_backward(microbatches)):
            listed = list(order)
            assert len(set(listed)) == len(listed) == 2 * microbatches
            for microbatch in range(microbatches):
                assert listed.index(("forward", microbatch)) < listed.index(("backward", microbatch))


def test_one_forward_one_backward_keeps_few_microbatches_alive():
    for stage in range(4):
        alive, peak = 0, 0
        for kind, _ in one_forward_one_backward(stage, 4, 16):
            alive += 1 if kind == "forward" else -1
            peak = max(peak, alive)
        assert peak == 4 - stage


def test_the_last_stage_alternates():
    kinds = [kind for kind, _ in one_forward_one_backward(3, 4, 5)]
    assert all(a != b for a, b in pairwise(kinds))


@pytest.mark.parametrize(
    "changes",
    [
        {"microbatches": 0},
        {"forward_s": [1.0, -1.0]},
        {"backward_s": [1.0]},
        {"send_forward_s": []},
        {"send_backward_s": [np.nan]},
        {"forward_s": []},
    ],
)
def test_bad_input_is_refused(changes):
    good = {
        "microbatches": 2,
        "forward_s": [1.0, 1.0],
        "backward_s": [1.0, 1.0],
        "send_forward_s": [0.0],
        "send_backward_s": [0.0],
    }
    with pytest.raises(PlanError):
        simulate_pipeline(Schedule.GPIPE, **{**good, **changes})
