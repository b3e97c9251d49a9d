"""Intents, effects, handles and waits: what was recorded but not done can be finished by whoever comes after."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import HandleRecord, Journal, WaitRecord
from tests.journal.journal_records import HEADER, decision, fill, killed


def test_an_intent_is_open_until_it_took_effect(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        fill(journal, 2)
        first = journal.record_intent("submit", {"task": "任务"})
        second = journal.record_intent("train", {"decisions": 100})
        assert (first, second) == (0, 1)
        journal.record_effect(first, {"slot": 3})
        copy = killed(path, tmp_path / "copy")
    with Journal.open(copy) as journal:
        (left,) = journal.open_intents()
        assert (left.kind, left.details, left.number, left.after_decisions) == ("train", {"decisions": 100}, 1, 2)
        assert journal.intent(0).effect == {"slot": 3}
        assert journal.intent(1).effect is None
        journal.record_effect(left.number)
        assert journal.open_intents() == []
        assert journal.intent(1).effect == {}
        journal.verify()


def test_an_effect_is_recorded_once_and_only_of_an_intent():
    with Journal.memory() as journal:
        journal.record_effect(journal.record_intent("submit", {}))
        for number, words in ((0, "has an effect already"), (1, "the journal has 1 intents"), (-1, "whole number")):
            with pytest.raises(JournalError, match=f"effect.number = {number}: .*{words}"):
                journal.record_effect(number)
        with pytest.raises(JournalError, match="intent = 5: is not in the journal"):
            journal.intent(5)
        with pytest.raises(JournalError, match=r"intent.kind = '': must be a word"):
            journal.record_intent("", {})
        assert journal.record_intent("submit", {}) == 1
        journal.verify()


def test_keys_are_the_same_however_often_they_are_asked_and_differ_between_journals(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        key = journal.key("d000003")
        assert key == f"{journal.header.journal_id}-d000003"
        assert journal.key("d000003", attempt=2) == f"{key}-2"
    with Journal.open(path) as journal:
        assert journal.key("d000003") == key
    with Journal.memory(HEADER) as journal:
        assert journal.key("d000003") != key


def test_the_newest_handle_under_a_key_counts():
    with Journal.memory() as journal:
        key = journal.key("d000000")
        assert journal.handle(key) is None
        for handle in (17, 17, {"job": 18, "host": "a"}):
            journal.record_handle(HandleRecord(key, "slurm", handle))
        journal.record_handle(HandleRecord(key + "-1", "slurm", 19))
        assert journal.handle(key) == HandleRecord(key, "slurm", {"job": 18, "host": "a"})
        assert [each.handle for each in journal.handles()] == [{"job": 18, "host": "a"}, 19]
        # The same again is no new record.
        assert len(list(journal.chained("handles"))) == 3
        journal.verify()


def test_one_record_for_all_that_wait():
    with Journal.memory() as journal:
        fill(journal, 2)
        alone = WaitRecord(5.0, 10_000, {"memory": 9_000, "devices": 1_000})
        given = WaitRecord(6.0, 3, {"memory": 3}, np.array([4, 0, 2]))
        made = journal.record_decision(decision(2), waits=[alone, given, WaitRecord(6.5, 0)])
        assert made.sequence == 2
        found = list(journal.waits())
        assert found[0] == replace(alone, after_decisions=2)
        assert (found[1].slots, found[1].after_decisions, found[1].reasons) == ((4, 0, 2), 2, {"memory": 3})
        assert found[2] == WaitRecord(6.5, 0, {}, None, 2)
        assert list(journal.waits(3)) == []
        assert len(list(journal.waits(2, 3))) == 3
        journal.verify()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (WaitRecord(float("nan"), 1), "wait.cluster_time_s = nan: must be finite"),
        (WaitRecord(0.0, -1), "wait.count = -1: must be a whole number"),
        (WaitRecord(0.0, 1, {"memory": 0.5}), "wait.reasons.memory = 0.5: must be a whole number"),
        (WaitRecord(0.0, 1, slots=(2**31,)), "wait.slots = 2147483648: is no place in a queue"),
        (WaitRecord(0.0, 1, slots=(-1,)), "wait.slots = -1: is no place in a queue"),
    ],
)
def test_a_wrong_wait_takes_its_decision_back_with_it(wrong, words):
    with Journal.memory() as journal:
        fill(journal, 1)
        with pytest.raises(JournalError, match=words):
            journal.record_decision(decision(1), waits=wrong)
        assert journal.count() == 1
        assert list(journal.waits()) == []
