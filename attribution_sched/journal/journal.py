"""The journal: every decision on disk before it takes effect.

The order that loses and doubles nothing: ``record_decision``, let it take effect, ``record_outcome``. A process that is
killed in between leaves a decision without outcome; :meth:`Journal.pending` names it, and whoever resumes lets it take
effect once and records the outcome.

A journal may be shared by threads: calls take turns, and each record is whole. It is not carried over to forked
processes. One process writes; any number may read meanwhile. The file must lie on a local disk.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from attribution_sched.errors import JournalError, problem
from attribution_sched.journal import files, rows
from attribution_sched.journal.lock import WriterLock
from attribution_sched.journal.reader import Reader
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
from attribution_sched.journal.values import whole

GROUP = 1024
"""Records per commit inside :meth:`Journal.batch`."""

ANYTHING = JournalHeader("none", "none", {}, {}, "unknown")


class Journal(Reader):
    """Decisions, what they came to, why, and what was learnt; append-only.

    Made by :meth:`create`, :meth:`open`, :meth:`read` or :meth:`memory`, and best used as a context manager. What can
    be asked of it stands in :class:`~attribution_sched.journal.reader.Reader`.
    """

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: JournalHeader) -> Journal:
        """Make a new journal and open it for writing.

        Raises:
            JournalError: If something is there already, or cannot be made.
        """
        header = header if header.created_at else replace(header, created_at=_now())
        rows.header_row(header)
        return cls._locked(_resolved(path), header)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Journal:
        """Open a journal to go on with it; one of an older version is brought up to date.

        Raises:
            JournalError: If it is missing, damaged, foreign, newer than this package, or being written by another.
        """
        found = _resolved(path)
        files.inspect(found)
        return cls._locked(found, None)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Journal:
        """Open a journal for reading only, also while another process writes it.

        Raises:
            JournalError: If it is missing, damaged, foreign or of another version.
        """
        found = _resolved(path)
        return cls(Store(files.reading(found), str(found), None, writable=False), found)

    @classmethod
    def memory(cls, header: JournalHeader = ANYTHING) -> Journal:
        """A journal that is gone when it is closed."""
        header = header if header.created_at else replace(header, created_at=_now())
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA foreign_keys = ON")
        files.fill(connection, header)
        return cls(Store(connection, "in memory", None, writable=True), None)

    @classmethod
    def _locked(cls, path: Path, header: JournalHeader | None) -> Journal:
        lock = WriterLock(path)
        try:
            if header is not None:
                files.create(path, header)
            store = Store(files.writing(path), str(path), lock, writable=True)
        except BaseException:
            lock.release()
            raise
        try:
            return cls(store, path)
        except BaseException:
            store.close()
            raise

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

    def record_task(self, task: TaskRecord) -> None:
        """Record a task. The same task again is left as it is.

        Raises:
            JournalError: If another task has this id.
        """
        with self._store.writing() as connection:
            self._add_task(connection, task)

    def record_decision(self, decision: DecisionRecord, *, task: TaskRecord | None = None) -> DecisionRecord:
        """Record a decision; outside :meth:`batch` it is on disk when this returns.

        Args:
            decision: The decision.
            task: Its task, to be recorded with it if it is new.

        Returns:
            The decision with its id and number.

        Raises:
            JournalError: If its id is taken, its task is unknown, or its number is not the next.
        """
        with self._store.writing() as connection:
            if task is not None:
                self._add_task(connection, task)
            sequence = self._next("decisions", "sequence")
            if decision.sequence is not None and decision.sequence != sequence:
                rule = f"the next decision of this journal is number {sequence}"
                raise JournalError(problem("decision.sequence", decision.sequence, rule, "Leave it to the journal"))
            name, now = decision.id or f"d{sequence:06d}", _now()
            row = rows.decision_row(decision, sequence, name, now)
            if self._store.row("SELECT 1 FROM decisions WHERE id = ?", (name,)):
                rule = "is in the journal already"
                raise JournalError(problem("decision.id", name, rule, "Record every decision once"))
            known = decision.task_id is None or self._store.row("SELECT 1 FROM tasks WHERE id = ?", (decision.task_id,))
            if not known:
                raise self._unknown("task", decision.task_id)
            connection.execute(rows.insert("decisions"), row)
        return replace(decision, id=name, sequence=sequence, recorded_at=now)

    def record_outcome(self, outcome: OutcomeRecord) -> None:
        """Record what a decision came to, once.

        Raises:
            JournalError: If the decision is unknown or has an outcome already.
        """
        row = rows.outcome_row(outcome)
        with self._store.writing() as connection:
            sequence = self._sequence(outcome.decision_id)
            if self._store.row("SELECT 1 FROM outcomes WHERE sequence = ?", (sequence,)):
                rule = "has an outcome already"
                raise JournalError(problem("outcome.decision_id", outcome.decision_id, rule, "Record it once"))
            connection.execute(rows.insert("outcomes"), (sequence, *row))

    def record_explanation(self, explanation: ExplanationRecord, *, replace: bool = False) -> None:
        """Record why a decision was made, once per target.

        Args:
            explanation: The explanation.
            replace: Put it in the place of an earlier one.

        Raises:
            JournalError: If the decision is unknown, or has such an explanation that is not to be replaced.
        """
        row = rows.explanation_row(explanation)
        with self._store.writing() as connection:
            sequence = self._sequence(explanation.decision_id)
            there = "SELECT 1 FROM explanations WHERE sequence = ? AND target = ?"
            if (
                self._store.row(
                    there,
                    (
                        sequence,
                        row[0],
                    ),
                )
                and not replace
            ):
                rule = f"has an explanation of {row[0]!r} already"
                fix = "Pass replace=True to put this one in its place"
                raise JournalError(problem("explanation.decision_id", explanation.decision_id, rule, fix))
            connection.execute(
                rows.insert("explanations")
                + " ON CONFLICT (sequence, target) DO UPDATE SET explanation = excluded.explanation",
                (sequence, *row),
            )

    def record_feedback(self, change: FeedbackRecord) -> FeedbackRecord:
        """Record a change that feedback made, or took back; return it with its number.

        Raises:
            JournalError: If it takes back a change that is unknown or was taken back before.
        """
        with self._store.writing() as connection:
            number, decisions = self._next("feedback", "number"), self._next("decisions", "sequence")
            now = _now()
            row = rows.feedback_row(change, number, decisions, now)
            if change.undoes is not None:
                undone = self._store.row("SELECT 1 FROM feedback WHERE undoes = ?", (change.undoes,))
                if change.undoes >= number or undone:
                    rule = "was taken back already" if undone else f"the journal has {number} changes, from number 0 on"
                    fix = "Give the number of a change in force"
                    raise JournalError(problem("feedback.undoes", change.undoes, rule, fix))
            connection.execute(rows.insert("feedback"), row)
        return replace(change, number=number, after_decisions=decisions, rolled_back=False, recorded_at=now)

    def record_event(self, event: EventRecord) -> EventRecord:
        """Record anything else; return it with its number."""
        with self._store.writing() as connection:
            number, now = self._next("events", "number"), _now()
            connection.execute(rows.insert("events"), rows.event_row(event, number, now))
        return replace(event, number=number, recorded_at=now)

    def _add_task(self, connection: sqlite3.Connection, task: TaskRecord) -> None:
        row = rows.task_row(task)
        there = self._store.row(f"SELECT {rows.select('tasks')} FROM tasks WHERE id = ?", (row[0],))
        if there is None:
            connection.execute(rows.insert("tasks"), (self._next("tasks", "number"), *row))
        elif rows.read_task(there) != rows.read_task((0, *row)):
            raise JournalError(problem("task.id", task.id, "is another task's", "Give every task its own id"))

    def _next(self, table: str, column: str) -> int:
        found = self._store.row(f"SELECT max({column}) FROM {table}")
        return 0 if found is None or found[0] is None else int(found[0]) + 1

    def _sequence(self, decision_id: str) -> int:
        row = self._store.row("SELECT sequence FROM decisions WHERE id = ?", (str(decision_id),))
        if row is None:
            raise self._unknown("decision", decision_id)
        return int(row[0])


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _resolved(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise JournalError(problem("journal", path, f"is no path ({error})", "Give the path of a file")) from error
