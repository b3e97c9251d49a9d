"""The chain: whatever is changed behind the journal's back is noticed and named."""

import hashlib
import sqlite3
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attribution_sched.errors import JournalError
from attribution_sched.journal import EventRecord, ExplanationRecord, Journal
from attribution_sched.journal.rows import canonical, check_of, digest_of
from attribution_sched.journal.schema import TABLES
from benchmarks.campaign_journal import build, campaign, edit, edit_anything, flip
from tests.journal.journal_records import HEADER, fill

VALUE = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
    | st.binary()
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.journal"
    build(path, 12)
    return path


def parsed(written):
    """Canonical bytes read back, by a reader of its own."""
    found, at = [], 0
    while at < len(written):
        tag, at = written[at : at + 1], at + 1
        if tag == b"N":
            found.append(None)
        elif tag == b"R":
            found.append(struct.unpack("<d", written[at : at + 8])[0])
            at += 8
        elif tag == b"I":
            end = written.index(b";", at)
            found.append(int(written[at:end]))
            at = end + 1
        else:
            end = written.index(b":", at)
            size = int(written[at:end])
            value = written[end + 1 : end + 1 + size]
            found.append(value.decode() if tag == b"T" else value)
            at = end + 1 + size
    return found


@given(st.lists(VALUE, max_size=6))
def test_canonical_bytes_can_be_read_back_so_no_two_rows_share_them(values):
    again = parsed(canonical(values))
    assert [(type(each), each) for each in again] == [(type(each), each) for each in values]


def test_the_hash_is_what_the_documentation_says(path):
    """Computed here from the tables alone, without the package."""
    connection = sqlite3.connect(path)
    rows = []
    for table in TABLES:
        rows += [(row[0], table, row) for row in connection.execute(f"SELECT * FROM {table}")]
    connection.close()
    previous = hashlib.sha256(b"attribution_sched journal").digest()
    for at, (position, table, row) in enumerate(sorted(rows)):
        assert position == at
        digest = hashlib.sha256(table.encode() + b";" + canonical(row[:-2])).digest()
        previous = hashlib.sha256(previous + digest).digest()
        assert row[-1] == previous
        assert row[-2] == int.from_bytes(digest[:8], "little", signed=True)
    with Journal.read(path) as journal:
        told = journal.verify()
        assert (told.rows, told.head, told.first) == (len(rows), previous.hex(), 0)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE decisions SET cluster_time_s = 9.5 WHERE sequence = 3", r"decisions\[3\] = .*its digest does not fit"),
        ("UPDATE decisions SET plan = 7 WHERE sequence = 3", r"decisions\[3\].plan = 7: must be a mapping"),
        (
            "UPDATE tasks SET steps = -4 WHERE number = 2",
            r"tasks\[2\].steps = -4: must be a whole number of at least 0",
        ),
        ("UPDATE tasks SET steps = 'x' WHERE number = 2", r"tasks\[2\].steps = 'x': must be a whole number"),
        ("UPDATE outcomes SET reward = 9e999 WHERE sequence = 1", r"outcomes\[1\].reward = inf: must be finite"),
        ("UPDATE events SET details = '[]' WHERE number = 0", r"events\[0\].details = \[\]: must be a mapping"),
        ("UPDATE waits SET slots = 'x' WHERE after_decisions = 2", r"waits\[2\].slots = 'x': must be bytes"),
        ("UPDATE decisions SET hash = zeroblob(32) WHERE sequence = 3", r"decisions\[3\] = .*its hash does not fit"),
        ("UPDATE decisions SET digest = 5 WHERE sequence = 3", r"decisions\[3\] = .*its digest does not fit"),
        ("DELETE FROM explanations WHERE sequence = 3", "position .*: has no row: it was removed"),
        ("DELETE FROM effects", "position .*: has no row: it was removed"),
        ("UPDATE events SET position = -3 WHERE number = 1", "events = 'row at position -3': is outside of the chain"),
        ("UPDATE bounds SET position = 1", "position 0.: is outside of the chain|its hash does not fit"),
        ("UPDATE bounds SET hash = zeroblob(32)", r"header\[campaign\] = .*its hash does not fit"),
        ("DELETE FROM bounds", "bounds = None: does not say where"),
        ("UPDATE snapshot_data SET data = zeroblob(10)", r"snapshots\[\d\] = .*its SHA-256 does not fit"),
        ("DELETE FROM snapshot_data", "snapshots = 'number 1': is the newest, and its bytes are gone"),
        ("INSERT INTO snapshot_data VALUES (5, x'00')", "has a snapshot that is not its own"),
    ],
)
def test_a_change_is_one_error_that_names_the_row(path, statement, words):
    edit(path, statement)
    with pytest.raises(JournalError, match=words), Journal.read(path) as journal:
        journal.verify()


def test_a_row_moved_or_put_in_is_noticed(path):
    edit(path, "UPDATE tasks SET position = 1000 WHERE number = 3")
    with Journal.read(path) as journal, pytest.raises(JournalError, match="has no row: it was removed"):
        journal.verify()


def test_a_row_with_a_right_digest_but_a_wrong_link_is_noticed(path):
    """Somebody who knows the digest, but does not compute all later hashes anew."""
    connection = sqlite3.connect(path)
    row = connection.execute("SELECT * FROM events WHERE number = 1").fetchone()
    connection.close()
    changed = (*row[:2], "other", *row[3:-2])
    digest = check_of(digest_of("events", changed))
    edit(path, ("UPDATE events SET kind = 'other', digest = ? WHERE number = 1", (digest,)))
    with Journal.read(path) as journal:
        assert [each.kind for each in journal.events()][1] == "other"
        with pytest.raises(JournalError, match=r"events\[1\] = .*does not follow from the row before it"):
            journal.verify()


def test_rows_cut_off_at_the_end_are_missed_once_it_was_closed(path):
    with Journal.open(path) as journal:
        journal.record_event(EventRecord("last"))
    edit(path, "DELETE FROM events WHERE kind = 'last'")
    for attempt in (lambda: Journal.open(path), lambda: Journal.read(path).verify()):
        with pytest.raises(JournalError, match="does not hold what it held when it was last closed"):
            attempt()


def test_text_that_is_none_is_one_error(path):
    edit(path, "UPDATE tasks SET kind = CAST(x'66ff80' AS TEXT) WHERE number = 2")
    with Journal.read(path) as journal:
        for ask in (lambda: list(journal.tasks()), lambda: journal.task("task-2"), journal.verify):
            with pytest.raises(JournalError, match=r"is damaged .*UTF-8"):
                ask()


def test_opening_for_writing_checks_from_the_newest_snapshot_on(path):
    edit(path, "UPDATE decisions SET slot = 77 WHERE sequence = 11")
    with pytest.raises(JournalError, match=r"decisions\[11\] = .*its digest does not fit"):
        Journal.open(path)
    edit(path, "UPDATE decisions SET slot = 2 WHERE sequence = 11")
    # Before the newest snapshot nothing is looked at; reading and verifying notice.
    edit(path, "UPDATE decisions SET slot = 77 WHERE sequence = 2")
    with Journal.open(path) as journal:
        with pytest.raises(JournalError, match=r"decisions\[2\]"):
            journal.decision("d000002")
        with pytest.raises(JournalError, match=r"decisions\[2\]"):
            journal.verify()
        assert journal.verify(since=journal.newest_snapshot().position).rows < 40


def test_an_explanation_that_is_replaced_stays_in_the_chain(tmp_path):
    with Journal.create(tmp_path / "run.journal", HEADER) as journal:
        fill(journal, 1)
        for n in range(3):
            journal.record_explanation(ExplanationRecord("d000000", "terms", {"n": n}), replace=True)
        assert [each.explanation for each in journal.explanations("d000000")] == [{"n": 2}]
        assert [values["explanation"]["n"] for _, _, values in journal.chained("explanations")] == [0, 1, 2]
        journal.verify()


def test_a_journal_in_memory_can_be_verified_from_any_row_on():
    with Journal.memory() as journal:
        fill(journal, 20)
        # Header, epoch, and of each decision task, decision and outcome.
        assert journal.verify().rows == 62
        assert journal.verify(since=40).rows == 22


@pytest.mark.parametrize(("damage", "runs"), [(flip, 60), (edit_anything, 60)])
def test_no_damage_is_unnoticed_and_none_is_a_traceback(tmp_path, damage, runs):
    build(tmp_path / "whole.sqlite", 12)
    counts, bad = campaign(damage, runs, 3, tmp_path)
    assert bad == []
    assert counts["noticed when read"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, edit_anything])
def test_no_damage_of_a_thousand_is_unnoticed(tmp_path, damage):
    assert campaign(damage, 1000, 11, tmp_path)[1] == []
