"""The Prometheus text format: lines of ``name{label="value"} number [milliseconds]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from attribution_sched.errors import CounterError, problem

_LINE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*"
    r"(?:\{(?P<labels>(?:[^\"{}]|\"(?:[^\"\\]|\\.)*\")*)\})?"
    r"\s+(?P<value>\S+)(?:\s+(?P<time>-?\d+(?:\.\d+)?))?(?:\s+#.*)?"
)
_LABEL = re.compile(r"\s*(?P<key>[a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*\"(?P<value>(?:[^\"\\]|\\.)*)\"\s*(?:,|$)")
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
        match = _LINE.fullmatch(line)
        if match is None:
            raise _fail(source, number, line, 'must read name{label="value"} number')
        try:
            value = float(match["value"])
        except ValueError as error:
            raise _fail(source, number, line, f"{match['value']!r} is not a number") from error
        labels = _labels(match["labels"] or "", source, number, line)
        samples.append(Sample(match["name"], labels, value, number))
    return tuple(samples)


def _labels(text: str, source: str, number: int, line: str) -> Mapping[str, str]:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        match = _LABEL.match(text, position)
        if match is None:
            raise _fail(source, number, line, 'labels must read key="value", separated by commas')
        if match["key"] in labels:
            raise _fail(source, number, line, f"label {match['key']!r} appears twice")
        unescaped = re.sub(r"\\.", lambda m: _ESCAPE.get(m[0], m[0]), match["value"])
        labels[match["key"]] = unescaped
        position = match.end()
    return MappingProxyType(labels)
