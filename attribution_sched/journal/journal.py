"""The journal: every decision on disk before it takes effect.

The order that loses and doubles nothing: ``record_decision``, let it take effect, ``record_outcome``. A process that is
killed in between leaves a decision without outcome; :meth:`Journal.pending` names it, and whoever resumes lets it take
effect once and records the outcome. What is no decision (a task handed in, a step of feedback, a training) goes the
same way with ``record_intent`` and ``record_effect``; what a real cluster launched is known again by its handle.

A journal may be shared by threads: calls take turns, and each record is whole. It is not carried over to forked
processes. One process writes; any number may read meanwhile. The file must lie on a local disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import secrets
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import JournalError, nearest, problem
from attribution_sched.journal import archive, export, store
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
from attribution_sched.journal.store import (
    DAMAGED,
    LARGEST_INTEGER,
    TABLES,
    Row,
    Store,
    Tail,
    WriterLock,
    damaged,
    decode,
    dispose_of,
    encode,
    integer,
    load,
    now,
    number,
    select,
    whole,
)

if TYPE_CHECKING:
    import pandas as pd


# ------ Looking things up in a journal, page by page where there may be many; every row is checked as it is read

DECISION_WIDTH = len(store.columns("decisions")) + 3
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
        # A bare column: SQLite looks at the end of its index; of "sequence + 1" it would look at every row.
        here, archived = "(SELECT max(sequence) FROM decisions)", "(SELECT max(before) FROM archives)"
        return self._whole(f"SELECT max(ifnull({here} + 1, 0), ifnull({archived}, 0))")

    def first(self) -> int:
        """Number of the oldest decision that is not archived; the number of decisions if there is none."""
        row = self._store.row("SELECT min(sequence) FROM decisions")
        return self.count() if row is None or row[0] is None else whole("decisions.sequence", row[0])

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

    def decisions(self, start: int = 0, stop: int | None = None, *, brief: bool = False) -> Iterator[DecisionRecord]:
        """Decisions numbered from ``start`` up to ``stop``, read page by page: memory does not grow with the journal.

        What is recorded while it runs is not part of it, nor is what was archived before.

        Args:
            start: Number of the first.
            stop: Number after the last; all by default.
            brief: Leave out :data:`BESIDE_THE_ACTION`, and the attribution of a task that an earlier one of them holds,
                for whoever lets them happen again.
        """
        query = f"SELECT sequence, {select('decisions')} FROM decisions"
        query += " WHERE sequence >= ? AND sequence < ? ORDER BY sequence LIMIT ?"
        for page in self._store.pages(query, *self.bounds(start, stop)):
            known: set[Any] = set()
            for row in page:
                leave = frozenset[str]()
                if brief:
                    leave = AGAIN_BESIDE if row[TASK_ID] in known else BESIDE_THE_ACTION
                    known.add(row[TASK_ID])
                yield read_decision(row[1:], leave)

    def decisions_on(self, task_id: str) -> list[DecisionRecord]:
        """Decisions on one task, oldest first; whoever writes is not held up, however long the journal is."""
        query = f"SELECT {select('decisions')} FROM decisions WHERE task_id = ? ORDER BY sequence"
        rows = self._store.consistent(lambda connection: connection.execute(query, (str(task_id),)).fetchall())
        return [read_decision(row) for row in rows]

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
        sequence = self._one("SELECT sequence FROM decisions WHERE id = ?", decision_id)
        if sequence is None:
            raise self._unknown("decision", decision_id)
        query = f"SELECT {select('explanations')} FROM explanations WHERE sequence = ? ORDER BY position"
        newest = {row[2]: row for row in self._store.rows(query, sequence)}
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

    def tasks(self, start: int = 0, before: int | None = None, *, holding: str = "") -> Iterator[TaskRecord]:
        """Tasks in the order they were recorded, from the ``start``-th on, page by page.

        Args:
            start: Number of the first.
            before: Number of a decision; tasks that were recorded after it are left out. All by default.
            holding: Only those with such a key in ``meta``; all by default.
        """
        until, quoted = LARGEST_INTEGER, f'"{holding}"'
        if before is not None:
            position = self._store.row("SELECT position FROM decisions WHERE sequence = ?", (whole("before", before),))
            until = LARGEST_INTEGER if position is None else int(position[0])
        for row in self._numbered("tasks", whole("start", start)):
            if row[0] > until:
                return
            # Most tasks of a simulation are its own: they are not read only to be passed over.
            if holding and quoted not in str(row[META]):
                continue
            task = read_task(row)
            if not holding or holding in task.meta:
                yield task

    def task_count(self) -> int:
        """Number of tasks."""
        return self._whole("SELECT coalesce(max(number) + 1, 0) FROM tasks")

    def feedback(self) -> list[FeedbackRecord]:
        """All changes, oldest first, with whether they were taken back."""
        records = [decode("feedback", row) for row in self._numbered("feedback")]
        undone = {each["undoes"] for each in records}
        return [FeedbackRecord(**each, rolled_back=each["number"] in undone) for each in records]

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
        newest: dict[str, HandleRecord] = {}
        for row in self._store.rows(f"SELECT {select('handles')} FROM handles ORDER BY position"):
            record = HandleRecord(**decode("handles", row))
            newest[record.key] = record
        return list(newest.values())

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
        blob = self._store.row("SELECT data FROM snapshot_data WHERE position = ?", (row[0],))
        data = None if blob is None else blob[0]
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
            store.complete(connection, self._store.name)
            problems = store.verify(connection, since)
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
            archived = connection.execute("PRAGMA application_id").fetchone()[0] == store.ARCHIVE_ID
            if newest is not None and newest[1] is None and not archived:
                rule = "is the newest, and its bytes are gone"
                raise JournalError(problem("snapshots", f"number {newest[0]}", rule, DAMAGED))
            return problems

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

    def one_moment(self) -> contextlib.AbstractContextManager[int]:
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
        rows = self._store.rows(query)
        if not rows:
            raise JournalError(problem("journal", self._store.name, "has no header", DAMAGED))
        return rows

    def _one(self, query: str, key: object) -> Row | None:
        try:
            return self._store.row(query, (key if type(key) is int else str(key),))
        except (UnicodeEncodeError, OverflowError):
            return None

    def _whole(self, query: str) -> int:
        value = self._store.rows(query)[0][0]
        if type(value) is not int:
            raise JournalError(problem("journal", value, "stands where a number should", DAMAGED))
        return value

    def _unknown(self, what: str, name: object) -> JournalError:
        """The error for an id that is not there, with the nearest that is, or where it was archived."""
        named = NAMED.fullmatch(str(name)) if what == "decision" else None
        archives = self.archives()
        if archives and named is not None and int(named[1]) < archives[-1].before:
            where = next(each.path for each in archives if int(named[1]) < each.before)
            return JournalError(problem("decision id", name, f"was archived to {where}", "Read it there"))
        table, order = ("decisions", "sequence") if what == "decision" else ("tasks", "number")
        # Similar ids are mostly neighbours in the alphabet; else the newest are the likeliest.
        rows = self._store.rows(
            f"SELECT id FROM (SELECT id FROM {table} ORDER BY {order} DESC LIMIT {NEIGHBOURS}) "
            f"UNION SELECT id FROM (SELECT id FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 5) "
            f"UNION SELECT id FROM (SELECT id FROM {table} WHERE id < ?1 ORDER BY id DESC LIMIT 5)",
            (str(name).encode("utf-8", "replace").decode(),),
        )
        hint = nearest(str(name), [str(row[0]) for row in rows]) if rows else "It has none yet"
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


META = 1 + list(TABLES["tasks"]).index("meta")
"""Where a task's row has it."""


def read_task(row: Row) -> TaskRecord:
    """The task of a row."""
    known = decode("tasks", row)
    del known["number"]
    return TaskRecord(**known)


BESIDE_THE_ACTION = frozenset({"latencies_s", "provenance"})
"""What a decision's record holds beside what was seen and done."""


AGAIN_BESIDE = BESIDE_THE_ACTION | {"attribution"}
"""The same, where the attribution of its task is known."""

TASK_ID = 2 + list(TABLES["decisions"]).index("task_id")
"""Where a decision's task stands in a row that begins with its number and its position."""


def read_decision(row: Row, leave: frozenset[str] = frozenset()) -> DecisionRecord:
    """The decision of a row, without the columns that nobody will look at."""
    known = decode("decisions", row, leave)
    weights: Any = known.pop("w_eff"), known.pop("w_util"), known.pop("w_cost")
    if None in weights and weights != (None, None, None):
        raise damaged("decisions", row, "must be three numbers or none", "weights", weights)
    _numbers("decisions", row, "latencies_s", known.get("latencies_s", {}))
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


# ------ The journal: every decision on disk before it takes effect

GROUP = 1024
"""Records per commit inside :meth:`Journal.batch`."""

KEEP_NEWEST = 4
KEEP_EVERY = 32
"""Snapshots that are kept: so many of the newest, and every so many-th of the older ones."""

ANYTHING = JournalHeader("none", "none", {}, {}, "unknown")


class Journal(Reader):
    """Decisions, what they came to, why, and what was learnt; append-only.

    Made by :meth:`create`, :meth:`open`, :meth:`read` or :meth:`memory`, and best used as a context manager. What can
    be asked of it stands in :class:`~attribution_sched.journal.journal.Reader`.
    """

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: JournalHeader) -> Journal:
        """Make a new journal and open it for writing.

        Raises:
            JournalError: If something is there already, or cannot be made.
        """
        return cls._locked(_resolved(path), _header(header), claim=True)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, claim: bool = True, wait_s: float = 0.0) -> Journal:
        """Open a journal to go on with it; one of an older version is brought up to date.

        The chain of its rows is checked from the newest snapshot on.

        Args:
            path: The journal.
            claim: Take over as its writer at once, so that any other, wherever it came from, can write no more. Else
                it is taken over by the first record, and until then the file is left as it was.
            wait_s: How long to wait for another writer to end, see :attr:`lock_file`.

        Raises:
            JournalError: If it is missing, damaged, foreign, newer than this package, or being written by another.
        """
        resolved = _resolved(path)
        store.inspect(resolved)
        return cls._locked(resolved, None, claim=claim, wait_s=wait_s)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Journal:
        """Open a journal for reading only, also while another process writes it.

        Raises:
            JournalError: If it is missing, damaged, foreign or of another version.
        """
        resolved = _resolved(path)
        return cls(Store(store.reading(resolved), resolved, None, writable=False), resolved)

    @classmethod
    def memory(cls, header: JournalHeader = ANYTHING) -> Journal:
        """A journal that is gone when it is closed."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        store.fill(connection, _header(header))
        made = Store(connection, None, None, writable=True)
        made.claim()
        return cls(made, None)

    @classmethod
    def _locked(cls, path: Path, header: Row | None, *, claim: bool, wait_s: float = 0.0) -> Journal:
        lock = WriterLock(path, wait_s)
        try:
            if header is not None:
                store.create(path, header)
            made = Store(store.writing(path), path, lock, writable=True)
        except BaseException:
            lock.release()
            raise
        try:
            if claim:
                made.claim(unseen=True)
            return cls(made, path)
        except BaseException:
            made.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._store.closed

    @property
    def lock_file(self) -> int | None:
        """Open file of the writer's lock; None in memory or for reading.

        Whoever starts a child that does something for this writer, and cannot be taken back, lets the child inherit
        it: should this process be killed, the next writer waits until the child has ended.
        """
        return None if self._store.lock is None else self._store.lock.file

    def close(self) -> None:
        """Close it and let the next writer in; harmless when done twice."""
        self._store.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def batch(self, every: int = GROUP) -> contextlib.AbstractContextManager[None]:
        """Commit in groups, for fast simulated runs: ``with journal.batch(): ...``.

        Inside, a record is on disk only once its group is full or the block ends, also by an error. A killed process
        loses at most the last ``every`` − 1 records, the newest and no others: what is left is an earlier state of the
        same run. This holds for all threads that share the journal. A batch inside a batch changes nothing.

        Args:
            every: Records in a group.
        """
        return self._store.group(whole("every", every, least=1))

    def as_one(self) -> contextlib.AbstractContextManager[None]:
        """Record several things, all or none: ``with journal.as_one(): ...``, also when an exception ends the block."""
        return self._store.as_one()

    def record_task(self, task: TaskRecord) -> None:
        """Record a task. The same task again is left as it is.

        Raises:
            JournalError: If another task has this id.
        """
        self._store.write(lambda connection, tail: self._add_task(connection, tail, task))

    def record_decision(
        self,
        decision: DecisionRecord,
        *,
        task: TaskRecord | None = None,
        waits: WaitRecord | Iterable[WaitRecord] = (),
    ) -> DecisionRecord:
        """Record a decision; outside :meth:`batch` it is on disk when this returns.

        Args:
            decision: The decision.
            task: Its task, to be recorded with it if it is new.
            waits: What the events before it left waiting, to be recorded with it.

        Returns:
            The decision with its id and number.

        Raises:
            JournalError: If its id is taken, its task is unknown, or its number is not the next.
        """
        left = (waits,) if isinstance(waits, WaitRecord) else tuple(waits)

        def write(connection: sqlite3.Connection, tail: Tail) -> DecisionRecord:
            if task is not None:
                self._add_task(connection, tail, task)
            for wait in left:
                _add_wait(connection, tail, wait)
            sequence = tail.next["decisions"]
            if decision.sequence is not None and decision.sequence != sequence:
                rule = f"the next decision of this journal is number {sequence}"
                fix = "Another may have written it meanwhile: close it and resume"
                raise JournalError(problem("decision.sequence", decision.sequence, rule, fix))
            name, recorded_at = decision.id or f"d{sequence:06d}", now()
            row = _decision_row(decision, sequence, name, recorded_at)
            if decision.task_id is not None and (task is None or task.id != decision.task_id):
                known = connection.execute("SELECT 1 FROM tasks WHERE id = ?", (decision.task_id,)).fetchone()
                if known is None:
                    raise self._unknown("task", decision.task_id)
            try:
                tail.append(connection, "decisions", row)
            except sqlite3.IntegrityError as error:
                rule = "is in the journal already"
                raise JournalError(problem("decision.id", name, rule, "Record every decision once")) from error
            return replace(decision, id=name, sequence=sequence, recorded_at=recorded_at)

        return self._store.write(write)

    def record_outcome(self, outcome: OutcomeRecord) -> None:
        """Record what a decision came to, once.

        What a simulation says follows from the decision, which is on disk: it is there with the next record, and nobody
        waits for the disk a second time. What was measured is on disk when this returns.

        Raises:
            JournalError: If the decision is unknown or has an outcome already.
        """
        if outcome.provenance not in PROVENANCES:
            hint = nearest(str(outcome.provenance), PROVENANCES)
            raise JournalError(problem("outcome.provenance", outcome.provenance, "is not known", hint))
        row = encode("outcomes", outcome, sequence=0)

        def write(connection: sqlite3.Connection, tail: Tail) -> None:
            sequence = self._sequence(connection, outcome.decision_id)
            try:
                tail.append(connection, "outcomes", (sequence, *row[1:]))
            except sqlite3.IntegrityError as error:
                rule = "has an outcome already"
                raise JournalError(
                    problem("outcome.decision_id", outcome.decision_id, rule, "Record it once")
                ) from error

        self._store.write(write, soon=outcome.provenance == "simulated")

    def record_explanation(self, explanation: ExplanationRecord, *, replace: bool = False) -> None:
        """Record why a decision was made, once per target.

        Args:
            explanation: The explanation.
            replace: Let it count instead of an earlier one, which stays in the journal.

        Raises:
            JournalError: If the decision is unknown, or has such an explanation that is not to be replaced.
        """
        row = encode("explanations", explanation, sequence=0)

        def write(connection: sqlite3.Connection, tail: Tail) -> None:
            sequence = self._sequence(connection, explanation.decision_id)
            there = "SELECT 1 FROM explanations WHERE sequence = ? AND target = ? LIMIT 1"
            if not replace and connection.execute(there, (sequence, row[1])).fetchone():
                rule = f"has an explanation of {row[1]!r} already"
                fix = "Pass replace=True to let this one count instead"
                raise JournalError(problem("explanation.decision_id", explanation.decision_id, rule, fix))
            tail.append(connection, "explanations", (sequence, *row[1:]))

        # It can be had again: who decides meanwhile does not wait for the disk because of it.
        self._store.write(write, soon=True)

    def record_feedback(self, change: FeedbackRecord) -> FeedbackRecord:
        """Record a change that feedback made, or took back; return it with its number.

        Raises:
            JournalError: If it takes back a change that is unknown or was taken back before.
        """

        def write(connection: sqlite3.Connection, tail: Tail) -> FeedbackRecord:
            count, decisions, recorded_at = tail.next["feedback"], tail.next["decisions"], now()
            row = encode("feedback", change, number=count, after_decisions=decisions, recorded_at=recorded_at)
            if change.undoes is not None:
                query = "SELECT 1 FROM feedback WHERE undoes = ?"
                undone = connection.execute(query, (change.undoes,)).fetchone()
                if change.undoes >= count or undone:
                    rule = "was taken back already" if undone else f"the journal has {count} changes, from number 0 on"
                    fix = "Give the number of a change in force"
                    raise JournalError(problem("feedback.undoes", change.undoes, rule, fix))
            tail.append(connection, "feedback", row)
            return replace(change, number=count, after_decisions=decisions, rolled_back=False, recorded_at=recorded_at)

        return self._store.write(write)

    def record_event(self, event: EventRecord) -> EventRecord:
        """Record anything else; return it with its number."""

        def write(connection: sqlite3.Connection, tail: Tail) -> EventRecord:
            made = replace(event, number=tail.next["events"], recorded_at=now())
            tail.append(connection, "events", encode("events", made))
            return made

        return self._store.write(write)

    def record_wait(self, wait: WaitRecord) -> WaitRecord:
        """Record what an event left waiting; return it with the number of decisions before it."""
        return self._store.write(lambda connection, tail: _add_wait(connection, tail, wait))

    def record_handle(self, handle: HandleRecord) -> HandleRecord:
        """Record what an executor knows a launched decision by. The same again is left as it is."""
        row = encode("handles", handle, recorded_at=now())

        def write(connection: sqlite3.Connection, tail: Tail) -> HandleRecord:
            query = "SELECT executor, handle FROM handles WHERE key = ? ORDER BY position DESC LIMIT 1"
            if connection.execute(query, row[:1]).fetchone() != row[1:3]:
                tail.append(connection, "handles", row)
            return replace(handle, recorded_at=row[3])

        return self._store.write(write)

    def record_intent(self, kind: str, details: Mapping[str, Any]) -> int:
        """Record that something is to be done, before it is done; return its number.

        Args:
            kind: What, in one word: ``submit``, ``feedback``, ``train``.
            details: All that is needed to do it, also after a restart.
        """

        def write(connection: sqlite3.Connection, tail: Tail) -> int:
            count = tail.next["intents"]
            made = IntentRecord(kind, details, count, tail.next["decisions"], recorded_at=now())
            tail.append(connection, "intents", encode("intents", made))
            return count

        return self._store.write(write)

    def record_effect(self, number: int, details: Mapping[str, Any] | None = None) -> None:
        """Record that an intent took effect, once.

        Raises:
            JournalError: If there is no such intent, or it has an effect already.
        """
        row = encode("effects", None, number=number, details=details or {}, recorded_at=now())

        def write(connection: sqlite3.Connection, tail: Tail) -> None:
            if connection.execute("SELECT 1 FROM intents WHERE number = ?", row[:1]).fetchone() is None:
                rule = f"the journal has {tail.next['intents']} intents, from number 0 on"
                raise JournalError(problem("effect.number", number, rule, "Give what record_intent returned"))
            try:
                tail.append(connection, "effects", row)
            except sqlite3.IntegrityError as error:
                rule = "has an effect already"
                raise JournalError(problem("effect.number", number, rule, "Record it once")) from error

        self._store.write(write)

    def record_snapshot(
        self,
        sequence: int,
        arrays: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        keep_newest: int = KEEP_NEWEST,
        keep_every: int = KEEP_EVERY,
    ) -> int:
        """Record the state after so many decisions, to go on from; return its number.

        The arrays are kept as compressed safetensors, with their SHA-256 in the chain. Older ones are dropped but for
        the newest and every so many-th; that they were there stays in the chain.

        Args:
            sequence: Decisions it includes; at most those there are.
            arrays: Name → array.
            facts: What is not an array, as JSON.
            keep_newest: How many of the newest to keep.
            keep_every: Which of the older ones to keep: every so many-th.

        Raises:
            JournalError: If it includes decisions that are not there, or cannot be written.
        """
        data, least, step = packed(arrays), whole("keep_newest", keep_newest, least=1), whole("keep_every", keep_every)
        known = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "recorded_at": now()}

        def write(connection: sqlite3.Connection, tail: Tail) -> int:
            count = tail.next["snapshots"]
            row = encode("snapshots", None, number=count, sequence=sequence, facts=facts, **known)
            if row[1] > tail.next["decisions"]:
                rule = f"the journal has {tail.next['decisions']} decisions"
                raise JournalError(problem("snapshot.sequence", sequence, rule, "Record them first"))
            position = tail.position
            tail.append(connection, "snapshots", row)
            connection.execute("INSERT INTO snapshot_data VALUES (?, ?)", (position, data))
            archive.drop_snapshots(connection, count, least, step)
            return count

        return self._store.write(write)

    def archive(
        self,
        path: str | os.PathLike[str],
        before: int | None = None,
        *,
        keep_tasks: Iterable[str] | None = None,
        without_snapshot: bool = False,
    ) -> ArchiveRecord:
        """Move old decisions, and what belongs to them, to a file of their own: all of them or none.

        The file is a journal that can be read and verified by itself. What is left begins with the hash of the last
        row that was moved, so that the chain can still be followed. What a run goes on from (tasks, events, feedback,
        handles, open intents) is moved too, and written again at the end of the chain.

        Args:
            path: A new file.
            before: Decisions numbered below this are moved; by default those that the newest snapshot includes.
            keep_tasks: Ids of the tasks that may still be decided on; all by default.
            without_snapshot: Also where no snapshot includes them all, so that the run can be read but not resumed.

        Raises:
            JournalError: If one of them is pending, no snapshot includes them, or the file cannot be written.
        """
        tasks_kept = None if keep_tasks is None else frozenset(keep_tasks)
        return archive.archive(
            self, self._store, _resolved(path), before, tasks_kept, without_snapshot=without_snapshot
        )

    def compact(self, *, keep_newest: int = KEEP_NEWEST, keep_every: int = KEEP_EVERY) -> tuple[int, int]:
        """Give room back that dropped snapshots and archived rows left; return the bytes before and after.

        Needs as much room again while it works. No record is touched.
        """
        return archive.compact(self._store, self.path, whole("keep_newest", keep_newest, least=1), keep_every)

    def _add_task(self, connection: sqlite3.Connection, tail: Tail, task: TaskRecord) -> None:
        row = encode("tasks", task, number=tail.next["tasks"])
        there = connection.execute(f"SELECT {select('tasks')} FROM tasks WHERE id = ?", (row[1],)).fetchone()
        if there is None:
            tail.append(connection, "tasks", row)
        elif tuple(there[2:-2]) != row[1:] and not _same(read_task(there), task):
            raise JournalError(problem("task.id", task.id, "is another task's", "Give every task its own id"))

    def _sequence(self, connection: sqlite3.Connection, decision_id: str) -> int:
        row = connection.execute("SELECT sequence FROM decisions WHERE id = ?", (str(decision_id),)).fetchone()
        if row is None:
            raise self._unknown("decision", decision_id)
        return int(row[0])


def packed(arrays: Mapping[str, Any]) -> bytes:
    """Arrays as safetensors, compressed: most of a cluster's state is zeros.

    Raises:
        JournalError: If one of them has no such form.
    """
    import numpy as np

    from attribution_sched.storage import pack

    made = {}
    for name, array in arrays.items():
        values = np.asarray(array, order="C")
        if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8:
            rule = f"is an array of {values.dtype}"
            fix = "Give booleans, whole or floating-point numbers; the rest belongs into the facts"
            raise JournalError(problem(f"snapshot.arrays.{name}", f"shape {values.shape}", rule, fix))
        made[str(name)] = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return zlib.compress(pack(made), 1)


def _header(header: JournalHeader) -> Row:
    for name, seed in header.seeds.items():
        # Entropy of a seed sequence has 128 bits; JSON holds them.
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise JournalError(problem(f"header.seeds.{name}", seed, "must be a whole number", "Give an integer"))
    created_at, journal_id = header.created_at or now(), header.journal_id or secrets.token_hex(6)
    return encode("header", header, created_at=created_at, journal_id=journal_id)


def _decision_row(decision: DecisionRecord, sequence: int, name: str, recorded_at: str) -> Row:
    weights: Sequence[Any] = (None, None, None) if decision.weights is None else decision.weights
    if len(weights) != 3:
        rule = "must be w_eff, w_util and w_cost"
        raise JournalError(problem("decision.weights", decision.weights, rule, "Give three numbers, or None"))
    if decision.weights is not None:
        for each in weights:
            number("decision.weights", each)
    for part, seconds in decision.latencies_s.items():
        number(f"decision.latencies_s.{part}", seconds)
    return encode(
        "decisions", decision, sequence=sequence, id=name, recorded_at=recorded_at,
        w_eff=weights[0], w_util=weights[1], w_cost=weights[2],
    )  # fmt: skip


def _add_wait(connection: sqlite3.Connection, tail: Tail, wait: WaitRecord) -> WaitRecord:
    for reason, count in wait.reasons.items():
        whole(f"wait.reasons.{reason}", count)
    slots = None
    if wait.slots is not None:
        places = [integer("wait.slots", slot) for slot in wait.slots]
        if any(not 0 <= place < 2**31 for place in places):
            raise JournalError(problem("wait.slots", max(places, key=abs), "is no place in a queue", "Give 0 and more"))
        slots = struct.pack(f"<{len(places)}i", *places)
    made = replace(wait, after_decisions=tail.next["decisions"])
    tail.append(connection, "waits", encode("waits", made, slots=slots))
    return made


def _same(one: TaskRecord, other: TaskRecord) -> bool:
    """Whether two tasks differ only in the order of their mappings, or in arrays that are lists elsewhere."""
    again = encode("tasks", other, number=0)
    plain = replace(other, counters=load("task.counters", again[5]), meta=load("task.meta", again[6]))
    return one == plain


def _resolved(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise JournalError(problem("journal", path, f"is no path ({error})", "Give the path of a file")) from error


@contextlib.contextmanager
def temporary_copy(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Path of a copy of a journal as it is now, to be looked into while another process goes on writing it.

    The weights that were learnt lie beside it; both are gone when the block ends. The journal itself is
    opened for reading only: its writer is not held up.

    Raises:
        JournalError: If it is missing, damaged, foreign or of another version.
    """
    with Journal.read(path) as journal:
        source = Path(path) if journal.path is None else journal.path
    with tempfile.TemporaryDirectory(prefix="attribution-sched-") as folder:
        copy = Path(folder) / source.name
        dispose_of(copy.parent)
        with Journal.read(source) as journal:
            journal.copy_to(copy)
        for weights in source.parent.glob(f"{source.name}.*.safetensors"):
            (Path(folder) / weights.name).symlink_to(weights)
        yield copy
