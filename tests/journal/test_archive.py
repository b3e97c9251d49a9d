"""Archives: an old part moved whole or not at all, and both parts can still be verified."""

import shutil

import numpy as np
import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import EventRecord, ExplanationRecord, HandleRecord, Journal, archive
from benchmarks.campaign_journal import edit
from tests.journal.journal_records import HEADER, decision, fill, outcome, task


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        fill(journal, 30)
        journal.record_explanation(ExplanationRecord("d000004", "terms", {"n": 1}))
        journal.record_event(EventRecord("learnt", {"n": 1}))
        journal.record_handle(HandleRecord(journal.key("d000004"), "local", 4))
        journal.record_effect(journal.record_intent("submit", {"n": 0}))
        journal.record_intent("train", {"n": 1})
        journal.record_snapshot(30, {"state": np.arange(3)}, {})
        fill(journal, 10)
    return path


def test_what_is_left_goes_on_and_both_parts_are_whole(path, tmp_path):
    old = tmp_path / "old.sqlite"
    with Journal.open(path) as journal:
        tasks, head = list(journal.tasks()), journal.verify()
        made = journal.archive(old)
        assert (made.path, made.before) == ("old.sqlite", 30)
        assert journal.archives() == [made]
        assert (journal.count(), journal.first()) == (40, 30)
        assert [each.sequence for each in journal.decisions()] == list(range(30, 40))
        assert list(journal.tasks()) == tasks
        assert [each.kind for each in journal.events()] == ["learnt"]
        assert journal.handle(journal.key("d000004")).handle == 4
        assert [each.kind for each in journal.open_intents()] == ["train"]
        assert journal.newest_snapshot().sequence == 30
        told = journal.verify()
        assert (told.first, told.archived) == (made.stop, made.stop - 1)
        for ask in (journal.decision, journal.outcome, journal.explanations):
            with pytest.raises(JournalError, match=r"d000004': was archived to old.sqlite. Read it there"):
                ask("d000004")
        with pytest.raises(JournalError, match=r"Older ones were archived to old.sqlite"):
            journal.decision("nobody")
        fill(journal, 3)
        assert journal.record_intent("submit", {}) == 2
        journal.record_decision(decision(43, task_id="task-2"))
    with pytest.raises(JournalError, match="is an archive, which is not written any more"):
        Journal.open(old)
    with Journal.read(old) as before:
        assert [each.sequence for each in before.decisions()] == list(range(30))
        assert before.pending() == []
        assert before.explanations("d000004")[0].explanation == {"n": 1}
        found = before.verify()
        assert found.head == made.last_hash
        assert found.rows == made.stop - made.first < head.rows
        assert before.header.journal_id == journal.header.journal_id
    with Journal.open(path) as journal:
        assert journal.count() == 44
        journal.verify()


def test_one_archive_after_the_other(path, tmp_path):
    with Journal.open(path) as journal:
        first = journal.archive(tmp_path / "one.sqlite")
        fill(journal, 20)
        journal.record_snapshot(60, {}, {})
        second = journal.archive(tmp_path / "two.sqlite", 50)
        assert [each.before for each in journal.archives()] == [30, 50]
        assert second.first == first.stop
        for name, where in (("d000029", "one"), ("d000030", "two"), ("d000049", "two")):
            with pytest.raises(JournalError, match=f"was archived to {where}.sqlite"):
                journal.decision(name)
        journal.verify()
        count, size = journal.count(), path.stat().st_size
        before, after = journal.compact()
        assert after < before or size == after
        assert journal.count() == count
        journal.verify()
    with Journal.read(tmp_path / "two.sqlite") as found:
        assert [each.sequence for each in found.decisions()] == list(range(30, 50))
        found.verify()


def test_all_of_it_may_be_archived(path, tmp_path):
    with Journal.open(path) as journal:
        journal.record_snapshot(40, {}, {})
        journal.archive(tmp_path / "old.sqlite")
        assert (journal.count(), journal.first(), journal.last()) == (40, 40, None)
        fill(journal, 1)
        assert journal.last().sequence == 40
        journal.verify()


def test_tasks_that_are_over_may_go_too(path, tmp_path):
    with Journal.open(path) as journal:
        journal.archive(tmp_path / "old.sqlite", keep_tasks=["task-7"])
        assert [each.id for each in journal.tasks()] == ["task-7", *(f"task-{n}" for n in range(30, 40))]
        journal.verify()


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (0, "before = 0: the journal has decisions 0 to 39"),
        (41, "before = 41: the journal has decisions 0 to 39"),
        (-1, "before = -1: must be a whole number"),
        (35, "before = 35: no snapshot includes all of these decisions"),
    ],
)
def test_what_cannot_be_archived(path, tmp_path, before, words):
    with Journal.open(path) as journal:
        with pytest.raises(JournalError, match=words):
            journal.archive(tmp_path / "old.sqlite", before)
        assert journal.first() == 0
        assert not (tmp_path / "old.sqlite").exists()
        journal.archive(tmp_path / "old.sqlite", 35, without_snapshot=True)
        assert journal.first() == 35
        assert journal.newest_snapshot().sequence == 30
        journal.verify()


def test_pending_decisions_are_not_archived(tmp_path):
    with Journal.create(tmp_path / "run.journal", HEADER) as journal:
        journal.record_decision(decision())
        fill(journal, 3)
        with pytest.raises(JournalError, match="some of these decisions were pending"):
            journal.archive(tmp_path / "old.sqlite", 2, without_snapshot=True)
        journal.record_outcome(outcome("d000000"))
        with pytest.raises(JournalError, match="the journal has no snapshot to go on from"):
            journal.archive(tmp_path / "old.sqlite")
    with Journal.memory() as journal, pytest.raises(JournalError, match="has no file to archive from"):
        journal.archive(tmp_path / "old.sqlite", 1)


def test_damaged_rows_are_not_moved(path, tmp_path):
    edit(path, "UPDATE decisions SET slot = 77 WHERE sequence = 2")
    with Journal.open(path) as journal:
        with pytest.raises(JournalError, match=r"decisions\[2\] = .*digest does not fit"):
            journal.archive(tmp_path / "old.sqlite")
        assert journal.first() == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run.journal"]


def test_killed_between_the_file_and_the_journal_it_is_finished_the_next_time(path, tmp_path, monkeypatch):
    old = tmp_path / "old.sqlite"

    def die(*_):
        raise KeyboardInterrupt

    with Journal.open(path) as journal:
        monkeypatch.setattr(archive, "_leave", die)
        with pytest.raises(KeyboardInterrupt):
            journal.archive(old)
        monkeypatch.undo()
        assert old.exists()
        assert journal.first() == 0
        journal.verify()
        whole = old.read_bytes()
        journal.archive(old)
        assert journal.first() == 30
        assert old.read_bytes() == whole
        fill(journal, 5)
        journal.record_snapshot(45, {}, {})
        with pytest.raises(JournalError, match=r"old.sqlite': is there already. Choose another name"):
            journal.archive(old)
        shutil.copy(old, tmp_path / "copy.sqlite")
        journal.verify()


def test_a_task_of_an_archived_decision_may_be_told_again(path, tmp_path):
    with Journal.open(path) as journal:
        journal.archive(tmp_path / "old.sqlite")
        journal.record_task(task(3))
        with pytest.raises(JournalError, match="is another task's"):
            journal.record_task(task(3, steps=9))
