"""Journals of release 0.1 and before: refused by the package by name, brought up to date by the script beside it."""

import gzip
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import ExplanationRecord, FeedbackRecord, Journal
from calibration import convert_journal
from calibration.convert_journal import FORMER, convert
from tests.journal.journal_records import HEADER, decision, fill, outcome, task

ROOT = Path(__file__).parents[2]

VERSION_0 = """
CREATE TABLE header (id INTEGER PRIMARY KEY CHECK (id = 0), preset TEXT NOT NULL, policy TEXT NOT NULL,
    settings TEXT NOT NULL, seeds TEXT NOT NULL, package_version TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE tasks (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, steps INTEGER NOT NULL,
    submitted_s REAL NOT NULL, counters TEXT NOT NULL, meta TEXT NOT NULL);
CREATE TABLE decisions (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, task_id TEXT REFERENCES tasks (id),
    cluster_time_s REAL NOT NULL, policy TEXT NOT NULL, source TEXT NOT NULL, plan TEXT, attribution TEXT,
    action TEXT NOT NULL, view_digest TEXT NOT NULL, latencies_s TEXT NOT NULL, w_eff REAL, w_util REAL, w_cost REAL,
    provenance TEXT NOT NULL, recorded_at TEXT NOT NULL);
CREATE TABLE outcomes (sequence INTEGER PRIMARY KEY REFERENCES decisions (sequence), r_eff REAL, r_util REAL,
    r_cost REAL, reward REAL, step_s REAL, bill_usd REAL, energy_j REAL, code INTEGER NOT NULL,
    provenance TEXT NOT NULL, details TEXT NOT NULL);
CREATE TABLE explanations (sequence INTEGER NOT NULL REFERENCES decisions (sequence), target TEXT NOT NULL,
    explanation TEXT NOT NULL, PRIMARY KEY (sequence, target));
CREATE TABLE feedback (number INTEGER PRIMARY KEY, changed TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL,
    reason TEXT NOT NULL, after_decisions INTEGER NOT NULL, recorded_at TEXT NOT NULL);
CREATE TABLE events (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, details TEXT NOT NULL, cluster_time_s REAL,
    recorded_at TEXT NOT NULL);
PRAGMA application_id = 1096045395;
PRAGMA user_version = 0;
INSERT INTO header VALUES (0, 'testbed', 'greedy', '{"a":1}', '{"cluster":7}', '0.0.9', '2025-12-31T00:00:00+00:00');
INSERT INTO tasks VALUES (0, 'task-0', 'bert-base', 400, 12.5, '{"power_w":250.1}', '{"tier":1}');
INSERT INTO decisions VALUES (0, 'd000000', 'task-0', 0.1, 'greedy', 'policy', NULL, NULL, '[[0,12,3,0,1]]', 'ab12',
    '{"decide":0.02}', 0.5, 0.3, 0.2, '{}', '2025-12-31T00:00:01+00:00');
INSERT INTO decisions VALUES (1, 'd000001', NULL, 1.1, 'greedy', 'policy', '{"p":1}', '{"v":[0.1]}', '[]', '', '{}',
    NULL, NULL, NULL, '{}', '2025-12-31T00:00:02+00:00');
INSERT INTO outcomes VALUES (0, 0.1, 0.6, 0.25, -0.125, 1.5, 0, 10000, 1, 'simulated', '{}');
INSERT INTO explanations VALUES (0, 'terms', '{"values":[[0.5]]}');
INSERT INTO feedback VALUES (0, 'w_cost', '0.2', '0.25', 'the bill is above its target', 1,
    '2025-12-31T00:00:03+00:00');
INSERT INTO events VALUES (0, 'start', '{}', NULL, '2025-12-31T00:00:00+00:00');
"""


@pytest.fixture
def oldest(tmp_path):
    """A journal of version 0."""
    path = tmp_path / "oldest.journal"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(VERSION_0)
    connection.close()
    return path


@pytest.fixture
def old(tmp_path):
    """A journal written by the package of release 0.1 (version 2)."""
    path = tmp_path / "old.sqlite"
    path.write_bytes(gzip.decompress((Path(__file__).parent / "journal_0_1.sqlite.gz").read_bytes()))
    return path


def dump(path):
    connection = sqlite3.connect(path)
    text = list(connection.iterdump()), connection.execute("PRAGMA user_version").fetchone()[0]
    assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    connection.close()
    return text


@pytest.mark.parametrize(("name", "version"), [("oldest", 0), ("old", 2)])
def test_an_older_journal_is_one_error_that_names_the_script(request, name, version):
    path = request.getfixturevalue(name)
    before = dump(path)
    words = (
        f"has schema version {version}, this package needs 3. Bring it up to date: python calibration/convert_journal"
    )
    for attempt in (Journal.open, Journal.read):
        with pytest.raises(JournalError, match=words):
            attempt(path)
    assert dump(path) == before
    assert (ROOT / "calibration" / "convert_journal.py").is_file()


def test_the_script_says_what_it_did_or_what_is_wrong(old, tmp_path):
    def run(path):
        command = [sys.executable, "calibration/convert_journal.py", str(path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})

    done = run(old)
    assert (done.returncode, done.stdout) == (0, f"{old}: version 2 became 3\n")
    for path, words in ((old, "has schema version 3"), (tmp_path / "nowhere", "does not exist")):
        assert run(path).returncode == 1 and words in run(path).stderr
    assert "Traceback" not in run(tmp_path).stderr


def test_nothing_of_version_0_is_lost(oldest):
    assert convert(oldest) == 0
    with Journal.open(oldest) as journal:
        assert journal.header.preset == "testbed"
        assert list(journal.tasks()) == [task()]
        first, second = journal.decisions()
        assert first == replace(
            decision(0, task_id="task-0", policy="greedy", plan=None, attribution=None, slot=None, provenance={}),
            action=[[0, 12, 3, 0, 1]], latencies_s={"decide": 0.02}, id="d000000", sequence=0,
        )  # fmt: skip
        assert (second.plan, second.attribution, second.weights) == ({"p": 1}, {"v": [0.1]}, None)
        assert journal.outcome("d000000") == outcome("d000000", r_util=0.6, details={})
        assert journal.explanations("d000000") == [ExplanationRecord("d000000", "terms", {"values": [[0.5]]})]
        assert [(each.reason, each.undoes) for each in journal.feedback()] == [("the bill is above its target", None)]
        assert [each.kind for each in journal.events()] == ["start"]
        assert journal.pending() == [second]
        # The new columns can be used.
        journal.record_decision(decision(slot=4))
        journal.record_feedback(FeedbackRecord("w_cost", 0.25, 0.2, "back", undoes=0, reason_zh="撤回"))
        assert journal.last().slot == 4
        assert journal.feedback()[0].rolled_back
        assert [each.reason_zh for each in journal.feedback()] == ["", "撤回"]


def test_nothing_of_version_2_is_lost_and_all_of_it_is_in_the_chain(old):
    assert convert(old) == 2
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


@pytest.mark.parametrize("name", ["oldest", "old"])
def test_the_tables_are_those_of_a_new_journal(request, name, tmp_path):
    def shape(path):
        connection = sqlite3.connect(path)
        objects = sorted(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall(), key=str)
        connection.close()
        return objects

    path = request.getfixturevalue(name)
    convert(path)
    Journal.create(tmp_path / "new.journal", HEADER).close()
    assert shape(path) == shape(tmp_path / "new.journal")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE decisions SET plan = '[1' WHERE sequence = 3", r"decisions\[3\].plan = '\[1': is not JSON"),
        ("UPDATE tasks SET steps = 'many' WHERE number = 2", r"tasks\[2\].steps = 'many': must be a whole number"),
        ("UPDATE outcomes SET reward = 9e999", r"outcomes\[0\].reward = inf: must be finite"),
        ("DELETE FROM header", "has no header"),
    ],
)
def test_what_is_damaged_is_left_as_it_was(old, statement, words):
    connection = sqlite3.connect(old)
    for table in FORMER:
        for event in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {table}_no_{event}")
    connection.execute(statement)
    connection.commit()
    connection.close()
    before = dump(old)
    with pytest.raises(JournalError, match=words):
        convert(old)
    assert dump(old) == before


@pytest.mark.parametrize("at", [1, 9, 25])
def test_a_failure_at_any_row_leaves_the_file_as_it_was(old, monkeypatch, at):
    real, calls, before = convert_journal.checked_row, [], dump(old)

    def fail(table, row):
        calls.append(table)
        if len(calls) == at:
            raise sqlite3.OperationalError("database or disk is full")
        return real(table, row)

    monkeypatch.setattr(convert_journal, "checked_row", fail)
    with pytest.raises(JournalError, match=r"could not be brought from version 2 to 3 .*full.*It is unchanged"):
        convert(old)
    assert dump(old) == before
