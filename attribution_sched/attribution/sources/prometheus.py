"""The Prometheus text format: lines of ``name{label="value"} number [milliseconds]``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from attribution_sched.errors import CounterError, problem

# Each pattern takes what only it can take, so that a line is read once from left to right, however long it is.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_KEY = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*")
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"\s*')
_SPACE = re.compile(r"\s*")
_TIME = re.compile(r"-?\d+(?:\.\d+)?")
_ESCAPE = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True)
class Sample:
    """One line of the format.

    Attributes:
        name: Metric name.
        labels: Label name to value.
        value: The number; may be NaN or infinite.
        line: Line number in the text, from 1.
    """

    name: str
    labels: Mapping[str, str]
    value: float
    line: int


def _fail(source: str, line: int, text: str, rule: str) -> CounterError:
    fix = "Check that the address serves Prometheus text (dcgm-exporter: http://<host>:9400/metrics)"
    return CounterError(problem(f"{source} line {line}", text[:120], rule, fix))


def parse_prometheus(text: str, source: str = "metrics") -> tuple[Sample, ...]:
    """Parse a whole scrape.

    Args:
        text: The scrape.
        source: Named in errors.

    Raises:
        CounterError: A line is not of the format; the message gives the line.
    """
    samples: list[Sample] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        samples.append(_sample(line, source, number))
    return tuple(samples)


def _sample(line: str, source: str, number: int) -> Sample:
    name = _NAME.match(line)
    if name is None:
        raise _fail(source, number, line, 'must read name{label="value"} number')
    position = _after(_SPACE, line, name.end())
    labels: Mapping[str, str] = MappingProxyType({})
    if line.startswith("{", position):
        labels, end = _labels(line, position + 1, source, number)
    else:
        end = name.end()
    fields = line[end:].split(None, 2)
    if not fields or not line[end].isspace() or not _is_tail(fields[1:]):
        raise _fail(source, number, line, 'must read name{label="value"} number')
    try:
        value = float(fields[0])
    except ValueError as error:
        raise _fail(source, number, line, f"{fields[0][:40]!r} is not a number") from error
    return Sample(name[0], labels, value, number)


def _is_tail(fields: Sequence[str]) -> bool:
    """Whether what follows a value may: nothing, a time, an exemplar, or both."""
    if not fields or fields[0].startswith("#"):
        return True
    return _TIME.fullmatch(fields[0]) is not None and (len(fields) == 1 or fields[1].startswith("#"))


def _labels(line: str, position: int, source: str, number: int) -> tuple[Mapping[str, str], int]:
    """Labels from behind the opening brace on, and where the closing one ends."""
    labels: dict[str, str] = {}
    while True:
        position = _after(_SPACE, line, position)
        if line.startswith("}", position):
            return MappingProxyType(labels), position + 1
        key = _KEY.match(line, position)
        quoted = None if key is None else _QUOTED.match(line, key.end())
        if key is None or quoted is None:
            raise _fail(source, number, line, 'labels must read key="value", separated by commas')
        if key[1] in labels:
            raise _fail(source, number, line, f"label {key[1][:40]!r} appears twice")
        labels[key[1]] = re.sub(r"\\.", lambda m: _ESCAPE.get(m[0], m[0]), quoted[1])
        position = quoted.end()
        if line.startswith(",", position):
            position += 1
        elif not line.startswith("}", position):
            raise _fail(source, number, line, 'labels must read key="value", separated by commas')


def _after(pattern: re.Pattern[str], line: str, position: int) -> int:
    matched = pattern.match(line, position)
    return position if matched is None else matched.end()
