"""Pipelines that were really run, and what can be worked out by hand."""

import json
import statistics
from pathlib import Path

import pytest

from attribution_sched.cluster.rendezvous import (
    BACKWARD,
    FORWARD,
    LinkProfile,
    measured_step_s,
    torch_1f1b,
    torch_gpipe,
)
from attribution_sched.errors import NetworkError, SettingsError

ROWS = json.loads((Path(__file__).parents[1] / "cases" / "real_pipelines.json").read_text())["rows"]


def predicted(row, **changes):
    """Step of a measured pipeline, from its stages' seconds, its links' nominal rates and nothing else."""
    links = [LinkProfile.nominal(mbit_s * 1e6 / 8.0) for mbit_s in row["links_mbit_s"]]
    size = row["microbatch"] * 64 * 256 * 4
    runtime = {"1f1b": "torch-1f1b", "gpipe": "torch-gpipe"}[row["schedule"]]
    return measured_step_s(
        runtime, row["stage_forward_s"], row["stage_backward_s"], size, changes.get("links", links), row["microbatches"]
    )


def test_the_measured_pipelines_are_met():
    errors = {row["name"]: predicted(row) / row["measured_step_s"] - 1.0 for row in ROWS}
    assert statistics.mean(abs(error) for error in errors.values()) <= 0.06, errors
    assert max(abs(error) for error in errors.values()) <= 0.15, errors


def test_the_right_cut_is_chosen_in_every_setting():
    """Rows that differ in nothing but the cut."""
    settings = {}
    for row in ROWS:
        key = row["domains"], row["schedule"], row["microbatches"], row["microbatch"], tuple(row["links_mbit_s"])
        settings.setdefault(key, []).append(row)
    compared = [rows for rows in settings.values() if len(rows) > 1]
    assert len(compared) == 4
    for rows in compared:
        assert min(rows, key=predicted)["name"] == min(rows, key=lambda row: row["measured_step_s"])["name"]


def test_what_is_measured_of_a_link_matters():
    """The same rows with a link whose directions do not disturb each other are missed."""
    errors = []
    for row in ROWS:
        links = [LinkProfile(rate := 0.97 * mbit_s * 1e6 / 8.0, rate) for mbit_s in row["links_mbit_s"]]
        errors.append(abs(predicted(row, links=links) / row["measured_step_s"] - 1.0))
    assert statistics.mean(errors) > 0.08


def test_one_stage_computes_and_sends_nothing():
    assert measured_step_s("torch-1f1b", [0.1], [0.2], 8, [], 5) == pytest.approx(1.5)
    assert measured_step_s("torch-gpipe", [0.1], [0.2], 8, [], 5) == pytest.approx(1.5)


def test_one_microbatch_over_one_link_is_the_sum_of_its_parts():
    link = LinkProfile(100.0, 60.0, latency_s=0.5, eager_bytes=0.0)
    by_hand = 1.0 + (200.0 / 100.0 + 0.5) + 3.0 + 4.0 + (200.0 / 100.0 + 0.5) + 2.0
    assert measured_step_s("torch-gpipe", [1.0, 3.0], [2.0, 4.0], 200, [link], 1) == pytest.approx(by_hand)


def test_both_ways_at_once_are_slower_each():
    """Two stages, two microbatches, by hand: the second activations and the first gradients cross each other."""
    link = LinkProfile(100.0, 50.0, eager_bytes=0.0)
    # 0: F 1, F 1 (its first send overlaps the second forward); both sends need the receiver's post.
    # 1: receives at 1..3, F 1, B 1 → 5: sends gradients while the second activations come, each at 50: 4 s → 9.
    # 0: B 1 → 10.   1: F 1, B 1 → 11, sends gradients alone 2 s → 13; 0: B 1 → 14.
    assert measured_step_s("torch-1f1b", [1.0, 1.0], [1.0, 1.0], 200, [link], 2) == pytest.approx(14.0)


def test_what_is_eager_is_there_when_the_receive_is_posted():
    late, eager = LinkProfile(100.0, 100.0, eager_bytes=0.0), LinkProfile(100.0, 100.0, eager_bytes=100.0)
    slow = measured_step_s("torch-gpipe", [1.0, 5.0], [1.0, 1.0], 200, [late], 3)
    quick = measured_step_s("torch-gpipe", [1.0, 5.0], [1.0, 1.0], 200, [eager], 3)
    # Two of three messages wait for their receiver, each way; a second of each is there already.
    assert slow - quick == pytest.approx(4.0)


@pytest.mark.parametrize("programme", [torch_1f1b, torch_gpipe])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 2), (3, 8), (4, 4)])
def test_every_stage_computes_every_microbatch_once_each_way_and_messages_match(programme, stages, microbatches):
    sent, received = [], []
    for stage in range(stages):
        own = programme(stage, stages, microbatches)
        for way in (FORWARD, BACKWARD):
            assert sum(kind == "compute" and what == way for kind, what in own) == microbatches
        sent += [what for kind, what in own if kind == "send"]
        received += [m for kind, what in own if kind == "wait" for m, receives in what if receives]
    assert sorted(sent) == sorted(received)
    assert len(set(sent)) == len(sent) == 2 * (stages - 1) * microbatches


@pytest.mark.parametrize(
    "given",
    [
        ("megatron", [1.0], [1.0], 8, [], 1),
        ("torch-1f1b", [1.0, 1.0], [1.0], 8, [], 1),
        ("torch-1f1b", [1.0, 1.0], [1.0, 1.0], 8, [LinkProfile(1.0, 1.0)], 1),
        ("torch-gpipe", [0.0], [1.0], 8, [], 1),
        ("torch-gpipe", [1.0], [float("nan")], 8, [], 1),
    ],
)
def test_bad_input_is_one_clear_error(given):
    with pytest.raises(SettingsError):
        measured_step_s(*given)


def test_a_link_that_cannot_be_is_refused():
    for given in ((0.0, 0.0), (1.0, 2.0), (float("inf"), 1.0), (1.0, float("nan"))):
        with pytest.raises(NetworkError):
            LinkProfile(*given)
