"""Numbers in words and bars in rows."""

import pytest

from attribution_sched.serve import page


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "–"), (float("nan"), "–"), (True, "–"), (0, "0 s"), (89.6, "1 min 30 s"), (3600, "60 min 00 s"),
     (7260, "2 h 01 min"), (172800, "2.0 d")],
)  # fmt: skip
def test_a_span(value, words):
    assert page.span(value) == words


def test_other_numbers():
    assert page.seconds(0.0123) == "12.3 ms" and page.seconds(12.0) == "12 s" and page.seconds("x") == "–"
    assert page.joules(2.67e9) == "2.67 GJ" and page.joules(12.0) == "12 J" and page.percent(0.123) == "12.3 %"
    assert page.signed(-0.5) == "−0.5" and page.count(1234.4) == "1,234" and page.gbps(None) == "–"


def bar(task, start_s, end_s):
    return {"task": task, "domain": "east", "devices": 1, "start_s": start_s, "end_s": end_s}


def test_bars_that_overlap_are_in_different_rows():
    rows = {each["task"]: row for each, row in page.packed([bar("a", 0, 5), bar("b", 2, None), bar("c", 5, 6)], 9.0)}
    assert rows == {"a": 0, "b": 1, "c": 0}


def test_a_chart_has_a_bar_for_each_and_escapes_names():
    view = {"bars": [bar("<b>", 0.0, 5.0), bar("b", 2.0, None)], "cluster_time_s": 9.0, "domains": [{"name": "east"}]}
    drawn = str(page.gantt(view, "en"))
    assert drawn.count("<title>") == 2 and "&lt;b&gt;" in drawn and "<b>" not in drawn
    assert page.gantt(view | {"bars": []}, "en") == ""


def test_contributions_are_drawn_to_scale():
    drawn = str(page.attribution_bars([{"name": "fc", "value": 2.0}, {"name": "<i>", "value": -1.0}]))
    assert 'class="b2"' in drawn and "&lt;i&gt;" in drawn
