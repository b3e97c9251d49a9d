"""What may come in: bounds of sizes and counters, each with its reason, and the one rule for names and paths.

Every bound is far beyond what anybody uses, and below what would exhaust a machine or overflow a number further
inside, where the message could no longer say what to change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from attribution_sched.errors import AttributionSchedError, CounterError, SettingsError, problem
from attribution_sched.words.text import clean_text, csv_text

__all__ = [
    "COUNTER_BOUNDS",
    "MOST_BYTES_OF_CONFIG",
    "MOST_CELLS",
    "MOST_DEVICES",
    "MOST_LAYERS",
    "MOST_NODES",
    "Bound",
    "Rationale",
    "character_rule",
    "check_counter",
    "check_document",
    "check_name",
    "check_path",
    "clean_text",
    "csv_text",
    "make_folder",
    "name_rule",
    "path_rule",
]

LONGEST_NAME = 200
"""Characters of the name of a task, a tenant, a domain or a preset: it stands in tables and file names."""

LONGEST_PATH = 4096
LONGEST_PART = 255
"""Bytes of a path and of one of its parts, beyond which no usual file system goes."""

MOST_BYTES_OF_CONFIG = 10_000_000
"""Of a model's configuration file; released ones have a few thousand."""

MOST_LAYERS = 10_000
"""Of one kind in a model; every layer has a row in tables."""

MOST_NODES = 200_000
"""Values of a settings document, aliases written out."""

DEEPEST = 32
"""Levels of a settings document; the settings themselves have six."""

MOST_DEVICES = 100_000
"""Devices of a cluster: the engine keeps two occupants and a price for each."""

MOST_CELLS = 100_000_000
"""Task slots × domains²: the engine keeps the traffic of every slot over every link, 16 bytes each."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTAINERS = (Mapping, list, tuple, set, frozenset)


@dataclass(frozen=True)
class Rationale:
    """Why a number has the bound it has; stands beside the bound in the type, and in the message when it is broken.

    Attributes:
        reason: Words for the user.
    """

    reason: str


class Bound(NamedTuple):
    """The largest value of something, and why.

    Attributes:
        most: Largest value that is taken.
        reason: Why there is a limit, and why there.
    """

    most: float
    reason: str


_DEVICES = "1,024 devices busy all the time"
COUNTER_BOUNDS: Mapping[str, Bound] = MappingProxyType({
    "cpu_cycles": Bound(1e13, "1,024 cores at 6 GHz make 6e12 a second"),
    "l3_misses": Bound(1e12, "more than 64 TB/s of cache lines come from no memory"),
    "memory_bandwidth": Bound(1e15, "100 devices at 8 TB/s move 8e14 bytes a second"),
    "pcie_bandwidth": Bound(1e13, "64 links at 128 GB/s move 8e12 bytes a second"),
    "conv": Bound(1024.0, _DEVICES),
    "fc": Bound(1024.0, _DEVICES),
    "attention": Bound(1024.0, _DEVICES),
    "instructions": Bound(1e14, "ten instructions in every cycle of 1,024 cores make 6e13 a second"),
    "llc_references": Bound(1e13, "one reference in every cycle of 1,024 cores makes 6e12 a second"),
    "sm_active": Bound(1.0, "it is a share of time"),
    "dram_active": Bound(1.0, "it is a share of time"),
    "cpu_seconds": Bound(4096.0, "no machine has more than 4,096 cores"),
})  # fmt: skip
"""Counter → the largest reading, in its unit of ``COUNTER_UNITS``, that a machine can show."""


def check_counter(name: str, value: float) -> None:
    """Refuse a reading that no machine can show.

    Raises:
        CounterError: With counter, value, bound, reason and remedy.
    """
    bound = COUNTER_BOUNDS[name]
    if value > bound.most:
        fix = "Check its unit, or leave all counters out to have them simulated"
        rule = f"must be at most {bound.most:g}: {bound.reason}"
        raise CounterError(problem(f"counters[{name!r}]", value, rule, fix))


def name_rule(name: str) -> str | None:
    """What is wrong with a name; None if nothing is.

    Names go into tables, pages, files and terminals, so they are printable: no control characters, no ends of lines,
    no marks that turn the direction of writing.
    """
    if len(name) > LONGEST_NAME:
        return f"must have at most {LONGEST_NAME} characters, not {len(name)}"
    if not name.isprintable():
        odd = next(each for each in name if not each.isprintable())
        return f"must hold printable characters only, not U+{ord(odd):04X}"
    if not name.strip():
        return "must not be empty"
    return None


def check_name(field: str, name: str, error: type[AttributionSchedError] = SettingsError) -> str:
    """Return a name that follows the rule of :func:`name_rule`.

    Args:
        field: What it is the name of.
        name: The name.
        error: Raised otherwise.
    """
    rule = name_rule(name)
    if rule is not None:
        raise error(problem(field, name, rule, "Use letters, digits and signs"))
    return name


def character_rule(text: str) -> str | None:
    """What is wrong with the characters of a word or a path; None if nothing is."""
    if _SURROGATE.search(text):
        return "must be valid UTF-8"
    odd = _CONTROL.search(text)
    return None if odd is None else f"must not hold the control character U+{ord(odd[0]):04X}"


def path_rule(path: str | Path) -> str | None:
    """What is wrong with a path before any file system is asked; None if nothing is."""
    text = str(path)
    rule = character_rule(text)
    if rule is not None:
        return rule
    if len(text.encode()) > LONGEST_PATH:
        return f"must have at most {LONGEST_PATH} bytes, not {len(text.encode())}"
    longest = max(len(part.encode()) for part in text.split("/"))
    if longest > LONGEST_PART:
        return f"must have parts of at most {LONGEST_PART} bytes, not {longest}"
    return None


def check_path(field: str, path: str | Path, error: type[AttributionSchedError] = SettingsError) -> None:
    """Refuse a path that no file system can take, see :func:`path_rule`."""
    rule = path_rule(path)
    if rule is not None:
        raise error(problem(field, str(path), rule, "Give the path of a file"))


def make_folder(field: str, folder: Path) -> None:
    """Make a folder where there is none.

    Raises:
        SettingsError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = f"cannot be made ({error.strerror or error})"
        raise SettingsError(problem(field, str(folder), rule, "Name a folder where you may write")) from None


def check_document(document: object, name: str) -> None:
    """Refuse a document that is too large, too deep or has text nobody can write.

    A value that stands in several places counts in each of them, because each is merged and checked by itself; that
    is also what ends a document that contains itself.

    Args:
        document: Mappings, lists and plain values.
        name: What to call it.

    Raises:
        SettingsError: If it breaks one of these rules.
    """
    nodes = 0
    # A stack keeps one branch of the document; level by level would keep a whole level of a bomb.
    waiting: list[tuple[str, object, int]] = [(name, document, 0)]
    while waiting:
        where, value, depth = waiting.pop()
        inside = len(value) if isinstance(value, _CONTAINERS) else 0
        nodes += 1
        if nodes + inside > MOST_NODES:
            rule = f"must hold at most {MOST_NODES} values, repeated ones counted each time"
            raise SettingsError(problem(name, document, rule, "Use fewer entries or aliases"))
        if inside and depth >= DEEPEST:
            rule = f"must be nested at most {DEEPEST} deep, and must not contain itself"
            raise SettingsError(problem(name, document, rule, "Write it flat"))
        if isinstance(value, str):
            _check_text(where, value)
        elif isinstance(value, Mapping):
            for key, each in value.items():
                if isinstance(key, str):
                    _check_text(f"a key of {where}", key)
                waiting.append((key if isinstance(key, str) else where, each, depth + 1))
        elif isinstance(value, _CONTAINERS):
            waiting += [(where, each, depth + 1) for each in value]


def _check_text(where: str, text: str) -> None:
    if _CONTROL_BUT_LINES.search(text) or _SURROGATE.search(text):
        rule = "must not hold NUL, other control characters or half a surrogate pair"
        raise SettingsError(problem(where, text, rule, "Remove them"))
