"""Values on their way into the file and back: exact, plain, and refused by name when they cannot be kept."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from typing import Any

from attribution_sched.errors import JournalError, problem

LARGEST_INTEGER = 2**63 - 1


def text(field: str, value: object, *, empty: bool = False) -> str:
    """A word or sentence.

    Raises:
        JournalError: If it is none, or empty where that means nothing.
    """
    if not isinstance(value, str) or not (value or empty):
        raise JournalError(problem(field, value, "must be a word", "Give a string that is not empty"))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise JournalError(problem(field, value, "cannot be written as UTF-8", "Leave out lone surrogates")) from error
    return value


def number(field: str, value: Any) -> float | None:
    """A finite number, or None for one that is not known."""
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise JournalError(problem(field, value, "must be a number", "Give a number, or None if it is not known"))
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise JournalError(problem(field, value, "must be finite", "Give None if it is not known"))
    return found


def needed(field: str, value: Any) -> float:
    """A finite number that must be known."""
    found = number(field, value)
    if found is None:
        raise JournalError(problem(field, value, "must be a number", "Give a finite number"))
    return found


def whole(field: str, value: Any, *, least: int = 0) -> int:
    """A whole number from ``least`` on that 64 bits can hold."""
    try:
        found = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = least - 1
    if isinstance(value, bool) or not least <= found <= LARGEST_INTEGER:
        rule = f"must be a whole number of at least {least}, in 64 bits"
        raise JournalError(problem(field, value, rule, "Give an integer in that range"))
    return found


def dump(field: str, value: Any) -> str:
    """JSON without spaces; floating-point numbers to the last digit.

    Raises:
        JournalError: If it holds NaN, infinity or something that JSON has no form for.
    """
    try:
        written = ENCODER.encode(value)
        written.encode()
    except (TypeError, ValueError, RecursionError) as error:
        rule = f"cannot be written as JSON ({error})"
        fix = "Give finite numbers, words, lists and mappings, and None for what is not known"
        raise JournalError(problem(field, _short(value), rule, fix)) from error
    return written


def dump_mapping(field: str, value: Any) -> str:
    """JSON of a mapping."""
    if not isinstance(value, Mapping):
        raise JournalError(problem(field, _short(value), "must be a mapping", "Give a dict whose keys are words"))
    return "{}" if not value else dump(field, value)


def load(field: str, written: str | None) -> Any:
    """The inverse of :func:`dump`; None stays None.

    Raises:
        JournalError: If the text is damaged.
    """
    if written is None:
        return None
    try:
        return json.loads(written)
    except (TypeError, ValueError) as error:
        fix = "The journal is damaged: restore it from a copy"
        raise JournalError(problem(field, _short(written), "is not JSON", fix)) from error


def _plain(value: Any) -> Any:
    """Arrays and their scalars as lists and numbers, views of mappings as mappings."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=_plain)
