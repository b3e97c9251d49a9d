"""The driver timeline."""

from __future__ import annotations

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.plots import timeline
from attribution_sched.explain.stacking import stack
from tests.explain.factory import episode, explanation


def test_cells_are_shares_and_white_where_uncertain():
    listed = episode(10)
    found = stack(listed)
    order = found.order(5)
    shown = np.asarray(timeline(listed, most=5).collections[0].get_array()).reshape(5, 10)
    np.testing.assert_array_equal(shown, np.where(found.certain[:, order].T, found.shares[:, order].T, 0.0))
    assert (shown == 0.0).any()


def test_absent_inputs_are_grey():
    assert len(timeline(episode(10), most=10).collections) == 2
    assert len(timeline([explanation()], most=3).collections) == 1


def test_times_set_the_widths():
    ax = timeline(episode(4), times_h=[0.0, 1.0, 3.0, 9.0])
    edges = ax.collections[0].get_coordinates()[0, :, 0]
    np.testing.assert_allclose(edges, [-1.0, 0.5, 2.0, 6.0, 10.0])
    assert "time [h]" in ax.get_xlabel()


def test_lines_break_where_an_input_is_absent():
    listed = episode(9)
    ax = timeline(listed, kind="lines", most=11)
    queue = next(line for line in ax.lines if line.get_label() == "queue")
    np.testing.assert_array_equal(np.isnan(queue.get_ydata()), [i % 3 == 0 for i in range(9)])


@pytest.mark.parametrize(
    ("how", "said"),
    [({"kind": "pie"}, "must be heatmap or lines"), ({"times_h": [1.0]}, "must be 3 finite"),
     ({"times_h": [3.0, 2.0, 1.0]}, "do not fall")],
)  # fmt: skip
def test_mistakes_are_told(how, said):
    with pytest.raises(ExplanationError, match=said):
        timeline(episode(3), **how)
