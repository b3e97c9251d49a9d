"""The plot of what changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attribution_sched.explain.comparison import compare
from attribution_sched.explain.plots import changes, style
from tests.explain.factory import episode


@pytest.mark.parametrize(("factor", "tone"), [(1.5, style.GOOD), (0.5, style.BAD), (1.0, style.UNSURE)])
def test_gains_losses_and_the_uncertain_have_their_colours(factor, tone):
    before = episode(12)
    after = [replace(one, values=one.values * factor) for one in before]
    found = compare(before, after, resamples=200)
    ax = changes(found, most=4)
    dots = [line for line in ax.lines if line.get_marker() == "o" and line.get_color() != "white"]
    assert {line.get_color() for line in dots} == {tone}
    told = found.changes()
    assert [line.get_xdata()[0] for line in dots] == pytest.approx(list(told.after[:4]))


def test_too_few_decisions_are_grey():
    before = episode(2)
    ax = changes(compare(before, [replace(one, values=one.values * 3) for one in before]))
    ax.get_figure().canvas.draw()
    assert {line.get_color() for line in ax.lines if line.get_marker() == "o"} <= {style.UNSURE, "white"}
