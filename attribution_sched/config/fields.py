"""What settings hold: numbers with their bounds, names, paths, and the record all others are made of.

Every record is frozen, closed to unknown keys and strict about types: ``"16"`` or ``true`` for a number is refused
instead of guessed at; a whole number is accepted where a real one is asked for, as YAML users write them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from attribution_sched.limits import MOST_DEVICES, Rationale, name_rule, path_rule


def between(low: float, high: float, ends: str = "[]") -> Any:
    """Numbers of an interval, taken strictly: whole ones if its ends are, else finite real ones.

    Args:
        low: Smallest.
        high: Largest.
        ends: Whether each belongs to it, as mathematicians write it.
    """
    bounds: Any = {"ge" if ends[0] == "[" else "gt": low, "le" if ends[1] == "]" else "lt": high}
    return Field(strict=True, **bounds) if isinstance(low, int) else Field(strict=True, allow_inf_nan=False, **bounds)


RULE = "settings_rule"
"""Type of the errors that :func:`broken_rule` makes."""
LARGEST = 1e15
DIGITS = Rationale("beyond it sums lose their digits")
NonNegative = Annotated[float, between(0.0, LARGEST), DIGITS]
Fraction = Annotated[float, between(0.0, 1.0)]
Real = Annotated[float, between(-LARGEST, LARGEST), DIGITS]
Count = Annotated[int, between(1, 10**12), Rationale("nobody counts further, and arrays cannot")]
Seed = Annotated[int, between(0, 2**62, "[)"), Rationale("generators take whole numbers of 64 bits")]


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


Devices = Annotated[int, between(1, MOST_DEVICES), Rationale("every device has a place in arrays")]
Gbps = Annotated[
    float,
    between(1e-6, 1e9),
    Rationale("slower ones never end a transfer, and none is faster"),
]
"""Bandwidth."""
Bytes = Annotated[float, between(1.0, 1e18), Rationale("memories and links hold or move bytes")]
MemoryBytes = Annotated[
    float,
    between(1e6, 1e18),
    Rationale("no device holds less: the number counts bytes, not gigabytes"),
]
BytesPerSecond = Annotated[
    float,
    between(1e6, 1e18),
    Rationale("no memory of a device is slower: the number counts bytes a second, not gigabytes"),
]
Seconds = Annotated[float, between(0.0, 1e6), Rationale("a task would wait for weeks")]
"""Latency or pause."""
Watts = Annotated[float, between(1e-3, 1e9), Rationale("a device draws milliwatts to megawatts")]
CENTURY = Rationale("a century has 876,600 hours")
Rate = Annotated[
    float,
    between(1e-6, 1e6),
    Rationale("arrivals are drawn one by one, between one a century and 277 a second"),
]
"""Tasks per hour."""
Slots = Annotated[int, between(1, 1_000_000), Rationale("every slot is a row of the engine's arrays")]


class HourWindow(Record):
    """Hours from the start of the run, from one to another."""

    start_h: Annotated[float, between(0.0, 1e6), CENTURY]
    end_h: Annotated[float, between(0.0, 1e6, "(]"), CENTURY]

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if not self.end_h > self.start_h:
            rule = f"must lie after start_h = {self.start_h:g}"
            raise broken_rule(rule, "Give the hour at which it is over", key=("end_h",), value=self.end_h)
        return self
