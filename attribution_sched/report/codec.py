"""Reports as JSON and back: records become mappings, tuples lists, and the types say how to read them again."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from attribution_sched.errors import AttributionSchedError, problem
from attribution_sched.report.data import SCHEMA, Report


def to_json(report: Report) -> str:
    """A report as JSON text; what is not finite is null."""
    return json.dumps(plain(report), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def from_json(text: str) -> Report:
    """The inverse of :func:`to_json`.

    Raises:
        AttributionSchedError: If it is not such a text.
    """
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        version = found.get("schema") if isinstance(found, dict) else None
        fix = "Write the report again with this package"
        raise AttributionSchedError(problem("report.schema", version, f"must be {SCHEMA}", fix))
    return typing.cast("Report", _made(Report, found, "report"))


def plain(value: Any) -> Any:
    """Records, mappings and sequences as what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _made(kind: Any, value: Any, where: str) -> Any:
    """A value of an annotated type from what JSON had of it."""
    if kind is Any:
        return value
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        inner = [each for each in args if each is not type(None)]
        return None if value is None else _made(inner[0], value, where)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        names = {field.name for field in dataclasses.fields(kind)}
        if not isinstance(value, dict) or set(value) != names:
            raise AttributionSchedError(problem(where, value, f"must have {sorted(names)}", "Write the report again"))
        return kind(**{name: _made(hints[name], value[name], f"{where}.{name}") for name in names})
    if origin is tuple:
        each = args[:1] * len(value) if args[-1] is Ellipsis else args
        return tuple(_made(one, item, where) for one, item in zip(each, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {name: _made(args[1], item, f"{where}.{name}") for name, item in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind):
        raise AttributionSchedError(problem(where, value, f"must be {kind.__name__}", "Write the report again"))
    return value
