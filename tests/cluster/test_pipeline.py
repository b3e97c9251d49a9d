"""The pipeline recurrence against ASTRA-sim's step times, closed forms and the laws of max-plus."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.pipeline import Schedule, pipeline_times

CASES = json.loads((Path(__file__).parents[1] / "cases" / "astra_sim_pipelines.json").read_text())
GIB = 2.0**30
SCHEDULES = {"1f1b": Schedule.ONE_F_ONE_B, "gpipe": Schedule.GPIPE}
LAW = settings(deadline=None, max_examples=50)


def run(schedule, microbatches, forward, backward, onward, back, blocking=False):
    """Finish times of one pipeline; ``onward`` and ``back`` are per boundary."""
    stages = len(forward)
    return pipeline_times(
        schedule,
        np.array([stages]),
        np.array([microbatches]),
        np.array([forward]),
        np.array([backward]),
        np.array([[*onward, 0.0]]),
        np.array([[0.0, *back]]),
        blocking=blocking,
    )


seconds = st.floats(0.0, 10.0, allow_nan=False)
positive = st.floats(1e-3, 10.0, allow_nan=False)


@st.composite
def pipelines(draw):
    stages = draw(st.integers(1, 6))

    def times(kind, count):
        return draw(st.lists(kind, min_size=count, max_size=count))

    return {
        "schedule": draw(st.sampled_from(list(Schedule))),
        "microbatches": draw(st.integers(1, 12)),
        "forward": times(positive, stages),
        "backward": times(positive, stages),
        "onward": times(seconds, stages - 1),
        "back": times(seconds, stages - 1),
        "blocking": draw(st.booleans()),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['schedule']}-{len(c['forward_s'])}x{c['microbatches']}")
def test_step_time_is_astra_sims(case):
    boundary, link = np.array(case["boundary_bytes"]), np.array(case["link_gib_per_s"])
    send = np.array(case["link_latency_s"]) + boundary / (link * GIB)
    found = run(SCHEDULES[case["schedule"]], case["microbatches"], case["forward_s"], case["backward_s"], send, send)
    assert found.step_s[0] == pytest.approx(case["step_s"], rel=1e-6)


def test_there_are_forty_cases_of_both_schedules():
    assert len(CASES) == 40
    assert {case["schedule"] for case in CASES} == set(SCHEDULES)


@LAW
@given(pipelines(), st.sampled_from(["forward", "backward", "onward", "back"]), st.data())
def test_no_time_can_grow_and_the_step_shrink(pipe, field, data):
    before = run(**pipe)
    if not pipe[field]:
        return
    at = data.draw(st.integers(0, len(pipe[field]) - 1))
    longer = list(pipe[field])
    longer[at] += data.draw(positive)
    after = run(**{**pipe, field: longer})
    assert (after.finish_s >= before.finish_s - 1e-12).all()


@LAW
@given(pipelines(), st.floats(0.01, 100.0))
def test_twice_the_times_twice_the_step(pipe, factor):
    scaled = {k: [factor * x for x in pipe[k]] for k in ("forward", "backward", "onward", "back")}
    assert run(**{**pipe, **scaled}).finish_s == pytest.approx(factor * run(**pipe).finish_s, rel=1e-9)


@LAW
@given(pipelines())
def test_step_is_never_below_its_lower_bounds(pipe):
    step, m = run(**pipe).step_s[0], pipe["microbatches"]
    forward, backward, onward, back = (np.array(pipe[k]) for k in ("forward", "backward", "onward", "back"))
    busiest = m * (forward + backward).max()
    there_and_back = forward.sum() + backward.sum() + onward.sum() + back.sum()
    # A stage cannot start before its first input arrives, nor may it end before its last gradient is passed on.
    reach = np.concatenate([[0.0], np.cumsum(forward[:-1] + onward)])
    leave = np.concatenate([[0.0], np.cumsum(backward[:-1] + back)])
    window = (reach + m * (forward + backward) + leave).max()
    assert step >= max(busiest, there_and_back, window) * (1 - 1e-12)


@LAW
@given(pipelines())
def test_blocking_sends_never_help(pipe):
    free, blocked = run(**{**pipe, "blocking": False}), run(**{**pipe, "blocking": True})
    assert (blocked.finish_s >= free.finish_s - 1e-12).all()


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (1, 9), (4, 4), (4, 16), (8, 3), (6, 64)])
def test_equal_stages_without_communication_give_the_closed_form(schedule, stages, microbatches):
    zeros = np.zeros(stages - 1)
    found = run(schedule, microbatches, np.full(stages, 0.3), np.full(stages, 0.7), zeros, zeros)
    assert found.step_s[0] == pytest.approx((microbatches + stages - 1) * (0.3 + 0.7), rel=1e-12)


def test_two_stages_by_hand():
    # F0 0-1, sent 1-3; F1 3-4; B 4-6, sent 6-9; B0 9-11.
    found = run(Schedule.ONE_F_ONE_B, 1, [1.0, 1.0], [2.0, 2.0], [2.0], [3.0])
    assert found.finish_s[0].tolist() == [11.0, 6.0]


def test_the_interface_sends_one_message_at_a_time():
    # Both forwards are ready by 2 s, but the second message waits for the first: it arrives at 11 s, not at 7 s.
    found = run(Schedule.GPIPE, 2, [1.0, 0.5], [0.0, 0.0], [5.0], [0.0])
    assert found.finish_s[0, 1] == 11.5


def random_batch(count, rng, width=8):
    stages, microbatches = rng.integers(1, width + 1, count), rng.integers(1, 25, count)
    times = [rng.uniform(0.01, 3.0, (count, width)) for _ in range(4)]
    return rng.integers(0, 2, count), stages, microbatches, times


@pytest.mark.parametrize("blocking", [False, True])
def test_batch_equals_one_by_one_exactly(blocking):
    schedules, stages, microbatches, times = random_batch(200, np.random.default_rng(1))
    together = pipeline_times(schedules, stages, microbatches, *times, blocking=blocking)
    for p in range(200):
        row = slice(p, p + 1)
        alone = pipeline_times(
            schedules[row], stages[row], microbatches[row], *(t[row] for t in times), blocking=blocking
        )
        assert alone.step_s[0] == together.step_s[p]
        assert (alone.finish_s[0] == together.finish_s[p]).all()


def test_stages_beyond_the_last_do_not_matter():
    rng = np.random.default_rng(2)
    schedules, stages, microbatches, times = random_batch(100, rng)
    padding = np.arange(8) >= stages[:, None]
    noisy = [np.where(padding, rng.uniform(1e3, 1e6, t.shape), t) for t in times]
    before = pipeline_times(schedules, stages, microbatches, *times)
    after = pipeline_times(schedules, stages, microbatches, *noisy)
    assert (before.finish_s == after.finish_s).all()
    assert (before.finish_s[padding] == 0).all()


def test_the_first_backward_and_last_forward_send_do_not_matter():
    schedules, stages, microbatches, times = random_batch(50, np.random.default_rng(3))
    before = pipeline_times(schedules, stages, microbatches, *times)
    times[2][np.arange(50), stages - 1] = 1e6
    times[3][:, 0] = 1e6
    after = pipeline_times(schedules, stages, microbatches, *times)
    assert (before.step_s == after.step_s).all()
