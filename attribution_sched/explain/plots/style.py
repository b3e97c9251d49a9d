"""What all plots share: colours for every kind of colour vision, fonts, labels that fit, axes that are left alone."""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from attribution_sched.errors import MissingFontWarning, problem
from attribution_sched.explain import facts
from attribution_sched.explain.digits import number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.findings import Player
from attribution_sched.explain.wording import output_name, output_unit
from attribution_sched.words.names import input_name
from attribution_sched.words.say import check_language, in_language, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap

GOOD, BAD, UNSURE, INK, FAINT, GRID = "#0072B2", "#D55E00", "#B8B8B8", "#222222", "#6B6B6B", "#E3E3E3"
"""Okabe and Ito's blue and vermilion speak for and against a choice; grey is what cannot be told from 0."""

COMPONENT_COLOURS: dict[str, str] = {"R_eff": "#56B4E9", "R_util": "#009E73", "R_cost": "#E69F00"}
COMPONENT_HATCHES: dict[str, str] = {"R_eff": "", "R_util": "////", "R_cost": r"\\\\"}
"""A second mark beside the colour, for prints without any."""

LINES: tuple[str, ...] = ("#0072B2", "#D55E00", "#009E73", "#B3548A", "#3795CC", "#B87C00", "#000000", "#7A6A00")

CHINESE_FONTS: tuple[str, ...] = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Microsoft YaHei", "SimHei", "PingFang SC", "Hiragino Sans GB", "Noto Sans CJK JP",
    "Droid Sans Fallback", "Arial Unicode MS",
)  # fmt: skip

_UNITS = re.compile(r"[\u3000-\u9fff\uff00-\uffef][，。；：、）」！？]*\s*|[^\s\u3000-\u9fff\uff00-\uffef]+\s*")
"""What a line may be broken between: words, and Chinese characters with the marks that close them."""

REPORT_INCHES = 6.6
"""Width of a figure in a report."""


@functools.cache
def chinese_font() -> str | None:
    """Name of an installed font with Chinese glyphs, None if there is none."""
    from matplotlib import font_manager

    present = {font.name for font in font_manager.fontManager.ttflist}
    return next((name for name in CHINESE_FONTS if name in present), None)


@dataclass(frozen=True)
class Canvas:
    """Where new figures are drawn.

    Attributes:
        inches: Their width at most.
        text: Whether their text stays text, so that the reader's fonts are used and none is needed here.
    """

    inches: float
    text: bool


_CANVAS: ContextVar[Canvas | None] = ContextVar("canvas", default=None)

NARROWEST = 0.75
"""Below this part of a report's width, rows get more height: their labels take more lines."""


@contextmanager
def canvas(inches: float, *, text: bool = False) -> Iterator[None]:
    """Inside, new figures are at most so wide, and are not kept among pyplot's open ones.

    Args:
        inches: Width.
        text: Whether what is drawn will be written with its text as text; see :mod:`.svg`.
    """
    before = _CANVAS.set(Canvas(inches, text))
    try:
        yield
    finally:
        _CANVAS.reset(before)


def paints_glyphs() -> bool:
    """Whether text becomes pixels here, for which this machine must have the glyphs."""
    place = _CANVAS.get()
    return place is None or not place.text


def drawn_language(lang: str) -> str:
    """The language a plot can be drawn in: English, said once, where Chinese would be pixels and no font has glyphs."""
    check_language(lang)
    if lang == "en" or not paints_glyphs() or chinese_font():
        return lang
    _say_that_no_font_is_there()
    return "en"


@functools.cache
def _say_that_no_font_is_there() -> None:
    fix = "Install one (Debian, Ubuntu: apt-get install fonts-noto-cjk), or write a report, whose pictures need none"
    words = problem("lang", "zh", "no installed font has Chinese glyphs, so plots are drawn in English", fix)
    # The caller of the plot is two levels above: this function, drawn_language, the plot.
    warnings.warn(words, MissingFontWarning, stacklevel=4)


def drawable(text: str) -> str:
    """A name that can be drawn: where it would be pixels and no font has its Chinese characters, boxes for them."""
    if text.isascii() or not paints_glyphs() or chinese_font():
        return text
    return "".join("□" if east_asian_width(letter) in "WF" else letter for letter in text)


def axes(ax: Axes | None, height: float, width: float = REPORT_INCHES) -> Axes:
    """The axes to draw on: those given, or new ones of report size."""
    if ax is not None:
        return ax
    place = _CANVAS.get()
    if place is not None:
        from matplotlib.figure import Figure

        narrow = place.inches < NARROWEST * REPORT_INCHES
        size = (min(width, place.inches), height * (1.25 if narrow else 1.0))
        return Figure(figsize=size, layout="constrained").subplots()
    from matplotlib import pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def finish(ax: Axes, lang: str, *, grid: str = "x") -> Axes:
    """Take away what only frames, put the grid behind, and set the font the language needs."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color("#9A9A9A")
    ax.tick_params(labelsize=8, color="#9A9A9A")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_offset_text().set_fontsize(8)
    if grid:
        ax.grid(True, axis=grid, color=GRID, linewidth=0.7)  # type: ignore[arg-type]
    ax.set_axisbelow(True)
    return in_font(ax, lang)


def in_font(ax: Axes, lang: str) -> Axes:
    """Set the font that the language needs on every text of the axes."""
    font = chinese_font() if lang == "zh" and paints_glyphs() else None
    if font:
        from matplotlib.text import Text

        # Letters and digits look as in other plots; only what is missing comes from the Chinese font.
        family = ["DejaVu Sans", font]
        ax.tick_params(labelfontfamily=family)
        for text in ax.findobj(Text):
            text.set_fontfamily(family)
    return ax


def title(ax: Axes, text: str, *, above: float = 6.0) -> None:
    """A title over the axes, wrapped to what the labels on the left leave of the width.

    Args:
        ax: The axes, with their row labels set.
        text: The title.
        above: Gap to the axes in points.
    """
    rows = [line for label in ax.get_yticklabels() for line in label.get_text().split("\n")]
    points = 0.6 * 8.0 * max((width(row) for row in rows if row), default=6) + (14.0 if ax.get_ylabel() else 0.0)
    left = 72.0 * _cell(ax)[0] - points - 10.0
    words = fitted(text, int(left / (0.63 * 9.5)), 3)
    ax.set_title(words, loc="left", fontsize=9.5, fontweight="bold", color=INK, pad=above)


def characters(ax: Axes, part: float, size: float = 8.0) -> int:
    """How many characters of a size (in points) fit on a part of the axes' width, as given by its grid cell."""
    inches = _cell(ax)[0]
    return max(8, int(part * inches * 72.0 / (0.56 * size)))


def lines_per_row(ax: Axes, rows: int, size: float = 8.0) -> int:
    """How many lines of text of a size (in points) fit into one of so many rows."""
    return max(1, int(0.8 * _cell(ax)[1] * 72.0 / max(rows, 1) / (1.25 * size)))


def _cell(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes' place in the figure, in inches, labels included."""
    box, figure = ax.get_position(original=True), ax.get_figure(root=True)
    if figure is None:
        return REPORT_INCHES, 4.0
    wide, high = figure.get_size_inches()
    return float(box.width * wide / 0.775), float(box.height * high / 0.77)


def width(text: str) -> int:
    """How many Latin characters wide a text is; Chinese ones count twice."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def fitted(text: str, wide: int, lines: int = 2) -> str:
    """Text broken to so many characters and lines; what is left over ends in an ellipsis.

    Latin text is broken between words, Chinese text anywhere but before a closing mark.
    """
    wide, rows = max(4, wide), [""]
    for unit in _UNITS.findall(drawable(text)):
        while width(unit) > wide:
            # A word longer than a row is cut.
            head = _head(unit, wide)
            rows.append(head)
            unit = unit[len(head) :]
        if width((rows[-1] + unit).rstrip()) <= wide:
            rows[-1] += unit
        else:
            rows.append(unit)
    rows = [row.strip() for row in rows if row.strip()]
    if len(rows) > lines:
        last = _head(rows[lines - 1], wide - 1).rstrip()
        rows = [*rows[: lines - 1], f"{last}…"]
    return "\n".join(rows)


def _head(text: str, wide: int) -> str:
    """As much of the beginning as is so wide, one character at least."""
    end = 1
    while end < len(text) and width(text[: end + 1]) <= wide:
        end += 1
    return text[:end]


def shortened(text: str, wide: int) -> str:
    """One line; what is too long loses its middle, as names often differ at the end."""
    text = drawable(text)
    if width(text) <= wide:
        return text
    tail = _head(text[::-1], max(1, wide // 3))[::-1]
    return f"{_head(text, max(1, wide - width(tail) - 1)).rstrip()}…{tail.lstrip()}"


def key(ax: Axes, text: str, *, first: str = "") -> None:
    """Name the horizontal axis, with a key in words under it, wrapped to the axes."""
    wide, rows = characters(ax, 0.68), [""]
    for part in text.split(" · "):
        joined = f"{rows[-1]} · {part}" if rows[-1] else part
        if width(joined) <= wide or not rows[-1]:
            rows[-1] = joined
        else:
            rows.append(part)
    ax.set_xlabel(drawable("\n".join(row for row in (first, *rows) if row)), fontsize=8)


def rows_that_fit(ax: Axes, size: float = 8.0) -> int:
    """How many labels of a size (in points) fit below one another."""
    return max(2, int(0.72 * _cell(ax)[1] * 72.0 / (1.3 * size)))


def input_label(name: str, lang: str) -> str:
    """An input's name on an axis."""
    return input_name(name, lang) if lang != "en" else name.replace("_", " ")


def player_label(player: Player, lang: str, wide: int, lines: int = 2, *, reading: bool = False) -> str:
    """A player's name, and on the next line what it is in the decision if there is room for it."""
    label = fitted(input_label(player.name, lang), wide, min(lines, 2))
    if reading and player.value and label.count("\n") + 2 <= lines:
        told, mark = in_language(player.value, lang), ", " if lang == "en" else "，"
        # What comes after a comma says more of the same: rather left out than broken off.
        while width(drawable(told)) > wide and mark in told:
            told = told.rpartition(mark)[0]
        label += f"\n{fitted(told, wide, 1)}"
    return label


def spread(ax: Axes, values: Iterable[float], part: float = 0.05) -> None:
    """Let the horizontal axis hold all values, with a margin on both sides."""
    from matplotlib.ticker import MaxNLocator

    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    margin = part * (high - low) or 0.05 * abs(high) or 0.5
    ax.set_xlim(low - margin, high + margin)
    # Labels of small numbers are long: fewer of them than matplotlib would set.
    ax.xaxis.set_major_locator(MaxNLocator(nbins=max(2, int(0.95 * _cell(ax)[0])), steps=[1, 2, 2.5, 5, 10]))
    # Each label is a number by itself: a power of ten at the end of the axis would run into the axis' name.
    span = high - low + 2 * margin
    digits = 3 + max(0, math.ceil(math.log10(max(abs(low), abs(high), span) / span)))
    ax.xaxis.set_major_formatter(lambda at, _: number(0.0 if abs(at) < 1e-9 * span else at, digits))


def legend_above(ax: Axes, entries: int, text: str) -> None:
    """A title with the legend between it and the axes, in as many rows as the width asks for."""
    longest = max((width(label) for label in ax.get_legend_handles_labels()[1]), default=1)
    columns = min(entries, characters(ax, 0.72) // (longest + 6)) if characters(ax, 1.0) > 75 else 2
    columns = max(1, columns)
    title(ax, text, above=8.0 + 13.0 * math.ceil(entries / columns))
    ax.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, fontsize=8, frameon=False, handlelength=1.6,
        columnspacing=1.3, borderaxespad=0.1, borderpad=0.2,
    )  # fmt: skip


def share_label(explanation: Explanation, output: str, lang: str) -> str:
    """Name of the axis of an output's shares, with its unit."""
    name = say("plot.share_of", lang, name=output_name(output, lang))
    return with_unit(name, output_unit(output, explanation.target, lang), lang)


def with_unit(name: str, unit: str, lang: str) -> str:
    """Name of an axis with its unit, if it has one."""
    return say("plot.with_unit", lang, name=name, unit=unit) if unit else name


def colour_bar(ax: Axes, shown: ScalarMappable, label: str, lang: str, **how: Any) -> Colorbar:
    """A frameless colour bar beside the axes."""
    bar = ax.figure.colorbar(shown, ax=ax, pad=0.02, **how)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    for spine in bar.ax.spines.values():
        spine.set_visible(False)
    in_font(bar.ax, lang)
    return bar


def colour(explanation: Explanation, output: str, share: float, certain: bool) -> str:
    """Blue for what speaks for the choice, vermilion for what speaks against it, grey for what is not certain."""
    if not certain:
        return UNSURE
    good = facts.direction(explanation, output) or 1
    return GOOD if good * share > 0 else BAD


def diverging() -> Colormap:
    """Vermilion below 0, white at 0, blue above: the colours of the bars."""
    from matplotlib.colors import LinearSegmentedColormap

    ramp = ["#7F3300", BAD, "#F3B98C", "#FFFFFF", "#8CC4E6", GOOD, "#00344F"]
    return LinearSegmentedColormap.from_list("shares", ramp)


def low_to_high() -> Colormap:
    """Brown below what is usual, grey at it, teal above; visible on white everywhere."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("readings", ["#8C510A", "#D8B365", "#A9A9A9", "#5AB4AC", "#01665E"])
