"""A world refuses what cannot be, one clear error each."""

from dataclasses import replace

import pytest

from attribution_sched.cluster.models import model
from attribution_sched.cluster.world import Reward, TaskKind
from attribution_sched.errors import SettingsError, TaskError

from .engine_worlds import BERT, tiny_world


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("batch_size", 0, "batch_size"),
        ("microbatches", (4, 8, 16, 24), "ascending divisors"),
        ("microbatches", (8, 4, 16, 32), "ascending divisors"),
        ("microbatches", (4, 8, 16), "must be 4"),
        ("steps", (10, 5), "fewest"),
        ("epoch_steps", 0, "epoch_steps"),
        ("share", 0.0, "share"),
        ("share", float("nan"), "share"),
        ("deadline_slack", 0.0, "deadline_slack"),
        ("deadline_slack", float("nan"), "deadline_slack"),
        ("deadline_slack", float("inf"), "deadline_slack"),
    ],
)
def test_a_kind_names_what_is_wrong(field, value, rule):
    with pytest.raises(TaskError, match=rule):
        replace(BERT, **{field: value})


@pytest.mark.parametrize("field", ["w_eff", "w_cost", "lambda_intra_comm", "interval_s"])
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_a_reward_is_made_of_non_negative_numbers(field, value):
    with pytest.raises(SettingsError, match=field):
        Reward(**{field: value})


def test_an_interval_of_zero_is_refused():
    with pytest.raises(SettingsError, match="interval_s"):
        Reward(interval_s=0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kinds", ()),
        ("horizon_s", 0.0),
        ("tick_s", float("nan")),
        ("retry_s", -1.0),
        ("max_running", 0),
        ("queue_capacity", 0),
        ("share_limit", 3),
        ("share_limit", 0),
        ("restart_s", -1.0),
        ("pool_size", 0),
    ],
)
def test_a_world_names_what_is_wrong(field, value):
    with pytest.raises(SettingsError, match=field):
        tiny_world(**{field: value})


def test_a_plan_never_has_more_segments_than_there_are_domains():
    assert tiny_world(max_segments=8).max_segments == 3


def test_a_task_larger_than_the_cluster_is_one_clear_error():
    giant = TaskKind(model("gpt3-175b"), 8, (1, 2, 4, 8), (10, 10), 10)
    with pytest.raises(TaskError, match=r"gpt3-175b is larger than the cluster = '2,\d+ GB.*hold 936 GB.*Add devices"):
        tiny_world(kinds=(giant,))
    # To serve it takes one byte a parameter.
    assert tiny_world(kinds=(replace(giant, training=False),)).kinds[0].training is False
