"""What can be asked of a journal, page by page where there may be many; every row is checked as it is read."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from attribution_sched.errors import JournalError, nearest
from attribution_sched.journal import chain, export
from attribution_sched.journal.faults import damaged, fault
from attribution_sched.journal.kinds import LARGEST_INTEGER, whole
from attribution_sched.journal.lock import WriterLock
from attribution_sched.journal.records import (
    ArchiveRecord,
    DecisionRecord,
    EventRecord,
    ExplanationRecord,
    FeedbackRecord,
    HandleRecord,
    IntentRecord,
    JournalHeader,
    OutcomeRecord,
    PathName,
    SnapshotRecord,
    TaskRecord,
    Verified,
    WaitRecord,
)
from attribution_sched.journal.rows import TABLE_OF, R, Row, decode, read
from attribution_sched.journal.schema import ARCHIVE_ID, columns, complete, select
from attribution_sched.journal.snapshots import unpack_arrays
from attribution_sched.journal.store import PAGE, Store

if TYPE_CHECKING:
    import pandas as pd

NEIGHBOURS = 500
"""Ids of the newest records that a mistyped one is compared with."""

ID = re.compile(r"d(\d{6,})")
"""Ids that the journal gives."""

JOINS = {"outcomes": "outcomes.sequence = decisions.sequence", "tasks": "tasks.id = decisions.task_id"}
"""Table → how it belongs to a decision."""

META = columns("tasks").index("meta")

BESIDE_THE_ACTION = frozenset({"latencies_s", "provenance"})
"""What a decision's record holds beside what was seen and done."""


def text_of(name: object) -> str:
    """An id that SQLite can look for, whatever somebody gives as one."""
    return str(name).encode("utf-8", "replace").decode()


class Reader(Store):
    """What can be asked of a journal.

    Attributes:
        header: What the run needs to be repeated.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None, lock: WriterLock | None, *, writable: bool = True
    ) -> None:
        super().__init__(connection, path, lock, writable=writable)
        self.header: JournalHeader = self._records(JournalHeader)[0]

    def count(self) -> int:
        """Number of decisions, archived ones included."""
        newest, archived = "(SELECT max(sequence) FROM decisions)", "(SELECT max(before) FROM archives)"
        highest = [chain.highest(each) for each in self.rows(f"SELECT {newest}, {archived}")[0]]
        return max(highest[0] + 1, highest[1])

    def first(self) -> int:
        """Number of the oldest decision that is not archived; the number of decisions if there is none."""
        oldest = self.rows("SELECT min(sequence) FROM decisions")[0][0]
        return self.count() if oldest is None else whole("decisions.sequence", oldest)

    def key(self, decision_id: str, attempt: int = 0) -> str:
        """What a real cluster is to call what a decision launches: the same however often it is asked."""
        return f"{self.header.journal_id}-{decision_id}" + (f"-{attempt}" if attempt else "")

    def decision(self, decision_id: str) -> DecisionRecord:
        """One decision.

        Raises:
            JournalError: If there is none of that id; where it was archived, it says where.
        """
        return self._one(DecisionRecord, "WHERE id = ?", text_of(decision_id)) or self._miss("decision", decision_id)

    def last(self) -> DecisionRecord | None:
        """The newest decision; None if there is none."""
        return self._one(DecisionRecord, "ORDER BY sequence DESC LIMIT 1")

    def decisions(self, start: int = 0, stop: int | None = None, *, brief: bool = False) -> Iterator[DecisionRecord]:
        """Decisions numbered from ``start`` up to ``stop``, read page by page: memory does not grow with the journal.

        What is recorded while it runs is not part of it, nor is what was archived before.

        Args:
            start: Number of the first.
            stop: Number after the last; all by default.
            brief: Leave out :data:`BESIDE_THE_ACTION`, and the attribution of a task that an earlier one of them holds,
                for whoever lets them happen again.
        """
        at, leave, seen = columns("decisions").index("task_id"), frozenset[str](), set[Any]()
        for (row,) in self.joined((), start, stop):
            if brief:
                leave = BESIDE_THE_ACTION | ({"attribution"} if row[at] in seen else set())
                if len(seen) >= PAGE:
                    seen.clear()
                seen.add(row[at])
            yield read(DecisionRecord, row, leave)

    def decisions_on(self, task_id: str) -> list[DecisionRecord]:
        """Decisions on one task, oldest first; whoever writes is not held up, however long the journal is."""
        query = f"SELECT {select('decisions')} FROM decisions WHERE task_id = ? ORDER BY sequence"
        rows = self.consistent(lambda connection: connection.execute(query, (text_of(task_id),)).fetchall())
        return [read(DecisionRecord, row) for row in rows]

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[DecisionRecord, OutcomeRecord | None]]:
        """Decisions as of :meth:`decisions`, each with its outcome, or None while it is pending."""
        for decision, outcome, _, _ in self.chained_entries(start, stop):
            yield decision, outcome

    def chained_entries(
        self, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[DecisionRecord, OutcomeRecord | None, str, str | None]]:
        """Entries as of :meth:`entries`, with the hash of the decision's and of the outcome's row."""
        for row, end in self.joined(("outcomes",), start, stop):
            decision = read(DecisionRecord, row)
            if end[0] is None:
                yield decision, None, row[-1].hex(), None
            else:
                yield decision, read(OutcomeRecord, end, decision_id=decision.id), row[-1].hex(), end[-1].hex()

    def pending(self) -> list[DecisionRecord]:
        """Decisions without outcome, oldest first: those a killed process may not have let take effect."""
        which = "WHERE sequence NOT IN (SELECT sequence FROM outcomes) ORDER BY sequence"
        return self._records(DecisionRecord, which)

    def outcome(self, decision_id: str) -> OutcomeRecord | None:
        """What a decision came to; None while it is pending.

        Raises:
            JournalError: If there is no decision of that id.
        """
        return self._one(OutcomeRecord, "WHERE sequence = ?", self._sequence(decision_id), decision_id=decision_id)

    def explanations(self, decision_id: str) -> list[ExplanationRecord]:
        """Why a decision was made: the newest that was recorded of it for each target.

        Raises:
            JournalError: If there is no decision of that id.
        """
        which, sequence = "WHERE sequence = ? ORDER BY position", self._sequence(decision_id)
        records = self._records(ExplanationRecord, which, sequence, decision_id=decision_id)
        newest = {each.target: each for each in records}
        return [newest[target] for target in sorted(newest)]

    def task(self, task_id: str) -> TaskRecord:
        """One task.

        Raises:
            JournalError: If there is none of that id.
        """
        return self._one(TaskRecord, "WHERE id = ?", text_of(task_id)) or self._miss("task", task_id)

    def knows_task(self, task_id: str) -> bool:
        """Whether there is a task of that id."""
        return self.row("SELECT 1 FROM tasks WHERE id = ?", text_of(task_id)) is not None

    def tasks(self, start: int = 0, before: int | None = None, *, holding: str = "") -> Iterator[TaskRecord]:
        """Tasks in the order they were recorded, from the ``start``-th on, page by page.

        Args:
            start: Number of the first.
            before: Number of a decision; tasks that were recorded after it are left out. All by default.
            holding: Only those with such a key in ``meta``; all by default.
        """
        until, quoted = None, f'"{holding}"'
        if before is not None:
            until = self.row("SELECT position FROM decisions WHERE sequence = ?", whole("before", before))
        for row in self._walk("tasks", "number", whole("start", start)):
            if until is not None and row[0] > until[0]:
                return
            # Most tasks of a simulation are its own: they are not read only to be passed over.
            if not holding or quoted in str(row[META]):
                task = read(TaskRecord, row)
                if not holding or holding in task.meta:
                    yield task

    def task_count(self) -> int:
        """Number of tasks."""
        return chain.highest(self.rows("SELECT max(number) FROM tasks")[0][0]) + 1

    def feedback(self) -> list[FeedbackRecord]:
        """All changes, oldest first, with whether they were taken back."""
        changes = [decode("feedback", row) for row in self._walk("feedback", "number")]
        undone = {each["undoes"] for each in changes}
        return [FeedbackRecord(**each, rolled_back=each["number"] in undone) for each in changes]

    def events(self) -> Iterator[EventRecord]:
        """All events, oldest first, page by page."""
        for row in self._walk("events", "number"):
            yield read(EventRecord, row)

    def waits(self, start: int = 0, stop: int | None = None) -> Iterator[WaitRecord]:
        """What events left waiting, after at least ``start`` and fewer than ``stop`` decisions, oldest first."""
        first, beyond = whole("start", start), LARGEST_INTEGER if stop is None else whole("stop", stop)
        among = f"AND after_decisions >= {first} AND after_decisions < {beyond}"
        for row in self._walk("waits", "position", among=among):
            yield read(WaitRecord, row)

    def handle(self, key: str) -> HandleRecord | None:
        """What an executor knows a launched decision by; None if none was recorded under this key."""
        return self._one(HandleRecord, "WHERE key = ? ORDER BY position DESC LIMIT 1", text_of(key))

    def handles(self) -> list[HandleRecord]:
        """The newest handle under each key, in the order the keys first came."""
        return list({each.key: each for each in self._records(HandleRecord, "ORDER BY position")}.values())

    def intent(self, number: int) -> IntentRecord:
        """One intent with its effect.

        Raises:
            JournalError: If there is none of that number.
        """
        for intent in self._intents("intents.number = ?", whole("intent", number)):
            return intent
        raise fault("intent", number, "is not in the journal", "Record it with record_intent first")

    def open_intents(self) -> list[IntentRecord]:
        """Intents without effect, oldest first: what was recorded and may not have been done."""
        return list(self._intents("effects.number IS NULL"))

    def intents(self, start: int = 0) -> Iterator[IntentRecord]:
        """Intents with their effects, oldest first.

        Args:
            start: Number of the first.
        """
        return self._intents("intents.number >= ?", whole("start", start))

    def newest_snapshot(self, at: int | None = None) -> SnapshotRecord | None:
        """The state to go on from: the newest snapshot, damaged ones passed over by name; None if there is none.

        Args:
            at: Decisions it may include at most; all by default.

        Raises:
            JournalError: If all there are are damaged.
        """
        most = LARGEST_INTEGER if at is None else whole("at", at)
        skipped: list[str] = []
        for row in self._snapshots("WHERE s.sequence <= ? ORDER BY s.sequence DESC, s.position DESC LIMIT 8", most):
            try:
                return self._snapshot(row, tuple(skipped))
            except JournalError as error:
                skipped.append(str(error))
        if skipped:
            raise self.fault(
                f"has no snapshot that is whole ({skipped[0]})",
                "Restore it from a copy; its decisions can still be lived through one by one",
            )
        return None

    def _snapshots(self, which: str, *values: object) -> list[Row]:
        """Rows of the snapshots whose bytes are still there."""
        joined = "FROM snapshots s JOIN snapshot_data k ON k.position = s.position"
        return self.rows(f"SELECT {select('snapshots', 's')} {joined} {which}", *values)

    def _snapshot(self, row: Row, skipped: tuple[str, ...] = ()) -> SnapshotRecord:
        values = decode("snapshots", row)
        (data,) = self.row("SELECT data FROM snapshot_data WHERE position = ?", row[0]) or (None,)
        if type(data) is not bytes or hashlib.sha256(data).hexdigest() != values["sha256"]:
            raise damaged("snapshots", row, "is not what was written: its SHA-256 does not fit")
        arrays = unpack_arrays(data)
        return SnapshotRecord(values["sequence"], arrays, values["facts"], values["number"], row[0], skipped)

    def archives(self) -> list[ArchiveRecord]:
        """Old parts of the journal that were moved to files of their own, oldest first."""
        return self._records(ArchiveRecord, "ORDER BY position")

    def verify(self, since: int | None = None) -> Verified:
        """Check everything: the pages of the file, every row, the chain over all rows, and the snapshots kept.

        A writer is not held up.

        Args:
            since: First position to check the chain from; all by default.

        Raises:
            JournalError: If anything is not as it was written; what and where is named.
        """

        def check(connection: sqlite3.Connection) -> Verified:
            complete(connection, self.name)
            verified = chain.verify(connection, since)
            newest = "SELECT number, position FROM snapshots ORDER BY number DESC LIMIT 1"
            pages, application, stray, last, bare = (
                (connection.execute(query).fetchone() or (None,))
                for query in (
                    "PRAGMA integrity_check(1)",
                    "PRAGMA application_id",
                    "SELECT position FROM snapshot_data WHERE position NOT IN (SELECT position FROM snapshots) LIMIT 1",
                    newest,
                    f"SELECT number FROM ({newest}) WHERE position NOT IN (SELECT position FROM snapshot_data)",
                )
            )
            if pages[0] != "ok":
                raise self.fault(f"is damaged ({' '.join(str(pages[0]).split())})")
            if stray[0] is not None:
                raise self.fault("has a snapshot that is not its own")
            if bare[0] is not None and application[0] != ARCHIVE_ID:
                raise fault("snapshots", f"number {last[0]}", "is the newest, and its bytes are gone")
            return verified

        verified = self.consistent(check)
        for row in self._snapshots("ORDER BY s.position"):
            self._snapshot(row)
        return verified

    def history(self, start: int = 0, stop: int | None = None) -> pd.DataFrame:
        """One row per decision with its outcome and reward terms, indexed by number; all in memory."""
        return export.frame(self, start, stop)

    def export(self, path: PathName) -> Path:
        """Write the journal for other tools; the file appears whole or not at all.

        ``.parquet`` and ``.csv`` have one row per decision, ``.jsonl`` one line; ``.json`` has everything.

        Raises:
            JournalError: If the ending is another, or the file cannot be written.
        """
        return export.export(self, Path(path))

    def joined(self, tables: tuple[str, ...], start: int = 0, stop: int | None = None) -> Iterator[list[Row]]:
        """Rows of the decisions of a range, each with that of other tables that belongs to it, or one of None."""
        decisions, count = ("decisions", *tables), self.count()
        wanted = ", ".join(select(table, table) for table in decisions)
        joins = " ".join(f"LEFT JOIN {table} ON {JOINS[table]}" for table in tables)
        query = (
            f"SELECT decisions.sequence, {wanted} FROM decisions {joins} WHERE decisions.sequence >= ? "
            "AND decisions.sequence < ? ORDER BY decisions.sequence LIMIT ?"
        )
        beyond = min(whole("stop", count if stop is None else stop), count)
        for page in self.pages(query, whole("start", start), beyond):
            for row in page:
                values = iter(row[1:])
                yield [tuple(islice(values, len(columns(table)))) for table in decisions]

    def chained(self, table: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Rows of any table in the order of the chain: position, hash and values."""
        for row in self._walk(table, "position"):
            values = decode(table, row)
            yield row[0], row[-1].hex(), values

    def _walk(self, table: str, key: str, start: int = 0, *, among: str = "") -> Iterator[Row]:
        """Rows of a table in the order of a column, page by page."""
        query = f"SELECT {key}, {select(table)} FROM {table} WHERE {key} >= ? AND {key} < ? {among}"
        for page in self.pages(f"{query} ORDER BY {key} LIMIT ?", start, LARGEST_INTEGER):
            for row in page:
                yield row[1:]

    def _records(self, kind: type[R], which: str = "", *values: object, **more: Any) -> list[R]:
        table = TABLE_OF[kind]
        rows = self.rows(f"SELECT {select(table)} FROM {table} {which}", *values)
        return [read(kind, row, **more) for row in rows]

    def _one(self, kind: type[R], which: str, *keys: object, **more: Any) -> R | None:
        return next(iter(self._records(kind, which, *keys, **more)), None)

    def _intents(self, which: str, *values: object) -> Iterator[IntentRecord]:
        both = f"SELECT {select('intents', 'intents')}, {select('effects', 'effects')} FROM intents"
        query = f"{both} LEFT JOIN effects ON effects.number = intents.number WHERE {which} ORDER BY intents.number"
        width = len(columns("intents"))
        for row in self.rows(query, *values):
            effect = None if row[width] is None else decode("effects", row[width:])["details"]
            yield read(IntentRecord, row[:width], effect=effect)

    def _sequence(self, decision_id: str) -> int:
        row = self.row("SELECT sequence FROM decisions WHERE id = ?", text_of(decision_id))
        return int(row[0]) if row else self._miss("decision", decision_id)

    def _miss(self, what: str, name: object) -> NoReturn:
        """Refuse an id that is not there, with the nearest that is, or where it was archived."""
        match, archives = ID.fullmatch(str(name)), self.archives()
        for each in archives:
            if what == "decision" and match and int(match[1]) < each.before:
                raise fault("decision id", name, f"was archived to {each.path}", "Read it there")
        table, order = ("decisions", "sequence") if what == "decision" else ("tasks", "number")
        # Similar ids are mostly neighbours in the alphabet; else the newest are the likeliest.
        query = (
            f"SELECT id FROM (SELECT id FROM {table} ORDER BY {order} DESC LIMIT {NEIGHBOURS}) "
            f"UNION ALL SELECT id FROM (SELECT id FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 5) "
            f"UNION ALL SELECT id FROM (SELECT id FROM {table} WHERE id < ?1 ORDER BY id DESC LIMIT 5)"
        )
        rows = self.rows(query, text_of(name))
        hint = nearest(str(name), {str(row[0]) for row in rows}) if rows else "It has none yet"
        if hint.startswith("Valid"):
            hint = f"Its newest is {rows[0][0]!r}"
        if archives:
            hint += f". Older ones were archived to {archives[-1].path}"
        raise fault(f"{what} id", name, "is not in the journal", hint)
