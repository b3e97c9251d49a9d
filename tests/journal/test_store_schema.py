"""Versions: older journals are brought up to date whole or not at all, newer ones are left alone."""

import shutil
import sqlite3
from dataclasses import replace

import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import EventRecord, ExplanationRecord, FeedbackRecord, Journal, store
from tests.journal.journal_records import HEADER, decision, fill, outcome, task

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
def old(tmp_path):
    path = tmp_path / "old.journal"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(VERSION_0)
    connection.close()
    return path


def dump(path):
    connection = sqlite3.connect(path)
    text = list(connection.iterdump()), connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return text


def test_an_old_journal_is_brought_up_to_date_and_nothing_is_lost(old):
    with pytest.raises(JournalError, match=r"has schema version 0, reading needs 3. Open it once with Journal.open"):
        Journal.read(old)
    with Journal.open(old) as journal:
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
    with Journal.read(old) as journal:
        assert journal.count() == 3


def test_an_old_journal_ends_up_with_todays_schema(old, tmp_path):
    def shape(path):
        connection = sqlite3.connect(path)
        names = {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in store.TABLES}
        triggers = sorted(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        found = names, triggers, connection.execute("PRAGMA user_version").fetchone()
        connection.close()
        return found

    Journal.open(old).close()
    Journal.create(tmp_path / "new.journal", HEADER).close()
    assert shape(old) == shape(tmp_path / "new.journal")


@pytest.mark.parametrize(
    "steps",
    [
        {**store.MIGRATIONS, 1: ("ALTER TABLE nowhere ADD COLUMN x",)},
        {**store.MIGRATIONS, 0: store.MIGRATIONS[0][:1]},
        {0: store.MIGRATIONS[0], 1: store.MIGRATIONS[1]},
        {},
    ],
)
def test_a_step_that_fails_leaves_the_file_as_it_was(old, steps, monkeypatch):
    before = dump(old)
    monkeypatch.setattr(store, "MIGRATIONS", steps)
    with pytest.raises(JournalError, match=r"could not be brought from version 0 to 3.*It is unchanged"):
        Journal.open(old)
    assert dump(old) == before
    monkeypatch.undo()
    with Journal.open(old) as journal:
        assert journal.count() == 2


def test_steps_are_taken_one_after_the_other(old, monkeypatch):
    more = {
        0: (*store.MIGRATIONS[0], "UPDATE decisions SET source = 'policy (old)'"),
        1: (*store.MIGRATIONS[1], "UPDATE decisions SET source = source || '!'"),
        3: ("CREATE TABLE notes (text TEXT)",),
    }
    monkeypatch.setattr(store, "VERSION", 4)
    monkeypatch.setattr(store, "MIGRATIONS", store.MIGRATIONS | more)
    with Journal.open(old) as journal:
        assert {each.source for each in journal.decisions()} == {"policy (old)!"}
    assert dump(old)[1] == (4,)
    # What a migration may do, nobody else may.
    connection = sqlite3.connect(old)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("UPDATE decisions SET source = ''")
    connection.close()


@pytest.mark.parametrize("version", [4, 99, -1])
def test_a_newer_journal_is_refused_and_left_alone(tmp_path, version):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        fill(journal, 1)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = path.read_bytes()
    for attempt in (Journal.open, Journal.read):
        with pytest.raises(
            JournalError, match=f"has schema version {version}; this package knows versions up to 3. Upgrade"
        ):
            attempt(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("left", ["wal", "none"])
def test_an_old_journal_of_a_killed_process_keeps_its_log(old, tmp_path, left):
    connection = sqlite3.connect(old)
    connection.execute("INSERT INTO events VALUES (1, 'late', '{}', NULL, '2025-12-31T00:00:09+00:00')")
    connection.commit()
    copy = tmp_path / "copy.journal"
    shutil.copy(old, copy)
    if left == "wal":
        shutil.copy(f"{old}-wal", f"{copy}-wal")
    connection.close()
    with Journal.open(copy) as journal:
        assert [each.kind for each in journal.events()] == ["start", "late"][: 2 if left == "wal" else 1]
        journal.record_event(EventRecord("resume"))
