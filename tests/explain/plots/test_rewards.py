"""Reward timeline: bars add up to R, many decisions are averaged, bad input is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.plots import rewards, style
from attribution_sched.explain.plots.rewards import MOST_BARS, binned


def drawn(count, **given):
    rng = np.random.default_rng(count)
    terms, weights = rng.normal(size=(count, 3)), np.tile([1.0, 0.5, 0.5], (count, 1))
    with style.canvas(6.6):
        ax = rewards(terms, weights, np.arange(count, dtype=float), **given)
    return ax, (terms * weights * [1, 1, -1]).sum(axis=1)


@given(count=st.integers(1, 400))
@settings(deadline=None, max_examples=30)
def test_neighbours_are_averaged_and_none_is_lost(count):
    values = np.arange(count, dtype=float)
    found = binned(values)
    assert len(found) <= MOST_BARS
    each = -(-count // MOST_BARS)
    sizes = np.full(len(found), each)
    sizes[-1] = count - each * (len(found) - 1)
    assert (found * sizes).sum() == pytest.approx(values.sum())


def test_diamonds_are_the_sum_of_the_bars():
    ax, totals = drawn(12)
    diamonds = next(line for line in ax.lines if line.get_label() == "R")
    assert np.allclose(diamonds.get_ydata(), totals)
    heights = np.array([[bar.get_height() for bar in group] for group in ax.containers[:3]])
    assert np.allclose(heights.sum(axis=0), totals)


def test_changes_are_marked_where_they_were_made():
    ax, _ = drawn(12, changes=[4])
    marks = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in marks] == [3.5]


@pytest.mark.filterwarnings("ignore::attribution_sched.errors.MissingFontWarning")
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_both_languages_are_drawn(lang):
    assert drawn(200, lang=lang)[0].get_xlabel()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ExplanationError, match="one row at least"):
        rewards(np.zeros((0, 3)), np.zeros((0, 3)), [])
    with pytest.raises(ExplanationError, match="finite"):
        rewards(np.full((1, 3), np.nan), np.ones((1, 3)), [0.0])
