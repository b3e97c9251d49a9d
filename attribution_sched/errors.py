"""The one error family of the package: every message gives the value, the rule and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from attribution_sched.words.text import clean_text, shown


class AttributionSchedError(Exception):
    """Base of every error this package raises on purpose."""


class SettingsError(AttributionSchedError):
    """A setting, preset or YAML file is wrong."""


class TaskError(AttributionSchedError):
    """A task, model or layer is wrong or can never be placed."""


class PlanError(AttributionSchedError):
    """A plan contradicts the model, the cluster or the memory of a device."""


class NetworkError(AttributionSchedError):
    """A bandwidth, latency, price or network trace is wrong."""


class TraceError(AttributionSchedError):
    """A trace or recording file is malformed."""


class PolicyError(AttributionSchedError):
    """A policy failed on one task after the other."""


class CounterError(AttributionSchedError):
    """A counter source or counter value is wrong or not available."""


class ModelFitError(AttributionSchedError):
    """A statistical model got data it cannot be fitted to or asked about."""


class ExplanationError(AttributionSchedError):
    """An explanation was asked for that cannot be given: no such decision, no background, no budget."""


class CheckpointError(AttributionSchedError):
    """A saved file is truncated, tampered with or of another version."""


class JournalError(AttributionSchedError):
    """A journal cannot be opened, read or written: damaged, foreign, of another version, or in use."""


class ExecutorError(AttributionSchedError):
    """An engine that runs jobs does not answer, refuses, or is not there."""


class LaunchRefused(ExecutorError):
    """An engine will never start a job as it is."""


class MissingFontWarning(UserWarning):
    """A plot is drawn in English because no font of this machine has the glyphs of the language asked for."""


MOST_WORDS = 2000
"""Characters of a field, a rule or a fix: other libraries' messages, and names out of files, stand in them."""


def problem(field: str, value: object, rule: str, fix: str) -> str:
    """Write a message in the one shape every error of this package has: one line, its value cut to 200 characters.

    The other parts are cut too, to :data:`MOST_WORDS`.

    Args:
        field: Name of the offending input.
        value: What was given.
        rule: What must hold.
        fix: What the caller can do.
    """
    field, rule, fix = (part if len(part) <= MOST_WORDS else f"{part[:MOST_WORDS]}…" for part in (field, rule, fix))
    return clean_text(f"{field} = {shown(value)}: {rule}. {fix}")


LONGEST_NAME = 200
"""Characters of a name that are compared with others."""

MOST_LISTED = 100
"""Valid words that a hint lists at most."""


def nearest(name: object, valid: Iterable[str], alike: float = 0.5) -> str:
    """Return a hint that names the closest valid word, if one is so much ``alike``, or lists them."""
    options = sorted(valid)
    text = name[:LONGEST_NAME] if isinstance(name, str) else shown(name)
    folded = {option.casefold(): option for option in reversed(options)}
    close = difflib.get_close_matches(text.casefold(), folded, n=1, cutoff=alike)
    if close:
        return f"Did you mean {folded[close[0]]!r}?"
    more = f", … ({len(options) - MOST_LISTED} more)" if len(options) > MOST_LISTED else ""
    return "Valid: " + ", ".join(options[:MOST_LISTED]) + more
