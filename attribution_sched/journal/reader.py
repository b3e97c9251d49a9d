"""Looking things up in a journal, page by page where there may be many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import JournalError, nearest, problem
from attribution_sched.journal import rows, schema
from attribution_sched.journal.export import export
from attribution_sched.journal.records import (
    DecisionRecord,
    EventRecord,
    ExplanationRecord,
    FeedbackRecord,
    JournalHeader,
    OutcomeRecord,
    TaskRecord,
)
from attribution_sched.journal.store import Store
from attribution_sched.journal.table import frame
from attribution_sched.journal.values import LARGEST_INTEGER, whole

if TYPE_CHECKING:
    import pandas as pd

DECISION_WIDTH = len(schema.columns("decisions"))
ENTRIES = (
    f"SELECT {rows.select('decisions', 'd')}, {rows.select('outcomes', 'o')} "
    "FROM decisions d LEFT JOIN outcomes o ON o.sequence = d.sequence "
    "WHERE d.sequence >= ? AND d.sequence < ? ORDER BY d.sequence LIMIT ?"
)
NUMBERED = "WHERE number >= ? AND number < ? ORDER BY number LIMIT ?"

NEIGHBOURS = 500
"""Ids of the newest records that a mistyped one is compared with."""


class Reader:
    """What can be asked of a journal.

    Attributes:
        path: The file; None in memory.
        header: What the run needs to be repeated.
    """

    def __init__(self, store: Store, path: Path | None) -> None:
        self._store = store
        self.path = path
        self.header: JournalHeader = rows.read_header(store.rows(f"SELECT {rows.select('header')} FROM header")[0])

    def count(self) -> int:
        """Number of decisions."""
        found = self._store.row("SELECT max(sequence) FROM decisions")
        return 0 if found is None or found[0] is None else int(found[0]) + 1

    def decision(self, decision_id: str) -> DecisionRecord:
        """One decision.

        Raises:
            JournalError: If there is none of that id.
        """
        row = self._store.row(f"SELECT {rows.select('decisions')} FROM decisions WHERE id = ?", (str(decision_id),))
        if row is None:
            raise self._unknown("decision", decision_id)
        return rows.read_decision(row)

    def last(self) -> DecisionRecord | None:
        """The newest decision; None if there is none."""
        query = f"SELECT {rows.select('decisions')} FROM decisions ORDER BY sequence DESC LIMIT 1"
        row = self._store.row(query)
        return None if row is None else rows.read_decision(row)

    def decisions(self, start: int = 0, stop: int | None = None) -> Iterator[DecisionRecord]:
        """Decisions numbered from ``start`` up to ``stop``, read page by page: memory does not grow with the journal.

        What is recorded while it runs is not part of it.
        """
        for decision, _ in self.entries(start, stop):
            yield decision

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[DecisionRecord, OutcomeRecord | None]]:
        """Decisions as of :meth:`decisions`, each with its outcome, or None while it is pending."""
        for page in self._store.pages(ENTRIES, *self._bounds(start, stop)):
            for row in page:
                decision, rest = rows.read_decision(row[:DECISION_WIDTH]), row[DECISION_WIDTH:]
                yield decision, None if rest[0] is None else rows.read_outcome(decision.id, rest)

    def pending(self) -> list[DecisionRecord]:
        """Decisions without outcome, oldest first: those a killed process may not have let take effect."""
        query = (
            f"SELECT {rows.select('decisions')} FROM decisions WHERE sequence NOT IN (SELECT sequence FROM outcomes)"
        )
        return [rows.read_decision(row) for row in self._store.rows(f"{query} ORDER BY sequence")]

    def outcome(self, decision_id: str) -> OutcomeRecord | None:
        """What a decision came to; None while it is pending.

        Raises:
            JournalError: If there is no decision of that id.
        """
        query = f"SELECT {rows.select('outcomes', 'o')} FROM decisions d LEFT JOIN outcomes o USING (sequence)"
        row = self._store.row(f"{query} WHERE d.id = ?", (str(decision_id),))
        if row is None:
            raise self._unknown("decision", decision_id)
        return None if row[0] is None else rows.read_outcome(decision_id, row)

    def explanations(self, decision_id: str) -> list[ExplanationRecord]:
        """Why a decision was made: what was recorded of it, by target.

        Raises:
            JournalError: If there is no decision of that id.
        """
        found = self._store.row("SELECT sequence FROM decisions WHERE id = ?", (str(decision_id),))
        if found is None:
            raise self._unknown("decision", decision_id)
        query = f"SELECT {rows.select('explanations')} FROM explanations WHERE sequence = ? ORDER BY target"
        return [rows.read_explanation(decision_id, row) for row in self._store.rows(query, found)]

    def task(self, task_id: str) -> TaskRecord:
        """One task.

        Raises:
            JournalError: If there is none of that id.
        """
        row = self._store.row(f"SELECT {rows.select('tasks')} FROM tasks WHERE id = ?", (str(task_id),))
        if row is None:
            raise self._unknown("task", task_id)
        return rows.read_task(row)

    def knows_task(self, task_id: str) -> bool:
        """Whether there is a task of that id."""
        return self._store.row("SELECT 1 FROM tasks WHERE id = ?", (str(task_id),)) is not None

    def tasks(self) -> Iterator[TaskRecord]:
        """All tasks in the order they were recorded, page by page."""
        query = f"SELECT {rows.select('tasks')} FROM tasks {NUMBERED}"
        for page in self._store.pages(query, 0, LARGEST_INTEGER):
            yield from map(rows.read_task, page)

    def feedback(self) -> list[FeedbackRecord]:
        """All changes, oldest first, with whether they were taken back."""
        undone = "EXISTS (SELECT 1 FROM feedback later WHERE later.undoes = f.number)"
        query = f"SELECT {rows.select('feedback', 'f')}, {undone} FROM feedback f ORDER BY f.number"
        return [rows.read_feedback(row) for row in self._store.rows(query)]

    def events(self) -> Iterator[EventRecord]:
        """All events, oldest first, page by page."""
        query = f"SELECT {rows.select('events')} FROM events {NUMBERED}"
        for page in self._store.pages(query, 0, LARGEST_INTEGER):
            yield from map(rows.read_event, page)

    def history(self, start: int = 0, stop: int | None = None) -> pd.DataFrame:
        """One row per decision with its outcome and reward terms, indexed by number; all in memory."""
        return frame(self, start, stop)

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the journal for other tools; the file appears whole or not at all.

        ``.parquet`` and ``.csv`` have one row per decision, ``.jsonl`` one line; ``.json`` has everything.

        Raises:
            JournalError: If the ending is another, or the file cannot be written.
        """
        return export(self, Path(path))

    def table_pages(self, query: str, start: int, stop: int | None) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of a query over decisions, a page at a time; for those who lay the journal out in another form."""
        return self._store.pages(query, *self._bounds(start, stop))

    def _bounds(self, start: int, stop: int | None) -> tuple[int, int]:
        first, count = whole("start", start), self.count()
        return first, count if stop is None else min(whole("stop", stop), count)

    def _unknown(self, what: str, name: object) -> JournalError:
        """The error for an id that is not there, with the nearest that is."""
        table, order = ("decisions", "sequence") if what == "decision" else ("tasks", "number")
        # Similar ids are mostly neighbours in the alphabet; else the newest are the likeliest.
        found = self._store.rows(
            f"SELECT id FROM (SELECT id FROM {table} ORDER BY {order} DESC LIMIT {NEIGHBOURS}) "
            f"UNION SELECT id FROM (SELECT id FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 5) "
            f"UNION SELECT id FROM (SELECT id FROM {table} WHERE id < ?1 ORDER BY id DESC LIMIT 5)",
            (str(name),),
        )
        hint = nearest(str(name), [row[0] for row in found]) if found else "It has none yet"
        if hint.startswith("Valid"):
            last = self._store.rows(f"SELECT id FROM {table} ORDER BY {order} DESC LIMIT 1")[0][0]
            hint = f"Its newest is {last!r}"
        return JournalError(problem(f"{what} id", name, "is not in the journal", hint))
