"""Explanations as plain numbers and words, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import numpy as np

from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.findings import Change, Confidence, Counterfactual, Interaction, Player, Rule
from attribution_sched.explain.words import Phrase
from attribution_sched.explain.words.catalogue import MESSAGES

ARRAYS: tuple[str, ...] = ("values", "standard_error", "base", "value")


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Everything as plain numbers, words and lists, ready for JSON; NaN becomes null.

    Words are English; ``phrases`` tells of each text that is a message of the catalogue which one, and with what
    values, so that it can be said in every language.
    """
    told = {item.name: getattr(explanation, item.name) for item in fields(explanation)}
    phrases: dict[str, Any] = {}
    plain = {name: _plain(value, phrases) for name, value in told.items()}
    return {**plain, "phrases": phrases}


def from_dict(given: Mapping[str, Any]) -> Explanation:
    """The inverse of :func:`to_dict`.

    Raises:
        ExplanationError: If a field is missing, unknown or malformed.
    """
    names = {item.name for item in fields(Explanation)}
    unknown = sorted(set(given) - names - {"phrases"})
    if unknown:
        raise ExplanationError(problem("field", unknown[0], "is not known", nearest(unknown[0], names)))
    try:
        # Explanations of older versions have none, those of newer ones may have others: their words stay as they are.
        told = given.get("phrases", {})
        phrases = {text: Phrase.from_dict(how) for text, how in told.items() if how["message"] in MESSAGES}
        made = {name: _said(value, phrases) for name, value in given.items() if name != "phrases"}
        for name in ARRAYS:
            made[name] = np.array(_numbers(made[name]), dtype=np.float64)
        shape = (len(made["players"]), len(made["outputs"]))
        made["values"], made["standard_error"] = (made[name].reshape(shape) for name in ("values", "standard_error"))
        made["players"] = tuple(Player(**_read(player)) for player in made["players"])
        made["outputs"] = tuple(made["outputs"])
        made["weights"] = None if made.get("weights") is None else tuple(made["weights"])
        made["rules"] = tuple(Rule(**_read(rule)) for rule in made.get("rules", ()))
        made["interactions"] = tuple(Interaction(**_read(pair)) for pair in made.get("interactions", ()))
        made["background_ids"] = tuple(made.get("background_ids", ()))
        made["notes"] = tuple(made.get("notes", ()))
        if made.get("confidence") is not None:
            made["confidence"] = Confidence(**_read(made["confidence"]))
        if made.get("counterfactual") is not None:
            flip = _read(made["counterfactual"])
            flip["changes"] = tuple(Change(**_read(change)) for change in flip["changes"])
            made["counterfactual"] = Counterfactual(**flip)
        return Explanation(**made)
    except (KeyError, TypeError, ValueError) as error:
        raise ExplanationError(
            problem("explanation", str(error), "cannot be read", "Use what to_dict() gave")
        ) from error


def _plain(value: Any, phrases: dict[str, Any]) -> Any:
    """The value as JSON has it; phrases met on the way are added to those."""
    if isinstance(value, Phrase):
        phrases[str(value)] = value.to_dict()
        return str(value)
    if isinstance(value, np.ndarray):
        return _plain(value.tolist(), phrases)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value), phrases)
    if isinstance(value, dict):
        return {name: _plain(part, phrases) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part, phrases) for part in value]
    if isinstance(value, float) and not np.isfinite(value):
        # JSON has no NaN.
        return None
    return value


def _said(value: Any, phrases: Mapping[str, Phrase]) -> Any:
    """The inverse: texts that are phrases become them again."""
    if isinstance(value, str):
        return phrases.get(value, value)
    if isinstance(value, Mapping):
        return {name: _said(part, phrases) for name, part in value.items()}
    return [_said(part, phrases) for part in value] if isinstance(value, (list, tuple)) else value


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that were written as null are NaN again."""
    return {name: float("nan") if value is None else value for name, value in given.items()}


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return float("nan") if value is None else value
