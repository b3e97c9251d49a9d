"""What every settings record shares: frozen, closed to unknown keys, and strict about types.

Numbers are strict so that ``"16"`` or ``true`` is refused instead of guessed at; a whole number is
accepted where a real one is asked for, as YAML users write them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=1)]
Whole = Annotated[int, Field(strict=True)]
Switch = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(strict=True, min_length=1)]

RULE = "settings_rule"
"""Type of the errors that :func:`broken_rule` makes."""


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
