"""Device memory: bytes per parameter, microbatches in flight, and what lowers the peak."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.memory import (
    OPTIMISER_BYTES_FULL,
    OPTIMISER_BYTES_MIXED,
    activation_share,
    in_flight,
    state_bytes_per_parameter,
)
from attribution_sched.cluster.models import model
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.cluster.world import Runtime
from research.pipeline_events import all_forward_all_backward, one_forward_one_backward
from tests.cluster.plan_cases import cluster

GPT = model("gpt2-medium")


@pytest.mark.parametrize(
    ("element", "zero", "expected"),
    [
        (2.0, 0, 2 + 2 + OPTIMISER_BYTES_MIXED), (4.0, 0, 4 + 4 + OPTIMISER_BYTES_FULL),
        (2.0, 1, 2 + 2 + 12 / 8), (2.0, 2, 2 + 2 / 8 + 12 / 8), (2.0, 3, 16 / 8), (4.0, 3, 16 / 8),
        (1.0, 0, 2 + 2 + 12),
    ],
)  # fmt: skip
def test_training_states_by_hand(element, zero, expected):
    assert state_bytes_per_parameter(element, True, zero, 8.0) == pytest.approx(expected)


@pytest.mark.parametrize("element", [1.0, 2.0, 4.0])
def test_inference_keeps_weights_only(element):
    assert state_bytes_per_parameter(element, False, 0, 8.0) == element


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 8), st.integers(1, 20), st.data())
def test_in_flight_is_what_the_order_of_passes_holds(stages, microbatches, data):
    stage = data.draw(st.integers(0, stages - 1))
    orders = {
        Schedule.ONE_F_ONE_B: one_forward_one_backward(stage, stages, microbatches),
        Schedule.GPIPE: all_forward_all_backward(microbatches),
    }
    for schedule, order in orders.items():
        alive, peak = 0, 0
        for kind, _ in order:
            alive += 1 if kind == "forward" else -1
            peak = max(peak, alive)
        assert in_flight(schedule, stages, stage, microbatches) == peak


@pytest.mark.parametrize("tp", [1.0, 2.0, 4.0, 8.0])
def test_sequence_parallelism_divides_what_tensor_parallelism_leaves_whole(tp):
    assert activation_share(tp, True) == pytest.approx(1 / tp)
    assert activation_share(tp, False) == pytest.approx((10 + 24 / tp) / 34)


def used_bytes(segment, microbatch=8, microbatches=8, schedule=Schedule.ONE_F_ONE_B, **runtime):
    cost = CostModel(cluster(Runtime(**runtime)), [GPT])
    scored = cost.score(Plan((Replica((segment,), microbatch, microbatches),), schedule))
    return float(scored.segment("memory_bytes")[0, 0])


def whole(**layout):
    return Segment(0, 0, len(GPT), **layout)


def test_memory_falls_with_every_remedy():
    base = used_bytes(whole(dp=4), zero_stage=0)
    by_zero = [used_bytes(whole(dp=4), zero_stage=z) for z in (0, 1, 2, 3)]
    assert by_zero == sorted(by_zero, reverse=True)
    assert len(set(by_zero)) == 4
    by_tp = [used_bytes(whole(dp=4, tp=t), zero_stage=0) for t in (1, 2, 4, 8)]
    assert by_tp == sorted(by_tp, reverse=True)
    assert len(set(by_tp)) == 4
    assert used_bytes(whole(dp=4), zero_stage=0, recompute=True) < base
    assert used_bytes(whole(dp=4, tp=4), sequence_parallel=True) < used_bytes(whole(dp=4, tp=4))
    assert used_bytes(whole(dp=4), microbatch=4, zero_stage=0) < base
    assert used_bytes(whole(dp=8), zero_stage=0) < base


def test_unfused_attention_keeps_its_scores():
    scores = GPT.column("score_elements").sum()
    more = used_bytes(whole(dp=4), flash_attention=False) - used_bytes(whole(dp=4))
    assert more == pytest.approx(2 * 2 * scores)


def test_recomputation_brings_one_layer_back_to_life():
    inputs = GPT.column("input_elements").sum()
    for flash in (True, False):
        peak = (GPT.column("activation_elements") + (not flash) * GPT.column("score_elements")).max()
        found = used_bytes(
            whole(), microbatch=2, recompute=True, zero_stage=0, flash_attention=flash, reserved_bytes=0.0
        )
        assert found == pytest.approx(16 * GPT.params + 2 * 2 * (inputs + peak))


def test_gpipe_holds_every_microbatch_and_1f1b_a_pipelines_worth():
    def activations(schedule, microbatches):
        return used_bytes(whole(pp=2), 4, microbatches, schedule, reserved_bytes=0.0) - used_bytes(
            whole(pp=2), 4, 1, schedule, reserved_bytes=0.0
        )

    assert activations(Schedule.ONE_F_ONE_B, 8) == pytest.approx(activations(Schedule.ONE_F_ONE_B, 2))
    # Seven more microbatches than one, against one more.
    assert activations(Schedule.GPIPE, 8) > 4 * activations(Schedule.GPIPE, 2) > 0
