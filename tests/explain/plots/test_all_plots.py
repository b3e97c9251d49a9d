"""What holds for every plot: given axes are used and returned, nothing global changes, nothing is cut off."""

from __future__ import annotations

import itertools
import re

import matplotlib
import pytest
from matplotlib import font_manager
from matplotlib import pyplot as plt
from matplotlib.text import Text

from attribution_sched.errors import ExplanationError, MissingFontWarning
from attribution_sched.explain import plots
from attribution_sched.explain.plots import style
from tests.explain.plots.gallery import GALLERY

BOXES = "Last Resort High-Efficiency"
"""A font that comes with matplotlib and draws every Chinese character as a box as wide as the character."""

WIDTHS = {"report": (6.6, 4.6, 150), "phone": (3.9, 4.2, 100)}


@pytest.mark.parametrize("name", GALLERY)
def test_given_axes_are_used_and_settings_left_alone(name, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("a plot must not show itself"))
    before = dict(matplotlib.rcParams)
    figure, axes = plt.subplots(1, 2)
    assert GALLERY[name](ax=axes[0]) is axes[0]
    assert not axes[1].has_data()
    assert plt.get_fignums() == [figure.number]
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", GALLERY)
def test_new_axes_are_made_and_written(name, tmp_path):
    ax = GALLERY[name]()
    figure = ax.get_figure()
    figure.savefig(tmp_path / "plot.png", dpi=60)
    assert (tmp_path / "plot.png").stat().st_size > 3000
    assert 3.0 <= figure.get_figwidth() <= 8.0


@pytest.mark.parametrize("name", GALLERY)
def test_axes_and_title_are_labelled(name):
    ax = GALLERY[name]()
    words = [ax.get_xlabel(), ax.get_ylabel(), *(other.get_ylabel() for other in ax.get_figure().axes)]
    assert ax.get_title(loc="left")
    if name.startswith("counterfactual"):
        assert any("Gb/s" in text.get_text() for text in ax.texts)
    else:
        assert re.search(r"\[.+\]", " ".join(words)), words


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("name", GALLERY)
def test_no_text_is_cut_off_and_no_labels_overlap(name, size, lang, monkeypatch):
    if lang == "zh":
        if BOXES not in {font.name for font in font_manager.fontManager.ttflist}:
            pytest.skip("this matplotlib has no font of last resort")
        monkeypatch.setattr(style, "chinese_font", lambda: BOXES)
    wide, high, dpi = WIDTHS[size]
    figure, ax = plt.subplots(figsize=(wide, high), dpi=dpi, layout="constrained")
    GALLERY[name](ax=ax, lang=lang)
    figure.canvas.draw()
    renderer, frame = figure.canvas.get_renderer(), figure.bbox
    for text in figure.findobj(Text):
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent(renderer)
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= frame.x1 + 1 and box.y1 <= frame.y1 + 1
            assert inside or not _drawn(text, figure), (text.get_text(), box)
    labels = [label for label in ax.get_yticklabels() if label.get_text()]
    boxes = sorted((label.get_window_extent(renderer) for label in labels), key=lambda box: box.y0)
    for one, other in itertools.pairwise(boxes):
        assert one.y1 <= other.y0 + 2.0
    level = [label for label in ax.get_xticklabels() if label.get_text() and not label.get_rotation()]
    boxes = sorted((label.get_window_extent(renderer) for label in level), key=lambda box: box.x0)
    for one, other in itertools.pairwise(boxes):
        assert one.x1 < other.x0


@pytest.mark.parametrize("name", GALLERY)
@pytest.mark.filterwarnings("ignore::attribution_sched.errors.MissingFontWarning")
@pytest.mark.usefixtures("no_chinese_font")
def test_without_a_chinese_font_pixels_are_english(name):
    ax = GALLERY[name](lang="zh")
    # A glyph that no font has would be a warning, and so an error.
    ax.get_figure().canvas.draw()
    words = " ".join(text.get_text() for text in ax.get_figure().findobj(Text))
    assert not re.search(r"[\u4e00-\u9fff]", words)


@pytest.mark.usefixtures("no_chinese_font")
def test_that_pixels_are_english_is_said_once():
    with pytest.warns(MissingFontWarning, match=r"lang = 'zh'.*no installed font.*fonts-noto-cjk") as said:
        for name in ("waterfall", "components", "waterfall"):
            GALLERY[name](lang="zh")
    assert len(said) == 1
    assert said[0].filename.endswith("gallery.py")
    GALLERY["waterfall"](lang="en")


@pytest.mark.usefixtures("no_chinese_font")
def test_chinese_names_without_a_font_are_boxes_in_pixels():
    for draw in (
        lambda: plots.contenders({"费用": [1.0], "能耗": [2.0]}, ["北京"], title="同一时段"),
        lambda: plots.traffic([[0.0, 1e9], [0.0, 0.0]], ["北京", "上海"]),
        lambda: plots.attributions([[1.0] * 7], ["任务 1"]),
    ):
        ax = draw()
        ax.get_figure().canvas.draw()
        words = " ".join(text.get_text() for text in ax.get_figure().findobj(Text))
        assert "□" in words
        assert not re.search(r"[\u4e00-\u9fff]", words)


@pytest.mark.parametrize("name", [name for name in GALLERY if "long" not in name])
def test_with_a_chinese_font_plots_are_chinese(name, monkeypatch):
    monkeypatch.setattr(style, "chinese_font", lambda: "DejaVu Sans")
    ax = GALLERY[name](lang="zh")
    words = [ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel()]
    words += [label.get_text() for label in ax.get_yticklabels()]
    text = " ".join(words)
    assert re.search(r"[\u4e00-\u9fff]", ax.get_title(loc="left"))
    assert not re.search(r"\b(the|of|mean|share|load|link|queue|others|decision|from|to|for|blue|grey)\b", text), text


def test_an_unknown_language_is_refused():
    with pytest.raises(ExplanationError, match="lang = 'xx'"):
        GALLERY["waterfall"](lang="xx")


def _drawn(text: Text, figure: plt.Figure) -> bool:
    """Tick labels outside the view limits exist but are not drawn."""
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if text in (tick.label1, tick.label2):
                return low <= tick.get_loc() <= high
    return True
