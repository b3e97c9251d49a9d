"""Exports: nothing is lost on the way, and nothing half-written is left."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import asdict

import pyarrow.parquet as pq
import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import EventRecord, ExplanationRecord, FeedbackRecord, Journal, export
from benchmarks.campaign_journal import edit
from tests.journal.journal_records import HEADER, decision, fill, task

UNITS = {"cluster_time_s", "latencies_s", "step_s", "bill_usd", "energy_j"}


@pytest.fixture
def journal(tmp_path):
    with Journal.create(tmp_path / "run.journal", HEADER) as made:
        with made.batch():
            fill(made, 700)
        made.record_decision(decision(700, plan=None, weights=None, slot=None, policy='odd "name", 中文\nline'))
        made.record_explanation(ExplanationRecord("d000003", "terms", {"values": [[1 / 3]]}))
        made.record_feedback(FeedbackRecord("w_cost", 0.2, 0.25, "the bill is above its target"))
        made.record_event(EventRecord("start", {"host": "a"}))
        yield made


def seen(value):
    return export.seen(value) if isinstance(value, str) else value


def rows(journal):
    return [dict(zip(export.COLUMNS, row, strict=True)) for row in export.rows(journal)]


def test_parquet(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "ROW_GROUP", 300)
    found = pq.read_table(journal.export(tmp_path / "out.parquet"))
    assert found.to_pylist() == [{name: seen(value) for name, value in row.items()} for row in rows(journal)]
    assert found.num_rows == 701
    assert set(found.column_names) >= UNITS
    assert json.loads(found.schema.metadata[b"journal"])["preset"] == "cross-domain-easy"
    assert json.loads(found["action"][5].as_py()) == decision(5).action


def test_csv(journal, tmp_path):
    with journal.export(tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    read = {int: int, float: float, str: str, dict: str}
    typed = [
        {name: None if not row[name] else read[kind](row[name]) for name, kind in export.COLUMNS.items()}
        for row in found
    ]
    assert typed == [{name: seen(value) for name, value in row.items()} for row in rows(journal)]


def test_json_holds_everything(journal, tmp_path):
    found = json.loads(journal.export(tmp_path / "out.json").read_text("utf-8"))
    assert found["header"] == asdict(HEADER) | {"schema_version": 3, "journal_id": journal.header.journal_id}
    positions = [row.pop("position") for row in found["tasks"]]
    assert positions == sorted(positions)
    assert len({row.pop("hash") for row in found["tasks"]}) == 700
    assert found["tasks"] == [asdict(task(n)) | {"number": n} for n in range(700)]
    assert found["events"][0]["details"] == {"host": "a"}
    assert found["feedback"][0]["reason"] == "the bill is above its target"
    assert found["decisions"][3]["explanations"][0]["explanation"] == {"values": [[1 / 3]]}
    assert found["decisions"][700]["outcome"] is None
    check(found["decisions"], journal)


def test_json_lines(journal, tmp_path):
    lines = journal.export(tmp_path / "out.jsonl").read_text("utf-8").splitlines()
    check([json.loads(line) for line in lines], journal)


def check(found, journal):
    entries = list(journal.entries())
    assert len(found) == len(entries)
    for got, (made, result) in zip(found, entries, strict=True):
        assert {name: got[name] for name in asdict(made)} == json.loads(json.dumps(asdict(made)))
        told = got["outcome"]
        assert result is None or len(told.pop("hash")) == 64
        assert told == (None if result is None else json.loads(json.dumps(asdict(result))))
        assert len(got["hash"]) == 64


@pytest.mark.parametrize("ending", ["parquet", "csv", "json", "jsonl"])
def test_an_empty_journal_can_be_exported_over_an_older_file(tmp_path, ending):
    target = tmp_path / f"out.{ending}"
    target.write_text("older")
    with Journal.memory() as journal:
        journal.export(target)
    assert "older" not in target.read_text("utf-8", errors="replace")
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("ending", ["parquet", "csv", "json", "jsonl"])
def test_an_export_that_fails_leaves_the_older_file(tmp_path, ending, monkeypatch):
    target = tmp_path / f"out.{ending}"
    target.write_text("older")
    with Journal.memory() as journal:
        fill(journal, 300)
        ask, asked = type(journal).rows, []

        def fail(self, query, *values):
            asked.append(query)
            if len(asked) > 2:
                raise OSError(28, "No space left on device")
            return ask(self, query, *values)

        monkeypatch.setattr(type(journal), "rows", fail)
        with pytest.raises(JournalError, match=r"cannot be written .No space left on device."):
            journal.export(target)
        monkeypatch.undo()
    assert target.read_text() == "older"
    assert list(tmp_path.iterdir()) == [target]


def test_targets_that_cannot_be(tmp_path):
    path = tmp_path / "run.json"
    with Journal.create(path, HEADER) as journal:
        (tmp_path / "folder.csv").mkdir()
        for target, words in (
            ("out.parket", "ending '.parket' is not known. Did you mean '.parquet'"),
            ("out", "ending '' is not known. Valid: .csv, .json, .jsonl, .parquet"),
            ("run.json", "is the journal itself"),
            ("folder.csv", "is a folder"),
            ("nowhere/out.csv", "cannot be written .No such file or directory."),
        ):
            with pytest.raises(JournalError, match=words):
                journal.export(tmp_path / target)


def test_what_others_wrote_is_harmless_in_every_export(tmp_path):
    bad = "=cmd|' /C calc'!A0\x1b[31m\u202e"
    with Journal.create(tmp_path / "run.journal", HEADER) as journal:
        for n, name in enumerate((bad, "+1", "-1", "@x", "\tx", "\rx", "fine - not +")):
            journal.record_decision(decision(n, policy=name, plan={"note": "\x9b\u2066x\x7f"}))
        for ending in ("csv", "json", "jsonl", "parquet"):
            journal.export(tmp_path / f"out.{ending}")
    for ending in ("csv", "json", "jsonl"):
        text = (tmp_path / f"out.{ending}").read_text("utf-8")
        assert export.UNSEEN.findall(text.replace("\n", "")) == []
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["policy"] for row in found] == [
        "'=cmd|' /C calc'!A0\\u001b[31m\\u202e", "'+1", "'-1", "'@x", "\\u0009x", "\\u000dx", "fine - not +"
    ]  # fmt: skip
    # Numbers stay numbers, and JSON still holds what it held.
    assert found[0]["cluster_time_s"] == "0.1"
    assert json.loads(found[0]["plan"]) == {"note": "\x9b\u2066x\x7f"}
    told = json.loads((tmp_path / "out.json").read_text("utf-8"))["decisions"][0]
    assert (told["policy"], told["plan"]) == (bad, {"note": "\x9b\u2066x\x7f"})
    column = pq.read_table(tmp_path / "out.parquet")["policy"].to_pylist()
    assert column[0] == "=cmd|' /C calc'!A0\\u001b[31m\\u202e"


def test_exported_rows_carry_the_hash_of_their_row(journal, tmp_path):
    hashes = {values["sequence"]: found for _, found, values in journal.chained("decisions")}
    frame = pq.read_table(journal.export(tmp_path / "out.parquet")).to_pylist()
    assert {row["sequence"]: row["hash"] for row in frame} == hashes
    told = json.loads(journal.export(tmp_path / "out.json").read_text("utf-8"))
    assert {row["sequence"]: row["hash"] for row in told["decisions"]} == hashes
    assert {row["hash"] for row in told["events"]} == {found for _, found, _ in journal.chained("events")}


def test_a_damaged_row_is_not_exported(journal, tmp_path):
    path = tmp_path / "run.journal"
    journal.close()
    for statement, words in (
        ("UPDATE tasks SET kind = 'other' WHERE number = 5", r"tasks\[5\] = "),
        ("UPDATE outcomes SET reward = 7.5 WHERE sequence = 4", r"outcomes\[4\] = "),
    ):
        edit(path, statement)
        with Journal.read(path) as damaged:
            for ending in ("csv", "parquet"):
                with pytest.raises(JournalError, match=words):
                    damaged.export(tmp_path / f"out.{ending}")
        assert [each.name for each in tmp_path.iterdir() if "out" in each.name] == []


def test_drafts_of_dead_processes_are_swept_and_those_of_the_living_are_not(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [tmp_path / f".{name}.{dead.pid}.new{end}" for name, end in (("a.csv", ""), ("b", "-wal"))]
    other = tmp_path / f".c.csv.{os.getppid()}.new"
    mine = tmp_path / ".notes.new"
    for file in (*left, other, mine):
        file.touch()
    with Journal.memory() as journal:
        journal.export(tmp_path / "out.csv")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([other.name, mine.name, "out.csv"])
    left[0].touch()
    Journal.create(tmp_path / "new.journal", HEADER).close()
    assert not left[0].exists()
