"""Every decision on disk before it takes effect, and with it what it came to, why, and what was learnt."""

from __future__ import annotations

from attribution_sched.journal.journal import Journal
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

__all__ = [
    "PROVENANCES",
    "ArchiveRecord",
    "DecisionRecord",
    "EventRecord",
    "ExplanationRecord",
    "FeedbackRecord",
    "HandleRecord",
    "IntentRecord",
    "Journal",
    "JournalHeader",
    "OutcomeRecord",
    "SnapshotRecord",
    "TaskRecord",
    "Verified",
    "WaitRecord",
]
