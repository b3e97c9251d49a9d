"""From explanations back to reward weights.

Names load on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from attribution_sched import lazy_names

__all__ = [
    "Feedback",
    "FeedbackChange",
    "FeedbackSettings",
    "Objective",
    "Targets",
    "Window",
]

_HOMES = {
    "Feedback": "attribution_sched.feedback.loop",
    "FeedbackChange": "attribution_sched.feedback.loop",
    "FeedbackSettings": "attribution_sched.feedback.targets",
    "Objective": "attribution_sched.feedback.rollback",
    "Targets": "attribution_sched.feedback.targets",
    "Window": "attribution_sched.feedback.window",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
