"""Reward timeline: what every plan put in force was worth, split into its weighted components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.explanation import COMPONENTS, SIGNS
from attribution_sched.explain.plots import style
from attribution_sched.types import FloatArray
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_BARS = 80
"""With more decisions, bars are means of as many neighbours each as it takes."""


def binned(values: FloatArray, most: int = MOST_BARS) -> FloatArray:
    """Means of neighbours, so that no more than so many rows are left, shape ``(B, …)``."""
    each = max(1, int(np.ceil(len(values) / most)))
    return np.array([values[at : at + each].mean(axis=0) for at in range(0, len(values), each)])


def rewards(
    terms: ArrayLike,
    weights: ArrayLike,
    times_h: Sequence[float],
    ax: Axes | None = None,
    *,
    changes: Sequence[int] = (),
    lang: str = "en",
) -> Axes:
    """Draw R of every decision as the sum of its weighted components.

    Args:
        terms: R_eff, R_util and R_cost of the decisions in order, shape ``(N, 3)``.
        weights: w_eff, w_util and w_cost they were taken with, shape ``(N, 3)``.
        times_h: When, in hours; labels of the axis.
        ax: Where to draw; new axes by default.
        changes: Numbers of the decisions before which feedback changed something; marked by a line.
        lang: ``en`` or ``zh``.

    Raises:
        ExplanationError: If shapes do not fit or a number is not finite.
    """
    from matplotlib.ticker import MaxNLocator

    lang = style.drawn_language(lang)
    table, factors = np.asarray(terms, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    n = len(times_h)
    if table.shape != (n, 3) or factors.shape != (n, 3) or not n or not np.isfinite(table * factors).all():
        rule = f"must be {n} rows of three finite numbers, one row at least"
        raise ExplanationError(problem("terms, weights", (table.shape, factors.shape), rule, "Leave out refusals"))
    parts, hours = binned(table * factors * np.array(SIGNS)), binned(np.asarray(times_h, dtype=np.float64))
    each = int(np.ceil(n / MOST_BARS))
    ax = style.axes(ax, 3.1)
    at = np.arange(len(parts))
    for c, component in enumerate(COMPONENTS):
        size = parts[:, c]
        # Positive and negative parts are stacked apart, each on what was drawn before on its side.
        before = np.where(parts[:, :c] * size[:, None] > 0, parts[:, :c], 0.0).sum(axis=1)
        name = f"{'−' if component == 'R_cost' else ''}w·{component}"
        ax.bar(
            at, size, bottom=before, width=0.82, color=style.COMPONENT_COLOURS[component], label=name, zorder=2,
            hatch=style.COMPONENT_HATCHES[component], edgecolor="white", linewidth=0.3,
        )  # fmt: skip
    ax.plot(at, parts.sum(axis=1), "D", color=style.INK, markersize=3.6, markeredgecolor="white",
            markeredgewidth=0.5, label="R", zorder=4)  # fmt: skip
    for number in changes:
        ax.axvline(number / each - 0.5, color=style.BAD, linewidth=1.2, linestyle="--", zorder=3)
    ax.axhline(0.0, color=style.INK, linewidth=0.8, zorder=3)
    ax.set_xlim(-0.7, len(parts) - 0.3)
    wide = max(2, style.characters(ax, 0.8) // 9)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=min(wide, 9), integer=True))
    digits = 1 if hours[-1] - hours[0] > 5.0 else 2
    ax.xaxis.set_major_formatter(lambda x, _: f"{hours[round(x)]:.{digits}f}" if 0 <= round(x) < len(hours) else "")
    few = say("rewards.each", lang, count=each) if each > 1 else ""
    mark = say("rewards.changed", lang) if changes else ""
    style.key(ax, " · ".join(word for word in (few, mark) if word), first=say("rewards.axis", lang))
    ax.set_ylabel(say("rewards.weighted", lang), fontsize=8)
    style.finish(ax, lang, grid="y")
    style.legend_above(ax, 4, say("rewards.title", lang))
    return style.in_font(ax, lang)
