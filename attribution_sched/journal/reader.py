"""Looking things up in a journal, page by page where there may be many; every row is checked as it is read."""

from __future__ import annotations

import hashlib
import math
import os
import re
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import JournalError, nearest, problem
from attribution_sched.journal import chain, export, schema
from attribution_sched.journal.records import (
    PROVENANCES,
    ArchiveRecord,
    DecisionRecord,
    EventRecord,
    ExplanationRecord,
    FeedbackRecord,
    HandleRecord,
    IntentRecord,
    JournalHeader,
    OutcomeRecord,
    SnapshotRecord,
    TaskRecord,
    Verified,
    WaitRecord,
)
from attribution_sched.journal.schema import DAMAGED, LARGEST_INTEGER, Row, damaged, decode, select, whole
from attribution_sched.journal.store import Store

if TYPE_CHECKING:
    import pandas as pd

DECISION_WIDTH = len(schema.columns("decisions")) + 3
ENTRIES = (
    f"SELECT d.sequence, {select('decisions', 'd')}, {select('outcomes', 'o')} "
    "FROM decisions d LEFT JOIN outcomes o ON o.sequence = d.sequence "
    "WHERE d.sequence >= ? AND d.sequence < ? ORDER BY d.sequence LIMIT ?"
)

MOST_SNAPSHOT_BYTES = 2**30
"""Bytes of a snapshot, unpacked: more is not a state of ours but an attack on the memory."""

NEIGHBOURS = 500
"""Ids of the newest records that a mistyped one is compared with."""

NAMED = re.compile(r"d(\d{6,})")
"""Ids that the journal gives."""


class Reader:
    """What can be asked of a journal.

    Attributes:
        path: The file; None in memory.
        header: What the run needs to be repeated.
    """

    def __init__(self, store: Store, path: Path | None) -> None:
        self._store = store
        self.path = path
        self.header: JournalHeader = read_header(self._all(f"SELECT {select('header')} FROM header")[0])

    def count(self) -> int:
        """Number of decisions, archived ones included."""
        here, archived = (
            f"(SELECT ifnull(max({column}), 0) FROM {table})"
            for column, table in (("sequence + 1", "decisions"), ("before", "archives"))
        )
        return self._whole(f"SELECT max({here}, {archived})")

    def first(self) -> int:
        """Number of the oldest decision that is not archived; the number of decisions if there is none."""
        found = self._store.row("SELECT min(sequence) FROM decisions")
        return self.count() if found is None or found[0] is None else whole("decisions.sequence", found[0])

    def key(self, decision_id: str, attempt: int = 0) -> str:
        """What a real cluster is to call what a decision launches: the same however often it is asked."""
        return f"{self.header.journal_id}-{decision_id}" + (f"-{attempt}" if attempt else "")

    def decision(self, decision_id: str) -> DecisionRecord:
        """One decision.

        Raises:
            JournalError: If there is none of that id; where it was archived, it says where.
        """
        row = self._one(f"SELECT {select('decisions')} FROM decisions WHERE id = ?", decision_id)
        if row is None:
            raise self._unknown("decision", decision_id)
        return read_decision(row)

    def last(self) -> DecisionRecord | None:
        """The newest decision; None if there is none."""
        row = self._store.row(f"SELECT {select('decisions')} FROM decisions ORDER BY sequence DESC LIMIT 1")
        return None if row is None else read_decision(row)

    def decisions(self, start: int = 0, stop: int | None = None) -> Iterator[DecisionRecord]:
        """Decisions numbered from ``start`` up to ``stop``, read page by page: memory does not grow with the journal.

        What is recorded while it runs is not part of it, nor is what was archived before.
        """
        for decision, _ in self.entries(start, stop):
            yield decision

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[DecisionRecord, OutcomeRecord | None]]:
        """Decisions as of :meth:`decisions`, each with its outcome, or None while it is pending."""
        for decision, outcome, _, _ in self.chained_entries(start, stop):
            yield decision, outcome

    def chained_entries(
        self, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[DecisionRecord, OutcomeRecord | None, str, str | None]]:
        """Entries as of :meth:`entries`, with the hash of the decision's and of the outcome's row."""
        for page in self._store.pages(ENTRIES, *self.bounds(start, stop)):
            for row in page:
                decision, rest = read_decision(row[1 : DECISION_WIDTH + 1]), row[DECISION_WIDTH + 1 :]
                outcome = None if rest[0] is None else read_outcome(decision.id, rest)
                yield decision, outcome, row[DECISION_WIDTH].hex(), None if outcome is None else rest[-1].hex()

    def pending(self) -> list[DecisionRecord]:
        """Decisions without outcome, oldest first: those a killed process may not have let take effect."""
        query = f"SELECT {select('decisions')} FROM decisions WHERE sequence NOT IN (SELECT sequence FROM outcomes)"
        return [read_decision(row) for row in self._store.rows(f"{query} ORDER BY sequence")]

    def outcome(self, decision_id: str) -> OutcomeRecord | None:
        """What a decision came to; None while it is pending.

        Raises:
            JournalError: If there is no decision of that id.
        """
        query = f"SELECT {select('outcomes', 'o')} FROM decisions d LEFT JOIN outcomes o USING (sequence)"
        row = self._one(f"{query} WHERE d.id = ?", decision_id)
        if row is None:
            raise self._unknown("decision", decision_id)
        return None if row[0] is None else read_outcome(decision_id, row)

    def explanations(self, decision_id: str) -> list[ExplanationRecord]:
        """Why a decision was made: the newest that was recorded of it for each target.

        Raises:
            JournalError: If there is no decision of that id.
        """
        found = self._one("SELECT sequence FROM decisions WHERE id = ?", decision_id)
        if found is None:
            raise self._unknown("decision", decision_id)
        query = f"SELECT {select('explanations')} FROM explanations WHERE sequence = ? ORDER BY position"
        newest = {row[2]: row for row in self._store.rows(query, found)}
        made = [read_explanation(decision_id, row) for row in newest.values()]
        return sorted(made, key=lambda each: each.target)

    def task(self, task_id: str) -> TaskRecord:
        """One task.

        Raises:
            JournalError: If there is none of that id.
        """
        row = self._one(f"SELECT {select('tasks')} FROM tasks WHERE id = ?", task_id)
        if row is None:
            raise self._unknown("task", task_id)
        return read_task(row)

    def knows_task(self, task_id: str) -> bool:
        """Whether there is a task of that id."""
        return self._store.row("SELECT 1 FROM tasks WHERE id = ?", (str(task_id),)) is not None

    def tasks(self, start: int = 0) -> Iterator[TaskRecord]:
        """Tasks in the order they were recorded, from the ``start``-th on, page by page."""
        for row in self._numbered("tasks", whole("start", start)):
            yield read_task(row)

    def task_count(self) -> int:
        """Number of tasks."""
        return self._whole("SELECT coalesce(max(number) + 1, 0) FROM tasks")

    def feedback(self) -> list[FeedbackRecord]:
        """All changes, oldest first, with whether they were taken back."""
        found = [decode("feedback", row) for row in self._numbered("feedback")]
        undone = {each["undoes"] for each in found}
        return [FeedbackRecord(**each, rolled_back=each["number"] in undone) for each in found]

    def events(self) -> Iterator[EventRecord]:
        """All events, oldest first, page by page."""
        for row in self._numbered("events"):
            yield EventRecord(**decode("events", row))

    def waits(self, start: int = 0, stop: int | None = None) -> Iterator[WaitRecord]:
        """What events left waiting, after at least ``start`` and fewer than ``stop`` decisions, oldest first."""
        first, beyond = whole("start", start), LARGEST_INTEGER if stop is None else whole("stop", stop)
        query = (
            f"SELECT position, {select('waits')} FROM waits WHERE position >= ? AND position < ? "
            f"AND after_decisions >= {first} AND after_decisions < {beyond} ORDER BY position LIMIT ?"
        )
        for page in self._store.pages(query, 0, LARGEST_INTEGER):
            for row in page:
                yield read_wait(row[1:])

    def handle(self, key: str) -> HandleRecord | None:
        """What an executor knows a launched decision by; None if none was recorded under this key."""
        query = f"SELECT {select('handles')} FROM handles WHERE key = ? ORDER BY position DESC LIMIT 1"
        row = self._one(query, key)
        return None if row is None else HandleRecord(**decode("handles", row))

    def handles(self) -> list[HandleRecord]:
        """The newest handle under each key, in the order the keys first came."""
        found: dict[str, HandleRecord] = {}
        for row in self._store.rows(f"SELECT {select('handles')} FROM handles ORDER BY position"):
            record = HandleRecord(**decode("handles", row))
            found[record.key] = record
        return list(found.values())

    def intent(self, number: int) -> IntentRecord:
        """One intent with its effect.

        Raises:
            JournalError: If there is none of that number.
        """
        wanted = whole("intent", number)
        row = self._one(f"SELECT {select('intents')} FROM intents WHERE number = ?", wanted)
        if row is None:
            raise JournalError(problem("intent", number, "is not in the journal", "Record it with record_intent first"))
        done = self._one(f"SELECT {select('effects')} FROM effects WHERE number = ?", wanted)
        effect = None if done is None else decode("effects", done)["details"]
        return IntentRecord(**decode("intents", row), effect=effect)

    def open_intents(self) -> list[IntentRecord]:
        """Intents without effect, oldest first: what was recorded and may not have been done."""
        query = f"SELECT {select('intents')} FROM intents WHERE number NOT IN (SELECT number FROM effects)"
        return [IntentRecord(**decode("intents", row)) for row in self._store.rows(f"{query} ORDER BY number")]

    def intents(self, start: int = 0) -> Iterator[IntentRecord]:
        """Intents with their effects, oldest first.

        Args:
            start: Number of the first.
        """
        numbers = f"SELECT number FROM intents WHERE number >= {whole('start', start)} ORDER BY number"
        for row in self._store.rows(numbers):
            yield self.intent(row[0])

    def newest_snapshot(self, at: int | None = None) -> SnapshotRecord | None:
        """The state to go on from: the newest snapshot, damaged ones passed over by name; None if there is none.

        Args:
            at: Decisions it may include at most; all by default.

        Raises:
            JournalError: If all there are are damaged.
        """
        most = LARGEST_INTEGER if at is None else whole("at", at)
        query = (
            f"SELECT {select('snapshots', 's')}, k.position FROM snapshots s JOIN snapshot_data k "
            "ON k.position = s.position WHERE s.sequence <= ? ORDER BY s.sequence DESC, s.position DESC LIMIT 8"
        )
        skipped: list[str] = []
        for row in self._store.rows(query, (most,)):
            try:
                return self._snapshot(row[:-1], tuple(skipped))
            except JournalError as error:
                skipped.append(str(error))
        if skipped:
            rule = f"has no snapshot that is whole ({skipped[0]})"
            fix = "Restore it from a copy; its decisions can still be lived through one by one"
            raise JournalError(problem("journal", self._store.name, rule, fix))
        return None

    def _snapshot(self, row: Row, skipped: tuple[str, ...]) -> SnapshotRecord:
        known = decode("snapshots", row)
        kept = self._store.row("SELECT data FROM snapshot_data WHERE position = ?", (row[0],))
        data = None if kept is None else kept[0]
        if type(data) is not bytes or len(data) != known["size"] or hashlib.sha256(data).hexdigest() != known["sha256"]:
            raise damaged("snapshots", row, "is not what was written: its SHA-256 does not fit")
        return SnapshotRecord(known["sequence"], unpacked(data), known["facts"], known["number"], row[0], skipped)

    def archives(self) -> list[ArchiveRecord]:
        """Old parts of the journal that were moved to files of their own, oldest first."""
        query = f"SELECT {select('archives')} FROM archives ORDER BY position"
        return [ArchiveRecord(**decode("archives", row)) for row in self._store.rows(query)]

    def verify(self, since: int | None = None) -> Verified:
        """Check everything: the pages of the file, every row, the chain over all rows, and the snapshots kept.

        A writer is not held up.

        Args:
            since: First position to check the chain from; all by default.

        Raises:
            JournalError: If anything is not as it was written; what and where is named.
        """

        def check(connection: sqlite3.Connection) -> Verified:
            schema.complete(connection, self._store.name)
            found = chain.verify(connection, since)
            pages = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if pages != "ok":
                rule = f"is damaged ({' '.join(str(pages).split())})"
                raise JournalError(problem("journal", self._store.name, rule, "Restore it from a copy"))
            stray = "SELECT position FROM snapshot_data WHERE position NOT IN (SELECT position FROM snapshots) LIMIT 1"
            if connection.execute(stray).fetchone() is not None:
                raise JournalError(problem("journal", self._store.name, "has a snapshot that is not its own", DAMAGED))
            newest = connection.execute(
                "SELECT s.number, k.position FROM snapshots s LEFT JOIN snapshot_data k ON k.position = s.position "
                "ORDER BY s.number DESC LIMIT 1"
            ).fetchone()
            archived = connection.execute("PRAGMA application_id").fetchone()[0] == schema.ARCHIVE_ID
            if newest is not None and newest[1] is None and not archived:
                rule = "is the newest, and its bytes are gone"
                raise JournalError(problem("snapshots", f"number {newest[0]}", rule, DAMAGED))
            return found

        found = self._store.consistent(check)
        query = (
            f"SELECT {select('snapshots', 's')} FROM snapshots s JOIN snapshot_data k ON k.position = s.position "
            "ORDER BY s.position"
        )
        for row in self._store.rows(query):
            self._snapshot(row, ())
        return found

    def history(self, start: int = 0, stop: int | None = None) -> pd.DataFrame:
        """One row per decision with its outcome and reward terms, indexed by number; all in memory."""
        return export.frame(self, start, stop)

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the journal for other tools; the file appears whole or not at all.

        ``.parquet`` and ``.csv`` have one row per decision, ``.jsonl`` one line; ``.json`` has everything.

        Raises:
            JournalError: If the ending is another, or the file cannot be written.
        """
        return export.export(self, Path(path))

    def one_moment(self) -> AbstractContextManager[int]:
        """A block in which everything that is read is as of one moment; its writer is not held up.

        The block's value changes whenever somebody has written. Only for a journal that was opened for reading.
        """
        return self._store.one_moment()

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Copy the journal as it is now to a new file; its writer is not held up."""
        self._store.backup(Path(path))

    def bounds(self, start: int, stop: int | None) -> tuple[int, int]:
        """A range of decisions, checked and cut to those there are."""
        first, count = whole("start", start), self.count()
        return first, count if stop is None else min(whole("stop", stop), count)

    def pages(self, query: str, start: int, stop: int | None) -> Iterator[list[Row]]:
        """Rows of a query over decisions, a page at a time; for those who lay the journal out in another form."""
        return self._store.pages(query, *self.bounds(start, stop))

    def chained(self, table: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Rows of any table in the order of the chain: position, hash and values."""
        query = f"SELECT {select(table)} FROM {table} WHERE position >= ? AND position < ? ORDER BY position LIMIT ?"
        for page in self._store.pages(query, 0, LARGEST_INTEGER):
            for row in page:
                values = decode(table, row)
                yield row[0], row[-1].hex(), values

    def _numbered(self, table: str, start: int = 0) -> Iterator[Row]:
        query = f"SELECT number, {select(table)} FROM {table} WHERE number >= ? AND number < ? ORDER BY number LIMIT ?"
        for page in self._store.pages(query, start, LARGEST_INTEGER):
            for row in page:
                yield row[1:]

    def _all(self, query: str) -> list[Row]:
        found = self._store.rows(query)
        if not found:
            raise JournalError(problem("journal", self._store.name, "has no header", DAMAGED))
        return found

    def _one(self, query: str, key: object) -> Row | None:
        try:
            return self._store.row(query, (key if type(key) is int else str(key),))
        except (UnicodeEncodeError, OverflowError):
            return None

    def _whole(self, query: str) -> int:
        found = self._store.rows(query)[0][0]
        if type(found) is not int:
            raise JournalError(problem("journal", found, "stands where a number should", DAMAGED))
        return found

    def _unknown(self, what: str, name: object) -> JournalError:
        """The error for an id that is not there, with the nearest that is, or where it was archived."""
        named = NAMED.fullmatch(str(name)) if what == "decision" else None
        archives = self.archives()
        if archives and named is not None and int(named[1]) < archives[-1].before:
            where = next(each.path for each in archives if int(named[1]) < each.before)
            return JournalError(problem("decision id", name, f"was archived to {where}", "Read it there"))
        table, order = ("decisions", "sequence") if what == "decision" else ("tasks", "number")
        # Similar ids are mostly neighbours in the alphabet; else the newest are the likeliest.
        found = self._store.rows(
            f"SELECT id FROM (SELECT id FROM {table} ORDER BY {order} DESC LIMIT {NEIGHBOURS}) "
            f"UNION SELECT id FROM (SELECT id FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 5) "
            f"UNION SELECT id FROM (SELECT id FROM {table} WHERE id < ?1 ORDER BY id DESC LIMIT 5)",
            (str(name).encode("utf-8", "replace").decode(),),
        )
        hint = nearest(str(name), [str(row[0]) for row in found]) if found else "It has none yet"
        if hint.startswith("Valid"):
            last = self._store.rows(f"SELECT id FROM {table} ORDER BY {order} DESC LIMIT 1")[0][0]
            hint = f"Its newest is {last!r}"
        if archives:
            hint += f". Older ones were archived to {archives[-1].path}"
        return JournalError(problem(f"{what} id", name, "is not in the journal", hint))


def read_header(row: Row) -> JournalHeader:
    """The header of a row."""
    known = decode("header", row)
    for name, seed in known["seeds"].items():
        if type(seed) is not int:
            raise damaged("header", row, "is no whole number", f"seeds.{name}", seed)
    return JournalHeader(**known)


def read_task(row: Row) -> TaskRecord:
    """The task of a row."""
    known = decode("tasks", row)
    del known["number"]
    return TaskRecord(**known)


def read_decision(row: Row) -> DecisionRecord:
    """The decision of a row."""
    known = decode("decisions", row)
    weights: Any = known.pop("w_eff"), known.pop("w_util"), known.pop("w_cost")
    if None in weights and weights != (None, None, None):
        raise damaged("decisions", row, "must be three numbers or none", "weights", weights)
    _numbers("decisions", row, "latencies_s", known["latencies_s"])
    return DecisionRecord(**known, weights=None if weights[0] is None else weights)


def read_outcome(decision_id: str, row: Row) -> OutcomeRecord:
    """The outcome of a row."""
    known = decode("outcomes", row)
    del known["sequence"]
    if known["provenance"] not in PROVENANCES:
        raise damaged("outcomes", row, "is not known", "provenance", known["provenance"])
    return OutcomeRecord(decision_id, **known)


def read_explanation(decision_id: str, row: Row) -> ExplanationRecord:
    """The explanation of a row."""
    known = decode("explanations", row)
    return ExplanationRecord(decision_id, known["target"], known["explanation"])


def read_wait(row: Row) -> WaitRecord:
    """What waited, of a row."""
    known = decode("waits", row)
    _numbers("waits", row, "reasons", known["reasons"])
    slots = known["slots"]
    if slots is not None:
        if len(slots) % 4:
            raise damaged("waits", row, "is no array of whole numbers", "slots", slots)
        known["slots"] = struct.unpack(f"<{len(slots) // 4}i", slots)
    return WaitRecord(**known)


def unpacked(data: bytes) -> dict[str, Any]:
    """Arrays of a snapshot.

    Raises:
        JournalError: If they cannot be read.
    """
    from attribution_sched.errors import CheckpointError
    from attribution_sched.storage import unpack

    try:
        reading = zlib.decompressobj()
        whole_data = reading.decompress(data, MOST_SNAPSHOT_BYTES)
        if not reading.eof:
            raise ValueError(f"more than {MOST_SNAPSHOT_BYTES} bytes, or not all of them")
        return unpack(whole_data, "snapshot")
    except (zlib.error, CheckpointError, ValueError) as error:
        raise JournalError(problem("snapshot", f"{len(data)} bytes", f"cannot be read ({error})", DAMAGED)) from error


def _numbers(table: str, row: Row, column: str, known: Mapping[str, Any]) -> None:
    for name, value in known.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise damaged(table, row, "is no finite number", f"{column}.{name}", value)
