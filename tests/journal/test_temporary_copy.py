"""A journal copied whole while another goes on writing it."""

import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import DecisionRecord, ExplanationRecord, Journal, JournalHeader
from attribution_sched.journal.journal import temporary_copy

HEADER = JournalHeader("p", "sjf", {}, {}, "0")


def decide(journal, count):
    for _ in range(count):
        journal.record_decision(DecisionRecord(None, 0.0, "sjf", [0]))


def test_a_copy_holds_what_was_there_and_not_what_comes_after(tmp_path):
    path = tmp_path / "j.sqlite"
    with Journal.create(path, HEADER) as live:
        decide(live, 3)
        with temporary_copy(path) as copy:
            decide(live, 2)
            with Journal.open(copy) as own:
                assert [each.id for each in own.decisions()] == [each.id for each in live.decisions(0, 3)]
                decide(own, 4)
                assert own.count() == 7
            assert live.count() == 5
        assert not copy.exists()
        assert not copy.parent.exists()


def waits_for_the_disk(journal):
    return journal._connection.execute("PRAGMA synchronous").fetchone()[0] > 1


def test_a_copy_that_is_thrown_away_does_not_wait_for_the_disk_its_original_does(tmp_path):
    path = tmp_path / "j.sqlite"
    with Journal.create(path, HEADER) as live:
        decide(live, 1)
        with temporary_copy(path) as copy, Journal.open(copy) as own:
            own.record_explanation(ExplanationRecord("d000000", "terms", {}))  # on disk soon is enough
            decide(own, 1)
            decide(live, 1)
            assert not waits_for_the_disk(own)
            assert waits_for_the_disk(live)


def test_weights_lie_beside_the_copy_too(tmp_path):
    path = tmp_path / "j.sqlite"
    Journal.create(path, HEADER).close()
    (tmp_path / "j.sqlite.learnt-0.safetensors").write_text("weights")
    (tmp_path / "other.safetensors").write_text("others'")
    with temporary_copy(path) as copy:
        assert (copy.parent / "j.sqlite.learnt-0.safetensors").read_text() == "weights"
        assert not (copy.parent / "other.safetensors").exists()
    assert (tmp_path / "j.sqlite.learnt-0.safetensors").exists()


def test_a_journal_that_is_none_is_refused(tmp_path):
    with pytest.raises(JournalError, match="does not exist"), temporary_copy(tmp_path / "none.sqlite"):
        pass
    assert list(tmp_path.iterdir()) == []
