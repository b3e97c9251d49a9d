import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.attribution.sources.dcgm import parse_prometheus
from attribution_sched.errors import CounterError

TEXT = '# HELP a help\n# TYPE a gauge\na{gpu="0",pod="x, y}"} 1.5 1700000000000\n\nb 2e3\nc{} NaN\nd +Inf # {t="1"} 1\n'


def test_the_format():
    a, b, c, d = parse_prometheus(TEXT)
    assert (a.name, dict(a.labels), a.value, a.line) == ("a", {"gpu": "0", "pod": "x, y}"}, 1.5, 3)
    assert (b.value, dict(b.labels)) == (2000.0, {})
    assert math.isnan(c.value)
    assert math.isinf(d.value)


@pytest.mark.parametrize(
    "line",
    ["a", "a{gpu=0} 1", 'a{gpu="0" 1', "1a 2", "a one", 'a{gpu="0",gpu="1"} 1', 'a{gpu="0"x="1"} 1', "<html>"],
)
def test_malformed_lines_name_the_line(line):
    with pytest.raises(CounterError, match="metrics line 2"):
        parse_prometheus(f"ok 1\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "a" + " " * 200_000,
        "a" + " " * 200_000 + "x y",
        "a 1 " + " " * 200_000 + "z",
        'a{k="' + "\\\\" * 100_000,
        "a{" + "k " * 100_000,
        "a{" + " " * 200_000,
        'a{k="v"' + " " * 200_000 + "x",
        "a" * 200_000 + "{",
    ],
)
def test_a_line_is_read_once_however_long_it_is(line):
    """The pattern of before took 0.45 s for 8,000 spaces and four times that for twice as many."""
    began = time.process_time()
    with pytest.raises(CounterError, match="metrics line 1") as caught:
        parse_prometheus(line)
    assert time.process_time() - began < 0.5
    assert len(str(caught.value)) < 600


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cs"))), st.floats(allow_nan=False))
def test_any_label_value_survives(text, value):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    (sample,) = parse_prometheus(f'a{{k="{escaped}"}} {value!r}')
    assert sample.labels["k"] == text
    assert sample.value == value
