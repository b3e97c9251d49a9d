"""The journal: what is recorded is what is read, in order, once, and refused by name when it is wrong."""

import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import EventRecord, ExplanationRecord, FeedbackRecord, Journal
from tests.journal.journal_records import HEADER, decision, fill, outcome, task


@pytest.fixture(params=["file", "memory"])
def journal(request, tmp_path):
    made = Journal.create(tmp_path / "run.journal", HEADER) if request.param == "file" else Journal.memory(HEADER)
    with made:
        yield made


def test_header_is_kept(journal):
    assert journal.header == HEADER


def test_created_time_is_set_where_none_is_given(tmp_path):
    with Journal.create(tmp_path / "run.journal", replace(HEADER, created_at="")) as journal:
        assert journal.header.created_at.startswith("20")
        assert journal.header.created_at.endswith("+00:00")


def test_records_come_back_as_they_were(journal):
    first = journal.record_decision(decision(0, task_id="task-0"), task=task())
    assert (first.id, first.sequence) == ("d000000", 0)
    assert first.recorded_at
    journal.record_outcome(outcome(first.id))
    second = journal.record_decision(decision(1, plan=None, attribution=None, weights=None, slot=None, id="mine"))
    assert journal.task("task-0") == task()
    assert list(journal.tasks()) == [task()]
    assert journal.decision("d000000") == first == replace(decision(0, task_id="task-0"), id="d000000", sequence=0)
    assert journal.decision("mine") == second == journal.last()
    assert list(journal.entries()) == [(first, outcome(first.id)), (second, None)]
    assert journal.outcome(first.id) == outcome(first.id)
    assert journal.outcome("mine") is None
    assert journal.pending() == [second]
    assert journal.count() == 2


def test_numbers_and_arrays_of_an_action_are_exact(journal):
    action = np.array([[0.1, 1 / 3], [5e-324, -1.7976931348623157e308]])
    journal.record_decision(decision(action=action, slot=np.int64(3), cluster_time_s=np.float32(0.1)))
    found = journal.last()
    assert np.array_equal(np.array(found.action), action)
    assert found.slot == 3
    assert found.cluster_time_s == float(np.float32(0.1))
    journal.record_decision(decision(action=np.arange(10, dtype=np.int64).reshape(2, 5)))
    assert journal.last().action == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_an_empty_journal(journal):
    assert journal.count() == 0
    assert journal.last() is None
    assert journal.pending() == list(journal.decisions()) == list(journal.events()) == journal.feedback() == []
    assert journal.history().empty


@pytest.mark.parametrize(
    ("start", "stop", "expected"), [(0, None, 600), (590, None, 10), (5, 5, 0), (250, 270, 20), (7, 9999, 593)]
)
def test_decisions_of_a_range(start, stop, expected):
    with Journal.memory() as journal:
        with journal.batch():
            fill(journal, 600)
        found = [each.sequence for each in journal.decisions(start, stop)]
        assert found == list(range(start, start + expected))


def test_what_is_recorded_while_reading_is_not_read(journal):
    fill(journal, 3)
    found = 0
    for _ in journal.decisions():
        fill(journal, 1)
        found += 1
    assert found == 3


def test_explanations_are_written_once_or_replaced_when_asked(journal):
    fill(journal, 1)
    terms = ExplanationRecord("d000000", "terms", {"values": [[0.5]], "standard_error": [[None]]})
    other = ExplanationRecord("d000000", "choice", {"values": [[1]]})
    journal.record_explanation(terms)
    journal.record_explanation(other)
    assert journal.explanations("d000000") == [other, terms]
    with pytest.raises(JournalError, match=r"has an explanation of 'terms' already.*replace=True"):
        journal.record_explanation(terms)
    better = replace(terms, explanation={"values": [[0.6]]})
    journal.record_explanation(better, replace=True)
    assert journal.explanations("d000000") == [other, better]


def test_a_change_taken_back_says_so(journal):
    fill(journal, 2)
    first = journal.record_feedback(FeedbackRecord("w_cost", 0.2, 0.25, "the bill is above its target"))
    journal.record_feedback(FeedbackRecord("w_eff", 0.5, 0.45, "steps are fast enough"))
    journal.record_feedback(FeedbackRecord("w_cost", 0.25, 0.2, "held-out return fell", undoes=first.number))
    assert [(each.number, each.rolled_back, each.after_decisions) for each in journal.feedback()] == [
        (0, True, 2), (1, False, 2), (2, False, 2)
    ]  # fmt: skip
    for number, rule in ((0, "was taken back already"), (3, "has 3 changes")):
        with pytest.raises(JournalError, match=rule):
            journal.record_feedback(FeedbackRecord("w_cost", 0, 0, "again", undoes=number))


def test_events_in_order(journal):
    for kind in ("start", "refusal", "resume"):
        journal.record_event(EventRecord(kind, {"why": "任务"}, 3.5 if kind == "refusal" else None))
    assert [(each.number, each.kind, each.cluster_time_s) for each in journal.events()] == [
        (0, "start", None), (1, "refusal", 3.5), (2, "resume", None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"id": "d000001"}, "decision.id = 'd000001': is in the journal already"),
        ({"sequence": 5}, "decision.sequence = 5: the next decision of this journal is number 3"),
        ({"task_id": "tusk-1"}, "task id = 'tusk-1': is not in the journal. Did you mean 'task-1'"),
        ({"action": [float("nan")]}, "decision.action .* cannot be written as JSON"),
        ({"action": {1, 2}}, "decision.action .* cannot be written as JSON"),
        ({"plan": [1]}, "decision.plan .* must be a mapping"),
        ({"plan": {"name": "\ud800"}}, "decision.plan .* cannot be written as JSON"),
        ({"policy": ""}, "decision.policy = '': must be a word"),
        ({"policy": "\udcff"}, "decision.policy .* UTF-8"),
        ({"cluster_time_s": float("inf")}, "decision.cluster_time_s = inf: must be finite"),
        ({"cluster_time_s": None}, "decision.cluster_time_s = None: must be a number"),
        ({"cluster_time_s": "1"}, "decision.cluster_time_s = '1': must be a number"),
        ({"latencies_s": {"decide": float("nan")}}, "decision.latencies_s.decide = nan: must be finite"),
        ({"weights": (0.5, 0.5)}, "decision.weights = .* must be w_eff, w_util and w_cost"),
        ({"slot": -1}, "decision.slot = -1: must be a whole number of at least 0"),
        ({"slot": 2**63}, "decision.slot = .* in 64 bits"),
        ({"slot": True}, "decision.slot = True: must be a whole number"),
    ],
)
def test_a_wrong_decision_leaves_nothing_behind(journal, wrong, words):
    fill(journal, 3)
    with pytest.raises(JournalError, match=words):
        journal.record_decision(decision(**wrong), task=task(99))
    assert journal.count() == 3
    assert len(list(journal.tasks())) == 3
    with journal.batch():
        fill(journal, 1)
        with pytest.raises(JournalError, match=words.replace("number 3", "number 4")):
            journal.record_decision(decision(**wrong), task=task(99))
        fill(journal, 1)
    assert journal.count() == len(list(journal.tasks())) == 5


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"reward": float("nan")}, "outcome.reward = nan: must be finite. Give None if it is not known"),
        ({"provenance": "mesured"}, "outcome.provenance = 'mesured': is not known. Did you mean 'measured'"),
        ({"code": 1.5}, "outcome.code = 1.5: must be a whole number"),
        ({"decision_id": "d00001"}, "decision id = 'd00001': is not in the journal. Did you mean 'd00000?1'"),
        ({"decision_id": "zzz"}, "decision id = 'zzz': is not in the journal. Its newest is 'd000001'"),
        ({"decision_id": "d000000"}, "outcome.decision_id = 'd000000': has an outcome already"),
    ],
)
def test_a_wrong_outcome_leaves_nothing_behind(journal, wrong, words):
    fill(journal, 1)
    fill(journal, 1, outcomes=False)
    with pytest.raises(JournalError, match=words):
        journal.record_outcome(replace(outcome("d000001"), **wrong))
    assert [each.id for each in journal.pending()] == ["d000001"]


def test_what_is_not_known_stays_unknown(journal):
    fill(journal, 1, outcomes=False)
    vague = outcome("d000000", step_s=None, energy_j=None, reward=None, provenance="unavailable")
    journal.record_outcome(vague)
    assert journal.outcome("d000000") == vague


def test_ids_that_are_not_there_are_named_with_the_nearest(journal):
    with pytest.raises(JournalError, match="It has none yet"):
        journal.decision("d000000")
    fill(journal, 1)
    for ask in (journal.decision, journal.outcome, journal.explanations):
        with pytest.raises(JournalError, match="Did you mean 'd000000'"):
            ask("d00000")
    with pytest.raises(JournalError, match="Did you mean 'task-0'"):
        journal.task("task0")


def test_a_task_may_be_told_again_but_not_otherwise(journal):
    journal.record_task(task(meta={"a": 1, "b": 2}))
    journal.record_task(task(meta={"b": 2, "a": 1}))
    with pytest.raises(JournalError, match="is another task's"):
        journal.record_task(task(steps=401))
    assert len(list(journal.tasks())) == 1


@pytest.mark.parametrize("given", [{"start": -1}, {"start": 0.5}, {"stop": -2}])
def test_a_wrong_range(journal, given):
    with pytest.raises(JournalError, match="must be a whole number"):
        list(journal.decisions(**given))


def test_records_cannot_be_changed_even_past_the_journal(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        fill(journal, 2)
        journal.record_explanation(ExplanationRecord("d000000", "terms", {}))
    connection = sqlite3.connect(path)
    for statement in ("UPDATE decisions SET policy = 'other'", "DELETE FROM outcomes", "DELETE FROM explanations"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


def test_an_explanation_holds_nobody_up_and_a_decision_is_on_disk(tmp_path):
    """It can be had again: it reaches the disk with the next decision, whose commit waits for all before it."""
    with Journal.create(tmp_path / "run.journal", HEADER) as journal:
        fill(journal, 2)
        waits = lambda: journal._connection.execute("PRAGMA synchronous").fetchone()[0]  # noqa: E731
        made = journal.record_decision(decision())
        assert waits() == 2
        journal.record_outcome(outcome(made.id, provenance="simulated"))
        assert waits() == 1
        made = journal.record_decision(decision())
        journal.record_outcome(outcome(made.id, provenance="measured"))
        assert waits() == 2
        journal.record_explanation(ExplanationRecord("d000000", "decision", {"a": 1}))
        assert waits() == 1
        journal.record_decision(decision())
        assert waits() == 2
        with journal.batch():
            journal.record_explanation(ExplanationRecord("d000001", "decision", {"a": 1}))
            assert waits() == 2
        journal.record_explanation(ExplanationRecord("d000002", "decision", {"a": 1}))
        journal.verify()
    with Journal.read(tmp_path / "run.journal") as journal:
        assert all(len(journal.explanations(f"d00000{n}")) == 1 for n in range(3))


def test_decisions_on_one_task(tmp_path):
    with Journal.create(tmp_path / "run.journal", HEADER) as journal:
        fill(journal, 3)
        wanted = journal.decision("d000001")
        assert journal.decisions_on(wanted.task_id) == [
            each for each in journal.decisions() if each.task_id == wanted.task_id
        ]
        assert wanted in journal.decisions_on(wanted.task_id) and journal.decisions_on("nobody") == []
