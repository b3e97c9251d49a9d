"""Counters that came with a task: bounded at the door, each with how it was got, into the journal and back."""

import math

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.errors import CounterError, TaskError
from attribution_sched.limits import COUNTER_BOUNDS
from attribution_sched.system.admission_counters import checked
from attribution_sched.system.decision_records import in_a_word
from tests.small_world import SMALL

SEVEN = dict.fromkeys(COUNTER_NAMES[:7], 0.5)


def test_every_counter_has_a_bound():
    assert tuple(COUNTER_BOUNDS) == COUNTER_NAMES


@pytest.mark.parametrize("name", COUNTER_NAMES)
def test_a_reading_no_machine_shows_is_refused_with_its_bound(name):
    bound = COUNTER_BOUNDS[name]
    readings, _ = checked(SEVEN | {name: bound.most}, {})
    assert readings[name] == bound.most
    for value in (1e308, np.nextafter(bound.most, np.inf), 10**300):
        with pytest.raises(CounterError) as caught:
            checked(SEVEN | {name: value}, {})
        told = str(caught.value)
        assert told.startswith(f"counters[{name!r}] = ")
        assert f"must be at most {bound.most:g}: {bound.reason}" in told
        assert "Check its unit" in told


@pytest.mark.parametrize("value", [10**400, math.nan, -0.1, "1", None, True, 1j, np.complex128(1), [1.0]])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(CounterError, match=r"counters\['fc'\] = .*must be a finite number >= 0"):
        checked(SEVEN | {"fc": value}, {})


@pytest.mark.parametrize(
    ("counters", "provenance", "words"),
    [
        (SEVEN, {"conv": "guessed"}, "provenance['conv'] = 'guessed': must be one of measured"),
        (SEVEN, {"conv": 3}, "provenance['conv'] = 3: must be one of"),
        (SEVEN, {"conv": np.array(["measured"] * 2)}, "must be one of"),
        (SEVEN, {"convv": "measured"}, "Did you mean 'conv'?"),
        (SEVEN, ["measured"], "provenance = ['measured']: must be a mapping"),
        (SEVEN, {"sm_active": "measured"}, "has no reading"),
        (SEVEN, {"conv": "unavailable"}, "the counter has a reading. Leave the reading out"),
        ({}, {"conv": "measured"}, "has no reading"),
        (3, {}, "counters = 3: must be a mapping"),
    ],
)
def test_a_provenance_that_contradicts_the_readings_is_refused(counters, provenance, words):
    with pytest.raises(CounterError) as caught:
        checked(counters, provenance)
    assert words in str(caught.value)


def test_each_counter_has_its_own_provenance():
    readings, how = checked(SEVEN | {"attention": None}, {"fc": "estimated", "attention": "unavailable"})
    assert "attention" not in readings
    assert how == dict.fromkeys(COUNTER_NAMES, "simulated") | dict.fromkeys(SEVEN, "measured") | {
        "fc": "estimated", "attention": "unavailable",
    }  # fmt: skip
    assert in_a_word(how) == "5 measured, 1 estimated, 1 unavailable"
    assert in_a_word(checked(SEVEN, {})[1]) == "measured"
    assert in_a_word(checked({}, {})[1]) == "simulated"


def test_provenance_goes_into_the_journal_and_comes_back(tmp_path):
    path = tmp_path / "run.journal"
    provenance = {"fc": "estimated", "attention": "unavailable", "conv": "simulated"}
    counters = {name: value for name, value in SEVEN.items() if name != "attention"}
    with System(SMALL, "sjf", queue="empty", journal=path) as system:
        system.submit("bert-base", counters=counters, provenance=provenance, id="mine")
        system.submit("bert-base", id="other")
        result = system.schedule_next_task()
        assert result.provenance["counters"] == "4 measured, 1 estimated, 1 simulated, 1 unavailable"
    with System.resume(path) as system:
        kept = system.journal.task("mine").meta["provenance"]
        assert kept == checked(counters, provenance)[1]
        assert set(system.journal.task("other").meta["provenance"].values()) == {"simulated"}
        words = {each.id: in_a_word(each.provenance) for each in system.cluster.residents.values()}
        assert words["mine"] == "4 measured, 1 estimated, 1 simulated, 1 unavailable"
        assert words["other"] == "simulated"


@pytest.mark.parametrize("policy", ["sjf", "hi-ppo"])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_readings_at_their_bounds_poison_nobody(policy, share):
    """What is let in is decided on: the task itself, and the one beside it."""
    extreme = {name: share * bound.most for name, bound in COUNTER_BOUNDS.items()}
    with System(SMALL, policy, queue="empty") as system:
        if share == 1.0:
            # Within every bound and still like no task that was ever seen: refused at the door, with the distance.
            with pytest.raises(CounterError, match="standard deviations from the nearest known task"):
                system.submit("bert-base", counters=extreme, id="extreme")
            extreme = dict.fromkeys(COUNTER_NAMES[:7], 0.4)
        system.submit("bert-base", counters=extreme, id="extreme")
        system.submit("bert-base", id="healthy")
        with pytest.raises(CounterError, match="must be at most"):
            system.submit("bert-base", counters=dict.fromkeys(COUNTER_NAMES[:7], 1e308), id="poison")
        results = [system.schedule_next_task() for _ in range(2)]
        assert {each.task.id for each in results} == {"extreme", "healthy"}
        assert all(np.isfinite(each.attribution.values).all() for each in results)
        assert {each.id for each in system.journal.tasks()} == {"extreme", "healthy"}


@pytest.mark.parametrize(
    ("id_", "words"),
    [
        ("a" * 201, "at most 200 characters, not 201"),
        ("two\nlines", "not U+000A"),
        ("a\0b", "not U+0000"),
        ("\x1b[2J", "not U+001B"),
        ("invoice\u202egnp.exe", "not U+202E"),
        ("\ud800", "not U+D800"),
        ("   ", "must not be empty"),
        (b"bytes", "must be a word"),
        (7, "must be a word"),
        (np.array(["a", "b"]), "must be a word"),
    ],
)
def test_an_id_is_a_printable_word(id_, words):
    with System(SMALL, "sjf", queue="empty") as system:
        with pytest.raises(TaskError, match=r"task\.id = ") as caught:
            system.submit("bert-base", id=id_)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
        assert list(system.journal.tasks()) == []
        assert system.submit("bert-base", id="=任务 [1](x)" + "a" * 100)


@pytest.mark.parametrize(
    "given", [{"training": np.array([True, False])}, {"batch": np.array([1, 2])}, {"kind": ["bert-base"]}]
)
def test_arrays_where_one_value_is_asked_for(given):
    with System(SMALL, "sjf", queue="empty") as system, pytest.raises(TaskError, match=r"task\."):
        system.submit({"kind": "bert-base"} | given)
