"""The shared connection: durable one by one or in groups, whole when something fails, safe among threads."""

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import Journal
from tests.journal.journal_records import HEADER, decision, fill, killed, outcome, task

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["file", "memory"])
def journal(request, tmp_path):
    made = Journal.create(tmp_path / "run.journal", HEADER) if request.param == "file" else Journal.memory(HEADER)
    with made:
        yield made


def test_a_closed_journal_says_so(journal):
    journal.close()
    journal.close()
    for use in (journal.count, lambda: journal.record_decision(decision()), lambda: journal.batch().__enter__()):
        with pytest.raises(JournalError, match="is closed"):
            use()


def test_every_record_is_in_the_file_when_it_returns(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        assert journal.row("PRAGMA synchronous") == (2,)
        assert journal.row("PRAGMA journal_mode") == ("wal",)
        for n in range(5):
            fill(journal, 1, outcomes=False)
            with Journal.read(killed(path, tmp_path / f"copy{n}")) as copy:
                assert copy.count() == n + 1


def test_a_batch_is_in_the_file_group_by_group(tmp_path):
    path = tmp_path / "run.journal"

    def left(name):
        with Journal.read(killed(path, tmp_path / name)) as copy:
            return copy.count()

    with Journal.create(path, HEADER) as journal:
        with journal.batch(every=10):
            fill(journal, 9, outcomes=False)
            assert (journal.count(), left("a")) == (9, 0)
            with journal.batch(every=1):
                fill(journal, 1, outcomes=False)
                assert left("b") == 10
                fill(journal, 1, outcomes=False)
            assert left("c") == 10
        assert left("d") == 11
        fill(journal, 1, outcomes=False)
        assert left("e") == 12
        with pytest.raises(ZeroDivisionError), journal.batch():
            fill(journal, 1, outcomes=False)
            _ = 1 / 0
        assert left("f") == 13
        with pytest.raises(JournalError, match="every = 0"), journal.batch(every=0):
            pass


def test_closing_or_forgetting_inside_a_batch_keeps_what_was_recorded(tmp_path):
    path = tmp_path / "run.journal"
    journal = Journal.create(path, HEADER)
    with journal.batch():
        fill(journal, 3)
        journal.close()
    journal = Journal.open(path)
    batch = journal.batch()
    batch.__enter__()
    fill(journal, 1)
    del journal, batch
    with Journal.open(path) as journal:
        assert journal.count() == 4


@pytest.mark.parametrize("before", [None, 0, 2])
def test_what_is_recorded_as_one_is_there_as_a_whole_or_not_at_all(journal, before):
    """By itself, and in a batch that holds nothing yet, or two records."""
    with journal.batch() if before is not None else contextlib.nullcontext():
        fill(journal, before or 0)
        with pytest.raises(ZeroDivisionError), journal.as_one():
            fill(journal, 3)
            _ = 1 / 0
        assert journal.count() == (before or 0)
        with journal.as_one():
            fill(journal, 3)
    assert journal.count() == (before or 0) + 3
    fill(journal, 1)
    assert journal.count() == (before or 0) + 4
    journal.verify()


def test_a_full_disk_is_one_clear_error_and_loses_no_earlier_record(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        fill(journal, 5)
        journal.rows(f"PRAGMA max_page_count = {journal.row('PRAGMA page_count')[0] + 3}")
        with pytest.raises(JournalError, match=r"full.*the last record is not in it. Make room"):
            fill(journal, 1000)
        count = journal.count()
        assert count >= 5
        assert [each.sequence for each in journal.decisions()] == list(range(count))
        journal.rows("PRAGMA max_page_count = 100000")
        pending = len(journal.pending())
        fill(journal, 3)
        assert (journal.count(), len(journal.pending())) == (count + 3, pending)
    with Journal.open(path) as journal:
        assert journal.count() == count + 3


def test_a_full_disk_inside_a_batch_says_how_much_is_lost(tmp_path):
    with Journal.create(tmp_path / "run.journal", HEADER) as journal:
        fill(journal, 5)
        journal.rows(f"PRAGMA max_page_count = {journal.row('PRAGMA page_count')[0] + 3}")
        with pytest.raises(JournalError, match="full"), journal.batch():
            fill(journal, 1000)
        count = journal.count()
        assert [each.sequence for each in journal.decisions()] == list(range(count))
        journal.rows("PRAGMA max_page_count = 100000")
        fill(journal, 2)
        assert journal.count() == count + 2


def test_threads_share_a_journal(journal):
    problems = []

    def work(name):
        try:
            for n in range(40):
                made = journal.record_decision(decision(task_id=f"task-{name}{n}"), task=task(f"{name}{n}"))
                assert journal.decision(made.id) == made
                journal.record_outcome(outcome(made.id, code=n))
                assert len(list(journal.entries(max(0, made.sequence - 5), made.sequence + 1))) == min(
                    6, made.sequence + 1
                )
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    entries = list(journal.entries())
    assert [each.sequence for each, _ in entries] == list(range(160))
    for name in "abcd":
        mine = [found.code for each, found in entries if each.task_id.startswith(f"task-{name}")]
        assert mine == list(range(40))
    assert journal.pending() == []


def test_threads_share_a_batch(journal):
    def work(name):
        for n in range(50):
            journal.record_decision(decision(id=f"{name}{n}"))

    with journal.batch(every=7):
        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {each.id for each in journal.decisions()} == {f"{name}{n}" for name in "abc" for n in range(50)}


LONG = """
import json, sys
from attribution_sched.journal import Journal
from tests.journal.journal_records import HEADER, fill

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

used = []
with Journal.create(sys.argv[1], HEADER) as journal:
    for _ in range(10):
        with journal.batch():
            fill(journal, int(sys.argv[2]) // 10)
        used.append(resident_mb())
    assert sum(1 for _ in journal.entries()) == int(sys.argv[2])
    used.append(resident_mb())
    journal.export(sys.argv[1] + ".jsonl")
    used.append(resident_mb())
print(json.dumps(used))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory in use is read from /proc")
def test_a_hundred_thousand_decisions_need_no_more_memory_than_ten_thousand(tmp_path):
    command = [sys.executable, "-c", LONG, str(tmp_path / "long.journal"), "100000"]
    used = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert max(used) < used[0] + 2.0
