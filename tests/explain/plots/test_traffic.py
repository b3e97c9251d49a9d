"""The traffic heatmap shows what goes where, and where the model is cut."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.plots import style, traffic
from attribution_sched.explain.plots.traffic import cuts
from tests.explain.factory import DOMAINS
from tests.explain.plots.gallery import PLAN, TRAFFIC


def test_cuts_are_counted_from_one():
    assert cuts(PLAN) == [(0, 2, 20), (1, 3, 31)]


def test_cells_are_gigabytes_from_row_to_column():
    ax = traffic(np.array([[0, 2e9, 0], [0, 0, 0], [0, 0, 0]]), "abc")
    shown = ax.images[0].get_array()
    assert shown[0, 1] == 2.0
    assert np.isnan(shown.filled(np.nan)[1, 0])
    assert [text.get_text() for text in ax.texts] == ["2"]


def test_cuts_are_framed_and_domains_in_use_are_bold():
    ax = traffic(TRAFFIC, [*DOMAINS, "idle"][:4], PLAN)
    frames = [p for p in ax.patches if isinstance(p, Rectangle) and not p.get_fill()]
    assert sorted((p.get_y() + 0.5, p.get_x() + 0.5) for p in frames) == [(0.0, 2.0), (1.0, 3.0)]
    assert {"cut after 20", "cut after 31"} <= {text.get_text() for text in ax.texts}
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["us-east\nlayers 1–20", "us-west\nlayers 1–31", "eu-west\nlayers 21–48", "ap-tokyo\nlayers 32–48"]
    assert "46.6 GB cross domains per step: 2 replicas, 2 cuts" in ax.get_title(loc="left").replace("\n", " ")


def test_domains_that_are_not_in_use_are_faint():
    wide = np.zeros((5, 5))
    wide[:4, :4] = TRAFFIC
    ax = traffic(wide, [*DOMAINS, "idle"], PLAN)
    assert [label.get_fontweight() for label in ax.get_yticklabels()] == ["bold"] * 4 + ["normal"]
    assert ax.get_yticklabels()[4].get_color() == style.FAINT


def test_a_wide_range_is_logarithmic():
    uneven = np.array([[0.0, 1e6], [1e10, 0.0]])
    assert isinstance(traffic(uneven, "ab").images[0].norm, LogNorm)
    assert not isinstance(traffic(TRAFFIC, DOMAINS).images[0].norm, LogNorm)


def test_no_traffic_is_a_picture_too():
    ax = traffic(np.zeros((2, 2)), "ab")
    ax.get_figure().canvas.draw()
    assert "0 GB" in ax.get_title(loc="left")


@pytest.mark.parametrize(
    ("bytes_", "said"), [(np.zeros((2, 3)), "shape"), (np.full((2, 2), -1.0), "finite and >= 0"),
                         (np.full((2, 2), np.nan), "finite and >= 0")]
)  # fmt: skip
def test_mistakes_are_told(bytes_, said):
    with pytest.raises(ExplanationError, match=said):
        traffic(bytes_, "ab")
