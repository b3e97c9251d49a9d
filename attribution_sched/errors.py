"""The one error family of the package: every message gives the value, the rule and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


class MissingFontWarning(UserWarning):
    """A plot is drawn in English because no font of this machine has the glyphs of the language asked for."""


def problem(field: str, value: object, rule: str, fix: str) -> str:
    """Write a message in the one shape every error of this package has.

    Args:
        field: Name of the offending input.
        value: What was given.
        rule: What must hold.
        fix: What the caller can do.
    """
    return f"{field} = {value!r}: {rule}. {fix}"


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return a hint that names the closest valid word, or lists all of them."""
    options = sorted(valid)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]!r}?"
    return "Valid: " + ", ".join(options)
