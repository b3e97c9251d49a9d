"""What a column may hold: how a value is checked and written, and how it is read and checked again.

One check serves both ways; who calls it says whose value it is.
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from attribution_sched.errors import nearest
from attribution_sched.journal.faults import fault
from attribution_sched.journal.records import PROVENANCES

LARGEST_INTEGER = 2**63 - 1

Check = Callable[[Any], Any]


class Broken(ValueError):
    """A rule that a value breaks.

    Args:
        value: The value.
        rule: What must hold.
        fix: What who wrote it can do.
        part: Where in a mapping it is, with a dot before it.
    """

    def __init__(self, value: object, rule: str, fix: str, part: str = "") -> None:
        super().__init__(rule)
        self.value, self.rule, self.fix, self.part = value, rule, fix, part


def checked(field: str, check: Check, value: Any) -> Any:
    """A value as a check gives it back.

    Raises:
        JournalError: If it breaks the check's rule; the field is named.
    """
    try:
        return check(value)
    except Broken as error:
        raise fault(field + error.part, error.value, error.rule, error.fix) from error


def whole(field: str, value: Any, *, least: int = 0) -> int:
    """A whole number from ``least`` on that 64 bits can hold."""
    return int(checked(field, partial(_whole, least=least), value))


def _whole(value: Any, least: int = 0) -> int:
    if type(value) is int and least <= value <= LARGEST_INTEGER:
        return value
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool) and least <= (integer := operator.index(value)) <= LARGEST_INTEGER:
            return integer
    raise Broken(value, f"must be a whole number of at least {least}, in 64 bits", "Give an integer in that range")


def number(value: Any) -> float:
    """A finite number."""
    # SQLite keeps no sign of zero; the digest must not know it either.
    if type(value) is float and math.isfinite(value):
        return value + 0.0
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise Broken(value, "must be a number", "Give a finite number, or None where that is allowed")
    real = math.nan
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        real = float(value)
    if not math.isfinite(real):
        raise Broken(value, "must be finite", "Give None if it is not known")
    return real + 0.0


def _text(value: Any, least: int = 0) -> str:
    if not isinstance(value, str) or len(value) < least:
        raise Broken(value, "must be a word", "Give a string that is not empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Broken(value, "cannot be written as UTF-8", "Leave out lone surrogates") from error
    return value


def _provenance(value: Any) -> str:
    if value not in PROVENANCES:
        raise Broken(value, "is not known", nearest(str(value), PROVENANCES))
    return str(value)


def _seed(value: Any) -> None:
    # Entropy of a seed sequence has 128 bits; JSON holds them.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise Broken(value, "must be a whole number", "Give an integer")


def _pack_slots(slots: Any) -> bytes:
    for slot in slots:
        if _whole(slot, -LARGEST_INTEGER) not in range(2**31):
            raise Broken(slot, "is no place in a queue", "Give 0 and more")
    return struct.pack(f"<{len(slots)}i", *slots)


def _slots(data: Any) -> bytes:
    if type(data) is not bytes or len(data) % 4:
        raise Broken(data, "must be bytes of whole numbers", "Give places in a queue")
    return data


def dump(value: Any) -> str:
    """JSON without spaces; floating-point numbers to the last digit. NaN and infinity are refused."""
    try:
        return _text(ENCODER.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise Broken(
            value,
            f"cannot be written as JSON ({error})",
            "Give finite numbers, words, lists and mappings, and None for what is not known",
        ) from error


def load(text: Any) -> Any:
    """The inverse of :func:`dump`."""
    try:
        return DECODER.decode(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise Broken(text, "is not JSON", "Give JSON") from error


def _plain(value: Any) -> Any:
    """Arrays and their scalars as lists and numbers, views of mappings as mappings."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=_plain)
DECODER = json.JSONDecoder(parse_constant=_refuse)


class ColumnKind(NamedTuple):
    """What a column holds.

    Attributes:
        sql: Its type in SQLite.
        write: Checks a value on the way in.
        read: Checks it on the way out.
    """

    sql: str
    write: Check
    read: Check


def _mapping_of(check: Check | None = None) -> ColumnKind:
    def mapping(value: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise Broken(value, "must be a mapping", "Give a dict whose keys are words")
        for name, each in value.items() if check else ():
            try:
                check(each)  # type: ignore[misc]
            except Broken as error:
                raise Broken(each, error.rule, error.fix, f".{name}") from error
        return value

    return ColumnKind("TEXT", lambda value: dump(value) if mapping(value) else "{}", lambda text: mapping(load(text)))


_word = partial(_text, least=1)
_integer = partial(_whole, least=-(2**63))

KINDS: dict[str, ColumnKind] = {
    "whole": ColumnKind("INTEGER", _whole, _whole),
    "integer": ColumnKind("INTEGER", _integer, _integer),
    "number": ColumnKind("REAL", number, number),
    "text": ColumnKind("TEXT", _text, _text),
    "word": ColumnKind("TEXT", _word, _word),
    "provenance": ColumnKind("TEXT", _provenance, _provenance),
    "mapping": _mapping_of(),
    "numbers": _mapping_of(number),
    "counts": _mapping_of(_whole),
    "seeds": _mapping_of(_seed),
    "json": ColumnKind("TEXT", dump, load),
    "slots": ColumnKind("BLOB", _pack_slots, _slots),
}
"""Words of the schema → what a column of that kind holds."""
