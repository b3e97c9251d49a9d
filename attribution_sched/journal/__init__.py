"""Every decision on disk before it takes effect, and with it what it came to, why, and what was learnt."""

from __future__ import annotations

from attribution_sched.journal.journal import Journal
from attribution_sched.journal.records import (
    PROVENANCES,
    DecisionRecord,
    EventRecord,
    ExplanationRecord,
    FeedbackRecord,
    JournalHeader,
    OutcomeRecord,
    TaskRecord,
)

__all__ = [
    "PROVENANCES",
    "DecisionRecord",
    "EventRecord",
    "ExplanationRecord",
    "FeedbackRecord",
    "Journal",
    "JournalHeader",
    "OutcomeRecord",
    "TaskRecord",
]
