"""Reading: while another writes, and page by page."""

import tracemalloc

import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import Journal
from tests.journal.journal_records import HEADER, decision, fill, outcome


def test_a_reader_sees_what_a_writer_adds_but_may_add_nothing(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as writer, Journal.read(path) as reader:
        assert reader.header == HEADER
        fill(writer, 2)
        assert reader.count() == 2
        with writer.batch():
            fill(writer, 3)
            assert reader.count() == 2
        assert reader.count() == 5
        with pytest.raises(JournalError, match=r"open for reading only. Open it with Journal.open"):
            reader.record_decision(decision())
        fill(writer, 1)
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix == ".lock") == []


def test_reading_a_long_journal_needs_no_more_memory_than_a_short_one():
    def peak(number):
        with Journal.memory() as journal:
            with journal.batch():
                fill(journal, number)
            tracemalloc.start()
            assert sum(1 for _ in journal.entries()) == number
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return found

    peak(100)  # What the first reading of a process keeps for all later ones.
    # When a page is freed swings by a fifth; three times the rows would be three times the memory.
    assert peak(3000) < 1.5 * peak(1000)


def test_pending_are_those_without_outcome_wherever_they_are():
    with Journal.memory() as journal:
        fill(journal, 10, outcomes=False)
        for n in (0, 1, 4, 9):
            journal.record_outcome(outcome(f"d{n:06d}"))
        assert [each.sequence for each in journal.pending()] == [2, 3, 5, 6, 7, 8]
