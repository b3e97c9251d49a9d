"""All words in all languages: one catalogue of messages, filled in from numbers; see :func:`.say.say`."""

from __future__ import annotations

from attribution_sched.explain.words.names import counter_name, input_name, known, term, unit_name
from attribution_sched.explain.words.say import (
    LANGUAGES,
    Language,
    Phrase,
    check_language,
    counted,
    in_language,
    say,
    spaced,
)

__all__ = [
    "LANGUAGES",
    "Language",
    "Phrase",
    "check_language",
    "counted",
    "counter_name",
    "in_language",
    "input_name",
    "known",
    "say",
    "spaced",
    "term",
    "unit_name",
]
