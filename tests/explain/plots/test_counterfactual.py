"""The counterfactual plot: where quantities are, and where they would flip the choice."""

from __future__ import annotations

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.findings import Rule
from attribution_sched.explain.plots import counterfactual, style
from attribution_sched.explain.plots.counterfactual import gauges
from tests.explain.factory import explanation, full

numbers = st.floats(-1e4, 1e4).map(lambda x: round(x, 3))


@given(numbers, numbers)
def test_both_numbers_lie_on_the_scale_in_order(value, threshold):
    rule = Rule("queue", "tasks waiting", "tasks", value, threshold, "above", "wait")
    row = gauges(explanation(rules=(rule,)))[0]
    assert 0.0 <= row.place(value) <= 1.0
    assert 0.0 <= row.place(threshold) <= 1.0
    if value != threshold:
        assert (row.place(value) > row.place(threshold)) == (value > threshold)
        assert abs(row.place(value) - row.place(threshold)) > 0.08


def test_rows_are_rules_then_changes():
    assert [(row.quantity, row.rule) for row in gauges(full())] == [
        ("bandwidth", True), ("free devices", True), ("bandwidth", False), ("latency", False),
    ]  # fmt: skip


@pytest.mark.parametrize(("value", "threshold", "left"), [(9.0, 4.0, style.BAD), (2.0, 4.0, style.GOOD)])
def test_the_choice_holds_on_the_side_of_the_dot(value, threshold, left):
    rule = Rule("queue", "tasks waiting", "tasks", value, threshold, "above" if value > threshold else "below", "wait")
    ax = counterfactual(explanation(rules=(rule,)))
    first = min(ax.patches, key=lambda patch: patch.get_x())
    assert matplotlib.colors.to_hex(first.get_facecolor()).upper() == left
    assert {text.get_text() for text in ax.texts} >= {f"{value:g}", f"{threshold:g}"}


def test_nothing_found_is_told():
    with pytest.raises(ExplanationError, match="nothing was found to draw"):
        counterfactual(explanation())
