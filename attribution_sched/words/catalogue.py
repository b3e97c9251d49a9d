"""The catalogue: message id → (English, Chinese)."""

from __future__ import annotations

from attribution_sched.words import (
    messages_billing,
    messages_cli,
    messages_feedback,
    messages_operations,
    messages_plots,
    messages_reasoning,
    messages_records,
    messages_report,
    messages_serve,
)

Message = tuple[str, str]
"""The same in English and Chinese, with the same places."""

PAGES: tuple[dict[str, Message], ...] = (
    messages_records.MESSAGES,
    messages_reasoning.MESSAGES,
    messages_plots.MESSAGES,
    messages_report.MESSAGES,
    messages_feedback.MESSAGES,
    messages_cli.MESSAGES,
    messages_billing.MESSAGES,
    messages_serve.MESSAGES,
    messages_operations.MESSAGES,
)

MESSAGES: dict[str, Message] = {name: pair for page in PAGES for name, pair in page.items()}
