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
import secrets
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attribution_sched.journal import archive, file
from attribution_sched.journal.chain import Tail
from attribution_sched.journal.faults import fault
from attribution_sched.journal.kinds import load, whole
from attribution_sched.journal.lock import WriterLock
from attribution_sched.journal.reader import Reader
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
    TaskRecord,
    WaitRecord,
    now,
)
from attribution_sched.journal.rows import Row, encode, read
from attribution_sched.journal.schema import select
from attribution_sched.journal.snapshots import pack_arrays

KEEP_NEWEST = 4
KEEP_EVERY = 32
"""Snapshots that :meth:`Journal.compact` keeps: so many of the newest, and every so many-th of the older ones."""

ANYTHING = JournalHeader("none", "none", {}, {}, "unknown")


class Journal(Reader):
    """Decisions, what they came to, why, and what was learnt; append-only.

    Made by :meth:`create`, :meth:`open`, :meth:`read` or :meth:`memory`, and best used as a context manager. What can
    be asked of it stands in :class:`~attribution_sched.journal.reader.Reader`.
    """

    @classmethod
    def create(cls, path: PathName, header: JournalHeader) -> Journal:
        """Make a new journal and open it for writing.

        Raises:
            JournalError: If something is there already, or cannot be made.
        """
        return cls._locked(_resolved(path), _header(header), claim=True)

    @classmethod
    def open(cls, path: PathName, *, claim: bool = True, wait_s: float = 0.0) -> Journal:
        """Open a journal to go on with it.

        The chain of its rows is checked from the newest snapshot on.

        Args:
            path: The journal.
            claim: Take over as its writer at once, so that any other, wherever it came from, can write no more. Else
                it is taken over by the first record, and until then the file is left as it was.
            wait_s: How long to wait for another writer to end, see :attr:`lock_file`.

        Raises:
            JournalError: If it is missing, damaged, foreign, of another version, or being written by another.
        """
        resolved = _resolved(path)
        file.inspect(resolved)
        return cls._locked(resolved, None, claim=claim, wait_s=wait_s)

    @classmethod
    def read(cls, path: PathName) -> Journal:
        """Open a journal for reading only, also while another process writes it.

        Raises:
            JournalError: If it is missing, damaged, foreign or of another version.
        """
        resolved = _resolved(path)
        return cls(file.reading(resolved), resolved, None, writable=False)

    @classmethod
    def memory(cls, header: JournalHeader = ANYTHING) -> Journal:
        """A journal that is gone when it is closed."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        file.fill(connection, _header(header))
        journal = cls(connection, None, None)
        journal.claim()
        return journal

    @classmethod
    def _locked(cls, path: Path, header: Row | None, *, claim: bool, wait_s: float = 0.0) -> Journal:
        with contextlib.ExitStack() as undo:
            lock = WriterLock(path, wait_s)
            undo.callback(lock.release)
            if header is not None:
                file.create(path, header)
            journal = cls(file.writing(path), path, lock)
            undo.callback(journal.close)
            if claim:
                journal.claim(unseen=True)
            undo.pop_all()
        return journal

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def record_task(self, task: TaskRecord) -> None:
        """Record a task. The same task again is left as it is.

        Raises:
            JournalError: If another task has this id.
        """
        self.write(lambda tail: self._add_task(tail, task))

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

        def write(tail: Tail) -> DecisionRecord:
            if task is not None:
                self._add_task(tail, task)
            for wait in left:
                tail.add(wait)
            sequence = tail.next["decisions"]
            if decision.sequence not in (None, sequence):
                raise fault(
                    "decision.sequence",
                    decision.sequence,
                    f"the next decision of this journal is number {sequence}",
                    "Another may have written it meanwhile: close it and resume",
                )
            name = decision.id or f"d{sequence:06d}"
            with _once("decision.id", name, "is in the journal already"):
                stamped = tail.add(decision, id=name)
            if decision.task_id is not None and not self.knows_task(decision.task_id):
                self._miss("task", decision.task_id)
            return stamped

        return self.write(write)

    def record_outcome(self, outcome: OutcomeRecord) -> None:
        """Record what a decision came to, once.

        What a simulation says follows from the decision, which is on disk: it is there with the next record, and nobody
        waits for the disk a second time. What was measured is on disk when this returns.

        Raises:
            JournalError: If the decision is unknown or has an outcome already.
        """

        def write(tail: Tail) -> None:
            with _once("outcome.decision_id", outcome.decision_id, "has an outcome already"):
                tail.add(outcome, sequence=self._sequence(outcome.decision_id))

        self.write(write, soon=outcome.provenance == "simulated")

    def record_explanation(self, explanation: ExplanationRecord, *, replace: bool = False) -> None:
        """Record why a decision was made, once per target.

        Args:
            explanation: The explanation.
            replace: Let it count instead of an earlier one, which stays in the journal.

        Raises:
            JournalError: If the decision is unknown, or has such an explanation that is not to be replaced.
        """

        def write(tail: Tail) -> None:
            sequence, target = self._sequence(explanation.decision_id), explanation.target
            tail.add(explanation, sequence=sequence)
            query = "SELECT 1 FROM explanations WHERE sequence = ? AND target = ? LIMIT 2"
            if not replace and len(self.rows(query, sequence, target)) > 1:
                raise fault(
                    "explanation.decision_id",
                    explanation.decision_id,
                    f"has an explanation of {target!r} already",
                    "Pass replace=True to let this one count instead",
                )

        # It can be had again: who decides meanwhile does not wait for the disk because of it.
        self.write(write, soon=True)

    def record_feedback(self, change: FeedbackRecord) -> FeedbackRecord:
        """Record a change that feedback made, or took back; return it with its number.

        Raises:
            JournalError: If it takes back a change that is unknown or was taken back before.
        """

        def write(tail: Tail) -> FeedbackRecord:
            stamped, count = tail.add(change, rolled_back=False), tail.next["feedback"] - 1
            if change.undoes is not None:
                undone = self.rows("SELECT 1 FROM feedback WHERE undoes = ?", change.undoes)[1:]
                if undone or change.undoes >= count:
                    rule = "was taken back already" if undone else f"the journal has {count} changes, from number 0 on"
                    raise fault("feedback.undoes", change.undoes, rule, "Give the number of a change in force")
            return stamped

        return self.write(write)

    def record_event(self, event: EventRecord) -> EventRecord:
        """Record anything else; return it with its number."""
        return self.write(lambda tail: tail.add(event))

    def record_handle(self, handle: HandleRecord) -> HandleRecord:
        """Record what an executor knows a launched decision by. The same again is left as it is."""
        row = encode("handles", handle, recorded_at=now())

        def write(tail: Tail) -> HandleRecord:
            query = "SELECT executor, handle FROM handles WHERE key = ? ORDER BY position DESC LIMIT 1"
            if self.row(query, row[0]) != row[1:3]:
                tail.append("handles", row)
            return replace(handle, recorded_at=row[3])

        return self.write(write)

    def record_intent(self, kind: str, details: Mapping[str, Any]) -> int:
        """Record that something is to be done, before it is done; return its number.

        Args:
            kind: What, in one word: ``submit``, ``feedback``, ``train``.
            details: All that is needed to do it, also after a restart.
        """
        return self.write(lambda tail: tail.add(IntentRecord(kind, details, 0, 0)).number)

    def record_effect(self, number: int, details: Mapping[str, Any] | None = None) -> None:
        """Record that an intent took effect, once.

        Raises:
            JournalError: If there is no such intent, or it has an effect already.
        """
        row = encode("effects", None, number=number, details=details or {}, recorded_at=now())

        def write(tail: Tail) -> None:
            if self.row("SELECT 1 FROM intents WHERE number = ?", row[0]) is None:
                raise fault(
                    "effect.number",
                    number,
                    f"the journal has {tail.next['intents']} intents, from number 0 on",
                    "Give what record_intent returned",
                )
            with _once("effect.number", number, "has an effect already"):
                tail.append("effects", row)

        self.write(write)

    def record_snapshot(self, sequence: int, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> int:
        """Record the state after so many decisions, to go on from; return its number.

        The arrays are kept as compressed safetensors, with their SHA-256 in the chain. :meth:`compact` drops old ones;
        that they were there stays in the chain.

        Args:
            sequence: Decisions it includes; at most those there are.
            arrays: Name → array.
            facts: What is not an array, as JSON.

        Raises:
            JournalError: If it includes decisions that are not there, or cannot be written.
        """
        data = pack_arrays(arrays)
        digest = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "recorded_at": now()}

        def write(tail: Tail) -> int:
            count, decisions = tail.next["snapshots"], tail.next["decisions"]
            row = encode("snapshots", None, number=count, sequence=sequence, facts=facts, **digest)
            if row[1] > decisions:
                raise fault(
                    "snapshot.sequence", sequence, f"the journal has {decisions} decisions", "Record them first"
                )
            tail.connection.execute("INSERT INTO snapshot_data VALUES (?, ?)", (tail.position, data))
            tail.append("snapshots", row)
            return count

        return self.write(write)

    def archive(
        self,
        path: PathName,
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
        tasks = None if keep_tasks is None else frozenset(keep_tasks)
        return archive.archive(self, _resolved(path), before, tasks, without_snapshot=without_snapshot)

    def compact(self, *, keep_newest: int = KEEP_NEWEST, keep_every: int = KEEP_EVERY) -> tuple[int, int]:
        """Give room back that dropped snapshots and archived rows left; return the bytes before and after.

        Needs as much room again while it works. No record is touched.
        """
        return archive.compact(self, whole("keep_newest", keep_newest, least=1), whole("keep_every", keep_every))

    def _add_task(self, tail: Tail, task: TaskRecord) -> None:
        row = encode("tasks", task, number=tail.next["tasks"])
        there = self.row(f"SELECT {select('tasks')} FROM tasks WHERE id = ?", row[1])
        if there is None:
            tail.append("tasks", row)
        elif there[2:-2] != row[1:]:
            # It may differ in the order of its mappings only, or in arrays that are lists in the journal.
            plain = replace(task, counters=load(row[5]), meta=load(row[6]))
            if read(TaskRecord, there) != plain:
                raise fault("task.id", task.id, "is another task's", "Give every task its own id")


@contextlib.contextmanager
def _once(field: str, value: object, rule: str) -> Iterator[None]:
    """Say what is recorded twice where the table would."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise fault(field, value, rule, "Record it once") from error


def _header(header: JournalHeader) -> Row:
    created_at, journal_id = header.created_at or now(), header.journal_id or secrets.token_hex(6)
    return encode("header", header, created_at=created_at, journal_id=journal_id)


def _resolved(path: PathName) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise fault("journal", path, f"is no path ({error})", "Give the path of a file") from error


@contextlib.contextmanager
def temporary_copy(path: PathName) -> Iterator[Path]:
    """Path of a copy of a journal as it is now, to be looked into while another process goes on writing it.

    The weights that were learnt lie beside it; both are gone when the block ends. The journal itself is
    opened for reading only: its writer is not held up.

    Raises:
        JournalError: If it is missing, damaged, foreign or of another version.
    """
    with Journal.read(path) as journal, tempfile.TemporaryDirectory(prefix="attribution-sched-") as folder:
        source = _resolved(path)
        copy = Path(folder) / source.name
        file.dispose_of(copy.parent)
        journal.copy_to(copy)
        for weights in source.parent.glob(f"{source.name}.*.safetensors"):
            copy.with_name(weights.name).symlink_to(weights)
        yield copy
