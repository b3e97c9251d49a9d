"""Tasks handed in: what may be said, and one clear error for the rest."""

import math

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.config import load_settings
from attribution_sched.errors import CounterError, TaskError
from attribution_sched.system.admission import DEMO, TaskRequest, as_request, demo_of, instance, kind_of, steps_of
from attribution_sched.system.admission_counters import checked, readings_of
from attribution_sched.system.decision_records import in_a_word
from tests.small_world import SMALL, small

READINGS = {name: float(n + 1) for n, name in enumerate(COUNTER_NAMES[:7])}


@pytest.fixture(scope="module")
def world():
    served = SMALL["kinds"][0] | {"training": False, "batch_size": 64}
    return small(kinds=[*SMALL["kinds"], served]).build_world()


def test_a_request_from_a_name_a_mapping_and_a_record():
    expected = TaskRequest("bert-base", steps=7)
    assert as_request("bert-base", {"steps": 7}) == expected
    assert as_request({"kind": "bert-base", "steps": 7}, {}) == expected
    assert as_request(TaskRequest("bert-base"), {"steps": 7}) == expected


def test_training_comes_first_and_modes_and_batches_can_be_asked_for(world):
    assert kind_of(world, TaskRequest("BERT-base")) == 0
    assert kind_of(world, TaskRequest("bert-base", training=False)) == 3
    assert kind_of(world, TaskRequest("bert-base", batch=64)) == 3
    assert kind_of(world, TaskRequest("resnet-50")) == 2


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (TaskRequest("bert-bse"), ("bert-bse", "Did you mean 'bert-base'?")),
        (TaskRequest("gpt2-small", training=False), ("task.training", "training=True")),
        (TaskRequest("gpt2-small", batch=33), ("task.batch = 33", "batch=32")),
    ],
)
def test_what_the_preset_does_not_have_is_refused(world, request_, words):
    with pytest.raises(TaskError) as caught:
        kind_of(world, request_)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("task", [3, None, ["bert-base"]])
def test_no_task_at_all(task):
    with pytest.raises(TaskError, match="must be a kind of task by name"):
        as_request(task, {})


def test_an_unknown_field_has_a_hint():
    with pytest.raises(TaskError, match="Did you mean 'steps'"):
        as_request("bert-base", {"step": 4})


@pytest.mark.parametrize("steps", [0, -5, 2.5, True, "many", math.nan, 10**13])
def test_steps_are_whole_and_positive(world, steps):
    with pytest.raises(TaskError, match=r"task\.steps = .*whole number >= 1.*usually have 400 to 1200"):
        steps_of(world.kinds[0], steps)


def test_steps_by_default_are_the_middle(world):
    assert steps_of(world.kinds[0], None) == round(math.sqrt(400 * 1200))
    assert steps_of(world.kinds[0], np.int64(9)) == 9


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "x", None, True])
def test_a_wrong_reading_is_named(value):
    with pytest.raises(CounterError, match=r"counters\['conv'\] = .*finite number >= 0"):
        readings_of(READINGS | {"conv": value}, np.ones(12))


def test_missing_and_unknown_counters_are_named():
    readings, how = checked(dict.fromkeys(COUNTER_NAMES[:6], 1.0), {})
    assert how["attention"] == "unavailable" and how["fc"] == "measured" and "attention" not in readings
    assert readings_of(readings, np.full(12, 7.0))[6] == 7.0
    with pytest.raises(CounterError, match="Did you mean 'l3_misses'"):
        readings_of(READINGS | {"l3_miss": 1.0}, np.ones(12))


def test_measured_readings_are_kept_and_the_same_seed_gives_the_same_task(world):
    measured = instance(world, 0, 500, READINGS, (1, 2))
    assert in_a_word(measured.task.provenance) == "measured"
    assert measured.counters[:7].tolist() == list(READINGS.values())
    assert np.allclose(measured.demands.ratio, 1.0)
    one, other, third = (instance(world, 0, 500, {}, (1, n)) for n in (2, 2, 3))
    assert set(one.task.provenance.values()) == {"simulated"}
    assert np.array_equal(one.counters, other.counters)
    assert not np.array_equal(one.counters, third.counters)


def test_a_preset_without_the_demonstrations_kinds_shows_its_own():
    shown = System(small(), "greedy", queue="demo")
    names = sorted(shown.queue()["id"])
    assert names == ["demo-bert-base", "demo-gpt2-small", "demo-resnet-50"]
    assert shown.schedule_next_task().placed
    assert [request.id for request in demo_of(load_settings("testbed").build_world())] == [r.id for r in DEMO]
