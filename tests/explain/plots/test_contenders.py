"""Policies side by side: every figure of every policy has its bar, narrow pages stack them."""

import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.plots import contenders, style

FIGURES = {"reward": [2.0, -1.0, float("nan")], "energy, kWh": [3.0, 0.0, 6.0]}


@pytest.mark.parametrize("inches", [6.6, 3.7])
def test_every_figure_of_every_policy_has_a_bar(inches):
    with style.canvas(inches):
        ax = contenders(FIGURES, ["a", "b", "c"], own=1, title="t")
    bars = [bar.get_width() for group in ax.containers for bar in group]
    assert len(bars) == 6
    assert bars[0] == pytest.approx(-2.0 * bars[1])
    assert bars[5] == pytest.approx(2.0 * bars[3])
    written = [text.get_text() for text in ax.texts]
    assert {"2", "−1", "–", "3", "0", "6", "reward", "energy, kWh"} <= set(written)
    bold = [label.get_text() for label in ax.get_yticklabels() if label.get_fontweight() == "bold"]
    assert set(bold) == {"b"}


def test_narrow_pages_are_taller():
    with style.canvas(6.6):
        wide = contenders(FIGURES, ["a", "b", "c"]).figure.get_size_inches()
    with style.canvas(3.7):
        narrow = contenders(FIGURES, ["a", "b", "c"]).figure.get_size_inches()
    assert narrow[0] == 3.7 < wide[0]
    assert narrow[1] > wide[1]


def test_figures_without_a_value_per_policy_are_refused():
    with pytest.raises(ExplanationError, match="one value per policy"):
        contenders({"reward": [1.0]}, ["a", "b"])


def test_a_canvas_leaves_pyplot_alone():
    from matplotlib import pyplot as plt

    before = plt.get_fignums()
    with style.canvas(5.0):
        contenders(FIGURES, ["a", "b", "c"])
    assert plt.get_fignums() == before
    ax = style.axes(None, 2.0)
    assert len(plt.get_fignums()) == len(before) + 1
    plt.close(ax.figure)
