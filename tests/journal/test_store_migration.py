"""A journal of release 0.1: brought up to date whole or not at all, also by a process that dies.

`journal_0_1.sqlite.gz` was written by the package of release 0.1 (schema version 2).
"""

import gzip
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import ExplanationRecord, Journal, store
from tests.journal.journal_records import HEADER, decision, fill, outcome, task

ROOT = Path(__file__).parents[2]


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.sqlite"
    path.write_bytes(gzip.decompress((Path(__file__).parent / "journal_0_1.sqlite.gz").read_bytes()))
    return path


def version(path):
    connection = sqlite3.connect(path)
    found = connection.execute("PRAGMA user_version").fetchone()[0], connection.execute("PRAGMA quick_check").fetchall()
    connection.close()
    return found


def test_nothing_is_lost_and_all_of_it_is_in_the_chain(old):
    assert version(old)[0] == 2
    with Journal.open(old) as journal:
        # A journal carries its settings: that a preset's name now means another world changes nothing in it.
        assert journal.header == replace(HEADER, preset="cross-domain")
        assert len(journal.header.journal_id) == 12
        assert list(journal.tasks()) == [
            *(task(n) for n in range(6)), task(99, kind="仅提交", meta={"after_decisions": 6})
        ]  # fmt: skip
        entries = list(journal.entries())
        assert [each.sequence for each, _ in entries] == list(range(7))
        for n, (made, result) in enumerate(entries[:6]):
            assert made.action == decision(n).action
            assert (made.plan, made.attribution, made.weights) == (
                decision().plan,
                decision().attribution,
                (0.5, 0.3, 0.2),
            )
            assert result == outcome(made.id)
        last, none = entries[6]
        assert none is None
        assert (last.cluster_time_s, last.plan, last.weights, last.slot) == (0.0, None, None, None)
        assert journal.explanations("d000001") == [ExplanationRecord("d000001", "terms", {"values": [[0.6]]})]
        assert [(each.changed, each.rolled_back, each.reason_zh) for each in journal.feedback()] == [
            ("w_cost", True, "账单超标"), ("w_cost", False, "")
        ]  # fmt: skip
        assert [(each.kind, each.cluster_time_s) for each in journal.events()] == [("start", 3.5)]
        # Header, 7 tasks, 7 decisions, 6 outcomes, 2 explanations, 2 changes, 1 event, and the epoch of this opening.
        assert journal.verify().rows == 27
        fill(journal, 2)
        journal.verify()
    assert version(old) == (3, [("ok",)])
    with Journal.open(old) as journal:
        assert journal.count() == 9


def test_the_tables_are_those_of_a_new_journal(old, tmp_path):
    def shape(path):
        connection = sqlite3.connect(path)
        found = sorted(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall(), key=str)
        connection.close()
        return found

    Journal.open(old).close()
    Journal.create(tmp_path / "new.journal", HEADER).close()
    assert shape(old) == shape(tmp_path / "new.journal")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE decisions SET plan = '[1' WHERE sequence = 3", r"decisions\[3\].plan = '\[1': is not JSON"),
        ("UPDATE tasks SET steps = 'many' WHERE number = 2", r"tasks\[2\].steps = 'many': is no whole number"),
        ("UPDATE outcomes SET reward = 9e999", r"outcomes\[0\].reward = inf: is no finite number"),
        ("DELETE FROM header", "has no header"),
    ],
)
def test_what_is_damaged_is_left_as_it_was(old, statement, words):
    connection = sqlite3.connect(old)
    for table in store.FORMER:
        for event in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {table}_no_{event}")
    connection.execute(statement)
    connection.commit()
    before = list(connection.iterdump())
    connection.close()
    with pytest.raises(JournalError, match=words):
        Journal.open(old)
    assert version(old) == (2, [("ok",)])
    connection = sqlite3.connect(old)
    assert list(connection.iterdump()) == before
    connection.close()


def test_a_migration_that_fails_at_any_row_leaves_the_file_as_it_was(old, monkeypatch):
    real, calls = store._checked, []

    def fail(table, row):
        calls.append(table)
        if len(calls) == at:
            raise sqlite3.OperationalError("database or disk is full")
        return real(table, row)

    monkeypatch.setattr(store, "_checked", fail)
    for at in range(1, 26):  # noqa: B007 (read by the closure)
        calls.clear()
        with pytest.raises(JournalError, match=r"could not be brought from version 2 to 3 .*full.*It is unchanged"):
            Journal.open(old)
        assert version(old) == (2, [("ok",)])
    monkeypatch.undo()
    with Journal.open(old) as journal:
        assert journal.count() == 7
        journal.verify()


def test_a_process_killed_meanwhile_leaves_one_version_or_the_other(old, tmp_path):
    chance = random.Random(4)
    whole = old.read_bytes()
    code = (
        "import sys, time\n"
        "from attribution_sched.journal import Journal, store\n"
        "real = store._checked\n"
        "store._checked = lambda *given: (time.sleep(0.004), real(*given))[1]\n"
        "print('ready', flush=True)\n"
        "Journal.open(sys.argv[1]).close()\n"
    )
    seen = set()
    for run in range(8):
        copy = tmp_path / f"copy{run}.sqlite"
        copy.write_bytes(whole)
        child = subprocess.Popen([sys.executable, "-c", code, str(copy)], cwd=ROOT, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.0, 0.2))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        found, pages = version(copy)
        assert found in (2, store.VERSION)
        assert pages == [("ok",)]
        seen.add(found)
        with Journal.open(copy) as journal:
            assert journal.count() == 7
            journal.verify()
    assert seen
