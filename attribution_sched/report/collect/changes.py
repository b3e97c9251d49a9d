"""What feedback changed, and why."""

from __future__ import annotations

from attribution_sched.journal import Journal
from attribution_sched.report.data import Changes, FeedbackStep

EVENT = "feedback"
"""Kind of the journal's event for a step of feedback."""


def changes(journal: Journal) -> Changes:
    """Every change, and the steps that left everything as it was."""
    steps = [event.details for event in journal.events() if event.kind == EVENT]
    still = tuple(
        (int(step["after_decisions"]), str(step["reason"]), str(step.get("reason_zh", "")))
        for step in steps
        if step.get("kind") == "still"
    )
    listed = tuple(
        FeedbackStep(
            number=change.number or 0,
            after_decisions=change.after_decisions or 0,
            changed=change.changed,
            before=change.before,
            after=change.after,
            english=change.reason,
            chinese=change.reason_zh,
            undoes=change.undoes,
            rolled_back=change.rolled_back,
        )
        for change in journal.feedback()
    )
    return Changes(len(steps), listed, still)
