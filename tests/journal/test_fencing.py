"""Fencing: a writer that another one got past can write no more, and nobody writes into a file that is gone."""

import subprocess
import sys
from pathlib import Path

import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import EventRecord, Journal
from tests.journal.journal_records import HEADER, decision, fill, outcome, task

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        fill(journal, 3)
    return path


def past_the_lock(path, **given):
    """A second writer, let in because somebody deleted the lock file."""
    path.with_name(path.name + ".lock").unlink()
    return Journal.open(path, **given)


def test_a_second_writer_stops_the_first_at_its_next_record(path):
    with Journal.open(path) as first:
        fill(first, 1)
        with past_the_lock(path) as second:
            for record in (
                lambda: first.record_decision(decision()),
                lambda: first.record_event(EventRecord("note")),
                lambda: first.record_outcome(outcome("d000003")),
                lambda: first.record_task(task(77)),
                lambda: first.record_intent("submit", {}),
                lambda: first.record_snapshot(1, {}, {}),
                lambda: first.compact(),
            ):
                with pytest.raises(JournalError, match=r"was taken over by another writer .process \d+ on .* since 20"):
                    record()
            fill(second, 2)
            assert second.count() == 6
        first.close()
    with Journal.open(path) as journal:
        assert [each.sequence for each in journal.decisions()] == list(range(6))
        journal.verify()


def test_a_batch_of_the_first_writer_is_refused_as_a_whole(path):
    with Journal.open(path) as first:
        past_the_lock(path).close()
        with pytest.raises(JournalError, match="was taken over"), first.batch():
            fill(first, 5)
        assert first.count() == 3


def test_the_second_writer_leaves_its_own_lock_when_the_first_ends(path):
    first = Journal.open(path)
    with past_the_lock(path) as second:
        first.close()
        with pytest.raises(JournalError, match="is being written by this process"):
            Journal.open(path)
        fill(second, 1)


def test_one_that_only_looked_leaves_the_file_alone_and_is_told_of_others(path):
    before = path.read_bytes()
    Journal.open(path, claim=False).close()
    assert path.read_bytes() == before
    first = Journal.open(path, claim=False)
    with past_the_lock(path, claim=False) as second:
        fill(second, 1)
        for _ in range(2):
            with pytest.raises(JournalError, match="was written by another since it was opened here"):
                fill(first, 1)
        fill(second, 1)
        first.close()
        assert second.count() == 5
        second.verify()


def test_two_processes_past_the_lock_leave_a_whole_journal(path):
    """Both write as fast as they can; every record of either is whole, and one of them is stopped."""
    code = """
import sys
from attribution_sched.errors import JournalError
from attribution_sched.journal import Journal
from tests.journal.journal_records import fill
from pathlib import Path
journal = None
while journal is None:
    Path(sys.argv[1] + ".lock").unlink(missing_ok=True)
    try:
        journal = Journal.open(sys.argv[1])
    except JournalError as error:  # The other one made a new lock since.
        if "is being written" not in str(error):
            raise
try:
    for _ in range(60):
        fill(journal, 1)
    print("done")
except JournalError as error:
    print("taken over" if "taken over" in str(error) else error)
journal.close()
"""
    command = [sys.executable, "-c", code, str(path)]
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [child.communicate(timeout=120)[0].strip() for child in children]
    assert all(child.returncode == 0 for child in children)
    assert set(said) <= {"done", "taken over"}
    assert "done" in said
    with Journal.open(path) as journal:
        assert [each.sequence for each in journal.decisions()] == list(range(journal.count()))
        assert journal.count() >= 63
        journal.verify()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_journal_deleted_while_it_is_open_is_noticed_at_the_next_record(path, tmp_path, replaced):
    whole = path.read_bytes()
    with Journal.open(path) as journal:
        path.rename(tmp_path / "away")
        if replaced:
            path.write_bytes(whole)
        for _ in range(2):
            with pytest.raises(JournalError, match="was deleted or replaced while it was open"):
                fill(journal, 1)
        with pytest.raises(JournalError, match="was deleted or replaced"), journal.batch():
            fill(journal, 2)
    assert not replaced or path.read_bytes() == whole


def test_a_number_that_is_not_the_next_is_refused(path):
    with Journal.open(path) as journal:
        for wrong in (2, 4):
            with pytest.raises(JournalError, match=f"decision.sequence = {wrong}: the next decision .* is number 3"):
                journal.record_decision(decision(sequence=wrong))
        assert journal.record_decision(decision(sequence=3)).sequence == 3
