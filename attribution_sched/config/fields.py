"""What every settings record shares: frozen, closed to unknown keys, and strict about types.

Numbers are strict so that ``"16"`` or ``true`` is refused instead of guessed at; a whole number is
accepted where a real one is asked for, as YAML users write them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from attribution_sched.limits import Why, name_rule, path_rule

__all__ = [
    "DIGITS",
    "RULE",
    "Count",
    "FilePath",
    "Fraction",
    "Name",
    "NonNegative",
    "Positive",
    "Real",
    "Record",
    "Seed",
    "Switch",
    "Why",
    "broken_rule",
]

RULE = "settings_rule"
"""Type of the errors that :func:`broken_rule` makes."""

_LARGEST = 1e15
DIGITS = Why("beyond it sums lose their digits")

Positive = Annotated[float, Field(strict=True, gt=0, le=_LARGEST, allow_inf_nan=False), DIGITS]
NonNegative = Annotated[float, Field(strict=True, ge=0, le=_LARGEST, allow_inf_nan=False), DIGITS]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Real = Annotated[float, Field(strict=True, ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False), DIGITS]
Switch = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1, le=10**12), Why("nobody counts further, and arrays cannot")]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**62), Why("generators take whole numbers of 64 bits")]


def _name(name: str) -> str:
    rule = name_rule(name)
    if rule is not None:
        raise broken_rule(rule, "Use letters, digits and signs", value=name)
    return name


def _path(path: str) -> str:
    rule = path_rule(path)
    if rule is not None:
        raise broken_rule(rule, "Give the path of a file", value=path)
    return path


Name = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_name)]
"""Printable, at most 200 characters."""

FilePath = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_path)]
"""A path that a file system can take; whether the file is there is seen when it is read."""


class Record(BaseModel):
    """Base of every settings record."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def to_yaml(self) -> str:
        """Write the record as YAML that loads into an equal record; keys that are unset are left out."""
        return yaml.safe_dump(
            self.model_dump(mode="json", exclude_none=True), sort_keys=False, default_flow_style=None, width=110
        )


def broken_rule(rule: str, fix: str, *, key: Iterable[str | int] = (), value: object = None) -> PydanticCustomError:
    """Build the error of a rule that pydantic does not know.

    Args:
        rule: What must hold.
        fix: What the user can do.
        key: Where below the validated record or field the mistake is.
        value: The offending value; the validated one when the key is empty.
    """
    context = {"rule": rule, "fix": fix, "key": tuple(key), "value": value}
    return PydanticCustomError(RULE, "{rule}", context)
