"""From pydantic's list of errors to one sentence: the full dotted key, the value, the rule, the fix."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from attribution_sched.config.fields import RULE
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.limits import Rationale
from attribution_sched.words.text import clean_text

_BOUNDS = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
}
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping of settings",
    "model_attributes_type": "a mapping of settings",
    "dataclass_type": "a mapping of settings",
}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
"""An unknown key of a model and of a dataclass."""
_MISSING = object()

LONGEST_KEY = 200
"""Characters of a key that a message shows."""


def settings_error(error: ValidationError, root: type[BaseModel], source: str) -> SettingsError:
    """Translate a validation error into the one error a user sees.

    The first problem is written out; the keys of the others follow.

    Args:
        error: What pydantic found.
        root: The record that was validated.
        source: File or preset the settings came from; empty if they came as a mapping.
    """
    # Unknown keys first: a misspelt key is often also the reason why another one is missing.
    details = sorted(_leaves(error), key=lambda e: e["type"] not in _UNKNOWN)
    message = _describe(details[0], root)
    if len(details) > 1:
        # Each is found by a walk through the types; of a long list only a few are shown.
        others = list(dict.fromkeys(_place(detail, root).key for detail in details[1:20]))
        listing = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        plural = "s" if len(details) > 2 else ""
        message += f" ({len(details) - 1} more problem{plural}: {listing})"
    return SettingsError(clean_text(f"{source}: {message}" if source else message))


def dotted(path: tuple[str | int, ...]) -> str:
    """Write a path as a user would: ``kinds[2].batch_size``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return clean_text(text if len(text) <= LONGEST_KEY else text[:LONGEST_KEY] + "…") or "settings"


class _Place(NamedTuple):
    """Where an error is: its dotted key, the valid names beside it, the field, if it is one, and why it has bounds."""

    key: str
    siblings: tuple[str, ...]
    field: FieldInfo | None
    why: str = ""


def _leaves(error: ValidationError) -> list[ErrorDetails]:
    """Leave out errors that only repeat: one level up, or for the next entry of a list, what is wrong."""
    details = error.errors(include_url=False)
    repeats = {detail["loc"][:level] for detail in details for level in range(len(detail["loc"]))}
    for *place, last in (detail["loc"] for detail in details if detail["type"] == "missing"):
        repeats |= {(*place, last + 1)} if isinstance(last, int) else set()
    return [detail for detail in details if detail["loc"] not in repeats]


def _describe(detail: ErrorDetails, root: type[BaseModel]) -> str:
    kind, value, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    key, siblings, field, why = _place(detail, root)
    if kind == RULE:
        shown_value = value if context["value"] is None else context["value"]
        return problem(key, shown_value, context["rule"], context["fix"])
    if kind in _UNKNOWN:
        name = str(detail["loc"][-1])
        return problem(key, value, "is not a setting", nearest(name, siblings))
    if kind == "missing":
        return problem(key, None, "is required and was not given", f"Add {key}")
    if kind in _BOUNDS:
        bound, sign = _BOUNDS[kind]
        limit = f"{context[bound]}" if isinstance(context[bound], int) else f"{context[bound]:g}"
        # That nothing is below zero or above one needs no reason.
        reason = f": {why}" if why and context[bound] not in (0, 1) else ""
        fix = f"Give a value {sign} {limit}"
        if field is not None and isinstance(field.default, int | float):
            usual = str(field.default) if isinstance(field.default, int) else f"{field.default:g}"
            fix += f", or leave it out for {usual}"
        return problem(key, value, f"must be {sign} {limit}{reason}", fix)
    if kind in _TYPES:
        return problem(key, value, f"must be {_TYPES[kind]}", _type_fix(value, _TYPES[kind]))
    if kind == "literal_error":
        choices = [str(choice) for choice in _choices(context["expected"])]
        return problem(key, value, f"must be one of {', '.join(choices)}", nearest(value, choices))
    if kind == "union_tag_not_found":
        return problem(f"{key}.kind", None, "is required and was not given", "Say which kind it is")
    if kind == "union_tag_invalid":
        choices = _choices(context["expected_tags"])
        fix = nearest(str(context["tag"]), choices)
        return problem(f"{key}.kind", context["tag"], f"must be one of {', '.join(choices)}", fix)
    if kind in ("too_short", "too_long"):
        few = kind == "too_short"
        bound = context["min_length" if few else "max_length"]
        rule = f"must have {'at least' if few else 'at most'} {bound} entries, not {context['actual_length']}"
        return problem(
            key, value, rule if few or not why else f"{rule}: {why}", "Add entries" if few else "Remove entries"
        )
    if kind == "string_too_short":
        return problem(key, value, "must not be empty", "Write a name")
    if kind == "invalid_key":
        return problem("a key of the settings", detail["loc"][-1], "must be text", "Put it in quotes")
    return problem(key, value, detail["msg"], "See the presets for an example")


def _choices(listed: str) -> list[str]:
    """Read the words out of pydantic's ``'a', 'b' or 'c'``."""
    return [word.strip(" '") for word in listed.replace(" or ", ", ").split(",")]


def _type_fix(value: object, wanted: str) -> str:
    if isinstance(value, str) and "number" in wanted:
        try:
            number = float(value)
        except ValueError:
            return "Write a number"
        # YAML reads 3e-4 as text: its numbers need a decimal point before the exponent.
        return f"Write it without quotes and with a decimal point, {number!r}"
    return f"Write {wanted}"


def _place(detail: ErrorDetails, root: type[BaseModel]) -> _Place:
    """Find the place of an error.

    Pydantic's location holds the tag of a tagged union as if it were a key; walking the types along the
    location tells tags from keys.
    """
    context = detail.get("ctx", {})
    below = tuple(context["key"]) if detail["type"] == RULE else ()
    path: list[str | int] = []
    siblings: tuple[str, ...] = ()
    field: FieldInfo | None = None
    why = ""
    current: Any = root
    for part in detail["loc"]:
        current = _plain(current)
        tagged = _tagged(current)
        if tagged and part in tagged:
            current = tagged[str(part)]
            continue
        path.append(part)
        field, why = None, ""
        if isinstance(current, type) and issubclass(current, BaseModel):
            siblings = tuple(current.model_fields)
            field = current.model_fields.get(str(part))
            current = field.annotation if field else _MISSING
            why = _why(current, field.metadata) if field else ""
        elif is_dataclass(current):
            hints = get_type_hints(current, include_extras=True)
            defaults = {member.name: member.default for member in fields(current)}
            siblings = tuple(defaults)
            has_default = str(part) in defaults
            field = FieldInfo(annotation=hints[str(part)], default=defaults[str(part)]) if has_default else None
            current = hints.get(str(part), _MISSING)
            why = _why(current, ())
        elif get_origin(current) in (list, tuple):
            current = get_args(current)[0]
            why = _why(current, ())
        elif get_origin(current) in (dict, Mapping):
            current = get_args(current)[1]
    return _Place(dotted((*path, *below)), siblings, field, why)


def _why(annotation: Any, metadata: Sequence[Any]) -> str:
    """The reason that stands beside the bounds of a field, of an entry of a list, or of one that may be left out."""
    if get_origin(annotation) in (Union, types.UnionType):
        metadata = [each for member in get_args(annotation) for each in getattr(member, "__metadata__", ())]
    elif get_origin(annotation) is Annotated:
        metadata = annotation.__metadata__
    return next((each.reason for each in metadata if isinstance(each, Rationale)), "")


def _plain(annotation: Any) -> Any:
    """Strip ``Annotated`` and ``| None``."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        if len(members) == 1:
            return _plain(members[0])
    return annotation


def _tagged(annotation: Any) -> dict[str, Any]:
    """Return tag → record for a union of records that differ in their ``kind``."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return {}
    tags = {}
    for member in get_args(annotation):
        kind = member.model_fields.get("kind") if hasattr(member, "model_fields") else None
        if kind is not None and get_origin(kind.annotation) is Literal:
            tags.update(dict.fromkeys(get_args(kind.annotation), member))
    return tags
