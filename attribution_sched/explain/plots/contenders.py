"""Policies side by side: one small bar chart per figure, the run's own policy set off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.digits import number
from attribution_sched.explain.plots import style
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


OWN, OTHER = style.GOOD, "#9FB4C4"


def contenders(
    figures: Mapping[str, Sequence[float]],
    names: Sequence[str],
    ax: Axes | None = None,
    *,
    own: int = 0,
    title: str = "",
    lang: str = "en",
) -> Axes:
    """Draw every figure of every policy; a column of bars for each figure, each on a scale of its own.

    Args:
        figures: Name of a figure with its unit → its value for every policy; NaN where it is not known.
        names: The policies.
        ax: Where to draw; new axes by default.
        own: Which policy is the run's own.
        title: Heading.
        lang: ``en`` or ``zh``.

    Raises:
        ExplanationError: If there is nothing to draw, or a figure has not one value per policy.
    """
    lang = style.drawn_language(lang)
    n, k = len(names), len(figures)
    if not n or not k or any(len(values) != n for values in figures.values()):
        fix = "Give every figure one value per policy"
        raise ExplanationError(problem("figures", {name: len(v) for name, v in figures.items()}, f"need {n} each", fix))
    names = [style.drawable(name) for name in names]
    # On a narrow page the small charts go below one another.
    ax = style.axes(ax, 1.0 + 0.27 * n)
    narrow = style.characters(ax, 1.0) <= 75
    if narrow:
        _stack(ax, figures, names, own, lang)
    else:
        _columns(ax, figures, names, own)
    ax.set_xticks([])
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0, labelsize=8)
    style.title(ax, title, above=6.0 if narrow else 20.0)
    return style.in_font(ax, lang)


def _columns(ax: Axes, figures: Mapping[str, Sequence[float]], names: Sequence[str], own: int) -> None:
    for column, (name, values) in enumerate(figures.items()):
        _bars(ax, column, np.arange(len(names), dtype=np.float64), values, own)
        ax.text(column + 0.02, -0.85, style.drawable(name), fontsize=8, color=style.FAINT, va="center")
    ax.set_yticks(range(len(names)), names)
    _bold(ax, {own})
    ax.set_ylim(len(names) - 0.4, -1.2)
    ax.set_xlim(-0.02, len(figures))


def _stack(ax: Axes, figures: Mapping[str, Sequence[float]], names: Sequence[str], own: int, lang: str) -> None:
    n = len(names)
    labels: list[str] = []
    places: list[float] = []
    bold: set[int] = set()
    for block, (name, values) in enumerate(figures.items()):
        first = block * (n + 1.6)
        ax.text(0.0, first - 0.85, name, fontsize=8, color=style.FAINT, va="center")
        _bars(ax, 0, first + np.arange(n, dtype=np.float64), values, own)
        bold.add(len(labels) + own)
        labels += list(names)
        places += (first + np.arange(n)).tolist()
    figure = ax.get_figure(root=True)
    if figure is not None:
        figure.set_size_inches(float(figure.get_size_inches()[0]), 0.6 + 0.21 * (n + 1.6) * len(figures))
    ax.set_yticks(places, labels)
    _bold(ax, bold)
    ax.set_ylim(places[-1] + 0.6, -1.4)
    ax.set_xlim(-0.02, 1.0)


def _bars(ax: Axes, column: int, rows: FloatArray, values: Sequence[float], own: int) -> None:
    """Bars from a zero of their own; negative ones to the left of it."""
    finite = np.array([value if np.isfinite(value) else 0.0 for value in values])
    low, high = min(0.0, float(finite.min())), max(0.0, float(finite.max()))
    scale = 0.62 / ((high - low) or 1.0)
    zero = column - low * scale
    for i, value in enumerate(values):
        tone = OWN if i == own else OTHER
        ax.barh(rows[i], finite[i] * scale, left=zero, height=0.62, color=tone, zorder=2)
        end = max(zero, zero + finite[i] * scale)
        ax.text(end + 0.02, rows[i], number(value), va="center", fontsize=7.5,
                fontweight="bold" if i == own else "normal", color=style.INK)  # fmt: skip
    ax.plot([zero, zero], [rows[0] - 0.45, rows[-1] + 0.45], color="#9A9A9A", linewidth=0.8, zorder=3)


def _bold(ax: Axes, which: set[int]) -> None:
    for i, label in enumerate(ax.get_yticklabels()):
        label.set_fontweight("bold" if i in which else "normal")
