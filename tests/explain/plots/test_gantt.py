"""Who held what over time: bars as high as the devices, no two tasks on one row, strips to their own scale."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.plots import gantt, style
from attribution_sched.explain.plots.gantt import Bar


@pytest.fixture(autouse=True)
def canvas():
    """Figures that pyplot does not keep."""
    with style.canvas(6.6):
        yield


DOMAINS = [("north", 4), ("south", 2)]
COURSE = ([0.0, 1.0, 2.0], [0.5, 1.0], [0.0, 3.0])


def rectangles(ax):
    """Left, right, top and bottom of every bar that was drawn."""
    paths = [path for each in ax.collections if isinstance(each, PolyCollection) for path in each.get_paths()]
    boxes = [path.get_extents() for path in paths]
    return [(box.x0, box.x1, box.y0, box.y1) for box in boxes]


def test_bars_are_as_high_as_the_devices_they_hold():
    ax = gantt([Bar("a", 0, 3, 0.0, 2.0), Bar("b", 1, 1, 0.5, 1.5)], DOMAINS, COURSE)
    boxes = rectangles(ax)
    assert sorted(round(y1 - y0, 6) for _, _, y0, y1 in boxes) == [1.0, 3.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["north", "south", "held", "waiting"]
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"a", "b"}


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 8), st.integers(1, 4)), min_size=1, max_size=12))
def test_while_devices_suffice_no_two_bars_lie_on_one_another(jobs):
    bars, free = [], np.zeros((4, 13), dtype=int)
    for devices, start, length in jobs:
        if (free[:, start : start + length].sum(axis=0) + devices <= 4).all():
            bars.append(Bar("a", 0, devices, float(start), float(start + length)))
            for hour in range(start, start + length):
                free[np.flatnonzero(free[:, hour] == 0)[:devices], hour] = 1
    boxes = rectangles(gantt(bars, [("north", 4)], COURSE))
    # Interval graphs with first fit may need a row twice only where the devices are split; area is kept in any case.
    held = sum(bar.devices * (bar.end_h - bar.start_h) for bar in bars)
    assert sum((x1 - x0) * (y1 - y0) for x0, x1, y0, y1 in boxes) == pytest.approx(held)
    assert all(y0 >= -1e-9 and y1 <= 4 + 1e-9 for _, _, y0, y1 in boxes)
    for i, (x0, x1, y0, y1) in enumerate(boxes):
        for u0, u1, v0, v1 in boxes[:i]:
            assert min(x1, u1) - max(x0, u0) < 1e-9 or min(y1, v1) - max(y0, v0) < 1e-9


def test_strips_tell_their_mean_and_their_most():
    written = [text.get_text().strip() for text in gantt([Bar("a", 0, 1, 0.0, 1.0)], DOMAINS, COURSE).texts]
    assert written == ["75 %\nmean", "3 at\nmost"]


def test_shares_of_devices_are_drawn_over_those_that_share_them():
    bars = [Bar("a", 1, 2, 0.0, 2.0), Bar("b", 1, 1, 0.0, 1.0)]
    assert len(rectangles(gantt(bars, DOMAINS, COURSE))) == 2


@pytest.mark.parametrize(
    ("bars", "domains", "course"),
    [
        ([], [], COURSE),
        ([], DOMAINS, ([0.0, 1.0], [0.5, 1.0], [0.0, 3.0])),
        ([Bar("a", 2, 1, 0.0, 1.0)], DOMAINS, COURSE),
    ],
)
def test_what_does_not_fit_together_is_refused(bars, domains, course):
    with pytest.raises(ExplanationError):
        gantt(bars, domains, course)
